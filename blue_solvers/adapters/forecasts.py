"""Reconciliation of forecasts by the exact estimate, as a class beside hierarchicalforecast's ``MinTrace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.adapters.residual_covariance import METHODS, OF_RESIDUALS, RIDGE, ErrorCovariance, error_covariance
from blue_solvers.nonnegative import nnls
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.quantiles import normal_multiple
from constraint_builders import LowRankPlusDiagonal, Problem
from constraint_builders.arrays import Float
from constraint_builders.description.labelled import read_names, refuse_labels
from constraint_builders.description.reals import LARGEST, read_matrix, real_array, real_number

BLOCK = 64  # series whose weights are held at once


class ExactMinTrace:
    """The trace-minimising reconciliation, exact at any size, with exact standard errors.

    It may stand in the list of hierarchicalforecast's ``HierarchicalReconciliation(reconcilers=[...])``, takes ``S`` as
    a sparse matrix, and makes no (n, n) matrix; `blue_solvers.adapters.reconcile` is the same without that library.

    Parameters
    ----------
    method : {"ols", "wls_struct", "wls_var", "mint_cov", "mint_shrink"}
        What forecasts are weighed by: equally; by the leaves that they sum; by mean squared residuals; by the
        residuals' sample covariance; by that with its correlations shrunk, as low rank plus diagonal.
    nonnegative : bool
        Whether reconciled forecasts are the best that are not negative, by weighted least squares; of uncorrelated
        errors alone, without intervals.
    ridge : float
        What variances from residuals have at least.
    covariance : array_like (n,) or (n, n), sparse array or LowRankPlusDiagonal, optional
        Of the base forecasts' errors, in the order of the rows of S, instead of a method.

    Raises
    ------
    ValueError
        If there is no such method, or `nonnegative` is asked of correlated errors.
    """

    is_sparse_method = True
    is_strictly_hierarchical = False

    def __init__(
        self, method: str = "mint_shrink", nonnegative: bool = False, ridge: float = RIDGE, covariance: Any = None
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"no method {method!r}: there are {', '.join(map(repr, METHODS))}")
        correlated = method in ("mint_cov", "mint_shrink") if covariance is None else np.ndim(covariance) != 1
        if nonnegative and correlated:
            raise ValueError("non-negative forecasts need uncorrelated errors: give ols, wls_struct or wls_var")
        self.method, self.nonnegative, self.ridge, self.covariance = method, nonnegative, ridge, covariance
        self.insample = covariance is None and method in OF_RESIDUALS
        self.fitted = False
        self.sampler: ExactMinTrace | None = None
        self._init_params = {"method": method if covariance is None else "own"}
        if nonnegative:
            self._init_params["nonnegative"] = "True"

    def fit(
        self,
        S: Any,
        y_hat: ArrayLike,
        y_insample: ArrayLike | None = None,
        y_hat_insample: ArrayLike | None = None,
        sigmah: ArrayLike | None = None,
        **_: Any,
    ) -> ExactMinTrace:
        """Prepare the estimate for a hierarchy, base forecasts and their errors.

        Parameters
        ----------
        S : sparse array or ndarray, (n, leaves)
        y_hat : array_like, (n, horizon)
        y_insample, y_hat_insample : array_like, (n, T), optional
            Values of the sample and the forecasts of them, for methods of residuals.
        sigmah : array_like, (n, horizon), optional
            Standard deviations of the base forecasts' errors at every horizon; correlations are those of the method.
        **_
            What other reconcilers are given too.

        Returns
        -------
        ExactMinTrace
            Itself.

        Raises
        ------
        ValueError
            If a shape does not fit, a forecast or a residual is no usable number, forecasts that are known exactly
            contradict one another, or standard deviations are given to a series without noise or without weight.
        """
        refuse_labels(S, "S")
        self.S = read_matrix(S, "S")
        self.y_hat = np.array(real_array(y_hat, "y_hat"))
        if self.y_hat.ndim != 2 or self.y_hat.shape[0] != self.S.shape[0]:
            raise ValueError(f"y_hat must have shape ({self.S.shape[0]}, horizon): got {self.y_hat.shape}")
        if not np.isfinite(self.y_hat).all():
            series, step = np.argwhere(~np.isfinite(self.y_hat))[0].tolist()
            raise ValueError(f"y_hat of series {series} at step {step} is {self.y_hat[series, step]}: give a number")
        self.errors = self._errors(y_insample, y_hat_insample)
        correlated = self.errors.variances is None
        weighing = {"covariance": self.errors.covariance} if correlated else {"variances": self.errors.variances}
        problem = Problem.from_summing_matrix(self.S, **weighing)
        problem.check_vector(self.y_hat)
        self.P: BlueOperator = blue(problem)
        self.sigmah = None if sigmah is None else _deviations(sigmah, self.y_hat.shape)
        variances = self.errors.diagonal
        scaled = np.isfinite(variances) & (variances > 0)
        if sigmah is not None and not scaled.all():
            series = int(scaled.argmin())
            raise ValueError(
                f"the covariance gives series {series} the variance {variances[series]:g}, which no standard deviation "
                "scales: leave sigmah, or the intervals of base forecasts, out"
            )
        self.sampler = self
        self.fitted = True
        return self

    def predict(self, S: Any = None, y_hat: Any = None, level: Sequence[float] | None = None) -> dict[str, Float]:
        """Reconciled forecasts, and their quantiles where levels are given.

        Parameters
        ----------
        S, y_hat
            Those that it was fitted to, as other reconcilers are given them; others are refused.
        level : sequence of float, optional
            Coverages of the intervals in per cent, from 1 up.

        Returns
        -------
        dict
            ``"mean"``, (n, horizon); with levels ``"sigmah"``, (n, horizon), and ``"quantiles"``, ascending,
            (n, horizon, 2 levels).

        Raises
        ------
        ValueError
            If nothing is fitted, or something else than is given; a level is no coverage; or as `std_errors`.
        TypeError
            If levels are no list.
        """
        self._require_fitted()
        own_S = S is None or (np.shape(S) == self.S.shape and not (sparse.csr_array(S) != self.S).nnz)
        if not (own_S and (y_hat is None or np.array_equal(real_array(y_hat, "y_hat"), self.y_hat))):
            raise ValueError("S or y_hat is another than this was fitted to: leave both out, or call fit_predict")
        levels = coverages(level)
        mean = nnls(self.P.problem, self.y_hat).desired if self.nonnegative else self.P @ self.y_hat
        result = {"mean": mean}
        if levels:
            if self.nonnegative:
                raise ValueError("non-negative forecasts have no exact intervals: ask for levels of the unbiased ones")
            result["sigmah"] = self.std_errors()
            half = np.array([normal_multiple(own / 100) for own in levels])
            multiples = np.concatenate([-half[::-1], half])
            result["quantiles"] = mean[:, :, None] + result["sigmah"][:, :, None] * multiples
        return result

    def fit_predict(
        self,
        S: Any,
        y_hat: ArrayLike,
        y_insample: ArrayLike | None = None,
        y_hat_insample: ArrayLike | None = None,
        sigmah: ArrayLike | None = None,
        level: Sequence[float] | None = None,
        intervals_method: str | None = None,
        num_samples: int | None = None,
        seed: int | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> dict[str, Float]:
        """`fit`, then `predict`, with the arguments that hierarchicalforecast gives.

        Parameters
        ----------
        S, y_hat, y_insample, y_hat_insample, sigmah
            As for `fit`.
        level, intervals_method, num_samples, seed, tags
            As hierarchicalforecast gives them.

        Returns
        -------
        dict of str to ndarray
            ``"mean"``, (n, horizon), and what was asked for beside it.

        Raises
        ------
        ValueError
            If intervals are asked for by another method than ``"normality"``, or as `fit` and `std_errors`.
        """
        if level is not None and intervals_method not in (None, "normality"):
            raise ValueError(f"intervals are those of normal errors: intervals_method {intervals_method!r} is not here")
        self._seed = seed
        return self.fit(S, y_hat, y_insample, y_hat_insample, sigmah).predict(level=level)

    __call__ = fit_predict

    def std_errors(self) -> Float:
        """Exact standard errors of the reconciled forecasts, (n, horizon).

        Returns
        -------
        ndarray, (n, horizon)
            In units of the forecasts.

        Raises
        ------
        ValueError
            If nothing says how large the base forecasts' errors are: ols and wls_struct are weights alone.
        """
        self._require_fitted()
        if self.sigmah is None:
            if not self.errors.absolute:
                raise ValueError(
                    f"method {self.method!r} weighs forecasts and does not say how large their errors are: give "
                    "intervals of the base forecasts, or a method of residuals"
                )
            return np.repeat(np.sqrt(self.P.variances())[:, None], self.y_hat.shape[1], axis=1)
        scales = self.sigmah / np.sqrt(self.errors.diagonal)[:, None]
        if np.allclose(scales, scales[:1], rtol=1e-12):
            return np.sqrt(self.P.variances())[:, None] * scales[0]
        size = self.S.shape[0]
        found = np.empty_like(scales)
        for start in range(0, size, BLOCK):
            cells = np.arange(start, min(start + BLOCK, size))
            units = np.zeros((size, cells.size))
            units[cells, np.arange(cells.size)] = 1
            found[cells] = self.errors.quadratic(self.P.T @ units, scales)
        return np.sqrt(found)

    def sample(self, num_samples: int) -> Float:
        """Coherent forecasts drawn from their distribution for normal errors, (n, horizon, num_samples).

        Parameters
        ----------
        num_samples : int

        Returns
        -------
        ndarray, (n, horizon, num_samples)

        Raises
        ------
        ValueError
            Of non-negative forecasts, or if nothing says how large the errors are.
        """
        self._require_fitted()
        if self.nonnegative:
            raise ValueError("non-negative forecasts have no distribution here: draw the unbiased ones")
        if self.sigmah is None and not self.errors.absolute:
            self.std_errors()  # says what is missing
        rng = np.random.default_rng(getattr(self, "_seed", None))
        size, steps = self.y_hat.shape
        scales = np.ones_like(self.y_hat)
        if self.sigmah is not None:
            scales = self.sigmah / np.sqrt(self.errors.diagonal)[:, None]
        noise = self.errors.draw(steps * num_samples, rng).reshape(size, steps, num_samples) * scales[:, :, None]
        base = (self.y_hat[:, :, None] + noise).reshape(size, -1)
        return np.asarray(self.P @ base).reshape(size, steps, num_samples)

    def _errors(self, y_insample: ArrayLike | None, y_hat_insample: ArrayLike | None) -> ErrorCovariance:
        """The covariance of errors that is given, or that of residuals in the sample, (n, T)."""
        if self.covariance is not None:
            return _own_covariance(self.covariance)
        residuals = None
        if self.insample and y_insample is not None and y_hat_insample is not None:
            residuals = real_array(y_insample, "y_insample") - real_array(y_hat_insample, "y_hat_insample")
            if residuals.ndim != 2 or residuals.shape[0] != self.S.shape[0]:
                raise ValueError(f"residuals must have shape ({self.S.shape[0]}, T): got {residuals.shape}")
        return error_covariance(self.method, self.S, residuals, self.ridge)

    def _require_fitted(self) -> None:
        if not self.fitted:
            raise ValueError("nothing is fitted yet: call fit with S and y_hat")

    def __repr__(self) -> str:
        return f"ExactMinTrace({', '.join(f'{name}={value!r}' for name, value in self._init_params.items())})"


def _own_covariance(covariance: Any) -> ErrorCovariance:
    if isinstance(covariance, LowRankPlusDiagonal):
        return ErrorCovariance(None, covariance, absolute=True)
    is_sparse = sparse.issparse(covariance)
    own = read_matrix(covariance, "covariance", LARGEST) if is_sparse else real_array(covariance, "covariance")
    return ErrorCovariance(own, None, absolute=True) if own.ndim == 1 else ErrorCovariance(None, own, absolute=True)


def coverages(level: Any) -> list[float]:
    """Coverages in per cent, ascending; none of None.

    Raises
    ------
    TypeError
        If it is no list.
    ValueError
        If one is no number, or below 1, as shares are, or 100 and more.
    """
    levels = [] if level is None else read_names(level, "level")
    for own in levels:
        if not 1 <= real_number(own, "level") < 100:
            raise ValueError(f"a level is a coverage in per cent, between 1 and 100, as 90 is: got {own}")
    return sorted(levels)


def _deviations(sigmah: ArrayLike, shape: tuple[int, ...]) -> Float:
    """Standard deviations of the shape of y_hat, checked."""
    own = real_array(sigmah, "sigmah")
    if own.shape != shape:
        raise ValueError(f"sigmah must have the shape of y_hat, {shape}: got {own.shape}")
    if not (np.isfinite(own).all() and (own >= 0).all()):
        raise ValueError("sigmah must hold standard deviations: finite, 0 or more")
    return own
