"""Observed tables and all their intersections, grouped so that tables alike are worked on together.

Sets of variables are bit masks. A component T is told apart only by the observed tables that contain it, so
everything about it is known at its closure, the intersection of these tables: the family holds no more tables than
that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float

Positions = tuple[int, ...]  # which of a table's own variables


def submasks(mask: int) -> Iterator[int]:
    """All subsets of a set, the set itself first."""
    subset = mask
    while True:
        yield subset
        if subset == 0:
            return
        subset = (subset - 1) & mask


def closed_family(masks: set[int]) -> set[int]:
    """All intersections of the given sets."""
    by_subsets = sum(1 << mask.bit_count() for mask in masks)
    if by_subsets <= max(len(masks) ** 2, 1 << 16):
        closures: dict[int, int] = {}
        for mask in masks:
            for subset in submasks(mask):
                closures[subset] = closures.get(subset, mask) & mask
        return set(closures.values())
    family: set[int] = set()
    for mask in masks:
        family |= {mask, *(mask & other for other in family)}
    return family


@dataclass(frozen=True, eq=False)
class Link:
    """Where a pattern of some members of a group is found: their rows, and the rows of the group that holds it."""

    group: int
    members: NDArray[np.intp]
    targets: NDArray[np.intp]

    @cached_property
    def _sums(self) -> sparse.csr_array | None:
        """The 0/1 matrix (targets, members) where several members share a target."""
        if np.unique(self.targets).size == self.targets.size:
            return None
        rows = np.searchsorted(self._distinct, self.targets)
        return sparse.csr_array((np.ones(rows.size), (rows, self.members)))

    @cached_property
    def _distinct(self) -> NDArray[np.intp]:
        return np.unique(self.targets)

    def add(self, values: Float, total: Float) -> None:
        """Add each member's row of `values` to its target's row of `total`."""
        if self._sums is None:
            total[self.targets] += values[self.members]
        else:
            sums = self._sums @ values[: self._sums.shape[1]].reshape(self._sums.shape[1], -1)
            total[self._distinct] += sums.reshape(-1, *total.shape[1:])


@dataclass
class Group:
    """Tables of one shape whose subsets in the family have the same pattern.

    Attributes
    ----------
    shape : tuple of int
        Levels of the variables.
    masks : list of int
        The tables.
    patterns : tuple of Positions
        Their proper subsets in the family, the largest first.
    exact : bool
        Whether tables known exactly determine them.
    links : dict
        For each pattern where the members' subsets are.
    """

    shape: tuple[int, ...]
    patterns: tuple[Positions, ...]
    exact: bool
    masks: list[int] = field(default_factory=list)
    links: dict[Positions, list[Link]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Cells of each table."""
        return prod(self.shape)

    @cached_property
    def children(self) -> list[Positions]:
        """Maximal patterns."""
        sets = [frozenset(pattern) for pattern in self.patterns]
        return [p for p, own in zip(self.patterns, sets, strict=True) if not any(own < other for other in sets)]

    @property
    def whole(self) -> Positions:
        """All variables of a table of the group."""
        return tuple(range(len(self.shape)))

    def summed(self, pattern: Positions) -> int:
        """Cells of a table that share one cell of the pattern."""
        return self.size // prod(self.shape[i] for i in pattern)


def smallest_superset(pattern: Positions, candidates: list[Positions], shape: tuple[int, ...]) -> Positions | None:
    """Of the candidates that strictly contain a pattern, the one with the fewest cells; None if none does."""
    larger = [c for c in candidates if len(c) > len(pattern) and set(c) > set(pattern)]
    return min(larger, key=lambda c: prod(shape[i] for i in c), default=None)


class Family:
    """The family of some observed tables.

    Parameters
    ----------
    masks : list of int
        Observed tables, in the order of the layout.
    exact : list of bool
        Which of them are known exactly.
    levels : list of int
        Number of levels of each variable.
    """

    def __init__(self, masks: list[int], exact: list[bool], levels: list[int]) -> None:
        self._levels = levels
        known = [mask for mask, is_exact in zip(masks, exact, strict=True) if is_exact]
        first_seen = {mask: i for i, mask in reversed(list(enumerate(masks)))}
        closed = closed_family(set(masks))
        in_order = sorted(closed, key=lambda mask: (mask.bit_count(), first_seen.get(mask, len(masks)), mask))
        grouped: dict[tuple, Group] = {}
        for mask in in_order:
            is_exact = any(mask & other == mask for other in known)
            shape = tuple(levels[i] for i in bits(mask))
            patterns = self._patterns(mask, closed)
            group = grouped.setdefault((shape, patterns, is_exact), Group(shape, patterns, is_exact))
            group.masks.append(mask)
        self.groups = list(grouped.values())
        self.place = {mask: (g, row) for g, group in enumerate(self.groups) for row, mask in enumerate(group.masks)}
        for group in self.groups:
            self._link(group)

    @staticmethod
    def _patterns(mask: int, closed: set[int]) -> tuple[Positions, ...]:
        if 1 << mask.bit_count() <= len(closed):
            subsets = [subset for subset in submasks(mask) if subset != mask and subset in closed]
        else:
            subsets = [subset for subset in closed if subset != mask and subset & mask == subset]
        position = {bit: i for i, bit in enumerate(bits(mask))}
        return tuple(sorted((tuple(position[b] for b in bits(s)) for s in subsets), key=lambda p: (-len(p), p)))

    def _link(self, group: Group) -> None:
        for pattern in group.patterns:
            found: dict[int, tuple[list[int], list[int]]] = {}
            for row, mask in enumerate(group.masks):
                variables = bits(mask)
                target_group, target_row = self.place[sum(1 << variables[i] for i in pattern)]
                members, targets = found.setdefault(target_group, ([], []))
                members.append(row)
                targets.append(target_row)
            group.links[pattern] = [Link(g, np.array(m), np.array(t)) for g, (m, t) in found.items()]

    def closure(self, mask: int) -> int:
        """The smallest member that contains a set of variables.

        Raises
        ------
        KeyError
            If none does.
        """
        if mask in self.place:
            return mask
        containing = [other for other in self._by_variable(mask) if other & mask == mask]
        if not containing:
            raise KeyError(mask)
        return min(containing, key=int.bit_count)

    def _by_variable(self, mask: int) -> list[int]:
        """Members that contain the variable of `mask` that fewest members contain."""
        index = self._members_of_variable
        return min((index.get(i, []) for i in bits(mask)), key=len, default=list(self.place))

    @cached_property
    def _members_of_variable(self) -> dict[int, list[int]]:
        index: dict[int, list[int]] = {}
        for mask in self.place:
            for i in bits(mask):
                index.setdefault(i, []).append(mask)
        return index


def bits(mask: int) -> list[int]:
    """Elements of a set, increasing."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
