"""A basis of 0/1 functionals on each variable's levels, adapted to the recodes in use, and those of observed tables.

A table measures, along each of its variables, the group sums of one recode. These span a subspace of the functionals on
the variable's levels. When one basis of group indicators serves the subspaces of all recodes at once, every question
about which tables overlap becomes a question about which basis functionals they share: the relations between tables of
several variables are then products, in components that the same tables can measure, and nothing needs to be factorised
numerically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise, product
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import kronecker

Component = tuple[tuple[int, int], ...]  # (axis, mode) for every variable whose mode is not its total


@dataclass(frozen=True)
class FactorBasis:
    """The functionals that one factor can measure, as rows over the factor's cells.

    Attributes
    ----------
    modes : tuple of int
        For each group of consecutive rows its mode, an identifier within the variable. Mode 0 is the sum over all, or
        of a variable of all tables the sums over groups that all of them tell apart.
    counts : tuple of int
        Number of rows of each of `modes`.
    matrix : csr_array, (size, size)
        The rows: 0/1, nonsingular.
    """

    modes: tuple[int, ...]
    counts: tuple[int, ...]
    matrix: sparse.csr_array


def factor_bases(schema: Schema, factors: Iterable[str], common: Collection[int] = ()) -> dict[str, FactorBasis]:
    """Adapted bases for all factors in use.

    Parameters
    ----------
    schema : Schema
    factors : iterable of str
        Variables and recodes that appear in some table.
    common : collection of int
        Axes of which every table has a factor, so that none sums over all.

    Returns
    -------
    dict of str to FactorBasis

    Raises
    ------
    NotImplementedError
        If the recodes of a variable cross so that no basis serves all of them (for instance three groupings
        12|3, 13|2, 23|1 of three levels).
    """
    by_axis: dict[int, list[str]] = {}
    for factor in dict.fromkeys(factors):
        by_axis.setdefault(schema.axis_of(factor), []).append(factor)
    bases: dict[str, FactorBasis] = {}
    for axis, names in by_axis.items():
        bases |= _bases_of_variable(schema, names, axis not in common)
    return bases


def factors_cross(schema: Schema, tables: Iterable[Table]) -> bool:
    """Whether recodes of tables cross so that no basis of group sums serves all of them."""
    factors = dict.fromkeys(chain.from_iterable(table.factors for table in tables))
    recoded = [schema.axis_of(factor) for factor in factors if factor not in schema.names]
    several = {axis for axis in recoded if recoded.count(axis) > 1}  # one recode and the levels nest
    try:
        factor_bases(schema, (factor for factor in factors if schema.axis_of(factor) in several))
    except NotImplementedError:
        return True
    return False


def _bases_of_variable(schema: Schema, factors: list[str], has_total: bool) -> dict[str, FactorBasis]:
    bases = _bases_of_groupings(tuple(schema.groups_of(factor) for factor in factors), has_total)
    if bases is None:
        variable = schema.names[schema.axis_of(factors[0])]
        raise NotImplementedError(
            f"the recodes {sorted(factors)} of {variable!r} cross so that one basis cannot serve them all: "
            "use recodes that nest, or leave one out"
        )
    return dict(zip(factors, bases, strict=True))


@lru_cache(maxsize=128)
def _bases_of_groupings(groupings: tuple[tuple[int, ...], ...], has_total: bool) -> tuple[FactorBasis, ...] | None:
    """For the group of every level by each factor the factor's basis; None where no basis serves all.

    With a total it serves the sum over all levels too.

    They are remembered: every problem and every solver of a schema asks for the same ones.
    """
    partitions = [np.array(groups, dtype=np.intp) for groups in groupings]
    closed = _closed_under_joins(partitions, has_total)
    chosen: list[Index] = []  # for every mode, the groups whose indicators are its functionals
    for partition in closed:
        coarser = [(other, own) for other, own in zip(closed, chosen, strict=False) if refines(partition, other)]
        chosen.append(_complete(coarser, partition))
    functionals = list(zip(closed, chosen, strict=True))
    if not _is_chain_of_two_ends(closed) and not _independent(functionals):
        return None
    bases = []
    for partition in partitions:
        modes = tuple(mode for mode, other in enumerate(closed) if len(chosen[mode]) and refines(partition, other))
        counts = tuple(len(chosen[mode]) for mode in modes)
        first_level = np.unique(partition, return_index=True)[1]
        rows = [_indicators(closed[mode][first_level], chosen[mode]) for mode in modes]
        bases.append(FactorBasis(modes, counts, sparse.csr_array(sparse.vstack(rows, format="csr"))))
    return tuple(bases)


def _closed_under_joins(partitions: list[Index], has_total: bool) -> list[Index]:
    """The partitions, (levels,) each, all their joins and with a total the trivial one, coarse to fine."""
    trivial = np.zeros_like(partitions[0])
    closed = {trivial.tobytes(): trivial} if has_total else {}
    for partition in partitions:
        for other in (*closed.values(), partition):
            joined = numbered(meet(partition, other))
            closed = closed | {joined.tobytes(): joined}
    return sorted(closed.values(), key=lambda partition: int(partition.max()))


def _is_chain_of_two_ends(closed: list[Index]) -> bool:
    """Whether partitions, (levels,), closed under joins, nest but for the last two, which share their join alone."""
    nested = all(refines(fine, coarse) for coarse, fine in pairwise(closed[:-1]))
    return nested and (len(closed) < 3 or refines(closed[-1], closed[-3]))


def _indicators(partition: Index, groups: Index) -> sparse.csr_array:
    """Rows of 0/1, (groups, positions): which positions of `partition` lie in each of `groups`."""
    row_of = np.full(int(partition.max()) + 1, -1)
    row_of[groups] = np.arange(groups.size)
    rows = row_of[partition]
    columns = np.flatnonzero(rows >= 0)
    shape = (groups.size, partition.size)
    return sparse.csr_array((np.ones(columns.size, dtype=np.int8), (rows[columns], columns)), shape=shape)


def _complete(known: list[tuple[Index, Index]], partition: Index) -> Index:
    """Groups of `partition`, (levels,), whose indicators complete the known functionals to a basis.

    Each known functional is a sum of groups, so the groups are coordinates. Exact elimination of these small integer
    rows finds a nonsingular minor; the indicators of the groups outside it complete the basis.
    """
    first_level = np.unique(partition, return_index=True)[1]
    groups = np.arange(first_level.size)
    if known and all(refines(known[-1][0], other) for other, _ in known):
        # These are all sums of groups of the finest known partition: one group in each is not free.
        coarse = known[-1][0][first_level]
        last_of_each = groups.size - 1 - np.unique(coarse[::-1], return_index=True)[1]
        return np.setdiff1d(groups, last_of_each)
    return np.setdiff1d(groups, np.array(_pivot_columns(_rows(known, first_level)), dtype=np.intp))


def _independent(functionals: list[tuple[Index, Index]]) -> bool:
    """Whether no sum of group indicators is a sum of others, of partitions (levels,) and their groups, (k,)."""
    rows = _rows(functionals, np.arange(functionals[0][0].size))
    return len(_pivot_columns(rows)) == len(rows)


def _rows(functionals: list[tuple[Index, Index]], levels: Index) -> list[dict[int, int]]:
    """Group indicators over some levels, (k,), as sparse rows {position: 1}."""
    rows = []
    for partition, groups in functionals:
        if not groups.size:
            continue
        indicators = _indicators(partition[levels], groups)
        rows += [dict.fromkeys(row.tolist(), 1) for row in np.split(indicators.indices, indicators.indptr[1:-1])]
    return rows


def _pivot_columns(rows: list[dict[int, int]]) -> list[int]:
    """Columns of a maximal nonsingular minor of a sparse integer matrix, the last columns first."""
    pivots = []
    by_last: dict[int, list[dict[int, int]]] = {}
    for row in rows:
        by_last.setdefault(max(row), []).append(row)
    waiting = [-column for column in by_last]
    heapify(waiting)
    while waiting:
        column = -heappop(waiting)
        pivots.append(column)
        pivot, *others = sorted(by_last.pop(column), key=len)
        for row in others:
            left = _eliminated(row, pivot, column)
            if left:
                last = max(left)
                if last not in by_last:
                    heappush(waiting, -last)
                by_last.setdefault(last, []).append(left)
    return pivots


def _eliminated(row: dict[int, int], pivot: dict[int, int], column: int) -> dict[int, int]:
    """A combination of both that is 0 in a column; `row` is used up."""
    common = gcd(row[column], pivot[column])
    own, others = pivot[column] // common, row[column] // common
    if own != 1:
        row = {key: own * value for key, value in row.items()}
    for key, value in pivot.items():
        left = row.get(key, 0) - others * value
        if left:
            row[key] = left
        else:
            del row[key]
    if own in (1, -1):
        return row
    common = gcd(*row.values())
    return row if common == 1 else {key: value // common for key, value in row.items()}


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
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        common = set.intersection(*(set(table.axes) for table in tables)) if tables else set()
        self._bases: dict[str, FactorBasis] = factor_bases(
            schema, (*(f for t in tables for f in t.factors), *other_factors), common
        )
        self._kinds = _kinds(self._bases)
        self._row_cache: dict[tuple[tuple[int, ...], ...], NDArray[np.intp]] = {}

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

    def rows(self, index: int, component: Component) -> NDArray[np.intp]:
        """Rows of `matrix` that are a table's functionals of one component, in its first occurrence."""
        table, modes = self.tables[index], dict(component)
        return self.offsets[index] + self._local_rows(table, tuple(modes.get(axis, 0) for axis in table.axes))

    def _local_rows(self, table: Table, modes: tuple[int, ...]) -> NDArray[np.intp]:
        """Rows of a mode of every factor, in the order of the functionals over the schema's order of the variables."""
        key = tuple(self._kinds[factor] for factor in table.factors), modes, table.schema_order
        if key not in self._row_cache:
            rows = np.zeros((), dtype=np.intp)
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
        kind = np.int32 if max(self.size, self.entries) <= np.iinfo(np.int32).max else np.int64
        products: dict[tuple[int, ...], sparse.csr_array] = {}
        columns, ends = [np.zeros(0, kind)], [np.zeros(1, kind)]
        for table, count, start in zip(self.tables, self.repeats, self.offsets.tolist(), strict=False):
            key = tuple(self._kinds[factor] for factor in table.factors)
            if key not in products:
                products[key] = reduce(kronecker, (self._bases[factor].matrix for factor in table.factors), one)
            own, places = products[key], np.arange(count, dtype=kind)[:, None]
            columns.append((own.indices + (start + table.size * places)).ravel())
            ends.append((own.indptr[1:] + (ends[-1][-1] + own.nnz * places)).ravel())
        entries = np.concatenate(columns), np.concatenate(ends)
        return sparse.csr_array((np.ones(entries[0].size, np.int8), *entries), shape=(self.size, self.size))

    def summed(self, index: int, component: Component) -> int:
        """Cells of a table that one functional of a component sums over, were its modes single levels."""
        table = self.tables[index]
        kept = {axis for axis, _ in component}
        told = [(axis, self._bases[factor]) for axis, factor in zip(table.axes, table.factors, strict=True)]
        return prod(sum(basis.counts) // basis.counts[0] for axis, basis in told if axis not in kept)


def _kinds(bases: dict[str, FactorBasis]) -> dict[str, int]:
    """Number the factors so that those with equal bases share their number."""
    numbers: dict[tuple, int] = {}
    return {
        factor: numbers.setdefault(
            (basis.modes, basis.counts, basis.matrix.indices.tobytes(), basis.matrix.indptr.tobytes()), len(numbers)
        )
        for factor, basis in bases.items()
    }


def first_cells(labels: Index) -> Index:
    """One cell of every group, (groups,), in order of the labels."""
    return np.unique(labels, return_index=True)[1]


def refines(fine: Index, coarse: Index) -> bool:
    """Whether every group of `fine` lies within one group of `coarse`, labels (cells,) each."""
    image = np.zeros(fine.max() + 1, dtype=coarse.dtype)
    image[fine] = coarse
    return bool((image[fine] == coarse).all())


def join(first: Index, second: Index) -> Index:
    """The coarsest partition that refines both, (cells,)."""
    return np.unique(first * (second.max() + 1) + second, return_inverse=True)[1]


def meet(first: Index, second: Index) -> Index:
    """The finest partition that both refine, (cells,)."""
    for fine, coarse in ((first, second), (second, first)):
        if refines(fine, coarse):
            return coarse
    size = first.max() + 1
    shape = (size + second.max() + 1,) * 2
    together = sparse.coo_array((np.ones(first.size), (first, size + second)), shape=shape)
    return sparse.csgraph.connected_components(together, directed=False)[1][first].astype(np.intp)


def numbered(labels: Index) -> Index:
    """The same partition, (cells,), its groups numbered by first appearance."""
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[group]


def sums_matrix(fine: Index, coarse: Index) -> sparse.csr_array:
    """The 0/1 matrix, (coarse groups, fine groups), that sums the groups of `fine` to those of `coarse`."""
    image = coarse[first_cells(fine)]
    shape = (int(coarse.max()) + 1, image.size)
    return sparse.csr_array((np.ones(image.size), (image, np.arange(image.size))), shape=shape)
