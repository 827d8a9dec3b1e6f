"""Linear combinations of measured cells that are known exactly, as the pass of sums over parts of a tree takes them.

Multipliers of the combinations may be taken off the residuals, whoever gives them: what is left then is a bound all the
same. And counts may be moved so that one combination changes and no other, and nothing else that is known exactly:
so an estimate that is off by rounding has counts beside it that satisfy everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from blue_solvers.verification.known_exactly import KnownExactly
from blue_solvers.verification.placed_tables import PlacedTables, TableAtLevel
from blue_solvers.verification.weighed_noise import EXACT_TO, NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float, Long
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines

TWICE = 2.0  # what moves are worked out to be: they are right but for rounding
CLEAR = 1e-9  # of what they change: by how much they may be off
LARGE = 1e300  # the least standard error of no figure


def finest_known(schema: Schema, known: Iterable[TableAtLevel]) -> TableAtLevel | None:
    """The table of those known exactly that all others are sums of; None without any.

    Raises
    ------
    NotCertifiedError
        If there is none.
    """
    known = list(known)
    if not are_nested(schema, known):
        raise NotCertifiedError("tables are known exactly that do not nest: the least standard errors are not known")
    return max(known, key=lambda own: (own[0], own[1].size), default=None)


def are_nested(schema: Schema, known: Iterable[TableAtLevel]) -> bool:
    """Whether each of some tables is a sum of the next finer one."""
    nested = sorted(known, key=lambda own: (own[0], own[1].size))
    return all(refines(schema, b, a) for (_, a), (_, b) in pairwise(nested))


def holds_whole_cells(schema: Schema, table: Table, known: Table) -> bool:
    """Whether some cell of a table is made of whole cells of another."""
    for axis, name in enumerate(schema.names):
        own, other = (_groups(schema, one, axis, name) for one in (table, known))
        cut = np.bincount(np.unique(np.stack([other, own]), axis=1)[0]) > 1  # of the other's groups
        if not np.setdiff1d(own, own[cut[other]]).size:
            return False
    return True


def _groups(schema: Schema, table: Table, axis: int, name: str) -> np.ndarray:
    factor = table.factors[table.axes.index(axis)] if axis in table.axes else None
    return np.zeros(schema.size_of(name), dtype=np.intp) if factor is None else np.array(schema.groups_of(factor))


@dataclass(frozen=True)
class ExactCombinations:
    """How combinations that are known exactly bound figures that are off by rounding.

    Attributes
    ----------
    equal_to : tuple of float, (k,)
    units, reach : tuple of float, (k,)
        The largest weight of a cell in each, and by how much each changes at most with a count.
    lengths : tuple of float, (k,)
        How far observed figures move together, in standard errors, where each is changed by one and nothing else is.
    least : dict of str to float
        By the keys of tables the least standard error of a figure that is not known exactly, from below.
    moved : dict of str to tuple of float, (k,)
        Likewise how far such a figure moves at most, in its standard errors.
    fixed : tuple of str
        Tables of which a figure may be known exactly.
    """

    equal_to: tuple[float, ...]
    units: tuple[float, ...]
    reach: tuple[float, ...]
    lengths: tuple[float, ...]
    least: dict[str, float]
    moved: dict[str, tuple[float, ...]]
    fixed: tuple[str, ...]

    def are_sound(self, equal_to: tuple[float, ...]) -> bool:
        """Whether these can be of combinations that are known to be so much."""
        each = (self.units, self.reach, self.lengths, *self.moved.values())
        fit = self.equal_to == equal_to and all(len(own) == len(equal_to) for own in each)
        sizes = all(0 <= size < np.inf for own in each for size in own)
        return fit and sizes and self.least.keys() == self.moved.keys() and all(own > 0 for own in self.least.values())

    def off(self, combined: Long, corrected: float, scale: float) -> Float:
        """By how much every combination of counts is off at most what it is known to be, (k,).

        Parameters
        ----------
        combined : ndarray of longdouble, (k, 3), or (1, 3) of no figure at all
            The combinations of figures, by how much each may be off, and its size.
        corrected : float
            By how much counts are moved already.
        scale : float
            The largest figure.

        Raises
        ------
        NotCertifiedError
            If figures contradict what is known by more than rounding.
        """
        values, slack, size = combined.T
        gap = abs(values - np.array(self.equal_to)).astype(float)
        off = gap + slack.astype(float) + np.array(self.reach) * corrected
        wrong = ~(off <= EXACT_TO * np.maximum(scale * np.array(self.units), size))
        if wrong.any():
            i = int(wrong.argmax())
            if np.isnan(gap[i]):
                raise NotCertifiedError(f"equality {i} speaks of cells of which nothing is claimed")
            raise NotCertifiedError(f"x contradicts equality {i}, which is known exactly, by {gap[i]:.3g}")
        return off.astype(float)

    @classmethod
    def of(cls, problem: Problem, places: PlacedTables, key: Callable[[TableAtLevel], str]) -> ExactCombinations:
        """Those of a problem on a spine, with all tables of which figures are claimed, called by what `key` gives.

        Raises
        ------
        NotCertifiedError
            As `KnownExactly`.
        """
        E, equal_to = problem.equality_rows
        noise, count = WeighedNoise.of(problem), problem.observed.size
        known = KnownExactly(problem, noise, places)
        errors, total = known.least_standard_errors, known.rows.shape[0]
        units = np.eye(equal_to.size, total, total - equal_to.size)
        moves = [TWICE * abs(known.sums.figures_of(known.move(own, CLEAR))) for own in units]
        least, moved, fixed = dict[str, float](), dict[str, tuple[float, ...]](), list[str]()
        for placed in places.level_tables:
            own, name = errors[placed.place], key((placed.level, placed.table))
            free = own > 0
            least[name] = float(own.min(initial=LARGE, where=free))
            moved[name] = tuple(float((m[placed.place][free] / own[free]).max(initial=0.0)) for m in moves)
            fixed += [name] * (not free.all())
        return cls(
            tuple(equal_to.tolist()),
            tuple(abs(E).max(axis=1).toarray().ravel().tolist()),
            tuple(abs(known.shares[total - equal_to.size :]).max(axis=1).toarray().ravel().tolist()),
            tuple(float(noise.inverse_size(own[:count])) for own in moves),
            least,
            moved,
            tuple(fixed),
        )
