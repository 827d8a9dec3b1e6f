"""Which tables the sweeps hold, where they lie in one vector, and what observed ones say of them.

Of every table contrasts along its variables, and sums over groups of levels, go to the largest intersections with other
tables inside it; these are tables of their own. A desired table that is no intersection is a margin of the smallest
table that refines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, reduce
from operator import or_

import numpy as np

from blue_solvers.components.grouping import Axes, SchemaAxes
from blue_solvers.components.lattice.sets import IntersectionLattice
from blue_solvers.components.lattice.sets import places as bit_places
from constraint_builders.arrays import Float


class TooManyCellsError(Exception):
    """Tables that would take more cells than were allowed."""


class LatticeTables:
    """The tables of the sweeps.

    Parameters
    ----------
    axes : SchemaAxes
    observed, desired : sequence of tuple of int
        Tables by their axes; of observed ones those that tell something.
    most_cells : float
        That all tables may have together.

    Attributes
    ----------
    lattice : IntersectionLattice
        Of the variables that tables keep whole, by `mask_of`.
    tables : list of tuple of int
        Those of the sweeps, those of more variables first.
    number : dict
        Of every table its place in that list.
    masks : list of int
        Of every table what it keeps whole.
    coarser : list of list of tuple of int
        For every table those that its means go to.
    offsets, sizes : ndarray of int, (tables,)
    places : dict
        Where every table lies, of the sweeps or desired.
    cells : int
        Of all of them.
    margins : dict
        Desired tables that are not of the sweeps, each with the one that it is a sum of.

    Raises
    ------
    TooManyCellsError
        If there are more.
    """

    def __init__(
        self, axes: SchemaAxes, observed: Sequence[Axes], desired: Sequence[Axes], most_cells: float = np.inf
    ) -> None:
        self.axes = axes
        self.size_of = cache(axes.size)
        self.mask_of = cache(self._mask_of)
        keeping = cache(lambda mask: tuple(bit_places(mask)))
        self.within = cache(self._with_groups) if axes.has_groups else lambda table, mask: keeping(mask)
        self._provides = cache(lambda table: reduce(or_, [axes.provides[axis] for axis in table], 0))
        generators: dict[Axes, None] = dict.fromkeys(observed)
        finest_first = sorted(generators, key=self.size_of, reverse=True)
        for table in desired:
            if table not in generators and not any(self._holds(other, table) for other in finest_first):
                generators[table] = None
        generators = generators or {(): None}
        self.lattice = IntersectionLattice({self.mask_of(table) for table in generators}, axes.sizes)
        self._lay_tables(generators, most_cells)
        self.margins = self._sources([table for table in dict.fromkeys(desired) if table not in self.number])
        self._lay_places(desired)

    def _mask_of(self, table: Axes) -> int:
        """The variables that a table keeps whole, as bits of their axes."""
        return sum([1 << axis for axis in table if self.axes.is_whole[axis]])

    def groups(self, table: Axes) -> Axes:
        """A table's axes of groups and recodes."""
        return tuple(axis for axis in table if not self.axes.is_whole[axis])

    def source_of(self, table: Axes) -> int:
        """The number of a table of the sweeps, or of the one that a margin is a sum of."""
        while table in self.margins:
            table = self.margins[table]
        return self.number[table]

    def _with_groups(self, table: Axes, mask: int) -> Axes:
        """What a table leads to that keeps only some of its variables whole, and groups of others."""
        whole, groups = self.axes.is_whole, self.axes.groups
        kept = [groups[axis] if whole[axis] and not mask >> axis & 1 else axis for axis in table]
        return tuple([axis for axis in kept if axis >= 0])

    def _holds(self, fine: Axes, coarse: Axes) -> bool:
        return all(self._provides(fine) >> axis & 1 for axis in coarse)

    def _lay_tables(self, generators: Iterable[Axes], most_cells: float) -> None:
        classes: dict[int, dict[Axes, int]] = {}
        for table in generators:
            mask = self.mask_of(table)
            classes.setdefault(mask.bit_count(), {})[table] = mask
        self.tables: list[Axes] = []
        self.number: dict[Axes, int] = {}
        self.masks: list[int] = []
        self.coarser: list[list[Axes]] = []
        cells = 0
        for size in range(max(classes), -1, -1):
            for table, mask in classes.get(size, {}).items():
                inside = {self.within(table, own): own for own in self.lattice.covers[mask]}
                for other, own in inside.items():
                    classes.setdefault(own.bit_count(), {})[other] = own
                self.number[table] = len(self.tables)
                self.tables.append(table)
                self.masks.append(mask)
                self.coarser.append(list(inside))
                cells += self.size_of(table)
                if cells > most_cells:
                    raise TooManyCellsError
        self.sizes = np.array([self.size_of(table) for table in self.tables], dtype=np.int64)

    def _sources(self, wanted: list[Axes]) -> dict[Axes, Axes]:
        """For every table that is a margin the one that it is a sum of, itself a table or a margin before it."""
        found: dict[Axes, Axes] = {}
        smallest_first = sorted(self.tables, key=self.size_of) if wanted else []
        for table in sorted(wanted, key=self.size_of, reverse=True):
            source = next(own for own in smallest_first if self._holds(own, table))
            for axis in range(len(self.axes.sizes)):
                told = self.axes.provides[axis]
                finer = tuple(sorted([axis, *(own for own in table if not told >> own & 1)]))
                if finer in found and self.size_of(finer) < self.size_of(source):
                    source = finer
            found[table] = source
        return found

    def _lay_places(self, desired: Sequence[Axes]) -> None:
        self.places: dict[Axes, int] = {}
        self.cells = 0
        for table in [*desired, *self.tables]:
            if table not in self.places:
                self.places[table] = self.cells
                self.cells += self.size_of(table)
        self.offsets = np.array([self.places[table] for table in self.tables], dtype=np.int64)


def information(plan: LatticeTables, observed: Sequence[Axes], precisions: Float) -> dict[Axes, Float]:
    """What some tables say of every one of the sweeps that they lead to, by cell of its groups and recodes."""
    if plan.axes.has_groups and observed:
        return _information_by_group(plan, observed, precisions)
    values: dict[int, float] = {}
    for table, precision in zip(observed, precisions.tolist(), strict=True):
        mask = plan.mask_of(table)
        values[mask] = values.get(mask, 0.0) + precision / plan.size_of(table)
    above = dict(zip(plan.lattice.members, plan.lattice.sums_above(values).tolist(), strict=True))
    told = plan.sizes * np.array([above[mask] for mask in plan.masks])
    return {table: own for table, own in zip(plan.tables, told[:, None], strict=True) if own[0] > 0}


def _information_by_group(plan: LatticeTables, observed: Sequence[Axes], precisions: Float) -> dict[Axes, Float]:
    axes, found = plan.axes, dict[Axes, Float]()
    counts = [
        np.bincount(told) if own else np.ones(n)
        for told, own, n in zip(axes.told, axes.is_whole, axes.sizes, strict=True)
    ]
    shares = [count.mean() / count for count in counts]
    outer = cache(lambda own: reduce(np.multiply.outer, [shares[axis] for axis in own], np.ones(())).ravel())
    for table, precision in zip(observed, precisions.tolist(), strict=True):
        grouped = [axis for axis in table if shares[axis].size > 1]
        for mask in plan.lattice.below(plan.mask_of(table)):
            own = plan.within(table, mask)
            seen = tuple([axis for axis in grouped if not (axes.is_whole[axis] and mask >> axis & 1)])
            density = precision * plan.size_of(own) / plan.size_of(table) * outer(seen)
            found[own] = found[own] + density if own in found else density
    return found
