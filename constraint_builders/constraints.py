"""Self-consistency as sparse linear equations A x = 0 between the cells of observed tables.

Along each variable, the sum over all its levels and the levels but one are a basis of functionals (`bases`);
products of these are a basis for every table. Two tables measure the same functional exactly when both keep, along
each variable, a factor that can. So one functional measured by m tables gives m - 1 independent equations, and
together these are all: their number is the rank, by construction. A functional's tables are each compared with one
of them, its centre, the most precise; that keeps the equations' noise as little correlated as it can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.bases import FactorBasis, factor_bases
from constraint_builders.marginals import group_map, margin_matrix, refines
from constraint_builders.memory import require_memory
from constraint_builders.schema import Schema
from constraint_builders.table import Table

Component = tuple[tuple[int, int], ...]  # (axis, mode) for every variable whose mode is not its total

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
        self._offsets = np.concatenate([[0], np.cumsum([table.size for table in tables])]).astype(np.int64)
        self._bases: dict[str, FactorBasis] = factor_bases(schema, (f for t in tables for f in t.factors))
        self._kinds = _kinds(self._bases)
        self._row_cache: dict[tuple[tuple[int, ...], tuple[int, ...]], NDArray[np.int64]] = {}

    @property
    def size(self) -> int:
        """Number of cells of all tables, columns of A."""
        return int(self._offsets[-1])

    @cached_property
    def _measured(self) -> list[int]:
        return [index for index, variance in enumerate(self._variances) if np.isfinite(variance)]

    def components(self, table: Table) -> Iterator[tuple[Component, int]]:
        """The components of a table: groups of functionals that the same tables can measure, with their number."""
        choices = [
            [((axis, mode) if mode else None, count) for mode, count in zip(basis.modes, basis.counts, strict=True)]
            for axis, basis in ((a, self._bases[f]) for a, f in zip(table.axes, table.factors, strict=True))
        ]
        for choice in product(*choices):
            yield tuple(key for key, _ in choice if key is not None), prod(count for _, count in choice)

    @cached_property
    def holders(self) -> dict[Component, tuple[int, list[int]]]:
        """For every component the number of its functionals and the measured tables that hold it."""
        found: dict[Component, tuple[int, list[int]]] = {}
        for index in self._measured:
            for component, count in self.components(self._tables[index]):
                found.setdefault(component, (count, []))[1].append(index)
        return found

    @cached_property
    def rank(self) -> int:
        """Rank of the constraint matrix: the sum over components of (tables that hold it - 1) times its dimension."""
        return sum(count * (len(indices) - 1) for count, indices in self.holders.values())

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
        ValueError
            If `rows` is something else.
        MemoryError
            If the matrix would not fit.
        """
        if rows not in ("independent", "all"):
            raise ValueError(f"rows must be 'independent' or 'all': got {rows!r}")
        pairs = list(self._next_above()) if rows == "all" else []
        self._require_memory(pairs)
        blocks = [self._independent_rows()] + [self._pair_rows(fine, coarse) for fine, coarse in pairs]
        matrix = sparse.vstack(blocks, format="csr") if len(blocks) > 1 else blocks[0]
        return sparse.csr_array(matrix, dtype=np.float64)

    def _require_memory(self, pairs: list[tuple[int, int]]) -> None:
        basis_cells = sum(
            prod(self._bases[f].matrix.nnz for f in self._tables[index].factors) for index in self._measured
        )
        pair_cells = sum(self._tables[fine].size + self._tables[coarse].size for fine, coarse in pairs)
        # The bases, the two sides of the difference and the difference itself, and the result as float64.
        needed = 4.0 * basis_cells * INT8_CELL_BYTES + 2.0 * (basis_cells + pair_cells) * FLOAT_CELL_BYTES
        what = f"the constraint matrix of {len(self._tables)} tables with {self.size:,} cells"
        require_memory(needed, what, "use a solver that needs no matrix, such as 'sea_blue', or fewer tables")

    def _independent_rows(self) -> sparse.csr_array:
        if self.rank == 0:
            return sparse.csr_array((0, self.size), dtype=np.int8)
        centres, members = [], []
        for component, (_, indices) in self.holders.items():
            if len(indices) > 1:
                centre = min(indices, key=lambda index: self._precision_order(index, component))
                centres += [self._rows_of(centre, component)] * (len(indices) - 1)
                members += [self._rows_of(index, component) for index in indices if index != centre]
        functionals = self._functionals()
        return sparse.csr_array(functionals[np.concatenate(members)] - functionals[np.concatenate(centres)])

    def _precision_order(self, index: int, component: Component) -> tuple[float, int, int]:
        """Smallest for the table whose sums estimate a component with the smallest variance."""
        table = self._tables[index]
        kept = {axis for axis, _ in component}
        summed = prod(length for axis, length in zip(table.axes, table.shape, strict=True) if axis not in kept)
        return float(self._variances[index]) * summed, summed, index

    def _functionals(self) -> sparse.csr_array:
        """Block diagonal: for every table its basis functionals as rows over its cells."""
        one = sparse.csr_array(np.ones((1, 1), dtype=np.int8))
        products: dict[tuple[int, ...], sparse.csr_array] = {}
        for table in self._tables:
            matrices = [self._bases[factor].matrix for factor in table.factors]
            kind = tuple(self._kinds[factor] for factor in table.factors)
            if kind not in products:
                products[kind] = reduce(lambda a, b: sparse.kron(a, b, format="csr"), matrices, one)
        blocks = [products[tuple(self._kinds[factor] for factor in table.factors)] for table in self._tables]
        return sparse.csr_array(sparse.block_diag(blocks, format="csr"))

    def _rows_of(self, index: int, component: Component) -> NDArray[np.int64]:
        """Rows of `_functionals` that are a table's functionals of one component."""
        table, modes = self._tables[index], dict(component)
        choice = tuple(modes.get(axis, 0) for axis in table.axes)
        return self._offsets[index] + self._local_rows(table.factors, choice)

    def _local_rows(self, factors: tuple[str, ...], modes: tuple[int, ...]) -> NDArray[np.int64]:
        key = tuple(self._kinds[factor] for factor in factors), modes
        if key not in self._row_cache:
            rows = np.zeros((), dtype=np.int64)
            for factor, mode in zip(factors, modes, strict=True):
                basis = self._bases[factor]
                position = basis.modes.index(mode)
                start = sum(basis.counts[:position])
                rows = np.add.outer(rows * sum(basis.counts), np.arange(start, start + basis.counts[position]))
            self._row_cache[key] = rows.ravel()
        return self._row_cache[key]

    def _next_above(self) -> Iterator[tuple[int, int]]:
        """Pairs (fine, coarse) of measured tables with no measured table strictly between."""
        above = _CoarserTables(self._schema, [(index, self._tables[index]) for index in self._measured])
        for fine in self._measured:
            coarser = above.of(fine)
            for coarse in coarser:
                between = (
                    other
                    for other in coarser
                    if other != coarse and refines(self._schema, self._tables[other], self._tables[coarse])
                )
                if next(between, None) is None:
                    yield fine, coarse

    def _pair_rows(self, fine: int, coarse: int) -> sparse.csr_array:
        sums = margin_matrix(self._schema, self._tables[fine], self._tables[coarse]).tocoo()
        cells = np.arange(self._tables[coarse].size)
        row = np.concatenate([sums.row, cells])
        column = np.concatenate([sums.col + self._offsets[fine], cells + self._offsets[coarse]])
        value = np.concatenate([np.ones(sums.nnz, dtype=np.int8), -np.ones(cells.size, dtype=np.int8)])
        return sparse.csr_array((value, (row, column)), shape=(cells.size, self.size))


def _kinds(bases: dict[str, FactorBasis]) -> dict[str, int]:
    """Number the factors so that those with equal bases share their number."""
    numbers: dict[tuple, int] = {}
    return {
        factor: numbers.setdefault(
            (basis.modes, basis.counts, basis.matrix.indices.tobytes(), basis.matrix.indptr.tobytes()), len(numbers)
        )
        for factor, basis in bases.items()
    }


class _CoarserTables:
    """Candidates for the coarser neighbours of a table, found without comparing all pairs where tables are many."""

    def __init__(self, schema: Schema, tables: list[tuple[int, Table]]) -> None:
        self._schema = schema
        self._tables = dict(tables)
        self._by_factors = {table.factors: index for index, table in tables}
        used = sorted({factor for _, table in tables for factor in table.factors})
        self._coarser_factors = {
            factor: [c for c in used if c != factor and self._is_coarser(factor, c)] for factor in used
        }

    def _is_coarser(self, fine: str, coarse: str) -> bool:
        same_variable = self._schema.axis_of(fine) == self._schema.axis_of(coarse)
        return same_variable and group_map(self._schema, fine, coarse) is not None

    def of(self, index: int) -> list[int]:
        """Measured tables reached from one by coarsening factors, stopping at the first found on each way down."""
        start = self._tables[index].factors
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
