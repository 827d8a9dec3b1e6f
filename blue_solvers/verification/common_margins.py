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
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table

Zeros = tuple[tuple[int, ...], Flags]  # variables, and which of their levels together are known to be empty
UNIT = 0.51 * float(np.finfo(np.longdouble).eps)  # by which a sum is rounded at most; the rest is for sums of such
RUN = 32  # cells


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
    cells : (ndarray of int, ndarray of int)
        Of each table, those that may be other than empty, by the cells of the margin.
    runs : (ndarray of int, ndarray of int)
        Where runs of them begin, each within a cell of the margin: sums of sums take fewer roundings.
    starts : (ndarray of int, ndarray of int)
        Where among the runs those of a cell of the margin begin.
    cell_of : (ndarray of int, ndarray of int)
        The cell of the margin of each.
    weights : ndarray
        The share of each of the first table's in its cell of the margin: of the counts in it.
    """

    cells: tuple[Index, Index]
    runs: tuple[Index, Index]
    starts: tuple[Index, Index]
    cell_of: tuple[Index, Index]
    weights: NDArray

    def summed(self, rows: NDArray, side: int) -> NDArray:
        """A table's cells, (rows, cells), summed to the margin."""
        return self._added(rows[:, self.cells[side]], side)

    def mean(self, rows: NDArray) -> NDArray:
        """The mean of the first table's cells in every cell of the margin, over the counts in it."""
        return self._added(rows[:, self.cells[0]] * self.weights.astype(rows.dtype), 0)

    def _added(self, chosen: NDArray, side: int) -> NDArray:
        partial = np.add.reduceat(chosen, self.runs[side], axis=1)
        return np.add.reduceat(partial, self.starts[side], axis=1)

    @property
    def adds(self) -> int:
        """Most roundings that a sum takes, and taking its difference and a share of it."""
        ends = zip(self.starts, self.runs, strict=True)
        most = max(int(np.diff(own, append=runs.size).max(initial=0)) for own, runs in ends)
        return most + RUN + 4

    def most(self, rows: Float, side: int) -> Float:
        """The largest of a table's cells in every cell of the margin, spread over those of the other table."""
        most = np.maximum.reduceat(rows[:, self.cells[side]], self.runs[side], axis=1)
        most = np.maximum.reduceat(most, self.starts[side], axis=1)
        return most[:, self.cell_of[1 - side]]


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

    def moved(self, rows: NDArray, sizes: Float | None = None) -> NDArray:
        """Residuals, (rows, columns), with what tables have in common moved to the first of them.

        To `sizes` is added what was rounded, in units of the last place.
        """
        rows = np.where(self.free, rows, 0)
        for (i, j), pair in reversed(self._pairs.items()):
            one, other = rows[:, self.columns[i]], rows[:, self.columns[j]]
            mean = pair.mean(one)
            for k, own, sign, side in ((i, one, -1, 0), (j, other, 1, 1)):
                spread = mean[:, pair.cell_of[side]]
                if sizes is not None:
                    part = sizes[:, self.columns[k]]
                    part[:, pair.cells[side]] += (abs(own[:, pair.cells[side]]) + abs(spread)).astype(float)
                own[:, pair.cells[side]] += sign * spread
        return rows

    def agreeing(self, rows: NDArray, errors: Float | None = None) -> NDArray:
        """Tables, (rows, columns), that agree: every one takes the margins of those before it.

        To `errors` is added what was rounded; the transpose of `moved`.
        """
        rows = np.where(self.free, rows, 0)
        for (i, j), pair in self._pairs.items():
            one, other = rows[:, self.columns[i]], rows[:, self.columns[j]]
            change = pair.summed(other, 1) - pair.summed(one, 0)
            shared = change[:, pair.cell_of[0]] * pair.weights.astype(rows.dtype)
            if errors is not None:
                self._round(pair, (i, j), rows, errors, abs(shared).astype(float))
            one[:, pair.cells[0]] += shared
        return rows

    def _round(self, pair: TwoTables, tables: tuple[int, int], rows: NDArray, errors: Float, shared: Float) -> None:
        """What a step of `agreeing` rounds, whose change is `shared` over the first table's cells."""
        parts = [(abs(rows[:, self.columns[k]]).astype(float), errors[:, self.columns[k]]) for k in tables]
        each = UNIT * pair.adds
        one, other = (pair.summed(each * cells + error, side) for side, (cells, error) in enumerate(parts))
        off = one + other
        (cells, error), own = parts[0], pair.cells[0]
        error[:, own] += off[:, pair.cell_of[0]] * pair.weights.astype(float)
        error[:, own] += UNIT * (cells[:, own] + 5 * shared)

    def with_others(self, rows: Float) -> Float:
        """For every cell of a table its own amount and the largest in every other table that a count in it may have."""
        found = rows.copy()
        for (i, j), pair in self._pairs.items():
            for k, other, side in ((i, j, 0), (j, i, 1)):
                part = found[:, self.columns[k]]
                part[:, pair.cells[side]] += pair.most(rows[:, self.columns[other]], 1 - side)
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
    number = [np.zeros(own.size, dtype=np.intp) for own in sizes]
    for k, axis in enumerate(axes):
        *of_cells, count = axis.common(*tables)
        for side in (0, 1):
            number[side] = number[side] * count + of_cells[side][grids[side][k]]
    cells, runs, starts, cell_of = [], [], [], []
    for side in (0, 1):
        used = np.flatnonzero(sizes[side] > 0)
        order = used[np.argsort(number[side][used], kind="stable")]
        first, own, counts = np.unique(number[side][order], return_index=True, return_inverse=True, return_counts=True)[
            1:
        ]
        within = np.arange(order.size) - first[own]
        cells.append(order)
        runs.append(np.flatnonzero(within % RUN == 0))
        starts.append(np.cumsum(-(-counts // RUN)) - -(-counts // RUN))
        cell_of.append(own)
    share = sizes[0][cells[0]].astype(np.longdouble)
    share /= np.bincount(cell_of[0], weights=share.astype(float))[cell_of[0]]
    return TwoTables((cells[0], cells[1]), (runs[0], runs[1]), (starts[0], starts[1]), (cell_of[0], cell_of[1]), share)


def _require_commuting(schema: Schema, axes: list[CutVariables], tables: tuple[Table, ...]) -> None:
    for axis in axes:
        for i, j in combinations(range(len(tables)), 2):
            if not axis.commutes(i, j):
                names = " * ".join(schema.names[variable] for variable in axis.variables)
                raise NotCertifiedError(
                    f"its counts are too many to list, and {tables[i].name!r} and {tables[j].name!r} cut {names!r} "
                    "into groups that cross"
                )
