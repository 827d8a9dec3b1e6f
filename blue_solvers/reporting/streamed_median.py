"""The median of more numbers than fit in memory, exactly, by passes that count their leading bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from constraint_builders.arrays import Float

STEPS = (16, 16, 16, 16)  # bits of a 64-bit number that a pass counts, the leading ones first


def median_and_largest(pieces: Callable[[], Iterable[Float]]) -> tuple[float, float, int]:
    """The median and the largest of numbers of 0 or more, and how many there are.

    Those are ordered as their bits are. Each pass counts the numbers that begin with the bits known so far, by the bits
    that follow.

    Parameters
    ----------
    pieces : callable
        Gives the numbers piece by piece, ndarrays (k,); called for every pass. There is at least one number.

    Returns
    -------
    median, largest : float
    count : int
    """
    largest, count, begun, left = 0.0, 0, [0, 0], [0, 0]
    shift = 64
    for number, step in enumerate(STEPS):
        shift -= step
        counts = {start: np.zeros(1 << step, dtype=np.int64) for start in begun}
        for piece in pieces():
            bits = (piece + 0.0).view(np.int64) >> shift
            if not number:
                largest, count = max(largest, float(piece.max(initial=0.0))), count + piece.size
            for start, own in counts.items():
                inside = bits[bits >> step == start] & ((1 << step) - 1)
                own += np.bincount(inside, minlength=own.size)
        if not number:
            left = [(count - 1) // 2, count // 2]  # how many come before each of the two in the middle
        found = [_follow(counts[start], before) for start, before in zip(begun, left, strict=True)]
        begun = [(start << step) + bits for start, (bits, _) in zip(begun, found, strict=True)]
        left = [before for _, before in found]
    low, high = np.array(begun, dtype=np.int64).view(np.float64).tolist()
    return low + (high - low) / 2, largest, count


def _follow(counts: np.ndarray, before: int) -> tuple[int, int]:
    """The bits that follow a number's, by counts (2 ** step,), and how many with the same bits come before it."""
    sums = np.cumsum(counts)
    bits = int(np.searchsorted(sums, before, side="right"))
    return bits, before - int(sums[bits] - counts[bits])
