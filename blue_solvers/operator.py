"""The estimate as a linear operator."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from blue_solvers.about import logger
from blue_solvers.contract import Info, Prepared, Solver, TableVariances, UnsupportedProblemError
from blue_solvers.contract.prepared import LaidOutVariances, with_exact_zeros, without_rounding
from blue_solvers.estimates import Estimate, Judge, bound_of, is_exact, proved, tabulated, where_measured
from blue_solvers.normal_equations.noisy_equations import least_variance
from blue_solvers.over_layouts import (
    CovarianceOverLayout,
    OverLayouts,
    finite_weights,
    keeping_the_last,
    read_weights,
    real_columns,
    real_vector,
    real_vectors,
    require_dense,
    rescaled,
)
from blue_solvers.solvers import SOLVERS, Auto, Dense, SolverName
from blue_solvers.verification.certificate import Certificate, Certifier
from blue_solvers.verification.weighed_noise import at_most, thread_time
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.vectors import refuse_disagreement, refuse_not_finite, refuse_unusable

ESTIMATES_A_PROOF = 10.0  # that a proof may take as long as, with preparing each
PROOF_SECONDS = 10.0  # that it may take where that is more
MOST_DENSE = 1_000  # cells up to which the dense solver is tried where another's answer is not proved


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
        If the solver cannot take the problem, with the reason that ``solver.supports(problem)`` gives.
    ConvergenceError
        If iterations to the constant part of the estimate do not come to an end.
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
            f"an estimate takes a Problem, what was measured and how precisely: got {type(problem).__name__}; "
            "blue(problem) @ problem.vector(tables) is the estimate, Problem(schema, {'sex': 2.0}) or "
            "Problem.from_matrix(A, variances) describe one"
        )
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise ValueError(f"no solver {solver!r}: there are {', '.join(repr(name) for name in SOLVERS)}")
        solver = SOLVERS[solver]()
    if not isinstance(solver, Solver):
        raise TypeError(f"solver must be a name or a configured Solver: got {solver!r}")
    start, processor = time.perf_counter(), thread_time()
    try:
        prepared = solver.prepare(problem)
    except UnsupportedProblemError as refusal:
        raise UnsupportedProblemError(f"solver {solver.name!r} cannot take this problem: {refusal}") from None
    P = BlueOperator(problem, solver, prepared)
    P._seconds = thread_time() - processor
    logger.info("%s prepared in %.3g s for %r: %s", solver.name, time.perf_counter() - start, problem, P.info.reason)
    return P


def estimate(problem: Problem, y: Any, solver: SolverName | Solver = "auto", certify: bool = True) -> Estimate:
    """The best linear unbiased estimate from one set of measurements.

    Parameters
    ----------
    problem : Problem
    y : array_like (n,) or mapping
        Over the observed layout, or table by table as `Problem.vector` takes them.
    solver : str or Solver
        As `blue` takes it.
    certify : bool
        Whether to prove, without any solver, how far the values are from the best ones, and to refine them where that
        leaves more than 1e-9 standard errors open, and more than rounding. ``info.exact`` then says there is a proof.

    Returns
    -------
    Estimate
        With values, tables, exact standard errors, intervals, certificate, and a test of the fit.

    Raises
    ------
    ValueError
        As `blue`; or if a measurement is missing or not finite, or values known exactly contradict one another.

    Examples
    --------
    >>> from constraint_builders import gallery
    >>> est = estimate(gallery.toy(), {"B": [6, 9, 17], "total": 29})
    >>> est.tables["B"]
    array([ 5.25,  8.25, 16.25])
    >>> est.std_errors.round(3)
    array([0.866, 0.866, 0.866, 0.866])
    """
    return blue(problem, solver).estimate(y, certify=certify)


class BlueOperator(OverLayouts):
    """The linear part P of an estimate, (desired cells, observed cells); made by `blue`.

    Attributes
    ----------
    problem : Problem
    solver : Solver
        As configured; pickling keeps it and the problem without its truth, and prepares again when loaded.
    offset : ndarray, (m,)
        Constant part of the estimate: what right-hand sides of equations add, less what the law of figures does.
    """

    def __init__(self, problem: Problem, solver: Solver, prepared: Prepared) -> None:
        super().__init__(problem.desired, problem.observed)
        self.problem = problem
        self.solver = solver
        self._prepared = prepared
        self.offset = prepared.offset
        self._require_finite = partial(refuse_not_finite, problem)
        self._seconds = 0.0  # of the processor, that preparing took
        if getattr(problem.noise.law, "mean", 0):  # that of figures which were published
            self.offset = self.offset - self @ problem.noise.published(np.zeros(self.shape[1]))
        self.offset.flags.writeable = False

    def _matmat(self, X: Float) -> Float:
        Y = self._readable(X)
        if not Y.shape[1]:
            return np.zeros((self.shape[0], 0))
        return rescaled(lambda columns: self._prepared.apply(columns)[0], Y, self._require_finite)

    def _rmatvec(self, x: Float) -> Float:  # scipy below 1.16 does not fall back on `_rmatmat`
        return self._rmatmat(np.reshape(x, (-1, 1)))[:, 0]

    def _rmatmat(self, X: Float) -> Float:
        V = real_columns(X)
        return rescaled(self._prepared.adjoint, V, finite_weights) if V.shape[1] else np.zeros((self.shape[1], 0))

    def _readable(self, X: Float) -> Float:
        """Measurements (n, K), copied where needed: those of unmeasured cells may be anything, and become 0."""
        Y = real_columns(X)
        if self.problem.has_unmeasured:
            Y = Y.copy()
            Y[self.problem.unmeasured] = 0
        return Y

    def dot(self, x: Any) -> Any:
        """Matrix-matrix or matrix-vector product; also composes with another operator."""
        if type(x) is not np.ndarray:
            if isinstance(x, LinearOperator) or np.isscalar(x):
                return super().dot(x)
            require_dense(x)
        x = real_vectors(self.problem.observed, x)
        return self._matmat(x[:, None])[:, 0] if x.ndim == 1 else self._matmat(x)

    def __matmul__(self, x: Any) -> Any:
        return self.dot(x) if type(x) is np.ndarray else super().__matmul__(x)

    @property
    def info(self) -> Info:
        """What is known before any estimate: the solver, whether it is exact, and why it was chosen."""
        return self._prepared.info

    def estimate(self, y: Any, certify: bool | None = None) -> Estimate:
        """The estimate from one set of measurements, with its errors and its proof.

        Parameters
        ----------
        y : array_like (n,) or mapping
            As `blue_solvers.estimate` takes it.
        certify : bool, optional
            Whether to prove the values while they are made; by default where the desired tables are the observed ones.

        Returns
        -------
        Estimate
        """
        y, start = self._measurements(y), time.perf_counter()
        if certify or (certify is None and self._is_over_observed):
            P = self.over_observed
            wanted = (lambda x: x) if P is self else keeping_the_last(partial(tabulated, self.problem))
            x, info, proof = P._proved(y, lambda x: self.certificate(y, wanted(x), x))
            values, observed = wanted(x), x if P is self else where_measured(self.problem, x)
            observed.flags.writeable = False
        else:
            values, info = self._reported(y)
            observed, proof = None, None
        values.flags.writeable = False
        return Estimate(self, y, values, replace(info, seconds=time.perf_counter() - start), proof, observed)

    def certificate(self, y: Float, values: Float, observed: Float | None = None) -> Certificate:
        """How far values over the desired layout are from the best ones at most, whoever made them.

        Parameters
        ----------
        y : array_like, (n,), less what the law of the noise adds on average
        values : array_like, (m,)
        observed : array_like, (n,), optional
            What belongs to these of the observed cells, by default this operator's own estimate of them, refined.

        Returns
        -------
        Certificate
        """
        y, values = self.problem.observed.flat(y, "y"), self.problem.desired.flat(values, "values")
        if self._is_over_observed:
            return self._certifier.certify(y, values)
        if observed is None:
            observed = self.over_observed.estimate(self.problem.noise.published(y)).values
        observed = self.problem.observed.flat(observed, "observed")
        assumed = self.problem.unmeasured & ~self.problem.determined.unmeasured  # each is its own estimate
        return self._certifier.closest(y, np.where(assumed, y, observed), values)

    @cached_property
    def _certifier(self) -> Certifier:
        return Certifier(self.problem.determined)

    def _proved(self, y: Float, judge: Judge) -> tuple[Float, Info, Certificate]:
        """The estimate, (n,), where desired tables are the observed ones: refined, with its report and certificate.

        Where refinement does not reach a proof, `auto` tries the dense solver on what is small enough. What then is not
        proved is not called exact. All of that takes as long as some estimates at most.
        """
        start = thread_time()
        x, info = self._reported(y)
        with at_most(max(ESTIMATES_A_PROOF * (self._seconds + thread_time() - start), PROOF_SECONDS)):
            x, certificate = proved(y, x, self.matvec, judge, self.problem.variances)
            if not is_exact(certificate) and self.solver == Auto() and self.problem.observed.size <= MOST_DENSE:
                with suppress(UnsupportedProblemError):
                    found, told, proof = blue(self.problem, Dense())._proved(y, judge)
                    if bound_of(proof) < bound_of(certificate):
                        x, info, certificate = found, replace(told, reason=f"{info.reason}, then {told.reason}"), proof
        reason = info.reason if is_exact(certificate) else f"{info.reason}; {certificate}"
        return x, replace(info, exact=is_exact(certificate), reason=reason, error_bound=certificate.bound), certificate

    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y with a report of how it went.

        Parameters
        ----------
        Y : ndarray, (n,) or (n, K)

        Returns
        -------
        X : ndarray, (m,) or (m, K)
            As ``P @ Y``, without the offset.
        info : Info
            Of the worst column.
        """
        start, Y = time.perf_counter(), real_vectors(self.problem.observed, Y)
        columns = Y.reshape(self.shape[1], -1) if Y.size else np.zeros((self.shape[1], 1))  # a report of something
        X, info = self._told(self._readable(columns), self._require_finite)
        return X[:, : Y.size].reshape(self.shape[0], *Y.shape[1:]), replace(info, seconds=time.perf_counter() - start)

    def _told(
        self, columns: Float, require_finite: Callable[[Float], None], checked: bool = False
    ) -> tuple[Float, Info]:
        """P times columns (n, K), and the report, with the violation where asked for, in the columns' own units."""
        reports: list[Info] = []

        def apply(own: Float) -> Float:
            X, info = (self._prepared.apply_checked if checked and own is columns else self._prepared.apply)(own)
            reports.append(info)
            return X

        return rescaled(apply, columns, require_finite), reports[0]

    def _reported(self, y: Float) -> tuple[Float, Info]:
        """The estimate, (m,), of y less what its law adds, and its report, with what its tables disagree by."""
        columns = self._readable(y[:, None])
        X, info = self._told(columns, partial(refuse_unusable, self.problem), checked=True)
        x = X[:, 0] + offset if (offset := self._prepared.offset).any() or np.may_share_memory(X, y) else X[:, 0]
        info = replace(info, violation=self._prepared.violation(columns)) if info.violation is None else info
        refuse_disagreement(self.problem, y, info.violation or 0.0)
        return x, info

    def _measurements(self, y: Any) -> Float:
        """One vector over the observed layout."""
        vector = real_vector(self.problem.observed, y, truth_values=False)
        if vector.shape != (self.shape[1],):
            made = "problem.vector(tables) makes one"
            raise ValueError(f"measurements must have shape ({self.shape[1]},): got {vector.shape}; {made}")
        self.problem.check_vector(vector := real_columns(vector))
        vector = self.problem.noise.centred(vector)
        if self.problem.has_unmeasured:
            vector = np.where(self.problem.unmeasured, 0.0, vector)
        elif vector.flags.writeable or not vector.flags.owndata:  # somebody may write to it
            vector = vector.copy()
        vector.flags.writeable = False
        return vector

    @cached_property
    def over_observed(self) -> BlueOperator:
        """The operator, by the same solver, whose desired tables are the observed ones."""
        return self if self._is_over_observed else blue(self.problem.determined.observing(), self.solver)

    @property
    def _is_over_observed(self) -> bool:
        return self.problem.desired is self.problem.observed and self.problem.determined is self.problem

    @property
    def covariance(self) -> LinearOperator:
        """Covariance P Sigma P' of the estimate, (m, m): columns by applying it to unit vectors."""
        if self.problem.noise.is_singular:  # small, and a product would leave rounding where nothing is
            product = aslinearoperator(np.nan_to_num(self.functional_covariance(np.eye(self.shape[0]))))
        else:
            product = self @ self.problem.noise_covariance @ self.T
        return CovarianceOverLayout(product, self.problem.desired, self.problem.undetermined)

    def variances_by_table(self) -> TableVariances:
        """What `variances` gives, some geounits of a desired table at a time, without a vector of them all.

        Returns
        -------
        TableVariances
        """
        told = self._prepared
        return told.variances_by_table() if told.has_exact_zeros else LaidOutVariances(self.problem, self.variances())

    def variances(self) -> Float:
        """Exact variance of every desired cell, (m,), the diagonal of `covariance`, in squared units of the counts.

        Returns
        -------
        ndarray, (m,)
        """
        variances = self._prepared.variances()
        return variances if self._prepared.has_exact_zeros else without_rounding(variances, self._nothing)

    @cached_property
    def _nothing(self) -> float:
        """What a variance is at least that is not rounding."""
        return least_variance(self.problem)

    def functional_covariance(self, W: Any) -> Float:
        """Covariance W' P Sigma P' W of linear functionals of the estimate, (K, K), in squared units of theirs.

        Parameters
        ----------
        W : array_like or sparse array, (m, K) or (m,)
            A functional over the desired layout in every column.

        Returns
        -------
        ndarray, (K, K)

        Raises
        ------
        ValueError
            If the shape does not fit, or a weight is not finite.
        """
        weights = read_weights(self.problem.desired, W)
        return with_exact_zeros(self._prepared.functional_covariance(weights), weights, self._nothing)

    def __reduce__(self) -> tuple:
        return blue, (self.problem.replace(truth=None), self.solver)  # the truth is secret, no part of the estimate

    def __repr__(self) -> str:
        tables = f"{len(self.problem.observed.names)} observed tables to {len(self.problem.desired.names)} desired ones"
        exact = "exact" if self.info.exact else "not the best estimate"
        head = f"<{self.shape[0]}x{self.shape[1]} BlueOperator by {self.solver.name}: {tables}"
        return f"{head}\n  solver   {self.info.solver}, {exact}\n  because  {self.info.reason}>"
