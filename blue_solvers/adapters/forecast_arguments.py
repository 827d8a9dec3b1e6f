"""What a reconciliation of forecasts is asked for, checked."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.adapters.residual_covariance import METHODS, ErrorCovariance, refuse_large_residuals
from blue_solvers.adapters.sample_errors import OF_SAMPLE
from constraint_builders import LowRankPlusDiagonal
from constraint_builders.arrays import Float
from constraint_builders.description.labelled import read_names
from constraint_builders.description.reals import LARGEST, read_matrix, real_array, real_number

_PARAMETERS = ("method", "nonnegative", "ridge", "covariance")
_ROUNDING = 1e-6  # by which reconciled forecasts of a singular covariance may miss their sums, relative to the largest


class SetParameters:
    """Parameters as scikit-learn gets and sets them."""

    method: str
    fitted: bool
    sampler: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters that it was made with.

        Parameters
        ----------
        deep : bool
            As scikit-learn gives it: it changes nothing.

        Returns
        -------
        dict
            By name.
        """
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Any) -> Self:
        """Change parameters, after which it is to be fitted again.

        Parameters
        ----------
        **params
            By name.

        Returns
        -------
        Self
            Itself.

        Raises
        ------
        ValueError
            If there is no such parameter, or no such method.
        """
        for name in params:
            if name not in _PARAMETERS:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}: there are {', '.join(_PARAMETERS)}")
        if params.get("method", METHODS[0]) not in METHODS:
            raise ValueError(f"no method {params['method']!r}: there are {', '.join(map(repr, METHODS))}")
        for name, value in params.items():
            setattr(self, name, value)
        self.fitted = False
        self.sampler = None
        return self


def read_intervals(method: str | None, nonnegative: bool) -> str:
    """How intervals are made, checked."""
    own = method or "normality"
    if own not in ("normality", *OF_SAMPLE):
        raise ValueError(f"no intervals_method {own!r}: there are 'normality', {', '.join(map(repr, OF_SAMPLE))}")
    if nonnegative and own not in ("bootstrap", "conformal"):
        raise ValueError("non-negative forecasts have no exact intervals: ask for 'conformal' or 'bootstrap' ones")
    return own


def read_sample(y_insample: Any, y_hat_insample: Any, shape: tuple[int, int]) -> tuple[Float, Float] | None:
    """Values of the sample, (n, T), and residuals, (n, T, steps), of base forecasts of a shape, checked."""
    if y_insample is None or y_hat_insample is None:
        return None
    values, fitted = real_array(y_insample, "y_insample"), real_array(y_hat_insample, "y_hat_insample")
    size, horizon = shape
    if values.ndim != 2 or values.shape[0] != size or fitted.shape not in (values.shape, (*values.shape, horizon)):
        raise ValueError(
            f"residuals must have shape ({size}, T), or ({size}, T, {horizon}): got values {values.shape} and "
            f"forecasts {fitted.shape}"
        )
    residuals = values[..., None] - (fitted if fitted.ndim == 3 else fitted[..., None])
    refuse_large_residuals(residuals)
    return values, residuals


def own_covariance(covariance: Any) -> ErrorCovariance:
    """The covariance that is given, in arrays of its own."""
    if isinstance(covariance, LowRankPlusDiagonal):
        return ErrorCovariance(None, covariance, absolute=True)
    is_sparse = sparse.issparse(covariance)
    own = (
        read_matrix(covariance, "covariance", LARGEST, 0.0)
        if is_sparse
        else real_array(covariance, "covariance").copy()
    )
    return ErrorCovariance(own, None, absolute=True) if own.ndim == 1 else ErrorCovariance(None, own, absolute=True)


def refuse_incoherent(equations: sparse.csr_array, mean: Float) -> None:
    """`ValueError` for reconciled forecasts (n, K) that do not add up, as a singular covariance may leave them."""
    if abs(equations @ mean).max(initial=0) > _ROUNDING * abs(mean).max(initial=0):
        raise ValueError(
            "the covariance is singular, and leaves no error in sums of y_hat that do not add up: use 'mint_shrink', "
            "or another covariance"
        )


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


def read_deviations(sigmah: ArrayLike, shape: tuple[int, ...]) -> Float:
    """Standard deviations of the shape of y_hat, checked."""
    own = real_array(sigmah, "sigmah").copy()
    if own.shape != shape:
        raise ValueError(f"sigmah must have the shape of y_hat, {shape}: got {own.shape}")
    if not (np.isfinite(own).all() and (own >= 0).all()):
        raise ValueError("sigmah must hold standard deviations: finite, 0 or more")
    return own
