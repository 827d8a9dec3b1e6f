"""Operations of the sweeps in phases: within one, parts that threads may take, none of which needs another.

Large tables are cut along their first axis: what is done along all others of it keeps to one part, of the table and of
all coarser ones with that axis, and stays in cache. Of many small tables of as many variables some make a part: going
up, all parts but the first add beside the coarser tables, and what is there is added when all are done, in the order of
the parts. How operations are cut does not depend on the number of threads, so that neither does any sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from blue_solvers.components.lattice.operations import COPY, LAND, MOVE
from blue_solvers.threads import WORTH_BYTES, Workers
from constraint_builders.arrays import Flags, Float, Index, Integers

PARTS = 4
SLICE = 1 << 15  # cells of a part of a large table
LARGE = 1 << 17  # cells of a table that does not stay in cache
MOST_BESIDE = 0.1  # of all cells: beyond, what parts add beside costs as much as threads save


@dataclass(frozen=True)
class StepList:
    """Rows of a list of operations, the table whose work each is, and whether it is the last on it.

    Attributes
    ----------
    steps : ndarray of int, (rows, 7)
    table : ndarray of int, (rows,)
    is_last : ndarray of bool, (rows,)
        Going up.
    keeps_first : ndarray of bool, (rows,)
        Whether it is part of what leads to a table with the same first axis.
    beside : slice or None
        What is cleared before.
    """

    steps: Integers
    table: Index
    is_last: Flags
    keeps_first: Flags
    beside: slice | None = None

    @property
    def is_copy(self) -> Flags:
        """Which rows copy a table, (rows,)."""
        return np.equal(self.steps[:, 0], COPY)

    def of(self, members: Flags) -> StepList:
        """Those of some tables."""
        if members.all():
            return self
        return self.at(np.flatnonzero(members[self.table]))

    def after_copies(self, sources: dict[int, int], sizes: Integers) -> StepList:
        """With what copies some tables from where they lie, each before the first row of its own."""
        tables = np.array(list(sources), dtype=np.int64)
        rows = np.zeros((len(tables), 7), dtype=np.int64)
        first = np.searchsorted(self.table, tables)
        rows[:, 0], rows[:, 1] = COPY, self.steps[first, 1]
        rows[:, 2], rows[:, 3], rows[:, 4:] = list(sources.values()), sizes[tables], [1, 1, -1]
        return StepList(
            np.insert(self.steps, first, rows, axis=0),
            np.insert(self.table, first, tables),
            np.insert(self.is_last, first, False),
            np.insert(self.keeps_first, first, True),
        )

    def at(self, rows: Index | slice) -> StepList:
        """Some rows."""
        return StepList(self.steps[rows], self.table[rows], self.is_last[rows], self.keeps_first[rows], self.beside)


@dataclass(frozen=True)
class Phase:
    """Parts, and runs of cells that are added to others when all are done."""

    parts: list[StepList]
    added: Integers = field(default_factory=lambda: np.zeros((0, 4), dtype=np.int64))


def run(
    phases: Sequence[Phase],
    cells: Float,
    work: Callable[[int, int, StepList], object],
    add: Callable[[Float, Float, Integers, Float], object],
    workers: Workers,
) -> None:
    """Do all operations on cells: `work` takes the numbers of a phase and of a part, and the part."""
    for number, phase in enumerate(phases):

        def do(place: int, number: int = number, phase: Phase = phase) -> None:
            part = phase.parts[place]
            if part.beside is not None:
                cells[part.beside] = 0.0
            work(number, place, part)

        if len(phase.parts) == 1:
            do(0)
        else:
            workers.for_each(do, range(len(phase.parts)))
        if len(phase.added):
            add(cells, cells, phase.added, np.ones(len(phase.added)))


@dataclass(frozen=True)
class Held:
    """Where tables lie that steps go between.

    Attributes
    ----------
    sizes, variables, lengths : ndarray of int, (tables,)
        Their cells, how many variables they keep whole, and the levels of their first axes.
    cells, room : int
        Of all of them; and what one step needs after them.
    target_sizes : dict
        Cells of the table that lies at a place.
    lists : ndarray of int
        As in `operations`.
    """

    sizes: Integers
    variables: Integers
    lengths: Integers
    cells: int
    room: int
    target_sizes: dict[int, int]
    lists: Integers

    def phases(self, whole: StepList, goes_up: bool) -> tuple[list[Phase], int]:
        """The rows of a list in phases, those of as many variables together, and the cells needed after all tables."""
        is_small = not (self.sizes >= LARGE).any() and 8 * self.cells < WORTH_BYTES
        if is_small or not len(whole.table):
            return [Phase([whole])], self.room
        found: list[Phase] = []
        rooms = self.room
        changes = np.flatnonzero(np.diff(self.variables[whole.table])) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(whole.table)]):
            own = whole.at(slice(start, stop))
            phases, needed = self._by_table(own, goes_up)
            if not phases:
                phases, needed = self._in_slices(own), self.room
            found += phases
            rooms = max(rooms, needed)
        return found, rooms

    def _by_table(self, own: StepList, goes_up: bool) -> tuple[list[Phase], int]:
        """Some tables a part; nothing where that is too much beside."""
        starts = np.concatenate([[0], np.flatnonzero(np.diff(own.table)) + 1, [len(own.table)]])
        sizes = self.sizes[own.table[starts[:-1]]] * np.diff(starts)
        if sizes.size < PARTS or 8 * sizes.sum() < WORTH_BYTES or 2 * sizes.max() * PARTS > sizes.sum():
            return [], 0
        ends = np.unique(np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, PARTS) / PARTS) + 1)
        cuts = starts[[0, *ends[ends < sizes.size].tolist(), sizes.size]]
        place, parts, added = self.cells + PARTS * self.room, [], []
        for number, (first, last) in enumerate(pairwise(cuts.tolist())):
            part = own.at(slice(first, last))
            steps, beside = part.steps.copy(), None
            is_room = (steps[:, 1:3] >= self.cells) & (steps[:, :1] != COPY)
            steps[:, 1:3] += np.where(is_room, number * self.room, 0)
            if goes_up and number:
                lands = (steps[:, 0] == MOVE) | (steps[:, 0] == LAND)
                targets, target_of = np.unique(steps[lands, 2], return_inverse=True)
                counts = np.array([self.target_sizes[own] for own in targets.tolist()])
                moved = place + np.cumsum([0, *counts.tolist()])
                steps[lands, 2] = moved[target_of]
                added.append(np.stack([moved[:-1], targets, counts, np.ones_like(counts)], axis=1))
                beside, place = slice(place, int(moved[-1])), int(moved[-1])
            parts.append(replace(part, steps=steps, beside=beside))
        if place - self.cells - PARTS * self.room > MOST_BESIDE * self.cells:
            return [], 0
        runs = np.concatenate(added) if added else np.zeros((0, 4), dtype=np.int64)
        return [Phase(parts, runs.astype(np.int64))], place - self.cells

    def _in_slices(self, own: StepList) -> list[Phase]:
        """One large table after the other, what keeps its first axis in slices along it; small ones together."""
        found: list[Phase] = []
        sizes, lengths = self.sizes[own.table], self.lengths[own.table]
        kind = np.where(sizes < LARGE, -1, 2 * own.table + own.keeps_first)
        changes = np.flatnonzero(np.diff(kind)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(kind)]):
            part, length = own.at(slice(start, stop)), int(lengths[start])
            if sizes[start] < LARGE or not own.keeps_first[start]:
                found.append(Phase([part]))
                continue
            count = min(length, -(-int(sizes[start]) // SLICE))
            ends = np.unique(np.arange(count + 1) * length // count).tolist()
            found.append(Phase([_slice(part, self.lists, length, *pair) for pair in pairwise(ends)]))
        return found


def _slice(part: StepList, lists: Integers, length: int, first: int, stop: int) -> StepList:
    """What is done of some levels of the first axis."""
    steps = part.steps.copy()
    lands = steps[:, 0] == LAND
    steps[:, 3], steps[:, 4] = np.where(lands, steps[:, 4], steps[:, 3]), np.where(lands, 1, steps[:, 4])
    each, listed = steps[:, 3] // length, steps[:, 6]
    counts = np.where(listed < 0, 1, lists[listed] if lists.size else 1)
    steps[:, 1] += first * each * steps[:, 4] * steps[:, 5]
    steps[:, 2] += first * each * counts * steps[:, 5]
    steps[:, 3] = each * (stop - first)
    return replace(part, steps=steps)
