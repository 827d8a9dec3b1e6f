"""Levels that count others once more, told by their numbers: totals and subtotals of any name, rows that are none.

Some are the sum of some others: a hierarchy in one column, a subtotal above or below its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.files.labels import is_total
from constraint_builders.files.naming import shown
from constraint_builders.files.periods import read_period
from constraint_builders.files.rows import MeasuredCells

DEVIATIONS = 3.5  # so far from zero noise comes
MOST_CHANCE = 0.35  # with which a sum may come about by chance that is asked about
ROUNDING = 1e-12  # of a sum
MOST_MISSING = 0.25  # of a total, in levels that were not measured
MOST_PARTS = 60  # side by side, of a subtotal
MOST_ROWS = 16  # of a table, the largest, in which sums are looked for that hold in all
REFUSED = 0.05  # with which a sum may come about by chance that is refused
NAMED = 0.5  # and one that is named

IF_LEVEL = "say total= '*' or give a schema if it is a level"


@dataclass(frozen=True)
class TableColumn:
    """The cells of a table along one variable, each row of them elsewhere in the table, and what they should add up to.

    Attributes
    ----------
    axis : int
    values, variances : ndarray, (rows, levels)
    total, of_total : ndarray, (rows,)
        What was measured of all levels together, and its variance; infinite where nothing was.
    """

    axis: int
    values: Float
    variances: Float
    total: Float
    of_total: Float

    def measured(self, levels: Sequence[int]) -> tuple[Float, Float]:
        """Values and variances of some levels, (rows, levels) each, in the rows where all of them were measured."""
        values, variances = self.values[:, levels], self.variances[:, levels]
        known = np.isfinite(variances).all(axis=1)
        return values[known], variances[known]

    def without(self, *levels: int) -> tuple[Float, Float]:
        """The total less the sum of all levels but some, and the variance, (rows,) each; of measured cells alone."""
        kept = np.setdiff1d(np.arange(self.values.shape[1]), levels)
        variance = self.of_total + self.variances[:, kept].sum(axis=1)
        known = np.isfinite(variance)
        parts = self.values[known][:, kept]
        return self.total[known] - parts.sum(axis=1), variance[known] + rounding(parts)

    @property
    def has_total(self) -> bool:
        """Whether somewhere both the total and all levels were measured."""
        return bool(np.isfinite(self.of_total + self.variances.sum(axis=1)).any())

    def needs(self, axis: int, level: int) -> bool:
        """Whether the total is the sum of all levels, and is not without one."""
        own = self.axis == axis and self.has_total
        return own and bool(agree(*self.without()) and not agree(*self.without(level)))


def hidden_totals(
    schema: Schema, tables: Sequence[MeasuredCells], written: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Refuse levels that count others once more; those that may do so, within noise or by chance, in words.

    A level does that is the sum of all others, or without which the others are the total, everywhere within noise; or
    that is the sum of some, as `nested_levels` finds them; or that is alone beside totals. Where some total holds a
    level among others it is one, whatever the others add up to.

    Parameters
    ----------
    schema : Schema
    tables : sequence of MeasuredCells
    written : mapping of str to sequence of str
        The labels of every variable in the order of the file.

    Raises
    ------
    ValueError
        The level is named, and what says whether it is one.
    """
    found = list(columns(tables))
    perhaps: dict[str, str] = {}
    for column in found:
        if column.values.shape[1] < 3 or (column.has_total and agree(*column.without())):
            continue
        name = schema.names[column.axis]
        if column.has_total:
            level = _counted_twice(column)
            how = "is counted twice, the total is the sum of the others: leave its rows out if it is a subtotal"
        else:
            level = _sum_of_others(column.values, column.variances)
            how = "counts as many as all others together: name it by total= if it is their total"
        if _is_no_part(level, column, found):
            raise ValueError(f"column {name!r}: {shown(schema.labels_of(name)[level])} {how}; {IF_LEVEL}")
        if not column.has_total:
            level = _sum_of_others(column.values, column.variances, most_chance=1.0)
            level = _nearly_all(column) if level is None else level
            if _is_no_part(level, column, found):
                perhaps.setdefault(name, shown(schema.labels_of(name)[level]))
    for own in schema.variables:
        if own.size == 1 and len({own.name in cells.table.factors for cells in tables}) > 1:
            raise ValueError(
                f"column {own.name!r} has {shown(own.levels[0])} alone beside totals, which would count as many: give "
                "all others rows too, without a value where nothing was published; or a schema if there are none"
            )
    how = "counts as many as all others together, within its noise or what was not measured: is it their total?"
    nested = list(nested_levels(schema, found, written))
    return *(f"{label} in column {name!r} {how}" for name, label in perhaps.items()), *nested


def _is_no_part(level: int | None, column: TableColumn, found: Sequence[TableColumn]) -> TypeGuard[int]:
    """Whether there is a level that no total needs."""
    return level is not None and not any(other.needs(column.axis, level) for other in found)


def refuse_rows_that_are_none(
    schema: Schema, tables: Sequence[MeasuredCells], silent: Mapping[str, Mapping[str, int]]
) -> None:
    """Refuse labels whose rows hold nothing where the others leave nothing of a total for them, as footers do.

    Parameters
    ----------
    schema : Schema
    tables : sequence of MeasuredCells
    silent : mapping of str to mapping of str to int
        For every variable the labels whose rows have neither a value nor a precision, and the first of these rows.

    Raises
    ------
    ValueError
        The row is named.
    """
    for column in columns(tables):
        name = schema.names[column.axis]
        rows, labels = silent.get(name, {}), schema.labels_of(name)
        left, variance = column.without(*map(labels.index, rows))
        if rows and left.size and left.sum() <= DEVIATIONS * np.sqrt(variance.sum()):
            label, row = next(iter(rows.items()))
            raise ValueError(
                f"row {row}, {shown(label)} in column {name!r}, has neither a value nor a precision, and the others "
                "leave nothing of the total for it: leave the row out, or say suppressed= '' where it was not published"
            )


def geounit_of_all(spine: Spine, tables: Sequence[MeasuredCells]) -> str:
    """A geounit in one of which nothing was measured that is the sum of all others there, or says so; empty if none."""
    measured = np.zeros(spine.size, dtype=bool)
    for own in tables:
        known = np.isfinite(own.variances).reshape(len(own.variances), -1).any(axis=1)
        measured[spine.members[spine.level_index(own.level)]] |= known
    parents = np.flatnonzero(~measured & (spine.child_counts > 1))
    in_order = np.argsort(spine.parent, kind="stable")
    ends = [np.searchsorted(spine.parent[in_order], parents, side) for side in ("left", "right")]
    for first, last in zip(*ends, strict=True):
        children = in_order[first:last]
        highest = spine.level_of[children].min()
        children, level = children[spine.level_of[children] == highest], spine.levels[highest]
        found = next((i for i in children.tolist() if is_total(spine.geocodes[i])), None)
        there = [table for table in tables if table.level == level]
        if found is None and there and children.size > 2:
            rank = _sum_of_geounits(there, spine.rank_in_level[children], MOST_CHANCE / parents.size)
            found = None if rank is None else children[rank]
        if found is not None:
            return f"{level} {spine.geocodes[found]!r} counts as many as all others together"
    return ""


def _sum_of_geounits(tables: Sequence[MeasuredCells], ranks: Index, most_chance: float) -> int | None:
    """Which geounit of some, by rank in their geolevel, (k,), is the sum of all others in every cell, if one is."""
    cells, variances = (
        np.concatenate([part[ranks].reshape(ranks.size, -1) for part in parts], axis=1).T
        for parts in ([table.values for table in tables], [table.variances for table in tables])
    )
    whole = cells == np.rint(cells)  # small ones, known exactly, are sums by chance
    return _sum_of_others(cells, np.maximum(variances, whole / 12), most_chance)


def columns(tables: Sequence[MeasuredCells]) -> Iterator[TableColumn]:
    """Every table along each of its variables, beside the table without it at the same geolevel."""
    by_axes = {}
    for own in tables:
        order = np.argsort(own.table.axes)
        turned = [0, *(1 + order)]
        axes = tuple(np.array(own.table.axes, dtype=int)[order].tolist())
        by_axes[own.level, axes] = own.values.transpose(turned), own.variances.transpose(turned)
    for (level, axes), cells in by_axes.items():
        for place, axis in enumerate(axes):
            values, variances = (np.moveaxis(part, 1 + place, -1).reshape(-1, part.shape[1 + place]) for part in cells)
            nothing = np.full(len(values), np.nan), np.full(len(values), np.inf)
            total, of_total = by_axes.get((level, (*axes[:place], *axes[place + 1 :])), nothing)
            yield TableColumn(axis, values, variances, total.ravel(), of_total.ravel())


def rounding(parts: Float) -> Float:
    """The variance, (rows,), of what sums along rows, (rows, parts), lose in floating point, and were written with."""
    return (ROUNDING * abs(parts).sum(axis=1)) ** 2


def agree(difference: Float, variance: Float) -> Flags:
    """Whether noise explains the mean square of differences, (n, ...), in standard errors, along the first axis."""
    with np.errstate(divide="ignore"):
        squares = np.divide(difference**2, variance, out=np.zeros_like(difference), where=difference != 0)
    return squares.mean(axis=0) <= 1 + (DEVIATIONS**2 - 1) / np.sqrt(len(difference))


def chance(sizes: Float, variance: Float) -> Float:
    """How likely numbers of sizes, (n, ...), are within noise, along the first axis, of others that are unrelated."""
    widths = 2 * DEVIATIONS * np.sqrt(variance)
    return np.divide(widths, abs(sizes), out=np.ones_like(sizes), where=abs(sizes) > widths).prod(axis=0)


def is_more(values: Float, variances: Float, level: int, others: Sequence[int]) -> bool:
    """Whether a level, of (rows, levels), is more than the largest of others alone, whatever noise does."""
    rows = np.arange(len(values))
    largest = np.asarray(others)[values[:, others].argmax(axis=1)]
    return not agree(values[:, level] - values[rows, largest], variances[:, level] + variances[rows, largest])


def _counted_twice(column: TableColumn) -> int | None:
    """The level without which the others are the total, not by chance: any other level might have been it."""
    difference, variance = column.without()
    known = np.isfinite(column.of_total + column.variances.sum(axis=1))
    levels = column.values[known]
    level = int(((difference[:, None] + levels) ** 2).sum(axis=0).argmin())
    likely = levels.shape[1] * chance(difference, variance)
    return level if likely <= MOST_CHANCE and agree(*column.without(level)) else None


def _sum_of_others(values: Float, variances: Float, most_chance: float = MOST_CHANCE) -> int | None:
    """The level, of (rows, levels), that is the sum of all others in every row, not by chance, nor of one of them."""
    known = np.isfinite(variances).all(axis=1)
    y, v = values[known], variances[known]
    if not y.size:
        return None
    level = int(y.sum(axis=0).argmax())
    others = np.delete(np.arange(y.shape[1]), level)
    sums, variance = y[:, others].sum(axis=1), v.sum(axis=1) + rounding(y)
    likely = chance(np.maximum(abs(y[:, level]), abs(sums)), variance)
    if agree(y[:, level] - sums, variance) and likely <= most_chance and is_more(y, v, level, others.tolist()):
        return level
    return None


def _nearly_all(column: TableColumn) -> int | None:
    """The level that is a little more than all others that were measured, two or more in every row, some were not."""
    known = np.isfinite(column.variances)
    values = np.where(known, column.values, 0.0)
    level = int(values.sum(axis=0).argmax())
    own, others = values[:, level], np.delete(values, level, axis=1).sum(axis=1)
    noise = DEVIATIONS * np.sqrt(np.where(known, column.variances, 0.0).sum(axis=1))
    fits = (others <= own + noise) & (others >= (1 - MOST_MISSING) * own - noise) & (own > noise)
    several = known[:, level] & (known.sum(axis=1) > 2)
    return level if (fits & several).all() and not known.all() else None


class Nested(NamedTuple):
    """A level and its parts, and how likely some such sum comes about by chance."""

    whole: int
    parts: list[int]
    chance: float


def nested_levels(schema: Schema, found: Sequence[TableColumn], written: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Levels that are everywhere the sum, within noise, of what their codes begin or of what is written beside.

    Of a column that is known to add up to a total nothing is asked.

    Parameters
    ----------
    schema : Schema
    found : sequence of TableColumn
    written : mapping of str to sequence of str
        The labels of every variable in the order of the file.

    Yields
    ------
    str
        Those that may well be by chance, in words.

    Raises
    ------
    ValueError
        For one that hardly is; the level and its parts are named.
    """
    told = {own.axis for own in found if own.has_total and agree(*own.without())}
    for column in found:
        if column.axis in told:
            continue
        name = schema.names[column.axis]
        labels = schema.labels_of(name)
        place = {label: i for i, label in enumerate(labels)}
        nested = _by_prefix(column, labels) or _side_by_side(column, [place[label] for label in written[name]])
        if nested is None:
            continue
        told.add(column.axis)
        whole, parts = shown(labels[nested.whole]), f"{shown(labels[nested.parts[0]])} and {len(nested.parts) - 1} more"
        if nested.chance <= REFUSED:
            periods = all(map(read_period, (labels[nested.whole], labels[nested.parts[0]])))
            advice = "say sums= what it is, year" if periods else "leave out its rows or theirs"
            raise ValueError(f"column {name!r}: {whole} counts as many as {parts} together: {advice}; {IF_LEVEL}")
        yield f"{whole} in column {name!r} counts as many as {parts} together, within its noise: is it their subtotal?"


def families(labels: Sequence[str]) -> dict[int, list[int]]:
    """Labels that begin others, and the two or more of these that no longer one begins.

    Examples
    --------
    >>> families(["A", "A01", "A011", "A012", "A02", "B"])
    {0: [1, 4], 1: [2, 3]}
    """
    at = {label: place for place, label in enumerate(labels)}
    found: dict[int, list[int]] = {}
    for label, place in at.items():
        parent = next((at[label[:end]] for end in range(len(label) - 1, 0, -1) if label[:end] in at), None)
        if parent is not None:
            found.setdefault(parent, []).append(place)
    return {parent: parts for parent, parts in found.items() if len(parts) > 1}


def _by_prefix(column: TableColumn, labels: Sequence[str]) -> Nested | None:
    """The first of `families`, where all of them are sums of their parts, not by chance."""
    found = families(labels)
    likely = 1.0
    for whole, parts in found.items():
        values, variances = column.measured([whole, *parts])
        sums, variance = values[:, 1:].sum(axis=1), variances.sum(axis=1) + rounding(values)
        if len(values):
            if not agree(values[:, 0] - sums, variance):
                return None
            likely *= float(chance(values[:, 0], np.maximum(variance, _grain(values))))
    return Nested(*next(iter(found.items())), likely) if likely <= NAMED else None


def _side_by_side(column: TableColumn, order: list[int]) -> Nested | None:
    """The level that is the sum of two or more written right before or after it that is least likely by chance."""
    values, variances = column.measured(order)
    largest = np.argsort(-abs(values).sum(axis=1), kind="stable")[:MOST_ROWS]
    longest = min(MOST_PARTS, len(order) - 1) if len(values) else 0
    tried = sum(2 * (len(order) - parts) for parts in range(2, longest + 1))
    found = [
        Nested(place + whole, [*range(place + first, place + first + parts)], tried * likely)
        for parts in range(2, longest + 1)
        for whole, first in ((0, 1), (parts, 0))
        for place, likely in _where_a_sum(values[largest], variances[largest], parts, whole, first, NAMED / tried)
    ]
    for whole, parts, likely in sorted(found, key=lambda own: own.chance):
        difference = values[:, whole] - values[:, parts].sum(axis=1)
        variance = variances[:, [whole, *parts]].sum(axis=1) + rounding(values)
        if agree(difference, variance) and is_more(values, variances, whole, parts):
            return Nested(order[whole], [order[part] for part in parts], likely)
    return None


def _where_a_sum(
    values: Float, variances: Float, parts: int, whole: int, first: int, most: float
) -> list[tuple[int, float]]:
    """Places of runs, of (rows, levels), one more than parts, the one `whole` further being the sum; the chance."""
    runs = values.shape[1] - parts
    nothing = np.zeros((len(values), 1))
    sums, noise = (
        (running[:, parts:] - running[:, :-parts])[:, first : first + runs]
        for running in (np.hstack([nothing, part.cumsum(axis=1)]) for part in (values, variances))
    )
    own = slice(whole, whole + runs)
    variance = variances[:, own] + noise + rounding(values)[:, None]
    likely = chance(values[:, own], np.maximum(variance, _grain(values)))
    places = np.flatnonzero((likely <= most) & agree(values[:, own] - sums, variance))
    return list(zip(places.tolist(), likely[places].tolist(), strict=True))


def _grain(values: Float) -> float:
    """The variance of whole numbers, (...), which agree by chance more often than others do."""
    return (1 / (2 * DEVIATIONS)) ** 2 if (values == np.round(values)).all() else 0.0
