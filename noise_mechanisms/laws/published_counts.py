"""What is published of a count by itself: rounded, or perturbed by what its cell key looks up.

Such laws say what may be published of every count, P(y | n), and so which counts a figure may stand for. As a law of
noise, y - n, they are taken over counts of which every remainder is as likely.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import real_array
from noise_mechanisms.laws.base_law import DiscreteLaw, Seed

MOST_COUNT = 2.0**53  # beyond which float64 does not hold all whole numbers


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
        return parameter * (self._drawn(shape, rng) - self.mean) + np.where(parameter > 0, self.mean, 0.0)

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
    wrong = ~((values >= 0) & (values <= MOST_COUNT) & (values == np.rint(values)))
    if wrong.any():
        raise ValueError(f"counts hold {values[wrong].flat[0]:g}: figures are published of whole counts from 0 to 2^53")
    return values
