"""What a test of fit has to know of the laws of noise: how heavy their tails are, and where they leave nothing."""

from __future__ import annotations

from typing import NamedTuple

MOST_KURTOSIS = 1e12  # in excess, that of whole numbers of which hardly any is not 0


class Tails(NamedTuple):
    """What a test of fit has to know of a law beside variances; by default of Gaussian noise.

    Attributes
    ----------
    excess : tuple of float
        The largest excess kurtosis in every observed table, never below 0; empty where all are 0.
    step : float
        Of which all measurements are whole multiples; 0 where they are real numbers.
    fixed : float or None
        What is published without noise, less the law's mean.
    by_proxy : float
        Of all noise the least ratio of its variance to its sub-Gaussian variance proxy, 1 at most; 0 where it has none.
    """

    excess: tuple[float, ...] = ()
    step: float = 0.0
    fixed: float | None = None
    by_proxy: float = 0.0

    def of_table(self, number: int) -> float:
        """Its excess kurtosis."""
        return self.excess[number] if self.excess else 0.0


GAUSSIAN_TAILS = Tails()
