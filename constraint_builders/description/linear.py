"""Reading matrices and vectors that somebody gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array
from constraint_builders.description.variances import LARGEST_VALUE, LARGEST_WEIGHT, refuse_large


def read_matrix(A: Any, what: str = "A", largest: float = LARGEST_WEIGHT) -> sparse.csr_array:
    """A copy as a sparse matrix of finite numbers that are not too large.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not sparse.issparse(A):
        A = real_array(A, what, truth_values=True)
    if A.ndim != 2 or not A.shape[1]:
        raise ValueError(f"{what} must be a matrix with at least one column: got shape {A.shape}")
    matrix = sparse.csr_array(in_floats(A), copy=True)
    matrix.data = real_array(matrix.data, what, truth_values=True)
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{what} holds NaN or infinite entries: give finite numbers")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    refuse_large(matrix.data, what, largest)
    return matrix


def in_floats(A: Any) -> Any:
    """A matrix whose numbers are of few bits in floats, before entries of one place are summed in theirs."""
    return A.astype(np.float64) if A.dtype.kind in "biu" or A.dtype.itemsize < 8 else A


def read_vector(values: ArrayLike, size: int, what: str) -> Float:
    """A copy as a vector of finite numbers, not too large ones, of the right length.

    Raises
    ------
    ValueError
        If it is none.
    """
    vector = np.array(real_array(values, what))
    if vector.shape != (size,):
        raise ValueError(f"{what} must have shape ({size},): got {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{what} holds NaN or infinite values: give finite numbers")
    refuse_large(vector, what, LARGEST_VALUE)
    return vector
