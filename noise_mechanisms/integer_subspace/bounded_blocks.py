"""Exact draws of non-negative, or binary, tables of a fixed sum: the law of one block under nested sets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy

from constraint_builders.arrays import Float, Integers
from noise_mechanisms.integer_subspace.exact_decisions import LaplaceStream, bernoulli, bernoulli_exp, exact_scale
from noise_mechanisms.integer_subspace.samplers import RejectionSampler

_HALF = Fraction(1, 2)
_GENTLEST = 2.0**-6  # how near to the rate a tilt may come, in units of it: below an entry the law must not be level
_STEEPEST = 60.0
_DENOMINATOR = 2**24


@dataclass(frozen=True)
class BoundedBlock(RejectionSampler):
    """Tables y >= 0 (or 0 and 1) of a fixed sum with probabilities proportional to exp(-rate |y - x|_1).

    Parameters
    ----------
    center : ndarray of int64, (n,)
        x, itself such a table.
    rate : Fraction
        Positive.
    binary : bool
    free : bool
        Whether the sum may be anything: records that nothing holds.

    Notes
    -----
    Given the sum, a factor exp(-tilt * sum) changes nothing. So all entries but one are drawn from exp(-rate |y_j -
    x_j| - tilt y_j), the tilt being the one whose expected sum is the sum wanted, and the last is what remains,
    accepted with its own weight over the largest that it can be. Of n entries about one try in the root of n is
    accepted.
    """

    name: ClassVar[str] = "bounded_block"

    center: Integers
    rate: Fraction
    binary: bool
    free: bool = False

    @cached_property
    def tilt(self) -> Fraction:
        """See the notes; rational."""
        if self.free or self.center.size == 1:
            return Fraction(0)
        rate = float(self.rate)
        bounds = (-_STEEPEST if self.binary else (_GENTLEST - 1) * rate), rate + _STEEPEST
        search = {"bounds": bounds, "method": "bounded", "options": {"xatol": 1e-6 * rate}}
        best = float(scipy.optimize.minimize_scalar(self._log_total, **search).x)
        if not self.binary and abs(best - rate) < _GENTLEST * rate:
            best = rate * (1 - _GENTLEST)
        return self.rate * Fraction(round(best / rate * _DENOMINATOR), _DENOMINATOR)

    def _log_total(self, tilt: float) -> float:
        """Logarithm of the weight of all tables of any sum, of exp(-rate |y - x|_1 - tilt * excess of the sum).

        It is convex in the tilt, and least where the expected excess is 0.
        """
        rate = float(self.rate)
        if self.binary:
            return float(np.logaddexp(0, -rate - (1 - 2 * self.center) * tilt).sum())
        above, below = _masses(rate + tilt, rate - tilt, self.center)
        return float(np.log(above + below).sum() + max(tilt - rate, 0.0) * self.center.sum())

    @cached_property
    def last(self) -> int:
        """The entry that follows from the others: the largest, whose law is the widest."""
        return int(self.center.argmax())

    @property
    def _records(self) -> int:  # type: ignore[override]
        return int(self.center.size)

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        tables = self._cells(tries, rng)
        if self.free:
            return tables, np.zeros(tries)
        tables[:, self.last] += self.center.sum() - tables.sum(axis=1)
        value = tables[:, self.last]
        moved = value - self.center[self.last]
        rate, tilt = float(self.rate), float(self.tilt)
        cost = rate * abs(moved) + tilt * moved - float(self._least)
        return tables, np.where((value < 0) | (self.binary & (value > 1)), -np.inf, -cost)

    @cached_property
    def _least(self) -> Fraction:
        """The least of rate |y - x| + tilt (y - x) of the last entry: at x, at 0, or for binary tables at 1 - x."""
        if not self.binary:
            return min(Fraction(0), (self.rate - self.tilt) * int(self.center[self.last]))
        flip = self.rate + (1 - 2 * int(self.center[self.last])) * self.tilt
        return min(Fraction(0), flip)

    def _cells(self, size: int, rng: np.random.Generator) -> Integers:
        """Independent entries, (size, n)."""
        rate, tilt, x = float(self.rate), float(self.tilt), self.center
        uniform = rng.random((size, x.size))
        if self.binary:
            sign = 1 - 2 * x
            return np.where(uniform < 1 / (1 + np.exp(rate + sign * tilt)), 1 - x, x)
        up, down = rate + tilt, rate - tilt
        above, below = _masses(up, down, x)
        fresh = np.minimum(rng.random((size, x.size)), 1 - 2.0**-53)
        rise = np.floor(-np.log1p(-fresh) / up)
        away = np.floor(-np.log1p(fresh * np.expm1(-abs(down) * x)) / abs(down))
        fall = np.minimum(away, x - 1) + 1 if down > 0 else x - np.minimum(away, x - 1)
        return np.asarray(x + np.where(uniform < below / (above + below), -fall, rise).astype(np.int64))

    def _release_attempt(self) -> Integers | None:
        table = np.array([self._release_cell(int(x)) for x in self.center], dtype=np.int64)
        if self.free:
            return table
        table[self.last] += int(self.center.sum() - table.sum())
        value, x = int(table[self.last]), int(self.center[self.last])
        if value < 0 or (self.binary and value > 1):
            return None
        cost = self.rate * abs(value - x) + self.tilt * (value - x) - self._least
        return table if bernoulli_exp(cost) else None

    @cached_property
    def _stream(self) -> tuple[LaplaceStream, Fraction]:
        """Laplace values whose scale is at least that of the slower side of the law, and one over that scale."""
        slower = min(abs(self.rate - self.tilt), self.rate + self.tilt)
        scale = exact_scale(float(slower))
        while 1 / Fraction(scale) > slower:
            scale = float(np.nextafter(scale, np.inf))
        return LaplaceStream(scale), 1 / Fraction(scale)

    def _release_cell(self, x: int) -> int:
        """One entry of the tilted law."""
        if self.binary:
            cost = self.rate + (1 - 2 * x) * self.tilt
            while True:  # flipped and not are proposed evenly; the less likely one is accepted with the quotient
                flipped = bernoulli(_HALF)
                if flipped == (cost < 0) or bernoulli_exp(abs(cost)):
                    return 1 - x if flipped else x
        stream, slower = self._stream
        falling = self.tilt > self.rate  # from 0 on: then proposals start there
        while True:
            moved = int(stream.take(1)[0])
            value = moved if falling else x + moved
            if value < 0:
                continue
            beyond, within = max(value - x, 0), min(value, x) if falling else max(x - value, 0)
            cost = (self.rate + self.tilt) * beyond + abs(self.rate - self.tilt) * within
            if bernoulli_exp(cost - slower * abs(moved)):
                return value


def _masses(up: float, down: float, x: Integers) -> tuple[Float, Float]:
    """Weights of y >= x and of y < x, (n,), up to one factor for each cell: of exp(-up k) above, exp(-down k) below."""
    if down > 0:
        return np.full(x.size, -1 / np.expm1(-up)), np.exp(-down) * np.expm1(-down * x) / np.expm1(-down)
    return -np.exp(down * x) / np.expm1(-up), np.expm1(down * x) / np.expm1(down)
