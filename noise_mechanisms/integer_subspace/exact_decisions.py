"""Random decisions of exactly a given probability, made in integer arithmetic on the system's secure random bits."""

from __future__ import annotations

import os
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from noise_mechanisms.laws.law_classes import DiscreteLaplace

WORD = 64  # bits drawn before a probability is computed at all
_FETCHED = 256  # values asked of OpenDP at once: a call costs as much as ten of them
GUARD = 12  # decimal digits lost at most: rounded arguments below 10^4, up to 10^6 terms


def bernoulli(probability: Fraction) -> bool:
    """True with exactly this probability."""
    return secrets.randbelow(probability.denominator) < probability.numerator


def bernoulli_exp(cost: Fraction) -> bool:
    """True with probability exactly exp(-cost), for a rational cost of 0 or more.

    Canonne, Kamath and Steinke (2020), Algorithm 1: exp(-c) for c <= 1 is the chance that the first failure among
    Bernoulli(c / 1), Bernoulli(c / 2), ... comes at an odd place.
    """
    while cost > 1:
        if not _bernoulli_exp_below_one(Fraction(1)):
            return False
        cost -= 1
    return _bernoulli_exp_below_one(cost)


def _bernoulli_exp_below_one(cost: Fraction) -> bool:
    place = 1
    while bernoulli(cost / place):
        place += 1
    return place % 2 == 1


def is_below(uniform: int, probability: Callable[[int], Decimal]) -> bool:
    """Whether a uniform number is below a real number between 0 and 1; as `place_among` that number alone."""
    return place_among(uniform, lambda digits: [probability(digits)]) == 0


def place_among(uniform: int, ascending: Callable[[int], Sequence[Decimal]]) -> int:
    """How many of some real numbers between 0 and 1 a uniform number, whose first 64 bits are given, is above.

    They are computed to as many decimal digits as it takes, and further random bits are drawn, until they decide.

    Parameters
    ----------
    uniform : int
        The first bits.
    ascending : function of digits
        The numbers, none below the one before, in the current decimal context, of that precision, with errors below
        10^(guard - digits).
    """
    bits = WORD
    while True:
        digits = bits // 3 + 2 * GUARD
        with localcontext(Context(prec=digits)):
            numbers, error = ascending(digits), Decimal(10) ** (GUARD - digits)
            surely = bisect_right(numbers, Decimal(uniform) / 2**bits - error)
            if surely == bisect_left(numbers, Decimal(uniform + 1) / 2**bits + error):
                return surely
        uniform, bits = (uniform << WORD) | secrets.randbits(WORD), bits + WORD


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


class LaplaceStream:
    """Discrete Laplace values of release grade, fetched from OpenDP many at a time.

    Parameters
    ----------
    scale : float
        Probabilities are proportional to exp(-|k| / scale), the scale being used as an exact rational.
    """

    def __init__(self, scale: float) -> None:
        self._law = DiscreteLaplace(scale)
        self._waiting, self._process = np.empty(0, dtype=np.int64), os.getpid()

    def __reduce__(self) -> tuple[type[LaplaceStream], tuple[float]]:
        return LaplaceStream, (self._law.scale,)  # a copy fetches values of its own

    def take(self, count: int) -> NDArray[np.int64]:
        """The next values, (count,)."""
        if self._process != os.getpid():  # a fork, whose parent has the same values waiting
            self._waiting, self._process = self._waiting[:0], os.getpid()
        if self._waiting.size < count:
            self._waiting = np.concatenate([self._waiting, self._law.release_sample(max(_FETCHED, count))])
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken


class ShiftedGaussian:
    """Whole numbers k with probabilities proportional to exp(-(k - center)^2 / (2 sigma2)), exact for rationals.

    Parameters
    ----------
    sigma2 : Fraction
        Positive.
    streams : dict of scale to LaplaceStream, optional
        Laws that are given the same one draw their proposals from common streams.

    Notes
    -----
    Canonne, Kamath and Steinke's Algorithm 3 about a center: y = k - round(center) is proposed from a discrete Laplace
    law of whole scale t near sigma and, f being center - round(center), accepted with probability exp(-cost),

        cost = (y - f)^2 / (2 sigma2) - |y| / t + |f| / t + sigma2 / (2 t^2) >= (|y| - |f| - sigma2 / t)^2 / (2 sigma2).
    """

    def __init__(self, sigma2: Fraction, streams: dict[int, LaplaceStream] | None = None) -> None:
        self.sigma2 = sigma2
        self.scale = isqrt(sigma2.numerator // sigma2.denominator) + 1
        shared = {} if streams is None else streams
        self._stream = shared.setdefault(self.scale, LaplaceStream(float(self.scale)))

    def take(self, center: Fraction) -> int:
        """Draw one value."""
        nearest = round(center)
        rest = center - nearest
        least = abs(rest) / self.scale + self.sigma2 / (2 * self.scale**2)
        while True:
            y = int(self._stream.take(1)[0])
            cost = (y - rest) ** 2 / (2 * self.sigma2) - Fraction(abs(y), self.scale) + least
            if bernoulli_exp(cost):
                return nearest + y

    def accepts(self, center: Fraction) -> bool:
        """True with probability exactly theta(center) / theta(0).

        theta(c) is the sum over whole k of exp(-(k - c)^2 / (2 sigma2)). The quotient is at least
        1 - 5 exp(-2 pi^2 sigma2) by Poisson summation, and exp(-2 pi^2 s) < 2^(-28 s). Random bits are compared first
        with that, then with the quotient itself, computed with a rigorous error bound to as many digits as they need.
        """
        uniform = secrets.randbits(WORD)
        if uniform + 1 <= 2**WORD - (5 << max(WORD - int(28 * self.sigma2), 0)):
            return True
        return is_below(uniform, lambda digits: self._theta(center, digits) / theta_at_zero(self.sigma2, digits))

    def _theta(self, center: Fraction, digits: int) -> Decimal:
        """Theta to a relative error below 10^(guard - 1 - digits): terms left out and roundings together."""
        nearest = round(center)
        reach = isqrt(int(5 * self.sigma2 * digits)) + 2  # exp(-reach^2 / (2 sigma2)) < 10^-digits
        total = Decimal(0)
        for k in range(nearest - reach, nearest + reach + 1):
            cost = (k - center) ** 2 / (2 * self.sigma2)
            total += (-decimal(cost)).exp()
        return total


@cache
def theta_at_zero(s2: Fraction, digits: int) -> Decimal:
    """The sum over whole k of exp(-k^2 / (2 s2)), in the current context of so many digits; by Poisson from 1/2 on."""
    total, place, pi = Decimal(1), 1, _pi(digits)
    rate = 2 * pi**2 * decimal(s2) if 2 * s2 >= 1 else 1 / (2 * decimal(s2))
    while True:
        term = (-rate * place**2).exp()
        total += 2 * term
        if term < Decimal(10) ** -digits:
            break
        place += 1
    return total * (2 * pi * decimal(s2)).sqrt() if 2 * s2 >= 1 else total


@cache
def _pi(digits: int) -> Decimal:
    """Pi in the current context, of so many digits, by the arithmetic-geometric mean (Gauss and Legendre)."""
    a, b, t, power = Decimal(1), 1 / Decimal(2).sqrt(), Decimal("0.25"), 1
    while a != b and power < 2**20:
        a, b, t, power = (a + b) / 2, (a * b).sqrt(), t - power * (a - (a + b) / 2) ** 2, 2 * power
    return (a + b) ** 2 / (4 * t)


def exact_scale(epsilon: float) -> float:
    """The smallest float64 s with 1 / s <= epsilon in exact arithmetic, so that rounding never costs privacy."""
    scale = 1 / epsilon
    while Fraction(scale) * Fraction(epsilon) < 1:
        scale = float(np.nextafter(scale, np.inf))
    return scale
