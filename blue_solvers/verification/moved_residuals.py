"""Proofs by sums over leaves: residuals are moved to the leaves' cells, and figures compared with sums of these.

Whatever a residual says of a figure it says of all leaves' cells within, so it may be moved there; what cells of an
area have in common may be moved back to a table of that area, which costs less where that was measured well, and
nothing where it is known exactly. Neither changes what the residuals say of the counts. What is left after moving,
wherever it lies, is the bound; at the best estimate nothing is.

Leaves come some at a time. A part of a tree tells what all its leaves have in common, and its sums, to the tree above,
where it stands as one leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from blue_solvers.verification.certificate_sums import CertificateSums, judge
from blue_solvers.verification.compensated_sums import sum_rounding
from blue_solvers.verification.free_cells import FreeCells, Taken
from blue_solvers.verification.leaf_cells import Handed, LeafCells, hand_down, hand_on, length_of, sizes_of, weighed
from blue_solvers.verification.moved_back import cost_to_pass, put_back, under_exact
from blue_solvers.verification.placed_tables import NONE_EMPTY, Figures, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import Cells, Reach, add, finite, once, plus, spread
from blue_solvers.verification.sums_of_cells import variances_of
from blue_solvers.verification.weighed_noise import NotCertifiedError, require_time
from constraint_builders.arrays import Flags, Float, Index

NEAR = 2e-13  # standard errors, times the root of the figures: what may be left before anything is moved back to areas
MOST_BESIDE = 2  # times what figures disagree by, which is part of the bound anyway
MOST_KEPT = 2**21  # cells of leaves of which it is kept what residuals say of them: of more it is worked out anew


class MovedResiduals:
    """What is left, and what disagrees, in all places.

    Parameters
    ----------
    places : PlacedTables
    figures : Figures
    keep : int
        Number of figures, of which `sums` and `apart` are kept; 0 for none.
    of_part : bool
        Whether a tree stands above, which takes what sums of this one do not.

    Attributes
    ----------
    totals : CertificateSums
    sums, apart : ndarray, (figures,)
        Of the leaves' cells, and how far figures are off them.
    """

    def __init__(self, places: PlacedTables, figures: Figures, keep: int = 0, of_part: bool = False) -> None:
        self.places, self.figures = places, figures
        self._free = FreeCells.of(places, of_part)
        self._taken, self._slack = Taken(), 0.0
        self.totals, self.cells = CertificateSums(), LeafCells(places, figures, self._free)
        self.sums, self.apart = np.zeros(keep, dtype=np.longdouble), np.zeros(keep)
        self._said = list[Cells]()
        self._handed = list[Handed]()
        self._kept: dict[int, Cells] = {}
        self._leaves_cells = sum(own.rows.size * places.levels[own.level].width for own in places.leaves)
        self._put: dict[str, Float] = {}
        self._judged = set[int]()
        for level, rows, here, total in zip(places.levels, places.inner, places.here, self.cells.total, strict=True):
            said = np.zeros(total.shape)
            if level.level_tables and rows.size:
                said[:, here] = self._look_at(level, rows, (total[:, here], self.cells.error))
            self._said.append(said)

    def finish(self) -> CertificateSums:
        """Of a tree above which nothing is, or of areas."""
        self._move_back(0)
        return self.totals

    def _look_at(
        self,
        level: Level,
        rows: Index,
        sums: tuple[Cells, float] | None,
        are_cells: bool = False,
        empty: Flags = NONE_EMPTY,
    ) -> Cells:
        """What the residuals of some places, (rows,), say of the tables that hold all others, (2, rows, cells).

        Their figures are judged beside sums of the leaves' cells, where these are given, with their errors; of leaves
        those of tables that hold all others may be these cells themselves, of which some are structural zeros.
        """
        count = rows.size
        said, vector, errors = level.vector(count), level.vector(count), [0.0, 0.0]
        if sums is not None:
            cells, error = sums
            level.held(vector, count)[: len(cells)] = cells
            level.sum_up(vector, count)
            rounding = sum_rounding(1, level.width) * sizes_of(cells[0]) if level.others else 0.0
            errors = [error + len(level.others) * rounding, 0.0 if are_cells else error]
        known = self.totals if sums is not None else CertificateSums()  # judged once
        for placed in filter(lambda placed: placed.key, level.level_tables):
            own = placed is level.own[placed.cover]
            here = NONE_EMPTY
            if own and empty.size:
                here = empty[:, level.columns[placed.cover]].copy()  # of one type, as all that kernels are given
            total, rho = level.of(placed, vector, count), level.of(placed, said, count)
            figures, noise = self.figures.of(placed), (placed.variance, placed.least)
            high, low = np.ascontiguousarray(total[0]), np.ascontiguousarray(total[1])
            of_table = known.tables.setdefault(placed.key, placed.unjudged * [1.0, 1.0, level.squares, 1.0])
            error, rounded = errors[int(own)], known.found[5]
            share = rho[0]
            weighted = share if share.flags.c_contiguous else np.zeros(high.shape)
            judge(rows, figures, noise, (high, low), level.places, error, here, weighted, (known.found, of_table))
            if (given := self.figures.part(self.figures.rho, placed)) is not None:
                known.found[5], weighted = rounded, given[rows]
            if weighted is not share:
                share[...] = weighted
            if (pulled := self.figures.part(self.figures.pulled, placed)) is not None:
                plus(rho, -pulled[:, rows])
            if sums is None:
                continue
            if known.found[6]:
                raise NotCertifiedError(
                    f"table {placed.table.name!r} at {level.name} has cells below that nothing is said of"
                )
            known.cells += high.size
            if (sums_of := self.figures.part(self.sums, placed)) is not None:
                sums_of[rows] = total.sum(axis=0, dtype=np.longdouble)
                off = abs(figures[0][rows] - total[0] - total[1]) + error
                self.apart[placed.place].reshape(sums_of.shape)[rows] = np.nan_to_num(off)
        level.spread_out(said, count)
        return level.held(said, count)

    def _residuals(self, number: int, careful: bool = False) -> tuple[Cells, Float, Float | float, dict[int, Float]]:
        """What residuals say of the leaves' cells, their variances, and by how much each may be off, all or one by one.

        What is known exactly takes its part; if `careful` all tables take theirs, which are given by `id`.
        """
        some = self.places.leaves[number]
        level, told = self.places.levels[some.level], some.told
        said = self._own(number) if told is None else np.stack([told.share, np.zeros(told.share.shape)])
        variance = self._free.filled(number, variances_of(level, some))
        if some.above:
            said = np.ascontiguousarray(said)
        size = length_of(said)
        size += hand_down(some.above, self._handed, said)
        if some.empty.size:
            said[:, some.empty] = 0.0
            variance = np.where(some.empty, 0.0, variance)
        if some.margins is not None:
            said, moved = some.margins.moved(said)
            size += moved
        error: Float | float = self._rounding(level) * size
        if self.figures.slack is not None:
            error = error + self.figures.slack[self.places.cuts[number][0]].reshape(said[0].shape)
        takers = [placed for placed in level.level_tables if told is not None or placed is not level.own[placed.cover]]
        for placed in takers if level.exact else ():  # at no cost
            own = placed.variance[some.here]
            if not own.all():
                put_back(level, placed, np.where(own == 0, 0.0, np.inf), said, variance)
        shares = dict[int, Float]()
        for placed in takers if careful else ():
            shares[id(placed)] = put_back(level, placed, placed.variance[some.here], said, variance)
        return said, variance, error, shares

    def _rounding(self, level: Level) -> float:
        """Of what is moved to a cell, beside the sizes of all of it."""
        return sum_rounding(len(level.level_tables) + len(self._said) + len(level.tables), 1)

    def _own(self, number: int) -> Cells:
        """What the residuals of tables of some leaves say of their cells, to be changed; judges them the first time."""
        some = self.places.leaves[number]
        if number in self._kept:
            return self._kept[number].copy()
        level = self.places.levels[some.level]
        sums = None if number in self._judged else self.cells.of(number)
        self._judged.add(number)
        self.totals.has_empty |= some.empty.size > 0
        are_cells = some.margins is None and not self.cells.is_filled(number)
        said = self._look_at(level, some.rows, sums, are_cells, some.empty)
        if self._leaves_cells <= MOST_KEPT and sums is None:
            self._kept[number] = said.copy()
        return said

    def _left(self, careful: bool) -> float:
        """Squares of all that is left; if `careful` tables of the leaves take their part of it."""
        self._handed = hand_on(self.places.levels, self._said)
        if self._free.size:
            said = np.zeros(self._free.size)
            for number, part in self._free.parts.items():
                said[part] = self._residuals(number, careful)[0][0][self._free.cells[number]]
            self._taken = self._free.taken(said)
        self.totals.left, self.totals.returned, self.totals.rounded, self._slack = 0.0, {}, 0.0, 0.0
        if self.figures.left is not None:
            self.figures.left[:] = 0.0
        for number, some in enumerate(self.places.leaves):
            if number or careful:  # of few cells to ask takes a tenth of the proof
                require_time()
            level = self.places.levels[some.level]
            said, variance, error, shares = self._residuals(number, careful)
            if self._taken.amounts.any():
                own, off = self._free.taken_in(number, self._taken)
                plus(said, -own)
                error = error + off + self._rounding(level) * length_of(own)
            self.totals.rounded += weighed(np.broadcast_to(error, said[0].shape), finite(once(variance)))
            if number in self._free.cells:
                self._vanish(number, said, error)
            for placed in level.level_tables:
                share = self._taken.of(placed, some.here, shares.get(id(placed)))
                if share is not None:
                    self._leave(placed, some.here, share)
            cells = said[0] + said[1]  # of a difference of large ones the second part is no rounding of the first
            if some.told is not None:
                before = self.totals.returned.get(level.name, 0.0)
                self.totals.returned[level.name] = before + weighed(cells, variance)
                continue
            if some.empty.size:
                cells[variance == 0] = 0.0
            for columns, holding in zip(level.columns, level.own, strict=True):
                self._leave(holding, some.here, cells[:, columns])
        for number, level in enumerate(self.places.levels):
            here = self.places.here[number]
            for placed in level.level_tables if self.places.inner[number].size else ():
                share = self._taken.of(placed, here, self._put.get(placed.key))
                if share is not None:
                    self._leave(placed, here, share)
        return self.totals.left + sum(self.totals.returned.values())

    def _vanish(self, number: int, said: Cells, error: Float | float) -> None:
        """Judge what rounding leaves of (2, leaves, cells) where nothing was measured, and make it 0."""
        lost, to_root = self._free.left(number, said, error)
        before = np.sqrt(self.totals.returned.get("", 0.0))
        self.totals.returned[""] = float(before + lost) ** 2
        self._slack += to_root
        said[:, *self._free.cells[number]] = 0.0

    def _leave(self, placed: LevelTable, rows: slice | Index, cells: Float) -> None:
        """Leave residuals, (rows, cells), in cells of a table."""
        variance = placed.variance[rows]
        self.totals.left += weighed(cells, variance)
        if (left := self.figures.part(self.figures.left, placed)) is not None:
            left[rows] = np.where(variance > 0, cells, 0.0)

    def _move_back(self, first: int) -> None:
        """Leave residuals where they are; where that is much, move to the areas of levels what they have in common.

        Tables that are known exactly come first, and then all.
        """
        measured = self.places.measured
        levels = [number for number in range(first, len(measured)) if measured[number]]
        exact = [number for number in levels if not all(own.variance.all() for own in measured[number])]
        square = np.inf if exact and self.figures.pulled is None else self._left(careful=False)
        least, kept = square, self._state()
        for tried in (*[exact] * bool(exact), levels):
            if self._is_little(square):
                break
            for numbers in [tried] * bool(tried) if self.places.nest else [[number] for number in tried]:
                self._take_back(numbers, free=tried is exact)
            if tried:
                square = self._left(careful=False)
            if tried is not exact and not self._is_little(square):
                square = self._left(careful=True)
            if square < least:
                least, kept = square, self._state()
        if square > least:
            self.totals, self._slack, self._taken, left = kept
            if self.figures.left is not None and left is not None:
                self.figures.left[:] = left

    def _state(self) -> tuple[CertificateSums, float, Taken, Float | None]:
        """What is left, and where."""
        left = None if self.figures.left is None else self.figures.left.copy()
        return replace(self.totals), self._slack, self._taken, left

    def _is_little(self, square: float) -> bool:
        """Whether what is left is next to nothing, or to what figures disagree by."""
        least = max(NEAR * np.sqrt(self.totals.cells), MOST_BESIDE * np.sqrt(self.totals.apart))
        return bool(np.sqrt(square) <= least)

    def _take_back(self, numbers: Sequence[int], free: bool) -> None:
        """Move to the tables of levels what the cells of their places have in common; if `free`, at no cost.

        Those of several levels nest: what places above take is no longer in common.
        """
        means, taken = self._means(numbers, free), dict[int, Cells]()
        for number, level in enumerate(self.places.levels):
            rows, said = self.places.here[number], self._said[number]
            taken[number] = np.zeros(said.shape)
            for above in taken.keys() & level.above.keys():
                spread(taken[above], level.above[above], taken[number])
            if number not in means:
                continue
            mean, cost = (own[..., rows, :] for own in means[number])
            plus(mean, taken[number][0, rows])
            moved = -mean
            for placed in self.places.measured[number]:
                own, known = placed.variance[rows], self._put.get(placed.key)
                own = np.where(own == 0, 0.0, np.inf) if free else own
                share = put_back(level, placed, own, mean, cost, known)
                self._put[placed.key] = share if known is None else known + share
            changed = said[:, rows]
            plus(moved, mean)
            plus(changed, moved)
            if not isinstance(rows, slice):
                said[:, rows] = changed
            taken[number][0, rows] += moved[0]

    def _means(self, numbers: Sequence[int], free: bool = False) -> dict[int, tuple[Cells, Float]]:
        """What the leaves' cells in places of levels have in common, and what it costs to leave it to them together.

        Where areas nest, places of the levels that are below others take of it what costs their finest tables less; if
        `free`, those of which a table is known exactly take all, and others nothing.
        """
        levels, nest, found = self.places.levels, self.places.nest, dict[int, tuple[Cells, Float]]()
        totals, squares, lacking = ([np.zeros(said.shape) for said in self._said] for _ in range(3))

        def hand_up(areas: dict[int, Reach], said: Cells, variance: Float) -> None:
            """Add what cells, (2, rows, cells), say to the places that they are in, weighted by their variances."""
            noise = finite(variance)
            for number in areas if nest else areas.keys() & {*numbers}:
                add((noise * said[0])[None], areas[number], totals[number])
                add(noise[None], areas[number].to_power(2), squares[number])
                if noise is not variance:
                    add(np.isinf(variance).astype(float)[None], areas[number].to_power(0), lacking[number])

        self._handed = hand_on(self.places.levels, self._said)
        for i, some in enumerate(self.places.leaves):
            if some.level <= min(numbers):
                continue
            said, variance, *_ = self._residuals(i)
            if free:
                from_on = some.level if nest else numbers[0] + 1
                variance = np.where(under_exact(self.places, some, from_on)[:, None], 0.0, variance)
            hand_up(some.above if nest else some.reach, said, variance)
        for number in reversed([i for i, rows in enumerate(self.places.inner) if rows.size]):
            cost = np.where(lacking[number][0] > 0, np.inf, squares[number][0])
            mean = np.zeros(totals[number].shape)
            np.divide(totals[number][0], cost, out=mean[0], where=(cost > 0) & (cost < np.inf))
            found[number] = mean, cost
            hand_up(levels[number].above, found[number][0], cost_to_pass(levels[number], cost, number in numbers, free))
        return {number: found[number] for number in numbers}
