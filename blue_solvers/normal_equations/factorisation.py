"""Cholesky factors of A Sigma A', sparse ones by whichever library is installed, and what solves with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations.noisy_equations import Equations, NormalSolver
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import ONE_BY_ONE, compiled
from constraint_builders.memory import free_memory, require_memory

try:
    from sksparse import cholmod
except ImportError:
    cholmod = None

POWER_STEPS = 6
ENTRY_BYTES = 12  # of a sparse matrix, while it is formed
FACTOR_BYTES = 16.0  # of an entry of the factor
SURE_BYTES = 2.0**27  # of a factor without zeros: so few are not worth a look at the free memory
INDEFINITE = (
    "the matrix A Sigma A' is not positive definite, and has no Cholesky factor: its rows are dependent, or the "
    "covariance is singular; where variances and weights are very unequal that is rounding: use solver='dense'"
)
OTHERWISE = "use solver='cg'"
version_of = cache(metadata.version)  # which takes milliseconds to read
Triangle: TypeAlias = tuple[sparse.csc_matrix, Integers]
Solve: TypeAlias = Callable[[Float], Float]


@dataclass(frozen=True)
class Factor:
    """A factorised symmetric positive definite matrix N.

    Attributes
    ----------
    solve : callable
        N^-1 R for (n, K).
    label : str
        The library.
    triangle : callable
        L, lower triangular with sorted rows and a pattern that is closed under elimination, and the order, (n,), with
        L L' = N[order][:, order]; of scipy where scikit-sparse, 0.5, does not show its own.
    """

    solve: Solve
    label: str
    triangle: Callable[[], Triangle]


def factorise(matrix: sparse.sparray | sparse.spmatrix, instead: str = OTHERWISE, kept: dict | None = None) -> Factor:
    """Factorise a sparse symmetric positive definite matrix.

    Parameters
    ----------
    matrix : sparse array, (n, n)
    instead : str
        What to do where the factor does not fit.
    kept : dict, optional
        What matrices of one pattern have in common: filled by the first of them.

    Raises
    ------
    UnsupportedProblemError
        If it is not positive definite.
    MemoryError
        If the factor does not fit.
    """
    matrix = sparse.csc_matrix(matrix, dtype=np.float64)
    return _by_scipy(matrix) if cholmod is None else _by_cholmod(matrix, instead, {} if kept is None else kept)


def norm_of_inverse(solve: Solve, size: int, steps: int = POWER_STEPS) -> float:
    """About the largest eigenvalue of the inverse of N, (size, size), by a few steps of the power method."""
    z = np.random.default_rng(0).standard_normal((size, 1))
    for _ in range(steps):
        z = solve(z / np.linalg.norm(z))
    return float(np.linalg.norm(z))


def cholmod_gives_triangles() -> bool:
    """Whether scikit-sparse is installed and of the interface, 0.4, whose factors can be looked into."""
    return hasattr(cholmod, "analyze")


def operations_by_cholmod(matrix: sparse.csr_array) -> float:
    """Of the factorisation that `factorise` would make of (n, n), from its order of elimination alone.

    Infinite where it would not fit, or that order is not told before: without scikit-sparse 0.4.
    """
    if not cholmod_gives_triangles():
        return np.inf
    pattern = sparse.csc_matrix(matrix, dtype=np.float64)
    entries = entries_of_factor(pattern, cholmod.analyze(pattern).P()).astype(np.float64)
    return np.inf if FACTOR_BYTES * entries.sum() > free_memory() else float((entries**2).sum())


def products_of(cross_covariance: sparse.csr_array) -> float:
    """Multiplications that form A Sigma A', of Sigma A', (n, rows); it has no more entries than that."""
    return float((np.diff(cross_covariance.indptr).astype(float) ** 2).sum())


def _by_cholmod(matrix: sparse.csc_matrix, instead: str, kept: dict) -> Factor:
    label = f"CHOLMOD, scikit-sparse {version_of('scikit-sparse')}"
    with _cholmod_errors(instead):
        if not cholmod_gives_triangles():
            return Factor(cholmod.cho_factor(matrix).solve, label, lambda: _by_scipy(matrix).triangle())
        symbolic = kept["order"] = kept.get("order") or cholmod.analyze(matrix)
        require_room(matrix, symbolic.P, instead)
        factor = symbolic.cholesky(matrix)

    def triangle() -> Triangle:
        with _cholmod_errors(instead):  # an indefinite matrix has a factor L D L'
            L = factor.L()
        L.sort_indices()  # in place: of a large factor a copy takes as long as its selected inverse
        return L, factor.P().astype(np.intp)

    return Factor(factor.solve_A, label, triangle)


def require_room(matrix: sparse.csc_matrix, order: Callable[[], Integers], instead: str) -> None:
    """Refuse, by its bytes, a factor of ``matrix[order()][:, order()]``, (n, n), that would not fit in memory.

    Raises
    ------
    MemoryError
    """
    rows = matrix.shape[0]
    most = FACTOR_BYTES * rows * (rows + 1) / 2
    if most <= SURE_BYTES or most <= free_memory():
        return
    entries = float(entries_of_factor(matrix, order()).sum())
    what = f"the Cholesky factor of {rows:,} equations, {entries:,.0f} entries,"
    require_memory(FACTOR_BYTES * entries, what, instead)


def entries_of_factor(matrix: sparse.csc_matrix, order: Integers) -> Integers:
    """Entries in every column of the factor of ``matrix[order][:, order]``, (n,), that of the diagonal included."""
    lower = sparse.csr_array(sparse.tril(sparse.csr_array(matrix)[order][:, order], k=-1, format="csr"))
    lower.sort_indices()
    counts = np.ones(lower.shape[0], dtype=np.intp)
    count_entries(lower.indptr.astype(np.intp), lower.indices.astype(np.intp), counts)
    return counts


def count_entries_in_numpy(pointers: Integers, indices: Integers, counts: Integers) -> None:
    """Entries in every column of the factor, that of the diagonal included.

    Parameters
    ----------
    pointers, indices : ndarray, (n + 1,) and (k,)
        Rows of the matrix below its diagonal.
    counts : ndarray, (n,)
        Ones, changed in place.
    """
    lower = sparse.csr_array((np.ones(indices.size), indices, pointers), shape=(counts.size, counts.size))
    counts[:] = [rows.size for rows in factor_rows(sparse.csc_array(lower))]


@compiled(reference=count_entries_in_numpy, most=ONE_BY_ONE)
def count_entries(pointers: Integers, indices: Integers, counts: Integers) -> None:
    """See `count_entries_in_numpy`, of counts (n,): every row walks from its entries up the elimination tree."""
    parent = np.full(counts.size, -1)
    seen = np.full(counts.size, -1)
    for row in range(counts.size):
        seen[row] = row
        for place in range(pointers[row], pointers[row + 1]):
            column = indices[place]
            while seen[column] != row:
                if parent[column] < 0:
                    parent[column] = row
                counts[column] += 1
                seen[column] = row
                column = parent[column]


def factor_rows(lower: sparse.csc_array) -> Iterator[Integers]:
    """Rows of every column of the Cholesky factor of a matrix given by its lower triangle, (n, n).

    Those are the column's own and those of its children in the elimination tree.
    """
    children: dict[int, list[Integers]] = {}
    for column in range(lower.shape[0]):
        own = lower.indices[lower.indptr[column] : lower.indptr[column + 1]]
        rows = np.unique(np.concatenate([own, [column], *children.pop(column, [])]))
        if rows.size > 1:
            children.setdefault(int(rows[1]), []).append(rows[1:])
        yield rows


@contextmanager
def _cholmod_errors(instead: str) -> Iterator[None]:
    try:
        yield
    except cholmod.CholmodNotPositiveDefiniteError:
        raise UnsupportedProblemError(INDEFINITE) from None
    except (cholmod.CholmodOutOfMemoryError, cholmod.CholmodTooLargeError):
        raise MemoryError(f"the Cholesky factor does not fit in memory: {instead}") from None


def _by_scipy(matrix: sparse.csc_matrix) -> Factor:
    try:
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        raise UnsupportedProblemError(INDEFINITE) from None
    return Factor(factors.solve, f"SuperLU, scipy {version_of('scipy')}", lambda: _triangle_of_superlu(matrix, factors))


def _triangle_of_superlu(matrix: sparse.csc_matrix, factors: SuperLU) -> Triangle:
    """SuperLU drops entries that cancel to 0, so the pattern is worked out here."""
    pivots = factors.U.diagonal()
    if not np.array_equal(factors.perm_r, factors.perm_c) or pivots.min() <= 0:
        raise UnsupportedProblemError(INDEFINITE)
    order = np.argsort(factors.perm_c).astype(np.intp)
    L = sparse.csc_array(factors.L @ sparse.diags_array(np.sqrt(pivots)))
    rows = list(factor_rows(sparse.csc_array(sparse.tril(matrix[order][:, order], format="csc"))))
    pointers, indices = np.cumsum([0, *(own.size for own in rows)]), np.concatenate(rows)
    filled = sparse.csc_matrix((np.zeros(indices.size), indices, pointers), shape=L.shape)
    filled.data[np.searchsorted(entry_keys(filled), entry_keys(L))] = L.data
    return filled, order


def entry_keys(matrix: sparse.csr_array | sparse.csc_array) -> Integers:
    """Every entry's place in a compressed matrix as one number, (nnz,), ascending where its indices are sorted."""
    outer = np.repeat(np.arange(matrix.indptr.size - 1, dtype=np.intp), np.diff(matrix.indptr))
    return outer * np.int64(matrix.indptr.size) + matrix.indices


class FactorSolver(NormalSolver):
    """Independent equations by a factor of A Sigma A', rows and columns scaled to a unit diagonal.

    Parameters
    ----------
    equations : Equations
    solve : callable
        N^-1 R for (n, K).
    label : str
        The library.
    """

    def __init__(self, equations: Equations, solve: Solve, label: str) -> None:
        self._deviations, self._solve, self.label = equations.deviations[:, None], solve, label

    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        """N^-1 R, (rows, K), in no iterations."""
        return self._solve(R / self._deviations) / self._deviations, 0


def sparse_solver(equations: Equations) -> FactorSolver:
    """Of independent equations, by one sparse factorisation.

    Raises
    ------
    MemoryError
        If the entries of A Sigma A', before any fill, or the factor would not fit.
    """
    rows = equations.A.shape[0]
    entries = min(products_of(equations.cross_covariance), float(rows) ** 2)
    what = f"the sparse normal matrix of {rows:,} constraints"
    require_memory(3 * ENTRY_BYTES * entries, what, "use solver='sea_blue' or 'cg'")
    factor = factorise(equations.normal_matrix())
    return FactorSolver(equations, factor.solve, factor.label)
