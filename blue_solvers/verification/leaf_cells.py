"""The leaves' own cells, and sums of these in all areas, in two doubles each: next to nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.verification.compensated_sums import sum_rounding
from blue_solvers.verification.free_cells import FreeCells
from blue_solvers.verification.placed_tables import Figures, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import Cells, Reach, add, once, side_by_side, spread
from blue_solvers.verification.weighed_noise import ROUNDING, require_time
from constraint_builders.arrays import Float

Handed = tuple[Cells, float]  # what is said of places of a level by all above, and how large it is at most


class LeafCells:
    """What is claimed of the leaves' own cells, made to agree, and its sums.

    Parameters
    ----------
    places : PlacedTables
    figures : Figures
    free : FreeCells
        Those that were not measured.

    Attributes
    ----------
    total : list of Cells
        By level sums over leaves, of the tables that hold all others; of no places where all are leaves.
    error : float
        By how much a sum of any cells of an area may be off.
    """

    def __init__(self, places: PlacedTables, figures: Figures, free: FreeCells) -> None:
        self.places, self._figures = places, figures.tables
        self._lacking, self._are_sought = free.without_claims(self._claimed), False
        if self._lacking is not None:
            self._values, self._are_sought = np.zeros(self._lacking.size), True
            given = self._lacking.solved(self._claimed, lambda number: self.of(number)[0].sum(axis=0))
            self._values, self._are_sought = given, False
        self._sum_up()

    def _claimed(self, placed: LevelTable) -> Float:
        """What is claimed of a table, (G, cells); NaN of one of which nothing is."""
        if placed.key:
            return np.asarray(self._figures[placed.key][0][:], dtype=float)
        return np.broadcast_to(np.nan, (self.places.levels[placed.level].rows, placed.table.size))

    @property
    def are_all_claimed(self) -> bool:
        """Whether none was put where nothing is said."""
        return self._lacking is None

    def is_filled(self, number: int) -> bool:
        """Whether cells of some leaves are not those that are claimed, of which nothing is said."""
        return self._lacking is not None and number in self._lacking.cells

    def _sum_up(self) -> None:
        levels = self.places.levels
        self.total = [
            level.room(level.rows * bool(own.size)) for level, own in zip(levels, self.places.inner, strict=True)
        ]
        count, self.error = sum(some.rows.size for some in self.places.leaves) + len(levels), 0.0
        rounding = sum_rounding(count, max(level.width for level in levels))
        for number, some in enumerate(self.places.leaves):
            if number:
                require_time()
            cells, error = self.of(number)
            for above, reach in some.above.items():
                add(cells, reach, self.total[above])
            most = max((reach.most for reach in some.above.values()), default=0.0)
            self.error += most * (error + rounding * sizes_of(cells[0])) * (1 + count * ROUNDING)
        for level, total in reversed(list(zip(levels, self.total, strict=True))):
            for above, reach in level.above.items():
                add(total, reach, self.total[above])

    def of(self, number: int) -> tuple[Cells, float]:
        """Those of some leaves, and how far all of them may be off together."""
        some = self.places.leaves[number]
        if some.told is not None:
            cells = np.stack([high := some.told.total.astype(float), (some.told.total - high).astype(float)])
            if self._lacking is not None and number in self._lacking.cells:
                place = self._lacking.cells[number]
                cells[0][place], cells[1][place] = self._values[self._lacking.parts[number]], 0.0
            return cells, float(some.told.error.sum())
        level = self.places.levels[some.level]
        claimed = [self._claimed(placed)[some.here] for placed in level.own]
        cells = side_by_side([np.asarray(own, dtype=float) for own in claimed], level.columns)
        if self._lacking is not None and number in self._lacking.cells:
            cells = np.array(cells)
            cells[self._lacking.cells[number]] = self._values[self._lacking.parts[number]]
        if some.margins is not None and not self._are_sought:
            error = np.zeros(cells.shape)
            return some.margins.agreeing(np.stack([cells, error]), error), float(error.sum())
        variance = level.own[0].variance[some.here]
        if some.margins is None and not variance.all():
            cells = np.where(variance == 0, self._figures[level.own[0].key][1][some.here], cells)
        cells = np.where(some.empty, 0.0, cells) if some.empty.size else cells
        return cells[None], 0.0


def sizes_of(cells: Float) -> float:
    """Sizes of numbers, (rows, cells), together, at most; those that are NaN count for nothing."""
    found = float(np.sqrt(cells.size * np.einsum("ij,ij->", cells, cells)))  # of large tables a copy takes longer
    return found if np.isfinite(found) else float(np.nansum(abs(cells)))


def length_of(cells: Cells) -> float:
    """Of all cells, (parts, rows, cells), together: none is larger."""
    return float(np.sqrt(np.einsum("ij,ij->", cells[0], cells[0])))


def weighed(cells: Float, variance: Float) -> float:
    """Squares of cells, (rows, cells), in variances; nothing is nothing however large a variance is."""
    if not np.isfinite(variance := once(variance)).all():
        with np.errstate(invalid="ignore"):
            return float(np.where(cells == 0, 0.0, cells**2 * variance).sum())
    if variance.shape[1] == 1:
        alike = once(cells)  # that of all cells of a row
        squares = np.einsum("ij,ij->i", alike, alike)  # in one thread
        return cells.shape[1] // alike.shape[1] * float(np.einsum("i,i->", squares, variance[:, 0]))
    return float(np.einsum("ij,ij,ij->", cells, cells, variance))


def hand_down(areas: dict[int, Reach], handed: Sequence[Handed], said: Cells) -> float:
    """Add to cells, (2, rows, cells), what is said of the areas that they are in; gives how large that is at most."""
    for above, reach in areas.items():
        spread(handed[above][0], reach, said)
    return sum(reach.most * handed[above][1] for above, reach in areas.items())


def hand_on(levels: Sequence[Level], said_of: Sequence[Cells]) -> list[Handed]:
    """By level what is said of places, (2, rows, cells), and of those above them, and how large that is at most."""
    handed = list[Handed]()
    for level, own in zip(levels, said_of, strict=True):
        said, areas = own.copy() if level.above else own, level.above if own.size else {}
        handed.append((said, length_of(own) + hand_down(areas, handed, said)))
    return handed
