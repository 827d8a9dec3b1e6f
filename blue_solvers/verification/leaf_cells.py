"""The leaves' own cells, and sums of these in all areas, in two doubles each: next to nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from blue_solvers.verification.compensated_sums import sum_rounding
from blue_solvers.verification.free_cells import FreeCells
from blue_solvers.verification.placed_tables import Figures, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import Cells, Reach, add, once, side_by_side, spread
from blue_solvers.verification.weighed_noise import PIECE, ROUNDING, DisprovedError, NotCertifiedError, require_time
from constraint_builders.arrays import Float

Handed = tuple[Cells, Float]  # what is said of places of a level by all above, and how large it is, (rows,)


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
    error : list of ndarray, (rows,)
        By how much a sum of any cells of a place may be off.
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

    @contextmanager
    def not_claimed(self) -> Iterator[None]:
        """Let nothing be disproved by cells of which nothing was claimed."""
        try:
            yield
        except DisprovedError as error:
            if self._lacking is None:
                raise
            raise NotCertifiedError(f"{error}, by the cells that were put where none are claimed") from error

    def is_filled(self, number: int) -> bool:
        """Whether cells of some leaves are not those that are claimed, of which nothing is said."""
        return self._lacking is not None and number in self._lacking.cells

    def _sum_up(self) -> None:
        levels = self.places.levels
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
            if some.above:
                hand_up(some.above, cells, error + rounding * sizes_of(cells))
        for number, total in reversed(list(enumerate(self.total))):
            hand_up(levels[number].above, total, self.error[number])

    def of(self, number: int) -> tuple[Cells, Float]:
        """Those of some leaves, and how far all cells of a row may be off together."""
        some = self.places.leaves[number]
        if some.told is not None:
            cells = np.stack([high := some.told.total.astype(float), (some.told.total - high).astype(float)])
            if self._lacking is not None and number in self._lacking.cells:
                place = self._lacking.cells[number]
                cells[0][place], cells[1][place] = self._values[self._lacking.parts[number]], 0.0
            return cells, some.told.error
        level = self.places.levels[some.level]
        claimed = [self._claimed(placed)[some.here] for placed in level.own]
        cells = side_by_side([np.asarray(own, dtype=float) for own in claimed], level.columns)
        if self._lacking is not None and number in self._lacking.cells:
            cells = np.array(cells)
            cells[self._lacking.cells[number]] = self._values[self._lacking.parts[number]]
        if some.margins is not None and not self._are_sought:
            error = np.zeros(cells.shape)
            return some.margins.agreeing(np.stack([cells, error]), error), error.sum(axis=1)
        variance = level.own[0].variance[some.here]
        if some.margins is None and not variance.all():
            cells = np.where(variance == 0, self._figures[level.own[0].key][1][some.here], cells)
        cells = np.where(some.empty, 0.0, cells) if some.empty.size else cells
        return cells[None], np.zeros(some.rows.size)


def sizes_of(cells: Cells) -> Float:
    """Of all cells of a row together, (rows,)."""
    pieces = (abs(cells[0, :, start : start + PIECE]) for start in range(0, cells.shape[2], PIECE))
    found = sum((np.einsum("ij->i", own) for own in pieces), np.zeros(cells.shape[1]))
    return np.nansum(abs(cells[0]), axis=1) if np.isnan(found).any() else found


def lengths_of(cells: Cells) -> Float:
    """Of rows, (rows,): no cell is larger."""
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


def hand_down(areas: dict[int, Reach], handed: Sequence[Handed], said: Cells, sized: bool = True) -> Float:
    """Add to cells of some places what is said of the areas that they are in; gives how large that is, (rows,)."""
    size = np.zeros(said.shape[1])
    for above, reach in areas.items():
        given, most = handed[above]
        spread(given, reach, said)
        if sized:
            size += reach.sizes_in_leaves(most)
    return size


def hand_on(levels: Sequence[Level], said_of: Sequence[Cells], sized: bool = True) -> list[Handed]:
    """By level what is said of places with what is said of those above them, and how large it is, (rows,)."""
    handed = list[Handed]()
    for level, own in zip(levels, said_of, strict=True):
        if not own.size:
            handed.append((own, np.zeros(0)))
            continue
        said, size = own.copy() if level.above else own, lengths_of(own) if sized else np.zeros(own.shape[1])
        handed.append((said, size + hand_down(level.above, handed, said, sized)))
    return handed
