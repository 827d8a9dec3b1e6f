"""Columns that operators are given: real ones, and in units of their own where their squares would not be numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.description.linear import in_floats
from constraint_builders.description.reals import real_array, refuse_masked
from constraint_builders.description.variances import LARGEST_VALUE, LARGEST_WEIGHT, refuse_large

FIRST_ROWS = 64  # that mostly show whether a column is out of range


def in_range(linear: Callable[[Float], Float], X: Float, require_finite: Callable[[Float], None]) -> Float:
    """A linear map of columns so small or large that their squares would not be numbers: in units of their own.

    Parameters
    ----------
    linear : callable, (n, K) to (m, K)
    X : ndarray, (n, K)
    require_finite : callable
        Raises the error for columns that hold NaN or infinite values.
    """
    if _moderate(X):
        return linear(X)
    require_finite(X)
    sizes = abs(X).max(axis=0)
    if not ((sizes > LARGEST_VALUE) | ((sizes < 1 / LARGEST_VALUE) & (sizes > 0))).any():
        return linear(X)
    exponents = np.where((sizes > LARGEST_VALUE) | (sizes < 1 / LARGEST_VALUE), np.frexp(sizes)[1], 0)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(linear(np.ldexp(X, -exponents)), exponents)
    if not np.isfinite(result).all():
        raise OverflowError("the estimate is beyond what float64 holds: give values in larger units")
    return result


def _moderate(X: Float) -> bool:
    """Whether one look at all cells together, and at the first ones of every column, shows finite ones in range."""
    squares = float(np.vdot(X, X))
    if not squares <= LARGEST_VALUE**2:
        return False
    if X.shape[1] == 1:
        return squares >= X.size / LARGEST_VALUE**2
    return bool((abs(X[:FIRST_ROWS]).max(axis=0) >= 1 / LARGEST_VALUE).all())


def real_columns(X: Any) -> Float:
    """Columns of real numbers, contiguous; truth values count as 0 and 1."""
    if type(X) is np.ndarray and X.dtype == np.float64:
        return np.ascontiguousarray(X)
    require_real(X)
    return np.ascontiguousarray(real_array(X, "the vector", truth_values=True))


def require_real(X: Any) -> None:
    """Refuse complex values, by a `TypeError` as scipy's operators do."""
    refuse_masked(X, "the vector")
    if np.iscomplexobj(X):
        raise TypeError("tables are real: got complex values")


def require_dense(x: Any) -> None:
    """Refuse tables by name and sparse vectors, by what to write instead."""
    if isinstance(x, Mapping):
        raise TypeError("the estimate takes vectors: write P @ problem.vector(tables)")
    if sparse.issparse(x):
        raise TypeError(
            "the estimate takes dense vectors, and makes dense ones: write P @ x.toarray(), some columns at a time"
        )


def read_weights(desired: Layout, W: Any) -> sparse.csc_array:
    """Functionals over the desired layout, one in every column, as a finite sparse array, (m, K)."""
    W = W if sparse.issparse(W) else desired.flat(W, "W", truth_values=True)
    W = W.reshape((-1, 1)) if W.ndim == 1 else W
    if W.ndim != 2 or W.shape[0] != desired.size:
        raise ValueError(
            f"W holds a functional over the desired layout in every column, ({desired.size}, K): got {np.shape(W)}"
        )
    weights = sparse.csc_array(in_floats(W))
    weights.data = real_array(weights.data, "W", truth_values=True)
    if not np.isfinite(weights.data).all():
        raise ValueError("W holds NaN or infinite weights: give finite numbers")
    refuse_large(weights.data, "W", LARGEST_WEIGHT)
    return weights


def finite_weights(V: Float) -> None:
    """Refuse columns over the desired layout that hold NaN or infinite values."""
    if not np.isfinite(V).all():
        raise ValueError("the vector over the desired layout holds NaN or infinite values: give finite numbers")
