"""The four laws: the normal and the double exponential one, and their cousins on the whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.reals import positive_number
from noise_mechanisms.laws.base_law import ContinuousLaw, DiscreteLaw, Family, Law, check_scale, points_of
from noise_mechanisms.opendp_samplers import opendp_measurement
from noise_mechanisms.theta import magnitudes, theta_excess, theta_parameter, theta_variance


@dataclass(frozen=True)
class GaussianNoise(Law):
    """Laws with the tails of the normal one, by their sigma2."""

    sigma2: float
    family: ClassVar[Family | None] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", positive_number(self.sigma2, f"{self.name}: sigma2"))
        check_scale(self, "sigma2", math.sqrt(self.sigma2))

    @property
    def by_proxy(self) -> float:
        """Sigma2 is the proxy of whole numbers too, as Canonne, Kamath and Steinke (2020) prove."""
        return min(1.0, self.variance / self.sigma2)

    @property
    def _parameter(self) -> float:
        return self.sigma2

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return opendp_measurement("gaussian", "i64" if self.discrete else "f64", math.sqrt(self.sigma2))


@dataclass(frozen=True)
class LaplaceNoise(Law):
    """Laws with the tails of the double exponential one, by their scale."""

    scale: float
    family: ClassVar[Family | None] = "laplace"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive_number(self.scale, f"{self.name}: scale"))
        check_scale(self, "scale", self.scale)

    @property
    def _parameter(self) -> float:
        return self.scale

    @property
    def excess_kurtosis(self) -> float:
        """3, and of whole numbers one by the variance more."""
        return 3.0 + self.discrete / self.variance

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return opendp_measurement("laplace", "i64" if self.discrete else "f64", self.scale)


@dataclass(frozen=True)
class Gaussian(GaussianNoise, ContinuousLaw):
    """The normal law.

    Parameters
    ----------
    sigma2 : float
        Its variance.
    """

    name: ClassVar[str] = "gaussian"

    @property
    def variance(self) -> float:
        """The variance, sigma2."""
        return self.sigma2

    def logpdf(self, x: ArrayLike) -> Float:
        """Return the log density at x, in the shape of x."""
        with np.errstate(over="ignore"):
            squares = np.square(points_of(x) / math.sqrt(self.sigma2))
        return -squares / 2 - (math.log(2 * math.pi) + math.log(self.sigma2)) / 2

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        """The variances themselves, in their shape."""
        return variance

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Normal values of the given shape."""
        return np.sqrt(parameter) * rng.standard_normal(shape)


@dataclass(frozen=True)
class DiscreteGaussian(GaussianNoise, DiscreteLaw):
    """The law on the whole numbers with probabilities proportional to exp(-k^2 / (2 sigma2)).

    Parameters
    ----------
    sigma2 : float
        The parameter. The variance is smaller: by 2.1e-7 of it at 1, by nothing that float64 shows from 3 on,
        and 0.0133 instead of 0.1 at 0.1.

    Notes
    -----
    The simulation sampler first decides whether a value is zero, whose probability is known exactly, and only then
    draws a magnitude by rejection: from the ceiling of a half-normal (sigma2 >= 1) or from a geometric law
    (sigma2 < 1). At most one proposal per value is expected, whatever sigma2 is.

    References
    ----------
    Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020.
    """

    name: ClassVar[str] = "discrete_gaussian"

    @property
    def variance(self) -> float:
        """The exact variance: a theta series, summed directly or after Poisson summation."""
        return float(theta_variance(np.array([self.sigma2]))[0])

    @property
    def excess_kurtosis(self) -> float:
        """Less than 1e-15 from sigma2 = 3 on, and one by the variance where that is small."""
        if self.sigma2 >= 3:
            return 0.0
        k = np.arange(-40.0, 41.0)
        second, fourth = (float(self.pmf(k) @ k**power) for power in (2, 4))
        return fourth / second / second - 3

    def _log_probability(self, k: Float) -> Float:
        """Log of exp(-k^2 / (2 sigma2)) / theta, in the shape of k."""
        return -np.square(k) / (2 * self.sigma2) - math.log1p(theta_excess(np.array([self.sigma2]))[0])

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        """By `theta_parameter`, in the shape of the variances."""
        return theta_parameter(variance)

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Zero or not first, then magnitudes and signs, of the given shape."""
        excess = theta_excess(parameter)
        nonzero = excess / (1 + excess)
        uniform = rng.random(shape)
        drawn = uniform < nonzero
        negative = (uniform < nonzero / 2)[drawn]
        magnitude = magnitudes(np.broadcast_to(parameter, shape)[drawn], rng)
        noise = np.zeros(shape)
        noise[drawn] = np.where(negative, -magnitude, magnitude)
        return noise


@dataclass(frozen=True)
class Laplace(LaplaceNoise, ContinuousLaw):
    """The double exponential law with density proportional to exp(-|x| / scale).

    Parameters
    ----------
    scale : float
        Its mean absolute value. The variance is 2 scale^2.
    """

    name: ClassVar[str] = "laplace"

    @property
    def variance(self) -> float:
        """The variance, 2 scale^2."""
        return 2 * self.scale * self.scale

    def logpdf(self, x: ArrayLike) -> Float:
        """Return the log density at x, in the shape of x."""
        with np.errstate(over="ignore"):
            return -np.abs(points_of(x)) / self.scale - math.log(2 * self.scale)

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        """Scales, whose squares are half the variances, in their shape."""
        return np.sqrt(variance / 2)

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Differences of two exponential values, of the given shape."""
        return parameter * (rng.standard_exponential(shape) - rng.standard_exponential(shape))


@dataclass(frozen=True)
class DiscreteLaplace(LaplaceNoise, DiscreteLaw):
    """The law on the whole numbers with probabilities proportional to exp(-|k| / scale): two-sided geometric.

    Parameters
    ----------
    scale : float
        The parameter. The variance is 1 / (2 sinh(1 / (2 scale))^2), always less than 2 scale^2.

    Notes
    -----
    The simulation sampler is the difference of two geometric variables, each the floor of an exponential one.
    """

    name: ClassVar[str] = "discrete_laplace"

    @property
    def variance(self) -> float:
        """The exact variance, 1 / (2 sinh(1 / (2 scale))^2)."""
        # By exp(-1 / (2 scale)): sinh would overflow, and its square is rounded once where it is subnormal.
        half = math.exp(-0.5 / self.scale) / math.expm1(-1 / self.scale)
        return 2 * half * half

    def _log_probability(self, k: Float) -> Float:
        """Log of exp(-|k| / scale) tanh(1 / (2 scale)), in the shape of k."""
        return -np.abs(k) / self.scale + math.log(math.tanh(0.5 / self.scale))

    @staticmethod
    def _parameter_of(variance: Float) -> Float:
        """Scales in closed form, in the shape of the variances."""
        with np.errstate(divide="ignore"):
            return np.asarray(0.5 / np.arcsinh(np.sqrt(0.5) / np.sqrt(variance)))

    @staticmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Differences of two geometric values, of the given shape."""
        positive = np.floor(parameter * rng.standard_exponential(shape))
        return positive - np.floor(parameter * rng.standard_exponential(shape))
