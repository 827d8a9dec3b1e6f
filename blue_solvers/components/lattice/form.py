"""The exact estimate of tables without geography by two sweeps over them and their intersections.

Going up, what a table says about coarser ones leaves it for them: what stays is its component, with the information
about it from all tables. Each is divided by its density, and going down every table gets what the coarser ones say of
its sums. Down is the transpose of up, and so the transpose of the estimate is the same two sweeps.

Bytes that must move: every observed cell in, every desired cell out. A table that nothing adds to is copied just before
it is taken apart, part by part while it is in cache, and the estimate is left where it was worked out. So what does not
stay in cache is moved twice: in, and once more going down; and tables of more than a megabyte are read and written once
more each way for what their first axis is summed out of. Measured in copies of input and output: Adult's tables up to
three-way 2.0, DHC 1.5, 7^7 6 (which is arithmetic: 7 axes both ways).
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.groups import GroupMixing, densities_of_groups
from blue_solvers.components.lattice.lines import mix_lines
from blue_solvers.components.lattice.plan import SweepPlan, densities
from blue_solvers.components.lattice.runs import Runs, copy_weighted
from blue_solvers.components.lattice.schedule import StepList, run
from blue_solvers.components.lattice.sweeps import go_down, go_up
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.threads import Workers
from constraint_builders.arrays import Flags, Float, Integers

CELL_BYTES = 40  # in the estimate, its parts and its transpose, at most, for each column


class LatticeForm:
    """The exact estimate through lists of operations; see the module.

    Parameters
    ----------
    problem : StructuredProblem
        Of one geounit, without zeros.
    most_bytes : float
        That an estimate of one column and matrices of recodes may take.
    compiled : bool
        Whether compiled loops may be used.

    Raises
    ------
    TooManyCellsError
        If they take more.
    """

    def __init__(self, problem: StructuredProblem, most_bytes: float = np.inf, compiled: bool = True) -> None:
        self._sizes = problem.desired.sizes
        axes = SchemaAxes(problem.schema, problem.tables)
        observed = [axes.of(table) for table in problem.observed_tables]
        self._desired = [axes.of(table) for table in problem.desired_tables]
        variances, starts = np.concatenate(problem.geounit_variances), problem.observed.offsets[:-1]
        told = [table for table, variance in zip(observed, variances.tolist(), strict=True) if variance < np.inf]
        self._plan = plan = SweepPlan(axes, told, self._desired, most_bytes / CELL_BYTES)
        noisy, exact = np.isfinite(variances) & (variances > 0), variances == 0
        precisions = np.divide(1.0, variances, out=np.ones_like(variances), where=noisy)
        known = self._lay_densities(observed, precisions, noisy, exact, most_bytes - CELL_BYTES * plan.cells)
        self._kernels = Kernels(compiled)
        total, every = problem.observed.size, np.ones(len(plan.tables), dtype=np.bool_)

        def sweep(chosen: Flags, scale: Float, members: Flags) -> Sweep:
            tables = [table for table, is_own in zip(observed, chosen.tolist(), strict=True) if is_own]
            return Sweep(plan, tables, starts[chosen], precisions[chosen], total, scale, members)

        self._noisy = sweep(noisy, self._scale, every)
        self._exact = [sweep(exact, self._exact_scale, known)] if exact.any() else []
        self._rooms = plan.cells + max(plan.most_room, *(sweep.room for sweep in (self._noisy, *self._exact)))
        self._wanted = problem.desired.offsets[:-1], np.ones(len(self._desired)), problem.desired.size
        self._runs = Runs(plan, self._desired, *self._wanted)

    @cached_property
    def _back(self) -> Sweep:
        """From weights of desired cells."""
        every = np.ones(len(self._plan.tables), dtype=np.bool_)
        return Sweep(self._plan, self._desired, *self._wanted, self._scale, every)

    def _lay_densities(
        self, observed: list[Axes], precisions: Float, noisy: Flags, exact: Flags, most_bytes: float
    ) -> Flags:
        """What components are divided by, and which tables something exact leads to."""
        plan = self._plan
        self._mixing: GroupMixing | None = None
        kinds = [
            ([own for own, is_own in zip(observed, some.tolist(), strict=True) if is_own], precisions[some])
            for some in (noisy, exact)
        ]
        if not plan.axes.group_sizes:
            found = [densities(plan, *own) for own in kinds]
        else:
            by_table = [densities_of_groups(plan, *own) for own in kinds]
            self._mixing = GroupMixing(plan, by_table[0], by_table[1], self._desired, most_bytes)
            found = [np.array([own[table][0] if table in own else 0.0 for table in plan.tables]) for own in by_table]
        known = found[1] > 0
        self._scale, self._exact_scale = (np.divide(1.0, own, out=np.zeros_like(own), where=own > 0) for own in found)
        self._scale[known] = 0.0
        if self._mixing is not None:
            several = {mask for mask, table in zip(plan.masks, plan.tables, strict=True) if plan.groups(table)}
            mixed = np.array([mask in several for mask in plan.masks])
            self._mixing.variances |= {
                (mask, ()): np.array([scale])
                for mask, scale in zip(plan.masks, self._scale, strict=True)
                if (mask, ()) not in self._mixing.variances
            }
            self._scale[mixed] = self._exact_scale[mixed] = 1.0
        return known

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        with self._workers(Y) as workers:
            return self._runs.write(self._estimate(Y, workers), self._kernels.copy, workers)

    def _workers(self, Y: Float) -> Workers:
        return Workers(8.0 * self._plan.cells * Y.shape[1])

    def _estimate(self, Y: Float, workers: Workers) -> Float:
        """All tables, (rooms, K)."""
        plan, kernels = self._plan, self._kernels
        cells = self._noisy.read(Y, self._rooms, kernels, workers)
        self._noisy.go_up(cells, Y, kernels, workers)
        self._mix(cells)
        for sweep in self._exact:
            known = sweep.read(Y, self._rooms, kernels, workers)
            sweep.go_up(known, Y, kernels, workers)
            self._mix(known, exactly=True)
            cells[: plan.cells] += known[: plan.cells]
        self._noisy.go_down(cells, kernels, workers)
        kernels.go_down(cells, plan.sums, plan.lists)
        return cells

    def _mix(self, cells: Float, exactly: bool = False, transpose: bool = False) -> None:
        if self._mixing is not None:
            self._mixing.apply(self._kernels.mix, cells, exactly, transpose)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        plan, kernels = self._plan, self._kernels
        with self._workers(V) as workers:
            cells = self._back.read(V, self._rooms, kernels, workers)
            kernels.go_up(cells, plan.shares, plan.lists, np.ones(len(plan.shares)), cells)
            self._back.go_up(cells, V, kernels, workers, scaled=not self._exact)
            if not self._exact:
                self._mix(cells, transpose=True)
                self._noisy.go_down(cells, kernels, workers)
                return self._noisy.runs.write(cells, kernels.copy, workers)
            found = np.zeros((self._noisy.runs.size, V.shape[1]))
            for sweep, exactly in ((self._noisy, False), *((own, True) for own in self._exact)):
                own = sweep.scaled(cells)
                self._mix(own, exactly, transpose=True)
                sweep.go_down(own, kernels, workers)
                sweep.runs.write_to(found, own, kernels.copy, workers)
            return found

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        with self._workers(Y) as workers:
            return self._plan.disagreement(self._estimate(Y, workers))

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        plan = self._plan
        if self._mixing is not None:
            return np.concatenate([self._mixing.variances_of(own) for own in self._desired])
        scale = dict(zip(plan.masks, (self._scale * plan.sizes).tolist(), strict=True))
        values = np.array([scale[mask] for mask in plan.lattice.members])
        sums = plan.lattice.sums_of_contrasts(values, [plan.mask_of(table) for table in self._desired])
        return np.repeat(sums / self._sizes.astype(float) ** 2, self._sizes)


class Kernels:
    """The loops, compiled or not."""

    def __init__(self, compiled: bool) -> None:
        self.go_up = go_up.fastest() if compiled else go_up.reference
        self.go_down = go_down.fastest() if compiled else go_down.reference
        self.copy = copy_weighted.fastest() if compiled else copy_weighted.reference
        self.mix = mix_lines.fastest() if compiled else mix_lines.reference


class Sweep:
    """What values in tables of a layout say of some tables, all those that are coarser among them.

    Parameters
    ----------
    plan : SweepPlan
    tables : list of tuple of int
        Of the layout, those that count.
    starts : ndarray of int, (tables,)
        Where they are in it.
    weights : ndarray, (tables,)
        Of their values.
    total : int
        Cells of the layout.
    scale : ndarray, (tables of the plan,)
        What components are multiplied by.
    members : ndarray of bool, (tables of the plan,)
    """

    def __init__(
        self, plan: SweepPlan, tables: list[Axes], starts: Integers, weights: Float, total: int, scale: Float,
        members: Flags,
    ) -> None:  # fmt: skip
        self._plan, self._scale = plan, scale
        up, sources = plan.up.of(members), self._copied(tables, starts, members)
        copies = np.ones(len(plan.tables))
        for table, weight in zip(tables, weights.tolist(), strict=True):
            if table in plan.number:
                copies[plan.number[table]] = weight
        self.runs = Runs(plan, tables, starts, weights, total, [plan.tables[i] for i in sources])
        self._up, up_room = plan.held.phases(up.after_copies(sources, plan.sizes), goes_up=True)
        self._down, down_room = plan.held.phases(plan.down.of(members), goes_up=False)
        self.room = max(up_room, down_room)
        self._copies = [[np.where(own.is_copy, copies[own.table], 1.0) for own in phase.parts] for phase in self._up]
        self._factors = [
            [np.where(own.is_last, scale[own.table], copies) for own, copies in zip(phase.parts, each, strict=True)]
            for phase, each in zip(self._up, self._copies, strict=True)
        ]
        self._ends = [i for i, inside in enumerate(plan.coarser) if not inside and scale[i] != 1]

    def _copied(self, tables: list[Axes], starts: Integers, members: Flags) -> dict[int, int]:
        """Tables that nothing adds to before they are taken apart, and where each lies: they are copied just then."""
        plan = self._plan
        theirs = {coarse for i, inside in enumerate(plan.coarser) if members[i] for coarse in inside}
        theirs |= {plan.margins[own] for own in tables if own in plan.margins}
        once = {table for table, count in Counter(tables).items() if count == 1 and table in plan.number} - theirs
        found = {plan.number[own]: start for own, start in zip(tables, starts.tolist(), strict=True) if own in once}
        return {i: found[i] for i in sorted(found) if plan.coarser[i]}

    def read(self, Y: Float, rooms: int, kernels: Kernels, workers: Workers) -> Float:
        """Information about all tables' own cells, (rooms, K), but for what `go_up` copies."""
        return self.runs.read(Y, rooms, kernels.copy, workers)

    def go_up(self, cells: Float, Y: Float, kernels: Kernels, workers: Workers, scaled: bool = True) -> None:
        """What is known of every component, from information about cells, in place."""
        plan, take, values = self._plan, kernels.go_up, np.ascontiguousarray(Y)
        factors = self._factors if scaled else self._copies

        def work(phase: int, place: int, part: StepList) -> None:
            take(cells, part.steps, plan.lists, factors[phase][place], values)

        run(self._up, cells, work, kernels.copy, workers)
        for i in self._ends if scaled else ():
            cells[plan.offsets[i] : plan.offsets[i] + plan.sizes[i]] *= self._scale[i]

    def go_down(self, cells: Float, kernels: Kernels, workers: Workers) -> None:
        """All tables, from their components, in place."""
        plan, give = self._plan, kernels.go_down
        run(self._down, cells, lambda _, __, part: give(cells, part.steps, plan.lists), kernels.copy, workers)

    def scaled(self, cells: Float) -> Float:
        """The same from means that were taken without scaling."""
        found = cells.copy()
        for start, size, scale in zip(
            self._plan.offsets.tolist(), self._plan.sizes.tolist(), self._scale.tolist(), strict=True
        ):
            found[start : start + size] *= scale
        return found
