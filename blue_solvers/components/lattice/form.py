"""The exact estimate of tables without geography by two sweeps over them and their intersections.

Going up, what a table says about coarser ones leaves it for them: what stays is its component, with the information
about it from all tables. Each is divided by its density, and going down every table gets what the coarser ones say of
its sums. Down is the transpose of up, and so the transpose of the estimate is the same two sweeps.

Bytes that must move: every observed cell in, every desired cell out. A table is read just before it is taken apart,
part by part while it is in cache. So what does not stay in cache is moved three times: in, once more going down, and
out; and tables of more than a megabyte are read once more going up, and written once more going down, for what their
first axis is summed out of.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from blue_solvers.components.grouping import Axes, axes_in_use
from blue_solvers.components.lattice.groups import GroupMixing, mix_lines
from blue_solvers.components.lattice.plan import LARGE, SweepPlan, information
from blue_solvers.components.lattice.steps import KEEPS_FIRST, TABLE, TARGET, StepList, as_rows
from blue_solvers.components.lattice.sweeps import ADD, LAND, MOVE, READ, WRITE, go_down, go_up, scale_tables
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.threads import WORTH_BYTES, Workers
from constraint_builders.arrays import Flags, Float, Integers, not_read_only

CELL_BYTES = 40  # in the estimate, its parts and its transpose, at most, for each column
PARTS = 4
SLICE = 1 << 15  # cells of a part of a large table
MOST_BESIDE = 0.1  # of all cells: beyond, what parts add beside costs as much as threads save

Phase = list[StepList]


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
        axes = axes_in_use(problem.schema, problem.tables)
        tables = [axes.of(table) for table in problem.observed_tables]
        is_same = problem.desired_tables is problem.observed_tables
        self._wanted = tables if is_same else [axes.of(table) for table in problem.desired_tables]
        variances = np.concatenate(problem.geounit_variances)
        told = np.flatnonzero(variances < np.inf)
        tables, variances = [tables[i] for i in told.tolist()], variances[told]
        self._plan = plan = SweepPlan(axes, tables, self._wanted, most_bytes / CELL_BYTES)
        is_exact = variances == 0
        precisions = 1 / np.where(is_exact, 1.0, variances)
        (exact, exactly), (noisy, noisily) = (
            information(plan, [tables[i] for i in np.flatnonzero(own).tolist()], precisions[own])
            for own in (is_exact, ~is_exact)
        )
        self._is_known = exact > 0
        density = np.where(self._is_known, exact, noisy)
        self._lay_scale(density, noisily | exactly, exactly, most_bytes - CELL_BYTES * plan.cells)
        reads = plan.reads(tables, problem.observed.offsets[told])
        self._told = replace(reads, factors=precisions * (is_exact | ~self._is_known[reads.table]))
        self._up = self._upwards(self._told, self._is_known)
        self._down = self._phases(plan.down, False)
        is_same = is_same and len(tables) == len(self._wanted)
        self._wanted_at = reads if is_same else plan.reads(self._wanted, problem.desired.offsets[:-1])
        self._results = in_parts(self._wanted_at.turned())
        self._is_as_it_lies = np.array_equal(self._wanted_at.steps[:, 1], problem.desired.offsets[:-1])
        self._is_back = not is_exact.any() and np.array_equal(reads.steps[:, 1], problem.observed.offsets[:-1])

    def _lay_scale(self, density: Float, told: dict[Axes, Float], exact: Collection[Axes], most_bytes: float) -> None:
        """What components are multiplied by, and their variances, (tables,), from what tables say of cells of each."""
        plan, self.has_exact_zeros = self._plan, not self._plan.axes.has_groups
        self._scale = np.divide(1.0, density, out=np.zeros_like(density), where=density > 0)
        self._variances = np.where(self._is_known, 0.0, self._scale)
        if plan.axes.has_groups:
            self._mixing = GroupMixing(plan, told, exact, most_bytes)
            for mask, variance in zip(plan.masks, self._variances, strict=True):
                if mask not in self._mixing.roots:
                    self._mixing.variances[mask, ()] = np.array([variance])
            several = {mask for mask, table in zip(plan.masks, plan.tables, strict=True) if plan.groups(table)}
            self._scale[[mask in several for mask in plan.masks]] = 1.0

    def _upwards(self, reads: StepList, is_known: Flags) -> list[Phase]:
        """What tables that are read say of all; to those that are known, (tables,), nothing comes from others.

        Every table is in units of its scale from where it is read on, or in its own where that is 0. What others add to
        is written first.
        """
        plan, units = self._plan, np.where(self._scale == 0, 1.0, self._scale)
        reads = replace(reads, factors=reads.factors * units[reads.table])
        kind, fine, coarse = plan.up.steps[:, [0, TABLE, TARGET]].T
        shares = units[coarse] / units[fine] * (is_known[fine] | ~is_known[coarse])
        shares[plan.up.steps[:, 2] >= plan.copied.start] = 0.0  # of copies only what is theirs alone is left
        moves = replace(plan.up, factors=np.where((kind == MOVE) | (kind == LAND), shares, 1.0))
        _, once = np.unique(reads.steps[:, 1], return_index=True)
        writes, later = reads.at(once), reads.at(np.delete(np.arange(len(reads.table)), once))
        writes.steps[:, 0] = WRITE
        is_first = np.isin(writes.table, np.concatenate([coarse[coarse != fine], later.table]))
        if (reads.steps[:, 1] != plan.offsets[reads.table]).any():  # margins, all of which are read then
            writes, shares = self._shared_out(writes, later)
            later, is_first = later.followed_by(shares), np.ones_like(writes.table, dtype=bool)
        empty = ~np.isin(plan.offsets, writes.steps[:, 1])
        beside = slice(plan.offsets[empty].min(initial=plan.cells), (plan.offsets + plan.sizes)[empty].max(initial=0))
        first = replace(writes.at(is_first), beside=beside).followed_by(later)
        moves = writes.at(~is_first).followed_by(moves)
        moves = moves.at(np.argsort(moves.table, kind="stable"))  # a table is read just before it is taken apart
        found = self._phases(moves, True)
        return [[first], *found] if sum(map(len, found)) > 1 else [[first.followed_by(moves)]]

    def _shared_out(self, writes: StepList, later: StepList) -> tuple[StepList, StepList]:
        """What of some reads is still written, and what tables get of margins, straight from values if that is all."""
        shares, places = StepList.of(self._plan.shares.copy()), writes.steps[:, 1]
        alone = ~np.isin(places, np.concatenate([self._plan.offsets, shares.steps[:, 1], later.steps[:, 1]]))
        order = np.argsort(shares.steps[:, 2])
        rows = order[np.searchsorted(shares.steps[order, 2], places[alone])]
        shares.steps[rows, 0] = np.where(shares.steps[rows, 0] == ADD, READ, WRITE)
        shares.steps[rows, 2], shares.factors[rows] = writes.steps[alone, 2], writes.factors[alone]
        return writes.at(~alone), shares

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
        with Workers(8.0 * self._plan.moved * Y.shape[1]) as workers:
            return self._given_out(self._estimate(Y, workers), workers)

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest disagreement between a table and the sums of a finer one."""
        with Workers(8.0 * self._plan.moved * Y.shape[1]) as workers:
            cells = self._estimate(Y, workers)
            return self._given_out(cells, workers), self._plan.disagreement(cells)

    def _given_out(self, cells: Float, workers: Workers) -> Float:
        """The desired tables of all, (m, K)."""
        if self._is_as_it_lies and len(cells) <= 2 * self._desired.size:
            return cells[: self._desired.size]
        X = np.empty((self._desired.size, cells.shape[1]))
        self._go_up([self._results], X, cells, workers)
        return X

    def _estimate(self, Y: Float, workers: Workers) -> Float:
        """All tables, (rooms, K)."""
        cells = self._components(self._up, Y, workers, False)
        self._go_down(self._down, cells, workers)
        go_down(cells, self._plan.sums, self._plan.lists, cells)
        return cells

    def _components(self, up: list[Phase], values: Float, workers: Workers, transpose: bool) -> Float:
        """What is known of every component, (rooms, K)."""
        cells = np.empty((self._plan.cells + self._room, values.shape[1]))
        self._go_up(up, cells, np.ascontiguousarray(values), workers)
        if self._plan.axes.has_groups:
            mix_lines(cells, 1, self._mixing.lines, transpose)
        cells[self._plan.copied] *= self._plan.cells_of_copies
        return cells

    def _go_up(self, up: list[Phase], cells: Float, values: Float, workers: Workers) -> None:
        """Phases going up, in place in cells, (rows, K), from values, (other rows, K)."""

        def work(part: StepList) -> None:
            cells[part.beside] = 0.0
            go_up(cells, part.steps, self._plan.lists, part.factors, not_read_only(values))

        workers.in_phases(work, up)

    def _go_down(self, down: list[Phase], cells: Float, workers: Workers) -> None:
        """All tables, (S, K), from their components, in place."""
        workers.in_phases(lambda part: go_down(cells, part.steps, self._plan.lists, cells), down)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        (up, downs), size = self._back, self._observed.size
        with Workers(8.0 * self._plan.moved * V.shape[1]) as workers:
            cells = self._components(up, V, workers, True)
            if self._is_back and len(cells) <= 2 * size:
                self._go_down(downs[0][0], cells, workers)
                scale_tables(cells, self._observed.sizes, self._told.factors)
                return cells[:size]
            is_whole = len(self._told.table) == self._observed.sizes.size  # then all of it is written
            found = (np.empty if is_whole else np.zeros)((size, V.shape[1]))
            for down, writes in downs:
                self._go_down(down, cells, workers)
                self._go_up([writes], found, cells, workers)
                for own in np.flatnonzero(self._is_known).tolist() if len(downs) > 1 else []:
                    cells[self._plan.offsets[own] :][: self._plan.sizes[own]] = 0.0  # nothing of it is for noisy ones
        return found

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        plan, sizes = self._plan, self._desired.sizes
        if plan.axes.has_groups:
            return np.concatenate([self._mixing.variances_of(own) for own in self._wanted])
        values, lattice, numbers = self._variances * plan.sizes, plan.lattice, self._wanted_at.table
        sums = lattice.sums_of_contrasts(values)[numbers]
        is_margin = self._wanted_at.steps[:, 1] != plan.offsets[numbers]
        for place in np.flatnonzero(is_margin | ~lattice.is_regular[numbers]).tolist():
            sums[place] = lattice.sum_of_contrasts(values, plan.mask_of(self._wanted[place]))
        return np.repeat(sums / sizes.astype(float) ** 2, sizes)


def phases(plan: SweepPlan, whole: StepList, goes_up: bool) -> tuple[list[Phase], int]:
    """The rows of a list in phases, those of as many variables together, and the cells needed after all tables."""
    if not (plan.sizes >= LARGE).any() and 8 * plan.cells < WORTH_BYTES:
        return [[whole]], plan.most_room
    found: list[Phase] = []
    rooms = plan.most_room
    variables = np.array([mask.bit_count() for mask in plan.masks])[whole.table]
    for same in _runs_of(variables, whole):
        sizes, cells = plan.sizes[same.table], plan.sizes[np.unique(same.table)].sum()
        for least in (max(LARGE, cells / PARTS), LARGE):  # in slices too where parts of whole tables add much beside
            large, small = (same.at(np.flatnonzero(own)) for own in (sizes >= least, sizes < least))
            own, room = _by_table(plan, small, goes_up) if len(small.table) else ([], rooms)
            if sizes.max() < LARGE or not own or len(own[0]) > 1:
                break
        found += [_in_slices(plan, run) for run in _runs_of(2 * large.table + large.steps[:, KEEPS_FIRST], large)] + own
        rooms = max(rooms, room)
    return found, rooms


def _runs_of(kind: Integers, steps: StepList) -> list[StepList]:
    """Rows that follow one another and are of one kind, of which `kind` is a number, (rows,)."""
    changes = np.flatnonzero(np.diff(kind)) + 1
    return [steps.at(slice(*own)) for own in pairwise([0, *changes.tolist(), kind.size]) if kind.size]


def _by_table(plan: SweepPlan, own: StepList, goes_up: bool) -> tuple[list[Phase], int]:
    """Some tables a part, and the cells needed; all in one where that is too little work or too much beside."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(own.table)) + 1, [len(own.table)]])
    sizes = plan.sizes[own.table[starts[:-1]]] * np.diff(starts)
    cuts = starts[_even_cuts(sizes)]
    if len(cuts) == 2 or 8 * sizes.sum() < WORTH_BYTES:
        return [[own]], plan.most_room
    place, parts, added = plan.cells + PARTS * plan.most_room, [], []
    for number, (first, last) in enumerate(pairwise(cuts.tolist())):
        part = own.at(slice(first, last))
        steps, beside = part.steps.copy(), part.beside
        is_room = (steps[:, 1:3] >= plan.cells) & (steps[:, :1] < READ)
        steps[:, 1:3] += np.where(is_room, number * plan.most_room, 0)
        if goes_up and number:
            lands = (steps[:, 0] == MOVE) | (steps[:, 0] == LAND)
            targets, target_of = np.unique(steps[lands, TARGET], return_inverse=True)
            moved = place + np.cumsum([0, *plan.sizes[targets].tolist()])
            steps[lands, 2] = moved[target_of]
            added += [
                (LAND, start, plan.offsets[own], plan.sizes[own], 1, 1, -1, own, own, 1)
                for start, own in zip(moved.tolist(), targets.tolist(), strict=False)
            ]
            beside, place = slice(place, int(moved[-1])), int(moved[-1])
        parts.append(replace(part, steps=steps, beside=beside))
    if place - plan.cells - PARTS * plan.most_room > MOST_BESIDE * plan.cells:
        return [[own]], plan.most_room
    return [parts, *([[StepList.of(as_rows(added))]] if added else [])], place - plan.cells


def _even_cuts(sizes: Integers) -> list[int]:
    """Where to cut a list, of sizes (k,), in parts that are about as large, those that are worth a thread."""
    parts = PARTS if 8 * sizes.sum() >= WORTH_BYTES else 1
    ends = np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, parts) / parts) + 1
    return [0, *sorted({end for end in ends.tolist() if end < sizes.size}), sizes.size]


def in_parts(reads: StepList) -> Phase:
    """Reads of tables that do not overlap."""
    return [reads.at(slice(*own)) for own in pairwise(_even_cuts(reads.steps[:, 3] * reads.steps[:, 5]))]


def _in_slices(plan: SweepPlan, own: StepList) -> Phase:
    """Rows of one large table, what keeps its first axis in slices along it."""
    table = int(own.table[0])
    if not own.steps[0, KEEPS_FIRST] or plan.sizes[table] == 1:
        return [own]
    length, size = plan.axes.sizes[plan.tables[table][0]], int(plan.sizes[table])
    count = min(length, -(-size // SLICE))
    ends = (np.arange(count + 1) * length // count)[:, None, None]
    first, taken, listed = ends[:-1], ends[1:] - ends[:-1], own.steps[:, 6]
    each, lengths = own.steps[:, 3] // length, own.steps[:, [4, 4]]
    lengths[:, 1] = np.where(listed < 0, 1, plan.lists[listed]) if plan.lists.size else 1
    moves = first * (each * own.steps[:, 5])[:, None] * lengths
    inside = own.steps[:, 1:3] - plan.cells
    in_room = plan.cells + first * (plan.most_room // length) + inside // length * taken  # a slice has its own
    steps = np.repeat(own.steps[None], len(taken), axis=0)
    steps[:, :, 1:3] = np.where((inside >= 0) & (own.steps[:, :1] < READ), in_room, own.steps[:, 1:3] + moves)
    steps[:, :, 3] = each * taken[:, :, 0]
    return [StepList(part, own.factors, own.beside) for part in steps]
