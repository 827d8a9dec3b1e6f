"""Certificates of areas that nest, overlap or cross, whose counts are too many to list, by sums over leaves.

Let a table of the leaves hold all others, and let all its cells be measured. With M the sums that give all observed
cells from its cells, and rho = Sigma^-1 (y - x), an answer is the best one where M' rho is a combination of what is
known exactly. What is left of M' rho is put back where it costs least: in the leaves' own cells. Nothing is formed: M
is sums over leaves, layer by layer, and sums along axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.claims import Claim
from blue_solvers.verification.least_directions import least_standard_errors
from blue_solvers.verification.least_multipliers import least_multipliers
from blue_solvers.verification.sums import Sum
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, NotCertifiedError, WeighedNoise
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table
from constraint_builders.memory import format_bytes, free_memory
from constraint_builders.relations.marginals import refines

EXTENDED = float(np.finfo(np.longdouble).eps)
NOT_BY_LEAVES = "its counts are too many to list, and no measured table of the leaves holds all others"
RUN = 128  # leaves
MOST_CELLS = 20_000_000  # of all leaves: a quarter of a minute
MOST_KNOWN = 2_000_000  # where directions must be found that leave what is known exactly as it is
CELL_BYTES = 112.0
FIGURE_BYTES = 72.0
ROUNDS = 3  # of multipliers of what is known exactly


@dataclass(frozen=True)
class PlacedTable:
    """A table of a layer, observed or claimed: its layer, its sums, and where its figures are among all."""

    level: int
    total: Sum
    place: slice


class SumsOverLeaves:
    """All figures as sums of the leaves' cells in the table that holds all others.

    Attributes
    ----------
    finest : slice
        Of that table among the observed cells.
    shape : tuple of int
        Leaves, and its cells.
    figures : int
        Observed cells, and those that are claimed besides.
    adds, shares : int
        Most roundings that a sum over leaves takes, and one over the figures that a leaf is in.
    """

    def __init__(self, problem: Problem, made: Sequence[Claim]) -> None:
        number, areas, schema = finest_of_leaves(problem, made), problem.domain.areas, problem.domain.schema
        if number is None:
            raise NotCertifiedError(NOT_BY_LEAVES)
        own = problem.observed_tables[number]
        self.finest, self.shape = problem.observed.block(number), (areas.leaves, own.size)
        self.table, self._schema = own, schema
        observed = zip(problem.observed_levels, problem.observed_tables, problem.observed.sizes, strict=True)
        parts = [*observed, *((claim.level, claim.table, claim.figures.size) for claim in made)]
        self._sheets, start = [], 0
        for level, table, size in parts:
            self._sheets.append(PlacedTable(level, Sum(schema, own, table), slice(start, start + int(size))))
            start += int(size)
        self.figures = start
        self._members = {sheet.level: areas.leaves_of(sheet.level) for sheet in self._sheets}
        self._steps = {level: _in_two_steps(own) for level, own in self._members.items()}
        most = max(int(sum(np.diff(own.indptr).max(initial=0) for own in steps)) for steps in self._steps.values())
        self.adds = most + max(sheet.total.adds for sheet in self._sheets) + 4
        above = (np.bincount(own.indices).max(initial=0) + 1 for own in self._members.values())
        self.shares = int(sum(above)) + len(self._sheets) + 4

    def figures_of(self, cells: NDArray, power: int | None = None) -> NDArray:
        """M times the leaves' cells, (leaves, cells) to (figures,), in their precision; or powers of M's sizes."""
        found = np.zeros(self.figures, dtype=cells.dtype)
        for level in self._members:
            inside = self._summed(level, cells, power)
            for sheet in self._of_layer(level):
                found[sheet.place] = sheet.total.down(inside).ravel()
        return found

    def shares_of(self, figures: NDArray, power: int | None = None) -> NDArray:
        """M' times figures, (figures,) or the observed ones, to (leaves, cells), likewise."""
        found = np.zeros(self.shape, dtype=figures.dtype)
        for level, members in self._members.items():
            inside = np.zeros((members.shape[0], self.shape[1]), dtype=figures.dtype)
            for sheet in self._of_layer(level):
                if sheet.place.stop <= figures.size:
                    spread = sheet.total.up(figures[sheet.place].reshape(members.shape[0], -1))
                    inside.reshape(-1, *sheet.total.fine)[...] += spread
            found += _powers(members, power).T.astype(figures.dtype) @ inside
        return found

    def coarser_sheets(self, noisy: NDArray[np.bool_]) -> list[PlacedTable]:
        """Of every other layer the largest observed table that was measured everywhere, fewest areas first."""
        found: dict[int, PlacedTable] = {}
        for sheet in self._sheets:
            measured = sheet.place.stop <= noisy.size and bool(noisy[sheet.place].all())
            if measured and sheet.place != self.finest:
                best = found.get(sheet.level)
                larger = best is None or np.prod(sheet.total.coarse) > np.prod(best.total.coarse)
                found[sheet.level] = sheet if larger or best is None else best
        return sorted(found.values(), key=lambda sheet: self._members[sheet.level].shape[0])

    def means_of(self, cells: NDArray, free: NDArray[np.bool_], sheet: PlacedTable) -> NDArray:
        """Of a table's figures what comes nearest to the leaves' cells in them, by least squares."""
        total = sheet.total.down(self._summed(sheet.level, cells))
        squares = sheet.total.down(self._summed(sheet.level, free.astype(float), power=2))
        return np.divide(total, squares, out=np.zeros_like(total), where=squares > 0).ravel()

    def spread_over(self, figures: NDArray, sheet: PlacedTable) -> NDArray:
        """The table's figures over the leaves' cells in them, (leaves, cells)."""
        members = self._members[sheet.level]
        spread = sheet.total.up(figures.reshape(members.shape[0], -1))
        inside = np.broadcast_to(spread, (members.shape[0], *sheet.total.fine)).reshape(members.shape[0], -1)
        return members.T.astype(figures.dtype) @ inside

    def _summed(self, level: int, cells: NDArray, power: int | None = None) -> NDArray:
        """Over the leaves of every area of a layer, (areas, cells)."""
        partial, rest = self._steps[level]
        return rest.astype(cells.dtype) @ (_powers(partial, power).astype(cells.dtype) @ cells)

    def _of_layer(self, level: int) -> Iterator[PlacedTable]:
        return (sheet for sheet in self._sheets if sheet.level == level)


def _in_two_steps(members: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Sums over leaves, (areas, leaves), as sums of sums over runs of leaves: fewer roundings one on another."""
    entries = members.tocoo()
    runs = -(-members.shape[1] // RUN)
    pairs, number = np.unique(entries.row.astype(np.int64) * runs + entries.col // RUN, return_inverse=True)
    partial = sparse.csr_array((entries.data, (number, entries.col)), shape=(pairs.size, members.shape[1]))
    places = pairs // runs, np.arange(pairs.size)
    return partial, sparse.csr_array((np.ones(pairs.size), places), shape=(members.shape[0], pairs.size))


def _powers(members: sparse.csr_array, power: int | None) -> sparse.csr_array:
    """Weights, or powers of their sizes."""
    if power is None:
        return members
    return sparse.csr_array((abs(members.data) ** power, members.indices, members.indptr), shape=members.shape)


def finest_of_leaves(problem: Problem, made: Sequence[Claim]) -> int | None:
    """The observed table of all leaves that holds all others and was measured; None if there is none."""
    if problem.areas is None:
        return None
    schema, areas = problem.domain.schema, problem.domain.areas
    tables: list[Table] = [*problem.observed_tables, *(claim.table for claim in made)]
    for number, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True)):
        if (
            not areas.layer(areas.levels[level]).is_of_leaves
            or problem.unmeasured[problem.observed.block(number)].any()
        ):
            continue
        if all(refines(schema, table, other) for other in tables):
            return number
    return None


def certify_crossing(
    problem: Problem, noise: WeighedNoise, y: Float, x: Float, made: Sequence[Claim] = ()
) -> tuple[float, float]:
    """Bound and violation, both in standard errors."""
    sums = SumsOverLeaves(problem, made)
    known = _known(problem, sums)
    _require_few_cells(sums, known.shape[0] > 0)
    free = _free_cells(problem, sums)
    rho, off = noise.weighted(y - x)
    optimality = _what_nothing_explains(sums, noise, free, known, rho) + off
    figures = np.concatenate([x, *(claim.figures for claim in made)])
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    v = _disagreement(problem, sums, free, figures, y, scale)
    least = least_standard_errors(sums, noise, free, known)
    fixed = least <= 0
    if (v[fixed] > EXACT_TO * scale).any():
        raise NotCertifiedError(f"a figure that is known exactly is off by {v[fixed].max():.3g}")
    apart = np.divide(v, least, out=np.zeros_like(v), where=~fixed)
    own = v[: x.size]
    in_noise = np.divide(own, noise.sd, out=np.zeros_like(own), where=noise.noisy)
    bound = optimality + noise.inverse_size(own) + float(apart.max(initial=0.0))
    return bound, float(in_noise.max(initial=0.0))


def _require_few_cells(sums: SumsOverLeaves, knows: bool) -> None:
    """Refuse what would take minutes, or would not fit."""
    cells, most = sums.shape[0] * sums.shape[1], MOST_KNOWN if knows else MOST_CELLS
    if cells > most:
        besides = ", some of them known exactly in sums," if knows else ""
        raise NotCertifiedError(f"its leaves have {cells:,} cells{besides} and proofs by sums take {most:,} at most")
    needed = CELL_BYTES * cells + FIGURE_BYTES * sums.figures
    if needed > free_memory():
        raise NotCertifiedError(f"its proof needs {format_bytes(needed)}, more than are free")


def _free_cells(problem: Problem, sums: SumsOverLeaves) -> NDArray[np.bool_]:
    """Leaves' cells that are neither known to be empty nor known exactly, (leaves, cells)."""
    return ~problem.exact[sums.finest].reshape(sums.shape) & ~_empty(problem, sums)


def _empty(problem: Problem, sums: SumsOverLeaves) -> NDArray[np.bool_]:
    """Leaves' cells of which all that they hold is known to be empty, (leaves, cells)."""
    zeros, table = problem.zeros, sums.table
    if zeros is None:
        return np.zeros(sums.shape, dtype=bool)
    empty = zeros.empty[problem.domain.leaves]
    for position, axis in reversed(list(enumerate(zeros.axes, 1))):
        if axis not in table.axes:
            empty = np.asarray(empty.all(axis=position, keepdims=True))
            continue
        groups = np.array(problem.domain.schema.groups_of(table.factors[table.axes.index(axis)]))
        empty = np.stack(
            [
                np.take(empty, np.flatnonzero(groups == own), axis=position).all(axis=position)
                for own in np.unique(groups)
            ],
            axis=position,
        )
    kept = [position for position, axis in enumerate(zeros.axes, 1) if axis not in table.axes]
    empty = empty.squeeze(axis=tuple(kept))
    lengths = [n if axis in zeros.axes else 1 for axis, n in zip(table.axes, table.shape, strict=True)]
    return np.broadcast_to(empty.reshape(-1, *lengths), (len(empty), *table.shape)).reshape(sums.shape)


def _known(problem: Problem, sums: SumsOverLeaves) -> sparse.csr_array:
    """What is known exactly, but for cells of the leaves' finest table, as rows over the observed cells."""
    exact = problem.exact.copy()
    exact[sums.finest] = False
    cells = np.flatnonzero(exact)
    rows = sparse.csr_array((np.ones(cells.size), (np.arange(cells.size), cells)), shape=(cells.size, exact.size))
    if problem.equalities is None:
        return rows
    return sparse.csr_array(sparse.vstack([rows, problem.equalities[0]], format="csr"))


def _what_nothing_explains(
    sums: SumsOverLeaves, noise: WeighedNoise, free: NDArray[np.bool_], known: sparse.csr_array, rho: Float
) -> float:
    """The size of what M' rho is, but for combinations of what is known exactly, put back in the leaves' cells."""
    variances = np.where(free, noise.sd[sums.finest].reshape(sums.shape) ** 2, 0.0)
    whole, moved = rho.astype(np.longdouble), abs(rho)
    left = np.where(free, sums.shares_of(whole), 0)
    for _ in range(ROUNDS if known.shape[0] else 0):
        multipliers = least_multipliers(sums, known, variances, left.astype(float))
        tried = whole - known.T.astype(np.longdouble) @ multipliers.astype(np.longdouble)
        closer = np.where(free, sums.shares_of(tried), 0)
        if _weight(variances, closer) >= _weight(variances, left):
            break
        whole, left, moved = tried, closer, moved + abs(known).T @ abs(multipliers)
    put = np.zeros(rho.size)
    for sheet in sums.coarser_sheets(noise.noisy):
        left = _put_back(sums, noise, free, variances, sheet, left, put)
    put[sums.finest] = left.astype(float).ravel()
    error = ROUNDING * abs(put)
    deepest = 2 * (sums.shares + ROUNDS + int(np.diff(known.tocsc().indptr).max(initial=0)))
    added = np.where(free, sums.shares_of(moved + abs(put), power=1), 0.0).ravel()
    error[sums.finest] += deepest * EXTENDED * added
    return noise.size(put, error)


def _put_back(
    sums: SumsOverLeaves,
    noise: WeighedNoise,
    free: NDArray[np.bool_],
    variances: Float,
    sheet: PlacedTable,
    left: NDArray,
    put: Float,
) -> NDArray:
    """What is left once the part that all leaves of an area share is put there, where that costs less."""
    shared = sums.means_of(left, free, sheet).astype(float)
    less = np.where(free, left - sums.spread_over(shared.astype(left.dtype), sheet), 0)
    cost = float(np.square(noise.sd[sheet.place] * shared).sum()) + _weight(variances, less)
    if cost >= _weight(variances, left):
        return left
    put[sheet.place] = shared
    return less


def _weight(variances: Float, cells: NDArray) -> float:
    return float((variances * np.square(cells.astype(float))).sum())


def _disagreement(
    problem: Problem, sums: SumsOverLeaves, free: NDArray[np.bool_], figures: Float, y: Float, scale: float
) -> Float:
    """How far every figure is from the tables of the leaves' own cells, which satisfy what is known exactly."""
    own, given = figures[sums.finest].reshape(sums.shape), y[sums.finest].reshape(sums.shape)
    values = np.where(free, own, np.where(_empty(problem, sums), 0.0, given))
    known = _known(problem, sums)
    found = sums.figures_of(values.astype(np.longdouble))
    truth = known[: known.shape[0] - (0 if problem.equalities is None else problem.equalities[1].size)] @ y
    if problem.equalities is not None:
        truth = np.concatenate([truth, problem.equalities[1]])
    n = y.size
    contradiction = abs((known.astype(np.longdouble) @ found[:n]).astype(float) - truth).max(initial=0.0)
    contradiction = max(contradiction, float(abs(np.where(free, 0.0, own - values)).max(initial=0.0)))
    if contradiction > EXACT_TO * scale * max(1.0, float(abs(known).sum(axis=1).max(initial=0.0))):
        raise NotCertifiedError(f"x contradicts what is known exactly by {contradiction:.3g}")
    apart = abs(figures - found).astype(float)
    rounding = 2 * sums.adds * EXTENDED * sums.figures_of(abs(values), power=1)
    return np.where(np.isfinite(figures), apart + rounding, 0.0)
