"""Self-consistency between tables at all geounits of a spine.

For one component (`functionals`) every geounit has as many measurements as it has tables that hold it. They give
one equation for each but the most precise. That one, and the nearest measured geounits below, give one more where
these cover the geounit without a gap: the parts add up to the whole. Nothing else is related, so these equations
are independent, and their number is the rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.relations.constraints import next_above, require_constraint_memory
from constraint_builders.relations.functional_rows import Component, FunctionalRows
from constraint_builders.relations.marginals import cell_map


class SpineConsistency:
    """The equations that hold between tables of all geounits, whatever the counts.

    Parameters
    ----------
    schema : Schema
    spine : Spine
    levels : sequence of int
        Geolevel of every observed table, in the order of the layout.
    tables : sequence of Table
    cell_variances : sequence of ndarray (geounits of the level,)
        A typical variance of a cell in each geounit; 0 exact, ``inf`` not measured.
    other_factors : iterable of str
        Factors of other tables whose components will be asked for.
    """

    def __init__(
        self,
        schema: Schema,
        spine: Spine,
        levels: Sequence[int],
        tables: Sequence[Table],
        cell_variances: Sequence[NDArray[np.float64]],
        other_factors: Iterable[str] = (),
    ) -> None:
        self._schema = schema
        self._spine = spine
        self._levels = tuple(levels)
        self._tables = tuple(tables)
        self._variances = [np.asarray(v, dtype=float) for v in cell_variances]
        repeats = [spine.members[level].size for level in levels]
        self._functionals = FunctionalRows(schema, tables, repeats, other_factors)
        self._determined: dict[Component, Flags] = {}

    @property
    def tables(self) -> tuple[Table, ...]:
        """The observed tables."""
        return self._tables

    def components(self, table: Table) -> Iterator[tuple[Component, int]]:
        """The components of a table of factors in use, with the number of functionals in each."""
        return self._functionals.components(table)

    @cached_property
    def holders(self) -> dict[Component, tuple[int, list[int]]]:
        """For every component the number of its functionals and the tables, by number, that hold it."""
        found: dict[Component, tuple[int, list[int]]] = {}
        for index, table in enumerate(self._tables):
            for component, count in self._functionals.components(table):
                found.setdefault(component, (count, []))[1].append(index)
        return found

    def _measured(self, component: Component) -> tuple[NDArray[np.int64], Flags]:
        """For a component the most precise table of every geounit, (N,) with -1 for none; where there is one."""
        best = np.full(self._spine.size, np.inf)
        centre = np.full(self._spine.size, -1, dtype=np.int64)
        for index in self.holders[component][1]:
            members = self._spine.members[self._levels[index]]
            variance = self._variances[index] * self._functionals.summed(index, component)
            better = np.isfinite(variance) & ((variance < best[members]) | (centre[members] < 0))
            centre[members[better]] = index
            best[members[better]] = variance[better]
        return centre, centre >= 0

    def _has(self, component: Component) -> Flags:
        """At which geounits some table of a component was measured, (N,)."""
        has = np.zeros(self._spine.size, dtype=bool)
        for index in self.holders[component][1]:
            has[self._spine.members[self._levels[index]]] |= np.isfinite(self._variances[index])
        return has

    def _covered(self, has: Flags) -> Flags:
        """Geounits whose children are each measured, or covered in turn."""
        spine = self._spine
        covered = spine.child_counts > 0
        for members in reversed(spine.members):
            known = has[members] | covered[members]
            parents = spine.parent[members[~known]]
            covered[parents[parents >= 0]] = False
        return covered

    def determined(self, component: Component) -> Flags:
        """At which geounits the measurements of all geounits determine a component, (N,)."""
        if component not in self._determined:
            self._determined[component] = self._find_determined(component)
        return self._determined[component]

    def _find_determined(self, component: Component) -> Flags:
        if component not in self.holders:
            return np.zeros(self._spine.size, dtype=bool)
        spine = self._spine
        has = self._has(component)
        from_below = has if has.all() else has | self._covered(has)
        if from_below.all():
            return from_below
        unknown = np.bincount(spine.parent[(spine.parent >= 0) & ~from_below], minlength=spine.size)
        determined = from_below.copy()
        for members in spine.members:
            parents = spine.parent[members]
            above = (parents >= 0) & determined[parents] & (unknown[parents] == 1)
            determined[members] |= above
        return determined

    @cached_property
    def rank(self) -> int:
        """Rank of the constraint matrix."""
        total = 0
        for component, (count, indices) in self.holders.items():
            has = self._has(component)
            measured = sum(int(np.isfinite(self._variances[index]).sum()) for index in indices)
            total += count * (measured - int(has.sum()) + int((has & self._covered(has)).sum()))
        return total

    def matrix(self, rows: str = "independent") -> sparse.csr_array:
        """The constraint matrix A; see `SelfConsistency.matrix`.

        ``rows="all"`` adds a row for every cell of a table next above another in its geounit, and of a table
        measured in all children of a geounit that has it too.
        """
        redundant = self._redundant_rows() if rows == "all" else []
        require_constraint_memory(self._functionals, sum(block.nnz for block in redundant))
        matrix = sparse.vstack([self._independent_rows(), *redundant], format="csr")
        return sparse.csr_array(matrix, dtype=np.float64)

    def _independent_rows(self) -> sparse.csr_array:
        rows, columns, signs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
        start = 0
        for component, (count, _) in self.holders.items():
            relation, table, geounit, sign = self._relations(component)
            for index in np.unique(table).tolist():
                chosen = np.flatnonzero(table == index)
                first = self._spine.rank_in_level[geounit[chosen]] * self._tables[index].size
                rows.append((start + relation[chosen, None] * count + np.arange(count)).ravel())
                columns.append((first[:, None] + self._functionals.rows(index, component)).ravel())
                signs.append(np.repeat(sign[chosen], count))
            start += count * (int(relation.max(initial=-1)) + 1)
        shape = (start, self._functionals.size)
        entries = (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns)))
        return sparse.csr_array(sparse.csr_array(entries, shape=shape) @ self._functionals.matrix())

    def _relations(
        self, component: Component
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray, NDArray[np.int8]]:
        """Entries (relation, table, geounit, sign) of one component's equations, each for one functional."""
        spine = self._spine
        centre, has = self._measured(component)
        others = [
            (index, members[np.isfinite(self._variances[index]) & (centre[members] != index)])
            for index, members in ((i, spine.members[self._levels[i]]) for i in self.holders[component][1])
        ]
        table = np.concatenate([np.full(members.size, index) for index, members in others])
        geounit = np.concatenate([members for _, members in others])
        within = np.arange(table.size)
        whole = np.flatnonzero(has & self._covered(has))
        number = np.full(spine.size, -1)
        number[whole] = table.size + np.arange(whole.size)
        nearest = self._nearest_measured_above(has)
        parts = np.flatnonzero(has & (nearest >= 0))
        parts = parts[number[nearest[parts]] >= 0]
        return (
            np.concatenate([within, within, number[whole], number[nearest[parts]]]),
            np.concatenate([table, centre[geounit], centre[whole], centre[parts]]),
            np.concatenate([geounit, geounit, whole, parts]),
            np.repeat(np.array([1, -1, 1, -1], np.int8), [table.size, table.size, whole.size, parts.size]),
        )

    def _nearest_measured_above(self, has: Flags) -> NDArray[np.int64]:
        """For every geounit the nearest measured one strictly above it, or -1."""
        spine = self._spine
        nearest = np.full(spine.size, -1, dtype=np.int64)
        for members in spine.members[1:]:
            parents = spine.parent[members]
            nearest[members] = np.where(has[parents], parents, nearest[parents])
        return nearest

    def _redundant_rows(self) -> list[sparse.csr_array]:
        within = [self._sums_within(fine, coarse) for fine, coarse in self._pairs_within()]
        return within + [block for index in range(len(self._tables)) for block in self._sums_over_children(index)]

    def _pairs_within(self) -> list[tuple[int, int]]:
        pairs = []
        for level in sorted(set(self._levels)):
            tables = [(i, self._tables[i]) for i, own in enumerate(self._levels) if own == level]
            pairs += list(next_above(self._schema, tables))
        return pairs

    def _sums_within(self, fine: int, coarse: int) -> sparse.csr_array:
        """One equation for every cell of a table next above another, at geounits where both were measured."""
        both = np.flatnonzero(np.isfinite(self._variances[fine]) & np.isfinite(self._variances[coarse]))
        cells = np.arange(self._tables[coarse].size)
        mapping = cell_map(self._schema, self._tables[fine], self._tables[coarse])
        rows = np.arange(both.size)[:, None] * cells.size
        return self._equations(
            both.size * cells.size,
            ((rows + mapping).ravel(), self._cells(fine, both).ravel(), 1),
            ((rows + cells).ravel(), self._cells(coarse, both).ravel(), -1),
        )

    def _sums_over_children(self, index: int) -> list[sparse.csr_array]:
        """One equation for every cell of a table, at geounits all of whose children, of one level, have it measured."""
        spine = self._spine
        members = spine.members[self._levels[index]]
        found = []
        for other, table in enumerate(self._tables):
            if table.name != self._tables[index].name or self._levels[other] <= self._levels[index]:
                continue
            children = spine.members[self._levels[other]]
            measured = np.isfinite(self._variances[other])
            counts = np.bincount(spine.parent[children[measured]], minlength=spine.size)
            complete = (counts == spine.child_counts) & (counts > 0)
            parents = np.flatnonzero(np.isfinite(self._variances[index]) & complete[members])
            number = np.full(spine.size, -1)
            number[members[parents]] = np.arange(parents.size)
            parts = np.flatnonzero(number[spine.parent[children]] >= 0)
            cells = np.arange(table.size)
            own_rows = np.arange(parents.size)[:, None] * cells.size + cells
            mapping = cell_map(self._schema, table, self._tables[index])  # their names may order the factors otherwise
            part_rows = number[spine.parent[children[parts]]][:, None] * cells.size + mapping
            found.append(
                self._equations(
                    parents.size * cells.size,
                    (part_rows.ravel(), self._cells(other, parts).ravel(), 1),
                    (own_rows.ravel(), self._cells(index, parents).ravel(), -1),
                )
            )
        return found

    def _cells(self, index: int, ranks: NDArray) -> NDArray[np.int64]:
        """Columns of a table's cells at geounits given by their number within the level, (geounits, cells)."""
        size = self._tables[index].size
        return self._functionals.offsets[index] + ranks[:, None] * size + np.arange(size)

    def _equations(self, count: int, *terms: tuple[NDArray, NDArray, int]) -> sparse.csr_array:
        rows = np.concatenate([row for row, _, _ in terms])
        columns = np.concatenate([column for _, column, _ in terms])
        signs = np.concatenate([np.full(row.size, sign, dtype=np.int8) for row, _, sign in terms])
        return sparse.csr_array((signs, (rows, columns)), shape=(count, self._functionals.size))
