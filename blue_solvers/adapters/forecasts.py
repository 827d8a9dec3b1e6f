"""Reconciliation of forecasts by the exact estimate, as a class beside hierarchicalforecast's ``MinTrace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.adapters.few_parents import has_few_parents, through_parents
from blue_solvers.adapters.forecast_arguments import (
    SetParameters,
    coverages,
    own_covariance,
    read_deviations,
    read_intervals,
    read_sample,
    refuse_incoherent,
)
from blue_solvers.adapters.residual_covariance import OF_RESIDUALS, RIDGE, ErrorCovariance, error_covariance
from blue_solvers.adapters.sample_errors import (
    OF_SAMPLE,
    SampleErrors,
    nonnegative_errors,
    nonnegative_sums,
    sample_errors,
)
from blue_solvers.nonnegative import nnls
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.quantiles import normal_multiple
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.labelled import refuse_labels
from constraint_builders.description.reals import read_matrix, real_array, whole_number

BLOCK = 64  # series whose weights are held at once


class ExactMinTrace(SetParameters):
    """The trace-minimising reconciliation, exact at any size, with exact standard errors.

    It may stand in the list of hierarchicalforecast's ``HierarchicalReconciliation(reconcilers=[...])``, takes ``S`` as
    a sparse matrix, and makes no (n, n) matrix; `blue_solvers.adapters.reconcile` is the same without that library.

    Parameters
    ----------
    method : {"ols", "wls_struct", "wls_var", "mint_cov", "mint_shrink"}
        What forecasts are weighed by: equally; by the leaves that they sum; by mean squared residuals; by the
        residuals' sample covariance; by that with its correlations shrunk, as low rank plus diagonal.
    nonnegative : bool
        Whether reconciled forecasts are the best of which no leaf is negative, by generalised least squares.
    ridge : float
        What variances from residuals have at least.
    covariance : array_like (n,) or (n, n), sparse array or LowRankPlusDiagonal, optional
        Of the base forecasts' errors, in the order of the rows of S, instead of a method.

    Raises
    ------
    ValueError
        If there is no such method.

    Notes
    -----
    `get_params` and `set_params` are those of scikit-learn, whose ``clone`` takes it.
    """

    is_sparse_method = True
    is_strictly_hierarchical = False

    def __init__(
        self, method: str = "mint_shrink", nonnegative: bool = False, ridge: float = RIDGE, covariance: Any = None
    ) -> None:
        self.nonnegative, self.ridge, self.covariance = nonnegative, ridge, covariance
        self._P: BlueOperator | None = None
        self.sampler: ExactMinTrace | None = None
        self.set_params(method=method)

    @property
    def P(self) -> BlueOperator:
        """The reconciliation, (n, n)."""
        if self._P is None:
            self._P = blue(self._problem)
        return self._P

    @property
    def insample(self) -> bool:
        """Whether the method needs residuals."""
        return self.covariance is None and self.method in OF_RESIDUALS

    @property
    def _init_params(self) -> dict[str, str]:
        """What hierarchicalforecast names columns by."""
        named = {"method": self.method if self.covariance is None else "own"}
        return named | ({"nonnegative": "True"} if self.nonnegative else {})

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
            Values of the sample and the forecasts of them, for methods of residuals and for intervals by them. The
            forecasts may be (n, T, horizon), made so many steps before: weights are those of the first step, and
            intervals by the sample take each step's own errors, not `sigmah`.
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
        self.fitted = False  # until all is read: what is refused leaves nothing half changed
        refuse_labels(S, "S")
        self.S = read_matrix(S, "S")
        self.y_hat = np.array(real_array(y_hat, "y_hat"))
        self.y_hat.flags.writeable = False
        if self.y_hat.ndim != 2 or self.y_hat.shape[0] != self.S.shape[0]:
            raise ValueError(f"y_hat must have shape ({self.S.shape[0]}, horizon): got {self.y_hat.shape}")
        if not np.isfinite(self.y_hat).all():
            series, step = np.argwhere(~np.isfinite(self.y_hat))[0].tolist()
            raise ValueError(f"y_hat of series {series} at step {step} is {self.y_hat[series, step]}: give a number")
        self._sample = read_sample(y_insample, y_hat_insample, self.y_hat.shape)
        self._by_steps = y_hat_insample is not None and np.ndim(y_hat_insample) == 3
        self.errors = self._errors()
        correlated = self.errors.variances is None
        weighing = {"covariance": self.errors.covariance} if correlated else {"variances": self.errors.variances}
        self._problem = Problem.from_summing_matrix(self.S, **weighing)
        self._problem.check_vector(self.y_hat)
        self._has_few_parents = has_few_parents(self.S, self.errors.variances)
        self._P = None if self._has_few_parents else blue(self._problem)
        if self._problem.noise.is_singular:
            refuse_incoherent(self._problem.constraint_matrix(), self.P @ self.y_hat)
        self.sigmah = None if sigmah is None else read_deviations(sigmah, self.y_hat.shape)
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
        self._intervals: tuple[str, int | None, int | None] = ("normality", None, None)
        return self

    def predict(
        self,
        S: Any = None,
        y_hat: Any = None,
        level: Sequence[float] | None = None,
        intervals_method: str | None = None,
        num_samples: int | None = None,
        seed: int | None = None,
    ) -> dict[str, Float]:
        """Reconciled forecasts, and their quantiles where levels are given.

        Parameters
        ----------
        S, y_hat
            Those that it was fitted to, as other reconcilers are given them; others are refused.
        level : sequence of float, optional
            Coverages of the intervals in per cent, from 1 up.
        intervals_method : {"normality", "student", "bootstrap", "conformal"}, optional
            By exact standard errors of normal errors, the default; or by what reconciling makes of the sample's
            residuals: Student's t, as their covariance is estimated; draws of whole times with random signs; their
            ranks, each time reconciled by correlations that are estimated without it, while variances are those of
            all: those of "wls_var" from 8 to 14 times, by which forecasts are weighed too, hold .73 to .80 for .80.
            Non-negative forecasts have the last two alone.
        num_samples, seed : int, optional
            How many draws "bootstrap" makes, 1000 by default, and from which seed.

        Returns
        -------
        dict
            ``"mean"``, (n, horizon); with levels ``"sigmah"``, (n, horizon), standard errors or root mean squares of
            the sample's errors, and ``"quantiles"``, ascending, (n, horizon, 2 levels).

        Raises
        ------
        ValueError
            If nothing is fitted, or something else than is given; a level is no coverage, or more than so short a
            sample can say; the sample is missing; or as `std_errors`.
        TypeError
            If levels are no list.
        """
        self._require_fitted()
        own_S = S is None or (np.shape(S) == self.S.shape and not (sparse.csr_array(S) != self.S).nnz)
        if not (own_S and (y_hat is None or np.array_equal(real_array(y_hat, "y_hat"), self.y_hat))):
            raise ValueError("S or y_hat is another than this was fitted to: leave both out, or call fit_predict")
        levels = coverages(level)
        intervals = read_intervals(intervals_method, self.nonnegative and bool(levels))
        if num_samples is not None:
            num_samples = whole_number(num_samples, "num_samples", 1)
        if seed is not None:
            seed = whole_number(seed, "seed", 0)
        mean = self._reconciled(self.y_hat)
        result = {"mean": mean}
        if levels:
            self._intervals = (intervals, num_samples, seed)
            result["sigmah"], half = self._half_widths(levels)
            quantiles = np.concatenate([mean[..., None] - half[..., ::-1], mean[..., None] + half], axis=2)
            if self.nonnegative:  # sums of leaves that have no weight below 0 are not negative either
                lowest = np.where((self.S < 0).sum(axis=1) == 0, 0, -np.inf)
                quantiles = np.maximum(quantiles, lowest[:, None, None])
            result["quantiles"] = quantiles
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
            As `fit` and `predict`.
        """
        fitted = self.fit(S, y_hat, y_insample, y_hat_insample, sigmah)
        self._intervals = ("normality", num_samples, seed)
        return fitted.predict(None, None, level, intervals_method, num_samples, seed)

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
        if np.allclose(scales, scales[:1], rtol=1e-12, atol=0):
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
        """Coherent forecasts drawn from their distribution, of normal errors or as the last intervals were made.

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
        num_samples = whole_number(num_samples, "num_samples", 0)
        if self.nonnegative:
            raise ValueError("non-negative forecasts have no distribution here: draw the unbiased ones")
        method, _, seed = self._intervals
        if method in OF_SAMPLE:
            return (self.P @ self.y_hat)[..., None] + self._sample_errors().draw(method, num_samples, seed)
        if self.sigmah is None and not self.errors.absolute:
            self.std_errors()  # says what is missing
        rng = np.random.default_rng(seed)
        size, steps = self.y_hat.shape
        scales = np.ones_like(self.y_hat)
        if self.sigmah is not None:
            scales = self.sigmah / np.sqrt(self.errors.diagonal)[:, None]
        noise = self.errors.draw(steps * num_samples, rng).reshape(size, steps, num_samples) * scales[:, :, None]
        base = (self.y_hat[:, :, None] + noise).reshape(size, -1)
        return np.asarray(self.P @ base).reshape(size, steps, num_samples)

    def _reconciled(self, y_hat: Float) -> Float:
        """Forecasts (n, K) reconciled, of any sign or with no negative leaf."""
        variances = self.errors.variances
        if variances is not None:
            if self.nonnegative:
                return nnls(self._problem, y_hat).desired
            return through_parents(self.S, variances, y_hat) if self._has_few_parents else self.P @ y_hat
        if not self.nonnegative:
            return self.P @ y_hat
        return nonnegative_sums(self.S, self.errors.as_low_rank(), y_hat)

    def _half_widths(self, levels: Sequence[float]) -> tuple[Float, Float]:
        """Standard errors, (n, horizon), and how far intervals reach on either side, (n, horizon, levels)."""
        method, draws, seed = self._intervals
        if method == "normality":
            sigmah = self.std_errors()
            return sigmah, sigmah[..., None] * np.array([normal_multiple(own / 100) for own in levels])
        errors = self._sample_errors()
        return errors.root_mean_squares, errors.half_widths(method, levels, draws, seed)

    def _sample_errors(self) -> SampleErrors:
        """What reconciled forecasts of the sample erred by, at times when every series has a residual."""
        if self._sample is None:
            raise ValueError(
                f"intervals by {self._intervals[0]!r} need y_insample and y_hat_insample, or Y_df: give both"
            )
        values, residuals = self._sample
        whole = ~np.isnan(residuals).any(axis=(0, 2))
        if whole.sum() < 2:
            raise ValueError("the sample needs two times or more at which every series has a residual")
        if self.errors.share and self._problem.noise.is_singular:
            raise ValueError(
                "the sample covariance is singular, some residuals being sums of others: intervals by the sample need "
                "'mint_shrink', or another method"
            )
        of_weights = ~np.isnan(residuals[..., 0].sum(axis=0))
        kept = np.flatnonzero(np.compress(of_weights, whole))
        values, residuals, scales = values[:, whole], residuals[:, whole], None
        if self.sigmah is not None and not self._by_steps:
            own = self.errors
            if not own.absolute:  # weights alone: residuals say how large errors are
                own = error_covariance("wls_var", self.S, self._sample[1][..., 0], self.ridge)
            scales = self.sigmah / np.sqrt(own.diagonal)[:, None]
        if self.nonnegative:
            sized = residuals if scales is None else residuals * scales[:, None]
            horizon = self.y_hat.shape[1]
            return nonnegative_errors(self._reconciled, self.S, self.errors, values, sized, kept, horizon)
        return sample_errors(self.P, self.errors, self.y_hat, residuals, scales, kept)

    def _errors(self) -> ErrorCovariance:
        """The covariance of errors that is given, or that of residuals in the sample."""
        if self.covariance is not None:
            return own_covariance(self.covariance)
        residuals = self._sample[1][..., 0] if self.insample and self._sample is not None else None
        return error_covariance(self.method, self.S, residuals, self.ridge)

    def _require_fitted(self) -> None:
        if not self.fitted:
            raise ValueError("nothing is fitted yet: call fit with S and y_hat")

    def __repr__(self) -> str:
        return f"ExactMinTrace({', '.join(f'{name}={value!r}' for name, value in self._init_params.items())})"
