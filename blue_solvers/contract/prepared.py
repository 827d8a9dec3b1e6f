"""A solver made ready for one problem, and what it tells of its work; also for other cells, and for shared noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import LinearOperator

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory

NOTHING = 1e-18  # of the least that a figure may vary by: less is rounding, of a figure that is known exactly
VARIANCE_BLOCK = 64  # columns of the adjoint held at once by the default `Prepared.variances`
ADJOINT_COPIES = 3  # of the weights over the observed layout


class TableVariances(Protocol):
    """Variances of the cells of desired tables, some geounits at a time."""

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table, by its number among the desired ones, at some of its geounits, (rows, cells), a new array."""


def without_rounding(variances: Float, nothing: float) -> Float:
    """Variances, (m,), used up, of which those below `nothing` are 0."""
    variances[variances < nothing] = 0.0
    return variances


def with_exact_zeros(covariance: Float, W: sparse.csc_array, nothing: float) -> Float:
    """Covariance of functionals, used up, with 0 for those that are known exactly.

    Parameters
    ----------
    covariance : ndarray, (K, K)
    W : csc_array, (m, K)
        Their weights over the desired layout: their variance is judged in units of the least of them, squared.
    nothing : float
        What a variance of a desired cell is at least that is not rounding.

    Returns
    -------
    ndarray, (K, K)
    """
    sizes, least = abs(W.data), np.full(W.shape[1], np.inf)
    np.minimum.at(least, np.repeat(np.arange(W.shape[1]), np.diff(W.indptr)), np.where(sizes > 0, sizes, np.inf))
    known = covariance.diagonal() < nothing * np.where(np.isfinite(least), least, 0.0) ** 2
    covariance[known] = covariance[:, known] = 0.0
    return covariance


@dataclass(frozen=True)
class LaidOutVariances:
    """Those of a vector over the desired layout, (m,)."""

    problem: Problem
    variances: Float

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table at some of its geounits, (rows, cells)."""
        cells = self.variances[self.problem.desired.block(table)]
        return np.array(cells.reshape(-1, self.problem.desired_tables[table].size)[rows])


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
    has_exact_zeros : bool
        Whether variances of what is known exactly come out as 0, without rounding.
    """

    problem: Problem
    offset: Float
    info: Info
    has_exact_zeros: bool = False

    @abstractmethod
    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y, from (n, K) over the observed layout to (m, K) over the desired one, and how it was computed.

        Parameters
        ----------
        Y : ndarray, (n, K)

        Returns
        -------
        ndarray, (m, K)
        Info
        """

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        """As `apply`, with the violation, where it is known.

        Parameters
        ----------
        Y : ndarray, (n, K)

        Returns
        -------
        ndarray, (m, K)
        Info
        """
        return self.apply(Y)

    def violation(self, Y: Float) -> float | None:
        """Largest absolute entry of A x - b for the estimate over the observed layout, where it is known.

        Parameters
        ----------
        Y : ndarray, (n, K)

        Returns
        -------
        float or None
            In units of the counts.
        """
        return self.apply_checked(Y)[1].violation

    @abstractmethod
    def adjoint(self, V: Float) -> Float:
        """P' V, from (m, K) to (n, K).

        Parameters
        ----------
        V : ndarray, (m, K)

        Returns
        -------
        ndarray, (n, K)
        """

    def variances(self) -> Float:
        """Diagonal of P Sigma P', (m,), one adjoint column for every cell.

        Returns
        -------
        ndarray, (m,)
            In squared units of the counts.
        """
        size = self.problem.desired.size
        return variances_from_weights(self.problem.noise_covariance, np.arange(size), size, self.adjoint)

    def variances_by_table(self) -> TableVariances:
        """The same table by table, only of problems with tables.

        Returns
        -------
        TableVariances
        """
        return LaidOutVariances(self.problem, self.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        """W' P Sigma P' W, (K, K), of functionals (m, K) over the desired layout, one adjoint column for each.

        Parameters
        ----------
        W : csc_array, (m, K)

        Returns
        -------
        ndarray, (K, K)
            In squared units of the counts, where weights have none.
        """
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


class InOtherLayout(Prepared):
    """An estimate read off that of a problem which has all of its cells; NaN in those that are not estimable.

    Parameters
    ----------
    problem : Problem
    prepared : Prepared
        Of the problem that has them, all of them determined.
    observed, desired : ndarray of int, (n,) and (m,)
        Where they are in its layouts.
    """

    def __init__(self, problem: Problem, prepared: Prepared, observed: Index, desired: Index) -> None:
        self.problem, self.info = problem, prepared.info
        self._prepared, self._observed, self._desired = prepared, observed, desired
        self._lost = np.flatnonzero(problem.lost)
        self.offset = prepared.offset[desired]
        self.offset[self._lost] = 0.0

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply(self._given(Y)))

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply_checked(self._given(Y)))

    def _told(self, X: Float, info: Info) -> tuple[Float, Info]:
        """An estimate of the other layout, (M, K), as one of this, (m, K), and what is told of it."""
        return self._wanted(X), replace(info, reason=self.info.reason)

    def _given(self, Y: Float) -> Float:
        """Columns (n, K) laid out as the other layout has them, (N, K)."""
        return _spread(Y, self._observed, self._prepared.problem.observed.size)

    def _wanted(self, X: Float) -> Float:
        """Cells from the other layout, (M,) or (M, K), with NaN in those that are not estimable."""
        X = X.take(self._desired, axis=0)
        X[self._lost] = np.nan
        return X

    def adjoint(self, V: Float) -> Float:
        known = np.array(V)
        known[self._lost] = 0
        pulls = _spread(known, self._desired, self._prepared.problem.desired.size)
        weights = self._prepared.adjoint(pulls).take(self._observed, axis=0)
        weights[self.problem.assumed] = 0  # up to rounding already
        weights[:, V[self._lost].any(axis=0)] = np.nan
        return weights

    def variances(self) -> Float:
        return self._wanted(self._prepared.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        lost, shape = self.problem.lost, (self._prepared.problem.desired.size, W.shape[1])
        known = np.where(lost[W.indices], 0.0, W.data), self._desired[W.indices], W.indptr
        covariance = np.array(self._prepared.functional_covariance(sparse.csc_array(known, shape=shape)))
        unknown = abs(W).T @ lost > 0
        covariance[unknown] = covariance[:, unknown] = np.nan
        return covariance


def _spread(X: Float, places: Index, size: int) -> Float:
    """Cells, (n, K), at their places among more, 0 elsewhere."""
    result = np.zeros((size, X.shape[1]))
    result[places] = X
    return result


class SharedNoiseEstimate(Prepared):
    """Noise that many cells share, a few sources of it, on top of any exact estimate that does without.

    With noise e + U g, e independent of variances D and g of k independent units, let P be the estimate under D alone
    and E = U - P U over the observed layout, what it leaves of the k sources. Given g the estimate is P (y - U g), and
    the sources that make the fit best are

        g = (I + E' D^-1 E)^-1 E' D^-1 (y - P y - P.offset),    Cov(x) = P D P' + (P U) (I + E' D^-1 E)^-1 (P U)'.

    So the estimate stays as exact as that under D, since residuals are what it gives best, and as cheap: k columns are
    added to each apply, and the estimate of the observed cells where others are wanted.

    Parameters
    ----------
    problem : Problem
        With low-rank correlated noise.
    desired, observed : Prepared
        The BLUE under D of the desired and of the observed cells.
    """

    def __init__(self, problem: Problem, desired: Prepared, observed: Prepared) -> None:
        self.problem = problem
        self._desired, self._observed = desired, observed
        D, U = problem.noise.own.variances, problem.noise.sources
        weights = np.divide(1.0, D, out=np.zeros_like(D), where=D > 0)[:, None]
        moved = desired.apply(U)[0]
        E = U - (moved if observed is desired else observed.apply(U)[0])
        units = np.eye(U.shape[1])
        # of I + E' D^-1 E without its square, which loses I beside sources that are large
        root = np.linalg.qr(np.vstack([np.sqrt(weights) * E, units]), mode="r")
        inverse = solve_triangular(root, units)
        # what residuals tell of the sources, and what these make of measurements and of the estimate, (..., k)
        self._told, self._sources, self._moved = (X @ inverse for X in (weights * E, U, moved))
        self.offset = desired.offset - self._change(-observed.offset)
        self.info = self._corrected(desired.info)

    def _change(self, residuals: Float) -> Float:
        """What residuals, (n,) or (n, K), change of the desired cells by way of the sources, (m,) or (m, K)."""
        return self._moved @ (self._told.T @ residuals)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._desired.apply(Y)
        estimate = X if self._observed is self._desired else self._observed.apply(Y)[0]
        return X - self._change(Y - estimate), self._corrected(info)

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, info = self.apply(Y)
        shared = self._sources @ (self._told.T @ (Y - self._observed.apply(Y)[0]))
        return X, replace(info, violation=self._desired.violation(Y - shared))

    def adjoint(self, V: Float) -> Float:
        return self._desired.adjoint(V) - self._pulled @ (self._moved.T @ V)

    @cached_property
    def _pulled(self) -> Float:
        """(I - P)' of what residuals tell of sources, (n, k)."""
        return self._told - self._observed.adjoint(self._told)

    def variances(self) -> Float:
        own, shared = self._desired.variances(), np.einsum("ij,ij->i", self._moved, self._moved)
        return np.where(own > 0, own + shared, 0.0)  # what is exact depends on exact cells alone

    def _corrected(self, own: Info) -> Info:
        sources = self._told.shape[1]
        reason = f"{own.reason}; corrected exactly for the noise of {sources} shared source{'s'[: sources != 1]}"
        return replace(own, reason=reason, error_bound=None)  # the sources have errors of their own
