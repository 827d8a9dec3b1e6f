"""Certificates of areas that nest, overlap or cross, whose counts are too many to list, by sums over leaves.

Let tables of the leaves hold all others, each one of them, and let all their cells be measured. With M the sums that
give all observed cells from the counts, and rho = Sigma^-1 (y - x), an answer is the best one where M' rho is a
combination of what is known exactly. Whatever rho says of a table it says of the cells within, so it may be moved to
the tables that hold all others, leaf by leaf, and there to the first of those that have it in common
(`common_margins`). At the best estimate nothing is left of it then; elsewhere what is left lies in measured cells, and
its size in their noise is the bound. Counts are never formed: M is sums over leaves, layer by layer, and sums along
axes.

Tables that agree are those of the leaves' own cells, each with the margins of the ones before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.claims import Claim
from blue_solvers.verification.holding_tables import PlacedTable
from blue_solvers.verification.least_directions import least_standard_errors, moved_to_known
from blue_solvers.verification.least_multipliers import least_multipliers
from blue_solvers.verification.sums_over_leaves import SumsOverLeaves
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, DisprovedError, NotCertifiedError, WeighedNoise
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table
from constraint_builders.memory import format_bytes, free_memory

EXTENDED = float(np.finfo(np.longdouble).eps)
UNIT = 0.51 * EXTENDED  # by which a sum is rounded at most; the rest is for sums of such
MOST_CELLS = 100_000_000  # of all leaves: a minute
MOST_KNOWN = 2_000_000  # where directions must be found that leave what is known exactly as it is
CELL_BYTES = 24.0
FIGURE_BYTES = 32.0
ROUNDS = 3  # of multipliers of what is known exactly
NEAR = 1e-10  # standard errors: a bound that need not be tighter


def certify_crossing(
    problem: Problem, noise: WeighedNoise, y: Float, x: Float, made: Sequence[Claim] = ()
) -> tuple[float, float]:
    """Bound and violation, both in standard errors.

    Raises
    ------
    NotCertifiedError
        If no tables of the leaves hold all others, it would be too large, or what is known exactly is contradicted.
    """
    sums = SumsOverLeaves(problem, x, made)
    known = _known(problem, sums)
    _require_few_cells(sums, known.shape[0] > 0)
    free = _free_cells(problem, sums)
    rho, off = noise.weighted(y - x)
    optimality = _what_nothing_explains(sums, noise, free, known, rho) + off
    del rho
    figures = np.concatenate([x, *(claim.figures for claim in made)]) if made else x
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    v, missed = _disagreement(problem, sums, known, free, figures, y, scale)
    least = least_standard_errors(sums, noise, free, known)
    fixed = least <= 0
    if (v[fixed] > EXACT_TO * scale).any():
        raise NotCertifiedError(f"a figure that is known exactly is off by {v[fixed].max():.3g}")
    own = v[: x.size].copy()
    in_noise = np.divide(own, noise.sd, out=np.zeros_like(own), where=noise.noisy)
    if missed.any():
        v += moved_to_known(sums, noise, free, known, missed)
        own = v[: x.size]
    apart = float(np.divide(v, least, out=least, where=~fixed).max(initial=0.0, where=~fixed))
    return optimality + noise.inverse_size(own) + apart, float(in_noise.max(initial=0.0))


def _require_few_cells(sums: SumsOverLeaves, knows: bool) -> None:
    """Refuse what would take minutes, or would not fit."""
    cells, most = sums.shape[0] * sums.shape[1], MOST_KNOWN if knows else MOST_CELLS
    if cells > most:
        besides = ", some of them known exactly in sums," if knows else ""
        raise NotCertifiedError(f"its leaves have {cells:,} cells{besides} and proofs by sums take {most:,} at most")
    needed = CELL_BYTES * cells + FIGURE_BYTES * sums.figures
    if needed > free_memory():
        raise NotCertifiedError(f"its proof needs {format_bytes(needed)}, more than are free")


def _free_cells(problem: Problem, sums: SumsOverLeaves) -> Flags:
    """Leaves' cells that are not known to be empty, nor exactly where one table holds all others, (leaves, cells)."""
    if sums.free is not None:
        return sums.free
    empty = _empty(problem, sums.holders.tables[0])
    (place,) = sums.holders.places
    free = ~problem.exact[place].reshape(sums.shape)
    return free if empty is None else free & ~empty.reshape(sums.shape)


def _empty(problem: Problem, table: Table) -> Flags | None:
    """Leaves' cells of a table of which all that they hold is known to be empty, (leaves, *cells); None without any."""
    return None if problem.zeros is None else problem.zeros.cells(table, problem.domain.leaves)


def _known(problem: Problem, sums: SumsOverLeaves) -> sparse.csr_array:
    """What is known exactly, as rows over the observed cells; without the cells of a table that alone holds all."""
    exact = problem.exact.copy()
    if not sums.several:
        exact[sums.holders.places[0]] = False
    cells = np.flatnonzero(exact)
    rows = sparse.csr_array((np.ones(cells.size), (np.arange(cells.size), cells)), shape=(cells.size, exact.size))
    if problem.equalities is None:
        return rows
    return sparse.csr_array(sparse.vstack([rows, problem.equalities[0]], format="csr"))


def _what_nothing_explains(
    sums: SumsOverLeaves, noise: WeighedNoise, free: Flags, known: sparse.csr_array, rho: Float
) -> float:
    """The size of what M' rho is, but for combinations of what is known exactly, put back in the leaves' cells."""
    whole, added, rounds = _unexplained(sums, noise, free, known, rho)
    deepest = 2 * (sums.shares + rounds)
    left, error = np.zeros(sums.shape), np.zeros(rho.size)
    for number, part in enumerate(sums.parts):
        own = sums.shares_in(number, whole, np.longdouble)
        rounded = deepest * sums.shares_in(number, added, np.float64, power=1)
        if part.margins is not None:
            own = part.margins.moved(own, rounded)
        left[part.leaves] = np.where(free[part.leaves], own, 0)
        for block, rows in _blocks(sums, np.where(free[part.leaves], rounded, 0.0)):
            error[block].reshape(sums.shape[0], -1)[part.leaves] = EXTENDED * rows
    put = np.zeros(rho.size)
    if float(np.sqrt(_weight(sums, noise, left))) > NEAR:
        for sheet in sums.coarser_sheets(noise.noisy):
            left = _put_back(sums, noise, free, sheet, left, put, error)
    for block, rows in _blocks(sums, left):
        put[block] = rows.ravel()
        error[block] += ROUNDING * abs(put[block])
    return noise.size(put, error)


def _unexplained(
    sums: SumsOverLeaves, noise: WeighedNoise, free: Flags, known: sparse.csr_array, rho: Float
) -> tuple[NDArray, Float, int]:
    """Residuals less combinations of what is known exactly, sizes of what was added up, and how often."""
    if not known.shape[0]:
        return rho, abs(rho), 0
    variances = np.concatenate([noise.sd[place].reshape(sums.shape[0], -1) for place in sums.holders.places], axis=1)
    variances = np.where(free, variances**2, 0.0)
    whole, moved = rho.astype(np.longdouble), abs(rho)
    left = np.where(free, sums.shares_of(whole), 0)
    for _ in range(ROUNDS):
        multipliers = least_multipliers(sums, known, variances, left.astype(float))
        tried = whole - known.T.astype(np.longdouble) @ multipliers.astype(np.longdouble)
        closer = np.where(free, sums.shares_of(tried), 0)
        if _weight(sums, noise, closer.astype(float)) >= _weight(sums, noise, left.astype(float)):
            break
        whole, left, moved = tried, closer, moved + abs(known).T @ abs(multipliers)
    return whole, moved, ROUNDS + int(np.diff(known.tocsc().indptr).max(initial=0))


def _put_back(
    sums: SumsOverLeaves, noise: WeighedNoise, free: Flags, sheet: PlacedTable, left: Float, put: Float, error: Float
) -> Float:
    """What is left once the part that all leaves of an area share is put there, where that costs less."""
    shared = sums.means_of(left, free, sheet)
    less = np.where(free, sums.less(left, shared, sheet), 0)
    cost = float(np.square(noise.sd[sheet.place] * shared).sum()) + _weight(sums, noise, less)
    if cost >= _weight(sums, noise, left):
        return left
    put[sheet.place] = shared
    rounded = ROUNDING * (abs(left) + sums.shares * abs(left - less))
    for block, rows in _blocks(sums, np.where(free, rounded, 0.0)):
        error[block] += rows.ravel()
    return less


def _blocks(sums: SumsOverLeaves, cells: Float) -> Iterator[tuple[slice, Float]]:
    """Of rows of leaves' cells those of each table, with its place among the observed ones."""
    for place, columns in zip(sums.holders.places, sums.holders.columns, strict=True):
        yield place, cells[:, columns]


def _weight(sums: SumsOverLeaves, noise: WeighedNoise, cells: Float) -> float:
    return float(sum(np.square(noise.sd[place] * rows.ravel()).sum() for place, rows in _blocks(sums, cells)))


def _disagreement(
    problem: Problem,
    sums: SumsOverLeaves,
    known: sparse.csr_array,
    free: Flags,
    figures: Float,
    y: Float,
    scale: float,
) -> tuple[Float, Float]:
    """How far every figure is from the tables of the leaves' own cells, and by how much these miss what is known."""
    said, n = np.isfinite(figures), y.size
    claimed = np.where(said, figures, 0.0)
    truth = known[: known.shape[0] - (0 if problem.equalities is None else problem.equalities[1].size)] @ y
    if problem.equalities is not None:
        truth = np.concatenate([truth, problem.equalities[1]])
    own = _Cells(problem, sums, free, figures, y)
    less = sums.figures_in_parts((-cells for cells, _ in own.agreeing()), claimed.copy())
    missed = known @ claimed[:n] - known @ less[:n] - truth
    contradiction = abs(missed).max(initial=0.0)
    if max(contradiction, own.changed) > EXACT_TO * scale * max(1.0, float(abs(known).sum(axis=1).max(initial=0.0))):
        raise DisprovedError(f"x contradicts what is known exactly by {max(contradiction, own.changed):.3g}")
    apart = np.abs(less, out=less)
    each = sums.adds * UNIT
    sums.figures_in_parts((each * abs(cells).astype(float) + error for cells, error in own.agreeing()), apart, power=1)
    apart[~said] = 0.0
    return apart, missed


class _Cells:
    """The leaves' own cells, in the tables that hold all others.

    Attributes
    ----------
    changed : float
        By how much those that are known of themselves are off.
    """

    def __init__(self, problem: Problem, sums: SumsOverLeaves, free: Flags, figures: Float, y: Float) -> None:
        self._sums, self._figures, self._free, self._given = sums, figures, free, None
        self.changed = 0.0
        if not sums.several and not free.all():
            (place,), (table,) = sums.holders.places, sums.holders.tables
            empty = _empty(problem, table)
            given = y[place] if empty is None else np.where(empty.ravel(), 0.0, y[place])
            self._given = given.reshape(sums.shape)
            off = np.where(free, 0.0, figures[place].reshape(sums.shape) - self._given)
            impossible = np.where(problem.exact[place], y[place] - given, 0.0)  # known, and known to be empty
            self.changed = max(float(abs(off).max(initial=0.0)) for off in (off, impossible))

    def agreeing(self) -> Iterator[tuple[NDArray, Float | float]]:
        """Part by part, made to agree, and how far rounding may have moved them."""
        for part in self._sums.parts:
            own = _rows_of(self._sums, self._figures, part.leaves)
            if part.margins is not None:
                error = np.zeros(own.shape)
                yield part.margins.agreeing(own.astype(np.longdouble), error), error
                continue
            if self._given is not None:
                own = np.where(self._free[part.leaves], own, self._given[part.leaves])
            yield own.astype(np.longdouble), 0.0


def _rows_of(sums: SumsOverLeaves, figures: Float, leaves: Index) -> Float:
    """Of some leaves the figures of the tables that hold all others, (leaves, cells)."""
    rows = [figures[place].reshape(sums.shape[0], -1)[leaves] for place in sums.holders.places]
    return rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
