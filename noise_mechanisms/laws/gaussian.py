"""The normal law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.reals import positive_number
from noise_mechanisms.base_law import ContinuousLaw, Family, points_of
from noise_mechanisms.opendp_samplers import opendp_measurement


@dataclass(frozen=True)
class Gaussian(ContinuousLaw):
    """The normal law.

    Parameters
    ----------
    sigma2 : float
        Its variance.
    """

    sigma2: float
    name: ClassVar[str] = "gaussian"
    family: ClassVar[Family | None] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", positive_number(self.sigma2, f"{self.name}: sigma2"))

    @property
    def variance(self) -> float:
        """The variance, sigma2."""
        return self.sigma2

    def logpdf(self, x: ArrayLike) -> Float:
        """Return the log density at x, in the shape of x."""
        with np.errstate(over="ignore"):
            squares = np.square(points_of(x) / math.sqrt(self.sigma2))
        return -squares / 2 - (math.log(2 * math.pi) + math.log(self.sigma2)) / 2

    @property
    def _parameter(self) -> float:
        return self.sigma2

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        return variance

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        return np.sqrt(parameter) * rng.standard_normal(shape)

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return opendp_measurement("gaussian", "f64", math.sqrt(self.sigma2))
