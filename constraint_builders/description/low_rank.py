"""Noise that is independent from cell to cell but for a few sources that many cells share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator

from constraint_builders.description.described import Compared
from constraint_builders.description.reals import LARGEST, checked_variances, real_array, refuse_large


class LowRankPlusDiagonal(Compared, LinearOperator):
    """The covariance D + U U' of noise e + U g, with e independent of variances D and g of k independent units.

    Every exact solver takes it, at the cost of k more columns when it is prepared.

    Parameters
    ----------
    diagonal : array_like, (n,)
        Variances D of the noise that is each cell's own: 0 where a cell is known exactly, ``inf`` where it was not
        measured.
    factor : array_like, (n, k)
        U: how far one standard deviation of every shared source moves each cell. It is kept dense.

    Attributes
    ----------
    diagonal : ndarray, (n,)
    factor : ndarray, (n, k)
        Zero where nothing was measured.
    variances : ndarray, (n,)
        Diagonal of D + U U'.

    Raises
    ------
    ValueError
        If a shape does not fit, a value is NaN, negative or infinite where it cannot be, or a source moves a cell that
        has no noise of its own.

    Notes
    -----
    As an operator it is (n, n), and cells that were not measured count as 0.

    Examples
    --------
    >>> covariance = LowRankPlusDiagonal([1.0, 2.0, 4.0], [[1.0], [1.0], [0.0]])
    >>> covariance @ np.eye(3)
    array([[2., 1., 0.],
           [1., 3., 0.],
           [0., 0., 4.]])
    """

    _same_in, _hashed_by = ("diagonal", "factor"), ("factor",)

    def __init__(self, diagonal: ArrayLike, factor: ArrayLike) -> None:
        self.diagonal = _checked_diagonal(diagonal)
        self.factor = _checked_factor(factor, self.diagonal)
        super().__init__(np.dtype(np.float64), (self.diagonal.size, self.diagonal.size))
        self.variances = self.diagonal + np.einsum("ij,ij->i", self.factor, self.factor)
        self._own = np.where(np.isinf(self.diagonal), 0.0, self.diagonal)[:, None]

    def _matmat(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._own * X + self.factor @ (self.factor.T @ X)

    def _adjoint(self) -> LowRankPlusDiagonal:
        return self

    def solve(self, V: ArrayLike) -> NDArray[np.float64]:
        """The inverse of D + U U' times V, by Woodbury's identity; cells that were not measured give 0.

        Parameters
        ----------
        V : array_like, (n,) or (n, K)

        Returns
        -------
        ndarray, the shape of V

        Raises
        ------
        ValueError
            If a cell is known exactly.
        """
        if not self.diagonal.all():
            cell = int(np.flatnonzero(self.diagonal == 0)[0])
            raise ValueError(f"cell {cell} is known exactly, so the covariance has no inverse: leave exact cells out")
        weighted = self.factor / self.diagonal[:, None]
        capacitance = np.eye(self.factor.shape[1]) + self.factor.T @ weighted
        V = real_array(V, "the vector", truth_values=True)
        own = (V.T / self.diagonal).T
        return own - weighted @ cho_solve(cho_factor(capacitance), weighted.T @ V)


def _checked_diagonal(diagonal: ArrayLike) -> NDArray[np.float64]:
    """The diagonal as a vector of variances, (n,); `ValueError` for what is none."""
    values = checked_variances(diagonal, "diagonal of the covariance")
    if values.ndim != 1:
        raise ValueError(f"diagonal of the covariance must have shape (n,): got {values.shape}")
    values.flags.writeable = False
    return values


def _checked_factor(factor: ArrayLike, diagonal: NDArray[np.float64]) -> NDArray[np.float64]:
    """The factor, (n, k), without weight on unmeasured cells; `ValueError` for what is none."""
    U = np.array(real_array(factor, "factor of the covariance", truth_values=True))
    if U.ndim != 2 or U.shape[0] != diagonal.size:
        raise ValueError(f"factor of the covariance must have shape ({diagonal.size}, k): got {U.shape}")
    U[np.isinf(diagonal)] = 0
    if not np.isfinite(U).all():
        raise ValueError("factor of the covariance holds NaN or infinite entries: give finite numbers")
    refuse_large(U, "factor of the covariance", math.sqrt(LARGEST))
    shared = np.flatnonzero((diagonal == 0) & U.any(axis=1))
    if shared.size:
        raise ValueError(
            f"the factor moves cell {shared[0]}, which has no noise of its own: give it a diagonal above 0, or a row "
            "of zeros if it is known exactly"
        )
    U.flags.writeable = False
    return U
