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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.groups import GroupMixing, densities_of_groups
from blue_solvers.components.lattice.lines import mix_lines
from blue_solvers.components.lattice.operations import CLEAR, LAND, MOVE, READ
from blue_solvers.components.lattice.plan import Row, StepList, SweepPlan, densities
from blue_solvers.components.lattice.schedule import Phase, in_parts, phases
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
        self._observed, self._desired = problem.observed, problem.desired
        axes = SchemaAxes(problem.schema, problem.tables)
        tables = [axes.of(table) for table in problem.observed_tables]
        self._wanted = [axes.of(table) for table in problem.desired_tables]
        variances = np.concatenate(problem.geounit_variances)
        told = [table for table, variance in zip(tables, variances.tolist(), strict=True) if variance < np.inf]
        self._plan = plan = SweepPlan(axes, told, self._wanted, most_bytes / CELL_BYTES)
        noisy, exact = np.isfinite(variances) & (variances > 0), variances == 0
        precisions = np.divide(1.0, variances, out=np.ones_like(variances), where=noisy)
        starts = problem.observed.offsets[:-1]
        kinds = [Placed.of(tables, starts, precisions, own) for own in (noisy, exact)]
        scales, is_known = self._lay_scales(kinds, most_bytes - CELL_BYTES * plan.cells)
        wanted = Placed(self._wanted, problem.desired.offsets[:-1], np.ones(len(self._wanted)))
        self._up_loop = go_up.fastest() if compiled else go_up.reference
        self._down_loop = go_down.fastest() if compiled else go_down.reference
        self._mix_loop = mix_lines.fastest() if compiled else mix_lines.reference
        self._sweeps = [Sweep(plan, kinds[0], wanted, scales[0], np.ones_like(is_known))]
        if exact.any():
            self._sweeps.append(Sweep(plan, kinds[1], wanted, scales[1], is_known))
        self._results = in_parts(wanted.rows(plan).turned())
        places = [plan.places[own] for own in self._wanted]
        self._is_as_it_lies = places == wanted.starts.tolist() and len(set(places)) == len(places)

    def _lay_scales(self, kinds: list[Placed], most_bytes: float) -> tuple[list[Float], Flags]:
        """What components of noisy and of exact tables are multiplied by, and which tables something exact leads to."""
        plan = self._plan
        self._mixing: GroupMixing | None = None
        if not plan.axes.group_sizes:
            found = [densities(plan, own.tables, own.weights) for own in kinds]
        else:
            by_table = [densities_of_groups(plan, own.tables, own.weights) for own in kinds]
            self._mixing = GroupMixing(plan, by_table[0], by_table[1], self._wanted, most_bytes)
            found = [np.array([own[table][0] if table in own else 0.0 for table in plan.tables]) for own in by_table]
        scales = [np.divide(1.0, own, out=np.zeros_like(own), where=own > 0) for own in found]
        scales[0][found[1] > 0] = 0.0
        self._scale = scales[0].copy()
        if self._mixing is not None:
            several = {mask for mask, table in zip(plan.masks, plan.tables, strict=True) if plan.groups(table)}
            for mask, scale in zip(plan.masks, self._scale, strict=True):
                self._mixing.variances.setdefault((mask, ()), np.array([scale]))
            for own in scales:
                own[[mask in several for mask in plan.masks]] = 1.0
        return scales, found[1] > 0

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        with self._workers(Y) as workers:
            return self._wanted_of(self._estimate(Y, workers), workers)

    def matrices(self) -> tuple[Float, Float]:
        """What each observed cell by itself makes of all tables, (rooms, n), and of the desired ones, (m, n)."""
        one_each = np.eye(self._observed.size)
        with self._workers(one_each) as workers:
            tables = self._estimate(one_each, workers)
            return tables, self._wanted_of(tables, workers)

    def _wanted_of(self, cells: Float, workers: Workers) -> Float:
        """The desired tables, (m, K), of all; the same memory where they lie as in the layout."""
        if self._is_as_it_lies and len(cells) <= 2 * self._desired.size:
            return cells[: self._desired.size]
        X = np.zeros((self._desired.size, cells.shape[1]))
        self._go_up([self._results], X, cells, workers)
        return X

    def _workers(self, Y: Float) -> Workers:
        return Workers(8.0 * self._plan.cells * Y.shape[1])

    def _estimate(self, Y: Float, workers: Workers) -> Float:
        """All tables, (rooms, K)."""
        plan, values = self._plan, np.ascontiguousarray(Y)
        cells, *others = [self._known_of(own, own.up, values, workers, False) for own in self._sweeps]
        for known in others:
            cells[: plan.cells] += known[: plan.cells]
        self._go_down(self._sweeps[0], cells, workers)
        self._down_loop(cells, plan.sums, plan.lists)
        return cells

    def _known_of(self, sweep: Sweep, up: list[Phase], values: Float, workers: Workers, transpose: bool) -> Float:
        """What is known of every component, (rooms, K)."""
        cells = np.zeros((self._plan.cells + sweep.room, values.shape[1]))
        self._go_up(up, cells, values, workers)
        if self._mixing is not None:
            self._mixing.apply(self._mix_loop, cells, sweep is not self._sweeps[0], transpose)
        return cells

    def _go_up(self, up: list[Phase], cells: Float, values: Float, workers: Workers) -> None:
        def work(part: StepList) -> None:
            if part.beside is not None:
                cells[part.beside] = 0.0
            self._up_loop(cells, part.steps, self._plan.lists, part.factors, values)

        for phase in up:
            workers.for_each(work, phase)

    def _go_down(self, sweep: Sweep, cells: Float, workers: Workers) -> None:
        """All tables, from their components, in place."""
        for phase in sweep.down:
            workers.for_each(lambda part: self._down_loop(cells, part.steps, self._plan.lists), phase)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        weights, found = np.ascontiguousarray(V), np.zeros((self._observed.size, V.shape[1]))
        with self._workers(V) as workers:
            for sweep in self._sweeps:
                cells = self._known_of(sweep, sweep.back, weights, workers, True)
                self._go_down(sweep, cells, workers)
                self._go_up([sweep.results], found, cells, workers)
        return found

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        with self._workers(Y) as workers:
            return self.disagreement(self._estimate(Y, workers))

    def disagreement(self, cells: Float) -> float:
        """The same of all tables, (rooms, K)."""
        return self._plan.disagreement(cells)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        plan, sizes = self._plan, self._desired.sizes
        if self._mixing is not None:
            return np.concatenate([self._mixing.variances_of(own) for own in self._wanted])
        scale = dict(zip(plan.masks, (self._scale * plan.sizes).tolist(), strict=True))
        values = np.array([scale[mask] for mask in plan.lattice.members])
        sums = plan.lattice.sums_of_contrasts(values, [plan.mask_of(table) for table in self._wanted])
        return np.repeat(sums / sizes.astype(float) ** 2, sizes)


@dataclass(frozen=True)
class Placed:
    """Tables of a layout.

    Attributes
    ----------
    tables : list of tuple of int
    starts : ndarray of int, (tables,)
        Where they are in it.
    weights : ndarray, (tables,)
        Of their values.
    """

    tables: list[Axes]
    starts: Integers
    weights: Float

    @classmethod
    def of(cls, tables: Sequence[Axes], starts: Integers, weights: Float, chosen: Flags) -> Placed:
        """Some of several tables."""
        rows = np.flatnonzero(chosen)
        return cls([tables[i] for i in rows.tolist()], starts[rows], weights[rows])

    def rows(self, plan: SweepPlan) -> StepList:
        """What reads them, each with the number of the table that it is, or is a margin of."""
        rows: list[Row] = [
            (READ, plan.places[own], start, plan.size_of(own), 1, 1, -1)
            for own, start in zip(self.tables, self.starts.tolist(), strict=True)
        ]
        return StepList.of(rows, np.array([plan.source_of(own) for own in self.tables], dtype=np.intp), self.weights)


class Sweep:
    """What values in tables of a layout say of some tables, all those that are coarser among them, and back.

    Parameters
    ----------
    plan : SweepPlan
    told, wanted : Placed
        Tables that count, and tables whose weights are taken back to them.
    scale : ndarray, (tables of the plan,)
        What components are multiplied by.
    members : ndarray of bool, (tables of the plan,)
        Those that something is said of.

    Attributes
    ----------
    up, down : list of Phase
    results : Phase
        What writes weights of `told` to their layout.
    room : int
        Cells needed after all tables.
    """

    def __init__(self, plan: SweepPlan, told: Placed, wanted: Placed, scale: Float, members: Flags) -> None:
        self._plan, self._wanted, self._scale = plan, wanted, scale
        self.up, room = self._upwards(told, plan.up.of_tables(members))
        self.down, down_room = phases(plan, plan.down.of_tables(members), goes_up=False)
        self.room = max(room, down_room)
        self.results = in_parts(told.rows(plan).turned())

    @cached_property
    def back(self) -> list[Phase]:
        """Going up from weights of what is wanted."""
        found, room = self._upwards(self._wanted, self._plan.up)
        self.room = max(self.room, room)
        return found

    def _upwards(self, placed: Placed, moves: StepList) -> tuple[list[Phase], int]:
        """Every table is in units of its scale from where it is read on, or in its own where that is 0 in the end."""
        plan, reads, lost = self._plan, placed.rows(self._plan), np.flatnonzero(self._scale == 0)
        units = np.where(self._scale == 0, 1.0, self._scale)
        reads = replace(reads, factors=reads.factors * units[reads.table])
        comes = (moves.steps[:, 0] == MOVE) | (moves.steps[:, 0] == LAND)
        coarser = [plan.number_at[own] for own in moves.steps[comes, 2].tolist()]
        factors = np.ones(len(comes))
        factors[comes] = units[coarser] / units[moves.table[comes]]
        ends = zip(plan.offsets[lost].tolist(), plan.sizes[lost].tolist(), strict=True)
        cleared = StepList.of([(CLEAR, own, own, size, 1, 1, -1) for own, size in ends], lost)
        is_margin = np.array([own in plan.margins for own in placed.tables], dtype=np.bool_)
        whole = reads.at(np.flatnonzero(~is_margin)).followed_by(replace(moves, factors=factors)).followed_by(cleared)
        found, room = phases(plan, whole.at(np.argsort(whole.table, kind="stable")), goes_up=True)
        first = reads.at(np.flatnonzero(is_margin)).followed_by(StepList.of(plan.shares.tolist()))
        return [[first], *found] if is_margin.any() else found, room
