"""Self-consistency as sparse linear equations A x = 0 between the cells of observed tables.

Along each variable, the sum over all its levels and the levels but one are a basis of functionals (`bases`);
products of these are a basis for every table. Two tables measure the same functional exactly when both keep, along
each variable, a factor that can. So one functional measured by m tables gives m - 1 independent equations, and
together these are all: their number is the rank, by construction. A functional's tables are each compared with one
of them, its centre, the most precise; that keeps the equations' noise as little correlated as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.memory import require_memory
from constraint_builders.relations.functional_rows import Component, FunctionalRows
from constraint_builders.relations.marginals import group_map, margin_matrix, refines

INT8_CELL_BYTES = 1 + 4
FLOAT_CELL_BYTES = 8 + 4


class SelfConsistency:
    """The equations that hold between observed tables, whatever the counts.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table
        The observed tables, in the order of the layout.
    cell_variances : sequence of float
        A typical variance of a cell in each; 0 for a table known exactly, ``inf`` for one that was not measured.

    Raises
    ------
    NotImplementedError
        If recodes of one variable cross so that no common basis exists.
    """

    def __init__(self, schema: Schema, tables: Sequence[Table], cell_variances: Sequence[float]) -> None:
        self._schema = schema
        self._tables = tuple(tables)
        self._variances = np.asarray(cell_variances, dtype=float)
        self._functionals = FunctionalRows(schema, tables, [1] * len(tables))

    @property
    def size(self) -> int:
        """Number of cells of all tables, columns of A."""
        return self._functionals.size

    @cached_property
    def holders(self) -> dict[Component, tuple[int, list[int]]]:
        """For every component the number of its functionals and the measured tables that hold it."""
        found: dict[Component, tuple[int, list[int]]] = {}
        for index in np.flatnonzero(np.isfinite(self._variances)).tolist():
            for component, count in self._functionals.components(self._tables[index]):
                found.setdefault(component, (count, []))[1].append(index)
        return found

    @cached_property
    def rank(self) -> int:
        """Rank of the constraint matrix: the sum over components of (tables that hold it - 1) times its dimension."""
        return sum(count * (len(indices) - 1) for count, indices in self.holders.values())

    def tied_places(self) -> list[Flags]:
        """For every table whether an equation speaks of its cells, (1,): two tables have their totals in common."""
        measured = np.isfinite(self._variances)
        return list((measured & (measured.sum() > 1))[:, None])

    def matrix(self, rows: str = "independent") -> sparse.csr_array:
        """The constraint matrix A.

        Parameters
        ----------
        rows : {"independent", "all"}
            `rank` many rows, or these and one for every cell of a table next above another: redundant, and better
            conditioned for iterative solvers.

        Returns
        -------
        csr_array, (rows, size)
            Entries -1, 0, 1, as float64.

        Raises
        ------
        MemoryError
            If the matrix would not fit.
        """
        measured = [(i, self._tables[i]) for i in np.flatnonzero(np.isfinite(self._variances)).tolist()]
        pairs = list(next_above(self._schema, measured)) if rows == "all" else []
        pair_cells = sum(self._tables[fine].size + self._tables[coarse].size for fine, coarse in pairs)
        require_constraint_memory(self._functionals, pair_cells)
        blocks = [self._independent_rows()] + [self._pair_rows(fine, coarse) for fine, coarse in pairs]
        matrix = sparse.vstack(blocks, format="csr") if len(blocks) > 1 else blocks[0]
        return sparse.csr_array(matrix, dtype=np.float64)

    def _independent_rows(self) -> sparse.csr_array:
        if self.rank == 0:
            return sparse.csr_array((0, self.size), dtype=np.int8)
        centres, members = [], []
        for component, (_, indices) in self.holders.items():
            if len(indices) > 1:
                centre = min(indices, key=lambda index: self._precision_order(index, component))
                centres += [self._functionals.rows(centre, component)] * (len(indices) - 1)
                members += [self._functionals.rows(index, component) for index in indices if index != centre]
        functionals = self._functionals.matrix()
        return sparse.csr_array(functionals[np.concatenate(members)] - functionals[np.concatenate(centres)])

    def _precision_order(self, index: int, component: Component) -> tuple[float, int, int]:
        """Smallest for the table whose sums estimate a component with the smallest variance."""
        summed = self._functionals.summed(index, component)
        return float(self._variances[index]) * summed, summed, index

    def _pair_rows(self, fine: int, coarse: int) -> sparse.csr_array:
        sums = margin_matrix(self._schema, self._tables[fine], self._tables[coarse]).tocoo()
        cells = np.arange(self._tables[coarse].size)
        row = np.concatenate([sums.row, cells])
        column = np.concatenate([sums.col + self._functionals.offsets[fine], cells + self._functionals.offsets[coarse]])
        value = np.concatenate([np.ones(sums.nnz, dtype=np.int8), -np.ones(cells.size, dtype=np.int8)])
        return sparse.csr_array((value, (row, column)), shape=(cells.size, self.size))


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
        return same_variable and group_map(self._schema, fine, coarse) is not None

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
