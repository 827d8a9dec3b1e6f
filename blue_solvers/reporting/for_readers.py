"""The first section of a page, for readers: the tables, each estimate with its margin of error, and what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np
import polars as pl
from scipy.special import ndtr

from blue_solvers.reporting.dot_plots import MOST_ROWS, Series, dot_plot
from blue_solvers.reporting.page_parts import BY_ERROR, STD_ERROR, Section, Shown, shown_of
from blue_solvers.uncertainty import normal_intervals
from constraint_builders.description.geo_ids import geoid_in
from constraint_builders.files.columns import BOUNDS, GEOCODE, GEOLEVEL, SUMMED_OUT, TABLE
from constraint_builders.files.long_table import digits_of, half_units
from constraint_builders.files.tabulated_places import geoids_of
from constraint_builders.printable import counted

MOST_TABLES = 8
ROUNDING = 1e-12  # of a number, which is no change of it
RELATIVE = 1e-9  # of a number, which its bounds may be off
SAME_LEVEL = 0.01  # as which intervals of rounded numbers cover
NO_NAMES: Mapping[str, str] = MappingProxyType({})
ESTIMATE, MARGIN, VALUE, CHANGE = "estimate", "margin of error", "measured", "change"
Sizes = Mapping[tuple[str, ...], int]
NUMBERS = (ESTIMATE, MARGIN, VALUE, CHANGE, STD_ERROR)


def listed_sections(
    frame: pl.DataFrame, sizes: Sizes, formats: dict[str, str], level: float, names: Mapping[str, str] = NO_NAMES
) -> tuple[Section, Section]:
    """The estimates, for readers and row by row, as many as the frame holds of those that there are, by `sizes_of`.

    `names` are those of places, by GEOID.
    """
    cells, there = _with_names(frame, names), sum(sizes.values())
    is_unnamed = cells is frame
    first, frame = readers_section(cells, sizes, level), frame.drop(VALUE, strict=False)
    sentences = [
        f"Every row is a cell; * stands for all of a variable, summed. Intervals cover {_covered(frame, level)} for "
        "normal noise.",
        *_with_other_bounds(frame),
        shown_of(frame.height, there, "rows"),
        "A click on a heading, or the enter key there, sorts by that column.",
    ]
    if names and is_unnamed:
        sentences.append("None of the names of places that were given is that of a place in these rows.")
    table = Shown("estimates", f"Estimates: {frame.height:,} of {counted(there, 'row')}", frame, formats)
    return first, Section("estimates", "Estimates", sentences, tables=[table])


def sizes_of(cells: pl.DataFrame) -> dict[tuple[str, ...], int]:
    """How many cells every table has, by its geolevel, if there are any, and its name."""
    keys = _keys(cells)
    if not keys:
        return {(): cells.height}
    return {tuple(map(str, own[:-1])): own[-1] for own in cells.group_by(keys, maintain_order=True).len().iter_rows()}


def told_apart(variables: Iterable[str]) -> dict[str, str]:
    """What variables are called on a page that have the name of a column of numbers there."""
    return {name: f"{name} (variable)" for name in variables if name in NUMBERS}


def _keys(cells: pl.DataFrame) -> list[str]:
    return [name for name in (GEOLEVEL, TABLE) if name in cells.columns]


def _covered(cells: pl.DataFrame, level: float) -> str:
    """The level of the intervals of cells; in words that of a file, where it is another than the one that is asked."""
    noisy = cells.filter(pl.col(STD_ERROR) > 0)
    ratio = ((noisy["upper"] - noisy["lower"]) / (2 * noisy[STD_ERROR])).drop_nans().median()
    if not isinstance(ratio, float):
        return f"{level:.4g}"
    found = float(2 * ndtr(ratio) - 1)
    return f"{level:.4g}" if abs(found - level) <= SAME_LEVEL else f"about {found:.2g}, as the file has them,"


def _with_other_bounds(cells: pl.DataFrame) -> list[str]:
    """Of how many cells bounds are not as many standard errors from the estimate as those of the others, in words."""
    numbers = (cells[name].fill_null(float("nan")).to_numpy() for name in (ESTIMATE, STD_ERROR, "lower", "upper"))
    estimate, error, lower, upper = numbers
    noisy = np.flatnonzero((error > 0) & np.isfinite(upper - lower))
    if not noisy.size:
        return []
    ratio = np.median((upper - lower)[noisy] / (2 * error[noisy]))
    rounding = (2 + ratio) * half_units(error, digits_of(estimate, error)) + RELATIVE * (abs(estimate) + error)
    away = np.maximum(abs(upper - estimate - ratio * error), abs(estimate - lower - ratio * error))
    others = np.flatnonzero(away > rounding)
    if not others.size:
        return []
    first = ", ".join(map(str, cells.drop(*NUMBERS, *BOUNDS, "nonnegative", strict=False).row(int(others[0]))))
    return [
        f"Bounds of {counted(others.size, 'row')}, the first of them {first}, are another number of standard errors "
        "from the estimate than those of the others."
    ]


def _with_names(cells: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Cells with the name of every place before its code, where some are known."""
    if not names or GEOCODE not in cells.columns:
        return cells
    codes = cells[GEOCODE].cast(pl.String)
    plain = pl.Series([geoid_in(code) or code for code in codes], dtype=pl.String)
    for geoids in (plain, geoids_of(codes, themselves=False)):
        if names.keys() & set(geoids):
            called = "place" if "place" not in cells.columns else "name of the place"
            place = geoids.replace_strict(dict(names), default="", return_dtype=pl.String).alias(called)
            before = cells.columns.index(GEOCODE)
            return cells.select(*cells.columns[:before], place, *cells.columns[before:])
    return cells


def readers_section(cells: pl.DataFrame, sizes: Sizes, level: float) -> Section:
    """The tables that were asked for, in words and numbers that people know.

    Parameters
    ----------
    cells : polars.DataFrame
        The first cells: keys, ``estimate``, ``std error`` and, where that is known, ``measured``.
    sizes : mapping of tuple of str to int
        Of all tables, as `sizes_of` has them.
    level : float
        Of the margins of error.

    Returns
    -------
    Section
    """
    tables = _tables(cells.drop("lower", "upper", "nonnegative", strict=False), sizes, level)
    shown = list(islice(tables, MOST_TABLES))
    drawn = max(shown, key=lambda own: own.frame.height)
    sentences = [
        f"Every number is an estimate: the truth lies within its margin of error in about {100 * level:.4g} % of "
        "cases, if measurements have the noise that they claim."
    ]
    sentences += _changed(shown, sum(own.frame.height for own in shown) == sum(sizes.values()))
    if len(sizes) > len(shown):
        sentences.append(shown_of(len(shown), len(sizes), "tables"))
    return Section("tables", "The numbers", sentences, _picture(drawn, level), shown)


def _tables(cells: pl.DataFrame, sizes: Sizes, level: float) -> Iterator[Shown]:
    """Each table by itself, without what is the same in all its rows."""
    keys = _keys(cells)
    formats = dict.fromkeys(NUMBERS, BY_ERROR)
    for own in cells.partition_by(keys, maintain_order=True) if keys else [cells]:
        called = tuple(str(own[key][0]) for key in keys)
        name = ", ".join(reversed(called)) or "nodes"
        first = own.head(MOST_ROWS)
        labels = [
            column
            for column in first.get_columns()
            if column.name not in (*keys, *NUMBERS) and not (column == SUMMED_OUT).all()
        ]
        estimate, error = first[ESTIMATE], first[STD_ERROR]
        _, upper = normal_intervals(estimate.to_numpy(), error.to_numpy(), level)
        numbers = [estimate, (pl.Series(MARGIN, upper) - estimate).alias(MARGIN)]
        if VALUE in first.columns:
            change = estimate - first[VALUE]
            moved = (change.abs() > ROUNDING * estimate.abs()).fill_null(True)
            numbers += [first[VALUE], change.zip_with(moved, 0 * change).alias(CHANGE)]
        frame = pl.DataFrame([*(labels or [pl.Series("count", ["all"])]), *numbers, error])
        yield Shown(f"table {name}", f"{name}: {_of(frame.height, sizes[called])}", frame, formats)


def _of(shown: int, there: int) -> str:
    return counted(there, "number") if shown == there else f"the first {shown:,} of {there:,} numbers"


def _changed(tables: Sequence[Shown], are_all: bool) -> list[str]:
    """The largest change from what was measured, in words; of the tables that are shown, which may be all."""
    found = []
    for own in tables:
        moved = own.frame.filter(pl.col(CHANGE).is_finite()) if CHANGE in own.frame.columns else own.frame.clear()
        if moved.height:
            row = moved.row(int(moved[CHANGE].abs().arg_max() or 0), named=True)
            found.append((abs(row[CHANGE]), own, row))
    if not found:
        return []
    of_these = "" if are_all else " of those in the tables below"
    size, own, row = max(found, key=lambda one: one[0])
    if size == 0:
        return [f"No number{of_these} was moved from what was measured."]
    cell = ", ".join(str(value) for name, value in row.items() if name not in NUMBERS)
    how = f"{row[CHANGE]:+,.4g}, from {row[VALUE]:,.6g} to {row[ESTIMATE]:,.6g}"
    where = f"{own.name.removeprefix('table ')}, {cell}"
    return [
        f"Numbers that were measured apart were moved until they agree. The largest change{of_these} is {how}: {where}."
    ]


def _picture(shown: Shown, level: float) -> str:
    """The first of the rows as dots, with their margins of error."""
    rows = shown.frame
    labels = [", ".join(map(str, own)) for own in rows.drop(NUMBERS, strict=False).iter_rows()]
    ends = [(rows[ESTIMATE] + sign * rows[MARGIN]).fill_null(float("nan")).to_list() for sign in (-1, 1)]
    series = [Series(ESTIMATE, rows[ESTIMATE].fill_null(float("nan")).to_list(), filled=True)]
    if VALUE in rows.columns:
        series.insert(0, Series("as measured", rows[VALUE].fill_null(float("nan")).to_list()))
    words = f"{shown.caption}. A line is a margin of error of {100 * level:.4g} %. The numbers are in the table below."
    spans = list(zip(*ends, strict=True))
    along = "estimate, with its margin of error"
    return dot_plot("tables-picture", shown.caption, words, labels, series, along, spans=spans)
