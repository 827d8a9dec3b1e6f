"""Linear combinations of measured cells that are known exactly, as the pass of sums takes them.

Multipliers of the combinations may be taken off the residuals, whoever gives them: what is left then is a bound all the
same. And counts may be moved so that one combination changes and no other, and nothing else that is
known exactly: so an estimate that is off by rounding has counts beside it that satisfy everything, and a figure that
such moves change has a standard error that they bound from below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from blue_solvers.verification.known_exactly import LeafSums
from blue_solvers.verification.placed_tables import PlacedTables, TableAtLevel
from blue_solvers.verification.weighed_noise import EXACT_TO, NotCertifiedError
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index, Long
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import cell_map, refines

SAYS_NOTHING = 1e-9  # of a combination's largest weight: what it moves by less, no count moves
MOVES = 1e-3  # of a count: a figure that moves by less is treated as if it were known exactly
SAMPLED = 4096  # counts that are tried, for a figure that holds some of those that are moved


def finest_known(schema: Schema, known: Iterable[TableAtLevel]) -> TableAtLevel | None:
    """The table of those known exactly that all others are sums of; None without any.

    Raises
    ------
    NotCertifiedError
        If there is none.
    """
    nested = sorted(known, key=lambda own: (own[0], own[1].size))
    if not all(refines(schema, b, a) for (_, a), (_, b) in pairwise(nested)):
        raise NotCertifiedError("tables are known exactly that do not nest: the least standard errors are not known")
    return nested[-1] if nested else None


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
    """What combinations that are known exactly leave free.

    Attributes
    ----------
    equal_to : tuple of float, (k,)
    units : tuple of float, (k,)
        The largest weight of each.
    chosen : tuple of int
        Combinations that say something new.
    inverse : tuple of tuple of float
        Square: by how much each move has to be made to change one of the chosen by one.
    reach : float
        By how much a combination changes at most where a cell known exactly is changed by one, by its best count.
    length : float
        By how much all counts together move at most where one is moved by one and the combinations kept.
    least : float
        By how much a figure then moves at least, but for tables that may be `fixed`.
    fixed : tuple of str
        Tables of which a figure may be known exactly by what the combinations say.
    """

    equal_to: tuple[float, ...]
    units: tuple[float, ...]
    chosen: tuple[int, ...]
    inverse: tuple[tuple[float, ...], ...]
    reach: float
    length: float
    least: float
    fixed: tuple[str, ...]

    def are_sound(self, equal_to: tuple[float, ...]) -> bool:
        """Whether these can be of combinations that are known to be so much."""
        k, chosen = len(equal_to), {*self.chosen}
        square = len(self.inverse) == len(self.chosen) and all(len(row) == len(self.chosen) for row in self.inverse)
        fit = self.equal_to == equal_to and len(self.units) == k and len(chosen) == len(self.chosen)
        lengths = all(0 < own < np.inf for own in (self.length, self.least, 1 + self.reach))
        return fit and square and chosen <= {*range(k)} and lengths

    def moved(self, combined: Long, corrected: float, scale: float) -> float:
        """By how much counts have to be moved at most for every combination of them to be what it is known to be.

        Parameters
        ----------
        combined : ndarray of longdouble, (k, 3), or (1, 3) of no figure at all
            The combinations of figures; see `CombinedCells.sums`.
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
        off = gap + slack.astype(float) + self.reach * corrected
        wrong = ~(off <= EXACT_TO * np.maximum(scale * np.array(self.units), size))
        if wrong.any():
            i = int(wrong.argmax())
            if np.isnan(gap[i]):
                raise NotCertifiedError(f"equality {i} speaks of cells of which nothing is claimed")
            raise NotCertifiedError(f"x contradicts equality {i}, which is known exactly, by {gap[i]:.3g}")
        k = len(self.chosen)
        return 2 * float((abs(np.array(self.inverse).reshape(k, k)) @ off[list(self.chosen)]).sum())

    @classmethod
    def of(cls, problem: Problem, places: PlacedTables, figures: Mapping[str, TableAtLevel]) -> ExactCombinations:
        """Those of a problem on a spine.

        Parameters
        ----------
        problem : Problem
        places : PlacedTables
            Of the problem, with all tables of which figures are claimed.
        figures : mapping of str to (int, Table)
            These tables.

        Raises
        ------
        NotCertifiedError
            If tables are known exactly that do not nest.
        """
        E, equal_to = problem.equalities or (sparse.csr_array((0, problem.observed.size)), np.zeros(0))
        counts = _Counts(places, problem.exact, E)
        chosen, moves = counts.moves(abs(E).max(axis=1).toarray().ravel())
        tried = counts.some(moves)
        by_row = counts.change(tried)[chosen]
        inverse = np.linalg.inv(by_row[:, : len(chosen)])
        most_apart = (float(abs(counts.apart(own @ counts.spread[chosen])).max(initial=0.0)) for own in inverse)
        least, fixed = 1.0, list[str]()
        for key, table in figures.items():
            own = counts.cells_of(table, tried)
            for cell in np.unique(own[:, : len(chosen)]).tolist():
                by_figure = (own[0] == cell).astype(float) - (own[1] == cell)
                start = by_figure[: len(chosen)]
                most = float(abs(by_figure - start @ inverse @ by_row).max()) if cell >= 0 and start.any() else 1.0
                least, fixed = (least, [*fixed, key]) if most < MOVES else (min(least, most), fixed)
        return cls(
            tuple(equal_to.tolist()),
            tuple(abs(E).max(axis=1).toarray().ravel().tolist()),
            tuple(chosen),
            tuple(map(tuple, inverse.tolist())),
            counts.reach(),
            2 + 4 * sum(most_apart),
            least,
            tuple(sorted(set(fixed))),
        )


class _Counts:
    """The counts behind a problem: the cells of the tables that hold all others, of all leaves.

    Those are moved alone that are no structural zeros; where a table is known exactly, two of one of its cells, in
    opposite directions. `spread` is by how much each, moved by one, changes combinations E of observed cells,
    (k, counts + 1): the last, or -1, is no count.
    """

    def __init__(self, places: PlacedTables, exact: Flags, E: sparse.csr_array) -> None:
        self._places, self._sums, schema = places, LeafSums(places, exact.size), places.schema
        shares = np.zeros((E.shape[0], self._sums.size + 1))
        for row in range(E.shape[0]):
            shares[row, :-1] = self._sums.shares_of(E[[row]].toarray().ravel())
        self.spread = sparse.csr_array(shares)
        tables = [(placed.level, placed.table) for placed in places.level_tables if exact[placed.place].any()]
        self._known = finest_known(schema, tables)
        every = np.arange(self._sums.size)[None]
        group = np.zeros(every.size, dtype=np.intp) if self._known is None else self.cells_of(self._known, every)[0]
        self._group = np.where(self._sums.free, group, -1)  # of all counts that may be moved against one another
        self._sizes = np.bincount(self._group[self._group >= 0], minlength=1)

    def apart(self, spread: Float) -> Float:
        """How far every count is from those that it may be moved against, (counts,); at most all of it is."""
        free, spread = self._group >= 0, spread[:-1]
        if self._known is None:
            return np.where(free, spread, 0.0)
        sums = np.bincount(self._group[free], weights=spread[free], minlength=self._sizes.size).astype(float)
        means = np.divide(sums, self._sizes, out=np.zeros_like(sums), where=self._sizes > 0)
        return np.where(free, spread - means[self._group], 0.0)

    def reach(self) -> float:
        """By how much combinations change, all together, with the best count of every cell of the table known."""
        if self._known is None:
            return 0.0
        changed, least = abs(self.spread).sum(axis=0)[:-1], np.full(self._sizes.size, np.inf)
        np.minimum.at(least, self._group[self._group >= 0], changed[self._group >= 0])
        shown = (self._group[self._sums.free] >= 0).all()
        return float(least[np.isfinite(least)].max(initial=0.0) if shown else changed.max(initial=0.0))

    def moves(self, units: Float) -> tuple[list[int], Index]:
        """Combinations that say something new, and as many moves of counts, (2, m), each of which changes its own."""
        chosen, moves = list[int](), np.zeros((2, 0), dtype=np.intp)
        for row, unit in enumerate(units):
            rest, changed = np.eye(units.size)[row], self.change(moves)
            rest[chosen] = -np.linalg.solve(changed[chosen].T, changed[row]) if chosen else 0.0
            spread = rest @ self.spread
            apart = abs(self.apart(spread))
            if apart.max(initial=0.0) > SAYS_NOTHING * unit:
                count, other = int(apart.argmax()), -1
                if self._known is not None:  # alone, or against another of its cell
                    others = np.flatnonzero(self._group == self._group[count])
                    other = int(others[abs(spread[others] - spread[count]).argmax()])
                moves = np.column_stack([moves, [count, other]])
                chosen.append(row)
        return chosen, moves

    def change(self, moves: Index) -> Float:
        """What moves (2, m) change of every combination, (k, m)."""
        return (self.spread[:, moves[0]] - self.spread[:, moves[1]]).toarray()

    def some(self, moves: Index) -> Index:
        """These moves, and others at random, (2, m)."""
        free = np.flatnonzero(self._group >= 0)
        order = free[np.argsort(self._group[free], kind="stable")]
        first = np.random.default_rng(0).permutation(order.size)[:SAMPLED]
        pairs = np.stack([order[first], order[(first + 1) % max(order.size, 1)]])
        if self._known is None:
            pairs[1] = -1
        else:
            pairs = pairs[:, self._group[pairs[0]] == self._group[pairs[1]]]
        return np.concatenate([moves, pairs], axis=1)

    def cells_of(self, table: TableAtLevel, counts: Index) -> Index:
        """The cells of a table, of all its places, that hold counts, in an array of their shape; -1 where none does."""
        places, found = self._places, np.full(counts.shape, -1)
        schema, (level, own) = places.schema, table
        for (cut, (_, width)), some in zip(self._sums.cuts, places.leaves, strict=True):
            finest = places.levels[some.level].tables[0]
            inside = (counts >= cut.start) & (counts < cut.stop)
            if not inside.any() or not refines(schema, finest, own):
                continue
            area = some.rows if some.level == level else np.full(some.rows.size, -1)
            if level in some.reach:
                area[some.reach[level].rows] = some.reach[level].areas
            row, cell = np.divmod(counts[inside] - cut.start, width)
            place = area[row] * own.size + cell_map(schema, finest, own)[cell]
            found[inside] = np.where(area[row] >= 0, place, -1)
        return found
