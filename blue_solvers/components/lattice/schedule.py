"""Operations of the sweeps in phases: within one, parts that threads may take, none of which needs another.

Large tables are cut along their first axis: what is done along all others of it keeps to one part, of the table and of
all coarser ones with that axis, and stays in cache. Of many small tables of as many variables some make a part: going
up, all parts but the first add beside the coarser tables, and what is there is added when all are done, in the order of
the parts. How operations are cut does not depend on the number of threads, so that neither does any sum.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from blue_solvers.components.lattice.plan import KEEPS_FIRST, TARGET, StepList, SweepPlan
from blue_solvers.components.lattice.sweeps import LAND, MOVE, READ
from blue_solvers.threads import WORTH_BYTES
from constraint_builders.arrays import Flags, Integers

PARTS = 4
SLICE = 1 << 15  # cells of a part of a large table
LARGE = 1 << 17  # cells of a table that does not stay in cache
MOST_BESIDE = 0.1  # of all cells: beyond, what parts add beside costs as much as threads save

Phase = list[StepList]


def phases(plan: SweepPlan, whole: StepList, goes_up: bool) -> tuple[list[Phase], int]:
    """The rows of a list in phases, those of as many variables together, and the cells needed after all tables."""
    if not (plan.sizes >= LARGE).any() and 8 * plan.cells < WORTH_BYTES:
        return [[whole]], plan.most_room
    found: list[Phase] = []
    rooms = plan.most_room
    variables = np.array([mask.bit_count() for mask in plan.masks])[whole.table]
    for same in _runs_of(variables, whole):
        is_large = plan.sizes[same.table] >= LARGE
        for large in _runs_of(2 * same.table + same.steps[:, KEEPS_FIRST], same, is_large):
            found.append(_in_slices(plan, large))
        small = same.at(np.flatnonzero(~is_large))
        if len(small.table):
            own, room = _by_table(plan, small, goes_up)
            found, rooms = found + own, max(rooms, room)
    return found, rooms


def _runs_of(kind: Integers, steps: StepList, chosen: Flags | None = None) -> list[StepList]:
    """Rows that follow one another and are of one kind, of all or of those chosen."""
    rows = np.arange(len(kind)) if chosen is None else np.flatnonzero(chosen)
    changes = np.flatnonzero(np.diff(kind[rows])) + 1
    return [steps.at(own) for own in np.split(rows, changes) if own.size]


def _by_table(plan: SweepPlan, own: StepList, goes_up: bool) -> tuple[list[Phase], int]:
    """Some tables a part, and the cells needed; all in one where that is too little work or too much beside."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(own.table)) + 1, [len(own.table)]])
    sizes = plan.sizes[own.table[starts[:-1]]] * np.diff(starts)
    cuts = starts[_even_cuts(sizes)]
    if len(cuts) == 2:
        return [[own]], plan.most_room
    place, parts, added = plan.cells + PARTS * plan.most_room, [], []
    for number, (first, last) in enumerate(pairwise(cuts.tolist())):
        part = own.at(slice(first, last))
        steps, beside = part.steps.copy(), None
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
    return [parts, *([[StepList.of(added)]] if added else [])], place - plan.cells


def _even_cuts(sizes: Integers) -> list[int]:
    """Where to cut a list in parts that are about as large, those that are worth a thread."""
    ends = np.unique(np.searchsorted(np.cumsum(sizes), sizes.sum() * np.arange(1, PARTS) / PARTS) + 1)
    inner = ends[ends < sizes.size].tolist() if 8 * sizes.sum() >= WORTH_BYTES else []
    return [0, *inner, sizes.size]


def in_parts(reads: StepList) -> Phase:
    """Reads of tables that do not overlap."""
    return [reads.at(slice(*own)) for own in pairwise(_even_cuts(reads.steps[:, 3]))]


def _in_slices(plan: SweepPlan, own: StepList) -> Phase:
    """Rows of one large table, what keeps its first axis in slices along it."""
    table = int(own.table[0])
    if not own.steps[0, KEEPS_FIRST] or plan.sizes[table] == 1:
        return [own]
    length, size = plan.axes.sizes[plan.tables[table][0]], int(plan.sizes[table])
    count = min(length, -(-size // SLICE))
    ends = np.unique(np.arange(count + 1) * length // count).tolist()
    return [_slice(plan, own, length, *pair) for pair in pairwise(ends)]


def _slice(plan: SweepPlan, part: StepList, length: int, first: int, stop: int) -> StepList:
    """What is done of some levels of the first axis, with room of its own."""
    steps, listed = part.steps.copy(), part.steps[:, 6]
    each = steps[:, 3] // length
    counts = np.where(listed < 0, 1, plan.lists[listed] if plan.lists.size else 1)
    moves = first * (each * steps[:, 5])[:, None] * np.stack([steps[:, 4], counts], axis=1)
    inside = steps[:, 1:3] - plan.cells
    in_room = plan.cells + first * (plan.most_room // length) + inside // length * (stop - first)
    steps[:, 1:3] = np.where((inside >= 0) & (steps[:, :1] < READ), in_room, steps[:, 1:3] + moves)
    steps[:, 3] = each * (stop - first)
    return replace(part, steps=steps)
