"""The door for data frames: from the tables that people have to a problem, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from constraint_builders.arrays import Float
from constraint_builders.description.noise import LawOrName
from constraint_builders.description.schema import Schema
from constraint_builders.problem import Problem
from constraint_builders.reading import require_schema


def read_tables(
    frame: Any,
    schema: Schema | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    names_to: str | Sequence[str] | None = None,
    names_sep: str = "_",
    cells: str | Sequence[str] | None = None,
    suppressed: str | float | Sequence[str | float] = (),
    exact: str | float | Sequence[str | float] = (),
    total: str | Sequence[str] = (),
    areas: Any = None,
    style: Literal["acs", "sdmx"] | None = None,
    sums: Mapping[str, str | Sequence[str]] | None = None,
    plus_minus: str | None = None,
    sheet: str | Sequence[str] | None = None,
    skip_rows: int = 0,
    desired: Sequence[str] | str | None = None,
    noise: LawOrName = "gaussian",
    undetermined: Literal["error", "nan"] = "nan",
) -> tuple[Problem, Float]:
    """A problem, and what was measured, from a frame of published numbers; frames need the extra ``frames``.

    Columns are recognised by their names: the value (``value`` or ``estimate``); how precise it is (``variance``,
    ``std_error``, ``moe_90`` of any level, ``cv_percent``, with their usual spellings); ``geolevel``, ``geocode``,
    ``parent``, ``source``, notes; all others are variables. A row counts what its labels say, ``*`` or ``total``, in
    one of many languages, where a variable is summed out; a column ``table`` may say it too. Labels that may count
    everybody, such as ``All ages``, levels that are the sum of others within noise, and the Census Bureau's marks,
    such as -666666666, are asked about.

    An empty value was not measured, whatever is said of its precision: it is estimated where others determine it. Where
    these leave nothing of a total for it, and neither value nor precision is given, the row is taken for a footer and
    refused, unless ``suppressed`` has an empty mark.

    A dataset of xarray holds tables by their dimensions: an array, and beside it one for its precision, ``counts`` or
    ``counts estimate``, and ``counts std_error``, as `blue_solvers.Estimate.to_xarray` gives them.

    Parameters
    ----------
    frame : data frame, path or xarray.Dataset
        Of pandas, polars, pyarrow, or anything else with the Arrow PyCapsule interface (``__arrow_c_stream__``); or a
        file, as for `constraint_builders.files.read_long_table`.
    schema : Schema, optional
        By default the one that the rows imply: ``problem.schema``, which
        `constraint_builders.files.format_schema` shows and `write_schema_file` writes.
    columns : mapping of str to str, optional
        What columns are that do not say it themselves: ``{"moe": "moe_90", "cv": "cv_percent", "FIPS": "geocode"}``;
        ``"note"`` for what is to be left out.
    names_to : str or sequence of str, optional
        Of a wide table, one column a cell: the variables of which the cells' names are levels. ``female`` and
        ``female_se`` are a cell's two columns.
    names_sep : str
        Between the levels of several variables in a cell's name.
    cells : str or sequence of str, optional
        The columns that are cells, where one column says how precise a whole row is.
    suppressed : str, float or sequence of them
        Marks of cells that were not published, such as ``["(D)"]`` or ``[-666666666]``; numbers of 0 or more as values
        alone, not as precisions.
    exact : str, float or sequence of them
        Marks, in the column of the precision, of values that are known exactly: ``["*****"]`` of the Census Bureau.
    total : str or sequence of str
        The labels that count everybody, each in whatever column it is: there no others do; ``"*"``, that none but these
        does in any column, nor is asked about.
    areas : path, data frame or Areas, optional
        What the tables count in where it may cross: a row for each leaf, a column for each partition. Rows of the
        tables name a partition and an area in columns ``level`` and ``code``, or have a column for each partition,
        ``*`` where it is summed out. A level is the column of its name, or whose name it begins, or that has its codes;
        ``columns`` may say so. Leaves that lie in no area of a column have ``-`` there.
    style : {"acs", "sdmx"}, optional
        A table of the American Community Survey as data.census.gov gives it, with a second row of labels or with
        indented ones: lines, places, margins and marks are known, and `names_to` names the variables. Or one of
        SDMX-CSV or Eurostat's TSV, whose values need a law.
    sums : mapping of str to str or sequence of str, optional
        Variables of periods, such as ``2020-Q1``, ``2020K1`` or ``2020-01``, with what the years in the same column,
        which are their sums, are to be called: ``{"quarter": "year"}``; of months also ``["quarter", "year"]``.
    plus_minus : str, optional
        What stands behind ``±`` where values are written ``100 ± 2``: ``"std_error"``, ``"moe_90"``.
    sheet : str or sequence of str, optional
        Of a workbook, the sheets that hold the table, one after the other. By default the one that does.
    skip_rows : int
        How many rows stand above the header of a file; by default those that are plainly titles.
    desired, noise, undetermined
        As in `Problem`; cells that are not estimable are by default NaN, each with a note that says why. Where `noise`
        is a law, such as ``RandomRounding(3)``, no column need say how precise values are, and then cells without a row
        were not published.

    Returns
    -------
    problem : Problem
    y : ndarray, (n,)
        Values over its observed layout, NaN where not measured.

    Raises
    ------
    ValueError
        If something is missing, contradictory or may mean two things; the message names it and says how to say it.
    TypeError
        If `frame` is neither a data frame nor a path, or `schema` no schema.
    ImportError
        Without the extra ``frames``.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {"sex": ["total", "f", "m"], "estimate": [14.0, 6.0, None], "moe": [0.0, 1.6, None]}
    ... )
    >>> problem, y = read_tables(frame, columns={"moe": "moe_90"})
    >>> problem.observed.names, problem.variances.round(2)
    (('total', 'sex'), array([0.  , 0.95,  inf]))
    """
    from constraint_builders.files.columns import SUMMED_OUT
    from constraint_builders.files.labelled_arrays import is_dataset, problem_from_dataset
    from constraint_builders.files.survey_frame import Said, measured_as_said

    require_schema(schema, "tables are read with", or_none=True)
    if is_dataset(frame):
        told = (columns, names_to, cells, suppressed, exact, style, sums, plus_minus, sheet, skip_rows)
        if any(told) or areas is not None or {*total} - {SUMMED_OUT}:
            raise TypeError(
                "a dataset says its tables by its dimensions: columns, names_to, marks and areas are for frames, and "
                "total= but for '*', with which no label is asked about"
            )
        options: dict[str, Any] = {"desired": desired, "noise": noise, "undetermined": undetermined}
        return problem_from_dataset(frame, schema, asks=not total, **options)
    said = Said(columns or {}, names_to, names_sep, cells, suppressed, exact, total, areas, style=style)
    into = {name: [own] if isinstance(own, str) else own for name, own in (sums or {}).items()}
    pairs = tuple((name, recode) for name, own in into.items() for recode in own)
    said = replace(said, sums=pairs, plus_minus=plus_minus, sheet=sheet, skip_rows=skip_rows)
    table = measured_as_said(said.open(frame), schema, said, desired=desired, noise=noise, undetermined=undetermined)
    return table.problem, table.y
