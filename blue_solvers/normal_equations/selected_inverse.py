"""Entries of the inverse of a sparse matrix on the pattern of its Cholesky factor (Takahashi's equations).

With N = L L', columns J of a supernode and the rows R below them, and Y = L_RJ L_JJ^-1,

    Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ')^-1 - Y' Z_RJ,    Z = N^-1,

and Z_RR lies in the front of the parent. From the root down, level by level, every front's dense block of the inverse
follows from its parent's, without anything off the pattern. All fronts of one level and shape are one batch.

Every exact variance of an estimate is then a few of these entries,

    Var(t'x) = t' Sigma t - u' (A Sigma A')^-1 u,    u = A Sigma t.

For a cell with noise of its own u is a column of A, and its entries lie on the pattern of A Sigma A'. For a sum of
cells or correlated noise they may not: such pairs are added to the pattern before it is factorised.

References
----------
Takahashi, Fagan and Chen, Formation of a sparse bus impedance matrix and its application to short circuit study, 1973.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack
from scipy.sparse.linalg import LinearOperator, splu

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import Float
from blue_solvers.normal_equations.factorisation import cholmod
from blue_solvers.normal_equations.kernels import Gather, best_gather
from blue_solvers.normal_equations.projection import EPSILON, Equations, NormalSolver, Stage, equations_of
from blue_solvers.normal_equations.supernodes import Index, Supernodes
from constraint_builders import Problem
from constraint_builders.memory import require_memory

CANCELLED = 1e-3  # of a cell's noise: a smaller variance, a difference of nearly equal numbers, would lose digits
DIGITS = 1e-8  # relative error of a variance that rounding may leave
POWER_STEPS = 6
DETERMINED = 1e-22  # of a cell's noise: variances below it are 0 but for rounding
REFINED_BLOCK = 64  # columns of the adjoint held at once
BATCH_ENTRIES = 2**18  # of the fronts of one batch
PAIR_BYTES = 64  # of a pair of rows: itself, its value, and their sorted copies
MOST_PAIR_BYTES = 2.0**31  # of pairs at once
INSTEAD = "use P.variances() with solver='cg', Monte Carlo intervals, or estimate_variances"


def inverse_on_pattern(matrix: sparse.csr_array, gather: Gather | None = None) -> sparse.csc_array:
    """Entries of the inverse of a sparse symmetric positive definite matrix on the pattern of the matrix.

    Parameters
    ----------
    matrix : sparse array, (n, n)
        Explicit zeros count as part of the pattern.
    gather : callable, optional
        One of `blue_solvers.normal_equations.kernels`; by default the compiled one where numba is installed.

    Returns
    -------
    csc_array, (n, n)

    Raises
    ------
    ValueError
        If the matrix is not positive definite.
    MemoryError
        If it would not fit: 16 bytes for every entry of the factor, 8 for every entry of the fronts of two levels of
        the supernodal tree, 64 for every entry of the matrix.
    """
    pattern = sparse.csc_array(matrix, dtype=np.float64)
    pattern.sum_duplicates()
    columns = np.repeat(np.arange(pattern.shape[1]), np.diff(pattern.indptr))
    factor = SparseFactor.of(pattern)
    entries = factor.inverse_entries(pattern.indices.astype(np.int64), columns, gather or best_gather())
    return sparse.csc_array((entries, pattern.indices, pattern.indptr), shape=pattern.shape)


def variances_by_selected_inversion(problem: Problem, gather: Gather | None = None) -> Float:
    """Exact variance of every desired cell of the BLUE by one selected inversion of A Sigma A'.

    Where the variance is less than a thousandth of the noise, or the equations are so nearly dependent that the
    difference above would lose its digits, it is worked out from the estimate's own weights instead.

    Parameters
    ----------
    problem : Problem
        Any whose covariance is known entry by entry.
    gather : callable, optional
        As for `inverse_on_pattern`.

    Returns
    -------
    ndarray, (m,)
        In squared units of the counts; NaN where nothing determines the cell.

    Raises
    ------
    ValueError
        If the covariance is an operator.
    MemoryError
        If it would not fit; `inverse_on_pattern` says what it takes, with a pair of equations for an entry of the
        matrix.
    """
    if isinstance(problem.covariance, LinearOperator):
        raise ValueError(
            "selected inversion needs the entries of the covariance, which is an operator: use P.variances() with "
            "solver='cg', or estimate_variances"
        )
    if problem.undetermined is not None:
        return np.where(problem.undetermined, np.nan, variances_by_selected_inversion(problem.determined, gather))
    T = desired_sums(problem)
    with one_blas_thread():
        return _variances(equations_of(problem, "independent")[-1], T, gather or best_gather())


def desired_sums(problem: Problem) -> sparse.csr_array:
    """The sparse matrix T, (m, n), that makes the desired cells from a consistent estimate of the observed ones."""
    n = problem.observed.size
    T = sparse.csr_array(sparse.eye_array(n, format="csr"))
    if problem.tabulation is not None:
        T = sparse.csr_array(problem.tabulation)
    elif problem.desired.names != problem.observed.names or not problem.measured_tables.all():
        parts = [
            _sums_of_table(problem, table.start, table.stop)
            for table in map(problem.desired.slice, problem.desired.names)
        ]
        T = sparse.csr_array(sparse.vstack(parts, format="csr"))
    return T if problem.completion is None else sparse.csr_array(T @ problem.completion[0])


def _sums_of_table(problem: Problem, start: int, stop: int) -> sparse.csr_array:
    """Rows start to stop of T: spread over the observed cells, the numbers of a table's cells name the cell of each."""
    numbers = np.zeros((problem.desired.size, 1))
    numbers[start:stop, 0] = np.arange(1, stop - start + 1)
    member = problem.tabulate_transpose(numbers)[:, 0].astype(np.int64)
    cells = np.flatnonzero(member)
    return sparse.csr_array(
        (np.ones(cells.size), (member[cells] - 1, cells)), shape=(stop - start, problem.observed.size)
    )


def _variances(equations: Equations, T: sparse.csr_array, gather: Gather) -> Float:
    Sigma = equations.Sigma_matrix
    assert Sigma is not None
    noise = np.asarray((T @ Sigma).multiply(T).sum(axis=1)).ravel()
    if not equations.A.shape[0]:
        return noise
    scaled = sparse.diags_array(1 / equations.deviations) @ equations.A
    U = sparse.csc_array(scaled @ Sigma @ T.T)
    U.eliminate_zeros()
    factor = SparseFactor.of(_with_pairs_of(U, equations.normal_matrix()))
    taken = [_taken(factor, sparse.csc_array(U[:, columns]), gather) for columns in _columns_at_once(U)]
    variances = noise - np.concatenate(taken)
    lost = max(CANCELLED, EPSILON * _condition(factor, equations.normal_matrix()) / DIGITS)
    cancelled = np.flatnonzero(variances < lost * noise)
    variances[cancelled] = _variances_from_weights(equations, factor, T[cancelled])
    return np.where(variances > DETERMINED * noise, variances, 0.0)


def _condition(factor: SparseFactor, N: sparse.csr_array) -> float:
    """About the condition number of N: the largest eigenvalue of its inverse by a few steps of the power method."""
    z = np.random.default_rng(0).standard_normal((N.shape[0], 1))
    for _ in range(POWER_STEPS):
        z = factor.solve(z / np.linalg.norm(z))
    return float(np.linalg.norm(z)) * float(abs(N).sum(axis=0).max())


def _taken(factor: SparseFactor, U: sparse.csc_array, gather: Gather) -> Float:
    """What every column u takes from its noise, u' N^-1 u."""
    first, second = _pairs(U)
    rows, columns = U.indices[first].astype(np.int64), U.indices[second].astype(np.int64)
    terms = factor.inverse_entries(rows, columns, gather) * U.data[first] * U.data[second]
    terms[first != second] *= 2
    of_pair = np.repeat(np.arange(U.shape[1]), np.diff(U.indptr))[first]
    return np.bincount(of_pair, terms, minlength=U.shape[1]).astype(np.float64)


def _pair_counts(U: sparse.csc_array) -> Index:
    counts = np.diff(U.indptr).astype(np.int64)
    return counts * (counts + 1) // 2


def _columns_at_once(U: sparse.csc_array) -> list[slice]:
    """Runs of columns whose pairs fit in memory together; every run takes a sweep over the factor."""
    pairs = np.cumsum(_pair_counts(U))
    runs = max(1, int(np.ceil(PAIR_BYTES * float(pairs[-1]) / MOST_PAIR_BYTES))) if pairs.size else 1
    stops = np.searchsorted(pairs, pairs[-1] * np.arange(1, runs + 1) / runs) + 1 if pairs.size else np.zeros(1, int)
    stops[-1] = U.shape[1]
    return [slice(*pair) for pair in pairwise([0, *stops.tolist()]) if pair[0] < pair[1]]


def _pairs(U: sparse.csc_array) -> tuple[Index, Index]:
    """Positions in `U.data` of all unordered pairs of entries in one column, an entry with itself included."""
    counts = np.diff(U.indptr).astype(np.int64)
    needed = PAIR_BYTES * float(_pair_counts(U).sum())
    require_memory(needed, f"selected inversion for {U.shape[1]:,} cells in {U.shape[0]:,} equations", INSTEAD)
    ends = np.repeat(U.indptr[1:], counts)
    partners = ends - np.arange(U.nnz)
    first = np.repeat(np.arange(U.nnz), partners)
    offsets = np.cumsum(partners) - partners
    return first, np.arange(first.size) - np.repeat(offsets, partners) + first


def _with_pairs_of(U: sparse.csc_array, N: sparse.csr_array) -> sparse.csc_array:
    """N with explicit zeros for all pairs of entries in one column of U where it has no entry."""
    size = N.shape[0]
    ones = sparse.csr_array((np.ones(U.nnz), U.indices, U.indptr), shape=U.shape[::-1])
    pattern = sparse.csr_array(ones.T @ ones + sparse.csr_array((np.ones(N.nnz), N.indices, N.indptr), shape=N.shape))
    pattern.sort_indices()
    pattern.data[:] = 0
    pattern.data[np.searchsorted(_keys(pattern), _keys(N))] = N.data
    return sparse.csc_array((pattern.data, pattern.indices, pattern.indptr), shape=(size, size))


def _keys(matrix: sparse.csr_array | sparse.csc_array) -> Index:
    """Every entry's place in a compressed matrix as one number, ascending where its indices are sorted."""
    outer = np.repeat(np.arange(matrix.indptr.size - 1, dtype=np.int64), np.diff(matrix.indptr))
    return outer * matrix.indptr.size + matrix.indices


def _variances_from_weights(equations: Equations, factor: SparseFactor, T: sparse.csr_array) -> Float:
    """Variances w' Sigma w with the weights w = t - A' (A Sigma A')^-1 A Sigma t of every row t of T."""
    stage = Stage(equations, lambda system: _Solver(factor, system))
    variances = np.empty(T.shape[0])
    for start in range(0, T.shape[0], REFINED_BLOCK):
        weights = stage.adjoint(T[start : start + REFINED_BLOCK].toarray().T)
        variances[start : start + REFINED_BLOCK] = np.einsum("ij,ij->j", weights, equations.Sigma @ weights)
    return variances


class _Solver(NormalSolver):
    """A factor of the scaled A Sigma A' as a solver of the normal equations."""

    label = "selected inversion"

    def __init__(self, factor: SparseFactor, equations: Equations) -> None:
        self._factor = factor
        self._deviations = equations.deviations[:, None]

    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        return self._factor.solve(R / self._deviations) / self._deviations, 0


@dataclass(frozen=True)
class SparseFactor:
    """L L' = N[order][:, order].

    Attributes
    ----------
    L : csc_matrix, (n, n)
        Lower triangular with sorted rows; its pattern is closed under elimination.
    order : ndarray, (n,)
    solve : callable
        N^-1 R for (n, K).
    """

    L: sparse.csc_matrix
    order: Index
    solve: Callable[[Float], Float]

    @classmethod
    def of(cls, matrix: sparse.csc_array) -> SparseFactor:
        """Factorise by CHOLMOD, or where scikit-sparse 0.4 is missing by SuperLU.

        Raises
        ------
        ValueError
            If the matrix is not positive definite.
        MemoryError
            If the factor does not fit.
        """
        return _by_cholmod(matrix) if hasattr(cholmod, "analyze") else _by_superlu(matrix)

    def inverse_entries(self, rows: Index, columns: Index, gather: Gather) -> Float:
        """Entries of N^-1 at places on the pattern of the factor.

        Parameters
        ----------
        rows, columns : ndarray, (K,)
            In the numbering of N, in any order.
        gather : callable
            One of `blue_solvers.normal_equations.kernels`.

        Raises
        ------
        ValueError
            If a place is off the pattern.
        MemoryError
            If the fronts of two levels would not fit.
        """
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(self.order.size)
        low, high = rank[rows], rank[columns]
        low, high = np.minimum(low, high), np.maximum(low, high)
        nodes = Supernodes.of_factor(self.L)
        node = nodes.of_column[low]
        first, second = low - nodes.starts[node], nodes.positions(node, high)
        if second.size and second.min() < 0:
            place = int(second.argmin())
            raise ValueError(
                f"entry ({rows[place]}, {columns[place]}) of the inverse is off the factor's pattern: "
                "give the matrix an explicit zero there before factorising"
            )
        return _sweep(self.L, nodes, node, first * nodes.lengths[node] + second, gather)


def _by_cholmod(matrix: sparse.csc_array) -> SparseFactor:
    try:
        factor = cholmod.cholesky(sparse.csc_matrix(matrix))
        L = factor.L()
    except cholmod.CholmodNotPositiveDefiniteError:
        raise ValueError("the matrix is not positive definite: it has no Cholesky factor") from None
    except (cholmod.CholmodOutOfMemoryError, cholmod.CholmodTooLargeError):
        raise MemoryError(f"the Cholesky factor does not fit in memory: {INSTEAD}") from None
    L.sort_indices()
    return SparseFactor(L, factor.P().astype(np.int64), factor.solve_A)


def _by_superlu(matrix: sparse.csc_array) -> SparseFactor:
    """SuperLU drops entries that cancel to 0, so the pattern is worked out here."""
    matrix = sparse.csc_array(matrix)
    try:
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        raise ValueError("the matrix is singular: it has no Cholesky factor") from None
    pivots = factors.U.diagonal()
    if not np.array_equal(factors.perm_r, factors.perm_c) or pivots.min() <= 0:
        raise ValueError("the matrix is not positive definite: it has no Cholesky factor")
    order = np.argsort(factors.perm_c).astype(np.int64)
    L = sparse.csc_array(factors.L @ sparse.diags_array(np.sqrt(pivots)))
    pattern = _closed_pattern(sparse.csc_array(sparse.tril(matrix[order][:, order], format="csc")))
    pattern.data[np.searchsorted(_keys(pattern), _keys(L))] = L.data
    return SparseFactor(pattern, order, factors.solve)


def _closed_pattern(lower: sparse.csc_array) -> sparse.csc_matrix:
    """The pattern of the Cholesky factor of a matrix given by its lower triangle, filled with zeros.

    A column's pattern is its own and that of its children in the elimination tree.
    """
    children: dict[int, list[Index]] = {}
    patterns = []
    for column in range(lower.shape[0]):
        own = lower.indices[lower.indptr[column] : lower.indptr[column + 1]]
        rows = np.unique(np.concatenate([own, [column], *children.pop(column, [])]))
        patterns.append(rows)
        if rows.size > 1:
            children.setdefault(int(rows[1]), []).append(rows[1:])
    pointers = np.concatenate([[0], np.cumsum([rows.size for rows in patterns])])
    indices = np.concatenate(patterns)
    return sparse.csc_matrix((np.zeros(indices.size), indices, pointers), shape=lower.shape)


@dataclass(frozen=True)
class _Batch:
    """Supernodes of one level and shape, and where their fronts are kept for their children, if they have any."""

    nodes: Index
    width: int
    length: int
    kept: slice | None


def _sweep(L: sparse.csc_matrix, tree: Supernodes, node: Index, place: Index, gather: Gather) -> Float:
    """Entries of the inverse at flat positions `place` of the fronts of supernodes `node`."""
    by_node = np.argsort(node, kind="stable")
    ends = np.cumsum(np.bincount(node, minlength=tree.count))
    values = np.empty(node.size)
    offsets = np.zeros(tree.count, dtype=np.int64)
    levels = _plan(tree)
    above, kept, scratch = _fronts(L, tree, levels)
    for level in levels:
        for batch in level:
            shape = (batch.nodes.size, batch.length, batch.length)
            fronts = (scratch[: prod(shape)] if batch.kept is None else kept[batch.kept]).reshape(shape)
            _invert(L, tree, batch, above, offsets, fronts, gather)
            for own, front in zip(batch.nodes.tolist(), fronts, strict=True):
                wanted = by_node[ends[own - 1] if own else 0 : ends[own]]
                values[wanted] = front.ravel().take(place[wanted])
        for batch in level:
            if batch.kept is not None:
                offsets[batch.nodes] = batch.kept.start + np.arange(batch.nodes.size) * batch.length**2
        above, kept = kept, above
    return values


def _plan(tree: Supernodes) -> list[list[_Batch]]:
    """Batches level by level, from the roots down."""
    keys = np.stack([tree.level, tree.has_children, tree.widths, tree.lengths])
    order = np.lexsort(keys[::-1])
    changes = np.flatnonzero(np.diff(keys[:, order], axis=1).any(axis=0)) + 1
    levels: list[list[_Batch]] = [[] for _ in range(int(tree.level.max()) + 1)]
    fill = [0] * len(levels)
    for group in np.split(order, changes):
        level, inner, width, length = keys[:, group[0]].tolist()
        for nodes in _cut(group, max(1, BATCH_ENTRIES // length**2)):
            stop = fill[level] + nodes.size * length**2
            levels[level].append(_Batch(nodes, width, length, slice(fill[level], stop) if inner else None))
            fill[level] = stop if inner else fill[level]
    return levels


def _cut(group: Index, most: int) -> Iterator[Index]:
    return (group[start : start + most] for start in range(0, group.size, most))


def _fronts(L: sparse.csc_matrix, tree: Supernodes, levels: list[list[_Batch]]) -> tuple[Float, Float, Float]:
    """Room for the kept fronts of two levels, and for a batch that is not kept; refused when it would not fit."""
    batches = [batch for level in levels for batch in level]
    kept = max((batch.kept.stop for batch in batches if batch.kept is not None), default=0)
    largest = max(batch.nodes.size * batch.length**2 for batch in batches)
    what = f"selected inversion over {tree.count:,} supernodes with {L.nnz:,} entries"
    require_memory(8.0 * (2 * kept + 2 * largest + 2 * tree.rows.size), what, INSTEAD)
    return np.empty(kept), np.empty(kept), np.empty(largest)


def _invert(
    L: sparse.csc_matrix, tree: Supernodes, batch: _Batch, above: Float, offsets: Index, fronts: Float, gather: Gather
) -> None:
    """Fill the fronts of a batch, given those of the level above and where each starts among them."""
    width, rest = batch.width, batch.length - batch.width
    blocks = _columns(L, tree, batch)
    if rest:
        below = tree.row_starts[batch.nodes][:, None] + width + np.arange(rest)
        parents = tree.parent[batch.nodes]
        positions = tree.positions_in_parent[below]
        gather(above, offsets[parents], tree.lengths[parents], positions, fronts[:, width:, width:])
    own, Y = _local_solutions(blocks, width)
    if rest:
        coupling = np.matmul(fronts[:, width:, width:], Y)
        np.negative(coupling, out=fronts[:, width:, :width])
        fronts[:, :width, width:] = fronts[:, width:, :width].transpose(0, 2, 1)
        own += np.matmul(Y.transpose(0, 2, 1), coupling)
    fronts[:, :width, :width] = own


def _columns(L: sparse.csc_matrix, tree: Supernodes, batch: _Batch) -> Float:
    """The dense columns of L of every supernode of a batch, (B, length, width)."""
    blocks = np.zeros((batch.nodes.size, batch.length, batch.width))
    starts = tree.starts[batch.nodes]
    for k in range(batch.width):
        blocks[:, k:, k] = L.data[L.indptr[starts + k].astype(np.int64)[:, None] + np.arange(batch.length - k)]
    return blocks


def _local_solutions(blocks: Float, width: int) -> tuple[Float, Float]:
    """(L_JJ L_JJ')^-1, (B, width, width), and Y = L_RJ L_JJ^-1, (B, rest, width); `blocks` is overwritten."""
    if width == 1:
        return 1 / blocks[:, :1] ** 2, blocks[:, 1:] / blocks[:, :1]
    own = np.empty((blocks.shape[0], width, width))
    lower = np.tri(width, dtype=bool)
    for block, inverse in zip(blocks, own, strict=True):
        if block.shape[0] > width:
            blas.dtrsm(1.0, block[:width].T, block[width:].T, overwrite_b=1)
        upper = lapack.dpotri(block[:width].T, overwrite_c=1)[0]
        inverse[...] = np.where(lower, upper.T, upper)
    return own, blocks[:, width:]
