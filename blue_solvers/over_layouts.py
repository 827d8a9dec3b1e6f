"""Operators between layouts, and the vectors that they take: read by labels, in units that do not overflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.layout import Layout
from constraint_builders.description.reals import (
    LARGEST_VALUE,
    LARGEST_WEIGHT,
    in_floats,
    real_array,
    refuse_large,
    refuse_masked,
)

FIRST_ROWS = 64  # that mostly show whether a column is out of range


class OverLayouts(LinearOperator):
    """A real operator, (cells of `rows`, cells of `columns`), whose vectors are read as `Layout.flat` reads them.

    Parameters
    ----------
    rows, columns : Layout
    """

    def __init__(self, rows: Layout, columns: Layout) -> None:
        super().__init__(np.dtype(np.float64), (rows.size, columns.size))
        self._rows, self._columns = rows, columns

    def dot(self, x: Any) -> Any:
        """Matrix-matrix or matrix-vector product; also composes with another operator."""
        return super().dot(_laid_out(self._columns, x))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        """Refuse, by a `TypeError`, what takes the operator for an array, as pandas does of ``series @ P``."""
        raise TypeError("the operator is no array: write P.T @ v in place of v @ P, or v.to_numpy() @ P")

    def matvec(self, x: Any) -> Any:
        """Times a vector."""
        return super().matvec(_laid_out(self._columns, x))

    def matmat(self, X: Any) -> Any:
        """Times several vectors, in columns."""
        return super().matmat(_laid_out(self._columns, X))

    def rmatvec(self, x: Any) -> Any:
        """The transpose times a vector."""
        return super().rmatvec(_laid_out(self._rows, x))

    def rmatmat(self, X: Any) -> Any:
        """The transpose times several vectors, in columns."""
        return super().rmatmat(_laid_out(self._rows, X))

    def _adjoint(self) -> LinearOperator:
        return ProductOverLayouts(super()._adjoint(), self._columns, self._rows)

    def _transpose(self) -> LinearOperator:  # of real numbers: scipy's own would copy every vector twice
        return self._adjoint()


class ProductOverLayouts(OverLayouts):
    """An operator of any kind between cells of layouts.

    Parameters
    ----------
    linear : LinearOperator
    rows, columns : Layout
    """

    def __init__(self, linear: LinearOperator, rows: Layout, columns: Layout) -> None:
        super().__init__(rows, columns)
        self._linear = linear

    def _matvec(self, x: Float) -> Float:
        """The product with one vector, (n,) or (n, 1)."""
        return self._linear.matvec(x)

    def _matmat(self, X: Float) -> Float:
        return self._linear.matmat(X)

    def _rmatvec(self, x: Float) -> Float:
        return self._linear.rmatvec(x)

    def _rmatmat(self, X: Float) -> Float:
        return self._linear.rmatmat(X)


class CovarianceOverLayout(OverLayouts):
    """A covariance of cells, with NaN in those that nothing determines, and in columns that weigh them.

    Parameters
    ----------
    linear : LinearOperator
    layout : Layout
    undetermined : ndarray of bool, (m,), or None
    """

    def __init__(self, linear: LinearOperator, layout: Layout, undetermined: Flags | None) -> None:
        super().__init__(layout, layout)
        self._linear, self._undetermined = linear, undetermined

    def _matmat(self, X: Float) -> Float:
        if self._undetermined is None:
            return self._linear.matmat(X)
        unknown = X[self._undetermined].any(axis=0)
        Y = self._linear.matmat(np.where(unknown, 0.0, X))
        Y[self._undetermined] = np.nan
        Y[:, unknown] = np.nan
        return Y

    def _adjoint(self) -> LinearOperator:
        return self


def _laid_out(layout: Layout, x: Any) -> Any:
    """A vector, or several in columns, by the labels that it may have; operators, numbers and sparse arrays as is."""
    if type(x) is np.ndarray or isinstance(x, LinearOperator) or np.isscalar(x) or sparse.issparse(x):
        return x
    return layout.flat(x, "the vector", truth_values=True)


def rescaled(linear: Callable[[Float], Float], X: Float, require_finite: Callable[[Float], None]) -> Float:
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
    """Whether one look at all cells, (n, K), together, and at the first of every column, shows finite ones in range."""
    squares = float(np.vdot(X, X))
    if not squares <= LARGEST_VALUE**2:
        return False
    if X.shape[1] == 1:
        return squares >= X.size / LARGEST_VALUE**2
    return bool((abs(X[:FIRST_ROWS]).max(axis=0) >= 1 / LARGEST_VALUE).all())


def keeping_the_last(work: Callable[[Float], Float]) -> Callable[[Float], Float]:
    """A function of vectors, (n,), that works out nothing again for the vector that it was last called with."""
    last = list[Float]()

    def result(x: Float) -> Float:
        """Of a vector, (n,)."""
        if not last or last[0] is not x:
            last[:] = x, work(x)
        return last[1]

    return result


def real_columns(X: Any) -> Float:
    """Columns of real numbers, contiguous; truth values count as 0 and 1."""
    if type(X) is np.ndarray and X.dtype == np.float64:
        return np.ascontiguousarray(X)
    require_real(X)
    return np.ascontiguousarray(real_array(X, "the vector", truth_values=True))


def real_vector(observed: Layout, x: Any, truth_values: bool = True) -> Float:
    """An array over the observed layout; what has labels is laid out by them where they name nodes, or refused."""
    require_real(x)
    return observed.flat(x, "the vector over the observed layout", truth_values)


def real_vectors(observed: Layout, X: Any) -> Float:
    """As `real_vector`, and of shape (n,) or (n, K)."""
    X = real_vector(observed, X)
    if X.ndim not in (1, 2) or X.shape[0] != observed.size:
        raise ValueError(
            f"the estimate takes vectors of shape ({observed.size},) or ({observed.size}, K) over the observed layout: "
            f"got {X.shape}; problem.vector makes one from tables"
        )
    return X


def require_real(X: Any) -> None:
    """Refuse complex values, by a `TypeError` as scipy's operators do."""
    refuse_masked(X, "the vector")
    if not isinstance(X, Mapping) and np.iscomplexobj(X):
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
    """Refuse columns over the desired layout, (m, K), that hold NaN or infinite values."""
    if not np.isfinite(V).all():
        raise ValueError("the vector over the desired layout holds NaN or infinite values: give finite numbers")
