"""A tree whose nodes are each at a level."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from constraint_builders.description.described import Described


class LevelledTree(Described):
    """Nodes of a tree, every one at a level below its parent's; a `Spine` is one that was checked, with geocodes.

    Parameters
    ----------
    parent : ndarray of int, (N,)
        Position of every node's parent; -1 for the root.
    level_of : ndarray of int, (N,)
        Position among `levels` of every node's level.
    levels : tuple of str
        From the root down.
    """

    def __init__(self, parent: NDArray[np.intp], level_of: NDArray[np.intp], levels: tuple[str, ...]) -> None:
        self.parent, self.level_of, self.levels = parent, level_of, levels

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.parent.size

    @cached_property
    def members(self) -> tuple[NDArray[np.intp], ...]:
        """For every level the positions of its nodes, in their order."""
        numbers = range(len(self.levels))
        if (self.level_of[1:] >= self.level_of[:-1]).all():
            stops = np.searchsorted(self.level_of, numbers, side="right").tolist()
            return tuple(np.arange(start, stop, dtype=np.intp) for start, stop in pairwise([0, *stops]))
        return tuple(np.flatnonzero(self.level_of == level) for level in numbers)

    @cached_property
    def rank_in_level(self) -> NDArray[np.intp]:
        """For every node its number within its level, (N,)."""
        ranks = np.empty(self.size, dtype=np.intp)
        for members in self.members:
            ranks[members] = np.arange(members.size)
        return ranks

    def ancestors_at(self, nodes: NDArray[np.intp], level: int) -> NDArray[np.intp]:
        """For every one of some nodes, (k,), its ancestor (or itself) at a level, or -1."""
        current = nodes
        while (below := self.level_of[current] > level).any():
            current = np.where(below, self.parent[current], current)
        return np.where(self.level_of[current] == level, current, -1)

    def inherited(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What holds for whole nodes and so for all below, (N, ...)."""
        passed = flags.copy()
        for members in self.members[1:]:
            passed[members] |= passed[self.parent[members]]
        return passed

    @cached_property
    def child_counts(self) -> NDArray[np.intp]:
        """Number of children of every node, (N,)."""
        return np.bincount(self.parent[self.parent >= 0], minlength=self.size)
