"""Figures as sums of the leaves' cells in the tables that hold all others, some leaves at a time.

Nothing is formed that is larger than what is given: sums over leaves go layer by layer, and sums along axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from blue_solvers.verification.claims import Claim
from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.holding_tables import Holders, PlacedTable
from blue_solvers.verification.sums import Sum
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index

RUN = 128  # leaves
PART = 2**21  # cells of leaves worked on at a time
MOST_PATTERNS = 64  # of cells known to be empty, where several tables hold all others


@dataclass(frozen=True)
class Reach:
    """What some leaves are of the areas of a layer.

    Attributes
    ----------
    areas : ndarray of int
        Those that they are in.
    members : csr_array, (areas, leaves)
    partial, rest : csr_array
        The same in two steps, sums of sums over runs of leaves: fewer roundings one on another.
    """

    areas: Index
    members: sparse.csr_array
    partial: sparse.csr_array
    rest: sparse.csr_array

    @classmethod
    def of(cls, members: sparse.csc_array, leaves: Index) -> Reach:
        """Of a layer, (areas, all leaves), of some leaves."""
        own = members[:, leaves].tocoo()
        areas, rows = np.unique(own.row, return_inverse=True)
        inside = sparse.csr_array((own.data, (rows, own.col)), shape=(areas.size, leaves.size))
        runs = -(-leaves.size // RUN)
        pairs, number = np.unique(rows.astype(np.int64) * runs + own.col // RUN, return_inverse=True)
        partial = sparse.csr_array((own.data, (number, own.col)), shape=(pairs.size, leaves.size))
        places = pairs // runs, np.arange(pairs.size)
        return cls(
            areas, inside, partial, sparse.csr_array((np.ones(pairs.size), places), shape=(areas.size, pairs.size))
        )

    @property
    def adds(self) -> int:
        """Most roundings that a sum takes."""
        return int(sum(np.diff(own.indptr).max(initial=0) for own in (self.partial, self.rest)))


@dataclass(frozen=True)
class SomeLeaves:
    """Some leaves, of which the same cells are known to be empty.

    Attributes
    ----------
    leaves : ndarray of int
    margins : CommonMargins or None
        Where several tables hold all others.
    """

    leaves: Index
    margins: CommonMargins | None


class SumsOverLeaves:
    """All figures as sums of the leaves' cells in the tables that hold all others.

    Cells are (leaves, cells of these tables); `figures_of` and `shares_of` are transposes of one another. Where several
    tables hold all others, cells stand for those that agree and are nearest, and shares for what is left of them once
    what tables have in common is moved together (`CommonMargins`).

    Parameters
    ----------
    problem : Problem
    x : ndarray, (n,)
        Figures of the observed cells.
    made : sequence of Claim
        Those that are claimed besides.

    Raises
    ------
    NotCertifiedError
        If there are no such tables.
    """

    def __init__(self, problem: Problem, x: Float, made: Sequence[Claim] = ()) -> None:
        self._problem = problem
        self.holders = Holders.of(problem, x, made)
        self.figures, schema = self.holders.figures, problem.domain.schema
        self.shape = problem.domain.areas.leaves, self.holders.width
        self._sums = {
            sheet.place.start: Sum(schema, self.holders.tables[sheet.holder], sheet.table)
            for sheet in self.holders.held
        }
        self._levels = sorted({sheet.level for sheet in self.holders.held})
        self.several = len(self.holders.tables) > 1

    @cached_property
    def parts(self) -> list[SomeLeaves]:
        """All leaves, some at a time."""
        found = []
        for leaves, margins in self._alike():
            most = max(1, PART // self.shape[1])
            found += [SomeLeaves(leaves[a : a + most], margins) for a in range(0, leaves.size, most)]
        return found

    def _alike(self) -> Iterator[tuple[Index, CommonMargins | None]]:
        """Leaves of which the same cells are known to be empty."""
        every, zeros = np.arange(self.shape[0]), self._problem.zeros
        if not self.several:
            yield every, None
            return
        given = self._problem.domain.schema, self.holders.tables, self.holders.columns
        if zeros is None:
            yield every, CommonMargins(*given)
            return
        empty = zeros.empty[self._problem.domain.leaves]
        patterns, own = np.unique(empty.reshape(self.shape[0], -1), axis=0, return_inverse=True)
        if len(patterns) > MOST_PATTERNS:
            raise NotCertifiedError(
                f"no one table holds all others, and {len(patterns):,} sets of cells are known to be empty in some "
                f"leaves: proofs by sums take {MOST_PATTERNS}"
            )
        for number, pattern in enumerate(patterns):
            yield (
                np.flatnonzero(own.ravel() == number),
                CommonMargins(*given, (zeros.axes, pattern.reshape(empty.shape[1:]))),
            )

    @cached_property
    def free(self) -> Flags | None:
        """Cells that may be other than empty, (leaves, cells); None where no table alone holds all others."""
        if not self.several:
            return None
        found = np.empty(self.shape, dtype=bool)
        for part in self.parts:
            if part.margins is not None:
                found[part.leaves] = part.margins.free
        return found

    @cached_property
    def _reaches(self) -> dict[int, list[Reach]]:
        """By layer what every part's leaves are of it; none of the layers of leaves."""
        areas = self._problem.domain.areas
        columns = {level: areas.leaves_of(level).tocsc() for level in self._levels if not self._is_of_leaves(level)}
        return {level: [Reach.of(own, part.leaves) for part in self.parts] for level, own in columns.items()}

    def _is_of_leaves(self, level: int) -> bool:
        areas = self._problem.domain.areas
        return areas.layer(areas.levels[level]).is_of_leaves

    @cached_property
    def adds(self) -> int:
        """Most roundings that a sum over leaves takes."""
        over = max((own.adds for reaches in self._reaches.values() for own in reaches), default=0)
        return over + len(self.parts) + max(own.adds for own in self._sums.values()) + 4

    @cached_property
    def shares(self) -> int:
        """Most roundings that a sum over the figures that a leaf is in takes."""
        above = (
            np.diff(own.members.tocsc().indptr).max(initial=0) for reaches in self._reaches.values() for own in reaches
        )
        return int(max(above, default=1) + 1) * len(self._levels) + len(self.holders.held) + 4

    def figures_of(self, cells: NDArray, power: int | None = None) -> NDArray:
        """M times the leaves' cells, (leaves, cells) to (figures,), in their precision; or powers of M's sizes."""

        def rows(part: SomeLeaves) -> NDArray:
            own = cells[part.leaves]
            return own if power is not None or part.margins is None else part.margins.agreeing(own)

        return self.figures_in_parts((rows(part) for part in self.parts), np.zeros(self.figures, cells.dtype), power)

    def figures_in_parts(self, cells: Iterable[NDArray], into: NDArray, power: int | None = None) -> NDArray:
        """The same of cells that come part by part, and agree, added to figures, (figures,), which it gives."""
        above: dict[tuple[int, int], NDArray] = {}
        for number, (part, rows) in enumerate(zip(self.parts, cells, strict=True)):
            for level, holder, sheets in self._groups:
                own = rows[:, self.holders.columns[holder]]
                if level not in self._reaches:
                    for sheet in sheets:
                        self._rows(into, sheet)[part.leaves] += self._sums[sheet.place.start].down(own)
                    continue
                reach = self._reaches[level][number]
                if (level, holder) not in above:
                    above[level, holder] = np.zeros((self._sizes[level], own.shape[1]), dtype=rows.dtype)
                partial = _powers(reach.partial, power).astype(rows.dtype) @ own
                above[level, holder][reach.areas] += reach.rest.astype(rows.dtype) @ partial
        for level, holder, sheets in self._groups:
            for sheet in sheets if level in self._reaches else ():
                own = self._sums[sheet.place.start].down(above[level, holder])
                self._rows(into, sheet)[...] += own
        return into

    def shares_of(self, figures: NDArray, power: int | None = None) -> NDArray:
        """M' times figures, (figures,) or the observed ones, to (leaves, cells), likewise."""
        found = np.empty(self.shape, dtype=figures.dtype)
        for number, part in enumerate(self.parts):
            rows = self.shares_in(number, figures, figures.dtype, power)
            found[part.leaves] = rows if power is not None or part.margins is None else part.margins.moved(rows)
        return found

    def shares_in(self, number: int, figures: NDArray, dtype: DTypeLike, power: int | None = None) -> NDArray:
        """The same of a part's leaves, as they are."""
        part = self.parts[number]
        found = np.zeros((part.leaves.size, self.shape[1]), dtype=dtype)
        for level, holder, sheets in self._groups:
            reach = self._reaches[level][number] if level in self._reaches else None
            areas = part.leaves if reach is None else reach.areas
            into = found[:, self.holders.columns[holder]]
            inside = np.zeros((areas.size, into.shape[1]), dtype=dtype)
            for sheet in sheets:
                if sheet.place.stop <= figures.size:
                    total = self._sums[sheet.place.start]
                    inside.reshape(-1, *total.fine)[...] += total.up(self._rows(figures, sheet)[areas].astype(dtype))
            into += inside if reach is None else _powers(reach.members, power).T.astype(dtype) @ inside
        return found

    @cached_property
    def _groups(self) -> list[tuple[int, int, list[PlacedTable]]]:
        """Tables by layer and by the one that holds them."""
        found: dict[tuple[int, int], list[PlacedTable]] = {}
        for sheet in self.holders.held:
            found.setdefault((sheet.level, sheet.holder), []).append(sheet)
        return [(*key, sheets) for key, sheets in found.items()]

    @cached_property
    def _sizes(self) -> dict[int, int]:
        """Areas of every layer."""
        return {level: self._problem.domain.areas.leaves_of(level).shape[0] for level in self._levels}

    def _rows(self, figures: NDArray, sheet: PlacedTable) -> NDArray:
        """Of a table its figures by area, a view."""
        return figures[sheet.place].reshape(self._sizes[sheet.level], -1)

    def with_others(self, amounts: Float) -> Float:
        """For every cell of a leaf its own amount and the most in every other table that a count in it may have."""
        if not self.several:
            return amounts
        found = np.empty(self.shape)
        for part in self.parts:
            if part.margins is not None:
                found[part.leaves] = part.margins.with_others(amounts[part.leaves])
        return found

    def coarser_sheets(self, noisy: Flags) -> list[PlacedTable]:
        """Of every other layer the largest observed table that was measured everywhere, of each that holds others.

        Those of the fewest areas come first.
        """
        found: dict[tuple[int, int], PlacedTable] = {}
        for sheet in self.holders.held:
            measured = sheet.place.stop <= noisy.size and bool(noisy[sheet.place].all())
            if measured and sheet.place not in self.holders.places:
                key = sheet.level, sheet.holder
                best = found.get(key)
                found[key] = sheet if best is None or sheet.table.size > best.table.size else best
        return sorted(found.values(), key=lambda sheet: self._sizes[sheet.level])

    def means_of(self, cells: NDArray, free: Flags, sheet: PlacedTable) -> NDArray:
        """Of a table's figures what comes nearest to the leaves' cells in them, by least squares."""
        columns, down = self.holders.columns[sheet.holder], self._sums[sheet.place.start].down
        members = self._problem.domain.areas.leaves_of(sheet.level)
        total = down(members.astype(cells.dtype) @ cells[:, columns])
        squares = down(_powers(members, 2) @ free[:, columns].astype(float))
        return np.divide(total, squares, out=np.zeros_like(total), where=squares > 0).ravel()

    def less(self, cells: NDArray, figures: NDArray, sheet: PlacedTable) -> NDArray:
        """The leaves' cells, (leaves, cells), less a table's figures that they are in."""
        members, total = self._problem.domain.areas.leaves_of(sheet.level), self._sums[sheet.place.start]
        spread = total.up(figures.reshape(members.shape[0], -1))
        inside = np.broadcast_to(spread, (members.shape[0], *total.fine)).reshape(members.shape[0], -1)
        found = cells.copy()
        found[:, self.holders.columns[sheet.holder]] -= members.T.astype(cells.dtype) @ inside
        return found


def _powers(members: sparse.csr_array, power: int | None) -> sparse.csr_array:
    """Weights, or powers of their sizes."""
    if power is None:
        return members
    return sparse.csr_array((abs(members.data) ** power, members.indices, members.indptr), shape=members.shape)
