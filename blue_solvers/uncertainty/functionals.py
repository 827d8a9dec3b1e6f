"""Linear functionals of the estimate: sums, differences and single counts, with the covariance between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.operator import BlueOperator, blue
from blue_solvers.over_layouts import read_weights
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.memory import require_memory


@dataclass(frozen=True)
class Functionals:
    """K linear functionals w'x of an estimate x.

    Attributes
    ----------
    estimate : ndarray, (K,)
    covariance : ndarray, (K, K)
        W' P Sigma P' W, symmetric, in squared units of the functionals.
    """

    estimate: Float
    covariance: Float

    @cached_property
    def variances(self) -> Float:
        """Variance of every functional, (K,)."""
        return self.covariance.diagonal().copy()

    @cached_property
    def std_errors(self) -> Float:
        """Standard deviation of every functional, (K,)."""
        return np.sqrt(np.maximum(self.variances, 0.0))  # 0 may come out as -1e-20


def functionals(P: BlueOperator | Problem, y: ArrayLike, W: Any) -> Functionals:
    """Estimate linear functionals, and the covariance between them, by one adjoint apply for each.

    Parameters
    ----------
    P : BlueOperator or Problem
        Any solver's operator: the covariance is its own, P Sigma P', whether it is the BLUE or not.
    y : array_like, (n,)
        Noisy counts over the observed layout.
    W : array_like or sparse array, (m, K) or (m,)
        Weights over the desired layout, a functional in every column; `cell_weights` makes those of single cells.

    Returns
    -------
    Functionals

    Raises
    ------
    ValueError
        If a shape does not fit, a value is not finite, or values known exactly contradict one another.
    MemoryError
        If the weights over the observed layout, 24 n K bytes, would not fit.

    Examples
    --------
    >>> from constraint_builders import gallery
    >>> found = functionals(gallery.toy(), [6, 9, 17, 29], [[1, 0], [-1, 0], [0, 0], [0, 1]])
    >>> found.estimate, found.variances
    (array([-3.  , 29.75]), array([2.  , 0.75]))
    """
    P = as_operator(P)
    W = read_weights(P.problem.desired, W)
    return Functionals(W.T @ estimate(P, y), P.functional_covariance(W))


def observed_weights(P: BlueOperator, W: sparse.csc_array) -> Float:
    """P' W, (n, K): what every noisy count contributes to every functional."""
    return P.T @ dense_weights(P, W)


def dense_weights(P: BlueOperator, W: sparse.csc_array) -> Float:
    """W, (m, K), dense; `MemoryError` if it would not fit over the observed layout."""
    needed = 3.0 * 8 * P.shape[1] * W.shape[1]
    require_memory(needed, f"the weights of {W.shape[1]:,} functionals", "ask for fewer at a time")
    return W.toarray()


def cell_weights(P: BlueOperator | Problem, cells: Sequence[int] | ArrayLike) -> sparse.csc_array:
    """Functionals that are single cells of the desired layout, (m, K).

    Parameters
    ----------
    P : BlueOperator or Problem
    cells : sequence of int, (K,)
        Positions in the desired layout, ``problem.desired.slice(name)`` for instance finds a table's.

    Returns
    -------
    csc_array, (m, K)

    Raises
    ------
    ValueError
        If a position lies outside the layout, or they are no list of positions.
    """
    desired = (P if isinstance(P, Problem) else P.problem).desired
    positions = desired.positions(cells)
    count = positions.size
    return sparse.csc_array((np.ones(count), (positions, np.arange(count))), shape=(desired.size, count))


def estimate(P: BlueOperator, y: ArrayLike) -> Float:
    """P y + offset, (m,) or (m, K); `ValueError` for values that no table can hold."""
    values = P.problem.observed.flat(y, "y")
    linear = P.dot(values)
    P.problem.check_vector(values)
    return linear + (P.offset if linear.ndim == 1 else P.offset[:, None])


def as_operator(P: BlueOperator | Problem) -> BlueOperator:
    """The operator itself, or that of a problem by the solver "auto"."""
    return blue(P) if isinstance(P, Problem) else P
