"""What a law of noise is: one of a parameter, continuous or on the whole numbers.

Here are the limits of what float64 holds, and drawing block by block.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.noise import NoiseLaw
from constraint_builders.description.reals import positive_number, random_generator, real_array, whole_number
from constraint_builders.memory import require_memory

Family = Literal["gaussian", "laplace"]
Seed: TypeAlias = np.random.Generator | np.random.SeedSequence | int | None

# Beyond this, draws of a discrete law could leave the whole numbers that float64 holds exactly.
LARGEST_SCALE = 2.0**47
LARGEST_WHOLE = 2.0**53  # beyond which float64 does not hold all whole numbers
_LARGEST_VARIANCE = LARGEST_SCALE**2
TOO_LARGE = "whole numbers so large are not exact in float64"
Draw: TypeAlias = Callable[[Float, tuple[int, int], np.random.Generator], Float]

BLOCK = 1 << 15  # values of temporary arrays, which stay in a processor's cache


class Law(NoiseLaw):
    """A law of noise, with one positive and finite parameter; around zero, but where it has another `mean`.

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

    @property
    def step(self) -> float:
        """Of which all noise is whole multiples; 0 where it is a real number."""
        return float(self.discrete)

    @property
    def fixed(self) -> float | None:
        """The figure that is published without noise, less the mean."""
        return None

    @staticmethod
    @abstractmethod
    def _parameter_of(variance: Float) -> Float:
        """Parameters with the given variances, in their shape; 0 where the variance is 0."""

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
        fill(self._draw, np.array([self._parameter]), values[None, :], random_generator(rng))
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
        """Return the log density at x, in the shape of x.

        Parameters
        ----------
        x : array_like, (...)

        Returns
        -------
        ndarray, (...)
        """

    def pdf(self, x: ArrayLike) -> Float:
        """Return the density at x, in the shape of x.

        Parameters
        ----------
        x : array_like, (...)

        Returns
        -------
        ndarray, (...)
        """
        return np.exp(self.logpdf(x))


class DiscreteLaw(Law):
    """A law on the whole numbers."""

    discrete: ClassVar[bool] = True

    def logpmf(self, k: ArrayLike) -> Float:
        """Return the log probability of k, in the shape of k; -inf where k is not a whole number.

        Parameters
        ----------
        k : array_like, (...)

        Returns
        -------
        ndarray, (...)
        """
        k = points_of(k)
        with np.errstate(over="ignore"):
            return np.where(k == np.floor(k), self._log_probability(k), -np.inf)

    def pmf(self, k: ArrayLike) -> Float:
        """Return the probability of k, in the shape of k; 0 where k is not a whole number.

        Parameters
        ----------
        k : array_like, (...)

        Returns
        -------
        ndarray, (...)
        """
        return np.exp(self.logpmf(k))

    @abstractmethod
    def _log_probability(self, k: Float) -> Float:
        """Log probability of whole numbers k, in the shape of k."""


def points_of(x: ArrayLike) -> Float:
    """Where a law is evaluated, in the shape of x."""
    points = real_array(x, "the points of evaluation")
    if np.isnan(points).any():
        raise ValueError("the points of evaluation hold NaN: give numbers")
    return points


def check_scale(law: Law, what: str, scale: float) -> None:
    """Refuse a law that spreads too far, or too little, for float64."""
    if law.discrete and scale > LARGEST_SCALE:
        raise ValueError(f"{law.name}: {what} is {law._parameter}: {TOO_LARGE}, use a continuous law")
    if math.isinf(law.variance):
        raise ValueError(f"{law.name}: {what} is {law._parameter}: its variance is too large for a float, give less")
    if not law.variance and not law.discrete:
        raise ValueError(f"{law.name}: {what} is {law._parameter}: its variance is too small for a float, though not 0")


def check_variances(kind: type[Law], variance: Float) -> None:
    """Refuse variances, (...), that are NaN, negative or infinite, or too large for whole numbers in float64."""
    _refuse(kind, variance, np.isnan(variance), "give a number for every cell")
    _refuse(kind, variance, variance < 0, "a variance cannot be negative")
    _refuse(kind, variance, np.isposinf(variance), "leave out the cells that were not measured")
    if kind.discrete:
        _refuse(kind, variance, variance > _LARGEST_VARIANCE, f"{TOO_LARGE}, use a continuous law")


def _refuse(kind: type[Law], variance: Float, wrong: NDArray[np.bool_], advice: str) -> None:
    """Refuse the first variance that is wrong, of flags in the shape of the variances."""
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
