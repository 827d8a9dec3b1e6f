"""Linear maps of many geounits at once, as a list of sums of rows that have one number for each of them.

What a geounit's tables make of one another (sums, changes of basis, gains, corrections) is a short list of sums with
few terms. Rows are numbered, and the list is made by the classes that know the steps: each takes the rows of its input,
an array of the input's shape, and gives those of its output. `lanes` does the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from constraint_builders.arrays import Float, Index, Integers


@dataclass(frozen=True)
class RowSums:
    """The list, in order; each of its entries is a run of sums of rows that follow one another.

    Attributes
    ----------
    targets : ndarray of int, (sums,)
        The first row that is written to; where it is one of the terms, it is the first of them.
    lengths : ndarray of int, (sums,)
        How many rows.
    firsts : ndarray of int, (sums + 1,)
        Where the terms of each begin.
    sources : ndarray of int, (terms,)
    factors : ndarray, (classes, terms)
    """

    targets: Integers
    lengths: Integers
    firsts: Integers
    sources: Integers
    factors: Float


class RowProgram:
    """A list of sums that is being made.

    Parameters
    ----------
    classes : int
        Kinds of geounits, each with factors of its own.

    Attributes
    ----------
    count : int
        Rows in use.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.count = 0
        self._free: list[tuple[int, int]] = []  # runs of rows: where they start, and how many
        self._targets: list[Index] = []
        self._counts: list[Index] = []
        self._sources: list[Index] = []
        self._factors: list[Float] = []

    def new(self, *shape: int) -> Index:
        """Rows that nothing else uses."""
        size = prod(shape)
        for i, (first, count) in enumerate(self._free):
            if count >= size:
                self._free[i] = (first + size, count - size)
                return np.arange(first, first + size).reshape(shape)
        self.count += size
        return np.arange(self.count - size, self.count).reshape(shape)

    def free(self, rows: Index) -> None:
        """Say that what some rows hold is not used any more."""
        own = np.unique(rows)
        for part in np.split(own, np.flatnonzero(np.diff(own) > 1) + 1):
            self._free.append((int(part[0]), part.size))

    def combine(self, targets: Index, sources: Sequence[Index], factors: Sequence[float]) -> None:
        """Set every target to the sum of its entry in each of the sources times that source's factor."""
        terms = np.stack([np.broadcast_to(own, targets.shape) for own in sources], axis=-1)
        given = np.broadcast_to(np.array(factors, dtype=float), terms.shape)
        self._append(targets.flatten(), np.full(targets.size, len(sources)), terms.ravel(), given.reshape(1, -1))

    def gather(self, targets: Index, places: Index, sources: Index, factors: Float | None = None) -> None:
        """Set targets (n,) to sums of sources (terms,), each of which goes to a place among them, times their factors.

        Factors are (classes, terms), or 1.
        """
        order = np.argsort(places, kind="stable")
        given = np.ones((1, sources.size)) if factors is None else factors[:, order]
        self._append(targets, np.bincount(places, minlength=targets.size), sources[order], given)

    def multiply(self, targets: Index, matrices: Float, sources: Index) -> None:
        """Set targets (r, rest) to matrices (classes, r, q) times sources (q, rest)."""
        r, rest = targets.shape
        terms = np.broadcast_to(sources.T, (r, *sources.T.shape))
        given = np.broadcast_to(matrices[:, :, None, :], (len(matrices), r, rest, len(sources)))
        counts = np.full(targets.size, len(sources))
        self._append(targets.flatten(), counts, terms.ravel(), given.reshape(len(matrices), -1))

    def _append(self, targets: Index, counts: Index, sources: Index, factors: Float) -> None:
        self._targets.append(targets)
        self._counts.append(counts)
        self._sources.append(sources)
        self._factors.append(np.broadcast_to(factors, (self._classes, sources.size)))

    def finished(self) -> RowSums:
        """The list, with runs of rows together that are summed alike."""
        nothing = np.zeros(0, dtype=np.intp)
        counts = np.concatenate([nothing, *self._counts])
        firsts = np.cumsum(np.concatenate([[0], counts]))
        targets = np.concatenate([nothing, *self._targets])
        sources = np.concatenate([nothing, *self._sources])
        factors = np.concatenate([np.zeros((self._classes, 0)), *self._factors], axis=1)
        begins = _run_starts(targets, counts, firsts, sources, factors)
        taken = np.repeat(firsts[begins], counts[begins]) + _counted(counts[begins])
        return RowSums(
            targets[begins].astype(np.int64),
            np.diff(np.concatenate([begins, [targets.size]])).astype(np.int64),
            np.cumsum(np.concatenate([[0], counts[begins]])).astype(np.int64),
            sources[taken].astype(np.int64),
            np.ascontiguousarray(factors[:, taken]),
        )


def _run_starts(targets: Index, counts: Index, firsts: Index, sources: Index, factors: Float) -> Index:
    """Which sums do not go on with what the one before them does, a row further on.

    A run must not read what it writes, but for each row the one that it is written to: then rows may be taken in any
    order.
    """
    if not targets.size:
        return np.zeros(0, dtype=np.intp)
    goes_on = np.zeros(targets.size, dtype=bool)
    goes_on[1:] = (np.diff(targets) == 1) & (np.diff(counts) == 0) & (counts[1:] > 0)
    later = np.repeat(goes_on, counts)  # terms of sums that may go on
    before = np.arange(sources.size) - np.repeat(counts, counts)
    before[~later] = 0
    differs = later & ((sources != sources[before] + 1) | (factors != factors[:, before]).any(axis=0))
    own = np.repeat(targets, counts)
    is_first = np.arange(sources.size) == np.repeat(firsts[:-1], counts)
    clashes = np.flatnonzero(differs)
    goes_on[np.repeat(np.arange(targets.size), counts)[clashes]] = False
    begins = np.flatnonzero(~goes_on)
    run = np.cumsum(~goes_on) - 1
    first, last = targets[begins], targets[np.concatenate([begins[1:], [targets.size]]) - 1]
    of_term = np.repeat(run, counts)
    inside = (sources >= first[of_term]) & (sources <= last[of_term]) & ~(is_first & (sources == own))
    goes_on[np.isin(run, np.unique(of_term[inside]))] = False
    return np.flatnonzero(~goes_on)


def _counted(counts: Index) -> Index:
    """0, 1, ... for each of some counts, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
