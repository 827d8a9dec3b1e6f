"""Exact noise on any lattice by Klein's sampler: Gaussian, and Laplace noise of either norm as mixtures of it."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, reduce
from math import isqrt, lcm
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from constraint_builders.memory import require_memory
from noise_mechanisms.integer_subspace.exact_decisions import (
    GUARD,
    WORD,
    LaplaceStream,
    ShiftedGaussian,
    decimal,
    is_below,
    theta_at_zero,
)
from noise_mechanisms.integer_subspace.lattice import Lattice, Margins, block_members
from noise_mechanisms.integer_subspace.samplers import BATCH_VALUES, RejectionSampler, Sampler

_LARGEST_GENERAL = 200  # dimension: rational elimination takes some seconds there
_NARROW = 0.5  # below, draw from a window of whole numbers; above, round normal values
_WINDOW = np.arange(-8, 9)
_STEPS = 4  # rungs to a unit of epsilon sigma; sqrt(pi / 2) times it exceeds it by 1.01
_LARGEST_MIXED = 300  # dimension: a Cholesky factorisation a try
_FLOORS = np.geomspace(0.05, 4.0, 40)  # in mean squared lengths of Gram-Schmidt vectors


@dataclass(frozen=True)
class GramSchmidt:
    """The basis vectors b_j as sums of mutually orthogonal ones: b_j = b*_j + sum over i < j of mu_ij b*_i.

    Attributes
    ----------
    numerators : ndarray of int64 or Python integers, (n, n)
        mu_ij times the denominator of row i; upper triangular.
    denominators : ndarray of the same, (n,)
    squared_norms : list of Fraction, n
        |b*_i|^2.
    """

    numerators: NDArray
    denominators: NDArray
    squared_norms: list[Fraction]

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """The coefficients mu in float64, (n, n)."""
        return (self.numerators / self.denominators[:, None]).astype(np.float64)

    @cached_property
    def fronts(self) -> list[NDArray[np.intp]]:
        """The vectors in groups, last ones first: mu_ij with i in a group is nonzero for j = i and earlier groups only.

        On the margins of an a x b table there are a + b - 3 groups, its anti-diagonals, for (a - 1) (b - 1) vectors.
        """
        depth = np.zeros(self.denominators.size, dtype=np.intp)
        for i in reversed(range(depth.size)):
            later = np.flatnonzero(self.numerators[i, i + 1 :])
            depth[i] = 1 + depth[i + 1 + later].max(initial=-1)
        return [np.flatnonzero(depth == level) for level in range(depth.max(initial=-1) + 1)]

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """|b*_i| in float64, (n,)."""
        return np.sqrt(np.array([float(norm) for norm in self.squared_norms]))


def gram_schmidt(lattice: Lattice) -> GramSchmidt:
    """Orthogonalise `Lattice.basis` exactly: closed form for margins and nested sets, rational elimination otherwise.

    Raises
    ------
    MemoryError
        If the (n, n) coefficients would not fit.
    ValueError
        If the lattice has no closed form and more than 200 dimensions.
    """
    size = lattice.dimension
    require_memory(24.0 * size**2, f"the Gram-Schmidt form of a lattice of dimension {size:,}", "use the L1 norm")
    if lattice.invariants.margins is not None:
        return _of_margins(lattice.invariants.margins, _leading_cells(lattice))
    if lattice.invariants.blocks is not None:
        return _of_blocks(lattice.invariants.blocks)
    if size > _LARGEST_GENERAL:
        raise ValueError(
            f"the exact Gram-Schmidt form of a general lattice is limited to dimension {_LARGEST_GENERAL}: it has "
            f"{size}; use full margins or nested sets, or the L1 norm"
        )
    return _of_gram_matrix((lattice.basis.T @ lattice.basis).toarray())


def _leading_cells(lattice: Lattice) -> NDArray[np.int64]:
    """The cell of each column of `margin_basis` whose levels are the column's."""
    return np.asarray(lattice.basis.indices[lattice.basis.indptr[1:] - 1], dtype=np.int64)


def _of_margins(margins: Margins, cells: NDArray[np.int64]) -> GramSchmidt:
    """Tensor products of the form along each axis.

    Along an axis order the vectors as e_1 - e_0, e_2 - e_0, ..., and e_0 last. Then b*_a is e_a minus the mean of
    e_0, ..., e_(a-1), of squared norm (a + 1) / a, and b*_0 the mean of all, of squared norm 1 / n. In the columns'
    order, large sets of axes first, the orthogonal vectors are tensor products of these: a set of axes comes after all
    sets that contain it, and the mean is orthogonal to every e_a - e_0.
    """
    levels = np.unravel_index(cells, margins.shape) if cells.size else [cells] * len(margins.shape)
    numerators = np.ones((cells.size, cells.size), dtype=np.int64)
    denominators = np.ones(cells.size, dtype=np.int64)
    squared_norms = [Fraction(1)] * cells.size
    for level, length in zip(levels, margins.shape, strict=True):
        along, below = _axis_form(length)
        numerators *= along[np.ix_(level, level)]
        denominators *= below[level]
        norms = [Fraction(1, length), *(Fraction(a + 1, a) for a in range(1, length))]
        squared_norms = [norm * norms[a] for norm, a in zip(squared_norms, level, strict=True)]
    return GramSchmidt(numerators, denominators, squared_norms)


def _axis_form(length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Along one axis mu_ab (a + 1) for levels a, b with e_0 in place of e_0 - e_0, and the denominators a + 1."""
    numerators = np.triu(np.ones((length, length), dtype=np.int64), 1) + np.diag(np.arange(1, length + 1))
    numerators[1:, 0] = -1
    numerators[0, 1:] = 0
    return numerators, np.arange(1, length + 1)


def _of_blocks(blocks: NDArray[np.int64]) -> GramSchmidt:
    forms = [_axis_form(part.size) for part in block_members(blocks)]
    free = int(np.count_nonzero(blocks < 0))
    numerators = linalg.block_diag(*(along[1:, 1:] for along, _ in forms), np.eye(free, dtype=np.int64))
    denominators = np.concatenate([*(below[1:] for _, below in forms), np.ones(free, dtype=np.int64)])
    squared_norms = [Fraction(int(n), int(n) - 1) if n > 1 else Fraction(1) for n in denominators]
    return GramSchmidt(numerators, denominators, squared_norms)


def _of_gram_matrix(gram: NDArray) -> GramSchmidt:
    """L D L' of the Gram matrix in rationals: D holds the squared norms, L' the coefficients."""
    size = gram.shape[0]
    rest = np.array([[Fraction(int(value)) for value in row] for row in gram], dtype=object).reshape(size, size)
    coefficients = rest.copy()
    for i in range(size):
        coefficients[i] = rest[i] / rest[i, i]
        rest[i + 1 :, i + 1 :] -= np.outer(coefficients[i, i + 1 :], rest[i, i + 1 :])
    denominators = [reduce(lcm, (mu.denominator for mu in coefficients[i, i:])) for i in range(size)]
    numerators = np.zeros((size, size), dtype=object)
    for i in range(size):
        numerators[i, i:] = [int(mu * denominators[i]) for mu in coefficients[i, i:]]
    return GramSchmidt(numerators, np.array(denominators, dtype=object), [rest[i, i] for i in range(size)])


class KleinSampler(RejectionSampler):
    """Draws coordinates in the basis, the last first, as one-dimensional discrete Gaussians.

    Given the later coordinates, the center c_i of coordinate i is minus the sum of mu_ij k_j over j > i and its
    standard deviation s_i = sigma / |b*_i|. The proposal so drawn has probability exp(-|z|^2 / 2 sigma^2) / product of
    theta_i(c_i), theta_i(c) being the sum over k of exp(-(k - c)^2 / 2 s_i^2). Coordinates that do not depend on one
    another are drawn together, see `GramSchmidt.fronts`.
    """

    pilot = 256

    def __init__(self, lattice: Lattice) -> None:
        self._lattice, self._records = lattice, lattice.records
        self._form = gram_schmidt(lattice)
        self._laws: dict[Fraction, list[ShiftedGaussian]] = {}
        self._streams: dict[int, LaplaceStream] = {}
        self._steps = [
            (front, np.ascontiguousarray(self._form.coefficients[front].T), self._form.norms[front])
            for front in self._form.fronts
        ]

    def _propose(self, sigma: Float, rng: np.random.Generator) -> tuple[Integers, Float]:
        """One proposal for every sigma, (tries, d), and the logarithm of its product of thetas, (tries,)."""
        shape = (sigma.size, self._lattice.dimension)
        coordinates, log_thetas = np.zeros(shape), np.zeros(shape)
        for front, coefficients, norms in self._steps:
            center = -(coordinates @ coefficients)
            width = sigma[:, None] / norms
            coordinates[:, front] = shifted_gaussian(center.ravel(), width.ravel(), rng).reshape(center.shape)
            log_thetas[:, front] = log_theta(center.ravel(), width.ravel()).reshape(center.shape)
        return np.asarray(coordinates.astype(np.int64) @ self._lattice.basis.T), log_thetas.sum(axis=1)

    def _release_try(self, sigma: Fraction) -> Integers | None:
        """A draw of the Gaussian law of this width, or None as soon as one factor of the acceptance fails."""
        if sigma not in self._laws:
            self._laws[sigma] = [ShiftedGaussian(sigma**2 / norm, self._streams) for norm in self._form.squared_norms]
        laws, coordinates = self._laws[sigma], np.zeros(self._lattice.dimension, dtype=np.int64)
        for i in reversed(range(len(laws))):
            numerator = -int(self._form.numerators[i, i + 1 :] @ coordinates[i + 1 :])
            center = Fraction(numerator, int(self._form.denominators[i]))
            if not laws[i].accepts(center):
                return None
            coordinates[i] = laws[i].take(center)
        return np.asarray(self._lattice.basis @ coordinates)


class GaussianSampler(KleinSampler):
    """Noise with probabilities proportional to exp(-|z|^2 / 2 sigma^2) on a lattice.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    sigma : float
        Positive.

    Notes
    -----
    Klein's proposal is accepted with probability the product of theta_i(c_i) / theta_i(0) (Brakerski, Langlois,
    Peikert, Regev and Stehle, 2013, Lemma 2.3), which leaves exactly the stated law. Margins of a two-way table have
    Gram-Schmidt norms of at most 2, so that from sigma = 1.5 on practically every proposal is accepted.
    """

    name: ClassVar[str] = "klein"
    exact: ClassVar[bool] = True

    def __init__(self, lattice: Lattice, sigma: float) -> None:
        super().__init__(lattice)
        self.sigma = positive_number(sigma, "sigma")

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        widths = self.sigma / self._form.norms
        proposals, log_thetas = self._propose(np.full(tries, self.sigma), rng)
        return proposals, log_thetas - log_theta(np.zeros_like(widths), widths).sum()

    def _release_attempt(self) -> Integers | None:
        """About 0.1 ms a dimension."""
        return self._release_try(Fraction(self.sigma))


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


class ScaleMixtureSampler(RejectionSampler):
    """L1 noise on any lattice, exact up to the rounding of float64.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives, of at most 300 dimensions.
    epsilon : float
        Loss per unit of L1 distance.

    Raises
    ------
    ValueError
        If the lattice has more dimensions.

    Notes
    -----
    exp(-epsilon |z_j|) is the integral over v of v^(-1/2) exp(-epsilon^2 v / 2 - z_j^2 / 2 v), up to a constant. Given
    a v_j for every cell the noise is Gaussian on the lattice in the metric of 1 / v, which Klein's sampler draws
    exactly: coordinate i from a discrete Gaussian of width s_i(v), accepted with the product of theta_i(c_i) /
    theta_i(0) as in `KleinSampler`. There remains to draw v, with density proportional to the product of v_j^(-1/2)
    exp(-epsilon^2 v_j / 2) and of all theta_i(0). With w_j = max(v_j, a) for any a > 0

        product of theta_i(0; s_i(v)) <= K_a (2 pi)^(n/2) det(C'C)^(-1/2) * product of w_j^(p_j / 2),

    where p_j is the j-th diagonal entry of the projector onto the lattice's span: s_i and theta grow with every v_j;
    theta(0; s) / (sqrt(2 pi) s) falls with s, and s_i(w)^2 >= s_i(a)^2 = a / |b*_i|^2, which makes K_a the product of
    theta(0; s) / (sqrt(2 pi) s) at s = sqrt(a) / |b*_i|; and by Cauchy-Binet and the inequality of the means,
    1 / product of s_i(w)^2 = det(C' W^-1 C) >= det(C'C) * product of w_j^(-p_j). So independent v_j with densities
    proportional to v^(-1/2) max(v, a)^(p_j / 2) exp(-epsilon^2 v / 2) are accepted with the quotient of both sides.
    `a` is the one of 40 values that accepts most. Tries for one draw at epsilon = 1/4: 8 (4 x 4), 37 (6 x 6), 190
    (8 x 8), 1,200 (10 x 10), 7,500 (12 x 12); more for epsilon near 1.
    """

    name: ClassVar[str] = "scale_mixture"
    pilot = 1024
    exact: ClassVar[bool] = True

    def __init__(self, lattice: Lattice, epsilon: float) -> None:
        if lattice.dimension > _LARGEST_MIXED:
            raise ValueError(
                f"the sampler {self.name!r} takes lattices of at most {_LARGEST_MIXED} dimensions, and this one has "
                f"{lattice.dimension}: use 'heat_bath', or the L2 norm or Gaussian noise, which are exact anywhere"
            )
        self.epsilon = positive_number(epsilon, "epsilon")
        self._lattice, self._records = lattice, lattice.records
        self._basis = lattice.basis.toarray().astype(np.float64)
        self._rate = self.epsilon**2 / 2
        lower, inverse = np.linalg.cholesky(self._basis.T @ self._basis), np.linalg.pinv(self._basis)
        self._power = np.clip((self._basis * inverse.T).sum(axis=1), 0.0, 1.0) / 2
        self._log_volume = float(np.log(np.diagonal(lower)).sum())
        self._floor, self._log_excess = self._best_floor()
        self._low, self._high = _log_masses(self._power, self._floor, self._rate)

    def _best_floor(self) -> tuple[float, float]:
        """The a of the notes, and log K_a."""
        norms = gram_schmidt(self._lattice).norms
        floors = _FLOORS * np.square(norms).mean() if norms.size else _FLOORS
        widths = np.sqrt(floors)[:, None] / norms
        excess = (_log_theta_zero(widths) - np.log(math.sqrt(2 * math.pi) * widths)).sum(axis=1)
        masses = [np.logaddexp(*_log_masses(self._power, float(a), self._rate)).sum() for a in floors]
        best = int(np.argmin(excess + masses))
        return float(floors[best]), float(excess[best])

    @property
    def _values(self) -> int:
        return max(1, self._lattice.records * self._lattice.dimension)

    @cached_property
    def acceptance(self) -> float:
        """Estimated probability of acceptance of the scales of one try, from tries with a fixed seed."""
        rng = np.random.default_rng(0)
        batch = min(self.pilot, max(1, BATCH_VALUES // self._values))
        return float(np.mean([np.exp(self._scales(batch, rng)[0]).mean() for _ in range(self.pilot // batch)]))

    release_sample = Sampler.release_sample  # v is a real number

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        log_acceptance, factors = self._scales(tries, rng)
        coordinates, log_thetas = self._klein(factors[-rng.standard_exponential(tries) < log_acceptance], rng)
        return np.asarray(coordinates @ self._lattice.basis.T), log_thetas

    def _scales(self, tries: int, rng: np.random.Generator) -> tuple[Float, Float]:
        """Log acceptance of so many draws of all v, (tries,), and Cholesky factors of the metric, (tries, n, n)."""
        v = self._draw_scales(tries, rng)
        factors = np.linalg.cholesky(np.matmul(self._basis.T, self._basis / v[:, :, None]))
        widths = 1 / np.diagonal(factors, axis1=1, axis2=2)
        log_bound = self._log_excess + self._lattice.dimension / 2 * math.log(2 * math.pi) - self._log_volume
        bound = log_bound + np.log(np.maximum(v, self._floor)) @ self._power
        return _log_theta_zero(widths).sum(axis=1) - bound, factors

    def _draw_scales(self, tries: int, rng: np.random.Generator) -> Float:
        """Independent v of the density in the notes, (tries, d)."""
        shape = (tries, self._power.size)
        v, low = np.empty(shape), rng.random(shape) < np.exp(self._low - np.logaddexp(self._low, self._high))
        powers = np.broadcast_to(self._power, shape)
        waiting = np.nonzero(low)
        while waiting[0].size:  # below a: v^(-1/2), accepted with exp(-rate v)
            v[waiting] = self._floor * rng.random(waiting[0].size) ** 2
            wrong = rng.standard_exponential(waiting[0].size) < self._rate * v[waiting]
            waiting = (waiting[0][wrong], waiting[1][wrong])
        waiting = np.nonzero(~low)
        while waiting[0].size:
            v[waiting] = rng.standard_gamma(0.5 + powers[waiting]) / self._rate
            wrong = v[waiting] < self._floor
            waiting = (waiting[0][wrong], waiting[1][wrong])
        return np.maximum(v, np.finfo(np.float64).tiny)

    def _klein(self, factors: Float, rng: np.random.Generator) -> tuple[Integers, Float]:
        """Klein's proposals in the metrics of these factors, (m, n), and logarithms of their acceptance, (m,)."""
        count, n = factors.shape[:2]
        coordinates, log_acceptance = np.zeros((count, n)), np.zeros(count)
        for i in reversed(range(n)):
            scale = factors[:, i, i]
            center = -(factors[:, i + 1 :, i] * coordinates[:, i + 1 :]).sum(axis=1) / scale
            coordinates[:, i] = shifted_gaussian(center, 1 / scale, rng)
            log_acceptance += log_theta(center, 1 / scale) - log_theta(np.zeros(count), 1 / scale)
        return coordinates.astype(np.int64), log_acceptance


def _log_theta_zero(widths: Float) -> NDArray[np.float64]:
    flat = np.ravel(widths)
    return log_theta(np.zeros(flat.size), flat).reshape(widths.shape)


def _log_masses(power: Float, floor: float, rate: float) -> tuple[Float, Float]:
    """Logarithms of the integrals of v^(-1/2) max(v, a)^power exp(-rate v) below and above a, for every cell."""
    low = power * math.log(floor) + 0.5 * math.log(math.pi / rate) + math.log(gammainc(0.5, rate * floor))
    with np.errstate(divide="ignore"):
        above = np.log(gammaincc(power + 0.5, rate * floor))
    return low, gammaln(power + 0.5) - (power + 0.5) * math.log(rate) + above


def shifted_gaussian(center: Float, width: Float, rng: np.random.Generator) -> Float:
    """Whole numbers k with probabilities proportional to exp(-(k - center)^2 / (2 width^2)), elementwise.

    Parameters
    ----------
    center, width : ndarray, (n,)
        Widths are positive.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of float64, (n,)

    Notes
    -----
    A normal value x = k + u rounds to k. The density of k and |u| is that of the law wanted and an independent |u|,
    times cosh((k - center) u / width^2): accepting with its inverse leaves exactly the law.
    """
    drawn = np.empty(center.size)
    narrow = width < _NARROW
    if narrow.any():
        drawn[narrow] = _from_window(center[narrow], width[narrow], rng)
    pending = np.flatnonzero(~narrow)
    while pending.size:
        c, s = center[pending], width[pending]
        x = c + s * rng.standard_normal(pending.size)
        k = np.rint(x)
        drawn[pending] = k
        pending = pending[rng.random(pending.size) * np.cosh((k - c) * (x - k) / s**2) > 1]
    return drawn


def _from_window(center: Float, width: Float, rng: np.random.Generator) -> Float:
    """By inversion among the 17 nearest whole numbers; the others have less than 2^-180 together."""
    candidates = np.rint(center)[:, None] + _WINDOW
    least = np.square(np.rint(center) - center)[:, None]
    weight = np.exp((least - np.square(candidates - center[:, None])) / (2 * np.square(width)[:, None]))
    cumulative = np.cumsum(weight, axis=1)
    chosen = (cumulative < rng.random(center.size)[:, None] * cumulative[:, -1:]).sum(axis=1)
    return candidates[np.arange(center.size), chosen]


def log_theta(center: Float, width: Float) -> Float:
    """Logarithm of the sum over all whole k of exp(-(k - center)^2 / (2 width^2)), elementwise."""
    rest = center - np.rint(center)
    wide = width >= 1
    if wide.all():
        return _log_theta_wide(rest, width)
    value = np.empty(rest.size)
    value[wide] = _log_theta_wide(rest[wide], width[wide])
    value[~wide] = _log_theta_narrow(rest[~wide], width[~wide])
    return value


def _log_theta_wide(rest: Float, width: Float) -> Float:
    """By Poisson summation; from width 1 on the second term is below 1e-34."""
    ripple = 2 * np.exp(-2 * np.square(np.pi * width)) * np.cos(2 * np.pi * rest)
    return np.asarray(np.log(math.sqrt(2 * math.pi) * width) + np.log1p(ripple))


def _log_theta_narrow(rest: Float, width: Float) -> Float:
    return np.asarray(logsumexp(-np.square(_WINDOW - rest[:, None]) / (2 * np.square(width[:, None])), axis=1))
