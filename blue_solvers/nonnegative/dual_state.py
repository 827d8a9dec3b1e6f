"""Where Newton steps on the dual function stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float


@dataclass(frozen=True)
class State:
    """The dual function at some multipliers.

    Attributes
    ----------
    multipliers : ndarray, (m,)
    cells : ndarray, (d,)
    free : ndarray of bool, (d,)
        Cells off their bounds.
    residual : ndarray, (m,)
        M x - z: minus the gradient.
    slope : ndarray, (m,)
        How fast z moves with its multiplier.
    value : float
    rounding : float
        How far rounding may have moved `value`.
    """

    multipliers: Float
    cells: Float
    free: NDArray[np.bool_]
    residual: Float
    slope: Float
    value: float
    rounding: float

    @property
    def error(self) -> float:
        """Largest residual, in counts."""
        return float(abs(self.residual).max(initial=0.0))
