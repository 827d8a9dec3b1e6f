"""Sparse elimination of chosen unknowns from linear equations, many pivots at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from constraint_builders.diagonals import diagonal_matrix, scaled

CANCELLED = 1e-11  # an entry this much smaller than its row's largest is what numbers were rounded by
RELATIVE_ZERO = 1e-13  # the same where a row's own entries are of many decades: small ones may be meant
NEARLY = 1e-6  # of a row's largest entry: where elimination leaves less, the rows squared lose most digits
ROUNDING = 1e-14  # of a row's largest entry: what elimination leaves of a row that depends on others
LEAST_PIVOT = 0.1  # of a row's largest entry: a smaller one would magnify the rounding of the others
UNEVEN = 64.0  # ratio of entries from which rows and columns are scaled first
SCALING_ROUNDS = 4
REFINEMENTS = 4
FEW_ENTRIES = 2000  # of equations whose elimination is remembered: a problem is asked its rank, its rows and its ties


@dataclass(frozen=True)
class Elimination:
    """Equations with some unknowns eliminated.

    Attributes
    ----------
    remaining : csr_array, (rows, n)
        What is left: equations that do not involve the eliminated columns.
    pivot_rows : ndarray of int
        Original equations that were used up: linearly independent, also when restricted to the eliminated columns.
    solved : csr_array, (pivots, n)
        The eliminated unknowns in terms of the others: ``solved @ x = 0``, with entry 1 at `solved_columns`.
    solved_columns : ndarray of int
        The unknown that each row of `solved` gives.
    free_columns : ndarray of int
        Columns to be eliminated that no equation determines.
    """

    remaining: sparse.csr_array
    pivot_rows: NDArray[np.intp]
    solved: sparse.csr_array
    solved_columns: NDArray[np.intp]
    free_columns: NDArray[np.intp]
    _nearly_dependent: Callable[[], NDArray[np.intp]]

    @cached_property
    def nearly_dependent(self) -> NDArray[np.intp]:
        """Equations of which others leave less than `NEARLY` in the eliminated columns, and more than rounding does."""
        return self._nearly_dependent()

    def completing(self, known: NDArray[np.bool_]) -> sparse.csr_array:
        """Cells, (n,), by those that are known, (n, n): themselves, or as they were solved; nothing of others."""
        n, cells = known.size, self.solved_columns
        itself = known.astype(float)
        itself[cells] += 1  # which the solved rows take off
        rows = sparse.csr_array((np.ones(cells.size), (cells, np.arange(cells.size))), shape=(n, cells.size))
        found = sparse.csr_array(diagonal_matrix(itself) - rows @ self.solved[:, :n])
        found.eliminate_zeros()
        return found


def eliminate(A: sparse.csr_array, columns: NDArray[np.intp]) -> Elimination:
    """Eliminate columns from the equations ``A x = 0``.

    Gauss-Jordan elimination in rounds. Each round takes, for every column at once, its sparsest equation, keeps a
    set of those that do not touch one another's columns, and eliminates them by one sparse product. The latest small
    systems are remembered: nobody may change what is given back.

    Parameters
    ----------
    A : csr_array, (m, n)
    columns : ndarray of int
        Unknowns to eliminate.

    Returns
    -------
    Elimination
    """
    rows, waiting = sparse.csr_array(A, dtype=np.float64), np.unique(np.asarray(columns, dtype=np.intp))
    return _remembered(_System(rows, waiting)) if rows.nnz <= FEW_ENTRIES else _eliminated(rows, waiting)


class _System:
    """Equations, (m, n), and the unknowns to eliminate, (k,): the same ones where all their numbers are."""

    def __init__(self, rows: sparse.csr_array, columns: NDArray[np.intp]) -> None:
        self.rows, self.columns = rows, columns
        self._numbers = rows.shape, *(own.tobytes() for own in (rows.indptr, rows.indices, rows.data, columns))

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _System) and self._numbers == other._numbers


@lru_cache(maxsize=64)
def _remembered(system: _System) -> Elimination:
    return _eliminated(system.rows, system.columns)


def _eliminated(given: sparse.csr_array, columns: NDArray[np.intp]) -> Elimination:
    """As `eliminate`, of equations, (m, n), and unknowns in order, (k,)."""
    row_scale, column_scale = scaling(given)
    sizes = abs(given.data[given.data != 0])
    is_plain = sizes.min(initial=1) == sizes.max(initial=1)  # counts are added up; weights pile up roundings
    work, waiting = scaled(given, row_scale, column_scale).astype(np.float64 if is_plain else np.longdouble), columns
    work.sum_duplicates()
    row_ids = np.arange(work.shape[0])
    unsolved = np.isin(np.arange(work.shape[1]), waiting)
    solved = sparse.csr_array((0, work.shape[1]))
    pivot_rows: list[NDArray] = []
    pivot_columns: list[NDArray] = []
    original = _largest(work[:, waiting])
    even = (abs(work.data) >= NEARLY * np.repeat(_largest(work), np.diff(work.indptr))).all()
    zero = CANCELLED if even else RELATIVE_ZERO
    near: list[NDArray] = []
    while waiting.size and work.shape[0]:
        rows, chosen = _independent_pivots(work, waiting)
        if not rows.size:
            break
        pivots = work[rows]
        values = np.asarray(pivots[np.arange(rows.size), chosen]).ravel()
        pivots = scaled(pivots, 1 / values)
        keep = _others(work.shape[0], rows)
        pivot_rows.append(row_ids[rows])
        pivot_columns.append(chosen)
        row_ids, before = row_ids[keep], work[keep]
        left = _without(before, chosen, pivots)
        shares = _largest(left[:, waiting]) / np.where(original[row_ids] > 0, original[row_ids], 1.0)
        near.append(row_ids[(shares > ROUNDING) & (shares < NEARLY)])
        rounded, is_waiting = np.repeat(shares <= ROUNDING, np.diff(left.indptr)), unsolved[left.indices]
        left.data[rounded & is_waiting] = 0  # beside what was left before this round it may look like an equation
        work, solved = _dropped(left, before, zero), _dropped(_without(solved, chosen, pivots), solved, zero)
        solved = sparse.csr_array(sparse.vstack([solved, pivots], format="csr"))
        unsolved[chosen] = False
        waiting = waiting[unsolved[waiting]]
    none = np.zeros(0, dtype=np.intp)
    used, solved_columns = np.concatenate([none, *pivot_rows]), np.concatenate([none, *pivot_columns])
    doubtful = np.unique(np.concatenate([none, *near]))
    nearly = partial(_nearly_dependent, given, row_scale, column_scale, doubtful, used, solved_columns, columns)
    return Elimination(
        remaining=scaled(work[np.flatnonzero(np.diff(work.indptr))], columns=1 / column_scale).astype(np.float64),
        pivot_rows=used,
        solved=scaled(solved, column_scale[solved_columns], 1 / column_scale).astype(np.float64),
        solved_columns=solved_columns,
        free_columns=waiting,
        _nearly_dependent=nearly if doubtful.size else none.copy,
    )


def _nearly_dependent(
    A: sparse.csr_array,
    row_scale: NDArray[np.float64],
    column_scale: NDArray[np.float64],
    rows: NDArray[np.intp],
    used: NDArray[np.intp],
    solved: NDArray[np.intp],
    columns: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Which rows, (k,), of (m, n), do not follow from those used, (pivots,), in some columns.

    Elimination rounds once for every row that it takes off. Combinations that are refined in more digits do not.
    """
    A = scaled(A, row_scale, column_scale)
    from_used = sparse.csr_array(A[used].T, dtype=np.longdouble)
    try:
        solve = linalg.splu(sparse.csc_array(A[used][:, solved].T)).solve
    except RuntimeError:  # some of those used follow from others themselves
        return rows
    nearly = np.isin(rows, used)
    for number in np.flatnonzero(~nearly):
        given = A[rows[[number]]].toarray()[0]
        left = given.astype(np.longdouble)
        for _ in range(REFINEMENTS):
            left -= from_used @ solve(left[solved].astype(np.float64)).astype(np.longdouble)
        nearly[number] = not abs(left[columns]).max() <= ROUNDING * abs(given[columns]).max()
    return rows[nearly]


def scaling(A: sparse.csr_array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Powers of two for rows and columns, of (k, n), that bring all entries near 1: no unit decides what is zero."""
    rows, columns = np.ones(A.shape[0]), np.ones(A.shape[1])
    sizes = abs(A.data[A.data != 0])
    if not sizes.size or sizes.max() <= UNEVEN * sizes.min():
        return rows, columns
    entries = abs(A).tocoo()
    entries.eliminate_zeros()
    row, column = entries.row, entries.col
    largest = np.zeros(A.shape[0]), np.zeros(A.shape[1])
    for place, own in zip((row, column), largest, strict=True):
        np.maximum.at(own, place, entries.data)
    counts = entries.data > NEARLY * np.minimum(largest[0][row], largest[1][column])  # the others may be what is left
    logs, row, column = np.log2(entries.data[counts]), row[counts], column[counts]
    r, c = np.zeros(A.shape[0]), np.zeros(A.shape[1])
    for _ in range(SCALING_ROUNDS):
        r = -_middle(logs + c[column], row, A.shape[0])
        c = -_middle(logs + r[row], column, A.shape[1])
    return 2.0 ** np.rint(r), 2.0 ** np.rint(c)


def _middle(logs: NDArray[np.float64], place: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    """Half way between the least and the greatest logarithm of every place, (entries,) to (size,); 0 where none is."""
    least, greatest = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(least, place, logs)
    np.maximum.at(greatest, place, logs)
    return np.add(least, greatest, out=np.zeros(size), where=np.isfinite(least)) / 2


def relations_between_rows(M: sparse.csr_array, own: sparse.csr_array | None = None) -> sparse.csr_array:
    """Equations A x = 0 that hold wherever ``own @ x = M cells``, (m, k) and (m, cells): the cells are eliminated.

    By default x are the rows themselves, and the equations independent: (m - rank, m).
    """
    own = sparse.eye_array(M.shape[0], format="csr") if own is None else own
    count = own.shape[1]
    definitions = sparse.csr_array(sparse.hstack([own, -M], format="csr"))
    elimination = eliminate(definitions, np.arange(count, definitions.shape[1]))
    return sparse.csr_array(elimination.remaining[:, :count])


def _independent_pivots(work: sparse.csr_array, waiting: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of pivots whose square submatrix is diagonal, (pivots,) each; `waiting` are columns, (k,)."""
    block = sparse.csr_array(work[:, waiting], dtype=np.float64)
    least = LEAST_PIVOT * _largest(block)
    rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    block.data = np.where(abs(block.data) >= least[rows], block.data, 0)
    block.eliminate_zeros()
    entries = block.tocoo()
    if entries.nnz == 0:
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    lengths = np.diff(work.indptr)
    order = np.lexsort((entries.row, lengths[entries.row], entries.col))
    first = order[np.unique(entries.col[order], return_index=True)[1]]
    rows, first_of_row = np.unique(entries.row[first], return_index=True)
    columns = waiting[entries.col[first][first_of_row]]
    cost = np.lexsort((rows, lengths[rows])).argsort()
    block = work[rows][:, columns].tocoo()
    clash = block.row != block.col
    worst = np.zeros(rows.size, dtype=bool)  # somebody cheaper touches my column, or I touch somebody cheaper's
    touching, touched = block.row[clash], block.col[clash]
    worst[touching[cost[touching] > cost[touched]]] = True
    worst[touched[cost[touched] > cost[touching]]] = True
    return rows[~worst], columns[~worst]


def _sizes(rows: sparse.csr_array) -> NDArray[np.float64]:
    """Sizes of entries, (entries,), of (k, n), in double precision: extended precision compares slowly."""
    return abs(rows.data.astype(np.float64, copy=False))


def _largest(rows: sparse.csr_array) -> NDArray[np.float64]:
    """Size of the largest entry of every row, (k,), of (k, n), that holds each entry once."""
    found = np.zeros(rows.shape[0])
    filled = np.flatnonzero(np.diff(rows.indptr))
    if filled.size:
        found[filled] = np.maximum.reduceat(_sizes(rows), rows.indptr[filled])
    return found


def _others(size: int, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of so many rows those that are not among some, (k,)."""
    kept = np.ones(size, dtype=bool)
    kept[rows] = False
    return np.flatnonzero(kept)


def _without(rows: sparse.csr_array, chosen: NDArray[np.intp], pivots: sparse.csr_array) -> sparse.csr_array:
    """Equations, (k, n), without the unknowns, (pivots,), that others, (pivots, n), give."""
    touching = sparse.csr_array(rows[:, chosen])
    return sparse.csr_array(rows - touching @ pivots) if touching.nnz else rows


def _dropped(result: sparse.csr_array, before: sparse.csr_array, zero: float) -> sparse.csr_array:
    """Remove from a result, (k, n), the entries that cancelled: at most `zero` of the largest `before`, (k, n) too."""
    result.data[_sizes(result) <= zero * np.repeat(_largest(before), np.diff(result.indptr))] = 0
    result.eliminate_zeros()
    return result
