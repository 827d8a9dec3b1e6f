"""Sparse Cholesky factors of symmetric positive definite matrices, by whichever library is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations.factor_size import entries_of_factor, require_room
from constraint_builders.arrays import Float, Integers

try:
    from sksparse import cholmod
except ImportError:
    cholmod = None

INDEFINITE = (
    "the matrix is not positive definite: it has no Cholesky factor; where variances and weights are very unequal that "
    "is rounding: use solver='dense'"
)


@dataclass(frozen=True)
class Factor:
    """A factorised matrix: `solve` takes and returns (m, K); `label` names the library."""

    solve: Callable[[Float], Float]
    label: str


def factorise(matrix: sparse.csr_array) -> Factor:
    """Factorise a sparse symmetric positive definite matrix.

    Raises
    ------
    UnsupportedProblemError
        If it is not positive definite.
    MemoryError
        If the factor does not fit.
    """
    matrix = sparse.csc_matrix(matrix, dtype=np.float64)
    return _by_scipy(matrix) if cholmod is None else _by_cholmod(matrix)


def cholmod_gives_triangles() -> bool:
    """Whether scikit-sparse is installed and of the interface, 0.4, whose factors can be looked into."""
    return hasattr(cholmod, "analyze")


def entries_by_cholmod(matrix: sparse.csr_array) -> Integers | None:
    """Entries in every column of the factor that `factorise` would make, (n,), from its order of elimination alone.

    None where that order is not told before the factor is made: without scikit-sparse 0.4.
    """
    if not cholmod_gives_triangles():
        return None
    pattern = sparse.csc_matrix(matrix, dtype=np.float64)
    return entries_of_factor(pattern, cholmod.analyze(pattern).P())


def triangle_by_cholmod(
    matrix: sparse.csc_array, instead: str
) -> tuple[sparse.csc_matrix, Integers, Callable[[Float], Float]]:
    """L and the order with ``L L' = matrix[order][:, order]``, and what solves with it.

    Parameters
    ----------
    matrix : csc_array, (n, n)
    instead : str
        What to do where the factor does not fit.

    Raises
    ------
    ValueError
        If it is not positive definite.
    MemoryError
        If the factor does not fit.
    """
    with _cholmod_errors(INDEFINITE, instead):
        factor = _factor_by_cholmod(sparse.csc_matrix(matrix), instead)
        return factor.L(), factor.P().astype(np.int64), factor.solve_A


def _by_cholmod(matrix: sparse.csc_matrix) -> Factor:
    label = f"CHOLMOD, scikit-sparse {metadata.version('scikit-sparse')}"
    indefinite = "A Sigma A' is not positive definite: its rows are dependent, or the covariance is singular"
    instead = "use solver='cg'"
    with _cholmod_errors(indefinite, instead):
        if hasattr(cholmod, "cho_factor"):
            return Factor(cholmod.cho_factor(matrix).solve, label)
        return Factor(_factor_by_cholmod(matrix, instead).solve_A, label)


def _factor_by_cholmod(matrix: sparse.csc_matrix, instead: str) -> Any:
    """The factor of scikit-sparse 0.4, once its order says that it fits."""
    symbolic = cholmod.analyze(matrix)
    require_room(matrix, symbolic.P(), instead)
    return symbolic.cholesky(matrix)


@contextmanager
def _cholmod_errors(indefinite: str, instead: str) -> Iterator[None]:
    try:
        yield
    except cholmod.CholmodNotPositiveDefiniteError:
        raise UnsupportedProblemError(indefinite) from None
    except (cholmod.CholmodOutOfMemoryError, cholmod.CholmodTooLargeError):
        raise MemoryError(f"the Cholesky factor does not fit in memory: {instead}") from None


def _by_scipy(matrix: sparse.csc_matrix) -> Factor:
    try:
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        raise UnsupportedProblemError(
            "A Sigma A' is singular: its rows are dependent, or the covariance is singular"
        ) from None
    return Factor(factors.solve, f"SuperLU, scipy {metadata.version('scipy')}")
