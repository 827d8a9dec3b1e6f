"""Levels that count others once more, told by their numbers: totals and subtotals of any name, rows that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from constraint_builders.arrays import Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.naming import shown
from constraint_builders.files.totals import is_total

DEVIATIONS = 3.5  # so far from zero noise comes
MOST_CHANCE = 0.35  # with which a sum may come about by chance that is asked about
ROUNDING = 1e-12  # of a sum

IF_LEVEL = "say total= '*' or give a schema if it is a level"


@dataclass(frozen=True)
class MeasuredCells:
    """A table at a geolevel, over plain variables.

    Attributes
    ----------
    level : str
        Empty without a geography.
    table : Table
    values, variances : ndarray, (geounits, *shape)
    """

    level: str
    table: Table
    values: Float
    variances: Float


@dataclass(frozen=True)
class _Column:
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

    def without(self, *levels: int) -> tuple[Float, Float]:
        """The total less the sum of all levels but some, and the variance, (rows,) each; of measured cells alone."""
        kept = np.setdiff1d(np.arange(self.values.shape[1]), levels)
        variance = self.of_total + self.variances[:, kept].sum(axis=1)
        known = np.isfinite(variance)
        parts = self.values[known][:, kept]
        return self.total[known] - parts.sum(axis=1), variance[known] + _rounding(parts)

    @property
    def has_total(self) -> bool:
        """Whether somewhere both the total and all levels were measured."""
        return bool(np.isfinite(self.of_total + self.variances.sum(axis=1)).any())

    def needs(self, axis: int, level: int) -> bool:
        """Whether the total is the sum of all levels, and is not without one."""
        return self.axis == axis and self.has_total and _agree(*self.without()) and not _agree(*self.without(level))


def refuse_hidden_totals(schema: Schema, tables: Sequence[MeasuredCells]) -> None:
    """Refuse a level that is the sum of all others, or without which the others are the total, everywhere within noise.

    Where some total holds a level among others it is one, whatever the others add up to.

    Raises
    ------
    ValueError
        The level is named, and what says whether it is one.
    """
    for column in _columns(tables):
        if column.values.shape[1] < 3 or (column.has_total and _agree(*column.without())):
            continue
        if column.has_total:
            level = _counted_twice(column)
            how = "is counted twice, the total is the sum of the others: leave its rows out if it is a subtotal"
        else:
            level = _sum_of_others(column.values, column.variances)
            how = "counts as many as all others together: name it by total= if it is their total"
        if level is not None and not any(other.needs(column.axis, level) for other in _columns(tables)):
            name = schema.names[column.axis]
            raise ValueError(f"column {name!r}: {shown(schema.labels_of(name)[level])} {how}; {IF_LEVEL}")


def perhaps_totals(schema: Schema, tables: Sequence[MeasuredCells]) -> Iterator[str]:
    """Levels that are the sum of all others within noise so large that this may well be by chance, in words."""
    found: dict[str, int] = {}
    for column in _columns(tables):
        if column.values.shape[1] > 2 and not column.has_total:
            level = _sum_of_others(column.values, column.variances, most_chance=1.0)
            if level is not None and not any(other.needs(column.axis, level) for other in _columns(tables)):
                found.setdefault(schema.names[column.axis], level)
    for name, level in found.items():
        label = shown(schema.labels_of(name)[level])
        yield f"{label} in column {name!r} counts as many as all others together, within its noise: is it their total?"


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
    for column in _columns(tables):
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
    """Which of the geounits of some ranks in their geolevel is the sum of all others in every cell, if one is."""
    cells, variances = (
        np.concatenate([part[ranks].reshape(ranks.size, -1) for part in parts], axis=1).T
        for parts in ([table.values for table in tables], [table.variances for table in tables])
    )
    whole = cells == np.rint(cells)  # small ones, known exactly, are sums by chance
    return _sum_of_others(cells, np.maximum(variances, whole / 12), most_chance)


def _columns(tables: Sequence[MeasuredCells]) -> Iterator[_Column]:
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
            yield _Column(axis, values, variances, total.ravel(), of_total.ravel())


def _rounding(parts: Float) -> Float:
    """The variance of what sums over the rows of parts lose in floating point, and were written with."""
    return (ROUNDING * abs(parts).sum(axis=1)) ** 2


def _agree(difference: Float, variance: Float) -> bool:
    """Whether noise explains the mean square of differences in their standard errors."""
    with np.errstate(divide="ignore"):
        squares = np.divide(difference**2, variance, out=np.zeros_like(difference), where=difference != 0)
    return bool(squares.mean() <= 1 + (DEVIATIONS**2 - 1) / np.sqrt(difference.size))


def _chance(sizes: Float, variance: Float) -> float:
    """How likely numbers of some sizes, of either sign, are within noise of others that they do not depend on."""
    widths = 2 * DEVIATIONS * np.sqrt(variance)
    return float(np.divide(widths, abs(sizes), out=np.ones_like(sizes), where=abs(sizes) > widths).prod())


def _counted_twice(column: _Column) -> int | None:
    """The level without which the others are the total, not by chance: any other level might have been it."""
    difference, variance = column.without()
    known = np.isfinite(column.of_total + column.variances.sum(axis=1))
    levels = column.values[known]
    level = int(((difference[:, None] + levels) ** 2).sum(axis=0).argmin())
    chance = levels.shape[1] * _chance(difference, variance)
    return level if chance <= MOST_CHANCE and _agree(*column.without(level)) else None


def _sum_of_others(values: Float, variances: Float, most_chance: float = MOST_CHANCE) -> int | None:
    """The level, of (rows, levels), that is the sum of all others in every row, not by chance, nor of one of them."""
    known = np.isfinite(variances).all(axis=1)
    y, v = values[known], variances[known]
    if not y.size:
        return None
    level = int(y.sum(axis=0).argmax())
    others = np.delete(y, level, axis=1)
    difference, variance = y[:, level] - others.sum(axis=1), v.sum(axis=1) + _rounding(y)
    chance = _chance(np.maximum(abs(y[:, level]), abs(others.sum(axis=1))), variance)
    largest = others.argmax(axis=1)
    rows = np.arange(len(y))
    beyond = y[:, level] - others[rows, largest], v[:, level] + np.delete(v, level, axis=1)[rows, largest]
    if _agree(difference, variance) and chance <= most_chance and not _agree(*beyond):
        return level
    return None
