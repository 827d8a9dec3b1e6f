"""Checking variances given by the user."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def checked_variances(variances: NDArray, what: str) -> NDArray[np.float64]:
    """A writable copy of variances.

    Raises
    ------
    ValueError
        If one is negative or NaN; 0 is exact and ``inf`` not measured.
    """
    variances = np.array(variances, dtype=np.float64)
    usable = variances >= 0
    if not usable.all():
        value = variances[~usable][0]
        word = "NaN" if np.isnan(value) else "negative"
        raise ValueError(f"{what} is {word} ({value}): give a number of 0 or more, or inf for a cell not measured")
    return variances
