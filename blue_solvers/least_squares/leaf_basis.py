"""Which combinations of leaves rows determine: exact rows solved, leaves that are free, and the rank with its gap.

Leaves are b = F u + R y, where u has one entry for each combination that is told, R y is what rows without noise say,
and rows with noise, whitened, are T y = B u + e, e of unit variance, every column of B of length 1 and B of full rank.
What is free changes no row, and a combination w of leaves is estimable where it changes with none of it, w'Z = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.least_squares.factors_of_information import (
    CLEAR,
    InformationFactor,
    OrthogonalFactor,
    SparseFactor,
    is_cheap_orthogonal,
    keeps_digits,
)
from blue_solvers.normal_equations.factorisation import factorise
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.memory import require_memory
from constraint_builders.relations.elimination import CANCELLED, eliminate
from constraint_builders.relations.equations import UnsolvableError

SHIFT = 1e-12  # of a unit diagonal, with which an information matrix of any rank has a factor
SMALL_PIVOT = 1e-4  # of that factor: such columns may follow from those before
NOTHING_MOVES = 1e-9  # of what a free direction moves, beside its largest leaf
NOTHING_IN_EXTENDED = 32 * float(np.finfo(np.longdouble).eps)  # of what is summed in extended precision
HARDLY_ANY = 1e-3  # of what rows say, in standard errors: leaving more out as rounding would change answers
NO_PART = 1e-12  # of what a leaf changes by in any direction: less is rounding
MOST_TOGETHER = 2_000  # columns that may follow from others, whose rank is found by dense algebra
ROUNDS = 4


@dataclass(frozen=True)
class Rank:
    """How many combinations of leaves rows determine, and how clearly.

    Attributes
    ----------
    rank, leaves : int
    least : float
        The least singular value of the weighted rows, columns of length 1, that counts; infinite where none does.
    dropped : float
        The largest that does not; 0 where all count.
    """

    rank: int
    leaves: int
    least: float
    dropped: float

    @property
    def is_clear(self) -> bool:
        """Whether rounding does not decide it."""
        return self.least >= CLEAR * max(self.dropped, np.finfo(float).eps)

    def __str__(self) -> str:
        said = f"rank {self.rank:,} of {self.leaves:,}"
        if self.rank == self.leaves and self.is_clear:
            return said
        gap = f"least singular value {self.least:.2g}, the next {self.dropped:.2g}"
        return f"{said} ({gap})" if self.is_clear else f"{said}, which is not clear ({gap})"


@dataclass(frozen=True)
class LeafBasis:
    """The combinations of leaves that rows determine.

    Attributes
    ----------
    S : csr_array, (n, k)
        Rows by leaves.
    B : csr_array, (N, r)
        Whitened noisy rows by combinations u.
    T : csr_array, (N, n)
        What whitens rows: T Sigma T' = 1.
    F : csr_array, (k, r)
    R : csr_array, (k, n)
        What leaves have of rows without noise.
    between : csr_array, (c, n)
        What must hold between rows without noise: their combinations that are 0.
    free : csc_array, (k, d)
        Directions of leaves that change no row, the largest entry of each 1.
    pins : ndarray of int, (d,)
        Leaves of which each is in one of these directions, another one each.
    solved : ndarray of int, (s,)
        Leaves that exact rows were solved for.
    factor : InformationFactor
        Of B'B.
    rank : Rank
    """

    S: sparse.csr_array
    B: sparse.csr_array
    T: sparse.csr_array
    F: sparse.csr_array
    R: sparse.csr_array
    between: sparse.csr_array
    free: sparse.csc_array
    pins: Index
    solved: Index
    factor: InformationFactor
    rank: Rank

    @classmethod
    def of(cls, problem: Problem) -> LeafBasis:
        """Of a problem of rows and leaves, with noise that has entries.

        Raises
        ------
        UnsupportedProblemError
            If exact rows contradict one another, correlated noise cannot be whitened, or rounding decides what is told.
        """
        S = problem.leaves_of(0)
        T = whitening_of(problem)
        R, N, between, unsolved = _of_exact_rows(problem, S)
        solved_rank = S.shape[1] - unsolved.size
        scaled, N, told, dropped_share = _in_own_units(T, S, N, solved_rank > 0)
        if solved_rank and unsolved.size and (missed := _missed_exactly(problem, S, N, R)).nnz:
            scaled, N, told, dropped_share = _in_own_units(T, S, sparse.csr_array(N - missed), True)
        if dropped_share > HARDLY_ANY:
            raise UnsupportedProblemError(
                "rows with noise are nearly combinations of exact rows: rounding would decide what they say of leaves. "
                "Give the exact rows a small variance, or leave those out"
            )
        columns = np.flatnonzero(told)
        kept, moved, factor, least, dropped = _told_columns(scaled if told.all() else scaled[:, columns])
        kept_columns = columns[kept]
        free = sparse.csc_array((S.shape[1], 0))
        if kept_columns.size < told.size:
            unit = sparse.eye_array(told.size, format="csr")
            directions = sparse.hstack([unit[:, np.flatnonzero(~told)], unit[:, columns] @ moved])
            free = _of_leaves(N, sparse.csr_array(directions))
            scaled, N = sparse.csr_array(scaled[:, kept_columns]), sparse.csr_array(N[:, kept_columns])
        return cls(
            S,
            scaled,
            T,
            N,
            R,
            between,
            free,
            np.delete(unsolved, kept_columns),
            np.delete(np.arange(S.shape[1]), unsolved),
            factor,
            Rank(solved_rank + kept.size, S.shape[1], least, dropped),
        )

    @cached_property
    def extended(self) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array]:
        """B, T and S in extended precision."""
        return tuple(own.astype(np.longdouble) for own in (self.B, self.T, self.S))

    @cached_property
    def extended_transpose(self) -> sparse.csr_array:
        """B' in extended precision, (r, N), in rows."""
        return self.extended[0].T.tocsr()

    @cached_property
    def sums(self) -> sparse.csr_array:
        """S F, what rows have of combinations, (n, r), without what is rounding."""
        found = sparse.csr_array(self.S @ self.F)
        return without_rounding(found, abs(self.S) @ abs(self.F), CANCELLED) if self.R.nnz else found

    @cached_property
    def lost(self) -> Flags:
        """Leaves that are not estimable, (k,)."""
        return np.diff(sparse.csr_array(self.free).indptr) > 0

    @cached_property
    def lost_rows(self) -> Flags:
        """Rows that are not estimable, (n,)."""
        return np.diff(self.touched(self.S).indptr) > 0

    def touched(self, rows: sparse.csr_array) -> sparse.csr_array:
        """What free directions change of combinations of leaves, (m, k), as (m, d), without what is rounding."""
        if not self.free.shape[1]:
            return sparse.csr_array((rows.shape[0], 0))
        return without_rounding(rows @ self.free, abs(rows) @ abs(self.free))

    def is_estimable(self, W: Float) -> Flags:
        """Which combinations of leaves, (k, K), change with nothing that is free, (K,)."""
        if not self.free.shape[1] or not W.shape[1]:
            return np.ones(W.shape[1], dtype=bool)
        moved = abs(self.free.T @ W)
        return (moved <= NOTHING_MOVES * (abs(self.free).T @ abs(W))).all(axis=0)


def whitening_of(problem: Problem) -> sparse.csr_array:
    """T, (N, n), with T Sigma T' = 1 over the rows with noise; others have no part in it."""
    noise = problem.noise
    if noise.covariance is None:
        rows = np.flatnonzero(~problem.exact & ~problem.unmeasured)
        entries = 1 / np.sqrt(problem.variances[rows]), (np.arange(rows.size), rows)
        return sparse.csr_array(entries, shape=(rows.size, problem.observed.size))
    Sigma = sparse.csr_array(noise.entries())
    count, labels = sparse.csgraph.connected_components(Sigma, directed=False)
    sizes = np.bincount(labels, minlength=count)
    require_memory(3 * 8.0 * float((sizes.astype(float) ** 2).sum()), "the inverse roots of correlated rows", "use cg")
    order = np.argsort(labels, kind="stable")
    blocks = []
    for rows in np.split(order, np.cumsum(sizes)[:-1]):
        blocks.append(np.linalg.inv(np.linalg.cholesky(Sigma[rows][:, rows].toarray())))
    turned = sparse.csr_array(sparse.block_diag(blocks, format="csr"))
    return sparse.csr_array(turned[:, np.argsort(order)])


def _of_exact_rows(
    problem: Problem, S: sparse.csr_array
) -> tuple[sparse.csr_array, sparse.csr_array, sparse.csr_array, Index]:
    """R, (k, n), and N, (k, q), leaves = N z + R y wherever exact rows hold, what these obey, and leaves z, (q,)."""
    rows, (n, k) = np.flatnonzero(problem.exact), S.shape
    if not rows.size:
        unit = sparse.csr_array((np.ones(k), np.arange(k), np.arange(k + 1)), shape=(k, k))
        return sparse.csr_array((k, n)), unit, sparse.csr_array((0, n)), np.arange(k)
    known = sparse.csr_array((np.full(rows.size, -1.0), (np.arange(rows.size), rows)), shape=(rows.size, n))
    found = eliminate(sparse.csr_array(sparse.hstack([S[rows], known], format="csr")), np.arange(k))
    if found.nearly_dependent.size:
        row = problem.observed.describe(int(rows[found.nearly_dependent[0]]))
        raise UnsolvableError(f"{row} is exact and nearly a combination of other exact rows: rounding would decide it")
    solved, others = found.solved_columns, np.setdiff1d(np.arange(k), found.solved_columns)
    place = sparse.csr_array((np.ones(solved.size), (solved, np.arange(solved.size))), shape=(k, solved.size))
    rest = sparse.csr_array((np.ones(others.size), (others, np.arange(others.size))), shape=(k, others.size))
    N = sparse.csr_array(rest - place @ found.solved[:, others])
    R = sparse.csr_array(-(place @ found.solved[:, np.arange(k, k + n)]))
    return R, N, sparse.csr_array(found.remaining[:, np.arange(k, k + n)]), others


def _in_own_units(
    T: sparse.csr_array, S: sparse.csr_array, N: sparse.csr_array, mixed: bool
) -> tuple[sparse.csr_array, sparse.csr_array, Flags, float]:
    """T S N, (N, q), and N, (k, q), in units in which columns of the first have length 1, and which are some, (q,).

    Besides, how long what is left out of a column as rounding is at most.
    """
    rows, dropped = S, 0.0
    if mixed:
        every = sparse.csr_array(S @ N)
        rows = without_rounding(every, abs(S) @ abs(N), CANCELLED)
    B = whitened(T, rows)
    B.eliminate_zeros()
    lengths = _lengths(B)
    told = lengths > 0
    scale = np.divide(1.0, lengths, out=np.ones_like(lengths), where=told)
    if mixed:
        dropped = float((_lengths(whitened(T, sparse.csr_array(every - rows))) * scale)[told].max(initial=0.0))
    return in_units(B, scale), in_units(N, scale), told, dropped


def _lengths(rows: sparse.csr_array) -> Float:
    """Of the columns of rows, (n, q), (q,)."""
    return np.sqrt(np.bincount(rows.indices, rows.data**2, minlength=rows.shape[1]))


def _missed_exactly(
    problem: Problem, S: sparse.csr_array, N: sparse.csr_array, R: sparse.csr_array
) -> sparse.csr_array:
    """What N, (k, q), in units of standard errors, still changes of exact rows, as leaves that are solved, (k, q).

    What elimination leaves out as rounding of a row may be much of what a leaf of smaller units changes by.
    """
    rows = np.flatnonzero(problem.exact)
    own, E = R[:, rows], S[rows].astype(np.longdouble)
    missed = sparse.csr_array(own @ sparse.csr_array(E @ N))
    missed = sparse.csr_array((missed + own @ (E @ (N - missed))).astype(float))
    missed = without_rounding(missed, abs(own) @ (abs(S[rows]) @ abs(N)), NOTHING_IN_EXTENDED)
    most = NO_PART * np.repeat(abs(N).max(axis=1).toarray().ravel(), np.diff(missed.indptr))
    part = np.bincount(missed.indices, abs(missed.data) > most, minlength=N.shape[1]) > 0
    missed.data[~part[missed.indices]] = 0
    missed.eliminate_zeros()
    return missed


def _told_columns(B: sparse.csr_array) -> tuple[Index, sparse.csr_array, InformationFactor, float, float]:
    """Columns of B, (N, q), that are independent and all that there are, what is free, (q, d), and a factor of them.

    Besides, the least singular value that counts and the largest that does not.
    """
    every, none = np.arange(B.shape[1]), sparse.csr_array((B.shape[1], 0))
    if not every.size:
        return every, none, SparseFactor.of(B), np.inf, 0.0
    factor = _well_determined(B)
    if factor is not None:
        return every, none, factor, factor.least, 0.0
    if is_cheap_orthogonal(B.shape):
        return OrthogonalFactor.of_columns(B)
    return _by_pivots(B)


def _well_determined(B: sparse.csr_array) -> SparseFactor | None:
    """A sparse factor of B'B, (q, q), where that keeps enough digits."""
    try:
        factor = SparseFactor.of(B)
    except UnsupportedProblemError:
        return None
    return factor if keeps_digits(factor.least, B.shape) else None


def _by_pivots(B: sparse.csr_array) -> tuple[Index, sparse.csr_array, InformationFactor, float, float]:
    """As `_told_columns`, of many columns, (N, q): those of small pivots may follow from others, and are looked at."""
    size = B.shape[1]
    L, order = factorise(sparse.csr_array(B.T @ B) + SHIFT * sparse.eye_array(size, format="csr")).triangle()
    pins = np.sort(order[L.diagonal() ** 2 < SMALL_PIVOT])
    _, part = sparse.csgraph.connected_components(sparse.csr_array(B.T @ B), directed=False)
    for _ in range(ROUNDS):
        kept = np.setdiff1d(np.arange(size), pins)
        factor = SparseFactor.of(sparse.csr_array(B[:, kept]))
        if not pins.size:
            break
        free = _free_directions(B, kept, pins, part, factor)
        lengths = np.sqrt(np.asarray(free.power(2).sum(axis=0)).ravel())
        left = sparse.csc_array(B @ free @ sparse.diags_array(1 / lengths))
        sizes = np.sqrt(np.asarray(left.power(2).sum(axis=0)).ravel())
        if (sizes <= NOTHING_MOVES).all():
            return kept, free, factor, factor.least, float(sizes.max())
        if pins.size > MOST_TOGETHER:
            break
        values, vectors = np.linalg.eigh((left.T @ left).toarray())
        nothing = vectors[:, values <= NOTHING_MOVES**2 * max(1.0, float(values[-1]))]
        pins = pins[_pivot_rows(nothing / lengths[:, None])]
    raise UnsupportedProblemError(
        "rounding decides which leaves its rows determine: give weights, or units of leaves, nearer to one another"
    )


def _pivot_rows(vectors: Float) -> Index:
    """Rows of vectors, (q, d), at which these are told apart best, (d,)."""
    from scipy.linalg import qr

    return np.sort(qr(vectors.T, mode="r", pivoting=True)[1][: vectors.shape[1]])


def _free_directions(
    B: sparse.csr_array, kept: Index, pins: Index, part: Index, factor: InformationFactor
) -> sparse.csc_array:
    """For every pin the direction with 1 in it, and 0 in other pins, that moves least of B, (q, pins).

    Those of unconnected parts are worked out at once.
    """
    number = np.zeros(pins.size, dtype=np.intp)  # of a pin among those of its part
    order = np.argsort(part[pins], kind="stable")
    first = np.searchsorted(part[pins][order], part[pins][order])
    number[order] = np.arange(pins.size) - first
    require_memory(24.0 * B.shape[1] * (number.max() + 1), "the directions that rows leave free", "measure more leaves")
    rows, columns, entries = [pins], [np.arange(pins.size)], [np.ones(pins.size)]
    for own in range(int(number.max()) + 1):
        chosen = np.flatnonzero(number == own)
        moved = np.asarray(B[:, pins[chosen]].sum(axis=1)).reshape(-1, 1)
        values = -factor.solve(np.asarray(B[:, kept].T @ moved))[:, 0]
        of_part = np.full(part.max() + 1, -1)
        of_part[part[pins[chosen]]] = chosen
        pin = of_part[part[kept]]
        told = (pin >= 0) & (values != 0)
        rows.append(kept[told])
        columns.append(pin[told])
        entries.append(values[told])
    found = np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))
    directions = sparse.csc_array(found, shape=(B.shape[1], pins.size))
    most = abs(directions).max(axis=0).toarray().ravel()
    directions.data[abs(directions.data) <= NOTHING_MOVES * np.repeat(most, np.diff(directions.indptr))] = 0
    directions.eliminate_zeros()
    return directions


def _of_leaves(N: sparse.csr_array, moved: sparse.csr_array) -> sparse.csc_array:
    """Free directions of combinations, (q, d), as directions of leaves, (k, d), by N, (k, q), their largest entry 1."""
    found = without_rounding(N @ moved, abs(N) @ abs(moved))
    most = abs(found).max(axis=0).toarray().ravel()
    return sparse.csc_array(found @ sparse.diags_array(1 / np.where(most > 0, most, 1.0)))


def whitened(T: sparse.csr_array, rows: sparse.csr_array) -> sparse.csr_array:
    """T, (N, n), times rows, (n, q), of which T may only scale each."""
    if not np.array_equal(T.indices, np.arange(T.shape[1])):
        return sparse.csr_array(T @ rows)
    entries = rows.data * np.repeat(T.data, np.diff(rows.indptr))
    return sparse.csr_array((entries, rows.indices.copy(), rows.indptr.copy()), shape=rows.shape)


def in_units(rows: sparse.csr_array, units: Float) -> sparse.csr_array:
    """Rows, (n, q), times a diagonal, (q,)."""
    entries = rows.data * units[rows.indices]
    return sparse.csr_array((entries, rows.indices.copy(), rows.indptr.copy()), shape=rows.shape)


def without_rounding(values: sparse.sparray, sizes: sparse.sparray, nothing: float = NOTHING_MOVES) -> sparse.csr_array:
    """Numbers, (k, d), without those that are nothing beside the sizes, (k, d), of what they are the sum of."""
    kept = abs(values) > sparse.csr_array(nothing * sizes)
    found = sparse.csr_array(values.multiply(kept))
    found.eliminate_zeros()
    return found
