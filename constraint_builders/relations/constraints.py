"""Self-consistency as sparse linear equations A x = 0 between the cells of observed tables at places.

Places are the geounits of a spine, of one where there is no geography, or areas. Along each variable, the sum over all
its levels and the levels but one are a basis of functionals (`bases`); products of these are a basis for every table,
in components that the same tables hold (`bases`). For one component every place has as many measurements as
it has tables that hold it. They give one equation for each but the most precise, which keeps the equations' noise as
little correlated as it can be. That one stands for the place in what holds between places, which is a matter of where
the component was measured at all. Nothing else is related, so these equations are independent, and their number is the
rank.
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
from constraint_builders.description.areas import Places
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.memory import require_memory
from constraint_builders.relations.bases import Component, FunctionalRows
from constraint_builders.relations.marginals import cell_map, refines

INT8_CELL_BYTES = 1 + 4
FLOAT_CELL_BYTES = 8 + 4


class SelfConsistency(ABC):
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
        self._measured_at = [
            places.members[level][np.isfinite(own)] for level, own in zip(levels, self._variances, strict=True)
        ]
        kinds: dict[bytes, int] = {}
        self._where = [kinds.setdefault(own.tobytes(), len(kinds)) for own in self._measured_at]
        self._some: dict[frozenset[int], Flags] = {}
        self._determined: dict[frozenset[int], Flags] = {}
        self._free: dict[frozenset[int], int] = {}
        self._joined: dict[frozenset[int], sparse.coo_array] = {}

    @abstractmethod
    def _determined_by(self, has: Flags) -> Flags:
        """At which places measurements at some determine what is measured there, (N,)."""

    @abstractmethod
    def _between(self, has: Flags) -> sparse.csr_array:
        """Independent equations between the measured places, of one number each, (rows, N)."""

    @abstractmethod
    def _count_between(self, has: Flags) -> int:
        """Their number, with flags of the measured places, (N,)."""

    @cached_property
    def holders(self) -> dict[Component, tuple[int, list[int]]]:
        """For every component the number of its functionals and the tables, by number, that hold it."""
        found: dict[Component, tuple[int, list[int]]] = {}
        for index, table in enumerate(self._tables):
            for component, count in self._functionals.components(table):
                found.setdefault(component, (count, []))[1].append(index)
        return found

    def _has(self, indices: Iterable[int]) -> tuple[frozenset[int], Flags]:
        """At which places some of the tables were measured, (N,), under a key that tables measured there share."""
        key = frozenset([self._where[index] for index in indices])
        if key not in self._some:
            has = self._some[key] = np.zeros(self._places.size, dtype=bool)
            for where in key:
                has[self._measured_at[self._where.index(where)]] = True
        return key, self._some[key]

    def _centres(self, component: Component) -> NDArray[np.int64]:
        """For a component the most precise table of every place, of equal ones that of least cells, (N,); -1 none."""
        best = np.full(self._places.size, np.inf)
        centre = np.full(self._places.size, -1, dtype=np.int64)
        summed = {index: self._functionals.summed(index, component) for index in self.holders[component][1]}
        for index in sorted(summed, key=lambda index: summed[index]):
            members = self._places.members[self._levels[index]]
            variance = self._variances[index] * summed[index]
            better = np.isfinite(variance) & ((variance < best[members]) | (centre[members] < 0))
            centre[members[better]] = index
            best[members[better]] = variance[better]
        return centre

    def determined(self, component: Component) -> Flags:
        """At which places the measurements of all places determine a component, (N,)."""
        key, has = self._has(self.holders.get(component, (0, []))[1])
        if key not in self._determined:
            self._determined[key] = self._determined_by(has)
        return self._determined[key]

    def undetermined(self, table: Table, members: Index) -> int | None:
        """A place among `members`, (k,), where the measurements do not determine a table, or None."""
        for component, _ in self._functionals.components(table):
            missing = np.flatnonzero(~self.determined(component)[members])
            if missing.size:
                return int(members[missing[0]])
        return None

    @cached_property
    def rank(self) -> int:
        """Rank of the constraint matrix."""
        return sum(count * self._relation_count(indices) for count, indices in self.holders.values())

    def _relation_count(self, indices: Iterable[int]) -> int:
        """How many equations hold between one number at places that some tables measure: all but what stays free."""
        key, has = self._has(indices)
        if key not in self._free:
            self._free[key] = int(has.sum()) - self._count_between(has)
        return sum([self._measured_at[index].size for index in indices]) - self._free[key]

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
        """The constraint matrix A.

        Parameters
        ----------
        rows : {"independent", "all"}
            `rank` many rows, or these and one for every cell of a table next above another at its place, and of a table
            measured at all places that make up another which has it too: redundant, and better conditioned for
            iterative solvers.

        Returns
        -------
        csr_array, (rows, n)
            Entries -1, 0, 1 but for weights of areas, as float64.

        Raises
        ------
        MemoryError
            If the matrix would not fit.
        """
        redundant = self._redundant_rows() if rows == "all" else []
        require_constraint_memory(self._functionals, sum(block.nnz for block in redundant))
        matrix = sparse.vstack([self._independent_rows(), *redundant], format="csr")
        kind = np.int32 if max(*matrix.shape, matrix.nnz) <= np.iinfo(np.int32).max else np.int64
        places = matrix.indices.astype(kind), matrix.indptr.astype(kind)
        return sparse.csr_array((matrix.data.astype(np.float64), *places), shape=matrix.shape)

    def _independent_rows(self) -> sparse.csr_array:
        rows, columns, signs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
        start = 0
        sizes = np.array([table.size for table in self._tables])
        for component, (count, indices) in self.holders.items():
            if not self._relation_count(indices):
                continue
            relation, table, place, sign = self._relations(component)
            own = np.array([self._functionals.rows(index, component) for index in indices])
            first = self._places.rank_in_level[place] * sizes[table]
            rows.append((start + relation[:, None] * count + np.arange(count)).ravel())
            columns.append((first[:, None] + own[np.searchsorted(indices, table)]).ravel())
            signs.append(np.repeat(sign, count))
            start += count * (int(relation.max()) + 1)
        shape = (start, self._functionals.size)
        entries = (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns)))
        return sparse.csr_array(sparse.csr_array(entries, shape=shape) @ self._functionals.matrix())

    def _relations(self, component: Component) -> tuple[NDArray[np.int64], NDArray[np.int64], Index, NDArray]:
        """Entries (relation, table, place, factor) of one component's equations, each for one functional."""
        centre, indices = self._centres(component), self.holders[component][1]
        places = [self._measured_at[index] for index in indices]
        table, place = np.repeat(indices, [own.size for own in places]), np.concatenate(places)
        others = centre[place] != table
        table, place = table[others], place[others]
        within = np.arange(table.size)
        key, has = self._has(indices)
        if key not in self._joined:
            self._joined[key] = self._between(has).tocoo()
        between = self._joined[key]
        signs = np.repeat(np.array([1, -1], np.int8), table.size)
        return (
            np.concatenate([within, within, table.size + between.row]),
            np.concatenate([table, centre[place], centre[between.col]]),
            np.concatenate([place, place, between.col]),
            np.concatenate([signs, between.data]),
        )

    def _redundant_rows(self) -> list[sparse.csr_array]:
        within = [self._sums_within(fine, coarse) for fine, coarse in self._pairs_within()]
        alike: dict[str, list[int]] = {}
        for index, table in enumerate(self._tables):
            alike.setdefault(table.name, []).append(index)
        return within + [self._sums_between(own) for own in alike.values()]

    def _pairs_within(self) -> list[tuple[int, int]]:
        pairs = []
        for level in sorted(set(self._levels)):
            measured = [i for i, own in enumerate(self._levels) if own == level and self._measured_at[i].size]
            pairs += list(next_above(self._schema, [(index, self._tables[index]) for index in measured]))
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

    def _sums_between(self, alike: Sequence[int]) -> sparse.csr_array:
        """One equation for every cell of a table, by its blocks, and relation between places where it was measured."""
        table, block = self._tables[alike[0]], np.full(self._places.size, -1, dtype=np.intp)
        for i in alike:
            block[self._measured_at[i]] = i
        relations = self._between(block >= 0).tocoo()
        terms = []
        for i in alike:  # whose names may order the factors otherwise
            own = np.flatnonzero(block[relations.col] == i)
            rows = relations.row[own, None] * table.size + cell_map(self._schema, self._tables[i], table)
            cells = self._cells(i, self._places.rank_in_level[relations.col[own]])
            terms.append((rows.ravel(), cells.ravel(), np.repeat(relations.data[own], table.size)))
        return self._equations(relations.shape[0] * table.size, *terms)

    def _cells(self, index: int, ranks: NDArray) -> NDArray[np.int64]:
        """Columns of a table's cells at places given by their number within the level, (places, cells)."""
        size = self._tables[index].size
        return self._functionals.offsets[index] + ranks[:, None] * size + np.arange(size)

    def _equations(self, count: int, *terms: tuple[NDArray, NDArray, Any]) -> sparse.csr_array:
        rows = np.concatenate([row for row, _, _ in terms])
        columns = np.concatenate([column for _, column, _ in terms])
        signs = np.concatenate([np.broadcast_to(np.asarray(sign), row.shape) for row, _, sign in terms])
        return sparse.csr_array((signs, (rows, columns)), shape=(count, self._functionals.size))


def require_constraint_memory(functionals: FunctionalRows, extra_cells: int) -> None:
    """Refuse a constraint matrix that would not fit, by the bytes that building it needs."""
    # The bases, the two sides of the difference and the difference itself, and the result as float64.
    cells = functionals.entries
    needed = 4.0 * cells * INT8_CELL_BYTES + 2.0 * (cells + extra_cells) * FLOAT_CELL_BYTES
    what = f"the constraint matrix of {len(functionals.tables)} tables with {functionals.size:,} cells"
    require_memory(needed, what, "use a solver that needs no matrix, such as 'sea_blue' or 'two_pass', or fewer tables")


def next_above(schema: Schema, tables: list[tuple[int, Table]]) -> Iterator[tuple[int, int]]:
    """Pairs (fine, coarse) of numbered tables with no table of the list strictly between."""
    by_number = dict(tables)
    above = _CoarserTables(schema, tables)
    for fine, _ in tables:
        coarser = above.of(fine)
        for coarse in coarser:
            others = (by_number[other] for other in coarser if other != coarse)
            if not any(refines(schema, other, by_number[coarse]) for other in others):
                yield fine, coarse


class _CoarserTables:
    """Candidates for the coarser neighbours of a table, found without comparing all pairs where tables are many."""

    def __init__(self, schema: Schema, tables: list[tuple[int, Table]]) -> None:
        self._schema = schema
        self._tables = dict(tables)
        self._by_factors = {table.in_schema_order().factors: index for index, table in tables}
        used = sorted({factor for _, table in tables for factor in table.factors})
        self._coarser_factors = {
            factor: [c for c in used if c != factor and self._is_coarser(factor, c)] for factor in used
        }

    def _is_coarser(self, fine: str, coarse: str) -> bool:
        same_variable = self._schema.axis_of(fine) == self._schema.axis_of(coarse)
        return same_variable and self._schema.group_map(fine, coarse) is not None

    def of(self, index: int) -> list[int]:
        """Measured tables reached from one by coarsening factors, stopping at the first found on each way down."""
        start = self._tables[index].in_schema_order().factors
        if 2 ** len(start) > 4 * len(self._tables):
            fine = self._tables[index]
            return [i for i, table in self._tables.items() if i != index and refines(self._schema, fine, table)]
        found, seen, waiting = [], {start}, [start]
        while waiting:
            factors = waiting.pop()
            for position, factor in enumerate(factors):
                for replacement in ((), *((coarser,) for coarser in self._coarser_factors[factor])):
                    reached = (*factors[:position], *replacement, *factors[position + 1 :])
                    if reached in seen:
                        continue
                    seen.add(reached)
                    if reached in self._by_factors:
                        found.append(self._by_factors[reached])
                    else:
                        waiting.append(reached)
        return found
