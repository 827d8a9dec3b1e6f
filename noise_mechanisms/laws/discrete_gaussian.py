"""The normal law restricted to whole numbers.

References
----------
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
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
from noise_mechanisms.drawing import magnitudes
from noise_mechanisms.opendp_samplers import opendp_measurement
from noise_mechanisms.theta import theta_excess, theta_parameter, theta_variance


@dataclass(frozen=True)
class DiscreteGaussian(DiscreteLaw):
    """The law on the whole numbers with probabilities proportional to exp(-k^2 / (2 sigma2)).

    Parameters
    ----------
    sigma2 : float
        The parameter. The variance is smaller: by 2.1e-7 of it at 1, by nothing that float64 shows from 3 on,
        and 0.0134 instead of 0.1 at 0.1.

    Notes ----- The simulation sampler first decides whether a value is zero, whose probability is known
    exactly, and only then draws a magnitude by rejection: from the ceiling of a half-normal (sigma2 >= 1) or
    from a geometric law (sigma2 < 1). At most one proposal per value is expected, whatever sigma2 is.
    """

    sigma2: float
    name: ClassVar[str] = "discrete_gaussian"
    family: ClassVar[Family | None] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", positive_number(self.sigma2, f"{self.name}: sigma2"))
        check_scale(self, "sigma2", math.sqrt(self.sigma2))

    @property
    def variance(self) -> float:
        """The exact variance: a theta series, summed directly or after Poisson summation."""
        return float(theta_variance(np.array([self.sigma2]))[0])

    def _log_probability(self, k: Float) -> Float:
        log_theta = math.log1p(theta_excess(np.array([self.sigma2]))[0])
        return -np.square(k) / (2 * self.sigma2) - log_theta

    @property
    def _parameter(self) -> float:
        return self.sigma2

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        return theta_parameter(variance)

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        excess = theta_excess(parameter)
        nonzero = excess / (1 + excess)
        uniform = rng.random(shape)
        drawn = uniform < nonzero
        negative = (uniform < nonzero / 2)[drawn]
        magnitude = magnitudes(np.broadcast_to(parameter, shape)[drawn], rng)
        noise = np.zeros(shape)
        noise[drawn] = np.where(negative, -magnitude, magnitude)
        return noise

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return opendp_measurement("gaussian", "i64", math.sqrt(self.sigma2))
