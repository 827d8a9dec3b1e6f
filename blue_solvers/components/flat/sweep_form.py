"""The exact estimate by two sweeps over the observed tables and all coarser ones, in compiled loops.

Going up, means over every axis leave a table for the table without the axis: what stays is its component, with the
information about it from all tables. Each is divided by its density, and going down every table gets its share of those
without an axis. The plan is a list of operations on one vector (`axis_steps`), so no shape costs more than another.

Bytes that must move: every observed cell in, every desired cell out. Besides, tables that do not stay in cache are read
and written once going up and once for each of their variables going down.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from blue_solvers.components.flat.axis_steps import spread_evenly, sum_groups, take_means
from blue_solvers.components.flat.group_mixing import GroupMixing
from blue_solvers.components.flat.group_variances import group_variances
from blue_solvers.components.flat.grouped_axes import GroupedAxes
from blue_solvers.components.flat.layout_runs import Runs
from blue_solvers.components.flat.outer_tables import OuterChoice, OuterTables
from blue_solvers.components.flat.shared_steps import SharedSteps, going_down
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
        self._axes = axes = GroupedAxes(problem.schema, problem.tables)
        kept = [axes.of(table) for table in problem.tables]
        most_cells = min(most_cells, most_bytes / CELL_BYTES)
        self._every = every = ClosedTables.of(axes.shape, kept, most_cells, axes.instead)
        desired_at = every.place_of[: len(problem.desired_tables)]
        observed_at = every.place_of[-len(problem.observed_tables) :]
        variances, starts = np.concatenate(problem.geounit_variances), problem.observed.offsets[:-1]
        noisy, exact = np.isfinite(variances) & (variances > 0), variances == 0
        precisions = np.divide(1.0, variances, out=np.ones_like(variances), where=noisy)
        self._density = _densities(axes, every, observed_at[noisy], precisions[noisy])
        self._known_density = _densities(axes, every, observed_at[exact], precisions[exact])
        choice = OuterChoice.of(every, axes, observed_at, noisy, exact, desired_at)
        tables, numbers, number_of = choice.held(axes, desired_at, observed_at[noisy | exact])
        self._tables = tables
        density, known_density = self._density[numbers], self._known_density[numbers]
        limits = MIXED * most_cells, most_bytes - CELL_BYTES * every.cells
        self._mixing = GroupMixing(axes, tables, density, known_density, *limits) if axes.several else None
        density[known_density > 0] = np.inf
        place = np.full(every.sizes.size, -1)
        place[numbers] = np.arange(numbers.size)

        place[list(choice.axes)] = -1

        def runs(at: Index, offsets: Integers, weights: Float) -> Runs:
            inner = place[at] >= 0
            return Runs.of(tables, offsets[inner], place[at[inner]], weights[inner])

        outer = noisy & np.isin(observed_at, list(choice.axes))
        own = runs(observed_at[noisy & ~outer], starts[noisy & ~outer], precisions[noisy & ~outer])
        self._noisy = Sweep(axes, tables, own, density, np.ones(density.size, dtype=np.bool_), self._mixing)
        self._exact = None
        if exact.any():
            known = runs(observed_at[exact], starts[exact], precisions[exact])
            self._exact = Sweep(axes, tables, known, known_density, known_density > 0, self._mixing, True)
        offsets = problem.desired.offsets[:-1]
        self._wanted = runs(desired_at, offsets, np.ones(desired_at.size))
        self._desired_at = desired_at
        self._outer = None
        if choice.axes:
            elsewhere = place[desired_at] < 0
            self._outer = OuterTables(
                choice,
                axes,
                tables,
                number_of,
                dict(zip(observed_at[outer].tolist(), starts[outer].tolist(), strict=True)),
                dict(zip(observed_at[outer].tolist(), precisions[outer].tolist(), strict=True)),
                dict(zip(desired_at[elsewhere].tolist(), offsets[elsewhere].tolist(), strict=True)),
                self._desired,
            )

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        with self._workers(Y) as workers:
            return self._found(Y, workers)[0][: self._desired]

    def _found(self, Y: Float, workers: Workers, check: bool = False) -> tuple[Float, Float]:
        """Desired cells and those held after them, (m + held, K), and all closed tables."""
        if self._outer is None:
            cells = self._estimate(Y, workers)[0]
            return self._wanted.write(cells, self._desired, workers), cells
        cells, margins = self._estimate(Y, workers)
        found = np.empty((self._desired + self._outer.held, Y.shape[1]))
        self._wanted.write_to(found, cells, workers)
        own = self._outer.observed if check else self._outer.wanted
        self._outer.hear(np.ascontiguousarray(Y), cells, margins, found, self._outer.ones, workers, own)
        self._outer.sum_up(found)
        return found, cells

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        with self._workers(Y) as workers:
            if self._outer is None:
                cells, worst = self._estimate(Y, workers)[0], 0.0
            else:
                found, cells = self._found(Y, workers, check=True)
                worst = self._outer.disagreement(found, cells)
        for table, without, axis, before, levels, _ in self._tables.up.tolist():
            whole = cells[slice(*self._tables.offsets[[table, table + 1]])].reshape(before, levels, -1)
            own = cells[slice(*self._tables.offsets[[without, without + 1]])].reshape(before, -1, whole.shape[2])
            sums = sum_groups(whole, self._axes.group_of(axis))
            worst = max(worst, float(abs(sums - own).max()))
        return worst

    def _workers(self, Y: Float) -> Workers:
        return Workers(8.0 * self._every.cells * Y.shape[1] if self._is_shared else 0)

    @cached_property
    def _is_shared(self) -> bool:
        """Whether there are parts for threads."""
        return any(own.is_shared for own in self._sweeps) or (self._outer is not None and self._outer.is_shared)

    @cached_property
    def _rooms(self) -> int:
        """Cells of all tables, and those beside them: exact ones may be cut where all together are not."""
        return max(own.rooms for own in self._sweeps)

    @property
    def _sweeps(self) -> list[Sweep]:
        return [self._noisy] if self._exact is None else [self._noisy, self._exact]

    def _estimate(self, Y: Float, workers: Workers) -> tuple[Float, Float]:
        """All closed tables, (S, K), and rooms beside them; and what outer ones said."""
        size = self._rooms
        cells, margins = self._noisy.runs.read(Y, size, workers), np.zeros((0, Y.shape[1]))
        if self._outer is not None:
            values, weights = np.ascontiguousarray(Y), self._outer.precisions
            margins = self._outer.tell(values, cells, weights, workers, self._outer.observed)
        cells = self._noisy.components(cells, workers)
        if self._exact is not None:
            known = self._exact.components(self._exact.runs.read(Y, size, workers), workers)
            cells[: self._tables.cells] += known[: self._tables.cells]  # nothing is in the rooms any more
        return self._noisy.spread(cells, workers), margins

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        with self._workers(V) as workers:
            cells = self._wanted.read(V, self._noisy.rooms, workers)
            if self._outer is None:
                return self._adjoint(cells, None, workers)
            outer, values = self._outer, np.ascontiguousarray(V)
            if outer.has_sums or outer.held:
                values = np.concatenate([values, np.zeros((outer.held, V.shape[1]))])
                outer.share_out(values)
            margins = outer.tell(values, cells, outer.ones, workers, outer.back)
            found = np.zeros((self._observed, V.shape[1]))
            cells = self._adjoint(cells, found, workers)
            outer.hear(values, cells, margins, found, outer.precisions, workers, outer.back)
            return found

    def _adjoint(self, cells: Float, found: Float | None, workers: Workers) -> Float:
        """P' of information about closed tables; in `found`, where it is given, and then these tables' own."""
        if self._exact is None:
            cells = self._noisy.spread(self._noisy.components(cells, workers, transpose=True), workers)
            known = None
        else:
            self._noisy.take_means(cells, workers)
            known, cells = (own.spread(own.scaled(cells, workers), workers) for own in (self._exact, self._noisy))
        if found is None:
            found = cells = self._noisy.runs.write(cells, self._observed, workers)
        else:
            self._noisy.runs.write_to(found, cells, workers)
        if self._exact is not None and known is not None:
            self._exact.runs.write_to(found, known, workers)
        return cells

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        places, density = self._desired_at, self._density.copy()
        density[self._known_density > 0] = np.inf
        scale = np.divide(1.0, density, out=np.zeros_like(density), where=density > 0)
        if self._axes.several:
            mixing = GroupMixing(self._axes, self._every, self._density, self._known_density, np.inf, np.inf)
            of_table = group_variances(self._axes, self._every, scale, mixing)
            return np.concatenate([of_table(number) for number in places.tolist()])
        for table, without, levels in self._every.by_axis():
            scale[table] = scale[table] * (1 - 1 / levels) + scale[without] / levels**2
        return np.repeat(scale[places], self._every.sizes[places])


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
        down, phases = going_down(tables, own)
        up_steps, down_steps = (np.column_stack([tables.steps(rows), axes.listed[rows[:, 2]]]) for rows in (own, down))
        self._up = SharedSteps.going_up(tables, own, up_steps)
        self._down = SharedSteps.going_down(tables, down, down_steps, phases, self._up)
        tables_up = own[self._up.rows, 0]
        last = np.zeros(tables_up.size, dtype=np.bool_)
        last[tables_up.size - 1 - np.unique(tables_up[::-1], return_index=True)[1]] = True
        self._factors = np.where(last, self.scale[tables_up], 1.0)
        self._ends = [(int(tables.offsets[i]), float(self.scale[i])) for i in np.flatnonzero(tables.sizes == 1)]

    @property
    def rooms(self) -> int:
        """Cells of all tables, and those beside them that the way up needs."""
        return self._tables.cells + self._up.beside

    @property
    def is_shared(self) -> bool:
        """Whether steps come in parts for threads."""
        return self._up.is_shared

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


def _densities(axes: GroupedAxes, tables: ClosedTables, places: Index, precisions: Float) -> Float:
    """Precision of every table with all that are added to it, of its cells, from those of some tables."""
    density = np.bincount(places, precisions, tables.sizes.size).astype(float)
    for (table, without, levels), listed in zip(tables.by_axis(), axes.listed.tolist(), strict=True):
        density[without] += density[table] / (levels if listed < 0 else 1)
    return density
