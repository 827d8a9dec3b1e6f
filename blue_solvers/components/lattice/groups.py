"""What tables that see groups of a variable through different recodes say together, component by component.

Contrasts within groups are seen by the variable itself alone. Of what is left, a component's tables see the sums over
groups, or coarser sums: a least-squares problem of as many unknowns as there are groups, solved once for all contrasts
along the other variables. Its solution makes every table's values from those of all, by one small matrix.

A line is what one table has for one set of groups: its start, and how far apart its cells are along every outer axis of
contrasts; cells of the inner axis lie side by side. A row of `heads` is a component: its first line, how many it has,
the inner axis' cells, and where its matrix, (lines, lines), starts; a row of `outer` the outer axes' cells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, reduce
from itertools import accumulate
from math import prod
from operator import mul, or_
from typing import Any

import numpy as np

from blue_solvers.components.assumptions import MOST_GROUPS
from blue_solvers.components.grouping import Axes
from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError
from blue_solvers.components.orthogonal import kronecker, squares_of_sums
from blue_solvers.components.tree.messages import LinearMeasurement, combine
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

ENTRY_BYTES = 32  # of the matrices, and three times as much while they are made
STRIP = 64  # cells of every line that are held at once
MANY = 24  # lines from which on a library's product takes less time; below loops take 0.3 of its time
Component = tuple[int, Axes]  # a set of variables kept whole, and axes of groups or recodes of others
Lines = tuple[Integers, Integers, Integers, Float]  # heads, outer axes, lines, matrices


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
        Heads, outer axes, lines and matrices, as `mix_lines` takes them.

    Raises
    ------
    TooManyCellsError
        If there are more groups or bytes than are allowed.
    """

    def __init__(self, plan: SweepPlan, told: dict[Axes, Float], exact: Collection[Axes], most_bytes: float) -> None:
        self._plan, self._axes, self._told, self._exact = plan, plan.axes, told, exact
        self._design = cache(self._lay_design)
        self.variances: dict[Component, Float] = {}
        self.roots: dict[int, tuple[Axes, Float, list[int]]] = {}
        heads: list[list[int]] = []
        outer: list[list[int]] = []
        lines: list[Integers] = []
        matrices: list[Float] = []
        count = entries = 0
        for components in self._alike():
            for members in components:
                along, lengths, inner = self._lines(members)
                heads.append([count, len(along), inner, entries])
                outer.append(lengths)
                lines.append(along)
                count += len(along)
                entries += len(along) ** 2
                if ENTRY_BYTES * entries > most_bytes:
                    raise TooManyCellsError
            matrices.append(self._solve(components).ravel())
        width = max(map(len, outer), default=0)
        padded, row = np.zeros((count, 1 + width), dtype=np.int64), 0
        for own in lines:
            padded[row : row + len(own), [0, *range(2 + width - own.shape[1], 1 + width)]] = own
            row += len(own)
        self.lines: Lines = (
            np.array(heads, dtype=np.int64).reshape(-1, 4),
            np.array([[1] * (width - len(own)) + own for own in outer], dtype=np.int64).reshape(len(heads), width),
            padded,
            np.concatenate([np.zeros(0), *matrices]),
        )

    def _lines(self, members: list[Axes]) -> tuple[Integers, list[int], int]:
        """Of a component's tables every line, the lengths of outer axes, and that of the inner one."""
        sizes, contrasts = self._axes.sizes, [axis for axis in members[0] if self._axes.is_whole[axis]]
        steps: list[dict[int, int]] = []  # cells from one to the next along every axis
        for table in members:
            lengths_after = accumulate([sizes[axis] for axis in table[:0:-1]], mul, initial=1)
            steps.append(dict(zip(reversed(table), lengths_after, strict=False)))
        outwards, lengths, inner = _component_lines(
            [sizes[axis] for axis in contrasts], [[step[axis] for axis in contrasts] for step in steps]
        )
        rows: list[list[int]] = []
        for table, step, along in zip(members, steps, outwards, strict=True):
            starts = [self._plan.places[table]]
            for axis in self._plan.groups(table):
                starts = [start + place for start in starts for place in range(0, step[axis] * sizes[axis], step[axis])]
            rows += [[start, *along] for start in starts]
        return np.array(rows, dtype=np.int64), lengths, inner

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

    def _solve(self, components: list[list[Axes]]) -> Float:
        """Matrices of components that see alike, (components, L, L)."""
        seen = [self._plan.groups(own) for own in components[0]]
        variables = self._variables(seen)
        designs = [self._design(own, variables) for own in seen]
        ends = np.cumsum([0, *map(len, designs)])
        matrices = np.zeros((len(components), ends[-1], ends[-1]))
        told = [i for i, own in enumerate(components[0]) if own in self._told]
        masks = [self._plan.mask_of(members[0]) for members in components]
        self.roots |= dict.fromkeys(masks, (variables, np.zeros((len(masks), designs[0].shape[1], 1)), masks))
        if not told:
            return matrices
        weights = [np.array([self._told[members[i]] for members in components]) for i in told]
        sources, zeros = [], np.zeros(len(components))
        for i, weight in zip(told, weights, strict=True):
            design = designs[i]
            if components[0][i] in self._exact:
                sources.append(LinearMeasurement.measured(design, zeros, zeros + 1))
            else:
                noisy = np.sqrt(weight)[:, :, None] * np.eye(len(design))
                sources.append(LinearMeasurement(design, noisy, design.T @ design))
        message, gains = combine(sources)
        self.roots |= dict.fromkeys(masks, (variables, message.root, masks))
        everything = np.concatenate(designs)
        for i, weight, gain in zip(told, weights, gains, strict=True):
            matrices[:, :, ends[i] : ends[i + 1]] = everything @ gain / weight[:, None, :]
        return matrices

    def _variables(self, seen: list[Axes]) -> Axes:
        """The axes of groups of all variables that some table of a component tells apart."""
        found = {self._axes.groups[axis] for own in seen for axis in own}
        if prod(self._axes.sizes[axis] for axis in found) > MOST_GROUPS:
            raise TooManyCellsError
        return tuple(sorted(found))

    def _lay_design(self, seen: Axes, variables: Axes) -> Float:
        """What a table sees of the groups of variables, (cells, groups)."""
        own, axes = {self._axes.groups[axis]: axis for axis in seen}, self._axes
        places = [axes.between(of, own[of]) if of in own else np.zeros(axes.sizes[of], np.int64) for of in variables]
        return kronecker([np.eye(place.max() + 1)[:, place] for place in places])

    def _variance_parts(self, table: Axes) -> list[tuple[int, int, Axes]]:
        """The components that a table's variances are sums over, what each shares with it, and axes that count.

        These are what the table sees of variables that the component does not keep whole.
        """
        axes, plan, found = self._axes, self._plan, []
        for meet, mask in plan.lattice.meets(plan.mask_of(table)).items():
            groups = plan.groups(plan.within(table, mask))
            found.append((mask, meet, tuple([axis for axis in groups if not axes.bits[axis] & mask])))
        return found

    def _variance(self, mask: int, seen: Axes) -> Float:
        """Of a component's sums over what some axes of groups do not tell apart, cell by cell."""
        if (mask, seen) not in self.variances:
            variables, root, masks = self.roots[mask]
            squares = squares_of_sums(self._design(seen, variables), root)
            self.variances.update(((own, seen), each) for own, each in zip(masks, squares, strict=True))
        return self.variances[mask, seen]

    def variances_of(self, table: Axes) -> Float:
        """Variances of a desired table's cells, (cells,), where they differ by the groups of its variables."""
        axes = self._axes
        counts = [np.bincount(axes.told[axis]) for axis in table]  # levels in what an axis tells apart
        lengths = [count.size for count in counts]
        after = range(len(table) - 1, -1, -1)
        counts = [own.reshape(-1, *[1] * count) for own, count in zip(counts, after, strict=True)]
        total, shares = np.zeros(lengths), dict[int, Any]()
        own_bits = reduce(or_, [axes.bits[axis] for axis in table], 0)
        for mask, meet, seen in self._variance_parts(table):
            told = [axis in seen or axes.groups[axis] in seen for axis in table]
            shape = [length if own else 1 for length, own in zip(lengths, told, strict=True)]
            variance = self._variance(mask, seen).reshape(shape)
            share: Any = 1.0
            for axis, count in zip(table, counts, strict=True):
                if axes.is_whole[axis] and not axes.bits[axis] & mask:
                    share, variance = share / count, variance / count
                elif axes.bits[axis] & mask and not axes.is_whole[axis]:
                    variance = variance * count
            beside = prod([size for axis, size in enumerate(axes.sizes) if (mask & ~own_bits) >> axis & 1])
            shares[meet] = share - sum(other for inside, other in shares.items() if inside & meet == inside)
            total = total + shares[meet] * beside * variance
        for place, axis in enumerate(table):
            if axes.is_whole[axis]:
                total = np.take(total, axes.told[axis], axis=place)
        return total.ravel()


def _component_lines(contrasts: Sequence[int], steps: list[list[int]]) -> tuple[list[list[int]], list[int], int]:
    """The steps of every table of a component along its outer axes, these axes' lengths, and the inner one's.

    Parameters
    ----------
    contrasts : sequence of int
        Lengths of the axes of contrasts, in the order in which all tables have them.
    steps : list of list of int
        Of every table along each of them.
    """
    lengths: list[int] = []
    kept: list[int] = []
    for axis, length in enumerate(contrasts):
        if kept and all(step[kept[-1]] == length * step[axis] for step in steps):
            length *= lengths.pop()
            kept.pop()
        lengths.append(length)
        kept.append(axis)
    inner = lengths.pop() if kept and all(step[kept[-1]] == 1 for step in steps) else 1
    return [[step[axis] for axis in kept[: len(lengths)]] for step in steps], lengths, inner


def mix_lines_in_numpy(
    cells: Float, heads: Integers, outer: Integers, lines: Integers, matrices: Float, transpose: bool
) -> None:
    """Replace the lines of every component by sums of them all, weighted by its matrix.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other; changed in place.
    heads : ndarray of int, (components, 4)
    outer : ndarray of int, (components, axes)
    lines : ndarray of int, (lines, 1 + axes)
    matrices : ndarray
        One after the other.
    transpose : bool
        Whether to take their transposes.
    """
    for (first, count, inner, start), lengths in zip(heads.tolist(), outer, strict=True):
        own, matrix = lines[first : first + count], matrices[start : start + count**2].reshape(count, count)
        steps = own[:, 1:] @ np.indices(lengths).reshape(len(lengths), lengths.prod())
        places = (own[:, :1] + steps)[:, :, None] + np.arange(inner)
        cells[places] = np.tensordot(matrix.T if transpose else matrix, cells[places], 1)


@compiled(reference=mix_lines_in_numpy)
def mix_lines(
    cells: Float, heads: Integers, outer: Integers, lines: Integers, matrices: Float, transpose: bool
) -> None:
    """See `mix_lines_in_numpy`: cells are (S, K), lines (lines, 1 + axes)."""
    flat, width, most = cells.ravel(), cells.shape[1], 0
    for row in range(heads.shape[0]):
        most = max(most, heads[row, 1])
    held, mixed, places = np.empty((most, STRIP)), np.empty((most, STRIP)), np.empty(most, np.int64)
    for row in range(heads.shape[0]):
        first, count, size, start, turns = heads[row, 0], heads[row, 1], heads[row, 2] * width, heads[row, 3], 1
        square = matrices[start : start + count * count].reshape((count, count))
        if transpose:
            square = square.T.copy()
        for axis in range(outer.shape[1]):
            turns *= outer[row, axis]
        for turn in range(turns):
            for line in range(count):
                place, rest = lines[first + line, 0], turn
                for axis in range(outer.shape[1] - 1, -1, -1):
                    place += rest % outer[row, axis] * lines[first + line, 1 + axis]
                    rest //= outer[row, axis]
                places[line] = place * width
            for strip in range(0, size, STRIP):
                length = min(STRIP, size - strip)
                before, after = held, mixed
                if count >= MANY:
                    before = held.ravel()[: count * length].reshape((count, length))
                    after = mixed.ravel()[: count * length].reshape((count, length))
                for line in range(count):
                    own, kept = flat[places[line] + strip : places[line] + strip + length], before[line]
                    for i in range(length):
                        kept[i] = own[i]
                if count >= MANY:
                    np.dot(square, before, after)
                else:
                    _multiply(square, before, after, length)
                for line in range(count):
                    own, kept = flat[places[line] + strip : places[line] + strip + length], after[line]
                    for i in range(length):
                        own[i] = kept[i]


def _multiply(square: Float, before: Float, after: Float, length: int) -> None:
    """Write square, (lines, lines), times rows and `length` columns of `before`, (most, STRIP), to `after`."""
    for line in range(square.shape[0]):
        own = after[line]
        for i in range(length):
            own[i] = 0.0
        for other in range(square.shape[0]):
            weight, kept = square[line, other], before[other]
            if weight != 0:
                for i in range(length):
                    own[i] += weight * kept[i]
