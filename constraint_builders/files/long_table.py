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

Results have ``estimate``, ``std_error``, ``lower`` and ``upper``, and after them the value, its variance,
``adjustment`` (estimate less value) and ``adjustment_z`` (in its standard errors).

Estimates over leaves by group have a column for the variable that tells the leaves apart.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.common_leaves import LeavesByGroup
from constraint_builders.description.layout import Layout
from constraint_builders.description.reals import real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.cell_keys import SUMMED_OUT, cell_keys
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, PARENT, TABLE, find_columns
from constraint_builders.files.formats import writer_of
from constraint_builders.files.geography_columns import codes_tell, spine_by_parents
from constraint_builders.files.labels import with_totals
from constraint_builders.files.measured_table import measured
from constraint_builders.files.naming import naming
from constraint_builders.files.replacing import replacing
from constraint_builders.files.rows import infer
from constraint_builders.files.source import open_source
from constraint_builders.problem import Problem


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
        A file of one of the `formats.FORMATS` (CSV, Parquet, Excel and what was added), a pandas frame, or a frame with
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


def measurements_frame(problem: Problem, y: ArrayLike) -> pl.DataFrame:
    """Write measurements as a long table; the inverse of `read_long_table`.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.
    y : array_like, (n,)
        Values over its observed layout; NaN becomes an empty value.

    Returns
    -------
    polars.DataFrame

    Raises
    ------
    ValueError
        If the noise is correlated, or `y` has another length.
    """
    if problem.covariance is not None:
        raise ValueError("a long table holds variances only: this problem's noise is correlated")
    columns = _vectors(problem.observed, value=y, variance=problem.variances)
    columns[0] = columns[0].fill_nan(None)
    return _key_columns(problem, problem.observed, problem.observed_tables).with_columns(columns)


def estimates_frame(
    problem: Problem, estimate: ArrayLike, std_error: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> pl.DataFrame:
    """Write results as a long table, with the same keys as the measurements.

    Parameters
    ----------
    problem : Problem
    estimate, std_error, lower, upper : array_like, (m,)
        Over its desired layout.

    Returns
    -------
    polars.DataFrame
        With a column ``note`` where some cells are NaN because nothing determines them.

    Raises
    ------
    ValueError
        If a vector has another length.
    """
    columns = _vectors(problem.desired, estimate=estimate, std_error=std_error, lower=lower, upper=upper)
    if problem.undetermined is not None:
        columns.append(_notes(problem, problem.undetermined))
    return _key_columns(problem, problem.desired, problem.desired_tables).with_columns(columns)


def _notes(problem: Problem, undetermined: NDArray[np.bool_]) -> pl.Series:
    """Why cells are NaN; empty where they are not."""
    notes = [problem.why_undetermined(i) if lost else None for i, lost in enumerate(undetermined.tolist())]
    return pl.Series("note", notes, dtype=pl.String)


def with_nonnegative(frame: pl.DataFrame, fitted: ArrayLike) -> pl.DataFrame:
    """Add a column of non-negative counts, (m,) over the desired layout, to a frame of estimates."""
    return frame.with_columns(pl.Series("nonnegative", real_array(fitted, "nonnegative")))


def with_measurements(
    frame: pl.DataFrame, value: ArrayLike, variance: ArrayLike, adjustment: ArrayLike, adjustment_z: ArrayLike
) -> pl.DataFrame:
    """Add what was measured of every cell, (m,) each over the desired layout, to a frame of estimates; NaN is empty."""
    columns = {"value": value, "variance": variance, "adjustment": adjustment, "adjustment_z": adjustment_z}
    vectors = {name: real_array(vector, name) for name, vector in columns.items()}
    return frame.with_columns(pl.Series(name, vector, nan_to_null=True) for name, vector in vectors.items())


def write_frame(frame: pl.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a frame to a file, whole or not at all: a failure leaves what was there before.

    Its name says the format, one of the `formats.FORMATS` that are written, such as CSV and Parquet.

    In CSV, text that a spreadsheet would run as a formula (``=``, ``+``, ``-`` or ``@`` first, and no number) gets an
    apostrophe before it, which reading takes away.

    Raises
    ------
    ValueError
        If no format that is written has the file's suffix.
    OSError
        If the file cannot be written.
    """
    write = writer_of(path)
    with replacing(path) as temporary:
        write(frame, temporary)


def _key_columns(problem: Problem, layout: Layout, tables: Sequence[Table]) -> pl.DataFrame:
    """The columns that name every cell of a layout."""
    schema, places = problem.domain.schema, problem.places
    keys, names = cell_keys(schema, tables), [_level_and_table(name) for name in layout.names]
    table_of_cell = np.repeat(np.arange(len(tables)), layout.sizes)
    position_in_block = np.arange(layout.size) - layout.offsets[:-1][table_of_cell]
    sizes = np.array([table.size for table in tables])[table_of_cell]
    columns = [_said(TABLE, [table for _, table in names], table_of_cell)]
    for axis, name in enumerate(schema.names):
        labels = [label for factor in keys.labels[axis] for label in factor]
        columns.append(_said(name, labels, keys.numbers(axis, table_of_cell, position_in_block % sizes)))
    if places is not None:
        level_of_cell = np.array([places.level_index(level) for level, _ in names])[table_of_cell]
        first = np.cumsum([0, *(members.size for members in places.members)])
        geounits = np.concatenate(places.members)[first[level_of_cell] + position_in_block // sizes]
        columns += [_said(GEOLEVEL, places.levels, level_of_cell), _said(GEOCODE, places.geocodes, geounits)]
        codes_of_parents = None if problem.spine is None else _codes_of_parents(problem.spine)
        if codes_of_parents is not None:
            columns.append(_said(PARENT, codes_of_parents, geounits))
    return pl.DataFrame(columns)


def _level_and_table(name: Any) -> tuple[str, str]:
    return name if isinstance(name, tuple) else ("", name)


def _said(name: str, labels: Sequence[Any], numbers: NDArray[np.integer]) -> pl.Series:
    return pl.Series(name, list(map(str, labels)), dtype=pl.String).gather(numbers)


def _codes_of_parents(spine: Spine) -> list[str] | None:
    """The code of every geounit's parent; None where the geounits' own codes tell which lies in which."""
    units = [(spine.levels[level], code) for level, code in zip(spine.level_of.tolist(), spine.geocodes, strict=True)]
    codes = [*spine.geocodes, ""]
    parents = [codes[above] for above in spine.parent.tolist()]
    if len(set(spine.geocodes)) == spine.size and codes_tell(units, spine):
        return None
    found = spine_by_parents(units, dict(zip(units, parents, strict=True)))
    if not np.array_equal(found.parent, spine.parent):
        raise ValueError("geounits of several levels have one code, which does not tell parents: give each its own")
    return parents


def _vectors(layout: Layout, **vectors: ArrayLike) -> list[pl.Series]:
    columns = []
    for name, vector in vectors.items():
        array = layout.flat(vector, name)
        if array.shape != (layout.size,):
            raise ValueError(f"{name} must have shape ({layout.size},): got {array.shape}")
        columns.append(pl.Series(name, array))
    return columns


def with_groups(frame: pl.DataFrame, problem: Problem, apart: LeavesByGroup) -> pl.DataFrame:
    """A frame of estimates, a row for each desired cell, in terms of the schema and the layers that were joined.

    Parameters
    ----------
    frame : polars.DataFrame
        Of a joint problem with products that count some people alone, as `estimates_frame` makes it.
    problem : Problem
    apart : LeavesByGroup
    """
    schema, told = apart.whole, apart.told_apart
    tables, geolevels, geocodes = (frame[name].to_list() for name in (TABLE, GEOLEVEL, GEOCODE))
    labels = {name: [SUMMED_OUT] * frame.height for name in told}
    for index, level in enumerate(problem.desired_levels):
        own, first = apart.part(problem.domain.places.levels[level])
        rows = np.arange(frame.height)[problem.desired.block(index)].tolist()
        known = schema.labels_of(first) if first else ("",)
        cells = problem.desired_tables[index].size
        for number, row in enumerate(rows):
            geolevels[row] = own
            if first:
                label = known[number // cells % len(known)]
                labels[schema.names[schema.axis_of(first)]][row] = label
                geocodes[row] = geocodes[row].removesuffix(f", {label}")
                tables[row] = first if tables[row] == "total" else f"{first} * {tables[row]}"
    rest = [
        name for name in frame.columns if name not in (TABLE, GEOLEVEL, GEOCODE, *schema.names, *apart.schema.names)
    ]
    keys = {name: labels.get(name, frame[name] if name in frame.columns else None) for name in schema.names}
    places = {GEOLEVEL: geolevels, GEOCODE: geocodes}
    return pl.DataFrame({TABLE: tables, **keys, **places}).with_columns(frame.select(rest))
