"""Certificates by sums over leaves: of problems whose leaves' tables hold all others, and of parts of a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy import sparse

from blue_solvers.verification.certificate_sums import CertificateSums
from blue_solvers.verification.closed_form import are_of_groups
from blue_solvers.verification.exact_combinations import are_nested
from blue_solvers.verification.known_exactly import KnownExactly
from blue_solvers.verification.leaf_cells import hand_on
from blue_solvers.verification.moved_back import known_in_all, under_exact
from blue_solvers.verification.moved_residuals import MovedResiduals
from blue_solvers.verification.placed_tables import (
    ChildSummary,
    Figures,
    LevelTable,
    PlacedTables,
    added,
    by_cells,
    taken_by,
)
from blue_solvers.verification.problem_places import Claim, observed_twins, problem_places, tree_places
from blue_solvers.verification.reaches import plus
from blue_solvers.verification.weighed_noise import (
    EXACT_TO,
    EXTENDED,
    ROUNDING,
    DisprovedError,
    NotCertifiedError,
    WeighedNoise,
)
from blue_solvers.verification.wide import Separated
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index, read_only
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table

LARGE_TABLES = 10_000  # cells of a table from which sums over all of it take less than its parts
# Cells of all parts beside those of tables, likewise: 12 binary two-way and detailed 77 ms by parts and 1.5 by cells,
# of 2^10 4 ms by parts and 17 by cells.
MANY_PARTS = 4


class ProblemToProve:
    """A problem, in the schema's order, with what proofs of all answers to it have in common.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._places: dict[tuple[tuple[int, ...], bytes], PlacedTables] = {}

    @cached_property
    def noise(self) -> WeighedNoise:
        """Its noise."""
        return WeighedNoise.of(self.problem)

    @cached_property
    def contrasts(self) -> Separated | None:
        """Its tables by their variables; None where it is more than tables of one place, each of one variance."""
        try:
            return Separated(self.problem, self.noise)
        except NotCertifiedError:
            return None

    @cached_property
    def twins(self) -> list[slice | None]:
        """Of every desired table where it is observed; None where it is not."""
        return observed_twins(self.problem)

    @cached_property
    def is_for_cells(self) -> bool:
        """Whether sums over all cells take less than contrasts, or prove more, of groups of levels."""
        size, tables = self.problem.observed.size, self.problem.observed_tables
        if size > LARGE_TABLES * len(tables) or are_of_groups(self.problem).any():
            return True
        return self.contrasts is None or self.contrasts.tables.cells > MANY_PARTS * size

    def places(self, made: Sequence[Claim], x: Float) -> PlacedTables:
        """Its places, for claims of these tables, and of observed cells as x, (n,).

        Raises
        ------
        NotCertifiedError
            If no tables of the leaves hold all others.
        """
        said = ~np.isnan(x) if self.problem.has_unmeasured else np.ones(x.size, dtype=bool)
        if self.problem.has_equalities:
            said[self.problem.equality_rows[0].indices] = True
        said = np.logical_or.reduceat(said, self.problem.observed.offsets[:-1])
        key = tuple(claim.index for claim in made), said.tobytes()
        if key not in self._places:
            found = problem_places(self.problem, made, said)
            if self.problem.noise.covariance is not None:
                for placed in found.level_tables:
                    if placed.place.stop <= x.size:  # the others are claims
                        own = np.square(self.noise.least[placed.place])
                        placed.least = read_only(own.reshape(-1, placed.table.size))
            self._places[key] = found
        return self._places[key]


def certify_by_sums(posed: ProblemToProve, y: Float, x: Float, made: Sequence[Claim] = ()) -> tuple[float, float]:
    """Bound and violation, from y and x, (n,), where tables of the leaves hold all others, both in standard errors.

    Raises
    ------
    NotCertifiedError
        If there are none, it would be too large, or what is known exactly is contradicted.
    """
    problem = posed.problem
    schema, has_equalities, is_correlated = problem.domain.schema, problem.has_equalities, problem.is_correlated
    places, tables = posed.places(made, x), dict[str, tuple[Float, Float]]()
    figures, measured = (np.concatenate([own, *(claim.figures for claim in made)]) if made else own for own in (x, y))
    for placed in places.level_tables:
        value, own = (of[placed.place].reshape(-1, placed.table.size) for of in (figures, measured))
        tables[placed.key] = value, own
    exact = [(placed.level, placed.table) for level in places.levels for placed in level.exact]
    follows = places.nest and are_nested(schema, exact)
    knows = has_equalities or (not follows and (problem.exact.any() or problem.has_zeros))
    size, off, rho, remains, pulled, slack, known = 0, 0.0, None, None, None, None, places.known
    if is_correlated:
        (rho, off), remains = posed.noise.weighted(y - x), np.zeros(y.size)
    if knows:
        known = known or KnownExactly(problem, posed.noise, places)
        size = figures.size
        if known.rows.shape[0]:
            weighted = posed.noise.weighted(y - x)[0] if rho is None else rho
            pulled, more, slack = known.pulled(weighted, problem.unmeasured)
            off += more
    proof = MovedResiduals(places, Figures(tables, rho=rho, left=remains, pulled=pulled, slack=slack), size)
    sums = proof.finish()
    left = sums.all_left() + off
    if remains is not None:
        left = posed.noise.size(remains, ROUNDING * abs(remains)) + sums.moved() * (1 + float(np.sqrt(y.size))) + off
    try:
        if known is None:
            return sums.bound(places.tables, schema, left), sums.violation
        scale = max(float(np.nanmax(abs(own), initial=0.0)) for own in (figures, measured))
        apart = _disagreement(posed.noise, known, known.values(y), proof, scale, ~np.isnan(x))
    except DisprovedError as error:
        if proof.cells.are_all_claimed:
            raise
        raise NotCertifiedError(f"{error}, by the cells that were put where none are claimed") from error
    return left + float(np.sqrt(sums.found[5]) + np.sqrt(sums.apart)) + apart, sums.violation


def _disagreement(
    noise: WeighedNoise, known: KnownExactly, values: Float, proof: MovedResiduals, scale: float, said: Flags
) -> float:
    """The most that a figure is off the sums of cells that satisfy what is known exactly, and how far these are moved.

    Both in standard errors, from lower bounds of them; `said` tells of which observed cells anything is claimed, (n,).
    """
    size = noise.sd.size
    missed = (known.rows.astype(np.longdouble) @ proof.sums[:size] - values).astype(float)
    weights = abs(known.rows).sum(axis=1)
    wrong = abs(missed) > EXACT_TO * scale * weights  # each row in its own units
    silent = wrong & (known.rows[:, ~said].count_nonzero(axis=1) > 0)
    if silent.any():
        number = int(silent.argmax()) - known.rows.shape[0] + known.equal_to.size
        raise NotCertifiedError(f"equality {number} speaks of cells of which nothing is claimed")
    off = max(float(abs(missed).max(initial=0.0, where=wrong)), float(proof.totals.found[1]))
    if wrong.any() or off > EXACT_TO * scale * max(1.0, float(weights.max(initial=0.0))):
        raise DisprovedError(f"x contradicts what is known exactly by {off:.3g}")
    least = known.least_standard_errors
    fixed = least <= 0
    if (proof.apart[fixed] > EXACT_TO * scale).any():
        raise NotCertifiedError(f"a figure that is known exactly is off by {proof.apart[fixed].max():.3g}")
    moved = abs(known.sums.figures_of(known.move(missed)))
    apart = np.divide(proof.apart + moved, least, out=np.zeros_like(least), where=~fixed)
    return noise.inverse_size(moved[:size]) + float(apart.max(initial=0.0, where=~fixed))


class PartResiduals(MovedResiduals):
    """What is left, and what disagrees, in all places of a part."""

    def hand_over(self) -> tuple[CertificateSums, ChildSummary]:
        """Of a part, with what the tree above has to know of its root."""
        below = self._below()
        self._move_back(1)
        if self._taken.of_root.size:
            below.share = below.share + self._taken.of_root
        below.slack[:] = self._slack
        return self.totals, below

    def _below(self) -> ChildSummary:
        """What the tree above has to know; what all leaves have in common is no longer theirs."""
        said, total = self._said[0], self.cells.total[0]
        if not said.size:
            self._handed = hand_on(self.places.levels, self._said)
            (moved, variance, *_), (total, error) = self._residuals(0), self.cells.of(0)
            if 0 in self._free.cells:
                variance = np.array(variance)
                variance[self._free.cells[0]] = np.inf
            share = moved[0].copy()
            moved[0] = 0.0
            self._kept[0] = moved
        else:
            free = not all(under_exact(self.places, some, 1).all() for some in self.places.leaves)
            share = self._means([0], free)[0][0][0]
            plus(said, -share)
            variance, error = self._means([0])[0][1].copy(), self.cells.error
            costs = np.where(np.isfinite(self._free.root_costs), self._free.root_costs, 0.0)
            if costs.any():  # together at most twice the sum of both
                variance = np.where(costs > 0, 2 * (variance + np.count_nonzero(costs) * costs**2), variance)
            variance[:, self._free.left_to_root] = np.inf
        whole = total.sum(axis=0, dtype=np.longdouble)
        return ChildSummary(
            share,
            variance[:, :1] if (variance == variance[:, :1]).all() else variance,
            total[0] if np.array_equal(total[0], whole, equal_nan=True) else whole,
            np.array([error]),
            known_in_all(self.places),
        )


@np.errstate(over="ignore")  # of a bound that is beyond float64
def sum_up_part(
    schema: Schema,
    levels: tuple[str, ...],
    finest: Sequence[Table],
    parent: Index,
    level_of: Index,
    level_tables: Sequence[LevelTable],
    figures: Figures,
    zeros: StructuralZeros | None,
    summaries: Mapping[int, ChildSummary],
    finish: bool,
    known: tuple[sparse.csr_array, Float] | None = None,
) -> tuple[CertificateSums, ChildSummary | None]:
    """What is left, and what disagrees, in a subtree, or in a tree whose lower branches were cut off.

    Parameters
    ----------
    schema : Schema
    levels : tuple of str
        All geolevels of the spine, from the root down.
    finest : sequence of Table
        For every geolevel a table that holds all of it and above; see `places.finest_tables`.
    parent, level_of : ndarray of int, (G,)
        As `LevelledTree` takes them; geounits by level, the root first.
    level_tables : sequence of LevelTable
        Their levels are those of `levels`.
    figures : Figures
        Of these tables.
    zeros : StructuralZeros or None
        Of these geounits.
    summaries : mapping of int to ChildSummary
        What branches that were cut off told, by the position of their roots, which stand in this tree again.
    finish : bool
        Whether there is nothing above.
    known : (csr_array (k, n), ndarray (k,)), optional
        Combinations of cells of measured tables, at their `place`, that are known exactly, and multipliers of these.

    Returns
    -------
    sums : CertificateSums
    below : ChildSummary or None
        What a tree above has to know of the root; None if there is none.
    """
    first = int(level_of[0])
    tree = LevelledTree(parent, level_of - first, levels[first:])
    for placed in level_tables:
        placed.level -= first
    places, keep = tree_places(schema, tree, finest[first:], level_tables, zeros, summaries), 0
    measured = [placed for placed in level_tables if known is not None and placed.place.stop]
    if known is not None:
        keep, (taken, off) = known[0].shape[1], taken_by(by_cells(known[0]), known[1])
        for placed in measured:  # other cells were not measured, or are known exactly
            own = np.broadcast_to(placed.variance, (len(placed.variance), placed.table.size)).ravel()
            noise = np.where(np.isfinite(own), own, 0.0)
            taken[:, placed.place] *= noise > 0
            off[placed.place] *= np.sqrt(noise)
        figures = replace(figures, pulled=taken)
    proof = PartResiduals(places, figures, keep, of_part=not finish)
    sums, below = (proof.finish(), None) if finish else proof.hand_over()
    for placed in measured:
        if known is not None and (weights := known[0][:, placed.place].astype(np.longdouble)).nnz:
            x = figures.of(placed)[0].ravel()
            values, sizes = weights @ x, abs(weights) @ abs(x)
            slack = 2 * (weights.nnz + 4) * EXTENDED * sizes + abs(weights) @ proof.apart[placed.place]
            sums.combined = added(sums.combined, np.stack([values, slack, sizes], axis=1))
            sums.found[5] += float(off[placed.place] @ off[placed.place])
    return sums, below
