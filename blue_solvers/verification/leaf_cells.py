"""The leaves' own cells, and sums of these in all areas, in two doubles each: next to nothing is lost."""

from __future__ import annotations

import numpy as np

from blue_solvers.verification.compensated_sums import EXACTLY, NO_MAP, Cells, Reach, add, spread_out, sum_rounding
from blue_solvers.verification.placed_tables import PlacedTables
from blue_solvers.verification.time_limit import require_time
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders.arrays import Float, Index, Long


class LeafCells:
    """What is claimed of the leaves' own cells, made to agree, and its sums.

    Parameters
    ----------
    places : PlacedTables

    Attributes
    ----------
    inner : list of ndarray of int
        By level the places that are no leaves.
    total : list of Cells or None
        By level sums over leaves, (rows, cells of the tables that hold all others); None where all are leaves.
    error : list of ndarray, (rows,)
        By how much a sum of any cells of a place may be off.
    """

    def __init__(self, places: PlacedTables) -> None:
        self.places = places
        self.inner: list[Index] = []
        for number, level in enumerate(places.levels):
            inside = np.ones(level.rows, dtype=bool)
            for some in places.leaves:
                if some.level == number:
                    inside[some.rows] = False
            self.inner.append(np.flatnonzero(inside))
        self._filled: dict[int, Float] = {}
        if self._sum_up() and places.nest:
            self._fill_in()

    def room(self, number: int) -> Cells:
        """Zeros for the places of a level."""
        return self.places.levels[number].room()

    def is_filled(self, number: int) -> bool:
        """Whether cells of some leaves are not those that are claimed, of which nothing is said."""
        return number in self._filled

    def _sum_up(self) -> bool:
        """Whether nothing is said of some leaves' cells."""
        levels = self.places.levels
        self.total = [self.room(number) if own.size else None for number, own in enumerate(self.inner)]
        sizes, counts = [np.zeros((level.rows, 2)) for level in levels], [np.zeros(level.rows) for level in levels]
        lacks = False
        for number, some in enumerate(self.places.leaves):
            require_time()
            cells, error = self.of(number)
            lacks |= bool(np.isnan(cells[0]).any())
            own = np.column_stack([np.nansum(abs(cells[0]), axis=1), error])
            self._hand_up(some.above, (cells, own, np.ones(error.size)), sizes, counts)
        for number in reversed(range(len(levels))):
            total = self.total[number]
            if total is not None and levels[number].above:
                self._hand_up(levels[number].above, (total, sizes[number], counts[number] + 1), sizes, counts)
        self.error = [
            own[:, 1] + sum_rounding(int(count.max(initial=0)), level.width) * own[:, 0]
            for own, count, level in zip(sizes, counts, levels, strict=True)
        ]
        return lacks

    def _hand_up(
        self, areas: dict[int, Reach], own: tuple[Cells, Float, Float], sizes: list[Float], counts: list[Float]
    ) -> None:
        """Add cells of some places to those of the areas that they are in.

        With them go their sizes and errors, (rows, 2), and how many were added to make them, (rows,).
        """
        cells, size, count = own
        for above, reach in areas.items():
            total = self.total[above]
            if total is not None:
                add(cells, reach, total)
                every = Reach(reach.starts, reach.areas, abs(reach.weights), NO_MAP)
                add((size, EXACTLY), every, (sizes[above], np.zeros(sizes[above].shape)))
                counts[above] += np.bincount(reach.areas, count[reach.rows], len(total[0]))

    def of(self, number: int) -> tuple[Cells, Float]:
        """Those of some leaves, and how far all cells of a row may be off together."""
        some = self.places.leaves[number]
        if number in self._filled:
            lost = np.zeros(some.rows.size)
            if some.told is not None:
                lost = some.told.error + np.nansum(abs(_halves(some.told.total)[1]), axis=1)
            return (self._filled[number], EXACTLY), lost
        if some.told is not None:
            return _halves(some.told.total), some.told.error
        level, held = self.places.levels[some.level], []
        for holder in range(len(level.tables)):
            sheet = level.own(holder)
            if sheet is None or sheet.x is None:
                raise NotCertifiedError(f"no table at {level.name} holds all others")
            held.append((sheet, sheet.x[some.rows]))
        cells = np.concatenate([x for _, x in held], axis=1) if len(held) > 1 else held[0][1]
        if some.margins is not None:
            error = np.zeros(cells.shape)
            return some.margins.agreeing((cells, EXACTLY), error), error.sum(axis=1)
        (sheet, _), cells = held[0], np.ascontiguousarray(cells, dtype=float)
        variance = sheet.variance[some.rows]
        if sheet.y is not None and (variance == 0).any():
            cells = np.where(variance == 0, sheet.y[some.rows], cells)
        return (cells if some.empty is None else np.where(some.empty, 0.0, cells), EXACTLY), np.zeros(len(cells))

    def _fill_in(self) -> None:
        """Where nothing is said of leaves they share what the figures above them leave, the lowest first."""
        for above in reversed(range(len(self.places.levels))):
            total, sheet = self.total[above], self.places.levels[above].own(0)
            if total is None or sheet is None or sheet.x is None:
                continue
            x = sheet.x[:]
            lacking = np.isnan(total[0]) & np.isfinite(x)
            some = [number for number, own in enumerate(self.places.leaves) if above in own.reach and lacking.any()]
            holes = {number: np.isnan(self.of(number)[0][0]) for number in some}
            counts, sums = self.room(above), self.room(above)
            for number, open_ in holes.items():
                cells, reach = self.of(number)[0][0], self.places.leaves[number].reach[above]
                add((open_.astype(float), EXACTLY), reach, counts)
                add((np.where(open_, 0.0, cells), EXACTLY), reach, sums)
            shares = np.where(lacking, x - sums[0], np.nan) / np.where(lacking, counts[0], 1.0)
            for number, open_ in holes.items():
                cells = self.of(number)[0][0]
                found = np.zeros(cells.shape), np.zeros(cells.shape)
                reach = self.places.leaves[number].reach[above]
                spread_out.fastest()(shares, *reach.arguments, *found)
                if (open_ & np.isfinite(found[0])).any():
                    inside = np.diff(reach.starts)[:, None] > 0
                    self._filled[number] = np.where(open_ & inside, found[0], cells)
            if holes:
                self._sum_up()


def _halves(whole: Float | Long) -> Cells:
    cells = whole.astype(float)
    return cells, (whole - cells).astype(float)
