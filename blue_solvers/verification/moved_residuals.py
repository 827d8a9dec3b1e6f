"""Proofs by sums over leaves: residuals are moved to the leaves' cells, and figures compared with sums of these.

Whatever a residual says of a figure it says of all leaves' cells within, so it may be moved there; what cells of an
area have in common may be moved back to a table of that area, which costs less where that was measured well, and
nothing where it is known exactly. Neither changes what the residuals say of the counts. What is left after moving,
wherever it lies, is the bound; at the best estimate nothing is.

Leaves come some at a time. A part of a tree tells what all its leaves have in common, and its sums, to the tree above,
where it stands as one leaf.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from blue_solvers.verification.compensated_sums import NO_MAP, Cells, Reach, add, plus, spread, sum_rounding, summed
from blue_solvers.verification.known_exactly import Ties, finest_known, holds_whole_cells
from blue_solvers.verification.places import Below, Leaves, Level, LevelTable, PlacedTables, Sheet, added
from blue_solvers.verification.weighed_noise import (
    EXACT_TO,
    ROUNDING,
    DisprovedError,
    NotCertifiedError,
    reciprocal,
    require_time,
)
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import parse_table
from constraint_builders.relations.marginals import cell_map, refines

NEAR = 2e-13  # standard errors, times the root of the figures: what may be left before anything is moved back to areas
MOST_BESIDE = 2  # times what figures disagree by, which is part of the bound anyway
ROUNDS = 4  # of moving back, while that halves what is left
KEPT = 16  # groups of leaves whose own residuals are kept, instead of being worked out again


@dataclass
class Tally:
    """Sums and maxima over cells; those of several parts are added by `+`.

    Attributes
    ----------
    cells : int
        Looked at.
    left : float
        Squares of what is left of the residuals, in variances of the cells where it was left.
    returned : dict of str to float
        Likewise of what is left in roots of parts that were cut off, by geolevel: it is moved back to their leaves.
    weighted, rounded : float
        Squares of what rounding may have added in weighting residuals, and in moving them.
    apart : float
        Squares of the tables' disagreement, in variances.
    violation : float
        Its largest, in standard deviations of the measurements.
    figures, alone : dict of str to float
        Its largest in every table of every geolevel, in counts, and that in geounits that are all of the one above.
    has_empty : bool
        Whether cells are known to be empty.
    tied : list of list of float
        Of every combination of cells that is known exactly what `TiedCells.sums` says; empty without any.
    corrected, wrong, scale : float
        What cells known exactly are off by, together and at most; the largest figure.
    least : dict of str to float
        The least variance above 0 of every table of every geolevel.
    exact : dict of str to bool
        Those with cells that are known exactly.
    """

    cells: int = 0
    left: float = 0.0
    returned: dict[str, float] = field(default_factory=dict)
    weighted: float = 0.0
    rounded: float = 0.0
    apart: float = 0.0
    violation: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    has_empty: bool = False
    tied: list[list[float]] = field(default_factory=list)
    corrected: float = 0.0
    wrong: float = 0.0
    scale: float = 0.0
    least: dict[str, float] = field(default_factory=dict)
    exact: dict[str, bool] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: ADDED[name](getattr(self, name), getattr(other, name)) for name in ADDED})

    def note(self, key: str, variance: Float, squares: float = 1.0) -> None:
        """Take note of the variances of a table, in whose cells a count has squared weights of so much at most."""
        positive = float(np.min(variance, where=variance > 0, initial=np.inf)) / (squares or 1.0)
        self.least[key] = min(self.least.get(key, np.inf), positive)
        self.exact[key] = self.exact.get(key, False) or bool((variance == 0).any())

    def judge(
        self,
        key: str,
        alone: Flags,
        variance: Float,
        least: Float,
        apart: Float,
        error: Float,
        x: Float,
        y: Float | None,
        weight: Float,
    ) -> None:
        """Take in how far the claimed figures `x` of a table are off the sums of the finest ones.

        They are `apart`, which is used up, and up to `error` more in every place; `alone` is which of these may be
        all of the one above, and `weight` the largest of a leaf in each.
        """
        self.look_at(x)
        fixed = variance == 0
        if has_fixed := bool(fixed.any()):
            fixed = np.broadcast_to(fixed, x.shape)
            known = x[fixed] if y is None else x[fixed] - y[fixed]
            self.corrected += float(np.nan_to_num(abs(apart[fixed] - known)).sum() + error @ fixed.sum(axis=1))
        off = np.abs(apart, out=apart)
        off += error[:, None]
        worst = off.max(axis=1, initial=0.0)
        if has_fixed or np.isnan(worst).any():  # of NaN nothing is claimed there, or nothing is known
            np.nan_to_num(off, copy=False)
            if has_fixed:
                self.wrong = max(self.wrong, float(np.nanmax(abs(known), initial=0.0)), float(off[fixed].max()))
                off[fixed] = 0.0
            worst = off.max(axis=1, initial=0.0)
        self.wrong = max(self.wrong, float(worst.max(initial=0.0, where=weight == 0)))  # of no leaf: known to be 0
        moved = np.divide(worst, weight, out=np.zeros_like(worst), where=weight > 0)
        self.figures[key] = max(self.figures.get(key, 0.0), float(moved.max(initial=0.0)))
        if alone.any():
            self.alone[key] = max(self.alone.get(key, 0.0), float(worst[alone].max()))
        precision = reciprocal(least)
        spread = precision if least is variance else reciprocal(variance)
        if precision.shape[1] == 1:
            self.apart += float(np.einsum("ij,ij->i", off, off) @ precision[:, 0])
            greatest = worst**2 * spread[:, 0]
        else:
            self.apart += float(np.einsum("ij,ij,ij->", off, off, precision))
            greatest = off**2 * spread
        self.violation = max(self.violation, float(np.sqrt(greatest.max(initial=0.0))))

    def look_at(self, x: Float) -> None:
        """Take in the size of figures that are claimed."""
        self.cells += x.size
        largest = max(float(x.max(initial=0.0)), -float(x.min(initial=0.0)))
        self.scale = max(self.scale, float(np.nanmax(abs(x), initial=0.0)) if np.isnan(largest) else largest)

    def moved(self) -> float:
        """What is left of the residuals but in the cells themselves: returned, and rounding."""
        return float(sum(np.sqrt(square) for square in (*self.returned.values(), self.rounded)))

    def bound(self, tables: Mapping[str, LevelTable], schema: Schema, left: float, ties: Ties | None = None) -> float:
        """The bound, from what is left of the residuals.

        Of one count alone, or of two where a nested family of tables is known exactly, the information says from
        below what a figure's standard error can be.

        Raises
        ------
        NotCertifiedError
            If that is not known, or what is known exactly is contradicted.
        """
        if self.wrong > EXACT_TO * self.scale:
            raise DisprovedError(f"x contradicts what is known exactly by {self.wrong:.3g}")
        known = finest_known(schema, (tables[key] for key, some in self.exact.items() if some))
        bound_by = {key: self._perhaps_known(key, own, schema, known, ties) for key, own in tables.items()}
        for key, off in bound_by.items():
            if off is not None and off > EXACT_TO * self.scale:
                what = tables[key][1].name
                raise NotCertifiedError(f"figures of {what!r} that may be known exactly are off by {off:.3g}")
        apart, longest = max(self.figures.values(), default=0.0), np.sqrt(2.0) if known else 1.0
        if ties is not None:
            longest = ties.length / ties.least
            apart += (1 + 1 / longest) * ties.moved(self.tied, self.corrected, self.scale)
        if any(off is not None and np.isfinite(self.least.get(key, np.inf)) for key, off in bound_by.items()):
            apart += self.corrected  # which only figures have that hold all of a cell known exactly
        counts = (self.corrected + apart * longest) * np.sqrt(sum(1 / least for least in self.least.values()))
        return float((left + np.sqrt(self.weighted) + np.sqrt(self.apart) + counts) * (1 + self.cells * ROUNDING))

    def _perhaps_known(
        self, key: str, table: LevelTable, schema: Schema, known: LevelTable | None, ties: Ties | None
    ) -> float | None:
        """How far figures of a table are off that may follow from what is known of others; None where none does.

        Others change with a count that is moved alone, or against another within a cell of the finest table known.
        """
        if self.has_empty or (ties is not None and key in ties.fixed):
            return self.figures.get(key, 0.0)
        if known is None or not holds_whole_cells(schema, table[1], known[1]):
            return None
        return self.figures.get(key, 0.0) if table[0] <= known[0] else self.alone.get(key)

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it; no infinity is in it."""
        return {**asdict(self), "least": {key: value for key, value in self.least.items() if np.isfinite(value)}}


def _joined(how: Any) -> Any:
    """Of dicts whose values are put together so, in lists."""
    return lambda one, two: {key: how([own[key] for own in (one, two) if key in own]) for key in {**one, **two}}


ADDED: dict[str, Any] = {
    **dict.fromkeys(("cells", "left", "weighted", "rounded", "apart", "corrected"), operator.add),
    **dict.fromkeys(("violation", "wrong", "scale", "has_empty"), max),
    **dict.fromkeys(("figures", "alone"), _joined(max)),
    "returned": _joined(sum),
    "least": _joined(min),
    "exact": _joined(any),
    "tied": added,
}


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
        By level sums over leaves, of the tables that hold all others; None where all are leaves.
    error : list of ndarray, (rows,)
        By how much a sum of any cells of a place may be off.
    """

    def __init__(self, places: PlacedTables) -> None:
        self.places = places
        inner = [np.ones(level.rows, dtype=bool) for level in places.levels]
        for some in places.leaves:
            inner[some.level][some.rows] = False
        self.inner: list[Index] = [np.flatnonzero(own) for own in inner]
        self._filled: dict[int, Cells] = {}
        if self._sum_up() and places.nest:
            self._fill_in()

    def is_filled(self, number: int) -> bool:
        """Whether cells of some leaves are not those that are claimed, of which nothing is said."""
        return number in self._filled

    def _sum_up(self) -> bool:
        """Whether nothing is said of some leaves' cells."""
        levels = self.places.levels
        self.total = [level.room() if own.size else None for level, own in zip(levels, self.inner, strict=True)]
        sizes, counts = [np.zeros((2, level.rows, 2)) for level in levels], [np.zeros(level.rows) for level in levels]
        lacks = False

        def hand_up(areas: dict[int, Reach], cells: Cells, size: Float, count: Float) -> None:
            """Add cells to those of areas, their sizes and errors, (1, rows, 2), and how many were added up."""
            for above, reach in areas.items():
                total = self.total[above]
                if total is not None:
                    add(cells, reach, total)
                    add(size, reach.to_power(1)._replace(into=NO_MAP), sizes[above])
                    counts[above] += np.bincount(reach.areas, count[reach.rows], len(counts[above]))

        for number, some in enumerate(self.places.leaves):
            require_time()
            cells, error = self.of(number)
            lacks |= bool(np.isnan(cells[0]).any())
            hand_up(some.above, cells, np.column_stack([_sizes(cells), error])[None], np.ones(error.size))
        for number in reversed(range(len(levels))):
            total = self.total[number]
            if total is not None:
                hand_up(levels[number].above, total, sizes[number][:1], counts[number] + 1)
        self.error = [
            own[0, :, 1] + sum_rounding(int(count.max(initial=0)), level.width) * own[0, :, 0]
            for own, count, level in zip(sizes, counts, levels, strict=True)
        ]
        return lacks

    def of(self, number: int) -> tuple[Cells, Float]:
        """Those of some leaves, and how far all cells of a row may be off together."""
        some = self.places.leaves[number]
        if some.told is not None:
            cells = np.stack([high := some.told.total.astype(float), (some.told.total - high).astype(float)])
            if number in self._filled:
                return self._filled[number], some.told.error + _sizes(cells[1:])
            return cells, some.told.error
        if number in self._filled:
            return self._filled[number], np.zeros(some.rows.size)
        level = self.places.levels[some.level]
        held = [level.own(holder) for holder in range(len(level.tables))]
        claimed = [sheet.x[some.rows] for sheet in held if sheet is not None and sheet.x is not None]
        if len(claimed) < len(held):
            raise NotCertifiedError(f"no table at {level.name} holds all others")
        cells = np.ascontiguousarray(np.concatenate(claimed, axis=1) if len(held) > 1 else claimed[0], dtype=float)
        if some.margins is not None:
            error = np.zeros(cells.shape)
            return some.margins.agreeing(np.stack([cells, error]), error), error.sum(axis=1)
        (sheet,) = held
        if sheet is not None and sheet.y is not None and not (variance := sheet.variance[some.rows]).all():
            cells = np.where(variance == 0, sheet.y[some.rows], cells)
        cells = cells if some.empty is None else np.where(some.empty, 0.0, cells)
        return cells[None], np.zeros(some.rows.size)

    def _fill_in(self) -> None:
        """Where nothing is said of leaves they share what the figures above them leave, the lowest first."""
        for above, level in reversed(list(enumerate(self.places.levels))):
            total, sheet = self.total[above], level.own(0)
            if total is None or sheet is None or sheet.x is None:
                continue
            x = sheet.x[:]
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


class MovedResiduals:
    """What is left, and what disagrees, in all places.

    Parameters
    ----------
    places : PlacedTables
    keep : int
        Number of figures, of which `sums` and `apart` are kept; 0 for none.

    Attributes
    ----------
    tally : Tally
    sums, apart : ndarray, (figures,)
        Of the leaves' cells, and how far figures are off them.
    """

    def __init__(self, places: PlacedTables, keep: int = 0) -> None:
        self.places, self.tally, self.cells = places, Tally(), LeafCells(places)
        self.sums, self.apart = np.zeros(keep, dtype=np.longdouble), np.zeros(keep)
        self._said = list[Cells | None]()
        self._handed = list[tuple[Cells | None, Float]]()  # by level what is said of places by all above, and how large
        self._kept: dict[int, Cells] = {}
        self._rounded: dict[int, float] = {}
        self._put: dict[str, Float] = {}
        self._judged = set[int]()
        for number, (level, rows) in enumerate(zip(places.levels, self.cells.inner, strict=True)):
            for sheet in level.sheets:
                self.tally.note(sheet.key, sheet.variance if sheet.least is None else sheet.least, level.squares)
            total, said = self.cells.total[number], level.room() if rows.size else None
            if level.sheets and said is not None and total is not None:
                said[:, rows] = self._look_at(level, rows, (total[:, rows], self.cells.error[number][rows]))
            self._said.append(said)

    def finish(self) -> Tally:
        """Of a tree above which nothing is, or of areas."""
        self._move_back(0)
        return self.tally

    def hand_over(self) -> tuple[Tally, Below]:
        """Of a part, with what the tree above has to know of its root."""
        below = self._below()
        self._move_back(1)
        return self.tally, below

    def _look_at(self, level: Level, rows: Index, sums: tuple[Cells, Float] | None, number: int | None = None) -> Cells:
        """What the residuals of some places say of the tables that hold all others, from the coarsest on.

        Their figures are judged beside sums of the leaves' cells, where these are given, with their errors; `number` is
        that of some leaves, of which they are these cells themselves.
        """
        said = level.room(rows.size)
        if sums is not None:
            cells, error = sums
            error = error + sum_rounding(1, level.width) * _sizes(cells)
        for sheet in level.sheets:
            x = None if sheet.x is None else sheet.x[rows]
            if x is not None and sums is not None:
                own = number is not None and sheet is level.own(sheet.holder)
                self._judge(level, sheet, rows, x, level.sums_of(sheet, cells), error, number if own else None)
            rho, rounding = _weighted(sheet, rows, x)
            if rho is not None:
                level.spread(sheet, rho[None], said)
                self.tally.weighted += rounding if sums is not None else 0.0
        return said

    def _judge(
        self, level: Level, sheet: Sheet, rows: Index, x: Float, total: Cells, error: Float, number: int | None
    ) -> None:
        """Judge figures of a table beside sums of the leaves' cells; of some leaves they are these cells themselves."""
        variance, y = sheet.variance[rows], None if sheet.y is None else sheet.y[rows]
        least, empty = variance if sheet.least is None else sheet.least[rows], None
        if number is not None:
            some = self.places.leaves[number]
            empty = some.empty
            if some.margins is None and not self.cells.is_filled(number):
                error = np.zeros(rows.size)
                if empty is None and variance.all() and not self.sums.size:
                    self.tally.look_at(x)
                    if sheet.tied is not None:
                        self.tally.tied = added(self.tally.tied, sheet.tied.sums(rows, x, None))
                    return
        off = x - total[0]
        for rest in total[1:]:
            off -= rest
        if self.sums.size:
            self.sums[sheet.place].reshape(level.rows, -1)[rows] = total.sum(axis=0, dtype=np.longdouble)
            self.apart[sheet.place].reshape(level.rows, -1)[rows] = np.nan_to_num(abs(off) + error[:, None])
        if np.isnan(off).any() and not np.isnan(x[np.isnan(off)]).all():
            raise NotCertifiedError(
                f"table {sheet.table.name!r} at {level.name} has cells below that nothing is said of"
            )
        if empty is not None:
            empty = empty[:, level.columns[sheet.holder]]
            y = None if y is None else np.where(empty & (variance > 0), 0.0, y)
            variance, least = np.where(empty, 0.0, variance), np.where(empty, 0.0, least)
        if sheet.tied is not None:
            self.tally.tied = added(self.tally.tied, sheet.tied.sums(rows, x, abs(off) + error[:, None]))
        self.tally.judge(sheet.key, level.alone[rows], variance, least, off, error, x, y, level.weight[rows])

    def _residuals(self, number: int) -> tuple[Cells, Float]:
        """What residuals say of the leaves' cells, beside their variances; what is known exactly takes its part."""
        some = self.places.leaves[number]
        level, told = self.places.levels[some.level], some.told
        if told is not None:
            said, variance = np.stack([told.share, np.zeros(told.share.shape)]), told.variance
        else:
            said, variance = self._own(number), level.variances(some.rows)
        sizes = (abs(said[0]).max(axis=1, initial=0.0) + self._hand_down(some.above, said))[:, None]
        if some.empty is not None:
            said[:, some.empty] = 0.0
            variance = np.where(some.empty, 0.0, variance)
        if some.margins is not None:
            said, moved = some.margins.moved(said)
            sizes = sizes + moved
        error = sum_rounding(len(level.sheets) + len(self._said) + len(level.tables), 1) * sizes
        self._rounded[number] = float((_finite(variance) * error**2).sum())
        self._drop(some, level, said, variance)
        return said, variance

    def _hand_down(self, areas: dict[int, Reach], said: Cells) -> Float:
        """Add to cells of some places what is said of the areas that they are in; gives how large that is, (rows,)."""
        size = np.zeros(said.shape[1])
        for above, reach in areas.items():
            given, most = self._handed[above]
            if given is not None:
                spread(given, reach, said)
                size += np.bincount(reach.rows, abs(reach.weights) * most[reach.areas], size.size)
        return size

    def _hand_on(self) -> None:
        """Work out what is said of all places with what is said of those above them."""
        self._handed = []
        for level, own in zip(self.places.levels, self._said, strict=True):
            if own is None:
                self._handed.append((None, np.zeros(0)))
                continue
            said = own.copy() if level.above else own
            size = abs(own[0]).max(axis=1, initial=0.0)
            self._handed.append((said, size + self._hand_down(level.above, said)))

    def _own(self, number: int) -> Cells:
        """What the residuals of tables of some leaves say of their cells, to be changed; judges them the first time."""
        some = self.places.leaves[number]
        level, known = self.places.levels[some.level], number in self._judged
        if number in self._kept:
            return self._kept[number].copy()
        said = self._look_at(level, some.rows, None if known else self.cells.of(number), number)
        if not known:
            self._judged.add(number)
            self.tally.has_empty |= some.empty is not None
            if len(self.places.leaves) <= KEPT:
                self._kept[number] = said.copy()
        return said

    def _drop(self, some: Leaves, level: Level, said: Cells, variance: Float) -> None:
        """Move to tables of the leaves that are known exactly what they take, at no cost."""
        if some.told is None:
            for sheet in level.others:
                own = sheet.variance[some.rows]
                if not own.all():
                    put_back(level, sheet, np.where(own == 0, 0.0, np.inf), said, variance)
            return
        schema, finest = self.places.schema, level.tables[0]
        for name in some.told.names:
            table = parse_table(schema, name)
            if refines(schema, finest, table):
                own = np.where((some.told.known == name).any(axis=1), 0.0, np.inf)[:, None]
                sheet = Sheet(name, some.level, table, own, into=cell_map(schema, finest, table))
                put_back(level, sheet, own, said, variance)

    def _left(self, careful: bool) -> float:
        """Squares of all that is left; if `careful` tables of the leaves take their part of it."""
        self.tally.left, self.tally.returned = 0.0, {}
        self._hand_on()
        for number, some in enumerate(self.places.leaves):
            require_time()
            said, variance = self._residuals(number)
            level = self.places.levels[some.level]
            sheets = level.others if some.told is None else level.sheets
            for sheet in sheets if careful else ():
                own = sheet.variance[some.rows]
                if (np.isfinite(own) & (own > 0)).any():
                    self._leave(sheet, some.rows, put_back(level, sheet, own, said, variance))
            if some.told is not None:
                before = self.tally.returned.get(level.name, 0.0)
                self.tally.returned[level.name] = before + _weighed(said[0], variance)
                continue
            for holder, columns in enumerate(level.columns):
                holding = level.own(holder)
                if holding is not None:
                    self._leave(holding, some.rows, np.where(variance[:, columns] > 0, said[0][:, columns], 0.0))
        for number, level in enumerate(self.places.levels):
            for sheet in level.sheets:
                if sheet.key in self._put:
                    self._leave(sheet, self.cells.inner[number], self._put[sheet.key])
        self.tally.rounded = sum(self._rounded.values())
        return self.tally.left + sum(self.tally.returned.values())

    def _leave(self, sheet: Sheet, rows: Index, cells: Float) -> None:
        """Leave residuals in cells of a table."""
        variance = sheet.variance[rows]
        self.tally.left += _weighed(cells, variance)
        if sheet.left is not None:
            sheet.left[rows] = np.where(variance > 0, cells, 0.0)

    def _move_back(self, first: int) -> None:
        """Leave residuals where they are; where that is much, move to the areas of levels what they have in common.

        Tables that are known exactly come first, and then all.
        """
        square, levels = self._left(careful=False), range(first, len(self.places.levels))
        exact = [number for number in levels if any((own.variance == 0).any() for own in self._measured(number))]
        for tried in (*[exact] * bool(exact), *[levels] * ROUNDS):
            if np.sqrt(square) <= max(NEAR * np.sqrt(self.tally.cells), MOST_BESIDE * np.sqrt(self.tally.apart)):
                break
            for number in tried:
                self._take_back(number, free=tried is exact)
            before, square = square, self._left(careful=tried is not exact)
            if square > before / 4 and tried is not exact:
                break

    def _measured(self, number: int) -> list[Sheet]:
        """Tables of a level that were measured in places that are no leaves."""
        sheets, rows = self.places.levels[number].sheets, self.cells.inner[number]
        return [sheet for sheet in sheets if np.isfinite(sheet.variance[rows]).any()]

    def _take_back(self, number: int, free: bool) -> None:
        """Move to the tables of a level what the cells of its places have in common; if `free`, at no cost."""
        level, rows, said = self.places.levels[number], self.cells.inner[number], self._said[number]
        if said is None:
            return
        mean, variance = self._mean(number, self._free_below(number) if free else None)
        mean = mean[:, rows]
        changed = said[:, rows]
        for part in -mean:
            plus(changed, part)
        for sheet in self._measured(number):
            own, known = sheet.variance[rows], self._put.get(sheet.key)
            own = np.where(own == 0, 0.0, np.inf) if free else own
            share = put_back(level, sheet, own, mean, variance[rows], known)
            self._put[sheet.key] = share if known is None else known + share
        for part in mean:
            plus(changed, part)
        said[:, rows] = changed

    def _mean(self, number: int, weights: Sequence[Flags] | None = None) -> tuple[Cells, Float]:
        """What the leaves' cells in places of a level have in common, and their variance together."""
        total, squares, unmeasured = (self.places.levels[number].room() for _ in range(3))
        rest = np.zeros(total[0].shape)
        self._hand_on()
        for i, some in enumerate(self.places.leaves):
            reach = some.reach.get(number)
            if reach is None:
                continue
            said, variance = self._residuals(i)
            finite = _finite(variance) if weights is None else _finite(variance) * weights[i][:, None]
            add((finite * said[0])[None], reach, total)
            add(finite[None], reach.to_power(2), squares)
            row, cell = np.nonzero(np.isinf(variance) & (np.diff(reach.starts) > 0)[:, None])
            area, into = reach.areas[reach.starts[row]], reach.into[cell] if reach.into.size else cell
            unmeasured[:, area, into] = said[:, row, cell] / reach.weights[reach.starts[row]]
            rest[area, into] = np.inf
        mean = np.zeros(total.shape)
        np.divide(total[0], squares[0], out=mean[0], where=squares[0] > 0)
        return np.where(np.isinf(rest), unmeasured, mean), squares[0] + rest  # nothing else takes what is unmeasured

    def _below(self) -> Below:
        """What the tree above has to know; what all leaves have in common is no longer theirs."""
        said, total = self._said[0], self.cells.total[0]
        if said is None or total is None:
            self._hand_on()
            (moved, variance), (total, error) = self._residuals(0), self.cells.of(0)
            share = moved[0].copy()
            moved[0] = 0.0
            self._kept[0] = moved
        else:
            free = self._free_below(0)
            share = self._mean(0, free if any(own.any() for own in free) else None)[0][0]
            plus(said, -share)
            variance, error = self._mean(0)[1], self.cells.error[0]
        whole = total.sum(axis=0, dtype=np.longdouble)
        return Below(
            share,
            variance[:, :1] if (variance == variance[:, :1]).all() else variance,
            total[0] if np.array_equal(total[0], whole, equal_nan=True) else whole,
            error,
            np.array([self._known()], dtype=str),
        )

    def _under_exact(self, some: Leaves, first: int, table: str | None = None) -> Flags:
        """Leaves in places, from a level on, of which a table is known exactly, or one that holds `table`."""
        schema, found = self.places.schema, np.zeros(some.rows.size, dtype=bool)

        def holds(name: str) -> bool:
            return table is None or refines(schema, parse_table(schema, name), parse_table(schema, table))

        for number in range(first, len(self.places.levels)):
            for sheet in self.places.levels[number].sheets:
                exact, reach = (sheet.variance == 0).all(axis=1), some.reach.get(number)
                if exact.any() and holds(sheet.table.name):
                    if number == some.level:
                        found |= exact[some.rows]
                    elif reach is not None:
                        np.logical_or.at(found, reach.rows, exact[reach.areas])
        for name in () if some.told is None else filter(holds, some.told.names):
            found |= (some.told.known == name).any(axis=1)
        return found

    def _free_below(self, number: int) -> list[Flags]:
        """Leaves in no places below a level of which a table is known exactly."""
        return [~self._under_exact(some, number + 1) for some in self.places.leaves]

    def _known(self) -> list[str]:
        """Tables that are known exactly in all leaves."""
        schema, leaves = self.places.schema, self.places.leaves
        names = {sheet.table.name for sheet in self.places.sheets if (sheet.variance == 0).all(axis=1).any()}
        names |= {name for some in leaves if some.told is not None for name in some.told.names}
        finest = self.places.levels[0].tables[0]
        held = [name for name in sorted(names) if refines(schema, finest, parse_table(schema, name))]
        return [name for name in held if all(self._under_exact(some, 0, name).all() for some in leaves)]


def put_back(level: Level, sheet: Sheet, own: Float, said: Cells, variance: Float, known: Float | None = None) -> Float:
    """Move to a table, whose variances are `own`, the share that leaves least: gives it, (rows, cells).

    `known` is what was moved there before.
    """
    columns, size = level.columns[sheet.holder], sheet.table.size
    held, variance = said[:, :, columns], variance[:, columns]
    own = np.broadcast_to(own, (len(variance), size))
    weight, total = (
        summed(sheet.into, size, cells[None])[0] for cells in (_finite(variance), _finite(variance) * held[0])
    )
    usable = np.isfinite(own) & (weight > 0)
    if known is not None:
        total = total - np.where(usable, own, 0.0) * known
    share = np.zeros((2, *own.shape))
    np.divide(total, weight + own, out=share[0], where=usable)
    into = sheet.into if sheet.into.size else np.arange(size)
    row, cell = np.nonzero(np.isinf(variance) & np.isfinite(own[:, into]))
    share[:, row, into[cell]] = held[:, row, cell]  # nothing else takes it there
    level.spread(sheet, -share, said)
    return share[0]


def _weighted(sheet: Sheet, rows: Index, x: Float | None) -> tuple[Float | None, float]:
    """(y - x) / variance of a table, or None where nothing was measured; and its squared rounding."""
    if sheet.rho is not None:
        return sheet.rho[rows], 0.0
    variance = sheet.variance[rows]
    measured = np.isfinite(variance) & (variance > 0)
    if sheet.y is None or x is None or not measured.any():
        return None, 0.0
    q = sheet.y[rows] - x
    if not measured.all():
        q = np.where(measured, q, 0.0)
    weighted = q * np.divide(1.0, variance, out=np.zeros_like(variance), where=measured)
    rounding = float(np.einsum("ij,ij->", q, weighted)) * (6 * ROUNDING) ** 2
    return weighted, rounding if sheet.tied is None else rounding + sheet.tied.pull(weighted, variance, rows)


def _finite(variance: Float) -> Float:
    return np.where(np.isfinite(variance), variance, 0.0)


def _sizes(cells: Cells) -> Float:
    """Of all cells of a row together, (rows,)."""
    return np.nansum(abs(cells[0]), axis=1)


def _weighed(cells: Float, variance: Float) -> float:
    """Squares in variances; nothing is nothing however large a variance is."""
    if np.isfinite(variance).all():
        return float((cells**2 * variance).sum())
    with np.errstate(invalid="ignore"):
        return float(np.where(cells == 0, 0.0, cells**2 * variance).sum())
