"""What tables that see groups of a variable through different recodes say together, component by component.

Contrasts within groups are seen by the variable itself alone. Of what is left, a component's tables see the sums over
groups, or coarser sums: a least-squares problem of as many unknowns as there are groups, solved once for all contrasts
along the other variables. Its solution makes every table's values from those of all, by one small matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from blue_solvers.components.lattice.axes import Axes
from blue_solvers.components.lattice.lines import component_lines
from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError
from blue_solvers.components.size import MOST_GROUPS
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.tree.messages import Telling, combine
from blue_solvers.components.tree.tree_variances import squares_of_sums
from constraint_builders.arrays import Float, Integers

ENTRY_BYTES = 32  # of the matrices for noisy and exact values, and as much while they are made
Mix = Callable[[Float, Integers, Integers, Integers, Float, bool], object]
Component = tuple[int, Axes]  # a set of variables kept whole, and axes of groups or recodes of others


class GroupMixing:
    """Matrices of all components of several groups.

    Parameters
    ----------
    plan : SweepPlan
    noisy, exact : dict of ndarray
        For tables of the sweeps what all that is observed says of each of their cells of groups: precisions, and how
        many say so exactly.
    desired : sequence of tuple of int
        Tables whose variances will be asked for.
    most_bytes : float
        That matrices may take while they are made.

    Attributes
    ----------
    variances : dict of ndarray
        Of every component and its axes of groups, cell by cell.

    Raises
    ------
    TooManyCellsError
        If there are more groups or bytes than are allowed.
    """

    def __init__(
        self,
        plan: SweepPlan,
        noisy: dict[Axes, Float],
        exact: dict[Axes, Float],
        desired: Sequence[Axes],
        most_bytes: float,
    ) -> None:
        self._plan, self._axes = plan, plan.axes
        self.variances: dict[Component, Float] = {}
        wanted: dict[int, dict[Axes, None]] = {}
        for mask, table in zip(plan.masks, plan.tables, strict=True):
            wanted.setdefault(mask, {})[self._plan.groups(table)] = None
        self._parts = {table: variance_parts(plan, table) for table in desired}
        for mask, _, seen in chain.from_iterable(self._parts.values()):
            wanted[mask][seen] = None
        heads: list[list[int]] = []
        outer: list[list[int]] = []
        lines: list[list[int]] = []
        matrices: tuple[list[Float], list[Float]] = ([], [])
        entries = 0
        for components in self._alike(noisy, exact):
            for members in components:
                mask = plan.mask_of(members[0])
                contrasts = [axis for axis in members[0] if self._is_whole(axis)]
                steps = [self._steps(table) for table in members]
                along, lengths, inner = component_lines(
                    [self._axes.sizes[axis] for axis in contrasts],
                    np.array([[step[axis] for axis in contrasts] for step in steps], dtype=np.int64),
                )
                own = [
                    [start, *outwards]
                    for table, step, outwards in zip(members, steps, along.tolist(), strict=True)
                    for start in self._starts(table, step)
                ]
                heads.append([len(lines), len(own), inner, entries])
                outer.append(lengths)
                lines += own
                entries += len(own) ** 2
                if ENTRY_BYTES * entries > most_bytes:
                    raise TooManyCellsError
            asked = dict.fromkeys(seen for members in components for seen in wanted[plan.mask_of(members[0])])
            for kept, found in zip(matrices, self._solve(components, noisy, exact, list(asked)), strict=True):
                kept.append(found.ravel())
        width = max(map(len, outer), default=0)
        rows = [[own[0], *[0] * (width + 1 - len(own)), *own[1:]] for own in lines]
        self.places = (
            np.array(heads, dtype=np.int64).reshape(-1, 4),
            np.array([[1] * (width - len(own)) + own for own in outer], dtype=np.int64).reshape(len(heads), width),
            np.array(rows, dtype=np.int64).reshape(-1, width + 1),
        )
        self.noisy, self._exact = (np.concatenate([np.zeros(0), *own]) for own in matrices)

    def apply(self, mix: Mix, cells: Float, exactly: bool = False, transpose: bool = False) -> None:
        """Values of the tables of these components from information about them, in place."""
        heads, outer, lines = self.places
        mix(cells, heads, outer, lines, self._exact if exactly else self.noisy, transpose)

    def variances_of(self, table: Axes) -> Float:
        """Of a desired table's cells, (cells,)."""
        return variances_of_groups(self._plan, table, self._parts[table], self.variances)

    def _is_whole(self, axis: int) -> bool:
        return self._axes.groups_of[axis] >= -1

    def _steps(self, table: Axes) -> dict[int, int]:
        """How far apart cells lie along each of a table's axes."""
        return {axis: self._axes.size(table[place + 1 :]) for place, axis in enumerate(table)}

    def _starts(self, table: Axes, steps: dict[int, int]) -> list[int]:
        """Of the lines of a table, its groups in C order."""
        groups = self._plan.groups(table)
        cells = np.indices([self._axes.sizes[axis] for axis in groups]).reshape(len(groups), self._axes.size(groups))
        return (self._plan.places[table] + np.array([steps[axis] for axis in groups], dtype=np.int64) @ cells).tolist()

    def _alike(self, noisy: dict[Axes, Float], exact: dict[Axes, Float]) -> list[list[list[Axes]]]:
        """The tables of every component, those of components that see alike together."""
        of_component: dict[int, list[Axes]] = {}
        for mask, table in zip(self._plan.masks, self._plan.tables, strict=True):
            of_component.setdefault(mask, []).append(table)
        alike: dict[tuple, list[list[Axes]]] = {}
        for members in of_component.values():
            seen = tuple((self._plan.groups(own), own in noisy, own in exact) for own in members)
            if any(own[0] for own in seen):
                alike.setdefault(seen, []).append(members)
        return list(alike.values())

    def _solve(
        self, components: list[list[Axes]], noisy: dict[Axes, Float], exact: dict[Axes, Float], asked: list[Axes]
    ) -> tuple[Float, Float]:
        """Components that see alike: variances, and matrices, (components, L, L), of noisy and of exact values."""
        seen = [self._plan.groups(own) for own in components[0]]
        variables = self._variables(seen)
        designs = [self._design(own, variables) for own in seen]
        ends = np.cumsum([0, *map(len, designs)])
        places = [slice(*ends[i : i + 2]) for i in range(len(designs))]
        matrices = np.zeros((2, len(components), ends[-1], ends[-1]))
        sources, kinds = [], []
        zeros = np.zeros(len(components))
        for i, design in enumerate(designs):
            if components[0][i] in noisy:
                precisions = np.array([noisy[own[i]] for own in components])
                root = np.sqrt(precisions)[:, :, None] * np.eye(len(design))
                sources.append(Telling(design[None], root, (design.T @ design)[None]))
                kinds.append((i, 0, precisions))
            if components[0][i] in exact:
                sources.append(Telling.measured(design, zeros, zeros + 1))
                kinds.append((i, 1, np.array([exact[own[i]] for own in components])))
        masks = [self._plan.mask_of(members[0]) for members in components]
        if not sources:
            for own in asked:
                count = prod(self._axes.sizes[axis] for axis in own)
                self.variances.update(((mask, own), np.zeros(count)) for mask in masks)
            return matrices[0], matrices[1]
        solution = combine(sources)
        for own in asked:
            squares = squares_of_sums(self._design(own, variables), solution.message.root)
            self.variances.update(((mask, own), each) for mask, each in zip(masks, squares, strict=True))
        for i, design in enumerate(designs):
            for (j, kind, weights), gain in zip(kinds, solution.gains, strict=True):
                matrices[kind, :, places[i], places[j]] = design @ gain / weights[:, None, :]
        return matrices[0], matrices[1]

    def _variables(self, seen: list[Axes]) -> list[int]:
        """The axes of groups of all variables that some table of a component tells apart."""
        found = {self._axes.groups_axis(axis) for own in seen for axis in own}
        if prod(self._axes.sizes[axis] for axis in found) > MOST_GROUPS:
            raise TooManyCellsError
        return sorted(found)

    def _design(self, seen: Axes, variables: list[int]) -> Float:
        """What a table sees of the groups of variables, (cells, groups)."""
        own = {self._axes.groups_axis(axis): axis for axis in seen}
        return kronecker([self._sums(axis, own.get(axis, -1)) for axis in variables])

    def _sums(self, groups: int, axis: int) -> Float:
        count = self._axes.sizes[groups]
        if axis < 0:
            return np.ones((1, count))
        return np.eye(count) if axis == groups else np.eye(self._axes.sizes[axis])[:, self._axes.between(groups, axis)]


def densities_of_groups(plan: SweepPlan, observed: Sequence[Axes], precisions: Float) -> dict[Axes, Float]:
    """Information about every table of the sweeps from some observed ones, cell by cell of its groups and recodes."""
    axes = plan.axes
    found: dict[Axes, Float] = {}
    for table, precision in zip(observed, precisions.tolist(), strict=True):
        for mask in plan.lattice.below(plan.mask_of(table)):
            own = plan.within(table, mask)
            density = np.full((), precision)
            for axis in table:
                if axis in own:
                    if axes.groups_of[axis] < -1:
                        density = np.repeat(density[..., None], axes.sizes[axis], axis=-1)
                elif axes.groups_of[axis] >= 0:
                    density = density[..., None] / axes.group_sizes[axes.groups_of[axis]]
                else:
                    density = density / axes.sizes[axis]
            found[own] = found.get(own, 0.0) + density.ravel()
    return found


def variance_parts(plan: SweepPlan, table: Axes) -> list[tuple[int, int, Axes]]:
    """The components that a table's variances are sums over, what each shares with it, and axes of groups that count.

    These are what the table sees of variables that the component does not keep whole.
    """
    axes, found = plan.axes, []
    for mask, meet, _ in plan.lattice.contrasts_of(plan.mask_of(table)):
        whole = {axes.groups_of[axis] for axis in plan.whole(mask)}
        groups = [axis for axis in plan.within(table, mask) if axes.groups_of[axis] < -1]
        found.append((mask, meet, tuple([axis for axis in groups if axes.groups_axis(axis) not in whole])))
    return found


def variances_of_groups(
    plan: SweepPlan, table: Axes, parts: list[tuple[int, int, Axes]], variances: dict[Component, Float]
) -> Float:
    """Variances of a table's cells, (cells,), where they differ by the groups of its variables."""
    axes = plan.axes
    sizes: list[Any] = []  # of the groups that an axis tells apart
    shape = []
    for place, axis in enumerate(table):
        own = axes.sizes_of_groups(axis)
        shape.append(own.size if axes.groups_of[axis] != -1 else 1)
        sizes.append(own.reshape(-1, *[1] * (len(table) - place - 1)) if own.size > 1 else float(own[0]))
    total, shares = np.zeros(shape), dict[int, Any]()
    for mask, meet, seen in parts:
        counts = [axis in seen or axes.groups_of[axis] in seen for axis in table]
        variance = variances[mask, seen].reshape([n if own else 1 for n, own in zip(shape, counts, strict=True)])
        whole, share = set(plan.whole(mask)), 1.0
        for axis, size in zip(table, sizes, strict=True):
            if axes.groups_of[axis] < -1:
                if axes.levels_axis(axis) in whole:
                    variance = variance * size
            elif axis not in whole:
                share, variance = share / size, variance / size
        beside = whole - {axes.levels_axis(own) for own in table}
        shares[meet] = share - sum(other for inside, other in shares.items() if inside & meet == inside)
        total = total + shares[meet] * prod([axes.sizes[axis] for axis in beside]) * variance
    for place, axis in enumerate(table):
        if axes.groups_of[axis] >= -1:
            total = np.take(total, axes.groups_along(axis), axis=place)
    return total.ravel()
