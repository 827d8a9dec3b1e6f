"""Basis functionals of observed tables, in components that the same tables can measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.relations.bases import FactorBasis, factor_bases

Component = tuple[tuple[int, int], ...]  # (axis, mode) for every variable whose mode is not its total


class FunctionalRows:
    """For every observed table as many functionals as it has cells, an invertible 0/1 map of them.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table
    repeats : sequence of int
        How many times each table occurs, once for every geounit of its level.
    other_factors : iterable of str
        Factors of other tables whose components will be asked for.

    Raises
    ------
    NotImplementedError
        If recodes of one variable cross so that no common basis exists.
    """

    def __init__(
        self, schema: Schema, tables: Sequence[Table], repeats: Sequence[int], other_factors: Iterable[str] = ()
    ) -> None:
        self.tables = tuple(tables)
        self.repeats = tuple(repeats)
        sizes = [table.size * count for table, count in zip(tables, repeats, strict=True)]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._bases: dict[str, FactorBasis] = factor_bases(
            schema, (*(f for t in tables for f in t.factors), *other_factors)
        )
        self._kinds = _kinds(self._bases)
        self._row_cache: dict[tuple[tuple[int, ...], ...], NDArray[np.int64]] = {}

    @property
    def size(self) -> int:
        """Number of cells, and of functionals, of all tables."""
        return int(self.offsets[-1])

    @cached_property
    def entries(self) -> int:
        """Nonzero entries of `matrix`."""
        return sum(
            count * prod(self._bases[factor].matrix.nnz for factor in table.factors)
            for table, count in zip(self.tables, self.repeats, strict=True)
        )

    def components(self, table: Table) -> Iterator[tuple[Component, int]]:
        """The components of a table, with the number of functionals in each."""
        table = table.in_schema_order()
        choices = [
            [((axis, mode) if mode else None, count) for mode, count in zip(basis.modes, basis.counts, strict=True)]
            for axis, basis in ((a, self._bases[f]) for a, f in zip(table.axes, table.factors, strict=True))
        ]
        for choice in product(*choices):
            yield tuple(key for key, _ in choice if key is not None), prod(count for _, count in choice)

    def rows(self, index: int, component: Component) -> NDArray[np.int64]:
        """Rows of `matrix` that are a table's functionals of one component, in its first occurrence."""
        table, modes = self.tables[index], dict(component)
        choice = tuple(modes.get(axis, 0) for axis in table.axes)
        return self.offsets[index] + self._local_rows(table, choice)

    def _local_rows(self, table: Table, modes: tuple[int, ...]) -> NDArray[np.int64]:
        """Rows of a mode of every factor, in the order of the functionals over the schema's order of the variables."""
        key = tuple(self._kinds[factor] for factor in table.factors), modes, table.schema_order
        if key not in self._row_cache:
            rows = np.zeros((), dtype=np.int64)
            for factor, mode in zip(table.factors, modes, strict=True):
                basis = self._bases[factor]
                position = basis.modes.index(mode)
                start = sum(basis.counts[:position])
                rows = np.add.outer(rows * sum(basis.counts), np.arange(start, start + basis.counts[position]))
            self._row_cache[key] = rows.transpose(table.schema_order).ravel()
        return self._row_cache[key]

    def matrix(self) -> sparse.csr_array:
        """The functionals as rows over the cells, block diagonal, int8."""
        one = sparse.csr_array(np.ones((1, 1), dtype=np.int8))
        products: dict[tuple[int, ...], sparse.csr_array] = {}
        blocks = []
        for table, count in zip(self.tables, self.repeats, strict=True):
            kind = tuple(self._kinds[factor] for factor in table.factors)
            if kind not in products:
                matrices = [self._bases[factor].matrix for factor in table.factors]
                products[kind] = reduce(lambda a, b: sparse.kron(a, b, format="csr"), matrices, one)
            own = products[kind]
            repeated = own if count == 1 else sparse.kron(sparse.eye_array(count, dtype=np.int8), own, format="csr")
            blocks.append(repeated)
        return sparse.csr_array(sparse.block_diag(blocks, format="csr"))

    def summed(self, index: int, component: Component) -> int:
        """Cells of a table that one functional of a component sums over, were its modes single levels."""
        table = self.tables[index]
        kept = {axis for axis, _ in component}
        return prod(length for axis, length in zip(table.axes, table.shape, strict=True) if axis not in kept)


def _kinds(bases: dict[str, FactorBasis]) -> dict[str, int]:
    """Number the factors so that those with equal bases share their number."""
    numbers: dict[tuple, int] = {}
    return {
        factor: numbers.setdefault(
            (basis.modes, basis.counts, basis.matrix.indices.tobytes(), basis.matrix.indptr.tobytes()), len(numbers)
        )
        for factor, basis in bases.items()
    }
