"""Long tables as they are written: one row a published cell, in files or in data frames, rounded where it is asked.

Results have ``estimate``, ``std_error``, ``lower`` and ``upper``, and after them the value, its variance,
``adjustment`` (estimate less value) and ``adjustment_z`` (in its standard errors). Estimates over leaves by group have
a column for the variable that tells the leaves apart.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.common_leaves import LeavesByGroup
from constraint_builders.description.labelled import NODE, Nodes
from constraint_builders.description.layout import Layout
from constraint_builders.description.reals import real_array
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, PARENT, SUMMED_OUT, TABLE, cell_keys, without_source
from constraint_builders.files.new_files import replacing
from constraint_builders.files.numbers import LARGEST
from constraint_builders.files.source import writer_of
from constraint_builders.files.spine_of_codes import codes_tell, spine_by_parents
from constraint_builders.problem import Problem
from constraint_builders.vectors import refuse_unreadable

ROUNDED = ("estimate", "std_error", "lower", "upper", "margin_90", "nonnegative", "adjustment")
RATIOS = ("adjustment_z", "cv")
OF_EXACT = 15  # significant digits of a number without a standard error: the last bits are rounding
MOST_DIGITS = 17  # of a floating-point number
EPSILON = np.finfo(np.float64).eps


def measurements_frame(problem: Problem, y: ArrayLike) -> pl.DataFrame:
    """Write measurements as a long table; the inverse of `read_long_table`.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise, without zeros and equalities. Readers are to be told its law, if it is not Gaussian.
    y : array_like, (n,)
        Values over its observed layout; NaN, where nothing was measured, becomes an empty value.

    Returns
    -------
    polars.DataFrame

    Raises
    ------
    ValueError
        If the noise is correlated or has a mean, there are zeros or equalities, geounits have no rows beside others
        that have, or `y` has another length or no value of a cell.
    """
    if problem.covariance is not None:
        raise ValueError("a long table holds variances only: this problem's noise is correlated")
    for what, own in {"structural zeros": problem.zeros, "equalities": problem.equalities}.items():
        if own is not None:
            raise ValueError(f"a long table holds measurements only: this problem has {what}, which would be lost")
    if not isinstance(law := problem.noise.law, str) and law.mean:
        raise ValueError(
            f"a long table holds variances only: the mean of the law {law!r} would be lost; write the values alone, "
            "and give the law where they are read, noise="
        )
    if problem.spine is not None:
        _refuse_lost_geounits(problem, problem.spine)
    columns = _vectors(problem.observed, value=y, variance=problem.variances)
    refuse_unreadable(problem, columns[0].to_numpy())
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
        With a column ``node`` instead of keys where a matrix says what is summed, or what is equal: the names that its
        index gives, or numbers. And a column ``note`` where some cells are NaN because they are not estimable.

    Raises
    ------
    ValueError
        If a vector has another length.
    """
    columns = _vectors(problem.desired, estimate=estimate, std_error=std_error, lower=lower, upper=upper)
    if problem.undetermined is not None:
        columns.append(_notes(problem, problem.undetermined))
    if isinstance(problem.desired.naming, Nodes):
        (nodes,) = problem.desired.naming.dimensions(NODE)
        return pl.DataFrame([pl.Series(NODE, nodes.labels, dtype=pl.String), *columns])
    return _key_columns(problem, problem.desired, problem.desired_tables).with_columns(columns)


def _notes(problem: Problem, undetermined: NDArray[np.bool_]) -> pl.Series:
    """Why cells, flagged in (m,), are NaN; empty where they are not."""
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

    Its name says the format, one of the `source.FORMATS` that are written, such as CSV and Parquet.

    In CSV, text that a spreadsheet would run as a formula (``=``, ``+``, ``-`` or ``@`` first, and no number) gets an
    apostrophe before it, which reading takes away.

    Parameters
    ----------
    frame : polars.DataFrame
    path : path

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
        codes_of_parents = None if problem.spine is None else _codes_of_parents(problem, problem.spine)
        if codes_of_parents is not None:
            columns.append(_said(PARENT, codes_of_parents, geounits))
    return pl.DataFrame(columns)


def _level_and_table(name: Any) -> tuple[str, str]:
    return name if isinstance(name, tuple) else ("", name)


def _said(name: str, labels: Sequence[Any], numbers: NDArray[np.integer]) -> pl.Series:
    """A column of labels, by the number of each row's, (rows,)."""
    return pl.Series(name, list(map(str, labels)), dtype=pl.String).gather(numbers)


def _refuse_lost_geounits(problem: Problem, spine: Spine) -> None:
    """Refuse geounits without rows beside others that have some: these would be read as all of what lies above."""
    has_rows = np.append(np.isin(spine.level_of, problem.observed_levels), True)  # last, parent -1, what is above
    if has_rows.all():
        return
    leaves, own = (spine.child_counts == 0).astype(np.intp), has_rows[:-1]
    for members in spine.members[:0:-1]:
        np.add.at(leaves, spine.parent[members], leaves[members])
    above = spine.parent
    while not has_rows[above].all():
        above = np.where(has_rows[above], above, spine.parent[above])
    held = np.bincount(above[own] % has_rows.size, leaves[own], has_rows.size)[:-1]
    lacking = np.flatnonzero(own & (held > 0) & (held < leaves))
    if lacking.size:
        what = f"{spine.levels[spine.level_of[lacking[0]]]} {spine.geocodes[lacking[0]]!r}"
        raise ValueError(
            f"a long table holds geounits that have tables only: {what} holds others too, and would be read as the sum "
            "of those alone; give every geounit's geolevel a table, of variance inf where nothing was measured"
        )


def _codes_of_parents(problem: Problem, spine: Spine) -> list[str] | None:
    """The code of every geounit's parent; None where the geounits' own codes tell which lies in which.

    Where nothing was measured of several geounits together a reader might ask whether one of them is all the others;
    and parents can be said that have rows of their own.
    """
    measured, has_rows = np.zeros((2, spine.size), dtype=bool)
    for i, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True)):
        known = ~problem.unmeasured[problem.observed.block(i)].reshape(-1, table.size).all(axis=1)
        measured[spine.members[level]] |= known
        has_rows[spine.members[level]] = True
    is_asked = (~measured & (spine.child_counts > 1)).any() and has_rows[spine.child_counts > 0].all()
    units = [(spine.levels[level], code) for level, code in zip(spine.level_of.tolist(), spine.geocodes, strict=True)]
    codes = [*spine.geocodes, ""]
    parents = [codes[above] for above in spine.parent.tolist()]
    if not is_asked and len(set(spine.geocodes)) == spine.size and codes_tell(units, spine):
        return None
    found = spine_by_parents(units, dict(zip(units, parents, strict=True)))
    if not np.array_equal(found.parent, spine.parent):
        raise ValueError("geounits of several levels have one code, which does not tell parents: give each its own")
    return parents


def _vectors(layout: Layout, **vectors: ArrayLike) -> list[pl.Series]:
    return [pl.Series(name, layout.one_vector(vector, name)) for name, vector in vectors.items()]


def with_groups(frame: pl.DataFrame, problem: Problem, apart: LeavesByGroup) -> pl.DataFrame:
    """A frame of estimates, a row for each desired cell, in terms of the schema and the layers that were joined.

    Parameters
    ----------
    frame : polars.DataFrame
        Of a joint problem with products that count some people alone, as `estimates_frame` makes it.
    problem : Problem
    apart : LeavesByGroup
    """
    schema, parts = apart.whole, []
    frame = frame.with_columns(pl.lit(SUMMED_OUT).alias(name) for name in apart.told_apart)
    for index, level in enumerate(problem.desired_levels):
        own, first = apart.part(problem.domain.places.levels[level])
        part = frame[problem.desired.block(index)].with_columns(pl.lit(own).alias(GEOLEVEL))
        if first:
            known, cells = schema.labels_of(first), problem.desired_tables[index].size
            labels = _said(schema.names[schema.axis_of(first)], known, np.arange(part.height) // cells % len(known))
            others = pl.when(pl.col(TABLE) == "total").then(pl.lit("")).otherwise(pl.lit(" * ") + pl.col(TABLE))
            part = part.with_columns(
                labels, pl.col(GEOCODE).str.strip_suffix(pl.lit(", ") + labels), (first + others).alias(TABLE)
            )
        parts.append(part)
    keys = (TABLE, *schema.names, GEOLEVEL, GEOCODE)
    rest = [name for name in frame.columns if name not in (*keys, *apart.schema.names)]
    return pl.concat(parts).select(*keys, *rest)


def rounded(frame: pl.DataFrame, digits: int) -> pl.DataFrame:
    """Round a frame of estimates, row by row, so that the standard error has a number of significant digits.

    Estimates, bounds and adjustments of a row are rounded to the same decimal place; what was measured stays as it is.

    Parameters
    ----------
    frame : polars.DataFrame
        With a column ``std_error``.
    digits : int
        Significant digits of the standard error, at least 1.

    Returns
    -------
    polars.DataFrame

    Examples
    --------
    >>> frame = pl.DataFrame({"estimate": [1545.2034, 77.0], "std_error": [0.98765, 0.0]})
    >>> rounded(frame, 2).rows()
    [(1545.2, 0.99), (77.0, 0.0)]
    """
    places = digits - 1 - _exponents(frame["std_error"].to_numpy())
    columns = []
    for name in frame.columns:
        what, _ = without_source(name)
        if what in ROUNDED:
            values = frame[name].to_numpy()
            own = np.where(np.isnan(places), OF_EXACT - 1 - _exponents(values), places)
            columns.append(_at(frame[name], values, own))
        elif what in RATIOS:
            columns.append(_at(frame[name], frame[name].to_numpy(), np.full(frame.height, digits - 1.0)))
    return frame.with_columns(columns)


def digits_of(estimate: Float, std_error: Float) -> int:
    """The significant digits of standard errors to which results are rounded; `MOST_DIGITS` where they are not.

    Parameters
    ----------
    estimate, std_error : ndarray, (rows,)

    Examples
    --------
    >>> digits_of(np.array([1545.2, 0.0]), np.array([0.99, 1.0])), digits_of(np.array([1545.2034]), np.array([0.99]))
    (2, 4)
    """
    for digits in range(1, MOST_DIGITS):
        unit = 2 * half_units(std_error, digits)
        unit[std_error == 10.0 ** _exponents(std_error)] /= 10  # they may have been rounded up to one digit more
        if all(_whole(own, unit).all() for own in (estimate, std_error)):
            return digits
    return MOST_DIGITS


def half_units(std_error: Float, digits: int) -> Float:
    """Half a unit of the last decimal place that `rounded` leaves in a row, (rows,); 0 without a standard error."""
    with np.errstate(over="ignore", under="ignore"):
        return np.nan_to_num(0.5 * 10.0 ** (_exponents(std_error) - digits + 1))


def _whole(values: Float, unit: Float) -> Flags:
    """Whether values are multiples of units, (rows,) each, to their own rounding; true where there is no unit."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        times = np.divide(values, unit, out=np.zeros_like(values), where=unit > 0)
        return ~np.isfinite(times) | (abs(times - np.round(times)) <= 4 * EPSILON * abs(times))


def _exponents(values: Float) -> Float:
    """The power of ten of the first significant digit, (rows,), NaN where there is none."""
    return np.floor(np.log10(np.where(np.isfinite(values) & (values != 0), abs(values), np.nan)))


def _at(column: pl.Series, values: Float, places: Float) -> pl.Series:
    """A column rounded to decimal places, (rows,), negative ones too; as it is if that would leave floating point."""
    with np.errstate(over="ignore", invalid="ignore"):
        up, down = 10.0 ** np.clip(places, 0, None), 10.0 ** np.clip(-places, 0, None)
        scaled = values * up / down
        nearest = np.where(abs(scaled) < LARGEST, np.round(scaled) / up * down, values)
    whole = pl.Series(column.name, np.where(np.isfinite(nearest), nearest, values) + 0.0)
    return whole.zip_with(column.is_not_null(), pl.Series([None], dtype=pl.Float64).new_from_index(0, len(whole)))
