"""The median of more numbers than fit in memory, exactly, by passes that count their leading bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl

from constraint_builders.arrays import Float, Integers

PASSES = (22, 43, 64)  # leading bits that are known after each
MOST_DIFFERENT = 1 << 20  # numbers that one pass counts by all their bits
TOGETHER = 1 << 19  # numbers that wait to be counted

Pieces = Callable[[], Iterable[Float]]


def median_and_largest(pieces: Pieces) -> tuple[float, float, int]:
    """The median and the largest of numbers of 0 or more, and how many there are.

    Those are ordered as their bits are. One pass counts the different numbers, which are few among standard errors of
    most tables. Where they are many each of some passes counts the numbers that begin with the bits known so far, by
    the bits that follow.

    Parameters
    ----------
    pieces : callable
        Gives the numbers piece by piece, ndarrays (k,) or (rows, k), of which rows equal to the one before are counted
        with it; called for every pass. There is at least one number.

    Returns
    -------
    median, largest : float
    count : int
    """
    if (different := _counts(pieces, 64, most=MOST_DIFFERENT)) is not None:
        numbers, counts = different[0].view(np.float64), different[1]
        size, sums = int(counts.sum()), np.cumsum(counts)
        low, high = numbers[np.searchsorted(sums, [(size - 1) // 2, size // 2], side="right")].tolist()
        return low + (high - low) / 2, float(numbers[-1]), size
    size = sum(piece.size for piece in pieces())
    before, begun, known, here = (size - 1) // 2, 0, 0, 0
    for bits in PASSES:
        leading, counts = _counts(pieces, bits, begun, known) or (np.zeros(0, np.int64),) * 2
        sums = np.cumsum(counts)
        place = int(np.searchsorted(sums, before, side="right"))
        begun, known, here = int(leading[place]), bits, int(counts[place])
        before -= int(sums[place]) - here
    low = float(np.int64(begun).view(np.float64))
    above = (piece[piece > low].min(initial=np.inf) for piece in pieces())
    high = low if size % 2 or before + 1 < here else float(min(above))
    return low + (high - low) / 2, max(float(piece.max(initial=0.0)) for piece in pieces()), size


def _summed(counts: pl.DataFrame) -> pl.DataFrame:
    return counts.group_by("bits").agg(pl.col("count").sum())


def _counts(
    pieces: Pieces, bits: int, begun: int = 0, known: int = 0, most: float = np.inf
) -> tuple[Integers, Integers] | None:
    """The different leading bits of numbers that begin with those that are known, in order, and how often each occurs.

    None where there are more than so many.
    """
    found, waiting = pl.DataFrame(schema={"bits": pl.Int64, "count": pl.Int64}), 0
    for piece in pieces():
        rows = piece.reshape(len(piece), -1)
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
        times = np.diff(np.flatnonzero(np.append(new, True)))
        leading = (rows[new].ravel() + 0.0).view(np.int64) >> (64 - bits)
        own = pl.DataFrame({"bits": leading, "count": np.repeat(times, rows.shape[1])})
        if known:
            own = own.filter(pl.Series(leading >> (bits - known) == begun))
        found, waiting = pl.concat([found, own]), waiting + own.height
        if waiting > TOGETHER:
            found, waiting = _summed(found), 0
            if found.height > most:
                return None
    found = _summed(found).sort("bits")
    if found.height > most:
        return None
    return found["bits"].to_numpy(), found["count"].to_numpy()
