"""Checking variances given by the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array

SMALLEST = 1e-100  # what precisions and their products with values hold in float64


def plain_variances(variances: Sequence[Any]) -> Float | None:
    """Numbers of Python that are usable variances, as one array; None where some are anything else."""
    if not set(map(type, variances)) <= {int, float, np.float64}:
        return None
    try:
        found = np.array(variances, dtype=np.float64)
    except OverflowError:
        return None
    return found if ((found >= SMALLEST) | (found == 0)).all() else None


def checked_variances(variances: ArrayLike, what: str) -> Float:
    """A writable copy of variances.

    Raises
    ------
    ValueError
        If one is no number, negative, NaN or above 0 and below 1e-100; 0 is exact and ``inf`` not measured.
    """
    variances = np.array(real_array(variances, what))
    usable = variances >= 0
    if not usable.all():
        value = variances[~usable][0]
        word = "NaN" if np.isnan(value) else "negative"
        raise ValueError(f"{what} is {word} ({value}): give a number of 0 or more, or inf for a cell not measured")
    refuse_too_small(variances, what)
    return variances


def refuse_too_small(variances: Float, what: str, instead: str = "give 0 for what is known exactly") -> None:
    """Raise `ValueError` if a variance is above 0 and below 1e-100, where estimates would not be finite numbers."""
    small = variances[(variances > 0) & (variances < SMALLEST)]
    if small.size:
        raise ValueError(f"{what} is {small[0]:g}, below {SMALLEST:g}: {instead}")
