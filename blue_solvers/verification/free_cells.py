"""Cells of leaves that were not measured: residuals have to vanish in them, so sums take what is left of it there.

Cell by cell a measured sum is chosen that contains it and else only cells that were measured, or have a sum already:
what is said of the cell is moved to that sum, and off the other cells in it. So each cell costs as much as its sum and
all that is beside it there; where sums contain one another's cells in a circle, some are solved for together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.chosen_sums import ChosenSums
from blue_solvers.verification.placed_tables import Leaves, Level, LevelTable, PlacedTables, taken_by
from blue_solvers.verification.reaches import Cells, side_by_side
from blue_solvers.verification.sums_of_cells import Claimed, Sought, SumsOfCells, variances_of
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders.arrays import Float, Index


@dataclass
class Taken:
    """What sums take of residuals: it is taken off the cells in them.

    Attributes
    ----------
    amounts : ndarray, (sums,)
        Of the sums in use.
    shares : dict of int to ndarray, (G, cells)
        By `id` of tables what they take.
    of_root : ndarray, (cells,)
        What is left to the tree above.
    """

    amounts: Float = field(default_factory=lambda: np.zeros(0))
    shares: dict[int, Float] = field(default_factory=dict)
    of_root: Float = field(default_factory=lambda: np.zeros(0))

    def of(self, placed: LevelTable, rows: slice | Index, other: Float | None) -> Float | None:
        """What a table takes at some places, (rows, cells), with what it takes other than that; None of nothing."""
        share = self.shares.get(id(placed))
        if share is None:
            return other
        return share[rows] if other is None else share[rows] + other


class FreeCells:
    """Cells of leaves that were not measured, and the sums that take what is said of them.

    Parameters
    ----------
    places : PlacedTables
    cells : dict of int to (ndarray of int, ndarray of int)
        By leaves' numbers their rows and columns.
    of_part : bool
        Whether a tree above takes what no sum does.
    claimed : callable, optional
        Of a table what is claimed of it, (G, cells): sums are used of which something is, not those that were measured.

    Attributes
    ----------
    size : int
    parts : dict of int to slice
        Where these are among all.
    variance, cost, to_root : ndarray, (size,)
        About the variance of what takes a unit; by how many standard errors it is at most, and how much of it the
        tree above takes; infinite where nothing does.
    left_to_root : ndarray of int
        Cells of a part's root under which there are any that only the tree above takes.
    root_costs : ndarray, (cells of the root,)
        What a unit of each costs in the cells below, in standard errors.
    """

    def __init__(
        self, places: PlacedTables, cells: Sought, of_part: bool = False, claimed: Claimed | None = None
    ) -> None:
        self._places, self.cells = places, cells
        ends = np.cumsum([0, *(row.size for row, _ in cells.values())]).tolist()
        self.parts = {number: slice(*own) for number, own in zip(cells, pairwise(ends), strict=True)}
        self.size, self.left_to_root = ends[-1], np.zeros(0, dtype=np.intp)
        self.root_costs = np.zeros(places.levels[0].width)
        self._of_claims: tuple[tuple[bytes, ...], FreeCells | None] = (), None
        if not self.size:
            return
        self._sums = SumsOfCells(places, cells, claimed or (lambda placed: placed.variance), of_part)
        told = np.zeros(self.size, dtype=bool)
        for number, part in self.parts.items():
            told[part] = places.leaves[number].told is not None
        holds, at_root = self._sums.holds, self._sums.at_root
        besides = np.ones(holds.shape[0]) if claimed else self._sums.besides()
        self._chosen = ChosenSums(holds, besides, self._sums.ranks, at_root, told)
        self.variance, self.cost, self.to_root = self._chosen.variance, self._chosen.cost, self._chosen.to_root
        self._used = np.flatnonzero(self._chosen.in_use)
        self._in_leaves = cache(partial(self._sums.in_leaves, chosen=self._used))
        for placed, own, _, cell in self._sums.of_tables():
            if placed is self._sums.root:
                held = sparse.coo_array(holds[own])
                cell, column = cell[held.coords[0]], held.coords[1]
                np.add.at(self.root_costs, cell, abs(held.data) * self.cost[column])
                lost = (self.to_root[column] > 0) | ~np.isfinite(self.cost[column])
                self.left_to_root = np.unique(cell[lost])

    @classmethod
    def of(cls, places: PlacedTables, of_part: bool = False) -> FreeCells:
        """Those that were not measured, which places keep."""
        if of_part not in places.kept:
            lacking = (
                (number, _unmeasured(places.levels[some.level], some)) for number, some in enumerate(places.leaves)
            )
            places.kept[of_part] = cls(places, {number: own for number, own in lacking if own[0].size}, of_part)
        found: FreeCells = places.kept[of_part]
        return found

    def without_claims(self, claimed: Callable[[LevelTable], Float]) -> FreeCells | None:
        """Those of which nothing is claimed, tables being given by theirs, (G, cells); None without any."""
        found, tables = dict[int, tuple[Index, Index]](), self._places.level_tables
        for number, (row, column) in self.cells.items():
            some = self._places.leaves[number]
            level, told = self._places.levels[some.level], some.told
            given = [claimed(own)[some.here] for own in level.own] if told is None else [told.total.astype(float)]
            lacks = np.isnan(side_by_side(given, level.columns)[row, column])
            if lacks.any():
                found[number] = row[lacks], column[lacks]
        if not found:
            return None
        are_all = sum(row.size for row, _ in found.values()) == self.size
        if are_all and np.isfinite(self.cost).all() and not self._chosen.depends and not self.to_root.any():
            return self  # measured sums of these places tell all of them
        arrays: list[NDArray] = [own for both in found.values() for own in both]
        arrays += [np.packbits(np.isfinite(claimed(placed))) for placed in tables]
        key = tuple(own.tobytes() for own in arrays)
        kept = self._of_claims  # once: another thread may keep those of another answer meanwhile
        if key != kept[0]:  # most answers say nothing of the same cells
            self._of_claims = kept = key, FreeCells(self._places, found, claimed=claimed)
        return kept[1]

    def solved(self, claimed: Claimed, cells: Callable[[int], Float]) -> Float:
        """Cells, (size,), with which sums are what is claimed, beside the others of leaves by number; NaN of some."""
        left, held = self._sums.values(claimed), np.zeros(self._used.size, dtype=np.longdouble)
        for number in range(len(self._places.leaves)):
            held += cells(number).ravel() @ self._in_leaves(number)
        left[self._used] = left[self._used] - held  # rounded once
        return self._chosen.solved(left)

    def filled(self, number: int, variance: Float) -> Float:
        """Variances of leaves' cells, (leaves, cells), with those of what takes a unit where nothing was measured."""
        if number not in self.cells:
            return variance
        found = np.array(variance)
        found[self.cells[number]] = self.variance[self.parts[number]]
        return found

    def taken(self, said: Float) -> Taken:
        """What sums take of residuals that are said of the cells, (size,)."""
        amounts = self._chosen.amounts(said)
        found = Taken(amounts[self._used])
        for placed, own, place, cell in self._sums.of_tables():
            if amounts[own].any():
                share = np.zeros((self._places.levels[placed.level].rows, placed.table.size))
                share[place, cell] = amounts[own]
                if placed is self._sums.root:
                    found.of_root = share[0]
                else:
                    found.shares[id(placed)] = share
        return found

    def taken_in(self, number: int, taken: Taken) -> tuple[Cells, Float]:
        """What is taken of some leaves' cells, (2, leaves, cells), and by how much that may be off, (leaves, cells)."""
        pulled, off = taken_by(self._in_leaves(number), taken.amounts)
        shape = self._places.cuts[number][1]
        return pulled.reshape(2, *shape), off.reshape(shape)

    def left(self, number: int, said: Cells, error: Float | float) -> tuple[float, float]:
        """Standard errors of what sums left of (2, leaves, cells), off by so much, and what a tree above takes.

        Raises
        ------
        NotCertifiedError
            If anything is left that no sum takes.
        """
        some, (row, column), part = self._places.leaves[number], self.cells[number], self.parts[number]
        rest, cost = abs(said[:, row, column]).sum(axis=0), self.cost[part]
        known = np.isfinite(cost)
        if (wrong := ~known & (rest > 0)).any():
            level, place = self._places.levels[some.level], int(wrong.argmax())
            table = next(own for own, cut in zip(level.own, level.columns, strict=True) if column[place] < cut.stop)
            raise NotCertifiedError(
                f"{np.count_nonzero(~known):,} cells of {table.table.name!r} in places of {level.name!r}, the first in "
                f"number {some.rows[row[place]]}, were not measured, and no measured sums were found to determine them"
            )
        rest += np.broadcast_to(error, said[0].shape)[row, column] + (
            0.0 if some.told is None else some.told.slack[row]
        )
        lost, to_root = (float((rest[known] * own[known]).sum()) for own in (cost, self.to_root[part]))
        return lost, to_root


def _unmeasured(level: Level, some: Leaves) -> tuple[Index, Index]:
    """Rows and columns of cells of some leaves that were not measured, and may be other than 0."""
    own = [placed.variance[some.here] for placed in level.own] if some.told is None else [some.told.variance]
    if not any(np.isinf(variance).any() for variance in own):
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    lacks = np.isinf(variances_of(level, some))
    row, column = np.nonzero(lacks & ~some.empty if some.empty.size else lacks)
    return row, column
