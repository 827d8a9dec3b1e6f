"""A tree whose nodes lie at levels: what is computed on a geography needs no more of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray


class LevelledTree:
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
        return tuple(np.flatnonzero(self.level_of == level) for level in range(len(self.levels)))

    @cached_property
    def rank_in_level(self) -> NDArray[np.intp]:
        """For every node its number within its level, (N,)."""
        ranks = np.empty(self.size, dtype=np.intp)
        for members in self.members:
            ranks[members] = np.arange(members.size)
        return ranks

    @cached_property
    def child_counts(self) -> NDArray[np.intp]:
        """Number of children of every node, (N,)."""
        return np.bincount(self.parent[self.parent >= 0], minlength=self.size)
