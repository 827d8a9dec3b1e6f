"""A basis of 0/1 functionals on each variable's levels, adapted to the recodes in use.

A table measures, along each of its variables, the group sums of one recode. These span a subspace of the functionals on
the variable's levels. When one basis of group indicators serves the subspaces of all recodes at once, every question
about which tables overlap becomes a question about which basis functionals they share: the relations between tables of
several variables are then products, and nothing needs to be factorised numerically.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import gcd

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table


@dataclass(frozen=True)
class FactorBasis:
    """The functionals that one factor can measure, as rows over the factor's cells.

    Attributes
    ----------
    modes : tuple of int
        For each group of consecutive rows its mode, an identifier within the variable. Mode 0 is the sum over all.
    counts : tuple of int
        Number of rows of each of `modes`.
    matrix : csr_array, (size, size)
        The rows: 0/1, nonsingular.
    """

    modes: tuple[int, ...]
    counts: tuple[int, ...]
    matrix: sparse.csr_array


def factor_bases(schema: Schema, factors: Iterable[str]) -> dict[str, FactorBasis]:
    """Adapted bases for all factors in use.

    Parameters
    ----------
    schema : Schema
    factors : iterable of str
        Variables and recodes that appear in some table.

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
    for names in by_axis.values():
        bases |= _bases_of_variable(schema, names)
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


def _bases_of_variable(schema: Schema, factors: list[str]) -> dict[str, FactorBasis]:
    partitions = {factor: np.array(schema.groups_of(factor), dtype=np.intp) for factor in factors}
    closed = _closed_under_joins(list(partitions.values()))
    chosen: list[Index] = []  # for every mode, the groups whose indicators are its functionals
    for partition in closed:
        coarser = [(other, own) for other, own in zip(closed, chosen, strict=False) if _coarsens(other, partition)]
        chosen.append(_complete(coarser, partition))
    functionals = list(zip(closed, chosen, strict=True))
    if not _is_chain_of_two_ends(closed) and not _independent(functionals):
        variable = schema.names[schema.axis_of(factors[0])]
        raise NotImplementedError(
            f"the recodes {sorted(factors)} of {variable!r} cross so that one basis cannot serve them all: "
            "use recodes that nest, or leave one out"
        )
    bases = {}
    for factor, partition in partitions.items():
        modes = tuple(mode for mode, other in enumerate(closed) if len(chosen[mode]) and _coarsens(other, partition))
        counts = tuple(len(chosen[mode]) for mode in modes)
        first_level = np.unique(partition, return_index=True)[1]
        rows = [_indicators(closed[mode][first_level], chosen[mode]) for mode in modes]
        bases[factor] = FactorBasis(modes, counts, sparse.csr_array(sparse.vstack(rows, format="csr")))
    return bases


def _closed_under_joins(partitions: list[Index]) -> list[Index]:
    """The partitions, all their joins and the trivial one, coarse to fine."""
    trivial = np.zeros_like(partitions[0])
    closed = {trivial.tobytes(): trivial}
    for partition in partitions:
        for other in (*closed.values(), partition):
            joined = _join(partition, other)
            closed = closed | {joined.tobytes(): joined}
    return sorted(closed.values(), key=lambda partition: int(partition.max()))


def _join(first: Index, second: Index) -> Index:
    """The finest partition that both refine, its groups numbered by first appearance."""
    parent = list(range(int(first.max()) + 1))

    def root(group: int) -> int:
        while parent[group] != group:
            parent[group] = group = parent[parent[group]]
        return group

    seen: dict[int, int] = {}
    for group, other in dict.fromkeys(zip(first.tolist(), second.tolist(), strict=True)):
        parent[root(group)] = root(seen.setdefault(other, group))
    roots = [root(group) for group in range(len(parent))]
    number = {own: place for place, own in enumerate(dict.fromkeys(roots[group] for group in first.tolist()))}
    return np.array([number[own] for own in roots], dtype=np.intp)[first]


def _coarsens(coarse: Index, fine: Index) -> bool:
    representative = np.zeros(fine.max() + 1, dtype=np.intp)
    representative[fine] = coarse
    return bool(np.array_equal(representative[fine], coarse))


def _is_chain_of_two_ends(closed: list[Index]) -> bool:
    """Whether partitions, closed under joins, nest but for the last two: these share the sums of their join alone."""
    nested = all(_coarsens(coarse, fine) for coarse, fine in pairwise(closed[:-1]))
    return nested and (len(closed) < 3 or _coarsens(closed[-3], closed[-1]))


def _indicators(partition: Index, groups: Index) -> sparse.csr_array:
    """Rows of 0/1: which positions of `partition` lie in each of `groups`."""
    row_of = np.full(int(partition.max()) + 1, -1)
    row_of[groups] = np.arange(groups.size)
    rows = row_of[partition]
    columns = np.flatnonzero(rows >= 0)
    shape = (groups.size, partition.size)
    return sparse.csr_array((np.ones(columns.size, dtype=np.int8), (rows[columns], columns)), shape=shape)


def _complete(known: list[tuple[Index, Index]], partition: Index) -> Index:
    """Groups of `partition` whose indicators complete the known functionals to a basis.

    Each known functional is a sum of groups, so the groups are coordinates. Exact elimination of these small integer
    rows finds a nonsingular minor; the indicators of the groups outside it complete the basis.
    """
    first_level = np.unique(partition, return_index=True)[1]
    groups = np.arange(first_level.size)
    if known and all(_coarsens(other, known[-1][0]) for other, _ in known):
        # These are all sums of groups of the finest known partition: one group in each is not free.
        coarse = known[-1][0][first_level]
        last_of_each = groups.size - 1 - np.unique(coarse[::-1], return_index=True)[1]
        return np.setdiff1d(groups, last_of_each)
    pivots = _pivot_columns(_rows(known, first_level))
    return np.setdiff1d(groups, np.array(pivots, dtype=np.intp))


def _independent(functionals: list[tuple[Index, Index]]) -> bool:
    """Whether no sum of group indicators is a sum of others."""
    rows = _rows(functionals, np.arange(functionals[0][0].size))
    return len(_pivot_columns(rows)) == len(rows)


def _rows(functionals: list[tuple[Index, Index]], levels: Index) -> list[dict[int, int]]:
    """Group indicators over some levels as sparse rows {position: 1}."""
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
