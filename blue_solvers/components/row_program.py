"""Linear maps of many geounits at once, as a list of sums of rows that have one number for each of them.

What a geounit's tables make of one another (sums, changes of basis, gains, corrections) is a short list of sums with few
terms. Rows are numbered, and the list is made by the classes that know the steps: each takes the rows of its input, an
array of the input's shape, and gives those of its output. `lanes` does the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from constraint_builders.arrays import Float, Index, Integers


@dataclass(frozen=True)
class RowSums:
    """The list, in order.

    Attributes
    ----------
    targets : ndarray of int, (sums,)
        The row that each sum is written to; where it is one of the terms, it is the first.
    firsts : ndarray of int, (sums + 1,)
        Where the terms of each begin.
    sources : ndarray of int, (terms,)
    factors : ndarray, (classes, terms)
    """

    targets: Integers
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
        self._targets: list[Index] = []
        self._counts: list[Index] = []
        self._sources: list[Index] = []
        self._factors: list[Float] = []

    def new(self, *shape: int) -> Index:
        """Rows that nothing else uses."""
        first = self.count
        self.count += prod(shape)
        return np.arange(first, self.count).reshape(shape)

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
        """The list."""
        nothing = np.zeros(0, dtype=np.intp)
        firsts = np.cumsum(np.concatenate([[0], *self._counts]), dtype=np.int64)
        targets = np.concatenate([nothing, *self._targets]).astype(np.int64)
        sources = np.concatenate([nothing, *self._sources]).astype(np.int64)
        factors = np.concatenate([np.zeros((self._classes, 0)), *self._factors], axis=1)
        return RowSums(targets, firsts, sources, np.ascontiguousarray(factors))
