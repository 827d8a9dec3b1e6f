"""The laws of the noise: discrete Gaussian, discrete Laplace and their continuous cousins.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.noise_laws import NOISE_LAWS
from constraint_builders.description.reals import positive_number, real_array, shown, whole_number
from constraint_builders.memory import require_memory
from noise_mechanisms.opendp_samplers import opendp_measurement
from noise_mechanisms.theta import magnitudes, theta_excess, theta_parameter, theta_variance

__all__ = [
    "LAWS",
    "ContinuousLaw",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DiscreteLaw",
    "Gaussian",
    "Laplace",
    "Law",
    "add_law",
    "draw",
    "kind_of",
    "law",
    "release",
    "variance_of",
]

Family = Literal["gaussian", "laplace"]
Seed: TypeAlias = np.random.Generator | np.random.SeedSequence | int | None

# Beyond this, draws of a discrete law could leave the whole numbers that float64 holds exactly.
LARGEST_SCALE = 2.0**47
_LARGEST_VARIANCE = LARGEST_SCALE**2
TOO_LARGE = "whole numbers so large are not exact in float64"
Draw: TypeAlias = Callable[[Float, tuple[int, int], np.random.Generator], Float]

BLOCK = 1 << 15  # values of temporary arrays, which stay in a processor's cache


class Law(ABC):
    """A symmetric law of noise around zero, with one positive and finite parameter.

    The parameter may be of any kind of real number, `Fraction` and numpy's scalars included, and is kept as a float.

    Attributes
    ----------
    name : str
        What `law`, `draw` and ``Problem(noise=...)`` call it.
    discrete : bool
        Whether the noise is a whole number.
    family : {"gaussian", "laplace"} or None
        Whose tails it has: by them privacy budgets are spent, zCDP by Gaussian and pure DP by Laplace noise, and
        reweighted fits tell large noise. Of a Gaussian law the parameter is the square of the scale.
    """

    name: ClassVar[str]
    discrete: ClassVar[bool]
    family: ClassVar[Family | None] = None

    @abstractmethod
    def __init__(self, parameter: float | Fraction, /) -> None: ...

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
            If the variance is no number, NaN, infinite, not positive, or too large for whole numbers in float64.
        """
        variances = np.array([positive_number(variance, f"{cls.name}: variance")])
        check_variances(cls, variances)
        return cls(float(cls._parameter_of(variances)[0]))

    @property
    @abstractmethod
    def variance(self) -> float:
        """The exact variance, in squared counts."""

    @staticmethod
    @abstractmethod
    def _parameter_of(variance: Float) -> Float:
        """Parameters with the given variances, elementwise; 0 where the variance is 0."""

    @property
    @abstractmethod
    def _parameter(self) -> float:
        """The one field."""

    @staticmethod
    @abstractmethod
    def _draw(parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Independent draws of the given shape; the (rows, 1) parameters may include 0."""

    def sample(self, size: int, rng: Seed = None) -> NDArray[Any]:
        """Draw independent values, simulation only: seeded and in floating point, they protect nobody.

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
        values = self._room_for(size)
        fill(self._draw, np.array([self._parameter]), values[None, :], np.random.default_rng(rng))
        return values

    def release_sample(self, size: int) -> NDArray[Any]:
        """Draw independent values of release grade with OpenDP's exact samplers.

        The randomness is that of a cryptographic generator inside OpenDP: it takes no seed, and no two calls
        agree. The scale (sqrt(sigma2) for a Gaussian) is rounded to float64 and then used as an exact
        rational. A continuous law is drawn on the grid of multiples of 2^-1074 and rounded to float64; adding
        that to a float is not the mechanism that OpenDP proves private, which is `release`.

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
            If OpenDP is not installed (extra ``release``), or older than 0.14.2: its samplers were biased.
        """
        return self.release(self._room_for(size))

    def release(self, values: ArrayLike) -> NDArray[Any]:
        """Add noise of release grade to confidential values: OpenDP's mechanism itself, whose sum is private too.

        Parameters
        ----------
        values : array_like, (n,)
            For a discrete law whole numbers of at most 2^62.

        Returns
        -------
        ndarray, (n,)
            int64 for a discrete law, float64 for a continuous one.

        Raises
        ------
        ImportError
            If OpenDP is not installed (extra ``release``), or older than 0.14.2: its samplers were biased.
        ValueError
            If a value is not finite or, for a discrete law, not whole or too large.
        """
        given = np.asarray(values)
        if given.dtype != np.int64 or not self.discrete:
            given = real_array(values, "values")
        if given.ndim != 1:
            raise ValueError(f"values are released as a vector: got the shape {given.shape}")
        wrong = ~np.isfinite(given)
        if self.discrete:
            wrong |= (given != np.rint(given)) | (abs(given) > 2.0**62)
        if wrong.any():
            needed = "whole numbers of at most 2^62" if self.discrete else "finite numbers"
            raise ValueError(f"values hold {given[wrong][0]}: noise of the law {self.name!r} is added to {needed}")
        measurement = self._measurement()
        released = given.astype(np.int64 if self.discrete else np.float64)
        for block in blocks(released.size, BLOCK):
            released[block] = measurement(released[block])
        return released

    def _room_for(self, size: int) -> NDArray[Any]:
        """Zeros for so many draws, refused where they would not fit in memory."""
        count = whole_number(size, f"{self.name}: size", 0)
        require_memory(8.0 * count, f"an array of {count:,} draws", "draw fewer at a time")
        return np.zeros(count, dtype=np.int64 if self.discrete else np.float64)

    @abstractmethod
    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        """OpenDP's function that adds this noise to every entry of a vector."""


class ContinuousLaw(Law):
    """A law on the real line."""

    discrete: ClassVar[bool] = False

    @abstractmethod
    def logpdf(self, x: ArrayLike) -> Float:
        """Return the log density at x, in the shape of x."""

    def pdf(self, x: ArrayLike) -> Float:
        """Return the density at x, in the shape of x."""
        return np.exp(self.logpdf(x))


class DiscreteLaw(Law):
    """A law on the whole numbers."""

    discrete: ClassVar[bool] = True

    def logpmf(self, k: ArrayLike) -> Float:
        """Return the log probability of k, in the shape of k; -inf where k is not a whole number."""
        k = points_of(k)
        with np.errstate(over="ignore"):
            return np.where(k == np.floor(k), self._log_probability(k), -np.inf)

    def pmf(self, k: ArrayLike) -> Float:
        """Return the probability of k, in the shape of k; 0 where k is not a whole number."""
        return np.exp(self.logpmf(k))

    @abstractmethod
    def _log_probability(self, k: Float) -> Float:
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


def points_of(x: ArrayLike) -> Float:
    """Where a law is evaluated."""
    points = real_array(x, "the points of evaluation")
    if np.isnan(points).any():
        raise ValueError("the points of evaluation hold NaN: give numbers")
    return points


def check_scale(law: Law, what: str, scale: float) -> None:
    """Refuse a law that spreads too far for float64."""
    if law.discrete and scale > LARGEST_SCALE:
        raise ValueError(f"{law.name}: {what} is {law._parameter}: {TOO_LARGE}, use a continuous law")
    if math.isinf(law.variance):
        raise ValueError(f"{law.name}: {what} is {law._parameter}: its variance is too large for a float, give less")


def check_variances(kind: type[Law], variance: Float) -> None:
    _refuse(kind, variance, np.isnan(variance), "give a number for every cell")
    _refuse(kind, variance, variance < 0, "a variance cannot be negative")
    _refuse(kind, variance, np.isposinf(variance), "leave out the cells that were not measured")
    if kind.discrete:
        too_large = variance > _LARGEST_VARIANCE
        _refuse(kind, variance, too_large, f"{TOO_LARGE}, use a continuous law")


def _refuse(kind: type[Law], variance: Float, wrong: NDArray[np.bool_], advice: str) -> None:
    if wrong.any():
        first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        cell = f" of cell {tuple(map(int, first))}" if wrong.size > 1 else ""
        raise ValueError(f"{kind.name}: variance{cell} is {variance[first]}: {advice}")


def blocks(size: int, length: int) -> Iterator[slice]:
    """Consecutive slices that cover range(size), each of the given length (at least 1) or less."""
    length = max(length, 1)
    return (slice(start, start + length) for start in range(0, size, length))


def fill(draw: Draw, parameter: Float, noise: NDArray[Any], rng: np.random.Generator) -> None:
    """Fill noise (rows, columns) with draws of a law, given its parameter (rows,) in every row."""
    for columns in blocks(noise.shape[1], BLOCK):
        part = noise[:, columns]
        part[...] = draw(parameter[:, None], part.shape, rng)


def kind_of(name: str) -> type[Law]:
    """The class of the law of a name.

    Raises
    ------
    ValueError
        If there is no law of that name.
    """
    if not isinstance(name, str) or name not in NOISE_LAWS:
        raise ValueError(f"law {shown(name)} is unknown: use one of {', '.join(map(repr, NOISE_LAWS))}")
    return _class_at(NOISE_LAWS[name])


class _Laws(Mapping[str, type[Law]]):
    """All laws by name, those that were added included."""

    def __getitem__(self, name: str) -> type[Law]:
        if name not in NOISE_LAWS:
            raise KeyError(name)
        return kind_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(NOISE_LAWS)

    def __len__(self) -> int:
        return len(NOISE_LAWS)

    def __repr__(self) -> str:
        return f"LAWS({', '.join(self)})"


LAWS: Mapping[str, type[Law]] = _Laws()


def add_law(kind: type[Law]) -> None:
    """Make a law known by its name, everywhere that a name of a law is taken.

    Parameters
    ----------
    kind : type
        A subclass of `ContinuousLaw` or `DiscreteLaw` at the top of a module; another process has to add it again.

    Raises
    ------
    TypeError
        If it is no such class, or lacks a method.
    ValueError
        If it is not at the top of a module, has no name, or another law has its name.
    """
    if not (isinstance(kind, type) and issubclass(kind, Law)):
        raise TypeError(f"a law is a subclass of ContinuousLaw or DiscreteLaw: got {shown(kind)}")
    missing = sorted(kind.__abstractmethods__)
    if missing:
        raise TypeError(f"law {kind.__qualname__} lacks {', '.join(missing)}: define them")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"law {kind.__qualname__} has no name: give the class a text as its attribute name")
    place = f"{kind.__module__}:{kind.__qualname__}"
    if NOISE_LAWS.get(name, place) != place:
        raise ValueError(f"the name {name!r} is that of {NOISE_LAWS[name]}: give {kind.__qualname__} another")
    if "<locals>" in place:
        raise ValueError(f"law {name!r} is defined inside a function: define it at the top of a module")
    NOISE_LAWS[name] = place


def _class_at(place: str) -> type[Law]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def law(name: str, variance: float) -> Law:
    """Return the named law with the given variance.

    Parameters
    ----------
    name : str
        The kind of noise, a name in `LAWS`.
    variance : float
        The actual variance, positive and finite; see the module for the difference from a parameter.

    Returns
    -------
    Law

    Raises
    ------
    ValueError
        If there is no law of that name, or the variance not positive and finite.

    Examples
    --------
    >>> law("discrete_gaussian", 4.0)
    DiscreteGaussian(sigma2=4.0)
    """
    return kind_of(name).from_variance(variance)


def variance_of(name: str, scale: float) -> float:
    """The variance of a mechanism's noise from the scale that it was run with, as `Problem` takes it.

    Parameters
    ----------
    name : str
        The kind of noise, a name in `LAWS`.
    scale : float
        Of Gaussian noise sigma, the root of the parameter sigma2; of Laplace noise the scale b, sensitivity / epsilon;
        of any other the parameter of its law.

    Returns
    -------
    float
        In squared counts. Of discrete Gaussian noise it is less than sigma2, of Laplace noise about 2 b^2.

    Raises
    ------
    ValueError
        If there is no law of that name, or the scale not positive and finite.

    Examples
    --------
    >>> variance_of("laplace", 2.0), round(variance_of("discrete_gaussian", 0.5), 3), variance_of("gaussian", 3.0)
    (8.0, 0.215, 9.0)
    """
    kind, number = kind_of(name), positive_number(scale, f"{name}: scale")
    if kind.family == "gaussian":
        number = positive_number(number**2, f"{name}: the square of scale")
    return kind(number).variance


def draw(name: str, variance: ArrayLike, rng: Seed = None, columns: int | None = None) -> Float:
    """Draw independent noise for cells of differing variances, simulation only: it protects nobody.

    Parameters
    ----------
    name : str
        The kind of noise, a name in `LAWS`.
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
        If there is no law of that name, or a variance is NaN, infinite, negative, or too large for a
        discrete law.
    """
    kind = kind_of(name)
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


def release(name: str, variance: ArrayLike, values: ArrayLike) -> Float:
    """Values with noise of release grade, one draw for every cell, each of its own variance; for publication.

    Parameters
    ----------
    name : str
        The kind of noise, a name in `LAWS`.
    variance : array_like, any shape
        Actual variance of every cell, finite and not negative. A cell of variance 0 stays as it is.
    values : array_like, of the same shape
        Confidential; see `Law.release`.

    Returns
    -------
    ndarray of float64, shape variance.shape
        Cells of one variance go to OpenDP together, about 10 microseconds each; every further variance costs about 0.2
        ms.

    Raises
    ------
    ImportError
        If OpenDP is not installed (extra ``release``), or older than 0.14.2: its samplers were biased.
    ValueError
        If there is no law of that name; a variance is NaN, infinite, negative or too large for a discrete law; the
        values have another shape, or are not what `Law.release` takes.
    """
    kind = kind_of(name)
    variance, confidential = real_array(variance, f"{name}: variance"), real_array(values, "values")
    if confidential.shape != variance.shape:
        raise ValueError(f"values must have the shape {variance.shape} of the variances: got {confidential.shape}")
    check_variances(kind, variance)
    cells, released = confidential.ravel(), confidential.ravel().copy()
    distinct, place = np.unique(variance.ravel(), return_inverse=True)
    order = np.argsort(place.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(place.ravel(), minlength=distinct.size))
    for value, end, start in zip(distinct.tolist(), ends, [0, *ends[:-1]], strict=True):
        if value:
            group = order[start:end]
            released[group] = kind.from_variance(value).release(cells[group])
    return released.reshape(variance.shape)
