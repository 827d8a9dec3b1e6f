"""Drawing for simulation: block by block, and magnitudes of discrete Gaussians by rejection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float

Draw: TypeAlias = Callable[[Float, tuple[int, int], np.random.Generator], Float]

BLOCK = 1 << 15  # values of temporary arrays, which stay in a processor's cache


def blocks(size: int, length: int) -> Iterator[slice]:
    """Consecutive slices that cover range(size), each of the given length (at least 1) or less."""
    length = max(length, 1)
    return (slice(start, start + length) for start in range(0, size, length))


def fill(draw: Draw, parameter: Float, noise: NDArray[Any], rng: np.random.Generator) -> None:
    """Fill noise (rows, columns) with draws of a law, given its parameter (rows,) in every row."""
    for columns in blocks(noise.shape[1], BLOCK):
        part = noise[:, columns]
        part[...] = draw(parameter[:, None], part.shape, rng)


def magnitudes(sigma2: Float, rng: np.random.Generator) -> Float:
    """Draw |k| of discrete Gaussians conditioned on k != 0, one for each parameter."""
    small = sigma2 < 1
    if not small.any():
        return _reject(sigma2, _propose_half_normal, rng)
    magnitude = np.empty_like(sigma2)
    magnitude[small] = _reject(sigma2[small], _propose_geometric, rng)
    magnitude[~small] = _reject(sigma2[~small], _propose_half_normal, rng)
    return magnitude


Proposal: TypeAlias = Callable[[Float, np.random.Generator], tuple[Float, Float]]


def _reject(sigma2: Float, propose: Proposal, rng: np.random.Generator) -> Float:
    """Rejection sampling: a proposal k comes with its cost c and is accepted with probability exp(-c)."""
    magnitude, cost = propose(sigma2, rng)
    (pending,) = np.nonzero(rng.standard_exponential(sigma2.size) < cost)
    while pending.size:
        magnitude[pending], cost = propose(sigma2[pending], rng)
        pending = pending[rng.standard_exponential(pending.size) < cost]
    return magnitude


def _propose_half_normal(sigma2: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """Propose the ceiling k of |x|, x normal; exp(-k^2 / 2 sigma2) = exp(-x^2 / 2 sigma2) exp(-cost)."""
    x = np.abs(rng.standard_normal(sigma2.size)) * np.sqrt(sigma2)
    k = np.ceil(x)
    return k, (k - x) * (k + x) / (2 * sigma2)


def _propose_geometric(sigma2: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """Propose k, k - 1 geometric with ratio exp(-3 / 2 sigma2); k^2 = 1 + 3 (k - 1) + (k - 1)(k - 2)."""
    k = 1 + np.floor(rng.standard_exponential(sigma2.size) * (sigma2 / 1.5))
    return k, (k - 1) * (k - 2) / (2 * sigma2)
