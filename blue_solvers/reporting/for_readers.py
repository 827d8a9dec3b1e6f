"""The first section of a page, for readers: the tables, each estimate with its margin of error, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import polars as pl

from blue_solvers.reporting.dot_plots import MOST_ROWS, Series, dot_plot
from blue_solvers.reporting.page_parts import BY_ERROR, STD_ERROR, Section, Shown, counted, shown_of
from blue_solvers.uncertainty import normal_intervals
from constraint_builders.description.geo_ids import geoid_in
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, SUMMED_OUT, TABLE
from constraint_builders.files.tabulated_places import geoids_of

MOST_TABLES = 8
NO_NAMES: Mapping[str, str] = MappingProxyType({})
ESTIMATE, MARGIN, VALUE, CHANGE = "estimate", "margin of error", "measured", "change"
NUMBERS = (ESTIMATE, MARGIN, VALUE, CHANGE, STD_ERROR)


def listed_sections(
    frame: pl.DataFrame, there: int, formats: dict[str, str], level: float, names: Mapping[str, str] = NO_NAMES
) -> tuple[Section, Section]:
    """The estimates, for readers and row by row, as many as the frame holds of those that there are.

    `names` are those of places, by GEOID.
    """
    first, frame = readers_section(_with_names(frame, names), level), frame.drop(VALUE, strict=False)
    sentences = [
        f"Every row is a cell; * stands for all of a variable, summed. Intervals cover {level:.4g} for normal noise.",
        shown_of(frame.height, there, "rows"),
        "A click on a heading, or the enter key there, sorts by that column.",
    ]
    table = Shown("estimates", f"Estimates: {frame.height:,} of {counted(there, 'row')}", frame, formats)
    return first, Section("estimates", "Estimates", sentences, tables=[table])


def _with_names(cells: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """Cells with the name of every place before its code, where some are known."""
    if not names or GEOCODE not in cells.columns:
        return cells
    codes = cells[GEOCODE].cast(pl.String)
    plain = pl.Series([geoid_in(code) or code for code in codes], dtype=pl.String)
    for geoids in (plain, geoids_of(codes, themselves=False)):
        if names.keys() & set(geoids):
            place = geoids.replace_strict(dict(names), default="", return_dtype=pl.String).alias("place")
            before = cells.columns.index(GEOCODE)
            return cells.select(*cells.columns[:before], place, *cells.columns[before:])
    return cells


def readers_section(cells: pl.DataFrame, level: float) -> Section:
    """The tables that were asked for, in words and numbers that people know.

    Parameters
    ----------
    cells : polars.DataFrame
        The first cells: keys, ``estimate``, ``std error`` and, where that is known, ``measured``.
    level : float
        Of the margins of error.

    Returns
    -------
    Section
    """
    tables = list(_tables(cells.drop("lower", "upper", "nonnegative", strict=False), level))
    shown = tables[:MOST_TABLES]
    drawn = max(shown, key=lambda own: own.frame.height)
    sentences = [
        f"Every number is an estimate: the truth lies within its margin of error in about {100 * level:.4g} % of cases."
    ]
    sentences += _changed(shown)
    if len(tables) > len(shown):
        sentences.append(shown_of(len(shown), len(tables), "tables"))
    return Section("tables", "The numbers", sentences, _picture(drawn, level), shown)


def _tables(cells: pl.DataFrame, level: float) -> Iterator[Shown]:
    """Each table by itself, without what is the same in all its rows."""
    keys = [name for name in (GEOLEVEL, TABLE) if name in cells.columns]
    formats = dict.fromkeys(NUMBERS, BY_ERROR)
    for own in cells.partition_by(keys, maintain_order=True) if keys else [cells]:
        name = ", ".join(str(own[key][0]) for key in reversed(keys)) or "nodes"
        first = own.head(MOST_ROWS)
        labels = [
            column
            for column in first.get_columns()
            if column.name not in (*keys, *NUMBERS) and not (column == SUMMED_OUT).all()
        ]
        estimate, error = first[ESTIMATE], first[STD_ERROR]
        _, upper = normal_intervals(estimate.to_numpy(), error.to_numpy(), level)
        margin = pl.Series(MARGIN, upper) - estimate
        numbers = [estimate, margin.alias(MARGIN)]
        if VALUE in first.columns:
            numbers += [first[VALUE], (estimate - first[VALUE]).alias(CHANGE)]
        frame = pl.DataFrame([*(labels or [pl.Series("count", ["all"])]), *numbers, error])
        yield Shown(f"table {name}", f"{name}: {_of(frame.height, own.height)}", frame, formats)


def _of(shown: int, there: int) -> str:
    return counted(there, "number") if shown == there else f"the first {shown:,} of {there:,} numbers"


def _changed(tables: Sequence[Shown]) -> list[str]:
    """The largest change from what was measured, in words."""
    found = []
    for own in tables:
        moved = own.frame.filter(pl.col(CHANGE).is_finite()) if CHANGE in own.frame.columns else own.frame.clear()
        if moved.height:
            row = moved.row(int(moved[CHANGE].abs().arg_max() or 0), named=True)
            found.append((abs(row[CHANGE]), own, row))
    if not found:
        return []
    size, own, row = max(found, key=lambda one: one[0])
    if size == 0:
        return ["Nothing was moved: the numbers agreed as they were measured."]
    cell = ", ".join(str(value) for name, value in row.items() if name not in NUMBERS)
    how = f"{row[CHANGE]:+,.4g}, from {row[VALUE]:,.6g} to {row[ESTIMATE]:,.6g}"
    where = f"{own.name.removeprefix('table ')}, {cell}"
    return [f"Numbers that were measured apart were moved until they agree. The largest change is {how}: {where}."]


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
