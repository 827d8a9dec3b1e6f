"""Sparse Cholesky factors of symmetric positive definite matrices, by whichever library is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from constraint_builders.arrays import Float

try:
    from sksparse import cholmod
except ImportError:
    cholmod = None


@dataclass(frozen=True)
class Factor:
    """A factorised matrix: `solve` takes and returns (m, K); `label` names the library."""

    solve: Callable[[Float], Float]
    label: str


def factorise(matrix: sparse.csr_array) -> Factor:
    """Factorise a sparse symmetric positive definite matrix.

    Raises
    ------
    ValueError
        If it is not positive definite.
    MemoryError
        If the factor does not fit.
    """
    matrix = sparse.csc_matrix(matrix, dtype=np.float64)
    return _by_scipy(matrix) if cholmod is None else _by_cholmod(matrix)


def _by_cholmod(matrix: sparse.csc_matrix) -> Factor:
    label = f"CHOLMOD, scikit-sparse {metadata.version('scikit-sparse')}"
    try:
        if hasattr(cholmod, "cho_factor"):
            return Factor(cholmod.cho_factor(matrix).solve, label)
        return Factor(cholmod.cholesky(matrix).solve_A, label)
    except cholmod.CholmodNotPositiveDefiniteError:
        raise ValueError(
            "A Sigma A' is not positive definite: its rows are dependent, or the covariance is singular"
        ) from None
    except (cholmod.CholmodOutOfMemoryError, cholmod.CholmodTooLargeError):
        raise MemoryError("the Cholesky factor does not fit in memory: use solver='cg'") from None


def _by_scipy(matrix: sparse.csc_matrix) -> Factor:
    try:
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        raise ValueError("A Sigma A' is singular: its rows are dependent, or the covariance is singular") from None
    return Factor(factors.solve, f"SuperLU, scipy {metadata.version('scipy')}")
