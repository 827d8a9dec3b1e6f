"""Sets of variables that are closed under intersection, as bit masks, and sums over what lies above and below a set.

A component is told apart only by the observed tables that contain it, so everything about it is known at its closure,
the smallest member that holds it: no other sets are needed than intersections of tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from itertools import pairwise
from math import log, prod

import numpy as np

from constraint_builders.arrays import Float, Index

SMALLER = 16  # times that a table between others is smaller than the one that it is summed from
STEP = 40  # cells that would take as long as a step itself


class IntersectionLattice:
    """All intersections of some sets, and how they lie in one another.

    Parameters
    ----------
    masks : iterable of int
        At least one.
    sizes : sequence of int
        Levels of the variables, by their bits.

    Attributes
    ----------
    members : list of int
        Those of more variables first.
    number : dict
        The place of each among them.
    has : ndarray of bool, (members, variables)
    is_regular : ndarray of bool, (members,)
        Of which all subsets are members.
    inside, axis, without : ndarray of int, (pairs,)
        Of every regular member and variable of it its number, the variable, and which member it is without that.
    covers, below : callable
        The largest members inside a member; and all inside it, itself with them, those of more variables first.
    contrasts_of : callable
        The members that are closures of subsets of a set, and the number of its contrasts that each is of.
    """

    def __init__(self, masks: set[int], sizes: Sequence[int]) -> None:
        self._sizes, self._generators = sizes, masks
        self._bits = np.array([1 << axis for axis in range(len(sizes))], dtype=np.int64 if len(sizes) < 63 else object)
        largest = max(masks)
        if not all(largest ^ bit in masks for bit in bits(largest)) or not self._lay_pairs(masks):
            self._lay_pairs(intersections(masks))
        self.covers, self.below = cache(self._lay_covers), cache(self._lay_below)
        self.contrasts_of = cache(self._lay_contrasts)

    def _lay_pairs(self, masks: set[int]) -> bool:
        """Put members in order; whether all subsets are members."""
        members = np.array(sorted(masks), dtype=self._bits.dtype)
        has = (members[:, None] & self._bits) != 0
        order = np.argsort(-has.sum(axis=1), kind="stable")
        self.has, self.members = has[order], members[order].tolist()
        self.number = dict(zip(self.members, range(len(self.members)), strict=True))
        inside, axis = np.nonzero(self.has)
        wanted = members[order][inside] ^ self._bits[axis]
        found = np.minimum(np.searchsorted(members, wanted), len(members) - 1)
        is_member = members[found] == wanted
        without, self.is_regular = order.argsort()[found], np.ones(len(members), dtype=bool)
        irregular = inside[~is_member]
        while self.is_regular[irregular].any():
            self.is_regular[irregular] = False
            irregular = inside[~self.is_regular[without] & is_member]
        kept = self.is_regular[inside]
        self.inside, self.axis, self.without = inside[kept], axis[kept], without[kept]
        return bool(is_member.all())

    def size(self, mask: int) -> int:
        """Cells of a table of a set of variables."""
        return prod([self._sizes[number] for number in places(mask)])

    def _lay_covers(self, mask: int) -> list[int]:
        inside = [mask ^ bit for bit in bits(mask)]
        if all(own in self.number for own in inside):
            return inside
        return maximal({mask & other for other in self._generators} - {mask})

    def _lay_below(self, mask: int) -> list[int]:
        if 1 << mask.bit_count() <= len(self.members):
            return sorted([own for own in submasks(mask) if own in self.number], key=int.bit_count, reverse=True)
        return [own for own in self.members if own & mask == own]

    def sums_above(self, values: Float) -> Float:
        """For every member the sum of the values of members that hold it, (members,)."""
        sums, others = np.where(self.is_regular, values, 0.0), np.zeros(len(self.members))
        for number in np.flatnonzero(values * ~self.is_regular).tolist():
            others[[self.number[own] for own in self.below(self.members[number])]] += values[number]
        for _, inside, without in self._by_axis:
            sums[without] += sums[inside]
        return sums + others

    @cached_property
    def _by_axis(self) -> list[tuple[int, Index, Index]]:
        """The levels of every variable, which regular members have it, and which they are without it."""
        order = np.argsort(self.axis, kind="stable")
        inside, without = self.inside[order], self.without[order]
        ends = np.searchsorted(self.axis[order], range(len(self._sizes) + 1)).tolist()
        parts = [slice(*own) for own in pairwise(ends)]
        return [(levels, inside[own], without[own]) for levels, own in zip(self._sizes, parts, strict=True)]

    def sums_of_contrasts(self, values: Float) -> Float:
        """For each regular member the sum over its subsets of their values, times each one's contrasts, (members,)."""
        sums = values.copy()
        for levels, inside, without in self._by_axis:
            sums[inside] = sums[inside] * (levels - 1) + sums[without]
        return sums

    def sum_of_contrasts(self, values: Float, mask: int) -> float:
        """The same, of values (members,), of any set that some member holds, of the closures of its subsets."""
        return float(sum([values[self.number[own]] * count for own, count in self.contrasts_of(mask)]))

    def meets(self, mask: int) -> dict[int, int]:
        """What members that are closures of subsets of a set share with it, smallest first, each with the member."""
        if mask in self.number:
            return {own: own for own in reversed(self.below(mask))}
        found: dict[int, int] = {}
        for own in reversed(self.members):
            found.setdefault(own & mask, own)
        return dict(sorted(found.items(), key=lambda pair: pair[0].bit_count()))

    def _lay_contrasts(self, mask: int) -> list[tuple[int, float]]:
        meets = self.meets(mask)
        counts: dict[int, float] = {}
        for meet in meets:
            if all(meet ^ bit in meets for bit in bits(meet)):
                counts[meet] = prod([self._sizes[number] - 1 for number in places(meet)])
            else:
                counts[meet] = self.size(meet) - sum([n for own, n in counts.items() if own & meet == own])
        return [(meets[meet], count) for meet, count in counts.items()]


def intersections(masks: set[int]) -> set[int]:
    """All intersections of some sets, themselves with them."""
    listed = sum(1 << mask.bit_count() for mask in masks)
    family: set[int] = set()
    for number, mask in enumerate(sorted(masks, key=int.bit_count), 1):
        family |= {mask, *(mask & other for other in family)}
        if len(family) * (len(masks) - number) > listed:  # less work: of every subset the smallest intersection with it
            closures: dict[int, int] = {}
            for own in masks:
                for subset in submasks(own):
                    closures[subset] = closures.get(subset, own) & own
            return set(closures.values())
    return family


def maximal(masks: set[int]) -> list[int]:
    """The sets that lie in no other one."""
    found: list[int] = []
    for mask in sorted(masks, key=lambda own: (-own.bit_count(), own)):
        if not any(mask & other == mask for other in found):
            found.append(mask)
    return found


def tree_of_sums(source: int, wanted: list[int], size: Callable[[int], float]) -> list[tuple[int, int]]:
    """Sets and those that each is summed from, these first: some inside a set, and some between that save work.

    Parameters
    ----------
    source : int
    wanted : list of int
        None of which lies in another one.
    size : callable
        Cells of a set's table.
    """
    found, left = [], sorted(wanted, key=lambda mask: (-size(mask), mask))
    while left:
        union, limit = left[0], size(source) / SMALLER
        while True:
            missing = Counter([own & ~union for own in left])
            grown = [(size(union | own), own, n) for own, n in missing.items() if own]
            fits = [(n / log(cells / size(union)), -own) for cells, own, n in grown if cells <= limit]
            if not fits:
                break
            union |= -max(fits)[1]
        inside = [own for own in left if not own & ~union]
        if (len(inside) - 1) * (size(source) + STEP) <= len(inside) * (size(union) + STEP):
            union, inside = left[0], left[:1]
        left = [own for own in left if own not in inside]
        found.append((union, source))
        if len(inside) > 1:
            found += tree_of_sums(union, [own for own in inside if own != union], size)
    return found


def submasks(mask: int) -> Iterator[int]:
    """All subsets of a set, the set itself first."""
    subset = mask
    while True:
        yield subset
        if subset == 0:
            return
        subset = (subset - 1) & mask


def bits(mask: int) -> list[int]:
    """The elements of a set as sets of one, increasing."""
    return [1 << number for number in places(mask)]


def places(mask: int) -> list[int]:
    """The numbers of the elements of a set, increasing."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
