"""Exact noise by the L2 norm on any lattice: a mixture of Gaussians whose widths are the rungs of a ladder."""

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
from noise_mechanisms.integer_subspace.exact_decisions import GUARD, WORD, decimal, is_below, theta_at_zero
from noise_mechanisms.integer_subspace.klein import KleinSampler, log_theta_at_zero
from noise_mechanisms.integer_subspace.lattice import Lattice

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

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        log_weights, log_thetas_zero = self._float_rungs
        weights = np.exp(log_weights - logsumexp(log_weights))
        rungs = rng.choice(weights.size, size=tries, p=weights / weights.sum())
        proposals, log_thetas = self._propose((rungs + 1) / (_STEPS * self.epsilon), rng)
        costs = self.epsilon * np.linalg.norm(proposals, axis=1)
        return proposals, log_thetas - log_thetas_zero[rungs] + math.log(_STEPS) - _log_ladder(costs)

    @cached_property
    def _float_rungs(self) -> tuple[Float, Float]:
        """Logarithms of the weights of the rungs, and of their products of theta_i(0)."""
        k = np.arange(1, self._highest(20) + 1)
        widths = (k / (_STEPS * self.epsilon))[:, None] / self._form.norms
        thetas = log_theta_at_zero(widths).sum(axis=1)
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

    def _release_attempt(self) -> Integers | None:
        """About 0.1 ms a dimension, after some seconds for the first draw."""
        noise = self._release_try(self._choose_rung() / (_STEPS * Fraction(self.epsilon)))
        return noise if noise is not None and self._accepts(sum(int(value) ** 2 for value in noise)) else None

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
        for norm in self._form.squared_norms:
            product *= theta_at_zero(sigma2 / norm, digits)
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
