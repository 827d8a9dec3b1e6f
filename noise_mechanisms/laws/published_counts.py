"""What is published of a count by itself: rounded to multiples of a base, or perturbed by what its cell key looks up.

Such laws say what may be published of every count, P(y | n), and so which counts a figure may stand for. As a law of
noise, y - n, they are taken over counts of which every remainder is as likely.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import random_generator, real_array, whole_number
from noise_mechanisms.laws.base_law import LARGEST_SCALE, LARGEST_WHOLE, DiscreteLaw, Seed


class PublishedCount(DiscreteLaw):
    """A law of the figure that is published of a count.

    Attributes
    ----------
    is_random : bool
        Whether a count may be published as several figures.
    """

    is_random: ClassVar[bool] = True

    def limits_of_cells(self, cell: Index, figures: Float, size: int) -> tuple[Float, Float]:
        """The least and largest count of so many cells that all figures, (k,), of a cell, (k,), may be published of."""
        least, most = np.zeros(size), np.full(size, np.inf)
        low, high = self.limits(figures)
        np.maximum.at(least, cell, low)
        np.minimum.at(most, cell, high)
        return least, most

    def contradicted(self, cell: Index, figures: Float) -> Index:
        """Cells of which no count leads to all figures, (k,), that are of these cells, (k,)."""
        least, most = self.limits_of_cells(cell, figures, int(cell.max(initial=-1)) + 1)
        return np.flatnonzero(least > most)

    @abstractmethod
    def log_probability(self, figures: Float, counts: Float) -> Float:
        """Log P(y | n) of whole figures y and counts n that are not negative, of shapes that broadcast."""

    @abstractmethod
    def limits(self, figures: ArrayLike) -> tuple[Float, Float]:
        """The least and the largest count that figures, of any shape, may be published of.

        The least is above the largest where a figure is published of no count.
        """

    @abstractmethod
    def publish(self, counts: ArrayLike, rng: Seed = None) -> Float:
        """Figures of whole counts, of any shape: simulation only.

        Parameters
        ----------
        counts : array_like, (...)
        rng : Generator, SeedSequence, int or None

        Returns
        -------
        ndarray, (...)

        Raises
        ------
        ValueError
            If a count is negative, not whole, or above 2^53.
        """

    @property
    @abstractmethod
    def agreement(self) -> float:
        """How often two figures of one count are the same that were published independently, of large counts."""

    @abstractmethod
    def variance_at(self, counts: ArrayLike) -> Float:
        """Variance of the figure that is published of each count, (...), in squared counts."""

    def impossible(self, figures: ArrayLike) -> NDArray[np.bool_]:
        """Which figures, (...), are published of no count.

        Parameters
        ----------
        figures : array_like, (...)

        Returns
        -------
        ndarray of bool, (...)
        """
        low, high = self.limits(figures)
        return low > high

    @property
    def fixed(self) -> float | None:
        """0, less the mean, if a count of 0 is published as it is."""
        return None if self.variance_at(0.0) else -self.mean

    @property
    def declared(self) -> Self:
        """The law: its variance does not tell what it is."""
        return self

    def from_variance(self, variance: float) -> Self:  # type: ignore[override]
        """Itself: cells have the variance of their counts."""
        return self

    @property
    def _parameter(self) -> float:
        return 1.0

    def _parameter_of(self, variance: Float) -> Float:  # type: ignore[override]
        """How many times as far as the law's noise of such variances is, (...)."""
        return np.sqrt(np.asarray(variance) / self.variance)

    @abstractmethod
    def _drawn(self, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Independent y - n of the given shape."""

    def _draw(self, parameter: Float, shape: tuple[int, int], rng: np.random.Generator) -> Float:  # type: ignore[override]
        """Of some shape, about the mean as far as the parameter, (rows, 1), says; 0 where that is 0."""
        return parameter * self._drawn(shape, rng) + (parameter > 0) * (1 - parameter) * self.mean

    def _measurement(self) -> Callable[[NDArray[Any]], list[float]]:
        raise ValueError(
            f"the law {self.name!r} says how figures were published that are: it protects nobody by a measure of "
            "privacy, and is not drawn of release grade"
        )


def real_figures(figures: ArrayLike) -> Float:
    """Figures, (...), of which one that is no number is one that no count leads to."""
    values = real_array(figures, "figures")
    return np.where(np.isfinite(values), values, -0.5)


def whole_counts(counts: ArrayLike) -> Float:
    """Counts that a figure is published of, (...): whole and not negative.

    Raises
    ------
    ValueError
        If one is not.
    """
    values = real_array(counts, "counts")
    wrong = ~((values >= 0) & (values <= LARGEST_WHOLE) & (values == np.rint(values)))
    if wrong.any():
        raise ValueError(f"counts hold {values[wrong].flat[0]:g}: figures are published of whole counts from 0 to 2^53")
    return values


@dataclass(frozen=True)
class RoundingToBase(PublishedCount):
    """Laws of figures that are multiples of a base."""

    base: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", whole_number(self.base, f"{self.name}: base", 2))
        if self.base > LARGEST_SCALE:
            raise ValueError(f"{self.name}: base is {self.base}: whole numbers so large are not exact in float64")

    @property
    def step(self) -> float:
        """The base."""
        return float(self.base)

    def _multiples(self, figures: ArrayLike) -> tuple[Float, Float]:
        """Figures, (...), and the largest multiple that is below what is none, so that no count is left for it."""
        values = real_figures(figures)
        none = ~((values >= 0) & (values == self.base * np.floor(values / self.base)))
        return values, np.where(none, -np.inf, np.inf)


class RandomRounding(RoundingToBase):
    """Random rounding to a base b that is unbiased: with r = n mod b, down with probability 1 - r / b, or up.

    Multiples stay what they are. New Zealand rounds to base 3, Canada to base 5.

    Parameters
    ----------
    base : int
        At least 2.

    Examples
    --------
    >>> law = RandomRounding(3)
    >>> round(law.variance, 9), law.pmf([-2, -1, 0]).round(6).tolist(), [own.tolist() for own in law.limits([0, 3])]
    (1.333333333, [0.111111, 0.222222, 0.333333], [[0.0, 1.0], [2.0, 5.0]])
    """

    name: ClassVar[str] = "random_rounding"

    @property
    def variance(self) -> float:
        """(b^2 - 1) / 6, over counts of which every remainder is as likely."""
        return (self.base**2 - 1) / 6

    @property
    def agreement(self) -> float:
        """The mean of 1 - 2 (r / b) (1 - r / b): .704 of base 3."""
        return 1 - (self.base**2 - 1) / (3 * self.base**2)

    def _log_probability(self, k: Float) -> Float:
        """Of y - n = k, (...): (b - |k|) / b^2."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(self.base - abs(k), 0.0) / self.base**2)

    def log_probability(self, figures: Float, counts: Float) -> Float:
        """Of multiples y, (...), 1 - |y - n| / b, and of no other."""
        values, most = self._multiples(figures)
        with np.errstate(divide="ignore"):
            found = np.log(np.maximum(self.base - abs(values - counts), 0.0) / self.base)
        return np.where((most > 0) & (counts >= 0), found, -np.inf)

    def limits(self, figures: ArrayLike) -> tuple[Float, Float]:
        """All n between y - b and y + b, (...)."""
        values, most = self._multiples(figures)
        return np.maximum(values - self.base + 1, 0.0), np.minimum(values + self.base - 1, most)

    def publish(self, counts: ArrayLike, rng: Seed = None) -> Float:
        """Each count, (...), rounded by itself."""
        values = whole_counts(counts)
        low = self.base * np.floor(values / self.base)
        return low + self.base * (random_generator(rng).random(values.shape) * self.base < values - low)

    def variance_at(self, counts: ArrayLike) -> Float:
        """Of remainders r, (...): r (b - r)."""
        rest = np.mod(real_array(counts, "counts"), self.base)
        return rest * (self.base - rest)

    def _drawn(self, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Differences of two remainders."""
        return (rng.integers(self.base, size=shape) - rng.integers(self.base, size=shape)).astype(float)


class Rounding(RoundingToBase):
    """Rounding to the nearest multiple of a base b, a half up.

    Of an even base the mean error is 1/2, see `mean`. A figure that stands in several tables tells nothing new.

    Parameters
    ----------
    base : int
        At least 2.

    Examples
    --------
    >>> law = Rounding(10)
    >>> law.variance, law.mean, [own.tolist() for own in law.limits([0, 20])]
    (8.25, 0.5, [[0.0, 15.0], [4.0, 24.0]])
    """

    name: ClassVar[str] = "rounding"
    is_random: ClassVar[bool] = False

    @property
    def copies_are_independent(self) -> bool:
        """No: a figure that stands in several tables tells nothing new."""
        return False

    @property
    def variance(self) -> float:
        """(b^2 - 1) / 12, over counts of which every remainder is as likely."""
        return (self.base**2 - 1) / 12

    @property
    def mean(self) -> float:
        """Of y - n over such counts."""
        return 0.0 if self.base % 2 else 0.5

    @property
    def agreement(self) -> float:
        """Always."""
        return 1.0

    def _log_probability(self, k: Float) -> Float:
        """Of each y - n = k, (...), that there is 1 / b."""
        below = (self.base - 1) // 2
        return np.where((k >= -below) & (k < self.base - below), -np.log(self.base), -np.inf)

    def log_probability(self, figures: Float, counts: Float) -> Float:
        """Of the figure that is published, (...), 0, of others -inf."""
        low, high = self.limits(figures)
        return np.where((counts >= low) & (counts <= high), 0.0, -np.inf)

    def limits(self, figures: ArrayLike) -> tuple[Float, Float]:
        """All that are nearest, (...), those halfway below included."""
        values, most = self._multiples(figures)
        return np.maximum(values - self.base // 2, 0.0), np.minimum(values + (self.base - 1) // 2, most)

    def publish(self, counts: ArrayLike, rng: Seed = None) -> Float:
        """The nearest multiples, (...); nothing is drawn."""
        return self.base * np.floor((whole_counts(counts) + self.base // 2) / self.base)

    def variance_at(self, counts: ArrayLike) -> Float:
        """Of all, (...), 0: nothing is random."""
        return np.zeros_like(real_array(counts, "counts"))

    def _drawn(self, shape: tuple[int, int], rng: np.random.Generator) -> Float:
        """Errors of a count with any remainder."""
        return rng.integers(self.base, size=shape).astype(float) - (self.base - 1) // 2
