"""Whether chains agree, and how many independent draws theirs are worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array


def potential_scale_reduction(traces: ArrayLike) -> Float:
    """Gelman and Rubin's factor of every cell: near 1 when chains from dispersed starts have come to agree.

    Parameters
    ----------
    traces : array_like, (chains, length, d)
        Without burn-in; at least 2 chains of length 2.

    Returns
    -------
    ndarray, (d,)
        1 for cells that never change, infinite for those that never change within chains and differ between them.

    Raises
    ------
    ValueError
        If there are fewer, or a trace is no number.
    """
    traces = real_array(traces, "traces")
    if not np.isfinite(traces).all():
        raise ValueError("traces hold NaN or infinite numbers: give finite ones")
    if traces.ndim != 3 or min(traces.shape[:2]) < 2:
        raise ValueError(
            f"traces need the shape (chains, length, d) with 2 chains of length 2 or more: got {traces.shape}"
        )
    return _scale_reduction(traces)


def split_scale_reduction(traces: Float) -> Float:
    """Gelman and Rubin's factor of every cell with each chain split in two, which is above 1 for trends too.

    Parameters
    ----------
    traces : ndarray, (chains, length, d)
        At least 4 long.

    Returns
    -------
    ndarray, (d,)
        As `potential_scale_reduction`.
    """
    half = traces.shape[1] // 2
    return _scale_reduction(np.concatenate([traces[:, :half], traces[:, traces.shape[1] - half :]]))


def _scale_reduction(traces: Float) -> Float:
    """Gelman and Rubin's factor of every cell, (d,), from traces (chains, length, d)."""
    length = traces.shape[1]
    within = traces.var(axis=1, ddof=1).mean(axis=0)
    between = traces.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.sqrt((length - 1) / length + between / within)
    return np.where(within > 0, factor, np.where(between > 0, np.inf, 1.0))


def effective_sizes(traces: Float) -> Float:
    """How many independent draws give means as precise as these, for every quantity.

    Autocorrelations are those of all chains together, about their common mean, so that chains which disagree count for
    little; they are summed up to the first pair of lags whose sum is not positive (Geyer, 1992; Gelman and others,
    Bayesian Data Analysis, 3rd edition, section 11.5).

    Parameters
    ----------
    traces : ndarray, (chains, draws, quantities)

    Returns
    -------
    ndarray, (quantities,)
        At most chains * draws; as many for what never changes.
    """
    chains, length, count = traces.shape
    centred = np.ascontiguousarray(np.moveaxis(traces - traces.mean(axis=1, keepdims=True), 1, 2))
    size = 1 << int(np.ceil(np.log2(2 * length)))
    spectrum = np.fft.rfft(centred, size)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=0)
    covariance = np.fft.irfft(power, size)[:, :length].T / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + (traces.mean(axis=1).var(axis=0, ddof=1) if chains > 1 else 0.0)
    moving = total > 0
    correlation = 1 - (within - covariance) / np.where(moving, total, 1.0)
    pairs = correlation[: length // 2 * 2].reshape(length // 2, 2, count).sum(axis=1)
    ended = np.maximum.accumulate(pairs <= 0, axis=0)
    falling = np.minimum.accumulate(np.where(ended, 0.0, pairs), axis=0)
    time = np.maximum(2 * falling.sum(axis=0) - 1, 1.0)
    return np.where(moving, chains * length / time, float(chains * length))
