"""Desired tables as sums of measured ones, for values that agree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import Areas
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import NamedTables, Table
from constraint_builders.diagonals import diagonal_matrix
from constraint_builders.relations.bases import factors_cross
from constraint_builders.relations.elimination import eliminate
from constraint_builders.relations.equations import TableRelations
from constraint_builders.relations.marginals import Margin, cell_map, kronecker, margin_matrix, refines

if TYPE_CHECKING:
    from constraint_builders.measured import Measured

MOST_ELIMINATED = 20_000  # detailed cells, to find out what several tables determine together


def compose(spine: LevelledTree, known: Flags) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    """Geounits as sums and differences of those of which something is known.

    Parameters
    ----------
    spine : LevelledTree
    known : ndarray of bool, (N,)

    Returns
    -------
    csr_array, (N, N)
        A row for every geounit, of weights on the known ones; empty where these tell nothing of it.
    ndarray of bool, (N,)
        Which geounits are told: all of their children are, or their parent and all of their siblings.
    """
    below = np.flatnonzero(spine.parent >= 0)
    shape = spine.size, spine.size
    children = sparse.csr_array((np.ones(below.size), (spine.parent[below], below)), shape=shape)
    rows = diagonal_matrix(known.astype(float))
    while True:
        open_children = np.bincount(spine.parent[below], ~known[below], minlength=spine.size)
        above = np.where(spine.parent >= 0, spine.parent, 0)
        sums = ~known & (spine.child_counts > 0) & (open_children == 0)
        rest = ~known & ~sums & (spine.parent >= 0) & known[above] & (open_children[above] == 1)
        if not (sums | rest).any():
            return rows, known
        of_children = children @ rows  # of siblings those that are known: the open one has no row yet
        own = np.flatnonzero(rest)
        differences = rows[spine.parent[own]] - of_children[spine.parent[own]]
        spread = sparse.csr_array((np.ones(own.size), (own, np.arange(own.size))), shape=(spine.size, own.size))
        rows = sparse.csr_array(rows + diagonal_matrix(sums.astype(float)) @ of_children + spread @ differences)
        known = known | sums | rest


class SumsOfMeasured:
    """Wanted tables as sums and differences of measured ones, of any level.

    Parameters
    ----------
    measured : Measured
    wanted : NamedTables
    """

    def __init__(self, measured: Measured, wanted: NamedTables) -> None:
        self._measured, self._wanted = measured, wanted
        self._schema, self._places = measured.domain.schema, measured.domain.places
        self._recodes_cross = factors_cross(self._schema, [*measured.observed_tables, *wanted.tables])

    def matrix(self) -> sparse.csr_array:
        """Desired cells as combinations of measured ones, (m, n).

        Raises
        ------
        ValueError
            If nothing measured determines a cell, which is named.
        """
        layout, tables, levels = self._wanted
        completed = self._completed()
        if completed is not None:
            return completed
        found = [self._of_one_table(level, table) for level, table in zip(levels, tables, strict=True)]
        missing = [i for i, block in enumerate(found) if block is None]
        if missing:
            wanted = [levels[i] for i in missing], [tables[i] for i in missing]
            relations = self._measured.relations
            assert isinstance(relations, TableRelations)
            possible = partial(relations.of_possible_cells, *wanted)
            between = possible() if self._recodes_cross else relations.structure_of_all(*wanted).matrix()
            across = self._across_levels(between, *wanted)
            if self._measured.has_zeros and any(lost is not None for _, lost in across):
                across = self._across_levels(possible(), *wanted)
            for i, (block, lost) in zip(missing, across, strict=True):
                if lost is not None:
                    cell = layout.describe(int(layout.offsets[i]) + lost)
                    raise ValueError(f"{cell} is not estimable: nothing measured determines it")
                found[i] = block
        return sparse.csr_array(sparse.vstack([block for block in found if block is not None], format="csr"))

    def _completed(self) -> sparse.csr_array | None:
        """The observed tables themselves, where all cells that were not measured follow from the others and no more."""
        m, relations = self._measured, self._measured.relations
        if self._wanted.layout.names != m.observed.names or self._wanted.tables != m.observed_tables:
            return None
        if m.has_equalities or m.has_zeros or not m.has_unmeasured:
            return None
        elimination = relations.open_elimination
        return None if elimination.free_columns.size else elimination.completing(~m.unmeasured)

    def _of_one_table(self, level: int, table: Table) -> sparse.csr_array | None:
        own = self._at_level(level, table)
        if own is None and isinstance(self._places, LevelledTree):
            return self._of_relatives(self._places, level, table)
        return self._of_leaves(level, table) if own is None else own

    def _of_relatives(self, spine: LevelledTree, level: int, table: Table) -> sparse.csr_array | None:
        """A table as sums and differences of measured ones of the geounits, their children, parents and siblings."""
        m, source = self._measured, np.full(spine.size, -1)
        for i in np.argsort([-observed.size for observed in m.observed_tables], kind="stable").tolist():
            if refines(self._schema, m.observed_tables[i], table):
                members = spine.members[m.observed_levels[i]]
                lacking = m.unmeasured[m.observed.block(i)].reshape(members.size, -1).any(axis=1)
                source[members[~lacking]] = i
        composed, known = compose(spine, source >= 0)
        members = spine.members[level]
        if not known[members].all():
            return None
        total = sparse.csr_array((members.size * table.size, m.observed.size))
        composed = composed[members].tocsc()
        for i in np.unique(source[np.flatnonzero(np.diff(composed.indptr))]).tolist():
            places = spine.members[m.observed_levels[i]]
            total = total + self._summed(sparse.csr_array(composed[:, places] * (source[places] == i)), i, table)
        return total

    def _at_level(self, level: int, table: Table) -> sparse.csr_array | None:
        """A table as sums of one observed table of its level, if one contains it and was measured everywhere."""
        m = self._measured
        for i in np.argsort([observed.size for observed in m.observed_tables], kind="stable").tolist():
            holds = m.observed_levels[i] == level and refines(self._schema, m.observed_tables[i], table)
            if holds and not m.unmeasured[m.observed.block(i)].any():
                return self._summed(sparse.eye_array(self._places.members[level].size, format="csr"), i, table)
        return None

    def _summed(self, places: sparse.csr_array, i: int, table: Table) -> sparse.csr_array:
        """A table as sums of an observed one of combinations of places, (cells, n)."""
        m = self._measured
        sums = kronecker(places, margin_matrix(self._schema, m.observed_tables[i], table))
        places_in = sums.indices + m.observed.offsets[i], sums.indptr
        return sparse.csr_array((sums.data, *places_in), shape=(sums.shape[0], m.observed.size))

    def _of_leaves(self, level: int, table: Table) -> sparse.csr_array | None:
        """A table of areas as sums of one of the leaves, if one contains it and was measured everywhere."""
        if not isinstance(self._places, Areas):
            return None
        for other, name in enumerate(self._places.levels):
            own = self._at_level(other, table) if other != level and self._places.layer(name).is_of_leaves else None
            if own is not None:
                spread = kronecker(self._places.leaves_of(level), sparse.eye_array(table.size, format="csr"))
                return sparse.csr_array(spread @ own)
        return None

    def _across_levels(
        self, relations: sparse.csr_array, levels: Sequence[int], tables: Sequence[Table]
    ) -> list[tuple[sparse.csr_array, int | None]]:
        """Tables from measurements of several levels, (cells, n), each with its first cell that is not estimable.

        They are unknowns of an extended set of equations, and eliminated.
        """
        n = self._measured.observed.size
        sizes = [self._places.members[level].size * table.size for level, table in zip(levels, tables, strict=True)]
        unknown = np.concatenate([np.flatnonzero(self._measured.unmeasured), np.arange(n, n + sum(sizes))])
        elimination = eliminate(relations, unknown)
        free = np.zeros(n + sum(sizes))
        free[elimination.free_columns] = 1
        open_ = np.append(abs(elimination.solved) @ free > 0, True)  # the last stands for cells without a row
        row_of = np.full(n + sum(sizes), -1)
        row_of[elimination.solved_columns] = np.arange(elimination.solved_columns.size)
        blocks: list[tuple[sparse.csr_array, int | None]] = []
        for rows in np.split(row_of[n:], np.cumsum(sizes)[:-1]):
            lost = np.flatnonzero(open_[rows])
            if lost.size:
                blocks.append((sparse.csr_array((rows.size, n)), int(lost[0])))
            else:
                blocks.append((sparse.csr_array(-elimination.solved[rows][:, :n]), None))
        return blocks


def is_small(measured: Measured) -> bool:
    """Whether detailed cells can be eliminated to find out what several tables determine together."""
    return measured.domain.size <= MOST_ELIMINATED


class Tabulation:
    """From the observed layout to the desired one.

    Parameters
    ----------
    measured : Measured
    wanted : NamedTables
    left_out : ndarray of bool, (m,), optional
        Desired cells that nobody asks for, whose `entries` are none.
    """

    def __init__(self, measured: Measured, wanted: NamedTables, left_out: Flags | None = None) -> None:
        self._measured = measured
        self._wanted = wanted
        self._left_out = left_out
        self._same = wanted.layout is measured.observed

    def apply(self, X: Float) -> Float:
        """Sum consistent values over the observed layout, (n, K), to the desired layout, (m, K)."""
        if self._same:
            return X.copy()
        if self._by_matrix:
            return self._matrix @ X
        result = np.empty((self._wanted.layout.size, X.shape[1]))
        for target, source, margin in self._margins:
            result[target] = margin.apply(X[source])
        return result

    def transpose(self, V: Float) -> Float:
        """The transpose of `apply`: (m, K) over the desired layout to (n, K) over the observed one."""
        if self._same:
            return V.copy()
        if self._by_matrix:
            return self._matrix.T @ V
        result = np.zeros((self._measured.observed.size, V.shape[1]))
        for target, source, margin in self._margins:
            result[source] += margin.transpose(V[target])
        return result

    def entries(self) -> sparse.csr_array:
        """Desired cells in terms of observed ones, (m, n), for consistent values; 0 for those that are left out."""
        if self._left_out is None:
            return self._all_entries()
        return sparse.csr_array(diagonal_matrix((~self._left_out).astype(float)) @ self._all_entries())

    def _all_entries(self) -> sparse.csr_array:
        m, w = self._measured, self._wanted
        if self._same:
            return sparse.csr_array(sparse.eye_array(m.observed.size, format="csr"))
        if self._by_matrix:
            return self._matrix
        pairs = zip(self._sources, w.tables, w.layout.offsets[:-1], strict=True)
        rows = [cell_map(m.domain.schema, m.observed_tables[i], table) + start for i, table, start in pairs]
        places = np.concatenate(rows), m.observed.cells(self._sources)
        return sparse.csr_array((np.ones(places[0].size), places), shape=(w.layout.size, m.observed.size))

    @cached_property
    def _margins(self) -> tuple[tuple[slice, slice, Margin], ...]:
        """For every desired table: its place, its source's place, and the margin between them."""
        m, w = self._measured, self._wanted
        return tuple(
            (w.layout.block(index), m.observed.block(source), Margin(m.domain.schema, m.observed_tables[source], table))
            for index, (table, source) in enumerate(zip(w.tables, self._sources, strict=True))
        )

    @cached_property
    def _sources(self) -> list[int]:
        """For every desired table, up to one that has none, the smallest observed table that it can be summed from."""
        m, found = self._measured, list[int]()
        if not m.is_tabular:
            return found
        if self._same and m.measured_tables.all():
            return list(range(len(self._wanted.tables)))
        schema = m.domain.schema
        order = sorted(np.flatnonzero(m.measured_tables).tolist(), key=lambda i: m.observed_tables[i].size)
        by_name = {m.observed_tables[i].name: i for i in order}
        holders: dict[int, list[int]] = {}
        for index in order:
            for axis in m.observed_tables[index].axes:
                holders.setdefault(axis, []).append(index)
        for table in self._wanted.tables:
            source = by_name.get(table.name)
            if source is None:
                kept = [axis for axis in table.axes if schema.shape[axis] > 1]
                candidates = min((holders.get(axis, []) for axis in kept), key=len, default=order)
                source = next((i for i in candidates if refines(schema, m.observed_tables[i], table)), None)
            if source is None:
                break
            found.append(source)
        return found

    @property
    def matrix(self) -> sparse.csr_array | None:
        """Desired cells in terms of measured ones, (m, n); None where each table is summed from one observed table."""
        return self._matrix if self._by_matrix else None

    @cached_property
    def _by_matrix(self) -> bool:
        """Whether some desired table may not be summed from one observed table."""
        needs_several = len(self._sources) < len(self._wanted.tables)
        return self._measured.is_placed or needs_several or not (self._same or self._measured.is_tabular)

    @cached_property
    def _matrix(self) -> sparse.csr_array:
        """Desired cells in terms of measured ones, (m, n), each perhaps of several tables."""
        sums = SumsOfMeasured(self._measured, self._wanted)
        return sums.matrix() if self._measured.is_placed else self._of_several(sums)

    def _of_several(self, sums: SumsOfMeasured) -> sparse.csr_array:
        """The matrix without a geography, where a table follows from several observed ones together."""
        lost = self._wanted.layout.names[len(self._sources)]
        if not is_small(self._measured):
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, and its detailed "
                f"cells are more than {MOST_ELIMINATED:,}, too many to find out whether several do together"
            )
        try:
            return sums.matrix()
        except ValueError:
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, nor do several together"
            ) from None
