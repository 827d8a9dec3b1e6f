"""The double exponential law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.reals import positive_number
from noise_mechanisms.base_law import ContinuousLaw, Family, check_scale, points_of
from noise_mechanisms.opendp_samplers import opendp_measurement


@dataclass(frozen=True)
class Laplace(ContinuousLaw):
    """The double exponential law with density proportional to exp(-|x| / scale).

    Parameters
    ----------
    scale : float
        Its mean absolute value. The variance is 2 scale^2.
    """

    scale: float
    name: ClassVar[str] = "laplace"
    family: ClassVar[Family | None] = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive_number(self.scale, f"{self.name}: scale"))
        check_scale(self, "scale", self.scale)

    @property
    def variance(self) -> float:
        """The variance, 2 scale^2."""
        return 2 * self.scale * self.scale

    def logpdf(self, x: ArrayLike) -> Float:
        """Return the log density at x, in the shape of x."""
        with np.errstate(over="ignore"):
            return -np.abs(points_of(x)) / self.scale - math.log(2 * self.scale)

    @property
    def _parameter(self) -> float:
        return self.scale

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        return np.sqrt(variance / 2)

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        return parameter * (rng.standard_exponential(shape) - rng.standard_exponential(shape))

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return opendp_measurement("laplace", "f64", self.scale)
