"""The exact estimate by two sweeps over the observed tables and all coarser ones, in compiled loops.

Going up, means over every axis leave a table for the table without the axis: what stays is its component, with the
information about it from all tables. Each is divided by its density, and going down every table gets its share of those
without an axis. The plan is a list of operations on one vector (`axis_steps`), so no shape costs more than another.

Bytes that must move: every observed cell in, every desired cell out. Besides, tables that do not stay in cache are read
and written once going up and once for each of their variables going down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blue_solvers.components.flat.axis_steps import copy_weighted, spread_evenly, sum_groups, take_means
from blue_solvers.components.flat.group_mixing import GroupMixing
from blue_solvers.components.flat.group_variances import group_variances
from blue_solvers.components.flat.grouped_axes import GroupedAxes
from blue_solvers.components.flat.shared_steps import PARTS, SharedSteps, cut, is_large
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.threads import Workers
from constraint_builders.arrays import Flags, Float, Index, Integers
from constraint_builders.relations.closed_tables import ClosedTables

MIXED = 16.0  # products of matrices and values for each cell
CELL_BYTES = 40  # in the estimate, its parts and its transpose, at most, for each column


class SweepForm:
    """The exact estimate through lists of operations; see the module.

    Parameters
    ----------
    problem : StructuredProblem
        Of one geounit, without zeros.
    most_cells : float
        That the observed and desired tables may have together with all coarser ones.
    most_bytes : float
        That an estimate of one column and matrices of recodes may take.

    Raises
    ------
    TooManyTablesError
        If they have or take more.
    """

    def __init__(self, problem: StructuredProblem, most_cells: float = np.inf, most_bytes: float = np.inf) -> None:
        self._observed, self._desired = problem.observed.size, problem.desired.size
        together = [*problem.desired_tables, *problem.observed_tables]
        self._axes = axes = GroupedAxes(problem.schema, together)
        kept = [axes.of(table) for table in together]
        self._tables = tables = ClosedTables.of(
            axes.shape, kept, min(most_cells, most_bytes / CELL_BYTES), axes.instead
        )
        desired_at, observed_at = np.split(tables.place_of, [len(problem.desired_tables)])
        variances, starts = np.concatenate(problem.geounit_variances), problem.observed.offsets[:-1]
        noisy, exact = np.isfinite(variances) & (variances > 0), variances == 0
        own = Runs.of(tables, starts[noisy], observed_at[noisy], 1 / variances[noisy])
        known = Runs.of(tables, starts[exact], observed_at[exact], np.ones(np.count_nonzero(exact)))
        density, known_density = own.densities(axes, tables), known.densities(axes, tables)
        limits = MIXED * most_cells, most_bytes - CELL_BYTES * tables.cells
        self._mixing = GroupMixing(axes, tables, density, known_density, *limits) if axes.several else None
        density[known_density > 0] = np.inf
        self._noisy = Sweep(axes, tables, own, density, np.ones(density.size, dtype=np.bool_), self._mixing)
        members = known_density > 0
        self._exact = Sweep(axes, tables, known, known_density, members, self._mixing, True) if exact.any() else None
        self._wanted = Runs.of(tables, problem.desired.offsets[:-1], desired_at, np.ones(desired_at.size))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        with self._workers(Y) as workers:
            return self._wanted.write(self._estimate(Y, workers), self._desired, workers)

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        with self._workers(Y) as workers:
            cells, worst = self._estimate(Y, workers), 0.0
        for table, without, axis, before, levels, _ in self._tables.up.tolist():
            whole = cells[slice(*self._tables.offsets[[table, table + 1]])].reshape(before, levels, -1)
            own = cells[slice(*self._tables.offsets[[without, without + 1]])].reshape(before, -1, whole.shape[2])
            sums = sum_groups(whole, self._axes.group_of(axis))
            worst = max(worst, float(abs(sums - own).max()))
        return worst

    def _workers(self, Y: Float) -> Workers:
        shared = any(own.is_shared for own in self._sweeps)
        return Workers(8.0 * self._tables.cells * Y.shape[1] if shared else 0)

    @property
    def _sweeps(self) -> list[Sweep]:
        return [self._noisy] if self._exact is None else [self._noisy, self._exact]

    def _estimate(self, Y: Float, workers: Workers) -> Float:
        """All tables, (S, K), and rooms beside them."""
        size = max(own.rooms for own in self._sweeps)  # exact tables may be cut where all together are not
        cells = self._noisy.components(self._noisy.runs.read(Y, size, workers), workers)
        if self._exact is not None:
            known = self._exact.components(self._exact.runs.read(Y, size, workers), workers)
            cells[: self._tables.cells] += known[: self._tables.cells]  # nothing is in the rooms any more
        return self._noisy.spread(cells, workers)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        with self._workers(V) as workers:
            cells = self._wanted.read(V, self._noisy.rooms, workers)
            if self._exact is None:
                components = self._noisy.components(cells, workers, transpose=True)
                return self._noisy.runs.write(self._noisy.spread(components, workers), self._observed, workers)
            self._noisy.take_means(cells, workers)
            known, noisy = (own.spread(own.scaled(cells, workers), workers) for own in (self._exact, self._noisy))
            found = self._exact.runs.write(known, self._observed, workers)
            return found + self._noisy.runs.write(noisy, self._observed, workers)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        places = self._wanted.places
        if self._mixing is not None:
            found = group_variances(self._axes, self._tables, self._noisy.scale, self._mixing)
            return np.concatenate([found(number) for number in places.tolist()])
        by_table = self._noisy.scale.copy()
        for table, without, levels in self._tables.by_axis():
            by_table[table] = by_table[table] * (1 - 1 / levels) + by_table[without] / levels**2
        return np.repeat(by_table[places], self._tables.sizes[places])


class Sweep:
    """Both sweeps over some of the tables, all those that are coarser among them.

    Parameters
    ----------
    axes : GroupedAxes
    tables : ClosedTables
    runs : Runs
        Where they are observed.
    density : ndarray, (tables,)
        Information about every component: infinite where something else knows it, 0 where nothing does.
    members : ndarray of bool, (tables,)
    mixing : GroupMixing or None
        What makes values of the components of several groups.
    exactly : bool
        Whether what is observed is exact.
    """

    def __init__(
        self,
        axes: GroupedAxes,
        tables: ClosedTables,
        runs: Runs,
        density: Float,
        members: Flags,
        mixing: GroupMixing | None,
        exactly: bool = False,
    ) -> None:
        self._tables, self._groups, self._mixing, self._exactly = tables, axes.groups, mixing, exactly
        self.runs = runs
        self.scale = np.divide(1.0, density, out=np.zeros_like(density), where=density > 0)
        if mixing is not None:
            self.scale[mixing.mixed] = 1.0
        own = tables.up[members[tables.up[:, 0]]]
        by_axis = own[np.argsort(own[:, 2], kind="stable")]
        up, down = (np.column_stack([tables.steps(rows), axes.listed[rows[:, 2]]]) for rows in (own, by_axis))
        self._up = SharedSteps.going_up(tables, own, up)
        self._down = SharedSteps.going_down(tables, by_axis, down, self._up)
        last = np.append(own[1:, 0] != own[:-1, 0], np.ones(min(len(own), 1), dtype=np.bool_))
        self._factors = np.where(last, self.scale[own[:, 0]], 1.0)
        self._ends = [(int(tables.offsets[i]), float(self.scale[i])) for i in np.flatnonzero(tables.sizes == 1)]

    @property
    def rooms(self) -> int:
        """Cells of all tables, and those beside them that the way up needs."""
        return self._tables.cells + self._up.beside

    @property
    def is_shared(self) -> bool:
        """Whether steps come in parts for threads."""
        return len(self._up.phases) > 1

    def components(self, cells: Float, workers: Workers, transpose: bool = False) -> Float:
        """What is known of every component, from information about cells, in place."""
        self._go_up(cells, self._factors, workers)
        for place, factor in self._ends:
            cells[place] *= factor
        return self._mix(cells, workers, transpose)

    def take_means(self, cells: Float, workers: Workers) -> None:
        """Information about every component, in place."""
        self._go_up(cells, np.ones_like(self._factors), workers)

    def _go_up(self, cells: Float, factors: Float, workers: Workers) -> None:
        take = take_means.fastest()
        self._up.run(cells, lambda steps, rows: take(cells, steps, self._groups, factors[rows]), workers)

    def scaled(self, cells: Float, workers: Workers) -> Float:
        """What the transpose of `components` makes of information about every component."""
        scaled = cells.copy()
        scaled[: self._tables.cells] *= np.repeat(self.scale, self._tables.sizes)[:, None]
        return self._mix(scaled, workers, transpose=True)

    def spread(self, cells: Float, workers: Workers) -> Float:
        """All tables, from their components, in place."""
        spread = spread_evenly.fastest()
        self._down.run(cells, lambda steps, _: spread(cells, steps, self._groups), workers)
        return cells

    def _mix(self, cells: Float, workers: Workers, transpose: bool) -> Float:
        if self._mixing is not None:
            self._mixing.apply(cells, workers, self._exactly, transpose)
        return cells


@dataclass(frozen=True)
class Runs:
    """Tables of a layout among closed ones, each with a weight.

    Attributes
    ----------
    places : ndarray of int, (tables,)
        Which of the closed tables they are.
    weights : ndarray, (tables,)
    rows : ndarray of int, (tables, 4)
        Where they start in the layout, where among the closed tables, how long they are, and whether the same table
        came before.
    unread : ndarray of int, (others, 4)
        The same for those that the layout does not have.
    parts, unread_parts : list of slice
        Of both, for threads; runs that add to what another copied stay together.
    """

    places: Index
    weights: Float
    rows: Integers
    unread: Integers
    parts: list[slice]
    unread_parts: list[slice]

    @classmethod
    def of(cls, tables: ClosedTables, starts: Integers, places: Index, weights: Float) -> Runs:
        """Of tables that start at places of a layout."""
        first = np.unique(places, return_index=True)[1]
        again = np.isin(np.arange(places.size), first, invert=True)
        rows = np.stack([starts, tables.offsets[places], tables.sizes[places], again], axis=1).astype(np.int64)
        others = np.setdiff1d(np.arange(tables.sizes.size), places)
        unread = np.stack([np.full(others.size, -1), tables.offsets[others], tables.sizes[others], others * 0], axis=1)
        count = PARTS if is_large(tables) else 1
        parts = cut(rows[:, 2], 1 if again.any() else count), cut(unread[:, 2], count)
        return cls(places, weights, rows, unread.astype(np.int64), *parts)

    def densities(self, axes: GroupedAxes, tables: ClosedTables) -> Float:
        """Precision of every table with all that are added to it, of its cells; weights are precisions."""
        density = np.bincount(self.places, self.weights, tables.sizes.size).astype(float)
        for (table, without, levels), listed in zip(tables.by_axis(), axes.listed.tolist(), strict=True):
            density[without] += density[table] / (levels if listed < 0 else 1)
        return density

    def read(self, values: Float, size: int, workers: Workers) -> Float:
        """All closed tables, (size, K): values times weights, 0 where there are none."""
        cells = np.empty((size, values.shape[1]))
        values = np.ascontiguousarray(values)
        copy, nothing = copy_weighted.fastest(), np.zeros(len(self.unread))
        workers.for_each(lambda some: copy(values, cells, self.unread[some], nothing[some]), self.unread_parts)
        workers.for_each(lambda some: copy(values, cells, self.rows[some], self.weights[some]), self.parts)
        return cells

    def write(self, cells: Float, size: int, workers: Workers) -> Float:
        """The layout's values, (size, K): cells times weights, 0 in tables that are not here; `cells` is used up."""
        in_place = self._cells_as_they_lie == size and len(cells) <= 2 * size
        values = cells[:size] if in_place else np.zeros((size, cells.shape[1]))
        if not (in_place and self._is_plain):
            copy, back = copy_weighted.fastest(), self._back
            workers.for_each(lambda some: copy(cells, values, back[some], self.weights[some]), self.parts)
        return values

    @cached_property
    def _cells_as_they_lie(self) -> int:
        """The cells of the tables, where the layout has them in their order; else 0."""
        return int(self.rows[:, 2].sum()) if np.array_equal(self.rows[:, 0], self.rows[:, 1]) else 0

    @cached_property
    def _is_plain(self) -> bool:
        return bool((self.weights == 1).all())

    @cached_property
    def _back(self) -> Integers:
        back = self.rows[:, [1, 0, 2, 3]]
        back[:, 3] = 0
        return np.ascontiguousarray(back)
