"""The estimate as a linear operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.about import logger
from blue_solvers.contract import Float, Info, Prepared, Solver, UnsupportedProblemError
from blue_solvers.name_order import NameOrder
from blue_solvers.solvers import SOLVERS, SolverName
from blue_solvers.solvers.shared_noise import SharedNoise
from blue_solvers.undetermined import Undetermined
from constraint_builders import LowRankPlusDiagonal, Problem
from constraint_builders.description.labelled import has_row_labels, refuse_labels
from constraint_builders.description.reals import real_array, refuse_masked

LARGEST = 1e100  # of values whose squares, in units of any noise, are numbers


def blue(problem: Problem, solver: SolverName | Solver = "auto") -> BlueOperator:
    """The best linear unbiased estimate of a problem, as an operator.

    Parameters
    ----------
    problem : Problem
    solver : str or Solver
        A name of `blue_solvers.SOLVERS`, or a configured solver such as ``ConjugateGradient(rtol=1e-12)``.

    Returns
    -------
    BlueOperator
        ``x = P @ y + P.offset``.

    Raises
    ------
    ValueError
        If there is no solver of that name.
    UnsupportedProblemError
        If the solver cannot take the problem, with the reason.
    MemoryError
        If what it needs would not fit, with the bytes.

    Examples
    --------
    >>> from constraint_builders import gallery
    >>> problem = gallery.toy()
    >>> P = blue(problem)
    >>> P @ problem.vector({"B": [6, 9, 17], "total": 29})
    array([ 5.25,  8.25, 16.25, 29.75])
    """
    if not isinstance(problem, Problem):
        raise TypeError(
            f"blue takes a Problem, which says what was measured and how precisely: got {type(problem).__name__}; "
            "blue(problem) @ problem.vector(tables) is the estimate, Problem(schema, {'sex': 2.0}) or "
            "Problem.from_matrix(A, variances) describe one"
        )
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise ValueError(f"no solver {solver!r}: there are {', '.join(repr(name) for name in SOLVERS)}")
        solver = SOLVERS[solver]()
    if not isinstance(solver, Solver):
        raise TypeError(f"solver must be a name or a configured Solver: got {solver!r}")
    shared = SharedNoise(solver) if isinstance(problem.covariance, LowRankPlusDiagonal) else solver
    engine = Undetermined(NameOrder(shared))
    reason = engine.supports(problem)
    if reason is not None:
        raise UnsupportedProblemError(f"solver {solver.name!r} cannot take this problem: {reason}")
    start = time.perf_counter()
    P = BlueOperator(problem, solver, engine.prepare(problem))
    logger.info("%s prepared in %.3g s for %r: %s", solver.name, time.perf_counter() - start, problem, P.info.reason)
    return P


class BlueOperator(LinearOperator):
    """The linear part P of an estimate, (desired cells, observed cells); made by `blue`.

    Attributes
    ----------
    problem : Problem
    solver : Solver
        As configured; pickling keeps it and the problem without its truth, and prepares again when loaded.
    offset : ndarray, (m,)
        Constant part of the estimate: zero unless the equations have a right-hand side.
    """

    def __init__(self, problem: Problem, solver: Solver, prepared: Prepared) -> None:
        super().__init__(np.dtype(np.float64), (problem.desired.size, problem.observed.size))
        self.problem = problem
        self.solver = solver
        self._prepared = prepared
        self._seconds = 0.0
        self.offset = prepared.offset
        self.offset.flags.writeable = False

    def _matmat(self, X: Float) -> Float:
        Y = self._readable(X)
        if not Y.shape[1]:
            return np.zeros((self.shape[0], 0))
        start = time.perf_counter()
        result = _in_range(self._prepared.apply, Y)
        self._seconds = time.perf_counter() - start
        return result

    def _rmatmat(self, X: Float) -> Float:
        V = _finite(_real(X), "the vector over the desired layout")
        return _in_range(self._prepared.adjoint, V) if V.shape[1] else np.zeros((self.shape[1], 0))

    def _readable(self, X: Float) -> Float:
        """A finite float copy where needed: cells that were not measured may hold anything, their columns are zero."""
        Y = _real(X)
        if self.problem.unmeasured.any():
            Y = Y.copy()
            Y[self.problem.unmeasured] = 0
        if not _all_finite(Y):
            position = int(np.flatnonzero(~np.isfinite(Y).all(axis=1))[0])
            where = self.problem.observed.describe(position)
            raise ValueError(f"{where} is {Y[position][~np.isfinite(Y[position])][0]}: give a finite number")
        return Y

    def dot(self, x: Any) -> Any:
        """Matrix-matrix or matrix-vector product; also composes with another operator."""
        if isinstance(x, LinearOperator) or np.isscalar(x):
            return super().dot(x)
        if isinstance(x, Mapping):
            raise TypeError("the estimate takes vectors: write P @ problem.vector(tables)")
        if sparse.issparse(x):
            raise TypeError(
                "the estimate takes dense vectors, and makes dense ones: write P @ x.toarray(), some columns at a time"
            )
        what = "the vector over the observed layout"
        refuse_masked(x, what)
        if has_row_labels(x):
            if self.problem.schema is not None:
                refuse_labels(x, what)
            x = self.problem.observed.vector({"x": x})
        x = np.asarray(x)
        if x.ndim not in (1, 2) or x.shape[0] != self.shape[1]:
            raise ValueError(
                f"the estimate takes vectors of shape ({self.shape[1]},) or ({self.shape[1]}, K) over the observed "
                f"layout: got {x.shape}; problem.vector makes one from tables"
            )
        return self.matvec(x) if x.ndim == 1 else self.matmat(x)

    @property
    def info(self) -> Info:
        """How the latest apply went."""
        return replace(self._prepared.info, seconds=self._seconds)

    @property
    def covariance(self) -> LinearOperator:
        """Covariance P Sigma P' of the estimate, (m, m): columns by applying it to unit vectors."""
        return self @ self.problem.noise_covariance @ self.T

    def variances(self) -> Float:
        """Exact variance of every desired cell, (m,), in squared units of the counts.

        Returns
        -------
        ndarray, (m,)
            Diagonal of `covariance`: closed form where the solver has one, otherwise column by column.
        """
        return self._prepared.variances()

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        """Covariance W' P Sigma P' W of linear functionals of the estimate, (K, K).

        Parameters
        ----------
        W : csc_array, (m, K)
            A functional over the desired layout in every column.

        Returns
        -------
        ndarray, (K, K)
            By one pass over the geounits that are weighed and their ancestors where the solver has it, otherwise by one
            adjoint apply for each functional.
        """
        return self._prepared.functional_covariance(W)

    def __reduce__(self) -> tuple:
        return blue, (self.problem.replace(truth=None), self.solver)  # the truth is secret, no part of the estimate

    def __repr__(self) -> str:
        return f"<{self.shape[0]}x{self.shape[1]} BlueOperator by {self.solver.name}>"


def _in_range(linear: Callable[[Float], Float], X: Float) -> Float:
    """A linear map of columns so small or large that their squares would not be numbers: in units of their own."""
    sizes = abs(X).max(axis=0)
    if not ((sizes > LARGEST) | ((sizes < 1 / LARGEST) & (sizes > 0))).any():
        return linear(X)
    exponents = np.where((sizes > LARGEST) | (sizes < 1 / LARGEST), np.frexp(sizes)[1], 0)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(linear(np.ldexp(X, -exponents)), exponents)
    if not np.isfinite(result).all():
        raise OverflowError("the estimate is beyond what float64 holds: give values in larger units")
    return result


def _real(X: Any) -> Float:
    if np.iscomplexobj(X):
        raise TypeError("tables are real: got complex values")
    return np.ascontiguousarray(real_array(X, "the vector", truth_values=True))


def _all_finite(X: Float) -> bool:
    """A finite sum saves looking at every value."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()) or np.isfinite(X).all())


def _finite(X: Float, what: str) -> Float:
    if not _all_finite(X):
        raise ValueError(f"{what} holds NaN or infinite values: give finite numbers")
    return X
