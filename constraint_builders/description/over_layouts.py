"""Linear operators whose vectors are cells of layouts."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout


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
        return self._linear.matvec(x)

    def _matmat(self, X: Float) -> Float:
        return self._linear.matmat(X)

    def _rmatvec(self, x: Float) -> Float:
        return self._linear.rmatvec(x)

    def _rmatmat(self, X: Float) -> Float:
        return self._linear.rmatmat(X)


def _laid_out(layout: Layout, x: Any) -> Any:
    """A vector, or several in columns, by the labels that it may have; operators, numbers and sparse arrays as is."""
    if type(x) is np.ndarray or isinstance(x, LinearOperator) or np.isscalar(x) or sparse.issparse(x):
        return x
    return layout.flat(x, "the vector", truth_values=True)
