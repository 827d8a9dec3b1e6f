"""Exact L2-norm Laplace noise of release grade on any lattice: a ladder of Gaussians of rational widths."""

from __future__ import annotations

import math
import secrets
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import (
    GUARD,
    WORD,
    LaplaceStream,
    ShiftedGaussian,
    decimal,
    is_below,
)
from noise_mechanisms.integer_subspace.jumps import norm_of
from noise_mechanisms.integer_subspace.klein import KleinSampler, log_theta
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.sampler import require_acceptance

_STEPS = 4  # rungs to a unit of epsilon sigma; sqrt(pi / 2) times it exceeds it by 1.01


class L2LadderSampler(KleinSampler):
    """Noise with probabilities proportional to exp(-epsilon |z|), |z| being the L2 norm, on any lattice.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of L2 distance.

    Notes
    -----
    Rungs are Gaussians of the widths sigma_k = k / (4 epsilon), k = 1, 2, ..., all rational. Rung k is taken with
    probability proportional to exp(-(epsilon sigma_k)^2 / 2) times the product of theta_i(0), Klein's proposal on it
    accepted with the product of theta_i(c_i) / theta_i(0). That leaves z with probability proportional to

        g(|z|),   g(r) = sum over k of f(sigma_k),   f(sigma) = exp(-(epsilon^2 sigma^2 + r^2 / sigma^2) / 2),

    and z is accepted with probability 4 exp(-epsilon |z|) / g(|z|), which is at most 1: f rises to its only peak
    exp(-epsilon r) and falls, its integral is sqrt(pi / 2) exp(-epsilon r) / epsilon, and the sum over a grid of step
    1 / (4 epsilon) of such a function is at least 4 epsilon times the integral less the peak, 4.01
    exp(-epsilon r). About four in five are accepted. The choice of the rung and the last decision compare random bits
    with enclosures, refined until they decide; all else is rational.
    """

    name: ClassVar[str] = "l2_ladder"
    exact: ClassVar[bool] = True

    def __init__(self, lattice: Lattice, epsilon: float) -> None:
        super().__init__(lattice)
        self.epsilon = positive_number(epsilon, "epsilon")
        self._rungs: dict[int, list[Decimal]] = {}
        self._laws: dict[int, list[ShiftedGaussian]] = {}
        self._streams: dict[int, LaplaceStream] = {}

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        log_weights, log_thetas_zero = self._float_rungs
        weights = np.exp(log_weights - logsumexp(log_weights))
        rungs = rng.choice(weights.size, size=tries, p=weights / weights.sum())
        proposals, log_thetas = self._propose((rungs + 1) / (_STEPS * self.epsilon), rng)
        costs = self.epsilon * norm_of(proposals, 2)
        return proposals, log_thetas - log_thetas_zero[rungs] + math.log(_STEPS) - _log_ladder(costs)

    @cached_property
    def _float_rungs(self) -> tuple[Float, Float]:
        """Logarithms of the weights of the rungs, and of their products of theta_i(0)."""
        k = np.arange(1, self._highest(20) + 1)
        widths = (k / (_STEPS * self.epsilon))[:, None] / self._form.norms
        thetas = log_theta(np.zeros(widths.size), widths.ravel()).reshape(widths.shape).sum(axis=1)
        return -np.square(k) / (2 * _STEPS**2) + thetas, thetas

    def _highest(self, digits: int) -> int:
        """A rung above which all others have less than 10^-digits of the weight of the heaviest.

        theta(0; s) <= 1 + sqrt(2 pi) s bounds the weight of rung k by u_k, and u_(k+1) / u_k is at most
        exp(-(2 k + 1) / 32) ((k + 1) / k)^n, which falls with k: once it is below exp(-1/2) the rest is below 3 u_k.
        Rung `_STEPS` weighs at least exp(-1/2) (theta is at least 1).
        """
        n, k = self._lattice.dimension, _STEPS
        least = -digits * math.log(10) - 4
        while True:
            k = k + 1 + k // 16
            log_ratio = -(2 * k + 1) / (2 * _STEPS**2) + n * math.log1p(1 / k)
            widths = k / (_STEPS * self.epsilon) / self._form.norms
            log_bound = -(k**2) / (2 * _STEPS**2) + float(np.log1p(math.sqrt(2 * math.pi) * widths).sum())
            if log_ratio < -0.5 and log_bound < least:
                return k

    def release_sample(self) -> Integers:
        """See `Sampler.release_sample`. About 0.1 ms a dimension, after some seconds for the first draw."""
        require_acceptance(self.name, self.acceptance)
        while True:
            coordinates = self._release_attempt(self._laws_of(self._choose_rung()))
            if coordinates is not None:
                noise = np.asarray(self._lattice.basis @ coordinates)
                if self._accepts(sum(int(value) ** 2 for value in noise)):
                    return noise

    def _laws_of(self, rung: int) -> list[ShiftedGaussian]:
        if rung not in self._laws:
            sigma2 = (rung / (_STEPS * Fraction(self.epsilon))) ** 2
            self._laws[rung] = [ShiftedGaussian(sigma2 / norm, self._streams) for norm in self._form.squared_norms]
        return self._laws[rung]

    def _choose_rung(self) -> int:
        """A rung of exactly its probability: the place of a uniform number among the cumulated weights."""
        uniform, bits = secrets.randbits(WORD), WORD
        while True:
            digits = bits // 3 + 2 * GUARD
            with localcontext(Context(prec=digits)):
                below, above = Decimal(uniform) / 2**bits, Decimal(uniform + 1) / 2**bits
                error, before = Decimal(10) ** (GUARD - digits), Decimal(0)
                for rung, cumulative in enumerate(self._cumulative(digits), start=1):
                    if below < cumulative + error:
                        if (rung == 1 or before + error < below) and above < cumulative - error:
                            return rung
                        break
                    before = cumulative
            uniform, bits = (uniform << WORD) | secrets.randbits(WORD), bits + WORD

    def _cumulative(self, digits: int) -> list[Decimal]:
        """Probabilities of the first rungs together, to an error below 10^(guard - digits), in such a context."""
        if digits not in self._rungs:
            weights = [self._weight(k, digits) for k in range(1, self._highest(digits) + 1)]
            total, cumulative, found = sum(weights, Decimal(0)), Decimal(0), []
            for weight in weights:
                cumulative += weight
                found.append(cumulative / total)
            self._rungs[digits] = found
        return self._rungs[digits]

    def _weight(self, rung: int, digits: int) -> Decimal:
        product = (-Decimal(rung**2) / (2 * _STEPS**2)).exp()
        sigma2 = (rung / (_STEPS * Fraction(self.epsilon))) ** 2
        known: dict[Fraction, Decimal] = {}
        for norm in self._form.squared_norms:
            if norm not in known:
                known[norm] = _theta_at_zero(sigma2 / norm, digits)
            product *= known[norm]
        return product

    def _accepts(self, square: int) -> bool:
        """True with probability exactly 4 exp(-epsilon |z|) / g(|z|), given |z|^2."""
        epsilon = Fraction(self.epsilon)

        def probability(digits: int) -> Decimal:
            cost = decimal(epsilon) * Decimal(square).sqrt()
            half_square, ladder = decimal(epsilon**2 * square * _STEPS**2 / 2), Decimal(0)
            # Beyond this rung less than 10^-digits of exp(-cost) remains: a quarter of g at most.
            last = isqrt(2 * _STEPS**2 * (3 * digits + int(cost) + 8)) + _STEPS
            for k in range(1, last + 1):
                ladder += (-Decimal(k**2) / (2 * _STEPS**2) - half_square / k**2).exp()
            return _STEPS * (-cost).exp() / ladder

        return is_below(secrets.randbits(WORD), probability)


def _log_ladder(costs: Float) -> Float:
    """Logarithm of exp(c) g(r), elementwise, c being epsilon r: the sum of exp(-(u - c / u)^2 / 2) at u = k / 4."""
    last = int(_STEPS * (math.sqrt(float(costs.max(initial=0.0))) + 10))
    u = np.arange(1, last + 1) / _STEPS
    return np.asarray(logsumexp(-np.square(u - costs[:, None] / u) / 2, axis=1))


def _theta_at_zero(s2: Fraction, digits: int) -> Decimal:
    """The sum over whole k of exp(-k^2 / (2 s2)) in the current context; by Poisson summation from s2 = 1/2 on."""
    total, place = Decimal(1), 1
    pi = _pi(digits)
    rate = 2 * pi**2 * decimal(s2) if 2 * s2 >= 1 else 1 / (2 * decimal(s2))
    while True:
        term = (-rate * place**2).exp()
        total += 2 * term
        if term < Decimal(10) ** -digits:
            break
        place += 1
    return total * (2 * pi * decimal(s2)).sqrt() if 2 * s2 >= 1 else total


_known_pi: dict[int, Decimal] = {}


def _pi(digits: int) -> Decimal:
    """Pi in the current context, by Machin's formula in whole numbers."""
    if digits not in _known_pi:
        unit = 10 ** (digits + 10)
        _known_pi[digits] = Decimal(4 * (4 * _arctan_inverse(5, unit) - _arctan_inverse(239, unit))) / unit
    return _known_pi[digits]


def _arctan_inverse(x: int, unit: int) -> int:
    """arctan(1 / x) in units of 1 / `unit`, to about as many units as there are terms."""
    term = total = unit // x
    place, sign = 3, -1
    while term:
        term //= x * x
        total += sign * (term // place)
        place, sign = place + 2, -sign
    return total
