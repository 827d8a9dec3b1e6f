"""What tables of the leaves have in common, leaf by leaf: moving it to one of them, and making them agree on it.

Two tables of one leaf say the same things of the cells of their common margin, the coarsest description that both
refine. Tables and the common margins of any of them are a lattice. From the finest on, each hands means over the next
coarser margins on to these, where whatever the counts could explain lies once; then each margin hands it to the first
table that holds it. Neither changes what they say of the counts, and at the best estimate nothing is left. The
transpose makes tables agree: a margin is that of the first table that holds it, and from the coarsest on each table
takes its margins from there. Tables that agree so are those of one set of signed counts where means over common
margins commute, which is asked for of three tables or more; two always are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np

from blue_solvers.verification.compensated_sums import sum_rounding
from blue_solvers.verification.reaches import NO_MAP, NO_WEIGHTS, Cells, Reach, add, plus, summed
from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index, as_slice
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.bases import meet, numbered
from constraint_builders.relations.marginals import cell_map

Zeros = tuple[tuple[int, ...], Flags]  # variables, and which of their levels together are structural zeros


class CutVariables:
    """A variable, or those together of which cells are structural zeros, as tables and their common margins cut them.

    Attributes
    ----------
    name : str
    cuts : list of ndarray of int, (levels,)
        Groups of the levels that may be other than empty, numbered by first appearance.
    of_tables : list of (int, ndarray of int, ndarray)
        For every table its cut, and for its cells, (cells,) or (1,), the groups and how many levels these have.
    meets : ndarray of int, (cuts, cuts)
        Which is the finest cut that both refine.
    sizes : ndarray of int, (cuts,)
        How many groups they have.
    """

    def __init__(self, schema: Schema, tables: tuple[Table, ...], variables: tuple[int, ...], allowed: Flags) -> None:
        """Of some variables, of which `allowed` levels, (levels, ...), may be other than empty, in schema order."""
        whole = make_table(schema, tuple(schema.names[axis] for axis in variables))
        known = dict[tuple[str, ...], tuple[Table, int, Index, Float]]()
        self.name, self.cuts, self.of_tables = whole.name, list[Index](), list[tuple[int, Index, Float]]()
        for table in tables:
            factors = dict(zip(table.axes, table.factors, strict=True))
            own = tuple(factors[axis] for axis in variables if axis in factors)
            if own not in known:
                part = make_table(schema, own)
                levels, groups = cell_map(schema, whole, part)[allowed.ravel()], np.zeros(part.size, dtype=np.intp)
                groups[levels] = labels = numbered(levels)
                counts = np.bincount(levels, minlength=part.size).astype(float)
                known[own] = part, self._number(labels), groups, counts
            part, kind, groups, counts = known[own]
            place = cell_map(schema, table, part) if part.size > 1 else np.zeros(1, dtype=np.intp)
            self.of_tables.append((kind, groups[place], counts[place]))
        found = dict[tuple[int, int], int]()
        for i, one in enumerate(self.cuts):  # those that are found are looked at too
            for j, two in enumerate(self.cuts[: i + 1]):
                found[i, j] = found[j, i] = i if i == j else self._number(numbered(meet(one, two)))
        size = len(self.cuts)
        self.meets: Index = np.array([[found[i, j] for j in range(size)] for i in range(size)])
        self.sizes: Index = np.array([own.max(initial=0) + 1 for own in self.cuts])

    def _number(self, cut: Index) -> int:
        """Of a cut, (levels,), which is put among the others."""
        for number, own in enumerate(self.cuts):
            if np.array_equal(own, cut):
                return number
        self.cuts.append(cut)
        return len(self.cuts) - 1

    def commute(self, i: int, j: int) -> bool:
        """Whether groups of one cut are as common in all groups of the other, within those of their common cut."""
        a, b, whole = self.cuts[i], self.cuts[j], self.cuts[self.meets[i, j]]
        together, n, n_a, n_b = (np.bincount(own)[own] for own in (a * (b.max(initial=0) + 1) + b, whole, a, b))
        return bool((together * n == n_a * n_b).all())


class HandedOn(NamedTuple):
    """Tables, and margins, each of which hands means to one margin that is coarser.

    Attributes
    ----------
    columns : slice or ndarray of int, (k,)
        Of their cells in a row of all.
    weights : ndarray, (k,)
        The share of each in its cell of the margin: of the counts in it; 0 of empty ones.
    into : ndarray of int, (k,)
        Which mean each is in.
    onto : ndarray of int, (means,)
        The columns of the margins' cells.
    back, source : slice or ndarray of int, (h,)
        Columns of the cells of those that margins are handed back to, and where each is handed from.
    """

    columns: Index | slice
    weights: Float
    into: Index
    onto: Index
    back: Index | slice
    source: Index


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
        self._axes, self.columns = [CutVariables(schema, tables, *own) for own in cut], columns
        for axis in self._axes if len(tables) > 2 else ():
            first = {own[0]: table for own, table in zip(reversed(axis.of_tables), reversed(tables), strict=True)}
            for one, two in combinations(sorted(first), 2):
                if not axis.commute(one, two):
                    raise NotCertifiedError(
                        f"its counts are too many to list, and {first[one].name!r} and {first[two].name!r} cut "
                        f"{axis.name!r} into groups that cross"
                    )
        of_tables = [[*zip(*own, strict=True)] for own in zip(*(axis.of_tables for axis in self._axes), strict=True)]
        self._kinds: Index = np.array([kinds for kinds, _, _ in of_tables])
        self._groups: list[tuple[Index, ...]] = [groups for _, groups, _ in of_tables]
        self._counts = [np.full(own.size, float(not empty.all())) for own in tables]
        for own, (_, _, counts) in zip(self._counts, of_tables, strict=True):
            own *= reduce(np.multiply, counts)
        self.free: Flags = np.concatenate(self._counts) > 0
        self._starts, self._width = [own.start for own in columns], self.free.size
        self._find_margins()
        self._steps = self._in_order()

    def _find_margins(self) -> None:
        """Put to the tables all common margins of some of them, whose cells follow theirs in a row."""
        tables, found = self._kinds, dict[tuple[int, ...], None]()
        for number, own in enumerate(tables[1:], 1):
            others = np.array([*tables[:number].tolist(), *found])
            found |= dict.fromkeys(map(tuple, self._meet(others, own).tolist()))
        margins = np.array([*found])
        self._kinds = np.concatenate([tables, margins])
        for shape in np.stack([axis.sizes[own] for axis, own in zip(self._axes, margins.T, strict=True)], 1).tolist():
            self._counts.append(np.zeros(prod(shape)))  # as soon as what is finer is known
            wide = [size for size in shape if size > 1]  # no array has an axis for each of 65 variables
            alone, *groups = np.unravel_index(np.arange(prod(shape)), (1, *wide))
            self._groups.append(tuple(groups.pop(0) if size > 1 else alone for size in shape))
            self._starts.append(self._width)
            self._width += prod(shape)

    def _meet(self, one: Index, two: Index) -> Index:
        """Of tables, or margins, (..., axes), their common margins."""
        return np.stack([axis.meets[i, j] for axis, i, j in zip(self._axes, one.T, two.T, strict=True)], axis=-1)

    def _into(self, number: int, kinds: Index) -> Index:
        """For every cell of a table, or margin, that of a margin which cuts variables so, (axes,)."""
        found = np.zeros(self._counts[number].size, dtype=np.intp)
        for axis, group, own, other in zip(self._axes, self._groups[number], self._kinds[number], kinds, strict=True):
            if axis.sizes[other] > 1:
                inside = np.zeros(axis.sizes[own], dtype=np.intp)
                inside[axis.cuts[own]] = axis.cuts[other]
                found *= axis.sizes[other]
                found += inside[group]
        return found

    def _in_order(self) -> list[HandedOn]:
        """From the finest on; of a table first one margin, then another."""
        count, number = len(self.columns), np.arange(len(self._kinds))
        holds, lots = (number >= count) & (number[:, None] != number), dict[tuple[int, int], list[tuple[int, int]]]()
        for axis, own in zip(self._axes, self._kinds.T, strict=True):
            holds &= axis.meets[own[:, None], own] == own
        next_ = holds & ~(holds.astype(np.float32) @ holds.astype(np.float32) > 0)
        home, depth = np.where(number < count, number, holds[:count].argmax(axis=0)), 0 * number
        back = np.where(next_, home[:, None], count).argmin(axis=0)
        for own in sorted(number.tolist(), key=lambda own: (own >= count, -self._counts[own].size)):
            for k, other in enumerate(np.flatnonzero(next_[own]).tolist()):
                depth[other] = max(depth[other], depth[own] + 1)
                lots.setdefault((int(depth[own]), k), []).append((own, other))
        return [self._step(sorted(lots[key]), back) for key in sorted(lots)]

    def _step(self, pairs: list[tuple[int, int]], back: Index) -> HandedOn:
        """Of tables, and margins, and those that each hands means to; `back` says to which these go, (numbers,)."""
        found, means = list[tuple[Index, Float, Index, Index, Flags]](), 0
        for own, other in pairs:
            into, counts, size = self._into(own, self._kinds[other]), self._counts[own], self._counts[other].size
            self._counts[other] = np.bincount(into, counts, size)
            whole = self._counts[other][into]
            columns, onto = (self._starts[i] + np.arange(self._counts[i].size) for i in (own, other))
            weights = np.divide(counts, whole, out=np.zeros(counts.size), where=whole > 0)
            found.append((columns, weights, means + into, onto, (counts > 0) & (back[other] == own)))
            means += size
        columns, weights, into, onto, handed = (np.concatenate(own) for own in zip(*found, strict=True))
        return HandedOn(as_slice(columns), weights, into, onto, as_slice(columns[handed]), onto[into[handed]])

    def pairs(self) -> Iterator[tuple[tuple[int, int], tuple[Index, Index], int]]:
        """Of every two tables their numbers, for their cells those of the common margin, and how many it has."""
        for i, j in combinations(range(len(self.columns)), 2):
            margin = self._meet(self._kinds[i], self._kinds[j])
            into = self._into(i, margin), self._into(j, margin)
            yield (i, j), into, 1 + max(int(own.max(initial=0)) for own in into)

    def _room(self, cells: Float) -> Cells:
        """What is said of tables, (parts, rows, columns), and zeros for margins and what sums lose, (2, rows, all)."""
        found = np.zeros((2, cells.shape[1], self._width))
        found[: len(cells), :, : self.free.size] = cells if self.free.all() else np.where(self.free, cells, 0.0)
        return found

    def moved(self, said: Cells) -> tuple[Cells, float]:
        """Residuals, (rows, columns), with what tables have in common moved to the first, and how large what moved.

        Those in one double are taken as doubles.
        """
        found, size = self._room(said), 0.0
        for step in self._steps:  # any number may be moved: it is taken off and added alike
            mean = summed(step.into, step.onto.size, found[:1, :, step.columns] * step.weights)[0]
            size += _change(found, step.columns, -mean[:, step.into]) + float(np.linalg.norm(mean))
            add(mean[None], Reach(NO_MAP, NO_MAP, NO_WEIGHTS, step.onto), found)
        for step in reversed(self._steps):
            size += _change(found, step.back, found[:, :, step.source])
            found[:, :, step.source] = 0.0
        if not self.free.all():
            found[:, :, : self.free.size][:, :, ~self.free] = 0.0
        return found[: len(said), :, : self.free.size], size

    def agreeing(self, cells: Cells, errors: Float | None = None) -> Cells:
        """Tables, (rows, columns), that agree, each taking margins from those before it: the transpose of `moved`.

        To `errors` is added how far they are off; without it cells are taken as doubles.
        """
        found, lost = self._room(cells), sum_rounding(1, self._width)
        off = self._room(np.zeros(cells.shape)[:1] if errors is None else errors[None])[:1]
        for step in self._steps:
            into = Reach(NO_MAP, NO_MAP, NO_WEIGHTS, step.source)
            add(found[:, :, step.back], into, found)
            add(off[:, :, step.back] + lost * abs(found[:1, :, step.back]), into, sums := np.zeros(found.shape))
            off += sums[:1]
        for step in reversed(self._steps):
            own, onto = found[:, :, step.columns], step.onto
            change = found[:, :, onto] - summed(step.into, onto.size, own)
            shared = change.sum(axis=0)[:, step.into] * step.weights
            apart = off[:, :, step.columns] + lost * abs(own[:1])
            both = summed(step.into, onto.size, apart)[:1] + off[:, :, onto]
            off[:, :, step.columns] = apart + both[:, :, step.into] * step.weights + 8 * ROUNDING * abs(shared)
            _change(found, step.columns, shared)
        if errors is not None:
            errors[...] = off[0, :, : self.free.size]
        return found[: len(cells), :, : self.free.size]

    def with_others(self, rows: Float) -> Float:
        """For cells, (rows, columns), own amounts and the largest in every other table."""
        most = np.stack([np.where(self.free, rows, 0.0)[:, own].max(axis=1, initial=0.0) for own in self.columns])
        others = np.repeat(most.sum(axis=0) - most, [own.stop - own.start for own in self.columns], axis=0)
        return rows + others.T


def _change(cells: Cells, columns: Index | slice, term: Float) -> float:
    """Add a term, (rows, k), or to two doubles such cells, to some columns of (2, rows, all); gives how large it is."""
    own = cells[:, :, columns]
    plus(own, term)
    if not isinstance(columns, slice):
        cells[:, :, columns] = own
    return float(np.linalg.norm(term if term.ndim == 2 else term[0]))
