"""All components of a problem without recodes as slices of one array, every variable an axis.

Along an axis the array holds the variable's n levels, then their sum. Filled with measurements weighted by precision,
one pass along every axis leaves contrasts in the levels and information about the sum in the last place: component T is
the slice with the levels along the variables of T and the last place along the others. Each is divided by its
precision, and one pass back makes every marginal a slice of the array. Nothing enumerates pairs of tables.

Bytes that must move: the array once in and once out for each axis, each observed and each desired cell once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.axis_sums import add_to_levels, sum_middle
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table, factors_of


class ArrayForm:
    """The exact estimate through one array; see the module.

    Parameters
    ----------
    problem : StructuredProblem
        Of one geounit, without recodes and zeros.
    """

    def __init__(self, problem: StructuredProblem) -> None:
        self._problem = problem
        observed, desired = list(problem.observed_tables), list(problem.desired_tables)
        variances = np.concatenate(problem.geounit_variances)
        self._grid = Grid(problem.schema, axes_in_use(problem.schema, factors_of([*observed, *desired])))
        noisy, exact = (np.flatnonzero(chosen) for chosen in (np.isfinite(variances) & (variances > 0), variances == 0))
        self._precisions = np.repeat(_inverse(variances), problem.observed.sizes)[:, None]
        self._noisy = self._places(self._grid, observed, noisy)
        density = self._grid.densities([observed[i] for i in noisy], 1 / variances[noisy])
        if exact.size:
            kept = axes_in_use(problem.schema, factors_of(observed[i] for i in exact))
            self._exact_grid = Grid(problem.schema, kept)
            self._exact = self._places(self._exact_grid, observed, exact)
            known = self._exact_grid.densities([observed[i] for i in exact], np.ones(exact.size))
            inside = [axis in kept for axis in self._grid.axes]
            part = density[(*(slice(None) if own else slice(0, 1) for own in inside), ...)]
            part[known.reshape(part.shape) > 0] = np.inf
            self._exact_scale = self._exact_grid.by_slot(_inverse(known))
            self._exact_part = self._grid.without(inside)
        self._has_exact = exact.size > 0
        self._component_variances = _inverse(density)
        self._scale = self._grid.by_slot(self._component_variances)
        same = problem.desired_tables == problem.observed_tables and noisy.size == len(desired)
        self._desired = (
            self._noisy if same else Places.of(self._grid, desired, problem.desired.offsets[:-1], problem.desired.size)
        )

    def _places(self, grid: Grid, tables: list[Table], chosen: NDArray[np.intp]) -> Places:
        layout = self._problem.observed
        return Places.of(grid, [tables[i] for i in chosen], layout.offsets[chosen], layout.size)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._desired.read(self._estimate(Y))

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a marginal and the sums of a finer one in the estimate from Y."""
        return self._grid.violation(self._estimate(Y))

    def _estimate(self, Y: Float) -> Float:
        """Every marginal, (*slots, K)."""
        array = self._noisy.write(self._precisions * Y, self._grid)
        self._grid.gather(array)
        array *= self._scale
        if self._has_exact:
            exact = self._exact.write(Y, self._exact_grid)
            self._exact_grid.gather(exact)
            exact *= self._exact_scale
            array[self._exact_part] += exact
        self._grid.spread(array)
        return array

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        array = self._desired.write(V, self._grid)
        self._grid.gather(array)
        exact = array[self._exact_part] * self._exact_scale if self._has_exact else None
        array *= self._scale
        self._grid.spread(array)
        result = self._precisions * self._noisy.read(array)
        if exact is not None:
            self._exact_grid.spread(exact)
            result += self._exact.read(exact)
        return result

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        by_kept = self._grid.cell_variances(self._component_variances)
        by_table = [by_kept[self._grid.contrasts_of(table)] for table in self._problem.desired_tables]
        return np.repeat(by_table, self._problem.desired.sizes)


class Grid:
    """The array's axes, and the passes along every one of them.

    Parameters
    ----------
    schema : Schema
    axes : sequence of int
        The variables that have an axis; others are summed out.
    """

    def __init__(self, schema: Schema, axes: Sequence[int]) -> None:
        self.axes = tuple(axes)
        self.levels = tuple(schema.shape[axis] for axis in axes)
        self.shape = tuple(n + 1 for n in self.levels)

    def place(self, table: Table) -> tuple[slice | int, ...]:
        """The slice of the array that a table is."""
        return tuple(slice(0, n) if axis in table.axes else n for axis, n in zip(self.axes, self.levels, strict=True))

    def contrasts_of(self, table: Table) -> tuple[int, ...]:
        """For every axis 1 if the table keeps its variable, 0 if not."""
        return tuple(int(axis in table.axes) for axis in self.axes)

    def without(self, kept: list[bool]) -> tuple[slice | int, ...]:
        """The slice of the array that has sums over the levels of the variables not kept."""
        return tuple(slice(None) if own else n for own, n in zip(kept, self.levels, strict=True))

    def gather(self, array: Float) -> None:
        """Along every axis in place: take the mean out of the levels and add it to their sum's place."""
        for levels, total in self._along_axes(array):
            mean = sum_middle(levels)
            mean /= levels.shape[1]
            total += mean
            np.negative(mean, out=mean)
            add_to_levels(levels, mean)

    def spread(self, array: Float) -> None:
        """Along every axis in place: spread the sum evenly over the levels."""
        for levels, total in self._along_axes(array):
            add_to_levels(levels, total / levels.shape[1])

    def violation(self, array: Float) -> float:
        """Largest difference between a sum and its levels, along any axis."""
        return max((float(abs(sum_middle(own) - total).max()) for own, total in self._along_axes(array)), default=0.0)

    def _along_axes(self, array: Float) -> Iterator[tuple[Float, Float]]:
        """Along every axis the levels, (before, levels, after), and their sum's place, (before, after)."""
        for position, n in enumerate(self.levels):
            flat = array.reshape(prod(self.shape[:position]), n + 1, -1)
            yield flat[:, :n], flat[:, n]

    def densities(self, tables: list[Table], precisions: Float) -> Float:
        """Precision of every component, (2, ..., 2), index 1 standing for contrasts along an axis."""
        density = np.zeros((2,) * len(self.axes))
        for table, precision in zip(tables, precisions, strict=True):
            density[self.contrasts_of(table)] += precision
        for position, n in enumerate(self.levels):
            along = np.moveaxis(density, position, 0)
            along[0] += along[1] / n
        return density

    def by_slot(self, by_component: Float) -> Float:
        """What components have, (2, ..., 2), for every slot, (*slots, 1)."""
        kinds = [np.repeat([1, 0], [n, 1]) for n in self.levels]
        return by_component[np.ix_(*kinds)][..., None] if kinds else by_component[..., None]

    def cell_variances(self, by_component: Float) -> Float:
        """Variance of a cell of every marginal, (2, ..., 2), index 1 standing for a variable that it keeps."""
        variances = by_component.copy()
        for position, n in enumerate(self.levels):
            along = np.moveaxis(variances, position, 0)
            along[1] *= 1 - 1 / n
            along[1] += along[0] / n**2
        return variances


class Places:
    """Which slot of the array each cell of a layout is.

    Parameters
    ----------
    slots : ndarray of int, (cells,)
        -1 for cells that have none.
    """

    def __init__(self, slots: NDArray[np.intp]) -> None:
        self._size = slots.size
        everywhere = bool(slots.size and slots.min() >= 0)
        self._cells: slice | NDArray[np.intp] = slice(None) if everywhere else np.flatnonzero(slots >= 0)
        self._slots = slots[self._cells]
        self._repeats = bool(self._slots.size and np.bincount(self._slots).max() > 1)

    @classmethod
    def of(cls, grid: Grid, tables: Sequence[Table], offsets: NDArray[np.integer], cells: int) -> Places:
        """Of tables that begin at offsets of a layout of so many cells."""
        number = np.arange(prod(grid.shape)).reshape(grid.shape)
        slots = np.full(cells, -1, dtype=np.intp)
        for table, start in zip(tables, offsets.tolist(), strict=True):
            slots[start : start + table.size] = number[grid.place(table)].ravel()
        return cls(slots)

    def write(self, values: Float, grid: Grid) -> Float:
        """The array (*slots, K) that holds the cells, (cells, K), and is 0 elsewhere."""
        array = np.zeros((prod(grid.shape), values.shape[1]))
        if self._repeats:
            np.add.at(array, self._slots, values[self._cells])
        else:
            array[self._slots] = values[self._cells]
        return array.reshape(*grid.shape, -1)

    def read(self, array: Float) -> Float:
        """The cells of the array, (cells, K), 0 where they have no slot."""
        flat = array.reshape(-1, array.shape[-1])
        if isinstance(self._cells, slice):
            return flat.take(self._slots, axis=0)
        values = np.zeros((self._size, flat.shape[1]))
        values[self._cells] = flat[self._slots]
        return values


def axes_in_use(schema: Schema, factors: set[str]) -> list[int]:
    """Variables of several levels that some table keeps, from the factors of all tables."""
    return sorted({schema.axis_of(factor) for factor in factors if schema.size_of(factor) > 1})


def array_size(schema: Schema, axes: Sequence[int]) -> int:
    """Slots of the array that `ArrayForm` would use for these axes."""
    return prod(schema.shape[axis] + 1 for axis in axes)


def _inverse(values: Float) -> Float:
    """1 over what is above 0 and finite, 0 elsewhere."""
    usable = np.isfinite(values) & (values > 0)
    return np.divide(1.0, values, out=np.zeros_like(values), where=usable)
