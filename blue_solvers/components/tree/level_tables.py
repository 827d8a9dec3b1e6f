"""The tables of a geolevel, measured or wanted, as what one of the two passes reads or writes.

Geounits are in slots, as a basis of contrasts and group sums has them, (G, ..., K). Leaves with the same tables and
variances are in cells, of which `LeafPlan` makes their own estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce

import numpy as np

from blue_solvers.components.component_products import TableAccess
from blue_solvers.components.lattice.plan import TooManyCellsError
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.table_sums import LeafPlan, SameCellsError, TableSums
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index, as_slice, distinct_numbers

LEAST_NUMBERS = 1 << 16  # of leaves with the same tables and variances, from which on they are worked on in cells
Rows = slice | Index
NONE = np.zeros(0, dtype=np.intp)


class LevelTables:
    """Tables of a geolevel.

    Parameters
    ----------
    blocks : list of int
        Which they are of all tables of a layout.
    geounits : int
        Of the level.
    finest : list of int, optional
        Which of them is the finest of all, where slots of geounits may be kept in its place between the passes.
    """

    def __init__(self, blocks: Sequence[int], geounits: int, finest: Sequence[int] = ()) -> None:
        self._blocks, self._geounits, self._finest = blocks, geounits, finest

    def of(self, tables: Sequence[Float]) -> list[Float]:
        """Each, of all tables of the layout, (G, ..., K), in its place, (G, cells, K)."""
        return [tables[i].reshape(self._geounits, -1, tables[i].shape[-1]) for i in self._blocks]

    def room(self, tables: Sequence[Float], shape: tuple[int, ...]) -> Float:
        """Memory of a shape, (G, ..., K), for what the level's geounits hold between the passes."""
        return tables[self._finest[0]].reshape(-1, *shape[1:]) if self._finest else np.empty(shape)


class WantedTables(LevelTables):
    """Tables that are sums of cells."""

    def __init__(self, problem: StructuredProblem, plan: TreePlan, number: int) -> None:
        blocks = [i for i, own in enumerate(problem.desired_levels) if own == number]
        self._level, self._zeros, self._plan = plan.levels[number], problem.zeros, plan
        finest = [i for i in blocks if problem.desired_tables[i].name == plan.finest.name]
        super().__init__(blocks, self._level.members.size, finest)
        self._basis = Basis(plan.groupings)
        self._sums = TableSums(problem.schema, plan.finest, [problem.desired_tables[i] for i in blocks])

    def read(self, tables: Sequence[Float], rows: Rows, columns: int) -> Float:
        """What they say of some geounits, in slots, (G, ..., K)."""
        shape = self._level.members[rows].size, *(g.levels for g in self._plan.groupings), columns
        block = self._sums.spread([own[rows] for own in tables]).reshape(shape) if tables else np.zeros(shape)
        self._empty(block, rows)
        self._basis.to_slots(block)
        return block

    def write(self, slots: Float, tables: Sequence[Float], rows: Rows) -> None:
        """The transpose, from slots (G, ..., K): set them at some geounits; cells are left in place of the slots."""
        self._basis.to_cells(slots)
        self._empty(slots, rows)
        for table, own in zip(tables, self._sums(slots), strict=True):
            table[rows] = own.reshape(len(own), -1, own.shape[-1])

    def read_leaves(self, tables: Sequence[Float], kind: int, cells: Float) -> None:
        """Add what they say of leaves of a kind, of tables (G, cells, K) of these, to cells, (G, ..., K)."""
        if tables:
            cells += self._sums.spread(tables).reshape(cells.shape)

    def write_leaves(self, cells: Float, kind: int) -> list[Float]:
        """The transpose: tables of some leaves, from cells (G, ..., K)."""
        return [own.reshape(len(own), -1, own.shape[-1]) for own in self._sums(cells)]

    def _empty(self, block: Float, rows: Rows) -> None:
        """Set to 0 in (G, ..., K) what is known to be, and which large exact counts beside leave rounding in."""
        if self._plan.has_zeros:
            lengths = [g.levels if g.axis in self._zeros.axes else 1 for g in self._plan.groupings]
            flags = self._zeros.empty[self._level.members[rows]].reshape(len(block), *lengths, 1)
            np.copyto(block, 0.0, where=np.broadcast_to(flags, block.shape))


class MeasuredTables(LevelTables):
    """Tables from which geounits are estimated.

    Attributes
    ----------
    rows : list of ndarray of int
        Which members of the level are worked on in cells, by kind: those without children that measured their finest
        table and all else alike, where nothing is known exactly; few of a kind are not, nor such with too many groups.
        At last all others, which are worked on in slots.
    """

    def __init__(
        self, problem: StructuredProblem, plan: TreePlan, number: int, coefficients: Sequence[Coefficients]
    ) -> None:
        self._level, self._plan, self._coefficients = plan.levels[number], plan, coefficients
        super().__init__([i for i, _ in self._level.tables], self._level.members.size)
        self.rows: list[Index] = []
        self._kinds: list[tuple[list[int], LeafPlan]] = []
        names = [table.name for _, table in self._level.tables]
        if plan.finest.name in names and not plan.has_zeros:
            self._plan_leaves(names.index(plan.finest.name))
        self.rows.append(np.delete(np.arange(self._level.members.size), np.concatenate([NONE, *self.rows])))

    def _plan_leaves(self, finest: int) -> None:
        level = self._level
        is_leaf = self._plan.spine.child_counts[level.members] == 0
        rows = np.flatnonzero(is_leaf & (level.weights[finest] > 0) & ~reduce(np.logical_or, level.exact))
        classes, kind_of = distinct_numbers(level.class_of[as_slice(rows)])
        many = np.bincount(kind_of, minlength=classes.size) * self._plan.finest.size >= LEAST_NUMBERS
        for kind in np.flatnonzero(many).tolist():
            own = rows[kind_of == kind]
            weights = np.array([by_leaf[own[0]] for by_leaf in level.weights])
            used = [finest, *(i for i in np.flatnonzero(weights).tolist() if i != finest)]
            try:
                found = LeafPlan(self._plan.schema, [level.tables[i][1] for i in used], weights[used])
            except (SameCellsError, TooManyCellsError):
                continue
            self.rows.append(own)
            self._kinds.append((used, found))

    def read(self, tables: Sequence[Float], rows: Rows, columns: int) -> Float:
        """What they say of some geounits, in slots, (G, ..., K)."""
        level = self._level
        block = np.zeros((level.class_of[rows].size, *(g.levels for g in self._plan.groupings), columns))
        entries = level.class_of[rows] - level.first_class
        for i in self._told(rows):
            self._access[i].add_to_slots(self._access[i].coordinates(tables[i][rows]), entries, block)
        return block

    def write(self, slots: Float, tables: Sequence[Float], rows: Rows) -> None:
        """The transpose, from slots (G, ..., K): set them at some geounits."""
        entries = self._level.class_of[rows] - self._level.first_class
        for i in self._told(rows):
            coordinates = self._access[i].from_slots(slots, entries)
            tables[i][rows] = self._access[i].cells(coordinates).reshape(len(slots), -1, slots.shape[-1])

    def _told(self, rows: Rows) -> list[int]:
        """Tables that were measured in some of these geounits."""
        pairs = zip(self._level.weights, self._level.exact, strict=True)
        return [i for i, own in enumerate(pairs) if any(told[rows].any() for told in own)]

    @cached_property
    def _access(self) -> list[TableAccess]:
        """The level's tables, with what each tells of all components."""
        plan, found = self._plan, []
        for t, table in self._level.tables:
            pairs = zip(plan.components, self._coefficients, strict=True)
            told = [(component, own.matrices[t]) for component, own in pairs if t in own.matrices]
            found.append(TableAccess(plan.maps[table.name], told))
        return found

    def read_leaves(self, tables: Sequence[Float], kind: int, cells: Float) -> None:
        """Add estimates of leaves of a kind, from tables (G, cells, K) of these, to cells without gaps, (G, ..., K)."""
        used, plan = self._kinds[kind]
        finest, *others = [tables[i] for i in used]
        plan.estimate(finest, others, cells.reshape(finest.shape))

    def write_leaves(self, cells: Float, kind: int) -> list[Float]:
        """The transpose: tables of some leaves, (G, cells, K) or (1, 1, 1); cells, (G, ..., K), are used up."""
        used, plan = self._kinds[kind]
        finest = cells.reshape(len(cells), -1, cells.shape[-1])
        found = dict(zip(used, [finest, *plan.transpose(finest)], strict=True))
        nothing = np.zeros((1, 1, 1))
        return [found.get(i, nothing) for i in range(len(self._level.tables))]
