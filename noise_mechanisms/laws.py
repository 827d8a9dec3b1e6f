"""The four laws of the noise: discrete Gaussian, discrete Laplace and their continuous cousins.

A law is a frozen dataclass of its one parameter. The number that the rest of the project calls *variance* is
always the actual variance: ``law("discrete_gaussian", 0.25)`` solves for the parameter that gives variance
0.25. Published sigma^2 of a discrete Gaussian are parameters, ``DiscreteGaussian(sigma2=0.25)``; the two
differ by 2.1e-7 (relative) at sigma^2 = 1 and by less than a rounding error from sigma^2 = 3 on.

Draws come in two grades. `Law.sample` and `draw` are for simulation: vectorised, seeded, exact up to the
rounding of float64, 0.01 to 0.2 microseconds a value, and never to be used to protect anybody.
`Law.release_sample` is release grade: OpenDP's exact samplers, about 10 microseconds a value, without a seed.

References
----------
Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.reals import positive_number, real_array, shown, whole_number
from constraint_builders.memory import require_memory
from noise_mechanisms.base_law import ContinuousLaw, DiscreteLaw, Law, Seed, check_scale, check_variances, points_of
from noise_mechanisms.drawing import BLOCK, blocks, fill, magnitudes
from noise_mechanisms.opendp_samplers import opendp_measurement
from noise_mechanisms.theta import theta_excess, theta_parameter, theta_variance

__all__ = [
    "LAWS",
    "ContinuousLaw",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscreteLaw",
    "Gaussian",
    "Laplace",
    "Law",
    "draw",
    "law",
]


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


LAWS: dict[str, type[Law]] = {kind.name: kind for kind in (Gaussian, DiscreteGaussian, Laplace, DiscreteLaplace)}


def law(name: str, variance: float) -> Law:
    """Return the named law with the given variance.

    Parameters
    ----------
    name : {"gaussian", "discrete_gaussian", "laplace", "discrete_laplace"}
        The kind of noise.
    variance : float
        The actual variance, positive and finite; see the module for the difference from a parameter.

    Returns
    -------
    Law

    Raises
    ------
    ValueError
        If the name is not one of the four, or the variance not positive and finite.

    Examples
    --------
    >>> law("discrete_gaussian", 4.0)
    DiscreteGaussian(sigma2=4.0)
    """
    return _kind(name).from_variance(variance)


def variance_of(name: str, scale: float) -> float:
    """The variance of a mechanism's noise from the scale that it was run with, as `Problem` takes it.

    Parameters
    ----------
    name : {"gaussian", "discrete_gaussian", "laplace", "discrete_laplace"}
        The kind of noise.
    scale : float
        Of Gaussian noise sigma, the root of the parameter sigma2; of Laplace noise the scale b, sensitivity / epsilon.

    Returns
    -------
    float
        In squared counts. Of discrete Gaussian noise it is less than sigma2, of Laplace noise about 2 b^2.

    Raises
    ------
    ValueError
        If the name is not one of the four, or the scale not positive and finite.

    Examples
    --------
    >>> variance_of("laplace", 2.0), round(variance_of("discrete_laplace", 2.0), 3), variance_of("gaussian", 3.0)
    (8.0, 7.835, 9.0)
    """
    kind, number = _kind(name), positive_number(scale, f"{name}: scale")
    if kind in (Gaussian, DiscreteGaussian):
        number = positive_number(number**2, f"{name}: the square of scale")
    return kind(number).variance


def draw(name: str, variance: ArrayLike, rng: Seed = None, columns: int | None = None) -> Float:
    """Draw independent noise for cells of differing variances, simulation only: it protects nobody.

    Parameters
    ----------
    name : {"gaussian", "discrete_gaussian", "laplace", "discrete_laplace"}
        The kind of noise.
    variance : array_like, any shape
        Actual variance of every cell, finite and not negative. Variance 0 gives noise 0.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness. The same seed, variances and columns give the same noise.
    columns : int, optional
        Number K of independent replicates of all cells. None draws one, without the trailing axis.

    Returns
    -------
    ndarray of float64, shape variance.shape, or variance.shape + (K,)
        Whole numbers for a discrete law. Memory beyond this array is a few megabytes.

    Raises
    ------
    ValueError
        If the name is not one of the four, or a variance is NaN, infinite, negative, or too large for a
        discrete law.
    """
    kind = _kind(name)
    variance = real_array(variance, f"{name}: variance")
    check_variances(kind, variance)
    cells = np.ravel(variance)
    replicates = 1 if columns is None else whole_number(columns, f"{name}: columns", 0)
    require_memory(8.0 * cells.size * replicates, f"noise of {cells.size:,} x {replicates:,} cells", "draw fewer")
    rng = np.random.default_rng(rng)
    noise = np.empty((cells.size, replicates))
    for rows in blocks(cells.size, BLOCK // max(replicates, 1)):
        fill(kind._draw, kind._parameter_of(cells[rows]), noise[rows], rng)
    return noise.reshape(variance.shape if columns is None else (*variance.shape, columns))


def _kind(name: str) -> type[Law]:
    if not isinstance(name, str) or name not in LAWS:
        raise ValueError(f"law {shown(name)} is unknown: use one of {', '.join(map(repr, LAWS))}")
    return LAWS[name]
