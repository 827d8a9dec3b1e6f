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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.extras import missing_extra

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

Floats: TypeAlias = NDArray[np.float64]
Seed: TypeAlias = np.random.Generator | np.random.SeedSequence | int | None

# Temporary arrays of this many values stay in a processor's cache.
_BLOCK = 1 << 15

# Beyond this, draws of a discrete law could leave the whole numbers that float64 holds exactly.
_LARGEST_DISCRETE_VARIANCE = 2.0**94


class Law(ABC):
    """A symmetric law of noise around zero, with one positive and finite parameter.

    Attributes
    ----------
    name : str
        What `law`, `draw` and ``Problem(noise=...)`` call it.
    discrete : bool
        Whether the noise is a whole number.
    """

    name: ClassVar[str]
    discrete: ClassVar[bool]

    @abstractmethod
    def __init__(self, parameter: float, /) -> None: ...

    @classmethod
    def from_variance(cls, variance: float) -> Self:
        """Return the law of this kind with the given variance.

        Parameters
        ----------
        variance : float
            The actual variance, positive and finite.

        Returns
        -------
        Self
            Its `variance` is the one given, to a few units in the last place.

        Raises
        ------
        ValueError
            If the variance is NaN, infinite, not positive, or too large for whole numbers in float64.
        """
        _check_positive(cls.name, "variance", variance)
        variances = np.array([variance], dtype=np.float64)
        _check_variances(cls, variances)
        return cls(float(cls._parameter_of(variances)[0]))

    @property
    @abstractmethod
    def variance(self) -> float:
        """The exact variance, in squared counts."""

    @staticmethod
    @abstractmethod
    def _parameter_of(variance: Floats) -> Floats:
        """Parameters with the given variances, elementwise; 0 where the variance is 0."""

    @property
    @abstractmethod
    def _parameter(self) -> float:
        """The one field."""

    @staticmethod
    @abstractmethod
    def _draw(parameter: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        """Independent draws of the given shape; the (rows, 1) parameters may include 0."""

    def sample(self, size: int, rng: Seed = None) -> NDArray[Any]:
        """Draw independent values for simulation (not for release).

        Parameters
        ----------
        size : int
            Number of values.
        rng : numpy.random.Generator, SeedSequence, int or None
            Source of randomness. The same seed gives the same values.

        Returns
        -------
        ndarray, shape (size,)
            int64 for a discrete law, float64 for a continuous one.
        """
        values: NDArray[Any] = np.empty(size, dtype=np.int64 if self.discrete else np.float64)
        _fill(type(self), np.array([self._parameter]), values[None, :], np.random.default_rng(rng))
        return values

    def release_sample(self, size: int) -> NDArray[Any]:
        """Draw independent values of release grade with OpenDP's exact samplers.

        The randomness is that of a cryptographic generator inside OpenDP: it takes no seed, and no two calls
        agree. The scale (sqrt(sigma2) for a Gaussian) is rounded to float64 and then used as an exact
        rational. A continuous law is drawn on the grid of multiples of 2^-1074 and rounded to float64; adding
        that to a float is not the mechanism that OpenDP proves private, so release the counts of a census
        with a discrete law.

        Parameters
        ----------
        size : int
            Number of values, about 10 microseconds each (a continuous law up to 50).

        Returns
        -------
        ndarray, shape (size,)
            int64 for a discrete law, float64 for a continuous one.

        Raises
        ------
        ImportError
            If OpenDP is not installed (extra ``release``).
        """
        values = np.zeros(size, dtype=np.int64 if self.discrete else np.float64)
        measurement = self._measurement()
        for block in _blocks(size, _BLOCK):
            values[block] = measurement(values[block])
        return values

    @abstractmethod
    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        """OpenDP's function that adds this noise to every entry of a vector."""


class ContinuousLaw(Law):
    """A law on the real line."""

    discrete: ClassVar[bool] = False

    @abstractmethod
    def logpdf(self, x: ArrayLike) -> Floats:
        """Return the log density at x, in the shape of x."""

    def pdf(self, x: ArrayLike) -> Floats:
        """Return the density at x, in the shape of x."""
        return np.exp(self.logpdf(x))


class DiscreteLaw(Law):
    """A law on the whole numbers."""

    discrete: ClassVar[bool] = True

    def logpmf(self, k: ArrayLike) -> Floats:
        """Return the log probability of k, in the shape of k; -inf where k is not a whole number."""
        k = np.asarray(k, dtype=np.float64)
        return np.where(k == np.floor(k), self._log_probability(k), -np.inf)

    def pmf(self, k: ArrayLike) -> Floats:
        """Return the probability of k, in the shape of k; 0 where k is not a whole number."""
        return np.exp(self.logpmf(k))

    @abstractmethod
    def _log_probability(self, k: Floats) -> Floats:
        """Log probability of whole numbers k."""


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
        _check_positive(self.name, "sigma2", self.sigma2)

    @property
    def variance(self) -> float:
        """The variance, sigma2."""
        return self.sigma2

    def logpdf(self, x: ArrayLike) -> Floats:
        """Return the log density at x, in the shape of x."""
        squares = np.square(np.asarray(x, dtype=np.float64))
        return -squares / (2 * self.sigma2) - math.log(2 * math.pi * self.sigma2) / 2

    @property
    def _parameter(self) -> float:
        return self.sigma2

    @staticmethod
    def _parameter_of(variance: Floats) -> Floats:
        return variance

    @staticmethod
    def _draw(parameter: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return np.sqrt(parameter) * rng.standard_normal(shape)

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return _opendp_measurement("gaussian", "f64", math.sqrt(self.sigma2))


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
        _check_positive(self.name, "sigma2", self.sigma2)
        _check_variances(type(self), np.array([self.sigma2]))

    @property
    def variance(self) -> float:
        """The exact variance: a theta series, summed directly or after Poisson summation."""
        return float(_theta_variance(np.array([self.sigma2]))[0])

    def _log_probability(self, k: Floats) -> Floats:
        log_theta = math.log1p(_theta_excess(np.array([self.sigma2]))[0])
        return -np.square(k) / (2 * self.sigma2) - log_theta

    @property
    def _parameter(self) -> float:
        return self.sigma2

    @staticmethod
    def _parameter_of(variance: Floats) -> Floats:
        return _theta_parameter(variance)

    @staticmethod
    def _draw(parameter: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        excess = _theta_excess(parameter)
        nonzero = excess / (1 + excess)
        uniform = rng.random(shape)
        drawn = uniform < nonzero
        negative = (uniform < nonzero / 2)[drawn]
        magnitude = _magnitudes(np.broadcast_to(parameter, shape)[drawn], rng)
        noise = np.zeros(shape)
        noise[drawn] = np.where(negative, -magnitude, magnitude)
        return noise

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return _opendp_measurement("gaussian", "i64", math.sqrt(self.sigma2))


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
        _check_positive(self.name, "scale", self.scale)

    @property
    def variance(self) -> float:
        """The variance, 2 scale^2."""
        return 2 * self.scale**2

    def logpdf(self, x: ArrayLike) -> Floats:
        """Return the log density at x, in the shape of x."""
        return -np.abs(np.asarray(x, dtype=np.float64)) / self.scale - math.log(2 * self.scale)

    @property
    def _parameter(self) -> float:
        return self.scale

    @staticmethod
    def _parameter_of(variance: Floats) -> Floats:
        return np.sqrt(variance / 2)

    @staticmethod
    def _draw(parameter: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        return parameter * (rng.standard_exponential(shape) - rng.standard_exponential(shape))

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return _opendp_measurement("laplace", "f64", self.scale)


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
        _check_positive(self.name, "scale", self.scale)
        _check_variances(type(self), np.array([2 * self.scale**2]))

    @property
    def variance(self) -> float:
        """The exact variance, 1 / (2 sinh(1 / (2 scale))^2)."""
        # Written with exp(-1/scale), which underflows where sinh would overflow.
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2

    def _log_probability(self, k: Floats) -> Floats:
        return -np.abs(k) / self.scale + math.log(math.tanh(0.5 / self.scale))

    @property
    def _parameter(self) -> float:
        return self.scale

    @staticmethod
    def _parameter_of(variance: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(0.5 / np.arcsinh(np.sqrt(0.5) / np.sqrt(variance)))

    @staticmethod
    def _draw(parameter: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        positive = np.floor(parameter * rng.standard_exponential(shape))
        return positive - np.floor(parameter * rng.standard_exponential(shape))

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        return _opendp_measurement("laplace", "i64", self.scale)


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


def draw(name: str, variance: ArrayLike, rng: Seed = None, columns: int | None = None) -> Floats:
    """Draw independent noise for cells of differing variances, for simulation (not for release).

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
    variance = np.asarray(variance, dtype=np.float64)
    _check_variances(kind, variance)
    cells = np.ravel(variance)
    replicates = 1 if columns is None else columns
    rng = np.random.default_rng(rng)
    noise = np.empty((cells.size, replicates))
    for rows in _blocks(cells.size, _BLOCK // max(replicates, 1)):
        _fill(kind, kind._parameter_of(cells[rows]), noise[rows], rng)
    return noise.reshape(variance.shape if columns is None else (*variance.shape, columns))


def _kind(name: str) -> type[Law]:
    if name not in LAWS:
        raise ValueError(f"law {name!r} is unknown: use one of {', '.join(map(repr, LAWS))}")
    return LAWS[name]


def _check_positive(name: str, what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: {what} is {value}: give a positive, finite number")


def _check_variances(kind: type[Law], variance: Floats) -> None:
    _refuse(kind, variance, np.isnan(variance), "give a number for every cell")
    _refuse(kind, variance, variance < 0, "a variance cannot be negative")
    _refuse(kind, variance, np.isposinf(variance), "leave out the cells that were not measured")
    if kind.discrete:
        too_large = variance > _LARGEST_DISCRETE_VARIANCE
        _refuse(kind, variance, too_large, "whole numbers so large are not exact in float64, use a continuous law")


def _refuse(kind: type[Law], variance: Floats, wrong: NDArray[np.bool_], advice: str) -> None:
    if wrong.any():
        first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        cell = f" of cell {tuple(map(int, first))}" if wrong.size > 1 else ""
        raise ValueError(f"{kind.name}: variance{cell} is {variance[first]}: {advice}")


def _blocks(size: int, length: int) -> Iterator[slice]:
    """Consecutive slices that cover range(size), each of the given length (at least 1) or less."""
    length = max(length, 1)
    return (slice(start, start + length) for start in range(0, size, length))


def _fill(kind: type[Law], parameter: Floats, noise: NDArray[Any], rng: np.random.Generator) -> None:
    """Fill noise (rows, columns) with draws, given the parameter (rows,) of every row."""
    for columns in _blocks(noise.shape[1], _BLOCK):
        part = noise[:, columns]
        part[...] = kind._draw(parameter[:, None], part.shape, rng)


# Theta series. With x = exp(-1 / (2 sigma2)) the discrete Gaussian has the normaliser theta = 1 + 2 x m0 and
# the variance 2 x m2 / theta, where m_p = sum over k >= 1 of k^p x^(k^2 - 1). From sigma2 = 1 on, Poisson
# summation gives the same with q = exp(-2 pi^2 sigma2) < 3e-9, of which one power is enough:
#
#     theta = sqrt(2 pi sigma2) (1 + 2 q),    variance = sigma2 - 8 pi^2 sigma2^2 q / (1 + 2 q).

_TERMS = 10


def _direct_sums(x: Floats) -> tuple[Floats, Floats, Floats]:
    """m0, m2 and m4 above, for sigma2 up to 1.1 (the first term left out is below 1e-20)."""
    power, ratio = np.ones_like(x), x
    m0, m2, m4 = np.ones_like(x), np.ones_like(x), np.ones_like(x)
    for k in range(2, _TERMS + 1):
        ratio = ratio * x**2
        power = power * ratio
        m0 += power
        m2 += k**2 * power
        m4 += k**4 * power
    return m0, m2, m4


def _dual_variance(sigma2: Floats) -> Floats:
    return sigma2 - _dual_deficit(sigma2)


def _dual_deficit(sigma2: Floats) -> Floats:
    """How much the variance falls short of sigma2, for sigma2 of at least 0.9."""
    q = np.exp(-2 * np.pi**2 * sigma2)
    return np.asarray(8 * np.pi**2 * sigma2**2 * q / (1 + 2 * q))


def _direct_variance(sigma2: Floats) -> Floats:
    x = _first_power(sigma2)
    m0, m2, _ = _direct_sums(x)
    return 2 * x * m2 / (1 + 2 * x * m0)


def _direct_excess(sigma2: Floats) -> Floats:
    x = _first_power(sigma2)
    return 2 * x * _direct_sums(x)[0]


def _dual_excess(sigma2: Floats) -> Floats:
    return np.asarray(np.sqrt(2 * np.pi * sigma2) * (1 + 2 * np.exp(-2 * np.pi**2 * sigma2)) - 1)


def _first_power(sigma2: Floats) -> Floats:
    with np.errstate(divide="ignore", over="ignore"):
        return np.exp(-0.5 / sigma2)


def _theta_variance(sigma2: Floats) -> Floats:
    """Variance of the discrete Gaussian, elementwise."""
    return np.piecewise(sigma2, [sigma2 < 1], [_direct_variance, _dual_variance])


def _theta_excess(sigma2: Floats) -> Floats:
    """Theta - 1, elementwise: the weight of all that is not zero, zero itself weighing 1."""
    return np.piecewise(sigma2, [sigma2 < 1], [_direct_excess, _dual_excess])


def _theta_parameter(variance: Floats) -> Floats:
    """sigma2 of the discrete Gaussian with the given variance, elementwise: inverts `_theta_variance`."""
    small = (variance > 0) & (variance < 0.99)
    middle = (variance >= 0.99) & (variance < 4)
    return np.piecewise(variance, [small, middle], [_solve_direct, _solve_dual, lambda large: large])


def _solve_dual(variance: Floats) -> Floats:
    """Fixed point of sigma2 = variance + deficit(sigma2): every step gains five digits."""
    sigma2 = variance
    for _ in range(3):
        sigma2 = variance + _dual_deficit(sigma2)
    return sigma2


def _solve_direct(variance: Floats) -> Floats:
    """Newton's method on log(variance) as a function of t = 1 / sigma2, which is convex and nearly linear."""
    log_variance = np.log(variance)
    t = np.where(variance < 0.3, 2 * (np.log(2 * (1 - np.minimum(variance, 0.3))) - log_variance), 1 / variance)
    for _ in range(6):
        x = np.exp(-t / 2)
        m0, m2, m4 = _direct_sums(x)
        theta = 1 + 2 * x * m0
        slope = (2 * x * m2 / theta - m4 / m2) / 2
        t -= (math.log(2) - t / 2 + np.log(m2 / theta) - log_variance) / slope
    return 1 / t


def _magnitudes(sigma2: Floats, rng: np.random.Generator) -> Floats:
    """Draw |k| of discrete Gaussians conditioned on k != 0, one for each parameter."""
    small = sigma2 < 1
    if not small.any():
        return _reject(sigma2, _propose_half_normal, rng)
    magnitude = np.empty_like(sigma2)
    magnitude[small] = _reject(sigma2[small], _propose_geometric, rng)
    magnitude[~small] = _reject(sigma2[~small], _propose_half_normal, rng)
    return magnitude


Proposal: TypeAlias = Callable[[Floats, np.random.Generator], tuple[Floats, Floats]]


def _reject(sigma2: Floats, propose: Proposal, rng: np.random.Generator) -> Floats:
    """Rejection sampling: a proposal k comes with its cost c and is accepted with probability exp(-c)."""
    magnitude, cost = propose(sigma2, rng)
    (pending,) = np.nonzero(rng.standard_exponential(sigma2.size) < cost)
    while pending.size:
        magnitude[pending], cost = propose(sigma2[pending], rng)
        pending = pending[rng.standard_exponential(pending.size) < cost]
    return magnitude


def _propose_half_normal(sigma2: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Propose the ceiling k of |x|, x normal; exp(-k^2 / 2 sigma2) = exp(-x^2 / 2 sigma2) exp(-cost)."""
    x = np.abs(rng.standard_normal(sigma2.size)) * np.sqrt(sigma2)
    k = np.ceil(x)
    return k, (k - x) * (k + x) / (2 * sigma2)


def _propose_geometric(sigma2: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Propose k, k - 1 geometric with ratio exp(-3 / 2 sigma2); k^2 = 1 + 3 (k - 1) + (k - 1)(k - 2)."""
    k = 1 + np.floor(rng.standard_exponential(sigma2.size) * (sigma2 / 1.5))
    return k, (k - 1) * (k - 2) / (2 * sigma2)


def _opendp_measurement(shape: str, atom: str, scale: float) -> Callable[[NDArray[Any]], list[float]]:
    """OpenDP's mechanism: shape "gaussian" or "laplace", atom "i64" (discrete) or "f64" (continuous)."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise missing_extra("release_sample needs OpenDP", "release") from error
    options = {} if atom == "i64" else {"nan": False}
    domain = dp.vector_domain(dp.atom_domain(T=atom, **options))
    with _contrib_enabled():
        if shape == "gaussian":
            return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        return dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale=scale)


@contextmanager
def _contrib_enabled() -> Iterator[None]:
    """OpenDP's feature "contrib", which its noise mechanisms ask for, left as it was found."""
    from opendp.mod import GLOBAL_FEATURES, disable_features, enable_features

    was_enabled = "contrib" in GLOBAL_FEATURES
    enable_features("contrib")
    try:
        yield
    finally:
        if not was_enabled:
            disable_features("contrib")
