"""The exact estimate of tables without geography by two sweeps over them and their intersections.

Going up, what a table says about coarser ones leaves it for them: what stays is its component, with the information
about it from all tables. Each is divided by its density, and going down every table gets what the coarser ones say of
its sums. Down is the transpose of up, and so the transpose of the estimate is the same two sweeps.

Bytes that must move: every observed cell in, every desired cell out. A table is read just before it is taken apart,
part by part while it is in cache. So what does not stay in cache is moved three times: in, once more going down, and
out; and tables of more than a megabyte are read and written once more each way for what their first axis is summed out
of.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.groups import GroupMixing
from blue_solvers.components.lattice.lines import mix_lines
from blue_solvers.components.lattice.plan import TABLE, TARGET, StepList, SweepPlan, information
from blue_solvers.components.lattice.schedule import Phase, in_parts, phases
from blue_solvers.components.lattice.sweeps import LAND, MOVE, READ, go_down, go_up
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

    Raises
    ------
    TooManyCellsError
        If they take more.
    """

    def __init__(self, problem: StructuredProblem, most_bytes: float = np.inf) -> None:
        self._observed, self._desired, self._room = problem.observed, problem.desired, 0
        axes = SchemaAxes(problem.schema, problem.tables)
        tables = [axes.of(table) for table in problem.observed_tables]
        self._wanted = [axes.of(table) for table in problem.desired_tables]
        variances = np.concatenate(problem.geounit_variances)
        told = np.flatnonzero(variances < np.inf)
        tables, variances = [tables[i] for i in told.tolist()], variances[told]
        self._plan = plan = SweepPlan(axes, tables, self._wanted, most_bytes / CELL_BYTES)
        is_exact = variances == 0
        precisions = 1 / np.where(is_exact, 1.0, variances)
        exact, noisy = (
            information(plan, [tables[i] for i in np.flatnonzero(own).tolist()], precisions[own])
            for own in (is_exact, ~is_exact)
        )
        self._is_known = np.array([table in exact for table in plan.tables])
        self._lay_scale(noisy | exact, exact, most_bytes - CELL_BYTES * plan.cells)
        reads = self._reads(tables, problem.observed.offsets[told])
        self._told = replace(reads, factors=precisions * (is_exact | ~self._is_known[reads.table]))
        self._up = self._upwards(self._told, self._is_known)
        self._down = self._phases(plan.down, False)
        self._wanted_at = self._reads(self._wanted, problem.desired.offsets[:-1])
        self._results = in_parts(self._wanted_at.turned())
        places = [plan.places[own] for own in self._wanted]
        self._is_as_it_lies = places == problem.desired.offsets[:-1].tolist() and len(set(places)) == len(places)

    def _lay_scale(self, told: dict[Axes, Float], exact: Collection[Axes], most_bytes: float) -> None:
        """What components are multiplied by, and their variances, from what tables say of each."""
        plan = self._plan
        self._mixing: GroupMixing | None = None
        density = np.array([told[table][0] if table in told else 0.0 for table in plan.tables])
        self._scale = np.divide(1.0, density, out=np.zeros_like(density), where=density > 0)
        self._variances = np.where(self._is_known, 0.0, self._scale)
        if plan.axes.has_groups:
            self._mixing = GroupMixing(plan, told, exact, self._wanted, most_bytes)
            for mask, variance in zip(plan.masks, self._variances, strict=True):
                self._mixing.variances.setdefault((mask, ()), np.array([variance]))
            several = {mask for mask, table in zip(plan.masks, plan.tables, strict=True) if plan.groups(table)}
            self._scale[[mask in several for mask in plan.masks]] = 1.0

    def _reads(self, tables: Sequence[Axes], starts: Integers) -> StepList:
        """What reads tables of a layout, each with the number of the table that it is, or is a margin of."""
        plan = self._plan
        return StepList.of(
            [
                (READ, plan.places[own], start, plan.size_of(own), 1, 1, -1, plan.source_of(own), 0, 1)
                for own, start in zip(tables, starts.tolist(), strict=True)
            ]
        )

    def _upwards(self, reads: StepList, is_known: Flags) -> list[Phase]:
        """What tables that are read say of all; to those that are known nothing comes from others.

        Every table is in units of its scale from where it is read on, or in its own where that is 0.
        """
        plan, units = self._plan, np.where(self._scale == 0, 1.0, self._scale)
        reads = replace(reads, factors=reads.factors * units[reads.table])
        is_margin = reads.steps[:, 1] != plan.offsets[reads.table]
        kind, fine, coarse = plan.up.steps[:, [0, TABLE, TARGET]].T
        shares = units[coarse] / units[fine] * (is_known[fine] | ~is_known[coarse])
        moves = replace(plan.up, factors=np.where((kind == MOVE) | (kind == LAND), shares, 1.0))
        whole = reads.at(~is_margin).followed_by(moves)
        found = self._phases(whole.at(np.argsort(whole.table, kind="stable")), True)
        if not is_margin.any():
            return found
        return [[reads.at(is_margin).followed_by(StepList(plan.shares, np.ones(len(plan.shares))))], *found]

    def _phases(self, steps: StepList, goes_up: bool) -> list[Phase]:
        found, room = phases(self._plan, steps, goes_up)
        self._room = max(self._room, room)
        return found

    @cached_property
    def _back(self) -> tuple[list[Phase], list[tuple[list[Phase], Phase]]]:
        """Going up from weights of what is wanted, and down to what is known exactly, and then to the rest."""
        plan, writes = self._plan, self._told.turned()
        up = self._upwards(self._wanted_at, np.zeros_like(self._is_known))
        kinds = [own for own in (self._is_known, ~self._is_known) if own.any()]
        return up, [
            (self._phases(plan.down.at(own[plan.down.table]), False), in_parts(writes.at(own[writes.table])))
            for own in kinds
        ]

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K); the memory of all tables where the desired ones lie as in the layout."""
        with self._workers(Y) as workers:
            cells = self._estimate(Y, workers)
            if self._is_as_it_lies and len(cells) <= 2 * self._desired.size:
                return cells[: self._desired.size]
            X = np.zeros((self._desired.size, cells.shape[1]))
            self._go_up([self._results], X, cells, workers)
            return X

    def _workers(self, Y: Float) -> Workers:
        return Workers(8.0 * self._plan.cells * Y.shape[1])

    def _estimate(self, Y: Float, workers: Workers) -> Float:
        """All tables, (rooms, K)."""
        cells = self._components(self._up, Y, workers, False)
        self._go_down(self._down, cells, workers)
        go_down.fastest()(cells, self._plan.sums, self._plan.lists)
        return cells

    def _components(self, up: list[Phase], values: Float, workers: Workers, transpose: bool) -> Float:
        """What is known of every component, (rooms, K)."""
        cells = np.zeros((self._plan.cells + self._room, values.shape[1]))
        self._go_up(up, cells, np.ascontiguousarray(values), workers)
        if self._mixing is not None:
            mix_lines.fastest()(cells, *self._mixing.places, self._mixing.matrices, transpose)
        return cells

    def _go_up(self, up: list[Phase], cells: Float, values: Float, workers: Workers) -> None:
        def work(part: StepList) -> None:
            if part.beside is not None:
                cells[part.beside] = 0.0
            go_up.fastest()(cells, part.steps, self._plan.lists, part.factors, values)

        for phase in up:
            workers.for_each(work, phase)

    def _go_down(self, down: list[Phase], cells: Float, workers: Workers) -> None:
        """All tables, from their components, in place."""
        for phase in down:
            workers.for_each(lambda part: go_down.fastest()(cells, part.steps, self._plan.lists), phase)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        (up, downs), found = self._back, np.zeros((self._observed.size, V.shape[1]))
        with self._workers(V) as workers:
            cells = self._components(up, V, workers, True)
            for down, writes in downs:
                self._go_down(down, cells, workers)
                self._go_up([writes], found, cells, workers)
                for own in np.flatnonzero(self._is_known).tolist() if len(downs) > 1 else []:
                    cells[self._plan.offsets[own] :][: self._plan.sizes[own]] = 0.0  # nothing of it is for noisy ones
        return found

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        with self._workers(Y) as workers:
            return self._plan.disagreement(self._estimate(Y, workers))

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        plan, sizes = self._plan, self._desired.sizes
        if self._mixing is not None:
            return np.concatenate([self._mixing.variances_of(own) for own in self._wanted])
        scale = dict(zip(plan.masks, (self._variances * plan.sizes).tolist(), strict=True))
        values = np.array([scale[mask] for mask in plan.lattice.members])
        sums = plan.lattice.sums_of_contrasts(values, [plan.mask_of(table) for table in self._wanted])
        return np.repeat(sums / sizes.astype(float) ** 2, sizes)
