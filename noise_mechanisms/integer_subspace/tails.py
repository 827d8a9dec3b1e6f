"""How far lattice noise reaches: bounds on P(|z| >= t) and on the lattice points in a ball, with every constant.

The paper has them for large enough t, with constants that it does not work out (Lemma 11, equations 7 and 10). Here
they hold at every t. Throughout n is the dimension of the lattice and b*_1, ..., b*_n its Gram-Schmidt vectors; the
boxes z + P, P = {sum of c_i b*_i, |c_i| <= 1/2}, tile the space that the lattice spans, reach mu = sqrt(sum |b*_i|^2) /
2 from their middle and have the mean square s^2 = sum |b*_i|^2 / 12.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaincc, gammaln

from constraint_builders.description.reals import real_number, shown
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.mechanisms import GeneralizedGaussian, GeneralizedLaplace

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
    t = _distance(t, "t")
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
    radius, n = _distance(radius, "radius"), lattice.dimension
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


def _distance(value: float, what: str) -> float:
    number = real_number(value, what)
    if not 0 <= number < math.inf:
        raise ValueError(f"{what} is {shown(value)}: give a finite number that is not negative")
    return float(number)
