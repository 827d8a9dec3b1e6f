"""The leaves' own cells, and sums of these in all areas, in two doubles each: next to nothing is lost."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from blue_solvers.verification.compensated_sums import sum_rounding
from blue_solvers.verification.placed_tables import Figures, Leaves, PlacedTables
from blue_solvers.verification.reaches import Cells, Reach, add, finite, once, side_by_side, spread
from blue_solvers.verification.weighed_noise import PIECE, ROUNDING, NotCertifiedError, require_time
from constraint_builders.arrays import Float


class LeafCells:
    """What is claimed of the leaves' own cells, made to agree, and its sums.

    Parameters
    ----------
    places : PlacedTables
    figures : Figures

    Attributes
    ----------
    total : list of Cells
        By level sums over leaves, of the tables that hold all others; of no places where all are leaves.
    error : list of ndarray, (rows,)
        By how much a sum of any cells of a place may be off.
    """

    def __init__(self, places: PlacedTables, figures: Figures) -> None:
        self.places, self._figures = places, figures.tables
        self._filled: dict[int, Cells] = {}
        if self._sum_up() and places.nest:
            self._fill_in()

    def is_filled(self, number: int) -> bool:
        """Whether cells of some leaves are not those that are claimed, of which nothing is said."""
        return number in self._filled

    def _sum_up(self) -> bool:
        """Whether nothing is said of some leaves' cells."""
        levels, lacks = self.places.levels, False
        self.total = [
            level.room(level.rows * bool(own.size)) for level, own in zip(levels, self.places.inner, strict=True)
        ]
        self.error = [np.zeros(own.shape[1]) for own in self.total]
        count = sum(some.rows.size for some in self.places.leaves) + len(levels)
        rounding = sum_rounding(count, max(level.width for level in levels))

        def hand_up(areas: dict[int, Reach], cells: Cells, error: Float) -> None:
            """Add cells to those of areas, and how far all cells of a row may be off together, (rows,)."""
            for above, reach in areas.items():
                add(cells, reach, self.total[above])
                self.error[above] += reach.sizes_in_areas(error, self.error[above].size) * (1 + count * ROUNDING)

        for number, some in enumerate(self.places.leaves):
            if number:
                require_time()
            cells, error = self.of(number)
            lacks |= bool(np.isnan(cells[0].sum()))
            if some.above:
                hand_up(some.above, cells, error + rounding * sizes_of(cells))
        for number, total in reversed(list(enumerate(self.total))):
            hand_up(levels[number].above, total, self.error[number])
        return lacks

    def of(self, number: int) -> tuple[Cells, Float]:
        """Those of some leaves, and how far all cells of a row may be off together."""
        some = self.places.leaves[number]
        if some.told is not None:
            cells = np.stack([high := some.told.total.astype(float), (some.told.total - high).astype(float)])
            if number in self._filled:
                return self._filled[number], some.told.error + sizes_of(cells[1:])
            return cells, some.told.error
        if number in self._filled:
            return self._filled[number], np.zeros(some.rows.size)
        level = self.places.levels[some.level]
        if not all(placed.key for placed in level.own):
            raise NotCertifiedError(f"no table at {level.name} holds all others")
        claimed = [self._figures[placed.key][0][some.here] for placed in level.own]
        cells = side_by_side([np.asarray(own, dtype=float) for own in claimed], level.columns)
        if some.margins is not None:
            error = np.zeros(cells.shape)
            return some.margins.agreeing(np.stack([cells, error]), error), error.sum(axis=1)
        variance = level.own[0].variance[some.here]
        if not variance.all():
            cells = np.where(variance == 0, self._figures[level.own[0].key][1][some.here], cells)
        cells = np.where(some.empty, 0.0, cells) if some.empty.size else cells
        return cells[None], np.zeros(some.rows.size)

    @cached_property
    def _beside_others(self) -> list[Float]:
        """By level the standard deviation of what areas say of one cell, all else in them taken off, (areas, cells).

        Infinite where tables of the area do not measure it, or two cells or more in it were not measured.
        """
        found = list[Float]()
        for number, level in enumerate(self.places.levels):
            squares, lacking = level.room(), level.room()
            for some in self.places.leaves:
                if number in some.reach:
                    own = self.places.levels[some.level].variances(some.here)
                    own = own if some.told is None else np.broadcast_to(some.told.variance, own.shape)
                    add(finite(own)[None], some.reach[number].to_power(2), squares)
                    add(np.isinf(own)[None].astype(float), some.reach[number].to_power(0), lacking)
            found.append(np.sqrt(np.where(lacking[0] > 1, np.inf, squares[0] + level.variances(slice(None)))))
        return found

    def moved_up(self, some: Leaves, cells: Float) -> float:
        """What cells, (leaves, cells), that were not measured cost at most in areas above, in standard errors."""
        least = np.where(cells == 0, 0.0, np.inf)
        for above, reach in some.reach.items():
            beside = self._beside_others[above][reach.areas]
            beside = beside[:, reach.into] if reach.into.size else beside
            np.minimum.at(least, reach.rows, beside / abs(reach.weights)[:, None])
        return float((abs(cells) * least).sum())

    def _fill_in(self) -> None:
        """Where nothing is said of leaves they share what the figures above them leave, the lowest first."""
        for above, level in reversed(list(enumerate(self.places.levels))):
            total, placed = self.total[above], level.own[0]
            if not total.size or not placed.key:
                continue
            x = self._figures[placed.key][0][:]
            lacking = np.isnan(total[0]) & np.isfinite(x)
            reaches = {i: own.reach[above] for i, own in enumerate(self.places.leaves) if above in own.reach}
            some = {number: self.of(number)[0][0] for number in reaches} if lacking.any() else {}
            counts, sums = level.room(), level.room()
            for number, cells in some.items():
                add(np.isnan(cells)[None].astype(float), reaches[number], counts)
                add(np.where(np.isnan(cells), 0.0, cells)[None], reaches[number], sums)
            shares = np.where(lacking, x - sums[0], np.nan) / np.where(lacking, counts[0], 1.0)
            for number, cells in some.items():
                found = np.zeros((2, *cells.shape))
                spread(shares[None], reaches[number], found)
                inside = np.diff(reaches[number].starts)[:, None] > 0
                open_ = np.isnan(cells) & inside & np.isfinite(found[0])
                if open_.any():
                    self._filled[number] = np.where(np.isnan(cells) & inside, found[0], cells)[None]
            if some:
                self._sum_up()


def sizes_of(cells: Cells) -> Float:
    """Of all cells of a row together, (rows,)."""
    if cells.shape[2] == 1:
        return np.nan_to_num(abs(cells[0, :, 0]))
    pieces = (abs(cells[0, :, start : start + PIECE]) for start in range(0, cells.shape[2], PIECE))
    found = sum((np.einsum("ij->i", own) for own in pieces), np.zeros(cells.shape[1]))
    return np.nansum(abs(cells[0]), axis=1) if np.isnan(found).any() else found


def lengths_of(cells: Cells) -> Float:
    """Of rows, (rows,): no cell is larger."""
    if cells.shape[2] == 1:
        return abs(cells[0, :, 0])
    return np.sqrt(np.einsum("ij,ij->i", cells[0], cells[0]))


def weighed(cells: Float, variance: Float) -> float:
    """Squares of cells, (rows, cells), in variances; nothing is nothing however large a variance is."""
    variance, own, alike = once(variance), once(cells), 1
    if np.isfinite(variance).all():
        if variance.shape[1] == 1:
            alike = cells.shape[1] if own.shape[1] == 1 else 1
            squares = np.square(own[:, 0]) if own.shape[1] == 1 else np.einsum("ij,ij->i", own, own)
            return alike * float(np.einsum("i,i->", squares, variance[:, 0]))
        return float(np.einsum("ij,ij,ij->", cells, cells, np.broadcast_to(variance, cells.shape)))
    with np.errstate(invalid="ignore"):
        return float(np.where(cells == 0, 0.0, cells**2 * variance).sum())
