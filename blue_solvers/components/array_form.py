"""All components of a problem as slices of one array, every variable an axis.

Along an axis the array holds the variable's n levels, then its r groups. Filled with measurements weighted by
precision, one pass along every axis leaves contrasts in the first part and group information in the second:
component T is the slice with the first part along the variables of T and the second along the others. Each is
multiplied by its small matrix, and one pass back makes every marginal a slice of the array. Nothing enumerates
pairs of tables.

Bytes that must move: the array once in and once out for each axis, each observed and each desired cell once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.axis_sums import add_to_levels, sum_middle
from blue_solvers.components.grouping import Grouping, group_sums, groupings_of, sees_contrasts
from blue_solvers.components.information import Information, Solve
from blue_solvers.solver import Float
from constraint_builders import Problem, Schema
from constraint_builders.table import Table

HARMLESS_SPREAD = 1e4  # ratio of precisions up to which summing them loses no more than 1e-11 of the least


class Grid:
    """The array's axes: where table cells go, and the passes along every axis.

    Parameters
    ----------
    schema : Schema
    groupings : list of Grouping
    contrasts : list of bool
        Along which of them the array has room for the levels.
    """

    def __init__(self, schema: Schema, groupings: list[Grouping], contrasts: list[bool]) -> None:
        self._schema = schema
        self.groupings = groupings
        self.contrasts = contrasts
        self.orders = [np.argsort(grouping.groups, kind="stable") for grouping in groupings]
        cells = [g.levels if own else 0 for g, own in zip(groupings, contrasts, strict=True)]
        self.shape = tuple(n + g.sizes.size for n, g in zip(cells, groupings, strict=True))
        self._cells = cells

    @property
    def size(self) -> int:
        """Number of slots."""
        return prod(self.shape)

    def places(self, tables: list[Table], cells: int, offsets: list[int]) -> Places:
        """Where the cells of tables go, each table beginning at its offset in a layout of so many cells."""
        slots = np.full(cells, -1, dtype=np.intp)
        rows: list[NDArray[np.integer]] = [np.zeros(0, np.intp)]
        columns: list[NDArray[np.integer]] = [np.zeros(0, np.intp)]
        for table, offset in zip(tables, offsets, strict=True):
            own, found = self._pairs(table)
            if own.size == table.size:
                slots[offset + own] = found
            else:
                rows.append(offset + own)
                columns.append(found)
        pairs = np.concatenate(rows), np.concatenate(columns)
        sums = sparse.csr_array((np.ones(pairs[0].size), pairs), shape=(cells, self.size)) if pairs[0].size else None
        return Places(slots, sums, self.size)

    def _pairs(self, table: Table) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """Pairs (cell of a table, slot that it sums); without recodes one for each cell, in order."""
        factors = dict(zip(table.axes, table.factors, strict=True))
        strides = dict(zip(table.axes, _strides(table.shape), strict=True))
        cell, slot = np.zeros((), np.intp), np.zeros((), np.intp)
        for position, grouping in enumerate(self.groupings):
            own_cells, own_slots = self._along(position, factors.get(grouping.axis))
            cell = np.add.outer(cell, (own_cells * strides.get(grouping.axis, 0)))
            slot = np.add.outer(slot * self.shape[position], own_slots)
        return cell.ravel(), slot.ravel()

    def _along(self, position: int, factor: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (cell of the factor, slot) along one axis."""
        grouping = self.groupings[position]
        if sees_contrasts(self._schema, grouping, factor):
            return self.orders[position], np.arange(grouping.levels)
        cells, groups = np.nonzero(group_sums(self._schema, grouping, factor))
        return cells, groups + self._cells[position]

    def gather(self, array: Float) -> None:
        """Along every axis in place: take the mean of each group out of its levels and add it to the group's slot."""
        for levels, group in self._groups(array):
            mean = sum_middle(levels)
            mean /= levels.shape[1]
            group += mean
            np.negative(mean, out=mean)
            add_to_levels(levels, mean)

    def spread(self, array: Float) -> None:
        """Along every axis in place: spread each group's slot evenly over its levels."""
        for levels, group in self._groups(array):
            add_to_levels(levels, group / levels.shape[1])

    def violation(self, array: Float) -> float:
        """Largest difference between a group's slot and the sum of its levels, along any axis."""
        return max((float(abs(sum_middle(levels) - group).max()) for levels, group in self._groups(array)), default=0.0)

    def _groups(self, array: Float) -> Iterator[tuple[Float, Float]]:
        """Along every axis each group's levels, (before, levels, after), and its slot, (before, after)."""
        for position, grouping in enumerate(self.groupings):
            if self.contrasts[position]:
                flat = array.reshape(prod(self.shape[:position]), self.shape[position], -1)
                stops = np.cumsum(grouping.sizes)
                for number, (size, stop) in enumerate(zip(grouping.sizes, stops, strict=True)):
                    yield flat[:, stop - size : stop], flat[:, grouping.levels + number]

    def components(self) -> Iterator[tuple[frozenset[int], tuple[slice, ...]]]:
        """Every component and its slice of the array."""
        for chosen in product(*([False, True] if own else [False] for own in self.contrasts)):
            axes = frozenset(g.axis for g, own in zip(self.groupings, chosen, strict=True) if own)
            yield (
                axes,
                tuple(
                    slice(0, g.levels) if own else slice(cells, None)
                    for g, own, cells in zip(self.groupings, chosen, self._cells, strict=True)
                ),
            )

    def multiply(self, block: Float, component: frozenset[int], matrix: Float) -> Float:
        """Multiply a matrix into the group axes of a component's slice."""
        if matrix.shape == (1, 1):
            return block * matrix[0, 0]
        group_axes = [i for i, grouping in enumerate(self.groupings) if grouping.axis not in component]
        front = np.moveaxis(block, group_axes, range(len(group_axes)))
        product_ = matrix @ front.reshape(len(matrix), -1)
        return np.moveaxis(product_.reshape(front.shape), range(len(group_axes)), group_axes)


class Places:
    """Which slots of the array each cell of a layout is the sum of.

    Parameters
    ----------
    slots : ndarray of int, (cells,)
        The slot of each cell that is one, -1 for others.
    sums : csr_array, (cells, slots), or None
        The 0/1 matrix of cells that are sums of several slots.
    slot_count : int
    """

    def __init__(self, slots: NDArray[np.intp], sums: sparse.csr_array | None, slot_count: int) -> None:
        self._cell_count, self._slot_count = slots.size, slot_count
        self._cells: slice | NDArray[np.intp] = slice(None)
        self._slots, self._sums = slots, sums
        if not slots.size or slots.min() < 0:
            self._cells = np.flatnonzero(slots >= 0)
            self._slots = slots[self._cells]
        self._repeats = _has_repeats(self._slots, slot_count)

    def to_slots(self, values: Float) -> Float:
        """Add every cell to its slots: (cells, K) to (slots, K)."""
        array = np.zeros((self._slot_count, values.shape[1]))
        if self._repeats:
            np.add.at(array, self._slots, values[self._cells])
        else:
            array[self._slots] = values[self._cells]
        if self._sums is not None:
            array += self._sums.T @ values
        return array

    def from_slots(self, array: Float) -> Float:
        """Sum every cell's slots: (slots, K) to (cells, K), zero for cells without any."""
        if isinstance(self._cells, slice):
            return array.take(self._slots, axis=0)
        values = np.zeros((self._cell_count, array.shape[1])) if self._sums is None else self._sums @ array
        values[self._cells] = array[self._slots]
        return values


def _has_repeats(slots: NDArray[np.integer], slot_count: int) -> bool:
    seen = np.zeros(slot_count, dtype=bool)
    seen[slots] = True
    return int(np.count_nonzero(seen)) < slots.size


class ArrayForm:
    """The exact estimate through one array; see the module.

    Parameters
    ----------
    problem : Problem
        With equal variances within tables; assumptions A2 and A3.
    """

    def __init__(self, problem: Problem) -> None:
        assert problem.schema is not None
        assert problem.table_variances is not None
        schema, variances = problem.schema, problem.table_variances
        self._problem = problem
        tables = list(problem.observed_tables)
        groupings = groupings_of(schema, tables + list(problem.desired_tables))
        measured = np.flatnonzero(np.isfinite(variances))
        self.information = Information(schema, groupings, [tables[i] for i in measured], variances[measured])
        self._grid = Grid(schema, groupings, [grouping.has_contrasts for grouping in groupings])
        self._weights = _weights(problem.variances)
        offsets = problem.observed.offsets
        noisy, exact = (np.flatnonzero(chosen) for chosen in (np.isfinite(variances) & (variances > 0), variances == 0))
        self._noisy_places = self._places(self._grid, tables, offsets, noisy)
        self._exact_grid = None
        if exact.size:
            kept = {axis for i in exact for axis in tables[i].axes}
            exact_contrasts = [g.has_contrasts and g.axis in kept for g in groupings]
            self._exact_grid = Grid(schema, groupings, exact_contrasts)
            self._exact_places = self._places(self._exact_grid, tables, offsets, exact)
        grouped = any(grouping.sizes.size > 1 for grouping in groupings)
        self._needs_correction = grouped and _spread_of(self._weights) > HARMLESS_SPREAD
        self._scale = self._component_scale() if self._exact_grid is None else None
        desired = problem.desired_tables
        self._desired_places = (
            self._noisy_places
            if desired == problem.observed_tables and noisy.size == len(desired)
            else self._grid.places(list(desired), problem.desired.size, problem.desired.offsets[:-1].tolist())
        )

    def _places(self, grid: Grid, tables: list[Table], offsets: np.ndarray, chosen: np.ndarray) -> Places:
        return grid.places([tables[i] for i in chosen], self._problem.observed.size, offsets[chosen].tolist())

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._desired_places.from_slots(self._estimate(Y))

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a marginal and the sums of a finer one in the estimate from Y."""
        return self._grid.violation(self._estimate(Y).reshape(*self._grid.shape, -1))

    def _estimate(self, Y: Float) -> Float:
        """Every slot; where precisions add up in matrices, corrected by the estimate of what is left."""
        slots = self._estimate_once(Y)
        if self._needs_correction:
            noisy = self._weights[:, None] > 0
            slots += self._estimate_once(np.where(noisy, Y - self._noisy_places.from_slots(slots), 0.0))
        return slots

    def _estimate_once(self, Y: Float) -> Float:
        array = self._gathered(self._grid, self._noisy_places.to_slots(self._weights[:, None] * Y))
        if self._exact_grid is None:
            self._multiply_all(array)
        else:
            self._combine(array, self._gathered(self._exact_grid, self._exact_places.to_slots(Y)))
        self._grid.spread(array)
        return array.reshape(-1, Y.shape[1])

    def _combine(self, array: Float, exact: Float) -> None:
        """Replace information by estimates where some tables are exact."""
        for component, place, solve, exact_place in self._solves():
            h = array[place]
            if exact_place is None or solve.exact is None or solve.cross is None:
                array[place] = self._grid.multiply(h, component, solve.noisy)
                continue
            h_exact = exact[exact_place]
            h = h - self._grid.multiply(h_exact, component, solve.cross)
            array[place] = self._grid.multiply(h_exact, component, solve.exact)
            array[place] += self._grid.multiply(h, component, solve.noisy)

    def _multiply_all(self, array: Float) -> None:
        """Replace information by estimates where no table is exact."""
        if self._scale is not None:
            array *= self._scale[..., None]
            return
        for component, place, solve, _ in self._solves():
            array[place] = self._grid.multiply(array[place], component, solve.noisy)

    def _component_scale(self) -> Float | None:
        """Variance of every slot's component, where these are numbers, (slots...)."""
        if any(grouping.sizes.size > 1 for grouping in self._grid.groupings):
            return None
        by_component = np.empty([1 + own for own in self._grid.contrasts])
        for component, _ in self._grid.components():
            index = tuple(
                int(own and g.axis in component)
                for g, own in zip(self._grid.groupings, self._grid.contrasts, strict=True)
            )
            by_component[index] = self.information.solve(component).noisy[0, 0]
        kinds = [
            np.repeat([1, 0], [g.levels, 1]) if own else np.zeros(1, dtype=int)
            for g, own in zip(self._grid.groupings, self._grid.contrasts, strict=True)
        ]
        return by_component[np.ix_(*kinds)]

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        array = self._gathered(self._grid, self._desired_places.to_slots(V))
        if self._exact_grid is None:
            self._multiply_all(array)
            self._grid.spread(array)
            return self._weights[:, None] * self._noisy_places.from_slots(array.reshape(-1, V.shape[1]))
        exact = np.zeros((*self._exact_grid.shape, V.shape[1]))
        for component, place, solve, exact_place in self._solves():
            g = array[place].copy()
            noisy = self._grid.multiply(g, component, solve.noisy)
            array[place] = noisy
            if exact_place is not None and solve.exact is not None and solve.cross is not None:
                exact[exact_place] = self._grid.multiply(g, component, solve.exact)
                exact[exact_place] -= self._grid.multiply(noisy, component, solve.cross.T)
        self._grid.spread(array)
        self._exact_grid.spread(exact)
        result = self._weights[:, None] * self._noisy_places.from_slots(array.reshape(-1, V.shape[1]))
        result += self._exact_places.from_slots(exact.reshape(-1, V.shape[1]))
        return result

    def _gathered(self, grid: Grid, slots: Float) -> Float:
        array = slots.reshape(*grid.shape, -1)
        grid.gather(array)
        return array

    def _solves(self) -> Iterator[tuple[frozenset[int], tuple[slice, ...], Solve, tuple[slice, ...] | None]]:
        exact = dict(self._exact_grid.components()) if self._exact_grid is not None else {}
        for component, place in self._grid.components():
            yield component, place, self.information.solve(component), exact.get(component)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return self.information.cell_variances(list(self._problem.desired_tables))


def array_size(schema: Schema, tables: list[Table]) -> int:
    """Slots of the array that `ArrayForm` would use for these tables."""
    groupings = groupings_of(schema, tables)
    return prod((g.levels if g.has_contrasts else 0) + g.sizes.size for g in groupings)


def _spread_of(weights: Float) -> float:
    """Largest precision over the smallest."""
    used = weights[weights > 0]
    return float(used.max() / used.min()) if used.size else 1.0


def _weights(variances: Float) -> Float:
    """Precision of every cell, 0 where it is exact or was not measured."""
    usable = np.isfinite(variances) & (variances > 0)
    return np.divide(1.0, variances, out=np.zeros_like(variances), where=usable)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]
