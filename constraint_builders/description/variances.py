"""Checking variances given by the user."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.description.reals import real_array


def checked_variances(variances: ArrayLike, what: str) -> NDArray[np.float64]:
    """A writable copy of variances.

    Raises
    ------
    ValueError
        If one is no number, negative or NaN; 0 is exact and ``inf`` not measured.
    """
    variances = np.array(real_array(variances, what))
    usable = variances >= 0
    if not usable.all():
        value = variances[~usable][0]
        word = "NaN" if np.isnan(value) else "negative"
        raise ValueError(f"{what} is {word} ({value}): give a number of 0 or more, or inf for a cell not measured")
    return variances
