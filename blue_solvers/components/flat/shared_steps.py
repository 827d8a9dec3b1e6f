"""Steps of the sweeps in phases: within one, parts that threads may take, none of which needs another.

Going down, tables that keep one axis, or two, read only tables without one of them. Going up, tables of as many
variables add to the same coarser ones: all parts but the first add beside them, and what is there is added when all are
done, in the order of the parts. Where that is too much beside, tables are cut themselves, along their first axis: what
is done along all others of it keeps to one part, of the table and of all coarser ones with that axis. How steps are cut
does not depend on the number of threads, so that neither does any sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from blue_solvers.components.flat.weighted_runs import copy_weighted
from blue_solvers.threads import WORTH_BYTES, Workers
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.relations.closed_tables import ClosedTables

PARTS = 4
SLICES = 8  # of tables that are cut along their first axis: each part stays in cache
MOST_BESIDE = 0.1  # of all cells: beyond, what parts add beside costs as much as threads save


@dataclass(frozen=True)
class Phase:
    """Rows of a list of steps.

    Attributes
    ----------
    parts : list of slice
    beside : list of slice
        Where each part but the first adds.
    added : ndarray of int, (runs, 4)
        Runs of cells from there to the tables that they belong to.
    """

    parts: list[slice]
    beside: list[slice]
    added: Integers


@dataclass(frozen=True)
class SharedSteps:
    """A list of steps in phases.

    Attributes
    ----------
    steps : ndarray of int, (rows, 6)
    rows : ndarray of int, (rows,)
        Of the list that each is made of, its row there.
    phases : list of Phase
    beside : int
        Cells after those of all tables.
    """

    steps: Integers
    rows: Index
    phases: list[Phase]
    beside: int

    @classmethod
    def going_up(cls, tables: ClosedTables, rows: Integers, steps: Integers) -> SharedSteps:
        """Rows of `ClosedTables.up`, and the same as steps."""
        for parts in (PARTS, PARTS // 2):
            if is_large(tables) and len(rows):
                shared = cls._by_class(tables, rows, steps.copy(), parts)
                if shared.beside <= MOST_BESIDE * tables.cells:
                    return shared
        if is_large(tables) and len(rows) and (steps[:, 5] < 0).all():
            return cls._by_first_axis(rows, steps)
        return cls._in_order(steps)

    @classmethod
    def _in_order(cls, steps: Integers) -> SharedSteps:
        return cls(steps, np.arange(len(steps)), [Phase([slice(0, len(steps))], [], _no_runs())], 0)

    @classmethod
    def _by_first_axis(cls, rows: Integers, steps: Integers) -> SharedSteps:
        """Of tables whose first axis is one after the other, steps along all others in slices, then those along it."""
        first_axis = np.full(rows[:, 0].max() + 1, rows[:, 2].max())
        np.minimum.at(first_axis, rows[:, 0], rows[:, 2])
        own, used, phases = [steps[:0]], [np.arange(0)], []

        def add(pieces: list[tuple[Index, Integers]]) -> None:
            ends = sum(map(len, own)) + np.cumsum([0, *(len(piece) for _, piece in pieces)])
            phases.append(Phase([slice(*pair) for pair in pairwise(ends.tolist())], [], _no_runs()))
            used.extend(chosen for chosen, _ in pieces)
            own.extend(piece for _, piece in pieces)

        for axis in np.unique(first_axis[rows[:, 0]]).tolist():
            here = np.flatnonzero(first_axis[rows[:, 0]] == axis)
            is_first = rows[here, 2] == axis
            others, along = here[~is_first], here[is_first]
            levels = int(steps[along[0], 3])
            ends = np.unique(np.arange(SLICES + 1) * levels // SLICES).tolist()
            if others.size:
                add([(others, _slice(steps[others], levels, *pair)) for pair in pairwise(ends)])
            add([(along[some], steps[along[some]]) for some in cut(steps[along, 2:5].prod(axis=1), PARTS)])
        return cls(np.concatenate(own), np.concatenate(used), phases, 0)

    @classmethod
    def _by_class(cls, tables: ClosedTables, rows: Integers, steps: Integers, parts: int) -> SharedSteps:
        phases, most = [], 0
        for start, stop in pairwise(_changes(tables.variables[rows[:, 0]])):
            firsts = start + np.array(_changes(rows[start:stop, 0]))
            cuts = firsts[_cuts(tables.sizes[rows[firsts[:-1], 0]] * np.diff(firsts), parts)]
            beside, added, place = [], [_no_runs()], tables.cells
            for first, last in pairwise(cuts[1:].tolist()):
                targets, target_of = np.unique(rows[first:last, 1], return_inverse=True)
                ends = place + np.cumsum([0, *tables.sizes[targets].tolist()])
                steps[first:last, 1] = ends[target_of]
                runs = [ends[:-1], tables.offsets[targets], tables.sizes[targets], np.ones_like(targets)]
                added.append(np.stack(runs, axis=1).astype(np.int64))
                beside.append(slice(place, int(ends[-1])))
                place = int(ends[-1])
            most = max(most, place - tables.cells)
            phases.append(Phase([slice(*pair) for pair in pairwise(cuts.tolist())], beside, np.concatenate(added)))
        return cls(steps, np.arange(len(steps)), phases, most)

    @classmethod
    def going_down(
        cls, tables: ClosedTables, rows: Integers, steps: Integers, phase_of: Integers, up: SharedSteps
    ) -> SharedSteps:
        """Rows of `ClosedTables.up` with their phases, as `going_down` has them, and as steps; shared as the way up."""
        if not up.is_shared:
            return cls._in_order(steps)
        phases = []
        for start, stop in pairwise(_changes(phase_of)):
            firsts = start + np.array(_changes(rows[start:stop, 0]))
            cuts = firsts[_cuts(tables.sizes[rows[firsts[:-1], 0]] * np.diff(firsts), PARTS)]
            phases.append(Phase([slice(*pair) for pair in pairwise(cuts.tolist())], [], _no_runs()))
        return cls(steps, np.arange(len(steps)), phases, 0)

    @cached_property
    def is_shared(self) -> bool:
        """Whether they come in parts for threads."""
        return any(len(phase.parts) > 1 for phase in self.phases)

    def run(self, cells: Float, work: Callable[[Integers, slice], None], workers: Workers) -> None:
        """Do all steps on cells, (S + beside, K): `work` takes some of them, and which they are."""
        if not self.is_shared:
            work(self.steps, slice(None))
            return
        for phase in self.phases:

            def do(number: int, phase: Phase = phase) -> None:
                if number and phase.beside:
                    cells[phase.beside[number - 1]] = 0
                rows = phase.parts[number]
                work(self.steps[rows], rows)

            workers.for_each(do, range(len(phase.parts)))
            if len(phase.added):
                copy_weighted.fastest()(cells, cells, phase.added, np.ones(len(phase.added)))


def going_down(tables: ClosedTables, rows: Integers) -> tuple[Integers, Integers]:
    """Rows of `ClosedTables.up` in an order to go down, and their phases, none of which needs a later one.

    Axes are taken two by two, so that the rows of a table that keeps both stand together: first tables that keep the
    first of the two alone, then those that keep both, which read the former and the latter, then those that keep the
    second alone.
    """
    pair, second = rows[:, 2] // 2, rows[:, 2] % 2
    keeps = np.zeros((tables.sizes.size, len(tables.shape) + 2), dtype=np.bool_)
    keeps[rows[:, 0], rows[:, 2]] = True
    both = keeps[rows[:, 0], rows[:, 2] + 1 - 2 * second]
    phase = 3 * pair + np.where(both, 1, 2 * second)
    order = np.lexsort((rows[:, 2], rows[:, 0], phase))
    return rows[order], phase[order]


def is_large(tables: ClosedTables) -> bool:
    """Whether threads are worth while."""
    return tables.cells * 8 >= WORTH_BYTES


def cut(costs: Integers, parts: int) -> list[slice]:
    """A list cut into parts of about the same cost; fewer where it is short."""
    return [slice(*pair) for pair in pairwise(_cuts(costs, parts).tolist())]


def _cuts(costs: Integers, parts: int) -> Integers:
    """Where to cut, the list's start and end included."""
    ends = np.cumsum(costs)
    inner = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts) + 1 if len(costs) else np.zeros(0, int)
    return np.unique(np.concatenate([[0], inner, [len(costs)]]))


def _slice(steps: Integers, levels: int, first: int, stop: int) -> Integers:
    """Steps along other axes than the first one of tables, for some of its levels."""
    found, each = steps.copy(), steps[:, 2] // levels
    found[:, 0] += first * each * steps[:, 3] * steps[:, 4]
    found[:, 1] += first * each * steps[:, 4]
    found[:, 2] = each * (stop - first)
    return found


def _changes(numbers: Integers) -> list[int]:
    """Where runs of one number start, and the end."""
    return [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]


def _no_runs() -> Integers:
    return np.zeros((0, 4), dtype=np.int64)
