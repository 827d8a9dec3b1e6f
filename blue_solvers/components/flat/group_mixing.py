"""What tables that see groups of a variable through different recodes say together, component by component.

Contrasts within groups are seen by the variable itself alone. Of what is left, a component's tables see the sums over
groups, or coarser sums: a least-squares problem of as many unknowns as there are groups, solved once for all contrasts
along the other variables. Its solution makes every table's values from those of all, as one sparse matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.flat.grouped_axes import GroupedAxes
from blue_solvers.components.size import MOST_GROUPS
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.tree.messages import Telling, combine
from blue_solvers.components.tree.tree_variances import squares_of_sums
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.relations.closed_tables import ClosedTables, TooManyTablesError

Component = tuple[int, ...]  # its axes of levels
ENTRY_BYTES = 32  # a value, its row and column, and the same sorted by rows


class GroupMixing:
    """Matrices of all components of several groups.

    Parameters
    ----------
    axes : GroupedAxes
    tables : ClosedTables
    noisy, exact : ndarray, (tables,)
        Precision of every table with all that were added to it; of exact ones their number.
    most_entries : float
        Of all matrices; each takes `ENTRY_BYTES` while they are made.

    Attributes
    ----------
    mixed : ndarray of bool, (tables,)
        The tables of these components.
    variances : dict of ndarray
        Of each of them the variance of its component's part, cell by cell of its groups and recodes.

    Raises
    ------
    TooManyTablesError
        If there are more groups, or more entries, than are allowed.
    """

    def __init__(
        self, axes: GroupedAxes, tables: ClosedTables, noisy: Float, exact: Float, most_entries: float
    ) -> None:
        self._axes, self._tables, self._most = axes, tables, most_entries
        self._steps = np.array([*(own >= -1 for own in axes.instead), False])
        levels = np.array([axis for axis, _ in axes.several])
        whole = (tables.kept[:, :, None] == levels).any(axis=1)
        self.mixed: Flags = ~whole.all(axis=1)
        places = np.zeros(tables.sizes.size, dtype=np.int64)
        places[self.mixed] = np.cumsum(tables.sizes[self.mixed]) - tables.sizes[self.mixed]
        self._places = places
        self._cells = np.flatnonzero(np.repeat(self.mixed, tables.sizes))
        self.variances: dict[int, Float] = {}
        self._entries: tuple[list[_Block], list[_Block]] = ([], [])
        places_of = cache(self._places_of)
        for members in self._alike(noisy > 0, exact > 0):
            self._solve(members, noisy, exact, places_of)
        self._noisy, self._exact = (self._matrix(own) for own in self._entries)

    def apply(self, cells: Float, exactly: bool = False, transpose: bool = False) -> None:
        """Values of the tables of these components from information about them, in place."""
        matrix = self._exact if exactly else self._noisy
        cells[self._cells] = (matrix.T if transpose else matrix) @ cells[self._cells]

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

    def _solve(
        self, components: list[list[int]], noisy: Float, exact: Float, places_of: Callable[[int], Index]
    ) -> None:
        """Components that see alike: their matrices and variances."""
        numbers = np.array(components)  # (components, tables)
        designs = [self._design(own) for own in components[0]]
        roots = [
            kronecker([self._axes.roots[axis][:, None] for axis in self._groups(own)])[:, 0] for own in components[0]
        ]
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
            return
        solution = combine(sources)
        for i, (design, root) in enumerate(zip(designs, roots, strict=True)):
            values = root[:, None] * design
            squares = squares_of_sums(values, solution.message.root)
            self.variances.update(zip(numbers[:, i].tolist(), squares, strict=True))
            for (j, kind, weights), gain in zip(kinds, solution.gains, strict=True):
                matrices = values @ gain * roots[j]
                for k, members in enumerate(numbers):
                    matrix = matrices[k] / weights[members[j]]
                    self._entries[kind].append(_Block(matrix, places_of(members[i]), places_of(members[j])))
                    self._most -= matrix.shape[0] * self._tables.sizes[members[j]]
                    if self._most < 0:
                        raise TooManyTablesError

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

    def _places_of(self, number: int) -> Index:
        """The table's cells, (groups, contrasts), numbered among those of all mixed tables."""
        kept = [axis for axis in self._tables.kept[number].tolist() if axis < len(self._axes.shape)]
        cells = np.arange(self._tables.sizes[number]).reshape([self._axes.shape[axis] for axis in kept])
        order = sorted(range(len(kept)), key=lambda i: bool(self._steps[kept[i]]))
        groups = prod(self._axes.shape[axis] for axis in self._groups(number))
        return self._places[number] + cells.transpose(order).reshape(groups, -1)

    def _matrix(self, blocks: list[_Block]) -> sparse.csr_array:
        size = self._cells.size
        ends = np.cumsum([0, *(block.entries for block in blocks)])
        values = np.empty(ends[-1])
        rows, columns = np.empty((2, ends[-1]), dtype=np.int32 if size <= np.iinfo(np.int32).max else np.int64)
        for block, (start, stop) in zip(blocks, pairwise(ends.tolist()), strict=True):
            block.write(values[start:stop], rows[start:stop], columns[start:stop])
        return sparse.csr_array((values, (rows, columns)), shape=(size, size))


@dataclass(frozen=True)
class _Block:
    """A matrix between the groups of two tables, the same for all contrasts."""

    matrix: Float
    rows: Index  # (groups, contrasts)
    columns: Index

    @property
    def entries(self) -> int:
        """How many."""
        return self.matrix.size * self.rows.shape[1]

    def write(self, values: Float, rows: NDArray[np.signedinteger], columns: NDArray[np.signedinteger]) -> None:
        """Values, rows and columns of all entries."""
        shape = (*self.matrix.shape, self.rows.shape[1])
        values.reshape(shape)[...] = self.matrix[:, :, None]
        rows.reshape(shape)[...] = self.rows[:, None]
        columns.reshape(shape)[...] = self.columns[None]
