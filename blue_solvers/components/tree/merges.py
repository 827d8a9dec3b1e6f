"""In which order children are added up: pairs of neighbours, pairs of these, until one is left for every parent.

Sums of two share what a parent learns without subtracting one covariance from another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constraint_builders.arrays import Index


@dataclass(frozen=True)
class Merges:
    """A forest of sums over terms, numbered from 0, and over sums, numbered on.

    Attributes
    ----------
    rounds : list of (left, right, total)
        Which numbers are added up to which, (merges,) each.
    totals : ndarray of int, (owners,)
        The last sum of every owner, or its only term.
    size : int
        Terms and sums together.
    """

    rounds: list[tuple[Index, Index, Index]]
    totals: Index
    size: int


def merges_of(owners: Index) -> Merges:
    """Merges of terms by their owner, (terms,), given in order of owners; every owner has a term."""
    nodes, size = np.arange(owners.size), owners.size
    rounds: list[tuple[Index, Index, Index]] = []
    while True:
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        if starts.size == owners.size:
            return Merges(rounds, nodes, size)
        counts = np.diff(np.append(starts, owners.size))
        rank = np.arange(owners.size) - np.repeat(starts, counts)
        even = rank % 2 == 0
        paired = even & (rank + 1 < np.repeat(counts, counts))
        left = np.flatnonzero(paired)
        total = size + np.arange(left.size)
        rounds.append((nodes[left], nodes[left + 1], total))
        nodes = nodes.copy()
        nodes[left] = total
        nodes, owners = nodes[even], owners[even]
        size += left.size
