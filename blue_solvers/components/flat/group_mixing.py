"""What tables that see groups of a variable through different recodes say together, component by component.

Contrasts within groups are seen by the variable itself alone. Of what is left, a component's tables see the sums over
groups, or coarser sums: a least-squares problem of as many unknowns as there are groups, solved once for all contrasts
along the other variables. Its solution makes every table's values from those of all, by one small matrix.
"""

from __future__ import annotations

from math import prod

import numpy as np

from blue_solvers.components.flat.grouped_axes import GroupedAxes
from blue_solvers.components.flat.mixed_lines import Laid, component_lines, mix_lines
from blue_solvers.components.flat.shared_steps import PARTS, cut, is_large
from blue_solvers.components.size import MOST_GROUPS
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.tree.messages import Telling, combine
from blue_solvers.components.tree.tree_variances import squares_of_sums
from blue_solvers.threads import Workers
from constraint_builders.arrays import Flags, Float
from constraint_builders.relations.closed_tables import ClosedTables, TooManyTablesError

Component = tuple[int, ...]  # its axes of levels
ENTRY_BYTES = 32  # of the matrices for noisy and exact values, and as much while they are made


class GroupMixing:
    """Matrices of all components of several groups.

    Parameters
    ----------
    axes : GroupedAxes
    tables : ClosedTables
    noisy, exact : ndarray, (tables,)
        Precision of every table with all that were added to it; of exact ones their number.
    most_products : float
        That mixing one column may take.
    most_bytes : float
        That matrices may take while they are made.

    Attributes
    ----------
    mixed : ndarray of bool, (tables,)
        The tables of these components.
    variances : dict of ndarray
        Of each of them the variance of its component's part, cell by cell of its groups and recodes.

    Raises
    ------
    TooManyTablesError
        If there are more groups, products or bytes than are allowed.
    """

    def __init__(
        self,
        axes: GroupedAxes,
        tables: ClosedTables,
        noisy: Float,
        exact: Float,
        most_products: float,
        most_bytes: float,
    ) -> None:
        self._axes, self._tables = axes, tables
        self._steps = np.array([*(own >= -1 for own in axes.instead), False])
        levels = np.array([axis for axis, _ in axes.several])
        whole = (tables.kept[:, :, None] == levels).any(axis=1)
        self.mixed: Flags = ~whole.all(axis=1)
        self.variances: dict[int, Float] = {}
        self._heads: list[list[int]] = []
        self._outer: list[list[int]] = []
        self._lines: list[list[int]] = []
        matrices: tuple[list[Float], list[Float]] = ([], [])
        entries = products = 0
        for components in self._alike(noisy > 0, exact > 0):
            for members in components:
                size, contrasts = self._lay(members, entries)
                entries, products = entries + size, products + size * contrasts
                if products > most_products or ENTRY_BYTES * entries > most_bytes:
                    raise TooManyTablesError
            for kept, found in zip(matrices, self._solve(components, noisy, exact), strict=True):
                kept.append(found.ravel())
        width = max(map(len, self._outer), default=0)
        heads = np.array(self._heads, dtype=np.int64).reshape(-1, 4)
        outer = np.array([[1] * (width - len(own)) + own for own in self._outer], dtype=np.int64)
        lines = np.array([[own[0], *[0] * (width + 1 - len(own)), *own[1:]] for own in self._lines], dtype=np.int64)
        self._places = heads, outer.reshape(len(heads), width), lines.reshape(-1, width + 1)
        costs = heads[:, 1] ** 2 * heads[:, 2] * self._places[1].prod(axis=1)
        self._parts = cut(costs, PARTS if is_large(tables) else 1)
        self._noisy, self._exact = (np.concatenate([np.zeros(0), *own]) for own in matrices)

    def apply(self, cells: Float, workers: Workers, exactly: bool = False, transpose: bool = False) -> None:
        """Values of the tables of these components from information about them, in place."""
        mix, matrices = mix_lines.fastest(), self._exact if exactly else self._noisy
        heads, outer, lines = self._places
        workers.for_each(lambda own: mix(cells, heads[own], outer[own], lines, matrices, transpose), self._parts)

    def _lay(self, members: list[int], entries: int) -> tuple[int, int]:
        """Note where the lines of a component are, before whose matrix are others; its entries, and the contrasts."""
        contrasts = self._levels(members[0])
        lines, outer, inner = component_lines(
            [self._axes.shape[axis] for axis in contrasts], [self._laid(own, contrasts) for own in members]
        )
        self._heads.append([len(self._lines), len(lines), inner, entries])
        self._outer.append(outer)
        self._lines += lines
        return len(lines) ** 2, inner * prod(outer)

    def _laid(self, number: int, contrasts: Component) -> Laid:
        """Where the table lies."""
        kept = [axis for axis in self._tables.kept[number].tolist() if axis < len(self._axes.shape)]
        steps, step = {}, 1
        for axis in reversed(kept):
            steps[axis] = step
            step *= self._axes.shape[axis]
        groups = [(self._axes.shape[axis], steps[axis]) for axis in self._groups(number)]
        return Laid(int(self._tables.offsets[number]), groups, [steps[axis] for axis in contrasts])

    def _alike(self, noisy: Flags, exact: Flags) -> list[list[list[int]]]:
        """The tables of every component, those of components that see alike together."""
        of_component: dict[Component, list[int]] = {}
        for number in np.flatnonzero(self.mixed).tolist():
            of_component.setdefault(self._levels(number), []).append(number)
        alike: dict[tuple, list[list[int]]] = {}
        for component, members in of_component.items():
            several = tuple(axis for axis in component if self._axes.listed[axis] >= 0)
            seen = tuple((self._groups(own), bool(noisy[own]), bool(exact[own])) for own in members)
            alike.setdefault((several, seen), []).append(members)
        return list(alike.values())

    def _levels(self, number: int) -> Component:
        return tuple(axis for axis in self._tables.kept[number].tolist() if self._steps[axis])

    def _groups(self, number: int) -> tuple[int, ...]:
        """The table's axes of groups and recodes."""
        axes = self._tables.kept[number].tolist()
        return tuple(axis for axis in axes if axis < len(self._axes.shape) and not self._steps[axis])

    def _solve(self, components: list[list[int]], noisy: Float, exact: Float) -> tuple[Float, Float]:
        """Components that see alike: variances, and matrices, (components, L, L), of noisy and of exact values."""
        numbers = np.array(components)  # (components, tables)
        designs = [self._design(own) for own in components[0]]
        roots = [
            kronecker([self._axes.roots[axis][:, None] for axis in self._groups(own)])[:, 0] for own in components[0]
        ]
        ends = np.cumsum([0, *map(len, designs)])
        places = [slice(*ends[i : i + 2]) for i in range(len(designs))]
        matrices = np.zeros((2, len(numbers), ends[-1], ends[-1]))
        ones, zeros = np.ones(len(numbers)), np.zeros(len(numbers))
        sources, kinds = [], []
        for i, design in enumerate(designs):
            if noisy[numbers[0, i]] > 0:
                sources.append(Telling.measured(design, noisy[numbers[:, i]], zeros))
                kinds.append((i, 0, noisy))
            if exact[numbers[0, i]] > 0:
                sources.append(Telling.measured(design, zeros, ones))
                kinds.append((i, 1, exact))
        if not sources:
            for i, design in enumerate(designs):
                self.variances.update((int(own), np.zeros(len(design))) for own in numbers[:, i])
            return matrices[0], matrices[1]
        solution = combine(sources)
        for i, (design, root) in enumerate(zip(designs, roots, strict=True)):
            values = root[:, None] * design
            squares = squares_of_sums(values, solution.message.root)
            self.variances.update(zip(numbers[:, i].tolist(), squares, strict=True))
            for (j, kind, weights), gain in zip(kinds, solution.gains, strict=True):
                shares = values @ gain * roots[j] / weights[numbers[:, j]][:, None, None]
                matrices[kind, :, places[i], places[j]] = shares
        return matrices[0], matrices[1]

    def _design(self, number: int) -> Float:
        """What a table sees of the groups of variables that it does not keep whole, (cells, groups)."""
        kept = self._tables.kept[number].tolist()
        factors = []
        for levels, sizes in self._axes.several:
            if levels in kept:
                continue
            after = next((axis for axis, _ in self._axes.several if axis > levels), len(self._axes.shape))
            own = [axis for axis in range(levels + 1, after) if axis in kept and axis in self._axes.whitened]
            factors.append(self._axes.whitened[own[0]] if own else np.sqrt(sizes)[None])
        if prod(factor.shape[1] for factor in factors) > MOST_GROUPS:
            raise TooManyTablesError
        return kronecker(factors)
