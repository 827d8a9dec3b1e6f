"""The noise of the measurements, as it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.description.layout import Float, Layout
from constraint_builders.description.noise_covariance import read_covariance
from constraint_builders.description.reals import real_array
from constraint_builders.description.variances import checked_variances

NOISE_LAWS = ("gaussian", "discrete_gaussian", "laplace", "discrete_laplace")


def read_noise(
    observed: Layout, variances: Float, covariance: Any = None, law: str = "gaussian"
) -> tuple[Float, sparse.csr_array | LinearOperator | None]:
    """Variances of all cells, and the covariance where they are correlated.

    Parameters
    ----------
    observed : Layout
    variances : ndarray, (n,)
        NaN where the covariance has them.
    covariance : sparse array, ndarray or LinearOperator, (n, n), optional
    law : str

    Raises
    ------
    ValueError
        If there is no such law, a variance is missing or differs from the covariance's, or the covariance is none.
    """
    if law not in NOISE_LAWS:
        raise ValueError(f"noise must be one of {NOISE_LAWS}: got {law!r}")
    checked = None
    if covariance is not None:
        checked, diagonal = read_covariance(covariance, variances.size)
        given = ~np.isnan(variances)
        if not np.allclose(variances[given], diagonal[given], rtol=1e-9, atol=0):
            raise ValueError(
                "observed variances differ from the covariance's diagonal: give None for them, or one value"
            )
        variances = diagonal
    elif np.isnan(variances).any():
        where = observed.describe(int(np.flatnonzero(np.isnan(variances))[0]))
        raise ValueError(f"no variance for {where}: give one, or a covariance")
    variances.flags.writeable = False
    return variances, checked


def read_variances(observed: Layout, variances: ArrayLike, unmeasured: NDArray[np.bool_]) -> Float:
    """Other variances, (n,), of the same measurements.

    Raises
    ------
    ValueError
        If the shape does not fit, a variance is negative or NaN, or a measured cell's is infinite.
    """
    values = real_array(variances, "variances")
    if values.shape != (observed.size,):
        raise ValueError(f"variances must have shape ({observed.size},): got {values.shape}")
    values = checked_variances(values, "variances")
    lost = np.flatnonzero(np.isinf(values) & ~unmeasured)
    if lost.size:
        raise ValueError(f"{observed.describe(int(lost[0]))} was measured: its variance cannot be infinite")
    values.flags.writeable = False
    return values
