"""A solver made ready for one problem, and what it tells of its work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.contract.table_variances import LaidOutVariances, TableVariances
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory

VARIANCE_BLOCK = 64  # columns of the adjoint held at once by the default `Prepared.variances`
ADJOINT_COPIES = 3  # of the weights over the observed layout


@dataclass(frozen=True)
class Info:
    """How an estimate is computed: what is known beforehand, and what its computation told; of many columns the worst.

    Attributes
    ----------
    solver : str
        Name of the solver, and of the library that did the work where there is a choice.
    exact : bool
        Whether the estimate is the BLUE, up to rounding or the stated tolerance, or a heuristic.
    reason : str
        Why this solver was chosen, and what the answer is when it is not the BLUE.
    iterations : int
        Iterations of an iterative solver, 0 otherwise.
    residual : float
        Size of A x - b relative to that of A y - b, each equation in units of its own standard deviation.
    violation : float or None
        Largest absolute entry of A x - b for the estimate over the observed layout; None where nobody has looked.
    seconds : float
        Time of the apply.
    error_bound : float or None
        Of an iterative solver that has one: what the error of every cell, and of every linear combination of cells, is
        at most, in units of its own standard error.
    """

    solver: str
    exact: bool
    reason: str
    iterations: int = 0
    residual: float = 0.0
    violation: float | None = None
    seconds: float = 0.0
    error_bound: float | None = None


class Prepared(ABC):
    """A solver made ready for one problem: the affine map y -> P y + offset.

    Laws: `apply` is linear; `adjoint` is its transpose; where `info.exact`, P is the matrix of the BLUE. Columns of
    cells that were not measured are zero. An apply returns its report and leaves nothing behind, so that threads may
    share what is prepared.

    Attributes
    ----------
    problem : Problem
    offset : ndarray, (m,)
    info : Info
        What is known before any apply.
    """

    problem: Problem
    offset: Float
    info: Info

    @abstractmethod
    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y, from (n, K) over the observed layout to (m, K) over the desired one, and how it was computed."""

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        """As `apply`, with the violation, where it is known."""
        return self.apply(Y)

    def violation(self, Y: Float) -> float | None:
        """Largest absolute entry of A x - b for the estimate over the observed layout, where it is known."""
        return self.apply_checked(Y)[1].violation

    @abstractmethod
    def adjoint(self, V: Float) -> Float:
        """P' V, from (m, K) to (n, K)."""

    def variances(self) -> Float:
        """Diagonal of P Sigma P', (m,), one adjoint column for every cell."""
        size = self.problem.desired.size
        return variances_from_weights(self.problem.noise_covariance, np.arange(size), size, self.adjoint)

    def variances_by_table(self) -> TableVariances:
        """The same table by table, only of problems with tables."""
        return LaidOutVariances(self.problem, self.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        """W' P Sigma P' W, (K, K), of functionals (m, K) over the desired layout, one adjoint column for each."""
        needed = ADJOINT_COPIES * 8.0 * self.problem.observed.size * W.shape[1]
        require_memory(needed, f"the weights of {W.shape[1]:,} functionals", "ask for fewer at a time")
        weights = self.adjoint(W.toarray())
        covariance = weights.T @ (self.problem.noise_covariance @ weights)
        return (covariance + covariance.T) / 2


def variances_from_weights(
    Sigma: LinearOperator | sparse.sparray, cells: Index, size: int, adjoint: Callable[[Float], Float]
) -> Float:
    """Some entries of the diagonal of P Sigma P', (k,), without a difference that could cancel.

    Parameters
    ----------
    Sigma : (n, n)
    cells : ndarray of int, (k,)
        Which of the rows of P, of which there are `size`.
    size : int
    adjoint : callable
        The weights P' V of some unit columns V at once, (size, K) to (n, K).
    """
    variances = np.empty(cells.size)
    for start in range(0, cells.size, VARIANCE_BLOCK):
        own = cells[start : start + VARIANCE_BLOCK]
        units = np.zeros((size, own.size))
        units[own, np.arange(own.size)] = 1
        weights = adjoint(units)
        variances[start : start + own.size] = np.einsum("ij,ij->j", weights, Sigma @ weights)
    return variances
