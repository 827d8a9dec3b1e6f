"""Checking variances given by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array

SMALLEST, LARGEST = 1e-100, 1e150  # what precisions, and products of variances or with values, hold in float64
ROUNDING = 1e-9  # of the largest entry of a covariance that was worked out
LARGEST_VALUE = 1e100  # whose square, in units of any noise, float64 holds
LARGEST_WEIGHT = 1e50  # of a cell in an equation or an area, whose square times any variance it holds


def plain_variances(variances: Sequence[Any]) -> Float | None:
    """Numbers of Python that are usable variances, as one array; None where some are anything else."""
    if not set(map(type, variances)) <= {int, float, np.float64}:
        return None
    usable = all(SMALLEST <= own <= LARGEST or own == 0 or own == np.inf for own in variances)
    return np.array(variances, dtype=np.float64) if usable else None


def checked_variances(variances: ArrayLike, what: str) -> Float:
    """A writable copy of variances.

    Raises
    ------
    ValueError
        If one is no number, negative, NaN, above 0 and below 1e-100, or finite and above 1e150; 0 is exact and
        ``inf`` not measured.
    """
    variances = np.array(real_array(variances, what))
    usable = variances >= 0
    if not usable.all():
        value = variances[~usable][0]
        word = "NaN" if np.isnan(value) else "negative"
        raise ValueError(f"{what} is {word} ({value}): give a number of 0 or more, or inf for a cell not measured")
    refuse_extreme(variances, what)
    return variances


def refuse_extreme(variances: Float, what: str, instead: str = "give 0 for what is known exactly") -> None:
    """Raise `ValueError` if a variance is so small or so large that estimates would not be finite numbers."""
    small = variances[(variances > 0) & (variances < SMALLEST)]
    if small.size:
        raise ValueError(f"{what} is {small[0]:g}, below {SMALLEST:g}: {instead}")
    large = variances[(variances > LARGEST) & (variances < np.inf)]
    if large.size:
        raise ValueError(f"{what} is {large[0]:g}, above {LARGEST:g}: give inf for what was not measured")


def refuse_no_covariance(covariance: Float, what: str) -> None:
    """Raise `ValueError` for a matrix, or several (..., n, n), that no random numbers have for a covariance."""
    variances = np.diagonal(covariance, axis1=-2, axis2=-1)
    rounding = ROUNDING * abs(covariance).max(axis=(-2, -1), keepdims=True, initial=0.0)
    deviations = np.sqrt(np.maximum(variances, 0))
    if (variances < -rounding[..., 0]).any():
        raise ValueError(f"{what} holds negative variances: give covariance matrices")
    if (abs(covariance - np.swapaxes(covariance, -1, -2)) > rounding).any():
        raise ValueError(f"{what} is not symmetric: a covariance equals its transpose")
    if (abs(covariance) > deviations[..., None] * deviations[..., None, :] + rounding).any():
        raise ValueError(f"{what} holds more than the product of two standard deviations: correlations are 1 at most")


def refuse_large(numbers: Float, what: str, largest: float) -> None:
    """Raise `ValueError` if one of many finite numbers is so large that estimates would not be finite."""
    if not numbers.size or -largest <= numbers.min() <= numbers.max() <= largest:
        return
    large = numbers[abs(numbers) > largest]
    if large.size:
        raise ValueError(f"{what} holds {large[0]:g}, beyond {largest:g}: scale it, or what it is of")
