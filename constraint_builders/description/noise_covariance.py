"""Reading the noise of measurements, and refusing a covariance that is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, splu

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.description.linear import read_matrix
from constraint_builders.description.low_rank import LowRankPlusDiagonal
from constraint_builders.description.noise import IndependentNoise, LowRankNoise, Noise, SparseNoise
from constraint_builders.description.noise_laws import require_law
from constraint_builders.description.operator_noise import OperatorNoise
from constraint_builders.description.reals import refuse_masked
from constraint_builders.description.singular_noise import SingularNoise, singular_factor
from constraint_builders.description.variances import LARGEST, checked_variances, refuse_extreme

IN_OTHER_UNITS = "measure in smaller units, whose variances are larger"
SYMMETRY_TOLERANCE = 1e-10
SOLVE_TOLERANCE = 1e-6  # of what a solution leaves: an iterative one is good enough, a wrong one is far above


def read_noise(observed: Layout, variances: Float, covariance: Any = None, law: str = "gaussian") -> Noise:
    """The noise of the measurements.

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
        If there is no such law, a variance is missing or differs from the covariance's diagonal, the covariance's shape
        is wrong, a value is not finite, or of its diagonal below 1e-100, or it is not symmetric and positive
        semi-definite, or singular of thousands of cells. Of an operator only its diagonal and its action on random
        vectors is checked, and that of its method ``solve`` where it has one.
    """
    if covariance is None:
        noise: Noise = IndependentNoise(law, variances)
        if np.isnan(variances).any():
            where = observed.describe(int(np.flatnonzero(np.isnan(variances))[0]))
            raise ValueError(f"no variance for {where}: give one, or a covariance")
        return noise
    noise = _correlated(law, covariance, observed)
    given = ~np.isnan(variances)
    if not np.allclose(variances[given], noise.variances[given], rtol=1e-9, atol=0):
        raise ValueError("observed variances differ from the covariance's diagonal: give None for them, or one value")
    return noise


def read_repeated_noise(observed: Layout, variances: Sequence[Float], law: str) -> Noise:
    """Independent noise of tables, (geounits, *shape) each, whose variances are spread over the cells of a geounit."""
    by_geounit = np.concatenate([own.reshape(len(own), -1)[:, 0] for own in variances])
    if np.isnan(by_geounit).any():
        return read_noise(observed, np.concatenate(variances, axis=None), None, law)
    cells = [own.size // len(own) for own in variances]
    return IndependentNoise(law, by_geounit, np.repeat(cells, [len(own) for own in variances]))


def _correlated(law: str, covariance: Any, observed: Layout) -> Noise:
    require_law(law)
    refuse_masked(covariance, "covariance")
    size = observed.size
    if np.shape(covariance) != (size, size):
        raise ValueError(f"covariance must have shape ({size}, {size}): got {np.shape(covariance)}")
    if isinstance(covariance, LowRankPlusDiagonal):
        return LowRankNoise(law, covariance)
    if isinstance(covariance, LinearOperator):
        _check_operator(covariance)
        diagonal = _diagonal(covariance)
        refuse_extreme(diagonal, "diagonal of the covariance", IN_OTHER_UNITS)
        return OperatorNoise(law, covariance, diagonal)
    matrix = read_matrix(observed.square(covariance, "covariance"), "covariance", LARGEST)
    scale = abs(matrix.data).max(initial=0.0)
    if abs(matrix - matrix.T).max() > SYMMETRY_TOLERANCE * scale:
        raise ValueError("covariance is not symmetric: a covariance equals its transpose")
    refuse_extreme(matrix.diagonal(), "diagonal of the covariance", IN_OTHER_UNITS)
    return (
        SparseNoise(law, matrix) if _positive_definite(matrix) else SingularNoise(law, matrix, singular_factor(matrix))
    )


def _positive_definite(matrix: sparse.csr_array) -> bool:
    """Whether a sparse symmetric matrix factorises with positive pivots, none lost to rounding."""
    diagonal = matrix.diagonal()
    if diagonal.min(initial=np.inf) <= 0:
        return False
    scaling = sparse.diags_array(1 / np.sqrt(diagonal))
    correlation = sparse.csc_array(scaling @ matrix @ scaling)
    try:
        factors = splu(correlation, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        return False
    pivots = factors.U.diagonal()
    return bool(np.array_equal(factors.perm_r, factors.perm_c) and pivots.min() > 1e-14)


def _check_operator(operator: LinearOperator) -> None:
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((2, operator.shape[0]))
    image_u, image_v = operator.matvec(u), operator.matvec(v)
    if not (np.isfinite(image_u).all() and np.isfinite(image_v).all()):
        raise ValueError("covariance operator returns NaN or infinite values")
    scale = np.linalg.norm(u) * np.linalg.norm(image_v)
    if abs(v @ image_u - u @ image_v) > 1e-8 * scale:
        raise ValueError("covariance operator is not symmetric: a covariance equals its transpose")
    if min(u @ image_u, v @ image_v) <= 0:
        raise ValueError("covariance operator is not positive definite")
    if hasattr(operator, "solve"):
        missing = operator.matvec(np.asarray(operator.solve(v[:, None]))[:, 0]) - v
        if not np.linalg.norm(missing) <= SOLVE_TOLERANCE * np.linalg.norm(v):
            raise ValueError("the covariance operator's method solve does not give its inverse times (n, K) vectors")


def _diagonal(operator: LinearOperator, block: int = 64) -> NDArray[np.float64]:
    size = operator.shape[0]
    diagonal = np.empty(size)
    for start in range(0, size, block):
        columns = np.arange(start, min(start + block, size))
        units = np.zeros((size, columns.size))
        units[columns, np.arange(columns.size)] = 1
        diagonal[columns] = operator.matmat(units)[columns, np.arange(columns.size)]
    return diagonal


def read_variances(observed: Layout, variances: ArrayLike, unmeasured: NDArray[np.bool_]) -> Float:
    """Other variances, (n,), of the same measurements.

    Raises
    ------
    ValueError
        If the shape does not fit, a variance is negative or NaN, or a measured cell's is infinite.
    """
    values = observed.flat(variances, "variances")
    if values.shape != (observed.size,):
        raise ValueError(f"variances must have shape ({observed.size},): got {values.shape}")
    values = checked_variances(values, "variances")
    lost = np.flatnonzero(np.isinf(values) & ~unmeasured)
    if lost.size:
        raise ValueError(f"{observed.describe(int(lost[0]))} was measured: its variance cannot be infinite")
    return values
