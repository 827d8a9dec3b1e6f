"""Self-consistency between tables at all geounits of a spine.

The nearest measured geounits below a measured one give an equation where these cover it without a gap: the parts add up
to the whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags
from constraint_builders.description.spine import Spine
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.marginals import cell_map


class SpineConsistency(SelfConsistency):
    """The equations between tables of all geounits of a spine."""

    _places: Spine

    def _covered(self, has: Flags) -> Flags:
        """Geounits whose children are each measured, or covered in turn."""
        spine = self._places
        covered = spine.child_counts > 0
        for members in reversed(spine.members):
            known = has[members] | covered[members]
            parents = spine.parent[members[~known]]
            covered[parents[parents >= 0]] = False
        return covered

    def _determined_by(self, has: Flags) -> Flags:
        spine = self._places
        from_below = has if has.all() else has | self._covered(has)
        if from_below.all():
            return from_below
        unknown = np.bincount(spine.parent[(spine.parent >= 0) & ~from_below], minlength=spine.size)
        determined = from_below.copy()
        for members in spine.members:
            parents = spine.parent[members]
            above = (parents >= 0) & determined[parents] & (unknown[parents] == 1)
            determined[members] |= above
        return determined

    def _count_between(self, has: Flags) -> int:
        return int((has & self._covered(has)).sum())

    def _between(self, has: Flags) -> sparse.csr_array:
        """A geounit that its measured descendants cover is the sum of the nearest of them."""
        size = self._places.size
        whole = np.flatnonzero(has & self._covered(has))
        number = np.full(size, -1)
        number[whole] = np.arange(whole.size)
        nearest = self._nearest_measured_above(has)
        parts = np.flatnonzero(has & (nearest >= 0))
        parts = parts[number[nearest[parts]] >= 0]
        rows = np.concatenate([number[whole], number[nearest[parts]]])
        signs = np.repeat(np.array([1, -1], np.int8), [whole.size, parts.size])
        return sparse.csr_array((signs, (rows, np.concatenate([whole, parts]))), shape=(whole.size, size))

    def _nearest_measured_above(self, has: Flags) -> NDArray[np.int64]:
        """For every geounit the nearest measured one strictly above it, or -1."""
        spine = self._places
        nearest = np.full(spine.size, -1, dtype=np.int64)
        for members in spine.members[1:]:
            parents = spine.parent[members]
            nearest[members] = np.where(has[parents], parents, nearest[parents])
        return nearest

    def _sums_between(self, index: int) -> list[sparse.csr_array]:
        """One equation for every cell of a table, at geounits all of whose children, of one level, have it measured."""
        spine = self._places
        members = spine.members[self._levels[index]]
        found = []
        for other, table in enumerate(self._tables):
            if table.name != self._tables[index].name or self._levels[other] <= self._levels[index]:
                continue
            children = spine.members[self._levels[other]]
            measured = np.isfinite(self._variances[other])
            counts = np.bincount(spine.parent[children[measured]], minlength=spine.size)
            complete = (counts == spine.child_counts) & (counts > 0)
            parents = np.flatnonzero(np.isfinite(self._variances[index]) & complete[members])
            number = np.full(spine.size, -1)
            number[members[parents]] = np.arange(parents.size)
            parts = np.flatnonzero(number[spine.parent[children]] >= 0)
            cells = np.arange(table.size)
            own_rows = np.arange(parents.size)[:, None] * cells.size + cells
            mapping = cell_map(self._schema, table, self._tables[index])  # their names may order the factors otherwise
            part_rows = number[spine.parent[children[parts]]][:, None] * cells.size + mapping
            found.append(
                self._equations(
                    parents.size * cells.size,
                    (part_rows.ravel(), self._cells(other, parts).ravel(), 1),
                    (own_rows.ravel(), self._cells(index, parents).ravel(), -1),
                )
            )
        return found
