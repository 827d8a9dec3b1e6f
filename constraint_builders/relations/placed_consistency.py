"""Self-consistency between tables at places: geounits of a spine, or areas.

For one component (`functionals`) every place has as many measurements as it has tables that hold it. They give one
equation for each but the most precise. That one stands for the place in what holds between places, which is a matter
of where the component was measured at all. Nothing else is related, so these equations are independent, and their
number is the rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine_or_areas import Places
from constraint_builders.description.table import Table
from constraint_builders.relations.constraints import next_above, require_constraint_memory
from constraint_builders.relations.functional_rows import Component, FunctionalRows
from constraint_builders.relations.marginals import cell_map


class PlacedConsistency(ABC):
    """The equations that hold between tables of all places, whatever the counts.

    Parameters
    ----------
    schema : Schema
    places : Spine or Areas
    levels : sequence of int
        Level of every observed table, in the order of the layout.
    tables : sequence of Table
    cell_variances : sequence of ndarray (places of the level,)
        A typical variance of a cell in each place; 0 exact, ``inf`` not measured.
    other_factors : iterable of str
        Factors of other tables whose components will be asked for.
    """

    def __init__(
        self,
        schema: Schema,
        places: Places,
        levels: Sequence[int],
        tables: Sequence[Table],
        cell_variances: Sequence[NDArray[np.float64]],
        other_factors: Iterable[str] = (),
    ) -> None:
        self._schema = schema
        self._places = places
        self._levels = tuple(levels)
        self._tables = tuple(tables)
        self._variances = [np.asarray(v, dtype=float) for v in cell_variances]
        repeats = [places.members[level].size for level in levels]
        self._functionals = FunctionalRows(schema, tables, repeats, other_factors)
        self._determined: dict[Component, Flags] = {}

    @abstractmethod
    def _determined_by(self, has: Flags) -> Flags:
        """At which places measurements at some determine what is measured there, (N,)."""

    @abstractmethod
    def _between(self, has: Flags) -> sparse.csr_array:
        """Independent equations between the measured places, of one number each, (rows, N)."""

    @abstractmethod
    def _count_between(self, has: Flags) -> int:
        """Their number."""

    @abstractmethod
    def _sums_between(self, index: int) -> list[sparse.csr_array]:
        """Redundant equations between the cells of a table and those of the same table elsewhere."""

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

    def _has(self, component: Component) -> Flags:
        """At which places some table of a component was measured, (N,)."""
        has = np.zeros(self._places.size, dtype=bool)
        for index in self.holders.get(component, (0, []))[1]:
            has[self._places.members[self._levels[index]]] |= np.isfinite(self._variances[index])
        return has

    def _measured(self, component: Component) -> tuple[NDArray[np.int64], Flags]:
        """For a component the most precise table of every place, (N,) with -1 for none; where there is one."""
        best = np.full(self._places.size, np.inf)
        centre = np.full(self._places.size, -1, dtype=np.int64)
        for index in self.holders[component][1]:
            members = self._places.members[self._levels[index]]
            variance = self._variances[index] * self._functionals.summed(index, component)
            better = np.isfinite(variance) & ((variance < best[members]) | (centre[members] < 0))
            centre[members[better]] = index
            best[members[better]] = variance[better]
        return centre, centre >= 0

    def determined(self, component: Component) -> Flags:
        """At which places the measurements of all places determine a component, (N,)."""
        if component not in self._determined:
            self._determined[component] = self._determined_by(self._has(component))
        return self._determined[component]

    @cached_property
    def rank(self) -> int:
        """Rank of the constraint matrix."""
        total = 0
        for component, (count, indices) in self.holders.items():
            has = self._has(component)
            measured = sum(int(np.isfinite(self._variances[index]).sum()) for index in indices)
            total += count * (measured - int(has.sum()) + self._count_between(has))
        return total

    def tied_places(self) -> list[Flags]:
        """For every table at which places of its level an equation speaks of its cells, (places,).

        What holds between tables of a variable holds between their totals, of which all of their cells are a part.
        """
        _, tables, places, _ = self._relations(())
        tied = [np.zeros(variances.size, dtype=bool) for variances in self._variances]
        for index, own in enumerate(tied):
            own[self._places.rank_in_level[places[tables == index]]] = True
        return tied

    def matrix(self, rows: str = "independent") -> sparse.csr_array:
        """The constraint matrix A; see `SelfConsistency.matrix`.

        ``rows="all"`` adds a row for every cell of a table next above another at its place, and of a table
        measured at all places that make up another which has it too.
        """
        redundant = self._redundant_rows() if rows == "all" else []
        require_constraint_memory(self._functionals, sum(block.nnz for block in redundant))
        matrix = sparse.vstack([self._independent_rows(), *redundant], format="csr")
        return sparse.csr_array(matrix, dtype=np.float64)

    def _independent_rows(self) -> sparse.csr_array:
        rows, columns, signs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
        start = 0
        for component, (count, _) in self.holders.items():
            relation, table, place, sign = self._relations(component)
            for index in np.unique(table).tolist():
                chosen = np.flatnonzero(table == index)
                first = self._places.rank_in_level[place[chosen]] * self._tables[index].size
                rows.append((start + relation[chosen, None] * count + np.arange(count)).ravel())
                columns.append((first[:, None] + self._functionals.rows(index, component)).ravel())
                signs.append(np.repeat(sign[chosen], count))
            start += count * (int(relation.max(initial=-1)) + 1)
        shape = (start, self._functionals.size)
        entries = (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns)))
        return sparse.csr_array(sparse.csr_array(entries, shape=shape) @ self._functionals.matrix())

    def _relations(self, component: Component) -> tuple[NDArray[np.int64], NDArray[np.int64], Index, NDArray]:
        """Entries (relation, table, place, factor) of one component's equations, each for one functional."""
        centre, has = self._measured(component)
        others = [
            (index, members[np.isfinite(self._variances[index]) & (centre[members] != index)])
            for index, members in ((i, self._places.members[self._levels[i]]) for i in self.holders[component][1])
        ]
        table = np.concatenate([np.full(members.size, index) for index, members in others])
        place = np.concatenate([members for _, members in others])
        within = np.arange(table.size)
        between = self._between(has).tocoo()
        signs = np.repeat(np.array([1, -1], np.int8), table.size)
        return (
            np.concatenate([within, within, table.size + between.row]),
            np.concatenate([table, centre[place], centre[between.col]]),
            np.concatenate([place, place, between.col]),
            np.concatenate([signs, between.data]),
        )

    def _redundant_rows(self) -> list[sparse.csr_array]:
        within = [self._sums_within(fine, coarse) for fine, coarse in self._pairs_within()]
        return within + [block for index in range(len(self._tables)) for block in self._sums_between(index)]

    def _pairs_within(self) -> list[tuple[int, int]]:
        pairs = []
        for level in sorted(set(self._levels)):
            tables = [(i, self._tables[i]) for i, own in enumerate(self._levels) if own == level]
            pairs += list(next_above(self._schema, tables))
        return pairs

    def _sums_within(self, fine: int, coarse: int) -> sparse.csr_array:
        """One equation for every cell of a table next above another, at places where both were measured."""
        both = np.flatnonzero(np.isfinite(self._variances[fine]) & np.isfinite(self._variances[coarse]))
        cells = np.arange(self._tables[coarse].size)
        mapping = cell_map(self._schema, self._tables[fine], self._tables[coarse])
        rows = np.arange(both.size)[:, None] * cells.size
        return self._equations(
            both.size * cells.size,
            ((rows + mapping).ravel(), self._cells(fine, both).ravel(), 1),
            ((rows + cells).ravel(), self._cells(coarse, both).ravel(), -1),
        )

    def _cells(self, index: int, ranks: NDArray) -> NDArray[np.int64]:
        """Columns of a table's cells at places given by their number within the level, (places, cells)."""
        size = self._tables[index].size
        return self._functionals.offsets[index] + ranks[:, None] * size + np.arange(size)

    def _equations(self, count: int, *terms: tuple[NDArray, NDArray, Any]) -> sparse.csr_array:
        rows = np.concatenate([row for row, _, _ in terms])
        columns = np.concatenate([column for _, column, _ in terms])
        signs = np.concatenate([np.broadcast_to(np.asarray(sign), row.shape) for row, _, sign in terms])
        return sparse.csr_array((signs, (rows, columns)), shape=(count, self._functionals.size))
