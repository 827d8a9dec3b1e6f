"""Exact draws along one lattice direction under the L1 law: the step of the heat-bath chain.

Along a move with cells c and steps a, the law of the whole number t is proportional to

    exp(-epsilon f(t)),   f(t) = sum over c of |z_c + a_c t| = sum over kinks of weight * |t - place| + constant,

the second form holding for whole t: with q = floor(-z / a) and r the remainder, |z + a t| has kinks of weight |a| - r
at q and r at q + 1. Between kinks the law is geometric, so that one uniform number and an inversion give t exactly (up
to float64). Here it is done for many chains at once in numpy; `compiled` has the same, one chain after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from noise_mechanisms.integer_subspace.invariants import Integers


def kinks(values: Integers, steps: Integers, unit: bool) -> tuple[Integers, Integers]:
    """Places of the kinks, sorted, and their weights, (chains, kinks) each.

    Parameters
    ----------
    values, steps : ndarray of int64, (chains, width)
        z and a on the cells of each chain's move. A step of 0 makes no kink.
    unit : bool
        Whether all steps are 1 or -1, which makes half as many kinks.
    """
    if unit:
        places = np.sort(-steps * values, axis=1)
        return places, np.ones_like(places)
    size = abs(steps)
    offset = -np.sign(steps) * values
    below, rest = np.divmod(offset, np.maximum(size, 1))
    places = np.concatenate([below, below + 1], axis=1)
    weights = np.concatenate([size - rest * (size > 0), rest * (size > 0)], axis=1)
    order = np.argsort(places, axis=1, kind="stable")
    return np.take_along_axis(places, order, 1), np.take_along_axis(weights, order, 1)


def draw_steps(places: Integers, weights: Integers, epsilon: float, uniform: Float) -> Integers:
    """Draw t with probabilities proportional to exp(-epsilon * sum of weight * |t - place|), by inversion.

    Parameters
    ----------
    places, weights : ndarray of int64, (chains, kinks)
        Places sorted, weights not negative, their sum positive.
    epsilon : float
        Positive.
    uniform : ndarray, (chains,)
        In [0, 1); t increases with it.

    Returns
    -------
    ndarray of int64, (chains,)
    """
    total = weights.sum(axis=1, keepdims=True)
    slopes = 2 * np.cumsum(weights, axis=1) - total
    lengths = np.diff(places, axis=1)
    energy = np.cumsum(np.concatenate([np.zeros_like(total), slopes[:, :-1] * lengths], axis=1), axis=1)
    # Segment 0 ends at the first kink, segment i runs from just beyond kink i - 1 to kink i, the last has no end.
    start = np.concatenate([places[:, :1], places + 1], axis=1)
    slope = np.concatenate([-total, slopes], axis=1)
    length = np.concatenate([np.full_like(total, -1), lengths, np.full_like(total, -1)], axis=1)
    falling = slope > 0
    least = np.concatenate([energy[:, :1], np.where(slopes > 0, energy + slopes, np.roll(energy, -1, axis=1))], axis=1)
    rate = epsilon * abs(slope)
    mass = _geometric_mass(rate, length) * np.exp(-epsilon * (least - least.min(axis=1, keepdims=True)))
    cumulative = np.cumsum(mass, axis=1)
    target = uniform * cumulative[:, -1]
    last = cumulative.shape[1] - 1
    segment = np.minimum((cumulative <= target[:, None]).sum(axis=1), last)[:, None]
    chosen = [np.take_along_axis(array, segment, 1)[:, 0] for array in (start, length, falling, rate, mass, cumulative)]
    return _within_segment(target, *chosen)


def _geometric_mass(rate: NDArray[Any], length: Integers) -> Float:
    """Sum of exp(-rate u) over u = 0, ..., length - 1; length -1 stands for no end."""
    flat = rate == 0
    per_step = np.where(flat, 1.0, -np.expm1(-rate))
    return np.asarray(np.where(flat, length, np.where(length < 0, 1.0, -np.expm1(-rate * length)) / per_step))


def _within_segment(
    target: Float, start: Integers, length: Integers, falling: NDArray, rate: Float, mass: Float, cumulative: Float
) -> Integers:
    """Invert the geometric law inside the chosen segment, from the end of larger probability."""
    before = np.clip((target - (cumulative - mass)) / mass, 0.0, 1.0)
    share = np.where(falling | (rate == 0), before, 1 - before)
    share = np.minimum(share, 1 - 2.0**-53)
    ends = length >= 0
    kept = np.where(ends, -np.expm1(-rate * length), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(rate == 0, share * length, np.log1p(-share * kept) / -rate)
    steps = np.floor(steps).astype(np.int64)
    steps = np.where(ends, np.minimum(steps, length - 1), steps)
    rising = ~falling & (rate > 0)
    # Rising segments count down from their end; the unbounded one on the left ends where it starts.
    return np.where(rising, start + np.where(ends, length - 1, 0) - steps, start + steps)
