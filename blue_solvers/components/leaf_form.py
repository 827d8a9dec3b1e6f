"""Estimates of geounits without children that measured their finest table, in cells.

With y the finest table, w its precision, h the information of the other tables and V the covariance of the estimate,
V (w y + h) = y + V h + (w V - I) y. Along components that no other table sees w V = I, so all that is added to y lies
in margins: a few boxes, much smaller than the table. They are summed from y and added to it; the table itself never
changes basis. Children of one parent that were measured alike are estimated together going up, since that is linear.

Bytes that must move: the tables once going up and once going down, and the estimate once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, reduce
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.axis_sums import sum_axes
from blue_solvers.components.batches import as_slice, chunks, distinct
from blue_solvers.components.component_products import Component, multiply, product
from blue_solvers.components.grouping import Grouping, group_indicator
from blue_solvers.components.information import kronecker
from blue_solvers.components.reflections import Basis
from blue_solvers.components.table_sums import along
from blue_solvers.components.tree_plan import LevelPlan, TreePlan
from blue_solvers.solver import Float
from constraint_builders.table import Table

Index = NDArray[np.intp]

TOTAL, GROUPS, LEVELS = range(3)  # how finely a box tells a variable's levels apart
LARGEST_BOXES = 0.5  # of the finest table's cells: beyond, a change of basis costs less


class LeafForm:
    """Both passes over such geounits of one geolevel.

    Parameters
    ----------
    plan : TreePlan
    number : int
        The geolevel.
    finest : Table
    block_bytes : int
        Working set of a block of geounits.

    Attributes
    ----------
    rows : ndarray of int
        Which members of the level they are; none where corrections would not be much smaller than the table.
    """

    def __init__(self, plan: TreePlan, number: int, finest: Table, block_bytes: int) -> None:
        self._plan, self._level = plan, plan.levels[number]
        self._shape = tuple(grouping.levels for grouping in plan.groupings)
        self._block_bytes = block_bytes
        self._basis = Basis(plan.groupings)
        names = [table.name for _, table in self._level.tables]
        self.rows = np.zeros(0, dtype=np.intp)
        if finest.name not in names:
            return
        self._whole = names.index(finest.name)
        rows = _eligible(plan, self._level, self._whole)
        if not rows.size:
            return
        classes, self._class_of = distinct(self._level.class_of[rows])
        ranks = plan.class_rank[classes]
        self._weights = [weights[ranks] for weights in self._level.weights]
        self._others = [i for i, weights in enumerate(self._weights) if i != self._whole and weights.any()]
        self._boxes = self._make_boxes(classes)
        if sum(box.size for box in self._boxes) <= LARGEST_BOXES * finest.size:
            self.rows = rows
            self._sort_by_pair()

    def _make_boxes(self, classes: Index) -> list[_Box]:
        """Greedily, from the components of most contrasts down: each joins the first box that tells enough apart."""
        tables = [self._level.tables[i][1] for i in self._others]
        chosen: list[tuple[list[int], list[int]]] = []
        for place in sorted(range(len(self._plan.components)), key=lambda i: -sum(self._plan.components[i].contrasts)):
            fineness = self._fineness_needed(self._plan.components[place], tables)
            if fineness is None:
                continue
            for own, members in chosen:
                if all(has >= needed for has, needed in zip(own, fineness, strict=True)):
                    members.append(place)
                    break
            else:
                chosen.append((fineness, [place]))
        weights = self._weights[self._whole]
        return [_Box(self._plan, fineness, members, tables, classes, weights) for fineness, members in chosen]

    def _fineness_needed(self, component: Component, tables: list[Table]) -> list[int] | None:
        """For every variable how finely some table that sees the component tells it apart; None if no table does."""
        seeing = [table for table in tables if self._plan.table_information(table, component) is not None]
        if not seeing:
            return None
        return [
            LEVELS if contrast else GROUPS if g.sizes.size > 1 and any(g.axis in t.axes for t in seeing) else TOTAL
            for g, contrast in zip(self._plan.groupings, component.contrasts, strict=True)
        ]

    def _sort_by_pair(self) -> None:
        """Geounits in order of their pair with their parent; the root has none, and counts as one."""
        pairs, pair_of = distinct(self._level.parent_pair[self.rows])
        order = np.argsort(pair_of, kind="stable")
        self._sorted_rows, self._sorted_classes = self.rows[order], self._class_of[order]
        self._sorted_pairs, self._pairs = pair_of[order], pairs
        self._starts = np.searchsorted(self._sorted_pairs, np.arange(pairs.size + 1))

    @cached_property
    def _has_parents(self) -> bool:
        return bool(self._pairs[0] >= 0)

    def go_up(self, tables: list[Float]) -> Iterator[tuple[Index, Float]]:
        """Parents, and the sums over these children of their estimates in slots, (parents, ..., K).

        Parameters
        ----------
        tables : list of ndarray (G, *shape, K)
            What was measured at all members of the level.
        """
        if not self.rows.size or not self._has_parents:
            return
        K = tables[self._whole].shape[-1]
        for pairs in chunks(self._pairs.size, self._count_in_cache(K)):
            places = slice(self._starts[pairs.start], self._starts[pairs.stop])
            starts = self._starts[pairs.start : pairs.stop + 1] - self._starts[pairs.start]
            shape = (starts.size - 1, self._level.members.size)
            adding = sparse.csr_array((np.ones(starts[-1]), self._sorted_rows[places], starts), shape=shape)
            sums = {
                i: (adding @ tables[i].reshape(len(tables[i]), -1)).reshape(-1, *tables[i].shape[1:])
                for i in (self._whole, *self._others)
            }
            estimates = sums[self._whole].reshape(-1, *self._shape, K)
            self._correct(sums, self._sorted_classes[self._starts[pairs]], estimates)
            parents, first = np.unique(self._plan.pair_parent[self._pairs[pairs]], return_index=True)
            totals = estimates if parents.size == len(estimates) else np.add.reduceat(estimates, first, axis=0)
            self._basis.to_slots(totals)
            yield parents, totals

    def go_down(self, tables: list[Float], learnt: Float, result: Float) -> None:
        """Estimates in cells into these geounits' rows of `result` (G, ..., K).

        Parameters
        ----------
        tables : list of ndarray (G, *shape, K)
        learnt : ndarray, (geounits with children, ..., K)
            What every parent learnt, in slots.
        result : ndarray, (G, ..., K)
        """
        if not self.rows.size:
            return
        count = self._count_in_cache(result.shape[-1])
        for pairs in chunks(self._pairs.size, count):
            parts = self._parts(pairs, learnt)
            for rows in chunks(int(self._starts[pairs.stop]), count, int(self._starts[pairs.start])):
                self._estimate(rows, tables, parts, self._sorted_pairs[rows] - pairs.start, result)

    def _parts(self, pairs: slice, learnt: Float) -> Float | None:
        """The share of children in what their parents learnt, in cells, for every pair."""
        if not self._has_parents:
            return None
        chosen = self._pairs[pairs]
        parts = learnt[self._plan.pair_parent[chosen]]
        gains = (own.gain[chosen] for own in self._plan.coefficients)
        multiply(parts, zip(self._plan.components, gains, strict=True))
        self._basis.to_cells(parts)
        return parts

    def _estimate(self, places: slice, tables: list[Float], parts: Float | None, part_of: Index, result: Float) -> None:
        rows = as_slice(self._sorted_rows[places])
        own = {i: tables[i][rows] for i in (self._whole, *self._others)}
        whole = own[self._whole].reshape(-1, *result.shape[1:])
        estimates = result[rows] if isinstance(rows, slice) else np.empty_like(whole)
        if parts is None:
            estimates[...] = whole
        else:
            np.take(parts, part_of, axis=0, out=estimates, mode="clip")  # numpy copies unless it may clip
            estimates += whole
        self._correct(own, self._sorted_classes[places], estimates)
        if not isinstance(rows, slice):
            result[rows] = estimates

    def _correct(self, tables: dict[int, Float], classes: Index, estimates: Float) -> None:
        """Add to geounits' estimates V h + (w V - I) y."""
        whole = tables[self._whole].reshape(estimates.shape)
        others = [(tables[i], self._weights[i][classes]) for i in self._others]
        corrections = [box.correction(whole, others, classes) for box in self._boxes]
        for box, correction in zip(self._boxes, corrections, strict=True):
            box.spread(correction, estimates)

    def _count_in_cache(self, K: int) -> int:
        return max(1, self._block_bytes // (8 * K * prod(self._shape)))


class _Box:
    """Margins of the finest table: along every variable the sums over its levels, over groups of them, or over all.

    Parameters
    ----------
    plan : TreePlan
    fineness : list of int
        `TOTAL`, `GROUPS` or `LEVELS` for every variable.
    members : list of int
        Which components are corrected here.
    tables : list of Table
        The others.
    classes : ndarray of int
    weights : ndarray
        Precision of the finest table in each class.
    """

    def __init__(
        self,
        plan: TreePlan,
        fineness: list[int],
        members: list[int],
        tables: list[Table],
        classes: Index,
        weights: Float,
    ) -> None:
        along_axes = list(zip(plan.groupings, fineness, strict=True))
        self._shape = tuple(_length(*own) for own in along_axes)
        self.size = prod(self._shape)
        self._summed = tuple(i for i, own in enumerate(fineness, 1) if own == TOTAL)
        self._regrouped = [
            (i, g.groups, group_indicator(g)) for i, (g, own) in enumerate(along_axes, 1) if own == GROUPS
        ]
        self._basis = Basis([grouping if own == LEVELS else None for grouping, own in along_axes])
        self._components = [_component_in(plan.components[i], along_axes) for i in members]
        self._of_information: list[Float] = []
        self._of_whole: list[Float] = []
        for i in members:
            coordinates = _group_coordinates(plan.components[i], along_axes)
            V = plan.coefficients[i].own[classes]
            rest = weights[:, None, None] * V - np.eye(V.shape[-1])
            self._of_information.append(coordinates.T @ V @ coordinates)
            self._of_whole.append(coordinates.T @ rest @ coordinates)
        seen = [any(plan.table_information(t, plan.components[i]) is not None for i in members) for t in tables]
        self._transfers = [_Transfer(plan, t, along_axes) if own else None for t, own in zip(tables, seen, strict=True)]

    def correction(self, whole: Float, others: list[tuple[Float, Float]], classes: Index) -> Float:
        """The box of V h + (w V - I) y, (G, ..., K), from the finest table and the others with their precisions."""
        count, K = len(whole), whole.shape[-1]
        both = np.zeros((2 * count, *self._shape, K))
        information, own = both[:count], both[count:]
        own[...] = self._sum(whole)
        for (cells, weights), transfer in zip(others, self._transfers, strict=True):
            if transfer is not None:
                information += transfer(cells, weights)
        self._basis.to_slots(both)
        correction = information * self._factors(self._of_information, classes)
        correction += own * self._factors(self._of_whole, classes)
        for component, V, rest in zip(self._components, self._of_information, self._of_whole, strict=True):
            if component.size > 1:
                place = (slice(None), *component.slots)
                correction[place] = product(component, V[classes], information[place])
                correction[place] += product(component, rest[classes], own[place])
        self._basis.to_cells(correction)
        return correction

    def _factors(self, matrices: list[Float], classes: Index) -> Float:
        """Components of one group sum spread over their slots, (1 or G, ..., 1); all others are 0."""
        different, of = distinct(classes)
        factors = np.zeros((different.size, *self._shape, 1))
        for component, own in zip(self._components, matrices, strict=True):
            if component.size == 1:
                factors[(slice(None), *component.slots)] = own[different].reshape(-1, *[1] * (factors.ndim - 1))
        return factors if different.size == 1 else factors[of]

    def _sum(self, cells: Float) -> Float:
        sums = sum_axes(cells, self._summed) if self._summed else cells
        sums = sums.reshape(
            len(cells), *(1 if i in self._summed else n for i, n in enumerate(cells.shape[1:-1], 1)), cells.shape[-1]
        )
        for axis, _, matrix in self._regrouped:
            sums = along(matrix, sums, axis)
        return sums

    def spread(self, correction: Float, estimates: Float) -> None:
        """Add to every cell of the finest table its cell here."""
        for axis, groups, _ in self._regrouped:
            correction = np.take(correction, groups, axis=axis)
        estimates += correction


class _Transfer:
    """Information of a table as sums over the cells of a box: cells to cells, without a change of basis."""

    def __init__(self, plan: TreePlan, table: Table, along_axes: list[tuple[Grouping, int]]) -> None:
        factors = dict(zip(table.axes, table.factors, strict=True))
        sizes = dict(zip(table.axes, table.shape, strict=True))
        self._lengths = tuple(sizes.get(grouping.axis, 1) for grouping, _ in along_axes)
        self._scale = 1.0
        self._summed: tuple[int, ...] = ()
        self._mapped: list[tuple[int, Float]] = []
        for axis, (grouping, fineness) in enumerate(along_axes, 1):
            cells = plan.cells_of_levels(grouping, factors.get(grouping.axis))
            matrix = _transfer(grouping, fineness, cells, self._lengths[axis - 1])
            if matrix is None:
                continue
            if 1 in matrix.shape and np.ptp(matrix) == 0:
                self._scale *= float(matrix[0, 0])
                if matrix.shape[1] > 1:
                    self._summed += (axis,)  # the other way numpy spreads a single cell
            else:
                self._mapped.append((axis, matrix))

    def __call__(self, cells: Float, weights: Float) -> Float:
        """From (G, *shape, K) and (G,) to what can be added to the box."""
        lengths = tuple(1 if axis in self._summed else n for axis, n in enumerate(self._lengths, 1))
        array = cells.reshape(len(cells), *self._lengths, cells.shape[-1])
        if self._summed:
            array = sum_axes(array, self._summed).reshape(len(cells), *lengths, cells.shape[-1])
        for axis, matrix in self._mapped:
            array = along(matrix, array, axis)
        return array * (self._scale * weights).reshape(-1, *[1] * (array.ndim - 1))


def _eligible(plan: TreePlan, level: LevelPlan, whole: int) -> Index:
    """Members without children and with noise in their finest table, where nothing is known exactly."""
    if level.zeros is not None:
        return np.zeros(0, dtype=np.intp)
    exact = reduce(np.logical_or, level.exact)
    return np.flatnonzero((plan.spine.child_counts[level.members] == 0) & (level.weights[whole] > 0) & ~exact)


def _length(grouping: Grouping, fineness: int) -> int:
    """Cells of a box along a variable."""
    return {TOTAL: 1, GROUPS: grouping.sizes.size, LEVELS: grouping.levels}[fineness]


def _transfer(grouping: Grouping, fineness: int, cells: Index, count: int) -> Float | None:
    """How many levels a box's cell and a factor's cell share, (box's cells, factor's cells); None for the identity."""
    if fineness == LEVELS and np.array_equal(cells, np.arange(grouping.levels)):
        return None
    own = {TOTAL: np.zeros_like(cells), GROUPS: grouping.groups, LEVELS: np.arange(cells.size)}[fineness]
    shared = np.zeros((_length(grouping, fineness), count))
    np.add.at(shared, (own, cells), 1)
    return shared


def _component_in(component: Component, along_axes: list[tuple[Grouping, int]]) -> Component:
    """Where a component lies among a box's slots."""
    slots, size = [], 1
    for contrast, (grouping, fineness) in zip(component.contrasts, along_axes, strict=True):
        groups = grouping.sizes.size
        if fineness == LEVELS:
            first = grouping.levels - groups
            slots.append(slice(0, first) if contrast else slice(first, None))
        else:
            slots.append(slice(None))
        if not contrast:
            size *= 1 if fineness == TOTAL else groups
    return Component(component.contrasts, tuple(slots), size)


def _group_coordinates(component: Component, along_axes: list[tuple[Grouping, int]]) -> Float:
    """Orthonormal group coordinates from a box's sums, (m, own size); the transpose spreads them over levels."""
    matrices = []
    for contrast, (grouping, fineness) in zip(component.contrasts, along_axes, strict=True):
        if not contrast:
            roots = np.sqrt(grouping.sizes)
            matrices.append(
                roots[:, None] / grouping.levels
                if fineness == TOTAL
                else np.diag(1 / roots)
                if fineness == GROUPS
                else np.eye(roots.size)
            )
    return kronecker(matrices)
