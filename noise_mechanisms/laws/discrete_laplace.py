"""The two-sided geometric law.

References
----------
Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.reals import positive_number
from noise_mechanisms.base_law import DiscreteLaw, Family, check_scale
from noise_mechanisms.opendp_samplers import opendp_measurement


@dataclass(frozen=True)
class DiscreteLaplace(DiscreteLaw):
    """The law on the whole numbers with probabilities proportional to exp(-|k| / scale): two-sided geometric.

    Parameters
    ----------
    scale : float
        The parameter. The variance is 1 / (2 sinh(1 / (2 scale))^2), always less than 2 scale^2.

    Notes
    -----
    The simulation sampler is the difference of two geometric variables, each the floor of an exponential one.
    """

    scale: float
    name: ClassVar[str] = "discrete_laplace"
    family: ClassVar[Family | None] = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive_number(self.scale, f"{self.name}: scale"))
        check_scale(self, "scale", self.scale)

    @property
    def variance(self) -> float:
        """The exact variance, 1 / (2 sinh(1 / (2 scale))^2)."""
        # Written with exp(-1/scale), which underflows where sinh would overflow.
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def _log_probability(self, k: Float) -> Float:
        return -np.abs(k) / self.scale + math.log(math.tanh(0.5 / self.scale))

    @property
    def _parameter(self) -> float:
        return self.scale

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        with np.errstate(divide="ignore"):
            return np.asarray(0.5 / np.arcsinh(np.sqrt(0.5) / np.sqrt(variance)))

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        positive = np.floor(parameter * rng.standard_exponential(shape))
        return positive - np.floor(parameter * rng.standard_exponential(shape))

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return opendp_measurement("laplace", "i64", self.scale)
