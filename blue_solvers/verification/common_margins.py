"""What tables of the leaves have in common, leaf by leaf: moving it to one of them, and making them agree on it.

Two tables i and j of one leaf say the same things of the cells of their common margin Q_ij, the coarsest description
that both refine. Residuals that all cells of a cell of Q_ij have in common may be moved from i to j: neither changes
what they say of the counts. Moved to the first of the tables, whatever the counts could explain lies in one place, so
that at the best estimate nothing is left of it. The transpose makes tables agree: each takes from the ones before it
their margins. Tables that agree in pairs are those of one set of signed counts where means over common margins
commute, which is asked for of three tables or more; two always are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from blue_solvers.verification.compensated_sums import sum_rounding
from blue_solvers.verification.reaches import Cells, plus, summed
from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index, distinct_numbers
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.bases import meet
from constraint_builders.relations.marginals import cell_map

Zeros = tuple[tuple[int, ...], Flags]  # variables, and which of their levels together are structural zeros


@dataclass(frozen=True)
class CutVariables:
    """A variable, or those together of which cells are structural zeros, as tables cut its levels.

    Attributes
    ----------
    name : str
    parts : tuple of Table
        Every table's variables among these.
    groups : tuple of ndarray of int, (levels,)
        For every part the cell of each level that may be other than empty.
    places : tuple of ndarray of int
        For every cell of a table that of its part.
    """

    name: str
    parts: tuple[Table, ...]
    groups: tuple[Index, ...]
    places: tuple[Index, ...]

    @classmethod
    def of(cls, schema: Schema, tables: tuple[Table, ...], variables: tuple[int, ...], allowed: Flags) -> CutVariables:
        """Of some variables, of which `allowed` levels, (levels, ...), may be other than empty, in schema order."""
        whole = make_table(schema, tuple(schema.names[axis] for axis in variables))
        factors = [dict(zip(table.axes, table.factors, strict=True)) for table in tables]
        parts = tuple(make_table(schema, tuple(own[axis] for axis in variables if axis in own)) for own in factors)
        groups = tuple(cell_map(schema, whole, part)[allowed.ravel()] for part in parts)
        places = tuple(cell_map(schema, table, part) for table, part in zip(tables, parts, strict=True))
        return cls(whole.name, parts, groups, places)

    def counts(self, table: int) -> Float:
        """Levels in every cell of a table."""
        return np.bincount(self.groups[table], minlength=self.parts[table].size)[self.places[table]].astype(float)

    def common(self, i: int, j: int) -> tuple[Index, Index, int]:
        """For cells of two parts the cell of their common margin, 0 where no level is, and its size, at least 1."""
        first, second = self.groups[i], self.groups[j]
        used, whole = distinct_numbers(meet(first, second) if first.size else first)
        found = np.zeros((2, max(self.parts[i].size, self.parts[j].size)), dtype=np.intp)
        found[0, first] = found[1, second] = whole
        return found[0], found[1], max(int(used.size), 1)

    def commutes(self, i: int, j: int) -> bool:
        """Whether cells of one table are as common in all cells of the other, within their common margin."""
        a, b = self.groups[i], self.groups[j]
        whole, pairs = self.common(i, j)[0][a], a * self.parts[j].size + b
        together, n, n_a, n_b = (np.bincount(own)[own] for own in (pairs, whole, a, b))
        return bool((together * n == n_a * n_b).all())


class TwoTables(NamedTuple):
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

    @classmethod
    def of(cls, axes: list[CutVariables], i: int, j: int, counts: Float) -> TwoTables:
        """Of tables i and j, of which the first has so many counts in its cells, (cells,)."""
        number, size = [np.zeros(axes[0].places[k].size if axes else 1, dtype=np.intp) for k in (i, j)], 1
        for axis in axes:
            *of_cells, count = axis.common(i, j)
            number = [number[side] * count + of_cells[side][axis.places[k]] for side, k in enumerate((i, j))]
            size *= count
        whole = np.bincount(number[0], weights=counts, minlength=size)[number[0]]
        weights = np.divide(counts, whole, out=np.zeros(whole.size), where=whole > 0)
        return cls((number[0], number[1]), size, weights)


class CommonMargins:
    """Common margins of some tables of a leaf, of which the same cells are structural zeros.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table
    columns : sequence of slice
        Where they are in a row.
    zeros : (axes, ndarray of bool (levels of axes)), optional
        Cells that are structural zeros.

    Attributes
    ----------
    free : ndarray of bool, (columns,)
        Cells that may be other than empty.
    pairs : dict of (int, int) to TwoTables
        The common margins of every two tables.

    Raises
    ------
    NotCertifiedError
        If three tables or more cut a variable into groups that cross.
    """

    def __init__(
        self, schema: Schema, tables: tuple[Table, ...], columns: tuple[slice, ...], zeros: Zeros | None = None
    ) -> None:
        fused, empty = zeros or ((), np.zeros((), dtype=bool))
        used = {axis for table in tables for axis in table.axes} - set(fused)
        cut = [(tuple(fused), ~empty)] * bool(fused)
        cut += [((axis,), np.ones(schema.shape[axis], dtype=bool)) for axis in sorted(used)]
        axes = [CutVariables.of(schema, tables, *own) for own in cut]
        counts = [np.prod([np.ones(own.size), *(axis.counts(i) for axis in axes)], 0) for i, own in enumerate(tables)]
        counts = [own * (not empty.all()) for own in counts]  # of places without a count no variable is cut
        self.columns = columns
        self.free: Flags = np.concatenate(counts) > 0
        for axis, (i, j) in product(axes, combinations(range(len(tables)), 2)):
            if len(tables) > 2 and not axis.commutes(i, j):
                raise NotCertifiedError(
                    f"its counts are too many to list, and {tables[i].name!r} and {tables[j].name!r} cut "
                    f"{axis.name!r} into groups that cross"
                )
        self.pairs = {(i, j): TwoTables.of(axes, i, j, counts[i]) for i in range(len(tables)) for j in range(i)}

    def moved(self, said: Cells) -> tuple[Cells, float]:
        """Residuals, (rows, columns), with what tables have in common moved to the first, and how large what moved.

        Those in one double are taken as doubles.
        """
        said = np.where(self.free, said, 0.0)
        size = 0.0
        for (i, j), pair in reversed(self.pairs.items()):
            mean = summed(pair.into[0], pair.size, said[:1, :, self.columns[i]] * pair.weights)[0]
            for k, sign, side in ((i, -1, 0), (j, 1, 1)):  # any number may be moved: it is taken off and added alike
                change = sign * mean[:, pair.into[side]] * self.free[self.columns[k]]
                plus(said[:, :, self.columns[k]], change)
                size += float(np.linalg.norm(change))
        return said, size

    def agreeing(self, cells: Cells, errors: Float | None = None) -> Cells:
        """Tables, (rows, columns), that agree, each taking the margins of those before it: the transpose of `moved`.

        To `errors` is added how far they are off; without it cells are taken as doubles.
        """
        cells, lost = np.where(self.free, cells, 0.0), sum_rounding(1, cells.shape[2])
        for (i, j), (into, size, weights) in self.pairs.items():
            one, two = self.columns[i], self.columns[j]
            change = summed(into[1], size, cells[:, :, two]) - summed(into[0], size, cells[:, :, one])
            shared = change.sum(axis=0)[:, into[0]] * weights
            if errors is not None:
                own, other = (errors[:, k] + lost * abs(cells[0][:, k]) for k in (one, two))
                off = summed(into[0], size, own[None])[0] + summed(into[1], size, other[None])[0]
                errors[:, one] = own + off[:, into[0]] * weights + 8 * ROUNDING * abs(shared)
            plus(cells[:, :, one], shared)
        return cells

    def with_others(self, rows: Float) -> Float:
        """For cells, (rows, columns), own amounts and the largest in every other table that counts in them may have."""
        found, rows = rows.copy(), np.where(self.free, rows, 0.0)
        for (i, j), pair in self.pairs.items():
            for k, other, side in ((i, j, 0), (j, i, 1)):
                most = np.zeros((pair.size, len(rows)))
                np.maximum.at(most, pair.into[1 - side], rows[:, self.columns[other]].T)
                found[:, self.columns[k]] += most[pair.into[side]].T
        return found
