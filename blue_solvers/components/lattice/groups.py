"""What tables that see groups of a variable through different recodes say together, component by component.

Contrasts within groups are seen by the variable itself alone. Of what is left, a component's tables see the sums over
groups, or coarser sums: a least-squares problem of as many unknowns as there are groups, solved once for all contrasts
along the other variables. Its solution makes sums over groups from the values of all tables, by one small matrix, and
every table's values are sums of these. Where tables have fewer values than there are groups, it makes those instead.

A line is what one table has for one set of groups, in runs of cells that lie equally far apart in every table of a
component, side by side in some.
A row of `heads` is a component: its first line, how many it has, their runs, the cells of each; where places of runs in
a table, (lines, runs), are listed; how many tables it has, and numbers that its matrix, (numbers, lines), makes; where
the line is listed that each number is a part of in every table, (tables, numbers), and where the matrix starts. A row
of `ends` is a line: where its table starts, the table's cells, which lie between one and the next where there are
several of each, and how far apart the cells of a run are.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, reduce
from itertools import accumulate
from math import prod
from operator import mul, or_
from typing import Any

import numpy as np

from blue_solvers.components.assumptions import MOST_GROUPS
from blue_solvers.components.grouping import Axes
from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError
from blue_solvers.components.lattice.sets import places as bit_places
from blue_solvers.components.orthogonal import squares_of_sums
from blue_solvers.components.tree.messages import LinearMeasurement, combine
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

PLACE_BYTES = 8
ENTRY_BYTES = 32  # of the matrices, and three times as much while they are made
STRIP, HELD = 64, 1 << 11  # cells of every line that are held at once, or more of these in all
MANY = 24  # lines from which on a library's product takes less time; below loops take 0.3 of its time
Component = tuple[int, Axes]  # a set of variables kept whole, and axes of groups or recodes of others
Lines = tuple[Integers, Integers, Integers, Integers, Float]  # ends, heads, places, parts, matrices


class GroupMixing:
    """Matrices of all components of several groups.

    Parameters
    ----------
    plan : SweepPlan
    told : dict of ndarray
        For tables of the sweeps what all that is observed says of each of their cells of groups: precisions, or of
        those in `exact` how many say so exactly.
    exact : collection of tuple of int
    most_bytes : float
        That matrices may take while they are made.

    Attributes
    ----------
    variances : dict of ndarray
        Of components and axes of groups, cell by cell, those that are known; others are found when they are asked for.
    roots : dict of tuple
        Of every component of several groups their axes, and square roots of the covariance of these groups in all
        components, which follow, that see alike.
    lines : tuple of ndarray
        Ends, heads, places, parts and matrices, as `mix_lines` takes them.

    Raises
    ------
    TooManyCellsError
        If there are more groups or bytes than are allowed.
    """

    def __init__(self, plan: SweepPlan, told: dict[Axes, Float], exact: Collection[Axes], most_bytes: float) -> None:
        self._plan, self._axes, self._told, self._exact = plan, plan.axes, told, exact
        self._cells = cache(self._lay_cells)
        self.variances: dict[Component, Float] = {}
        self.roots: dict[int, tuple[Axes, Float, list[int]]] = {}
        none = np.zeros(0, np.intp)
        ends, heads = [none.reshape(0, 3)], [none.reshape(0, 9)]
        places, listed, matrices = [none], [none], [np.zeros(0)]
        count = cells = entries = parts = 0
        for components in self._alike():
            variables, own_parts = self._parts(components[0])
            for members in components:
                own, runs, size = self._lines(members)
                heads.append(np.array([[count, *runs.shape, size, cells, *own_parts.shape, parts, entries]]))
                ends.append(own)
                places.append(runs.ravel())
                count, cells, entries = count + len(runs), cells + runs.size, entries + len(runs) * own_parts.shape[1]
                if PLACE_BYTES * cells + ENTRY_BYTES * entries > most_bytes:
                    raise TooManyCellsError
            listed.append(own_parts.ravel())
            parts += own_parts.size
            matrices.append(self._solve(components, variables, own_parts).ravel())
        whole = [np.concatenate(own) for own in (ends, heads, places, listed)]
        self.lines: Lines = whole[0], whole[1], whole[2], whole[3], np.concatenate(matrices)

    def _lines(self, members: list[Axes]) -> tuple[Integers, Integers, int]:
        """Of a component's tables lines' ends, (lines, 3), places of runs, (lines, runs), and the cells of a run."""
        sizes, outer = self._axes.sizes, [axis for axis in members[0] if self._axes.is_whole[axis]]
        steps: list[dict[int, int]] = []  # cells from one to the next along every axis
        for table in members:
            lengths_after = accumulate([sizes[axis] for axis in table[:0:-1]], mul, initial=1)
            steps.append(dict(zip(reversed(table), lengths_after, strict=False)))
        size, gaps = 1, [step[outer[-1]] if outer else 1 for step in steps]
        while outer and all(step[outer[-1]] == size * gap for step, gap in zip(steps, gaps, strict=True)):
            size *= sizes[outer.pop()]
        runs, ends = prod([sizes[axis] for axis in outer]), []
        places: list[Integers] = []
        for table, step, gap in zip(members, steps, gaps, strict=True):
            along = [step[axis] * np.arange(sizes[axis]) for axis in (*self._plan.groups(table), *outer)]
            places.append(reduce(np.add.outer, along, np.zeros((), np.intp)).reshape(-1, runs))
            ends += [[self._plan.places[table], self._plan.size_of(table), gap]] * len(places[-1])
        return np.array(ends), np.concatenate(places), size

    def _alike(self) -> list[list[list[Axes]]]:
        """The tables of every component, those of components that see alike together."""
        of_component: dict[int, list[Axes]] = {}
        for mask, table in zip(self._plan.masks, self._plan.tables, strict=True):
            of_component.setdefault(mask, []).append(table)
        alike: dict[tuple, list[list[Axes]]] = {}
        for members in of_component.values():
            seen = tuple((self._plan.groups(own), own in self._told, own in self._exact) for own in members)
            if any(own[0] for own in seen):
                alike.setdefault(seen, []).append(members)
        return list(alike.values())

    def _parts(self, members: list[Axes]) -> tuple[Axes, Integers]:
        """The variables of a component, and the lines of its tables that each of its numbers is a part of."""
        found = {self._axes.groups[axis] for table in members for axis in self._plan.groups(table)}
        if prod(self._axes.sizes[axis] for axis in found) > MOST_GROUPS:
            raise TooManyCellsError
        variables = tuple(sorted(found))
        cells = np.array([self._cells(self._plan.groups(table), variables) for table in members])
        lengths = cells.max(axis=1) + 1
        if lengths.sum() < cells.shape[1]:
            return variables, np.arange(lengths.sum())[None]
        return variables, cells + (np.cumsum(lengths) - lengths)[:, None]

    def _solve(self, components: list[list[Axes]], variables: Axes, parts: Integers) -> Float:
        """Matrices of components that see alike, (components, numbers, lines); parts are (tables, numbers)."""
        cells = [self._cells(self._plan.groups(own), variables) for own in components[0]]
        designs = [np.eye(own.max() + 1)[:, own] for own in cells]
        ends = np.cumsum([0, *map(len, designs)])
        matrices = np.zeros((len(components), parts.shape[1], ends[-1]))
        masks = [self._plan.mask_of(members[0]) for members in components]
        self.roots |= dict.fromkeys(masks, (variables, np.zeros((len(masks), cells[0].size, 1)), masks))
        told = [i for i, own in enumerate(components[0]) if own in self._told]
        if not told:
            return matrices
        weights = [np.array([self._told[members[i]] for members in components]) for i in told]
        sources, zeros = [], np.zeros(len(components))
        for place, i in enumerate(told):
            if components[0][i] in self._exact:
                sources.append(LinearMeasurement.measured(designs[i], zeros, zeros + 1))
            else:
                alike = (cells[i][:, None] == cells[i]).astype(float)
                weights[place] = np.sqrt(weights[place])  # in units of its noise
                sources.append(LinearMeasurement(weights[place][:, :, None] * designs[i], np.ones((1, 1)), alike))
        message, gains = combine(sources)
        self.roots |= dict.fromkeys(masks, (variables, message.root, masks))
        for i, weight, gain in zip(told, weights, gains, strict=True):
            made = gain / weight[:, None, :]
            matrices[:, :, ends[i] : ends[i + 1]] = (
                np.concatenate(designs) @ made if parts.shape[1] < cells[0].size else made
            )
        return matrices

    def _lay_cells(self, seen: Axes, variables: Axes) -> Integers:
        """Of all groups of variables together the cell of a table that sees some of them, (groups,)."""
        own, axes, found = {self._axes.groups[axis]: axis for axis in seen}, self._axes, np.zeros(1, np.intp)
        for of in variables:
            place = axes.between(of, own[of]) if of in own else np.zeros(axes.sizes[of], np.intp)
            found = np.add.outer(found * (place.max() + 1), place).ravel()
        return found

    def _variance(self, mask: int, seen: Axes) -> Float:
        """Of a component's sums over what some axes of groups do not tell apart, cell by cell."""
        if (mask, seen) not in self.variances:
            variables, root, masks = self.roots[mask]
            cells = self._cells(seen, variables)
            squares = squares_of_sums(np.eye(cells.max() + 1)[:, cells], root)
            self.variances.update(((own, seen), each) for own, each in zip(masks, squares, strict=True))
        return self.variances[mask, seen]

    def variances_of(self, table: Axes) -> Float:
        """Variances of a desired table's cells, (cells,), where they differ by the groups of its variables."""
        axes, plan = self._axes, self._plan
        counts = [axes.counts[axis] for axis in table]
        lengths = [count.size for count in counts]
        after = range(len(table) - 1, -1, -1)
        counts = [own.reshape(-1, *[1] * count) for own, count in zip(counts, after, strict=True)]
        total, shares = np.zeros(lengths), dict[int, Any]()
        own_bits = reduce(or_, [axes.bits[axis] for axis in table], 0)
        for meet, mask in plan.lattice.meets(plan.mask_of(table)).items():  # components that it sums
            groups = plan.groups(plan.within(table, mask))
            seen = tuple([axis for axis in groups if not axes.bits[axis] & mask])  # of variables not kept whole there
            told = [axis in seen or axes.groups[axis] in seen for axis in table]
            shape = [length if own else 1 for length, own in zip(lengths, told, strict=True)]
            variance = self._variance(mask, seen).reshape(shape)
            share: Any = 1.0
            for axis, count in zip(table, counts, strict=True):
                if axes.is_whole[axis] and not axes.bits[axis] & mask:
                    share, variance = share / count, variance / count
                elif axes.bits[axis] & mask and not axes.is_whole[axis]:
                    variance = variance * count
            beside = prod([axes.sizes[axis] for axis in bit_places(mask & ~own_bits)])
            shares[meet] = share - sum(other for inside, other in shares.items() if inside & meet == inside)
            total = total + shares[meet] * beside * variance
        for place, axis in enumerate(table):
            if axes.is_whole[axis]:
                total = np.take(total, axes.told[axis], axis=place)
        return total.ravel()


def mix_lines_in_numpy(cells: Float, count: int, whole: Lines, transpose: bool) -> None:
    """Replace the lines of every component by sums of them all, weighted by its matrix.

    Parameters
    ----------
    cells : ndarray, (count * S, K)
        All tables, one after the other, so many of each together; changed in place.
    count : int
    whole : tuple of ndarray
        Ends, (lines, 3), and heads, (components, 9); places, of one line after the other; parts, of one component, or
        several that have them in common, after the other; and matrices, one after the other.
    transpose : bool
        Whether to take the transpose.
    """
    ends, heads, places, parts, matrices = whole
    for first, lines, runs, size, start, tables, numbers, listed, entry in heads.tolist():
        table, apart, gap = ends[first : first + lines, :, None, None].swapaxes(0, 1)
        own = places[start:][: lines * runs].reshape(lines, 1, runs) + count * table + apart * np.arange(count)[:, None]
        sums = np.zeros((lines, numbers))
        sums[parts[listed:][: tables * numbers].reshape(tables, numbers), np.arange(numbers)] = 1
        matrix = sums @ matrices[entry:][: numbers * lines].reshape(numbers, lines)
        at = (own[..., None] + gap[..., None] * np.arange(size)).reshape(lines, -1)
        cells[at] = np.tensordot(matrix.T if transpose else matrix, cells[at], 1)


@compiled(reference=mix_lines_in_numpy)
def mix_lines(cells: Float, count: int, whole: Lines, transpose: bool) -> None:
    """See `mix_lines_in_numpy`: cells are (count * S, K)."""
    ends, heads, places, parts, matrices = whole
    flat, width = cells.ravel(), cells.shape[1]
    for row in range(heads.shape[0]):
        first, lines, runs, size = heads[row, 0], heads[row, 1], heads[row, 2], heads[row, 3]
        tables, numbers = heads[row, 5], heads[row, 6]
        table, own = ends[first : first + lines], places[heads[row, 4] :][: lines * runs].reshape((lines, runs))
        listed = parts[heads[row, 7] :][: tables * numbers].reshape((tables, numbers))
        matrix = matrices[heads[row, 8] :][: numbers * lines].reshape((numbers, lines))
        total = runs * count * size
        strip = min(total, max(STRIP, HELD // lines) // width + 1)
        held, mixed = np.empty(lines * strip * width), np.empty(numbers * strip * width)
        for start in range(0, total, strip):
            columns = min(strip, total - start) * width
            values = held[: lines * columns].reshape((lines, columns))
            sums = mixed[: numbers * columns].reshape((numbers, columns))
            _carry(flat, values, own, table, (count, width, size), start, False)
            if transpose:
                _add_parts(sums, values, listed, True)
                _multiply(matrix.T, sums, values)
            else:
                _multiply(matrix, values, sums)
                _add_parts(sums, values, listed, False)
            _carry(flat, values, own, table, (count, width, size), start, True)


def _carry(
    flat: Float, held: Float, places: Integers, ends: Integers, sizes: tuple[int, int, int], start: int, back: bool
) -> None:
    """Copy cells of lines from the start on, `places` (lines, runs), from `flat`, 1-d, to `held`, 2-d, or back.

    Sizes are how many tables lie together, their columns, and the cells of a run.
    """
    count, width, size = sizes
    runs, cells_held = places.shape[1], held.shape[1] // width
    copy, first_run, begin = start // size // runs, start // size % runs, start % size
    for line in range(places.shape[0]):
        own, run, offset, column, left = held[line], first_run, begin, np.uint64(0), cells_held
        gap, first = ends[line, 2], count * ends[line, 0] + copy * ends[line, 1]
        most, apart = (left, np.uint64(gap if width == 1 else 1)) if gap == 1 or width == 1 else (1, np.uint64(1))
        while left > 0:
            cells, place = min(most, size - offset, left), np.uint64((first + places[line, run] + offset * gap) * width)
            length = np.uint64(cells * width)
            for i in range(length):
                if back:
                    flat[place + i * apart] = own[column + i]
                else:
                    own[column + i] = flat[place + i * apart]
            offset, column, left = offset + cells, column + length, left - cells
            if offset == size:
                run, offset = run + 1, 0
            if run == runs:
                run, first = 0, first + ends[line, 1]


def _add_parts(numbers: Float, lines: Float, parts: Integers, to_numbers: bool) -> None:
    """Make lines, (lines, cells), sums of their numbers, (numbers, cells), or numbers of theirs in all tables."""
    changed, size = numbers if to_numbers else lines, np.uint64(numbers.shape[1])
    changed[:] = 0.0
    for table in range(parts.shape[0]):
        for number in range(np.uint64(parts.shape[1])):
            line = np.uint64(parts[table, number])
            for i in range(size):
                if to_numbers:
                    numbers[number, i] += lines[line, i]
                else:
                    lines[line, i] += numbers[number, i]


def _multiply(matrix: Float, before: Float, after: Float) -> None:
    """Write a matrix, (rows, lines), times `before`, (lines, cells), to `after`."""
    if max(matrix.shape) >= MANY:
        np.dot(matrix, before, after)
        return
    for line in range(matrix.shape[0]):
        own = after[line]
        for i in range(own.size):
            own[i] = 0.0
        for other in range(matrix.shape[1]):
            weight, kept = matrix[line, other], before[other]
            if weight != 0:
                for i in range(own.size):
                    own[i] += weight * kept[i]
