"""What tables of the leaves have in common, leaf by leaf: moving it to one of them, and making them agree on it.

Two tables i and j of one leaf say the same things of the cells of their common margin Q_ij, the coarsest description
that both refine. Residuals that all cells of a cell of Q_ij have in common may be moved from i to j: neither changes
what they say of the counts. Moved to the first of the tables, whatever the counts could explain lies in one place, so
that at the best estimate nothing is left of it. The transpose makes tables agree: each takes from the ones before it
their margins. Tables that agree in pairs are those of one set of signed counts where means over common margins
commute, which is asked for of three tables or more; two always are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from blue_solvers.verification.compensated_sums import Cells, plus, sum_rounding, summed
from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table

Zeros = tuple[tuple[int, ...], Flags]  # variables, and which of their levels together are known to be empty


@dataclass(frozen=True)
class CutVariables:
    """A variable, or those together of which cells are known to be empty, as tables cut its levels.

    Attributes
    ----------
    variables : tuple of int
    groups : tuple of ndarray of int, (levels,)
        For every table the cell of each level that may be other than empty.
    sizes : tuple of int
        For every table its cells along the axis.
    """

    variables: tuple[int, ...]
    groups: tuple[Index, ...]
    sizes: tuple[int, ...]

    def counts(self, table: int) -> Float:
        """Levels in every cell of a table."""
        return np.bincount(self.groups[table], minlength=self.sizes[table]).astype(float)

    def common(self, i: int, j: int) -> tuple[Index, Index, int]:
        """For cells of two tables the cell of their common margin, and its size; -1 where no level is."""
        a, b = self.groups[i], self.groups[j]
        edges = sparse.coo_array((np.ones(a.size), (a, b)), shape=(self.sizes[i], self.sizes[j]))
        blocks = sparse.block_array([[None, edges], [edges.T, None]])
        _, labels = connected_components(blocks, directed=False)
        used = np.unique(labels[a])
        number = np.full(int(labels.max(initial=-1)) + 1, -1)
        number[used] = np.arange(used.size)
        return number[labels[: self.sizes[i]]], number[labels[self.sizes[i] :]], int(used.size)

    def commutes(self, i: int, j: int) -> bool:
        """Whether cells of one table are as common in all cells of the other, within their common margin."""
        a, b = self.groups[i], self.groups[j]
        of_a, _, count = self.common(i, j)
        whole = of_a[a]
        together = np.bincount(a * self.sizes[j] + b)[a * self.sizes[j] + b]
        n, n_a, n_b = np.bincount(whole, minlength=count)[whole], np.bincount(a)[a], np.bincount(b)[b]
        return bool((together * n == n_a * n_b).all())


@dataclass(frozen=True)
class TwoTables:
    """The common margin of two tables.

    Attributes
    ----------
    into : (ndarray of int, ndarray of int)
        For every cell of each table its cell of the margin; any for those that are empty.
    size : int
    weights : ndarray
        The share of each of the first table's cells in its cell of the margin: of the counts in it; 0 of empty ones.
    """

    into: tuple[Index, Index]
    size: int
    weights: Float

    def summed(self, cells: Cells, side: int) -> Cells:
        """A table's cells, (rows, cells), summed to the margin."""
        return summed(self.into[side], self.size, cells)

    def most(self, rows: Float, side: int) -> Float:
        """The largest of a table's cells in every cell of the margin, spread over those of the other table."""
        most = np.zeros((self.size, len(rows)))
        np.maximum.at(most, self.into[side], rows.T)
        return most[self.into[1 - side]].T


class CommonMargins:
    """Common margins of some tables of a leaf, of which the same cells are known to be empty.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table
    columns : sequence of slice
        Where they are in a row.
    zeros : (axes, ndarray of bool (levels of axes)), optional
        Cells that are known to be empty.

    Attributes
    ----------
    free : ndarray of bool, (columns,)
        Cells that may be other than empty.

    Raises
    ------
    NotCertifiedError
        If three tables or more cut a variable into groups that cross.
    """

    def __init__(
        self,
        schema: Schema,
        tables: tuple[Table, ...],
        columns: tuple[slice, ...],
        zeros: Zeros | None = None,
    ) -> None:
        axes = _axes(schema, tables, zeros)
        self.columns = columns
        grids = [[_grid(table, axis) for axis in axes] for table in tables]
        sizes = [
            np.prod(
                [np.ones(table.size), *(axis.counts(i)[grid] for axis, grid in zip(axes, grids[i], strict=True))], 0
            )
            for i, table in enumerate(tables)
        ]
        self.free: Flags = np.concatenate([own > 0 for own in sizes])
        if len(tables) > 2:
            _require_commuting(schema, axes, tables)
        self._pairs = {
            (i, j): _pair(axes, (grids[i], grids[j]), (sizes[i], sizes[j]), (i, j))
            for i in range(len(tables))
            for j in range(i)
        }

    def moved(self, said: Cells) -> tuple[Cells, Float]:
        """Residuals, (rows, columns), with what tables have in common moved to the first, and how large what moved.

        Those in one double are taken as doubles.
        """
        said = np.where(self.free, said, 0.0)
        sizes = abs(said[0])
        for (i, j), pair in reversed(self._pairs.items()):
            one = said[:1, :, self.columns[i]] * pair.weights
            mean = pair.summed(one, 0)[0]  # any number may be moved: it is taken off and added alike
            for k, sign, side in ((i, -1, 0), (j, 1, 1)):
                change = sign * mean[:, pair.into[side]] * self.free[self.columns[k]]
                plus(said[:, :, self.columns[k]], change)
                sizes[:, self.columns[k]] += abs(change)
        return said, sizes

    def agreeing(self, cells: Cells, errors: Float | None = None) -> Cells:
        """Tables, (rows, columns), that agree, each taking the margins of those before it: the transpose of `moved`.

        To `errors` is added how far they are off; without it cells are taken as doubles.
        """
        cells, lost = np.where(self.free, cells, 0.0), sum_rounding(1, cells.shape[2])
        for (i, j), pair in self._pairs.items():
            change = pair.summed(cells[:, :, self.columns[j]], 1) - pair.summed(cells[:, :, self.columns[i]], 0)
            shared = change.sum(axis=0)[:, pair.into[0]] * pair.weights
            if errors is not None:
                self._round(pair, (i, j), cells[0], errors, lost)
                errors[:, self.columns[i]] += 8 * ROUNDING * abs(shared)
            plus(cells[:, :, self.columns[i]], shared)
        return cells

    def _round(self, pair: TwoTables, tables: tuple[int, int], cells: Float, errors: Float, lost: float) -> None:
        """What a step of `agreeing` rounds in sums, and hands on of errors before."""
        off = np.zeros((len(cells), pair.size))
        for side, k in enumerate(tables):
            own = errors[:, self.columns[k]] + lost * abs(cells[:, self.columns[k]])
            off += pair.summed(own[None], side)[0]
        columns = self.columns[tables[0]]
        errors[:, columns] += off[:, pair.into[0]] * pair.weights + lost * abs(cells[:, columns])

    def with_others(self, rows: Float) -> Float:
        """For every cell of a table its own amount and the largest in every other table that a count in it may have."""
        found, rows = rows.copy(), np.where(self.free, rows, 0.0)
        for (i, j), pair in self._pairs.items():
            for k, other, side in ((i, j, 0), (j, i, 1)):
                found[:, self.columns[k]] += pair.most(rows[:, self.columns[other]], 1 - side)
        return found


def _axes(schema: Schema, tables: tuple[Table, ...], zeros: Zeros | None) -> list[CutVariables]:
    """The axes in use; the variables that tell empty cells apart are one."""
    fused, empty = zeros or ((), np.zeros((), dtype=bool))
    used = sorted({axis for table in tables for axis in table.axes} - set(fused))
    whole = [((axis,), np.ones(schema.shape[axis], dtype=bool)) for axis in used]
    found = []
    for variables, allowed in ([(tuple(fused), ~empty)] if fused else []) + whole:
        levels = dict(zip(variables, np.nonzero(allowed), strict=True))
        groups = []
        for table in tables:
            own = {axis: np.array(schema.groups_of(factor)) for axis, factor in _factors(table, variables).items()}
            groups.append(_numbered(table, variables, {axis: own[axis][levels[axis]] for axis in own}, allowed.sum()))
        sizes = tuple(int(np.prod([table.shape[table.axes.index(axis)] for axis in _factors(table, variables)],
                                  dtype=int)) for table in tables)  # fmt: skip
        found.append(CutVariables(variables, tuple(groups), sizes))
    return found


def _factors(table: Table, variables: tuple[int, ...]) -> dict[int, str]:
    """Of the variables those that a table keeps, with its factors of them."""
    return {axis: factor for axis, factor in zip(table.axes, table.factors, strict=True) if axis in variables}


def _numbered(table: Table, variables: tuple[int, ...], cells: dict[int, Index], count: int) -> Index:
    """One number for the cells along several variables, of so many levels or cells."""
    found = np.zeros(int(count), dtype=np.intp)
    for axis in _factors(table, variables):
        found = found * table.shape[table.axes.index(axis)] + cells[axis]
    return found


def _grid(table: Table, axis: CutVariables) -> Index:
    """For every cell of a table its place along an axis."""
    along = dict(zip(table.axes, np.indices(table.shape).reshape(len(table.shape), -1), strict=True))
    return _numbered(table, axis.variables, along, table.size)


def _pair(
    axes: list[CutVariables], grids: Sequence[list[Index]], sizes: Sequence[Float], tables: tuple[int, int]
) -> TwoTables:
    number, size = [np.zeros(own.size, dtype=np.intp) for own in sizes], 1
    for k, axis in enumerate(axes):
        *of_cells, count = axis.common(*tables)
        number = [number[side] * count + np.maximum(of_cells[side][grids[side][k]], 0) for side in (0, 1)]
        size *= count
    whole = np.bincount(number[0], weights=sizes[0], minlength=size)[number[0]]
    return TwoTables(
        (number[0], number[1]), size, np.divide(sizes[0], whole, out=np.zeros(whole.size), where=whole > 0)
    )


def _require_commuting(schema: Schema, axes: list[CutVariables], tables: tuple[Table, ...]) -> None:
    for axis in axes:
        for i, j in combinations(range(len(tables)), 2):
            if not axis.commutes(i, j):
                names = " * ".join(schema.names[variable] for variable in axis.variables)
                raise NotCertifiedError(
                    f"its counts are too many to list, and {tables[i].name!r} and {tables[j].name!r} cut {names!r} "
                    "into groups that cross"
                )
