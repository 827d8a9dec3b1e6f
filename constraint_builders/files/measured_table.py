"""Long tables: one row a published cell, in files or in data frames.

======================  ================================================================================
column                  holds
======================  ================================================================================
``table``               the table's name: factors joined by ``*``, ``total`` or ``detailed``
one for each variable   a level's label, ``*`` where the variable is summed out, the group of a recode
``value``               the published number; may be empty where it was not measured
``variance``            variance of its noise: 0 for an exact value, ``inf`` where it was not measured
======================  ================================================================================

Instead of the variance may stand ``std_error``, ``moe_90`` (a margin of error of 90 %, or another level) or
``cv_percent``. With a geography there are two columns more, or three:

======================  ================================================================================
``geolevel``            the geounit's level
``geocode``             its code, text; the code of its parent begins it, whatever their widths
``parent``              where codes do not tell: the parent's code, empty at the top
======================  ================================================================================

A column ``source`` tells sources apart that measured the same cells; they are combined. Columns of notes are ignored.
Capitals and outer spaces make no difference where there is one label or name that is meant; what counts everybody may
also be called ``Total:`` and the like, and without a schema a level that counts others once more is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import polars as pl

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.noise import LawOrName, NoiseLaw
from constraint_builders.description.schema import Schema
from constraint_builders.description.source_values import Understood
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.area_tables import TableAreas
from constraint_builders.files.columns import (
    CV_PERCENT,
    MARGIN,
    PARENT,
    SUMMED_OUT,
    VARIANCE,
    Columns,
    Spread,
    find_columns,
)
from constraint_builders.files.doubts import copies, doubts
from constraint_builders.files.hidden_totals import geounit_of_all, hidden_totals, refuse_rows_that_are_none
from constraint_builders.files.labels import refuse_overlapping, with_totals
from constraint_builders.files.naming import naming
from constraint_builders.files.numbers import TEXT, decimal_mark
from constraint_builders.files.rows import LevelTable, MeasuredCells, Rows, as_written, infer, with_a_variable
from constraint_builders.files.source import Source, open_source
from constraint_builders.files.spine_of_codes import read_geography
from constraint_builders.measured import Measured
from constraint_builders.problem import Problem
from constraint_builders.sources import SourceTable, together, told_apart
from constraint_builders.vectors import refuse_impossible

UNPUBLISHED = "; where nothing was published leave the value empty, its variance inf"
IN_A_TABLE = "one is missing, counted twice or in other units; a level may be left out"


@dataclass(frozen=True)
class MeasuredTable:
    """What a long table says.

    Attributes
    ----------
    problem : Problem
        It says itself which totals and places were understood.
    y : ndarray, (n,)
    ignored : tuple of str
        What was left out, in words: columns of notes, titles and what else stands around a table.
    combined : tuple of str or (str, str)
        Names of tables of which several sources were combined into one measurement.
    """

    problem: Problem
    y: Float
    ignored: tuple[str, ...]
    combined: tuple[str | LevelTable, ...]


def measured(
    table: Source,
    schema: Schema | None = None,
    *,
    desired: Sequence[str] | str | None = None,
    noise: LawOrName = "gaussian",
    undetermined: Literal["error", "nan"] = "error",
    total: Sequence[str] = (),
    totals: tuple[str, ...] | None = None,
    silent: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    areas: TableAreas | None = None,
    inferred: bool = False,
    may_lack: bool = False,
) -> MeasuredTable:
    """What a long table that was opened says; parameters and errors are those of `read_long_table`.

    And `total` as in `constraint_builders.read_tables`; `totals`, where they were found out before, as of `Understood`;
    for every variable the labels whose rows are `silent`, not even saying that nothing was measured, and their first
    rows; whether the schema was `inferred` from the rows, as it is where none is given; whether tables `may_lack` rows
    of cells that were not published. Where there are areas every row has the level and the code of one.
    """
    with naming(table.what):
        columns = find_columns(table.frame, schema)
        if table.frame.is_empty():
            raise ValueError("there are no rows: give one for every cell")
        if not schema:
            table, columns = with_a_variable(table, columns)
        if totals is None:
            table, totals = with_totals(table, columns.variables, schema, total)
        inferred, schema = inferred or not schema, schema or infer(table, columns)
        asks = inferred and SUMMED_OUT not in total
        asked = schema.variables if asks else ()
        written = {own.name: as_written(table, columns.variables[own.name], own.levels) for own in asked}
        if asks:
            refuse_overlapping(schema)
        geography = read_geography(table, columns) if areas is None else areas.geography(table, columns)
        rows = Rows(table, columns, schema, geography, inferred)
        if may_lack:
            rows.refuse_gaps(asks)
        order = rows.order(may_lack)
        values, variances = (
            np.where(order < 0, nothing, column[order])
            for column, nothing in zip(read_measurements(rows, columns), (np.nan, np.inf), strict=True)
        )
        cells = _tables(rows, values, variances)
        spine = geography.places if geography and isinstance(geography.places, Spine) else None
        by_levels = [own for own in cells if set(own.table.factors) <= set(schema.names)]
        if silent:
            refuse_rows_that_are_none(schema, by_levels, silent)
        perhaps = hidden_totals(schema, by_levels, written) if asks else ()
        whole = "" if spine is None else geounit_of_all(spine, cells)
        if whole and PARENT not in columns.keys:
            raise ValueError(
                f"{whole}: give its rows to what holds the others, at a geolevel of its own; where it is one of them "
                "give a column 'parent', empty at the top"
            )
        if spine is not None:
            _compare_children(schema, spine, cells)
        problem = Problem(
            schema,
            _observed(cells, geography is not None),
            desired,
            spine=spine,
            areas=None if areas is None else areas.areas,
            noise=noise,
            undetermined=undetermined,
        )
        places = "" if geography is None else geography.said
        y = problem.observed.vector({own.name: own.values if geography else own.values[0] for own in cells})
        copied = copies(own.given for own in cells)
        perhaps += (f"{whole}: does it hold them?",) if whole else ()
        in_percent = columns.spread.kind == CV_PERCENT
        found = doubts(problem.observed, y, problem.variances, isinstance(noise, NoiseLaw), in_percent)
        nothing = (
            f"{label!r} in column {name!r}, row {row}, taken for a level that was not measured"
            for name, labels in silent.items()
            for label, row in labels.items()
        )
        notes = (*nothing, *table.doubts, *found, *copied, *perhaps)
        problem = problem.replace(understood=Understood((), totals, places, notes, table.left_out))
        sources = list(dict.fromkeys(block.source for block in rows.blocks))
        problem = told_apart(problem, {own.name: own.given for own in cells}, sources)
        Measured.check_vector(problem, y)
        refuse_impossible(problem, y)
        combined = tuple(own.name for own in cells if len(own.given) > 1)
        ignored = (*(f"column {name!r}, of notes" for name in columns.ignored), *table.left_out)
        return MeasuredTable(problem, y, ignored, combined)


def read_long_table(
    source: Any,
    schema: Schema | None = None,
    *,
    desired: Sequence[str] | str | None = None,
    noise: str = "gaussian",
    undetermined: Literal["error", "nan"] = "error",
) -> tuple[Problem, Float]:
    """Read measurements from a long table.

    Parameters
    ----------
    source : path or data frame
        A file of one of the `source.FORMATS` (CSV, Parquet, Excel and what was added), a pandas frame, or a frame with
        the Arrow PyCapsule interface (``__arrow_c_stream__``: polars, pyarrow). Rows may come in any order.
    schema : Schema, optional
        What the rows must agree with; by default `infer_schema` of them.
    desired, noise, undetermined
        As in `Problem`.

    Returns
    -------
    problem : Problem
        Observing the tables under the names that the rows give them; in the same order, as their cells and geounits,
        whatever the order of the rows.
    y : ndarray, (n,)
        The values over the observed layout, NaN where empty.

    Raises
    ------
    ValueError
        If the file cannot be read as a table; if a column or a cell is missing; if a table or a level is unknown; if a
        cell is given twice; if a value or a variance is not a number that it can be; if exact values contradict one
        another. The message names the file and the place.
    OSError
        If the file cannot be opened.
    TypeError
        If `source` is neither a path nor a data frame.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {"table": ["sex", "sex", "total"], "sex": ["f", "m", "*"], "value": [6, 9, 14], "variance": [1.0, 1.0, 0.0]}
    ... )
    >>> read_long_table(frame)
    (Problem(2 observed tables, 3 cells; 2 desired tables, 3 cells), array([14.,  6.,  9.]))
    """
    table = measured(open_source(source), schema, desired=desired, noise=noise, undetermined=undetermined)
    return table.problem, table.y


def infer_schema(source: Any) -> Schema:
    """The schema that a long table implies: its variables, with levels in order of size or of the alphabet.

    Parameters
    ----------
    source : path or data frame
        As for `read_long_table`. Recodes cannot be inferred: tables with recodes need a schema.

    Raises
    ------
    ValueError, OSError, TypeError
        As for `read_long_table`.
    """
    table = open_source(source)
    with naming(table.what):
        columns = find_columns(table.frame, None)
        return infer(with_totals(table, columns.variables, None, ())[0], columns)


def _tables(rows: Rows, values: Float, variances: Float) -> list[MeasuredCells]:
    """The tables in order, each with what its sources say, from values and variances, (cells,)."""
    found: dict[tuple[int, str], tuple[Table, str | LevelTable, list[SourceTable]]] = {}
    start = 0
    for block in rows.blocks:
        shape, table, name = rows.shape(block), rows.tables[block.table], rows.name(block)
        cells = slice(start, start + int(np.prod(shape)))
        own, called, given = found.setdefault((block.level, table.name), (table, name, []))
        if block.source in (other.source for other in given):
            raise ValueError(f"{called!r} and {name!r} are names of one table: give it once")
        turned = [0, *(1 + table.axes.index(axis) for axis in own.axes)]
        said = (column[cells].reshape(shape).transpose(turned) for column in (values, variances))
        given.append(SourceTable(block.source, *said))
        start = cells.stop
    return [
        MeasuredCells("" if isinstance(name, str) else name[0], table, *together(name, given), name, tuple(given))
        for table, name, given in found.values()
    ]


def _observed(found: Sequence[MeasuredCells], is_placed: bool) -> dict[str, Any]:
    if not is_placed:
        return {str(own.name): own.variances[0] for own in found}
    observed: dict[str, dict[str, Float]] = {}
    for own in found:
        observed.setdefault(own.name[0], {})[own.name[1]] = own.variances
    return observed


def _compare_children(schema: Schema, spine: Spine, found: Sequence[MeasuredCells]) -> None:
    """Refuse tables of geounits whose children are not all there."""
    from constraint_builders.files.expected_rows import refuse_missing_children

    variances: dict[str, dict[str, Float]] = {}
    totals: dict[str, dict[str, Float]] = {}
    for own in found:
        cells = tuple(range(1, own.values.ndim))
        level = own.name[0]
        variances.setdefault(level, {})[own.table.name] = own.variances.mean(axis=cells)
        totals.setdefault(level, {})[own.table.name] = np.nan_to_num(own.values).sum(axis=cells)
    refuse_missing_children(schema, spine, variances, totals, IN_A_TABLE)


def read_measurements(rows: Rows, columns: Columns) -> tuple[Float, Float]:
    """The values of the rows, NaN for an empty one, and their variances.

    Standard errors are squared; margins of error are divided by the normal quantile of their level first, and
    coefficients of variation multiplied by the value.

    Raises
    ------
    ValueError
        If an entry is not a number that it can be. The message names the cell and the row.
    """
    frame, spread = rows.source.frame, columns.spread
    if spread.kind == CV_PERCENT and frame[spread.column].dtype in TEXT:
        frame = frame.with_columns(pl.col(spread.column).cast(pl.String).str.strip_chars().str.strip_suffix("%"))
    mark = decimal_mark([frame[columns.value], frame[spread.column]], rows.source.delimiter)
    values = rows.numbers(frame[columns.value], mark, "value", UNPUBLISHED)
    said = rows.numbers(frame[spread.column], mark, spread.column)
    missing = "is missing: give a number, 0 for exact, or inf for not measured"
    rows.refuse(spread.column, np.isnan(said), missing)
    rows.refuse(spread.column, said < 0, "is negative: give a number of 0 or more")
    rows.refuse("value", np.isinf(values), "is infinite: give a finite number")
    variances = variances_of(said, values, spread, rows.refuse)
    unknown = np.isnan(values) & np.isfinite(variances)
    rows.refuse("value", unknown, f"is missing: give a number, or the {spread.column} inf for not measured")
    return values, variances


def variances_of(said: Float, values: Float, spread: Spread, refuse: Callable[[str, Flags, str], None]) -> Float:
    """The variances that a column of precisions says of its values, in their shape.

    Those that are none are refused, by what it is, where, and why.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        errors = said
        if spread.kind == MARGIN:
            from scipy.special import ndtri

            errors = said / float(ndtri((1 + spread.level) / 2))
        elif spread.kind == CV_PERCENT:
            nothing = np.isfinite(said) & (values == 0)
            refuse(spread.column, nothing, "says nothing about a value of 0: give variances or std_error instead")
            errors = np.where(np.isinf(said), np.inf, said / 100 * abs(values))
        variances = said if spread.kind == VARIANCE else errors**2
    refuse(spread.column, (variances == 0) & (said > 0), "is too small for a variance: write 0 for exact")
    refuse(spread.column, np.isinf(variances) & np.isfinite(said), "has a variance beyond floating point")
    return variances
