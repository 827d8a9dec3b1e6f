"""A problem from a frame as survey people have them: tables unnamed, wide, with cells suppressed and marks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from constraint_builders.description.noise import LawOrName, NoiseLaw
from constraint_builders.description.schema import Schema
from constraint_builders.files.acs_table import ACS, CONTROLLED, MARKS, read_acs
from constraint_builders.files.area_tables import in_areas
from constraint_builders.files.columns import (
    GEOCODE,
    GEOLEVEL,
    SUMMED_OUT,
    TABLE,
    VARIANCE,
    Columns,
    find_columns,
    plain_name,
    read_spread,
)
from constraint_builders.files.doubts import misspelt
from constraint_builders.files.labels import LabelNumbers, with_totals
from constraint_builders.files.measured_table import MeasuredTable, measured
from constraint_builders.files.naming import listed, naming, shown
from constraint_builders.files.numbers import TEXT, is_empty, is_number, marked, read_labels
from constraint_builders.files.periods import recoded_periods
from constraint_builders.files.rows import levels_of
from constraint_builders.files.sdmx_table import SDMX, plain_sdmx
from constraint_builders.files.source import Source, open_source
from constraint_builders.files.wide_tables import (
    columns_of_numbers,
    plainly_written,
    with_rows_for_cells,
)

if TYPE_CHECKING:
    from constraint_builders.files.schema_file import SchemaFile

CENSUS_MARKS = tuple(-111_111_111 * digit for digit in range(2, 10))  # in place of numbers, in files of the ACS


@dataclass(frozen=True)
class Said:
    """What is said of a table that it does not say itself; as in `constraint_builders.read_tables`."""

    columns: Mapping[str, str] = field(default_factory=dict)
    names_to: str | Sequence[str] | None = None
    names_sep: str = "_"
    cells: str | Sequence[str] | None = None
    suppressed: str | float | Sequence[str | float] = ()
    exact: str | float | Sequence[str | float] = ()
    total: str | Sequence[str] = ()
    areas: Any = None
    law: NoiseLaw | None = None
    style: str | None = None  # of a publisher
    sums: Sequence[tuple[str, str]] = ()  # variables of periods of time, with what longer ones are called
    plus_minus: str | None = None
    sheet: str | Sequence[str] | None = None
    skip_rows: int = 0

    def open(self, source: Any) -> Source:
        """Read a table from where it lies in a file."""
        if not isinstance(self.skip_rows, int) or self.skip_rows < 0:
            raise ValueError(f"skip_rows must be a whole number of 0 or more: got {self.skip_rows!r}")
        where = {"sheet": self.sheet, "skip_rows": self.skip_rows}
        return open_source(source, **{option: own for option, own in where.items() if own})


def tables_as_said(
    source: Any,
    file: SchemaFile | None = None,
    said: Said | None = None,
    *,
    desired: Any = None,
    undetermined: Literal["error", "nan"] = "nan",
) -> MeasuredTable:
    """What a table says, long or wide, as the command takes it; a long one that nothing is said of to the letter.

    Parameters
    ----------
    source : path or data frame
    file : SchemaFile, optional
        Its desired tables count where none are given.
    said : Said, optional
    desired, undetermined
        As in `Problem`.

    Raises
    ------
    ValueError, OSError, TypeError
        As `read_long_table` and `constraint_builders.read_tables`.
    """
    table, schema = (said or Said()).open(source), None if file is None else file.schema
    wanted = desired if file is None else desired or file.desired
    options: dict[str, Any] = {"desired": wanted, "undetermined": undetermined}
    options["noise"] = "gaussian" if file is None else file.noise
    if said is not None and said.law is not None:
        options["noise"] = said.law
    if said is None and names_its_tables(table):
        return measured(table, schema, **options)
    return measured_as_said(table, schema, said or Said(), **options)


def measured_as_said(
    table: Source,
    schema: Schema | None,
    said: Said,
    *,
    desired: Sequence[str] | str | None = None,
    noise: LawOrName = "gaussian",
    undetermined: Literal["error", "nan"] = "nan",
) -> MeasuredTable:
    """What a table that was opened says; parameters and errors as in `constraint_builders.read_tables`."""
    with naming(table.what):
        table, schema, said = _of_style(table, schema, said, noise)
        marks, areas, inferred = list(map(str, _several(said.total))), None, not schema
        own, others = _columns_apart(table.frame, said.columns, said.areas)
        table = plainly_written(replace(table, frame=_renamed(table.frame, own)), said.plus_minus)
        if said.areas is not None:
            table, areas, marks = in_areas(table, said.areas, others, marks)
        if said.names_to is not None:
            cells = said.cells
            if cells is None and isinstance(noise, NoiseLaw):
                cells = columns_of_numbers(table.frame, _several(said.suppressed))
            table = with_rows_for_cells(table, said.names_to, said.names_sep, cells, marks)
        elif said.cells is not None:
            raise ValueError(
                "cells names columns of a wide table: give names_to too, the variable whose levels they are"
            )
        if isinstance(noise, NoiseLaw):
            table = _as_precise_as(noise, table, said)
        elif said.style == SDMX:
            raise ValueError(
                "tables of SDMX do not say how precise they are: give the law of their values, noise=RandomRounding(3)"
            )
        variables = find_columns(table.frame, schema, named=names_its_tables(table)).variables
        table, totals = with_totals(table, variables, schema, marks)
        if len(_several(said.sheet or ())) > 1:  # which often repeat their totals
            table = table.kept(table.frame.select(pl.struct(pl.all()).is_first_distinct()).to_series())
        if said.sums:
            table, schema = _with_periods(table, schema, variables, said.sums)
        table = _with_names_of_tables(table, schema, variables)
        found = find_columns(table.frame, schema)
        frame, silent = _without_marks(table.frame, found, said.suppressed, said.exact)
        _refuse_silent_geolevels(table, found, silent)
        nothing = {name: _silent_labels(table, name, silent) for name in variables if inferred}
        table = replace(table, frame=frame)
        if inferred and isinstance(noise, NoiseLaw):  # rows of a level that is another misspelt are absent otherwise
            cell = {*found.keys.values(), *variables.values()}
            perhaps = filter(None, (misspelt(table, name, sorted(cell - {name})) for name in variables.values()))
            table = replace(table, doubts=(*table.doubts, *perhaps))
    return measured(
        table,
        schema,
        desired=desired,
        noise=noise.declared if isinstance(noise, NoiseLaw) else noise,
        undetermined=undetermined,
        total=marks,
        totals=totals,
        silent={name: labels for name, labels in nothing.items() if labels},
        areas=areas,
        inferred=inferred,
        may_lack=isinstance(noise, NoiseLaw) or said.style == ACS,
    )


def _as_precise_as(noise: NoiseLaw, table: Source, said: Said) -> Source:
    """A table whose values have noise of a law: a column of its variance."""
    if _several(said.exact):
        raise ValueError(f"exact= is a mark of precisions, which the law {noise!r} says: leave it out")
    said_by = next((name for name in table.frame.columns if read_spread(name)), None)
    if said_by is not None:
        raise ValueError(f"column {said_by!r} says how precise values are: leave it out, or their law {noise!r}")
    published = table.frame.with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(None))  # as pandas says it of others
    return replace(table, frame=published.with_columns(pl.lit(noise.variance).alias(VARIANCE)))


def _of_style(table: Source, schema: Schema | None, said: Said, noise: LawOrName) -> tuple[Source, Schema | None, Said]:
    """A table as others are, of whatever style it was, with the schema that it says and what is said of it then."""
    if said.style is None:
        return table, schema, said
    if said.style == SDMX:
        return plain_sdmx(table, bool(said.sums)), schema, said
    if said.style != ACS:
        raise ValueError(f"style must be {ACS!r} or {SDMX!r}: got {said.style!r}")
    alone = Said(names_to=said.names_to, style=said.style, sheet=said.sheet, skip_rows=said.skip_rows)
    if schema or said.areas is not None or said != alone or noise != "gaussian":
        raise ValueError(
            f"style {ACS!r} says what columns, marks, variables and errors are: give nothing beside it but names_to, "
            "the names of the variables"
        )
    names = [said.names_to] if isinstance(said.names_to, str) else said.names_to or ()
    return *read_acs(table, names), Said(style=ACS, suppressed=MARKS, exact=CONTROLLED)


def _with_periods(
    table: Source, schema: Schema | None, variables: Mapping[str, str], sums: Sequence[tuple[str, str]]
) -> tuple[Source, Schema]:
    """The schema that the rows imply, where some periods are the sum of shorter ones; that of all sums them out."""
    if schema:
        raise ValueError("sums= says of periods what a schema says by recodes: give one of both")
    levels = {name: levels_of(table, column) for name, column in variables.items()}
    into: dict[str, list[str]] = {}
    for variable, name in sums:
        if variable not in levels:
            raise ValueError(f"sums= names {variable!r}, which is no variable: there are {', '.join(levels)}")
        into.setdefault(variable, []).append(name)
    recodes: dict[str, dict[str, list[str]]] = {}
    for variable, names in into.items():
        levels[variable], found = recoded_periods(variable, levels[variable], names)
        whole = [groups[0] for groups in found.values() if len(set(groups)) == 1]
        own = read_labels(table.frame[variables[variable]]).str.strip_chars()
        table = replace(table, frame=table.frame.with_columns(own.replace(whole, [SUMMED_OUT] * len(whole))))
        recodes[variable] = {name: groups for name, groups in found.items() if len(set(groups)) > 1}
    return table, Schema(levels, recodes)


def names_its_tables(table: Source) -> bool:
    """Whether a column says what every row counts, as in a long table."""
    return any(plain_name(name) == TABLE for name in table.frame.columns)


def _renamed(frame: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns is a mapping, such as {{'moe': 'moe_90'}}: got {type(columns).__name__}")
    for name in columns:
        if name not in frame.columns:
            raise ValueError(f"columns names {name!r}, which is none: there are {listed(frame.columns)}")
    notes = [name for name, role in columns.items() if plain_name(role) in ("note", "notes")]
    named = {name: role for name, role in columns.items() if name not in notes}
    left = [name for name in frame.columns if name not in columns]
    for number, role in enumerate(named.values()):
        if role in left or role in list(named.values())[:number]:
            raise ValueError(f"columns calls two columns {role!r}: keep one, and call the other 'note'")
    return frame.drop(notes).rename(named)


def _columns_apart(
    frame: pl.DataFrame, columns: Mapping[str, str], areas: Any
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What is said of columns of the table, and of others, which are those of its areas."""
    if areas is None or not isinstance(columns, Mapping):
        return columns, {}
    own = {name: role for name, role in columns.items() if name in frame.columns}
    return own, {name: role for name, role in columns.items() if name not in own}


def _with_names_of_tables(table: Source, schema: Schema | None, variables: Mapping[str, str]) -> Source:
    """Name the table of every row by the variables that it does not sum out, where no column does."""
    frame = table.frame
    if names_its_tables(table):
        return table
    named = [_factors(table, schema, variable, column).alias(variable) for variable, column in variables.items()]
    if not named:
        return replace(table, frame=frame.with_columns(pl.lit("total").alias(TABLE)))
    said = pl.concat_str(named, separator=" * ", ignore_nulls=True)
    return replace(
        table, frame=frame.with_columns(pl.when(said == "").then(pl.lit("total")).otherwise(said).alias(TABLE))
    )


def _factors(table: Source, schema: Schema | None, variable: str, column: str) -> pl.Series:
    """Which factor of a variable every row keeps, null where it is summed out."""
    labels = read_labels(table.frame[column])
    there = labels.drop_nulls().unique().to_list()
    known = {own: schema.labels_of(own) for own in schema.factors_of(variable)} if schema else {variable: there}
    choices = {own: LabelNumbers([label for label in known[own] if label.strip() != SUMMED_OUT]) for own in known}
    factor_of: dict[str, str | None] = {}
    for label in there:
        found = [factor for factor, numbers in choices.items() if numbers.get(label) >= 0]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise ValueError(f"column {column!r}: {label!r} is a label of {both}: say which table in a column 'table'")
        factor_of[label] = None if label.strip() == SUMMED_OUT else (found or [variable])[0]
    return labels.replace_strict(factor_of, return_dtype=pl.String, default=None)


def _without_marks(
    frame: pl.DataFrame,
    columns: Columns,
    suppressed: str | float | Sequence[str | float],
    exact: str | float | Sequence[str | float],
) -> tuple[pl.DataFrame, pl.Series]:
    """Say of suppressed cells that they were not measured, and of exact ones that they have no noise.

    And which rows say nothing: neither a value, nor a precision, nor a mark.
    """
    value, spread = frame[columns.value], frame[columns.spread.column]
    suppressed, exact = _several(suppressed), _several(exact)
    unsaid = marked(value, CENSUS_MARKS) & ~marked(value, suppressed)
    if unsaid.any():
        mark = value.filter(unsaid)[0]
        raise ValueError(f"value {mark} is a mark of the Census Bureau, no number: name it by suppressed=")
    of_spreads = [mark for mark in suppressed if mark != "" and not (is_number(mark) and float(mark) >= 0)]
    hidden = marked(value, suppressed) | marked(spread, of_spreads)
    empty = hidden | (is_empty(value) & ~_broken(value, spread))
    silent = is_empty(value) & is_empty(spread) & ~hidden
    known = marked(spread, exact) & ~empty
    if not (empty.any() or known.any()):
        return frame, silent
    text = spread.dtype in TEXT
    not_measured, no_noise = map(pl.lit, ("inf", "0") if text else (np.inf, 0.0))
    numbers = spread.cast(pl.String if text else pl.Float64, strict=False)
    return frame.with_columns(
        pl.when(empty).then(None).otherwise(pl.col(value.name)).alias(value.name),
        pl.when(empty).then(not_measured).when(known).then(no_noise).otherwise(numbers).alias(spread.name),
    ), silent


def _silent_labels(table: Source, column: str, silent: pl.Series) -> dict[str, int]:
    """The labels of a column of which all rows say nothing, with the first of these rows."""
    labels = pl.DataFrame(
        {"label": read_labels(table.frame[column]).str.strip_chars(), "row": table.rows, "nothing": silent}
    )
    found = labels.group_by("label", maintain_order=True).agg(pl.col("nothing").all(), pl.col("row").first())
    kept = found.filter("nothing", pl.col("label").is_not_null(), pl.col("label") != SUMMED_OUT)
    return dict(kept.select("label", "row").rows())


def _refuse_silent_geolevels(table: Source, columns: Columns, silent: pl.Series) -> None:
    """Refuse a footer in the column of geolevels: one of which all rows say nothing, without a code."""
    if GEOLEVEL not in columns.keys:
        return
    silent &= is_empty(table.frame[columns.keys[GEOCODE]])
    for level, row in _silent_labels(table, columns.keys[GEOLEVEL], silent).items():
        raise ValueError(
            f"row {row}, {shown(level)} in column {columns.keys[GEOLEVEL]!r}, has neither a code nor a value nor a "
            "precision: leave it out"
        )


def _several(marks: Any) -> Sequence[str | float]:
    """Marks, of which one alone may be given by itself."""
    return [marks] if isinstance(marks, str | int | float) else list(marks)


def _broken(value: pl.Series, spread: pl.Series) -> pl.Series:
    """Where a value is NaN, which is no empty one, beside a precision."""
    if value.dtype in TEXT:
        not_a_number = value.cast(pl.String).str.strip_chars().str.to_lowercase() == "nan"
    else:
        not_a_number = value.is_nan() if value.dtype.is_float() else value.is_null() & False
    return not_a_number.fill_null(False) & ~is_empty(spread)
