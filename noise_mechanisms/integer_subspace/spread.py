"""How far lattice noise reaches, and its covariance, in the form in which an estimation problem takes it.

The paper bounds P(|z| >= t), and the lattice points in a ball, for large enough t, with constants that it does not work
out (Lemma 11, equations 7 and 10). Here they hold at every t. Throughout n is the dimension of the lattice and
b*_1, ..., b*_n its Gram-Schmidt vectors; the boxes z + P, P = {sum of c_i b*_i, |c_i| <= 1/2}, tile the space that the
lattice spans, reach mu = sqrt(sum |b*_i|^2) / 2 from their middle and have the mean square s^2 = sum |b*_i|^2 / 12.

The covariance is singular: the invariants have no noise. By symmetry it is simple. Under margins it commutes with all
permutations of the levels of every axis, so that it is a sum of multiples of the projectors

    P_T = product over axes i of (I - J / n_i for i in T, J / n_i otherwise),   J all ones,

over the sets T of axes whose margin is free: one number for each T, and a single one for both margins of a two-way
table. Under nested sets it is, within every block, a multiple of I - J / n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammaln

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import number_from_0, shown, whole_number
from constraint_builders.memory import require_memory
from constraint_builders.problem import Problem
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.invariants import Invariants, Margins
from noise_mechanisms.integer_subspace.l1_samplers import ZeroSumLaplace
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members, free_axes
from noise_mechanisms.integer_subspace.mechanisms import GeneralizedGaussian, GeneralizedLaplace, LatticeMechanism
from noise_mechanisms.laws.base_law import Seed
from noise_mechanisms.laws.law_classes import DiscreteGaussian, DiscreteLaplace

_ACCEPTABLE_BOUND = 1e-6  # relative error up to which sigma^2 stands for the variance of lattice Gaussian noise
_WIDE = 2.5  # sigma above which the variance of a block falls short of the continuous law's by less than 1e-20 of it
_SHRINKINGS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
_LARGEST_LOG = 700.0


def tail_bound(mechanism: GeneralizedLaplace | GeneralizedGaussian, t: float) -> float:
    """An upper bound on the probability that a mechanism's noise z has norm t or more.

    Parameters
    ----------
    mechanism : GeneralizedLaplace or GeneralizedGaussian
        Its norm is the one meant: L2 of Gaussian noise.
    t : float
        Not negative, in counts.

    Returns
    -------
    float
        At most 1. The smaller of the two bounds below.

    Raises
    ------
    TypeError
        If the mechanism is another.
    ValueError
        If t is negative or not finite.

    Notes
    -----
    *Equation (7).* For exp(-epsilon |z|), L1 or L2,

        P(|z| >= t) <= (e epsilon t / n)^n exp(-epsilon t)    for t >= n / epsilon:

    the paper's K t^n exp(-epsilon t) with K = (e epsilon / n)^n. *Proof.* Let Z(epsilon) be the sum of
    exp(-epsilon |z|) over the lattice. exp(-epsilon |z|) is a mixture of (for L1: axis-parallel) centred Gaussians, so
    its Fourier transform on the lattice's span is not negative and falls along rays, and by Poisson summation
    Z(epsilon / c) <= c^n Z(epsilon) for c >= 1 (Banaszczyk's Lemma 1.4 for the Gaussian). Markov's inequality gives
    P <= exp(-lambda t) Z(epsilon - lambda) / Z(epsilon) <= exp(-lambda t) (epsilon / (epsilon - lambda))^n, least at
    epsilon - lambda = n / t.

    *Equation (10).* In the same way, for exp(-|z|^2 / 2 sigma^2),

        P(|z| >= t) <= (e t^2 / n sigma^2)^(n/2) exp(-t^2 / 2 sigma^2)    for t >= sigma sqrt(n).

    *By volumes.* The mean of the weight over a box about z is at least the weight of z times exp(-epsilon s) (L1:
    exp(-epsilon sqrt(d) s); Gaussian: exp(-s^2 / 2 sigma^2)), by Jensen's inequality; the normaliser is at least the
    integral over the volume of a box, by Poisson summation. So P is at most the tail of the continuous law beyond
    t - mu (L1: t - sqrt(d) mu), a gamma law's, times the inverse of that factor. It is the smaller one for wide noise.

    References
    ----------
    Banaszczyk, "New bounds in some transference theorems in the geometry of numbers", Mathematische Annalen 296 (1993).
    """
    t = number_from_0(t, "t")
    if not isinstance(mechanism, GeneralizedLaplace | GeneralizedGaussian):
        raise TypeError(f"tails are those of a generalized Laplace or Gaussian mechanism: got {shown(mechanism)}")
    n = mechanism.lattice.dimension
    if n == 0:
        return 1.0 if t == 0 else 0.0
    reach, spread = _box(mechanism.lattice)
    if isinstance(mechanism, GeneralizedGaussian):
        shape, cost = n / 2, (t / mechanism.sigma) ** 2 / 2
        beyond = (max(t - reach, 0.0) / mechanism.sigma) ** 2 / 2
        excess = (spread / mechanism.sigma) ** 2 / 2
    else:
        widening = math.sqrt(mechanism.lattice.records) if mechanism.norm == 1 else 1.0
        shape, cost = float(n), mechanism.epsilon * t
        beyond = mechanism.epsilon * max(t - widening * reach, 0.0)
        excess = mechanism.epsilon * widening * spread
    scaled = math.exp(shape - cost + shape * math.log(cost / shape)) if cost > shape else 1.0
    by_volume = gammaincc(shape, beyond) * math.exp(min(excess, _LARGEST_LOG))
    return float(min(1.0, scaled, by_volume))


def log_points_within(lattice: Lattice, radius: float) -> tuple[float, float]:
    """Bounds on the logarithm of how many lattice points have L2 norm `radius` or less (Lemma 11, at every radius).

    Parameters
    ----------
    lattice : Lattice
    radius : float
        Not negative.

    Returns
    -------
    lower, upper : float
        log V_n + n log(radius -+ mu) - log D, where V_n is the volume of the unit ball and D the product of the
        |b*_i|, which is the volume of a box: boxes about the points cover the ball of radius - mu and lie in that of
        radius + mu. The lower one is at least 0, since 0 is a lattice point.

    Raises
    ------
    ValueError
        If the radius is negative or not finite.
    """
    radius, n = number_from_0(radius, "radius"), lattice.dimension
    if n == 0:
        return 0.0, 0.0
    reach, _ = _box(lattice)
    unit = n / 2 * math.log(math.pi) - float(gammaln(n / 2 + 1)) - float(np.log(gram_schmidt(lattice).norms).sum())
    inner = unit + n * math.log(radius - reach) if radius > reach else 0.0
    return max(0.0, inner), unit + n * math.log(radius + reach)


def _box(lattice: Lattice) -> tuple[float, float]:
    """How far a box reaches from its middle, and its root mean square."""
    squares = float(np.square(gram_schmidt(lattice).norms).sum())
    return math.sqrt(squares) / 2, math.sqrt(squares / 12)


@dataclass(frozen=True)
class NoiseCovariance:
    """Covariance of the noise of a mechanism.

    Attributes
    ----------
    invariants : Invariants
    matrix : ndarray, (d, d)
        Singular: zero on every invariant.
    scale : float or None
        c, when the covariance is c times the orthogonal projector onto noise that leaves all invariants alone.
    method : {"exact", "estimated"}
    relative_error : float
        Bound on the relative error of the coefficients ("exact"), or their largest relative standard error: infinite
        where noise that may move did not in any draw.
    """

    invariants: Invariants
    matrix: Float
    scale: float | None
    method: str
    relative_error: float

    def completed(self) -> Float:
        """A positive definite covariance (d, d) with the same BLUE under the invariants as hard constraints.

        The covariance plus a multiple of the projector onto the invariants: hard constraints remove what was added,
        exactly.
        """
        A = self.invariants.matrix.toarray().astype(np.float64)
        typical = np.trace(self.matrix) / max(self.invariants.records, 1) or 1.0
        return self.matrix + typical * (np.linalg.pinv(A) @ A)

    def problem(self, table: ArrayLike) -> Problem:
        """The estimation problem of one released table: its invariants as equalities, this covariance.

        Parameters
        ----------
        table : array_like of whole numbers, (d,)
            The released table, or any with the same invariants.

        Returns
        -------
        Problem
            Made by ``Problem.from_matrix``. The invariants, which are exact, are equalities: a covariance may not be
            singular there. With a schema and a `scale`, the same is
            ``Problem(schema, {**dict.fromkeys(invariant_tables, 0.0), "detailed": scale})``.
        """
        b = self.invariants.apply(table)
        return Problem.from_matrix(self.invariants.matrix.astype(np.float64), self.completed(), b)


def noise_covariance(mechanism: LatticeMechanism, draws: int = 20_000, rng: Seed = None) -> NoiseCovariance:
    """Return the covariance of a mechanism's noise, exactly where possible, otherwise from draws.

    Exact: nested sets under the L1 norm and with Gaussian noise; Gaussian noise on margins whenever sigma^2 is proved
    to be the variance to 1e-6, see `gaussian_error`. Estimated: the rest, with the symmetry used, from the automatic
    sampler.

    Parameters
    ----------
    mechanism : LatticeMechanism
        Whose noise it is.
    draws : int
        Number of draws for estimates, at least 2.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness for estimates.

    Returns
    -------
    NoiseCovariance

    Raises
    ------
    MemoryError
        If the (d, d) matrix would not fit.
    """
    invariants, draws = mechanism.invariants, whole_number(draws, "draws", 2)
    size = invariants.records
    require_memory(24.0 * size**2, f"the covariance of {size:,} records", "use the noise of fewer records")
    if invariants.blocks is not None and getattr(mechanism, "norm", 1) == 1:
        return _of_blocks(mechanism, invariants.blocks)
    if isinstance(mechanism, GeneralizedGaussian):
        error = gaussian_error(mechanism)
        if error <= _ACCEPTABLE_BOUND:
            A = invariants.matrix.toarray().astype(np.float64)
            projector = np.eye(size) - np.linalg.pinv(A) @ A
            return NoiseCovariance(invariants, mechanism.sigma**2 * projector, mechanism.sigma**2, "exact", error)
    noise = mechanism.sample(draws, rng)
    if invariants.margins is not None:
        return _of_margins(invariants, invariants.margins, noise)
    return _of_anything(invariants, noise)


def gaussian_error(mechanism: GeneralizedGaussian) -> float:
    """Bound on the relative amount by which any coefficient of the covariance is below sigma^2; it is never above.

    By Poisson summation the covariance is sigma^2 times the projector minus a positive semidefinite matrix, whose trace
    is -u^2 h'(u) with u = 2 sigma^2 and h(u) the logarithm of the sum over the dual lattice of exp(-pi^2 u |w|^2). h
    is convex and decreases to 0, so -h'(u) is at most h(fu) / ((1 - f) u) for every 0 < f < 1; and h is at most the sum
    over the Gram-Schmidt vectors of log(theta(s) / (sqrt(2 pi) s)) with s = sqrt(fu / 2) / |b*_i|.
    """
    widths = mechanism.sigma / gram_schmidt(mechanism.lattice).norms
    return min(2 * _excess(math.sqrt(f) * widths) / (1 - f) for f in _SHRINKINGS)


def _excess(widths: Float) -> float:
    """Sum over s, (n,), of log(theta(s) / (sqrt(2 pi) s)), theta(s) being the sum over whole k of exp(-k^2 / 2 s^2)."""
    terms = np.arange(1, 40)
    ripples = 2 * np.exp(-2 * np.square(np.pi * terms * np.maximum(widths, 0.05)[:, None])).sum(axis=1)
    return float(np.where(widths < 0.05, np.inf, np.log1p(ripples)).sum())


def _of_blocks(mechanism: Any, blocks: Integers) -> NoiseCovariance:
    """The covariance under nested sets, by the block of every record, (d,): exact."""
    matrix = np.zeros((blocks.size, blocks.size))
    scales = []
    free, gaussian = np.flatnonzero(blocks < 0), isinstance(mechanism, GeneralizedGaussian)
    if free.size:
        law = DiscreteGaussian(mechanism.sigma**2) if gaussian else DiscreteLaplace(1 / mechanism.epsilon)
        scales.append(law.variance)
        matrix[free, free] = scales[-1]
    for block in block_members(blocks):
        size = block.size
        if size > 1:
            if gaussian:
                variance = _gaussian_block_variance(size, mechanism.sigma)
            else:
                variance = ZeroSumLaplace(size, mechanism.epsilon).variance
            scales.append(variance * size / (size - 1))
            matrix[np.ix_(block, block)] = scales[-1] * (np.eye(size) - 1 / size)
    common = scales[0] if scales and np.ptp(scales) <= 1e-12 * scales[0] else None
    return NoiseCovariance(mechanism.invariants, matrix, common, "exact", 1e-12)


@cache
def _gaussian_block_variance(length: int, sigma: float) -> float:
    """Of one of `length` discrete Gaussians given that they sum to zero: the others then sum to minus that one.

    Nothing is subtracted, so that it is right to rounding where it is 1e-100 of sigma^2 too.
    """
    if sigma > _WIDE:
        return sigma**2 * (1 - 1 / length)
    reach = int(12 * sigma * math.sqrt(length)) + 3
    k = np.arange(-reach, reach + 1)
    weight = np.exp(-np.square(k) / (2 * sigma**2))
    others = weight = weight / weight.sum()
    for bit in f"{length - 1:b}"[1:]:  # its powers by convolution, from the first bit down
        others = np.convolve(others, others, "same")
        if bit == "1":
            others = np.convolve(others, weight, "same")
    weight = weight * others
    return float(weight @ np.square(k) / weight.sum())


def _of_margins(invariants: Invariants, margins: Margins, noise: Integers) -> NoiseCovariance:
    """One coefficient per free set of axes: the mean square of the noise's part there, (draws, d), per dimension."""
    matrix, values = np.zeros((invariants.records, invariants.records)), noise.astype(np.float64)
    scales, errors = [], []
    for axes in free_axes(margins):
        projector = _projector(margins.shape, set(axes))
        squares = np.square(values @ projector).sum(axis=1)
        scales.append(squares.mean() / math.prod(margins.shape[axis] - 1 for axis in axes))
        spread = squares.std(ddof=1) / math.sqrt(noise.shape[0])
        errors.append(spread / squares.mean() if squares.any() else math.inf)
        matrix += scales[-1] * projector
    common = scales[0] if len(scales) == 1 else None
    return NoiseCovariance(invariants, matrix, common, "estimated", float(max(errors, default=0.0)))


def _projector(shape: tuple[int, ...], axes: set[int]) -> Float:
    """P_T, (d, d)."""
    factors = [np.eye(n) - 1 / n if axis in axes else np.full((n, n), 1 / n) for axis, n in enumerate(shape)]
    return np.asarray(reduce(np.kron, factors))


def _of_anything(invariants: Invariants, noise: Integers) -> NoiseCovariance:
    """The mean outer product of noise (draws, d): the mean is known to be zero."""
    values = noise.astype(np.float64)
    matrix = values.T @ values / noise.shape[0]
    variance, fourth = np.diagonal(matrix), np.square(np.square(values)).mean(axis=0)
    moving = variance > 0
    errors = np.sqrt(np.maximum(fourth / np.where(moving, variance, 1.0) ** 2 - 1, 0) / noise.shape[0])
    errors[~moving & (np.diff(Lattice(invariants).basis.tocsr().indptr) > 0)] = math.inf  # may move, and never did
    return NoiseCovariance(invariants, matrix, None, "estimated", float(errors.max(initial=0.0)))
