"""From long tables to a page: of noisy tables, which are estimated, or of estimates, which are judged by them."""

from __future__ import annotations

from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from blue_solvers.estimates import Estimate
from blue_solvers.operator import estimate
from blue_solvers.reporting.judged import judged_page, listed_section
from blue_solvers.reporting.page_parts import BY_ERROR, MOST_ROWS, STD_ERROR, Page
from blue_solvers.reporting.precision import GEOLEVEL, MEASURED, TABLE, precision_rows
from blue_solvers.reporting.result_file import ERROR, ESTIMATE, ResultFile
from blue_solvers.reporting.unjudged import unjudged_page
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.files import estimates_frame, read_schema_file
from constraint_builders.files.measured_table import read_measured_table

ADVICE = "Give the tables that it was made from as --measured, and it is judged by them."

Path = str | PathLike[str]


class Read(NamedTuple):
    """A problem and what was measured."""

    problem: Problem
    y: Float


def page_of_measurements(path: Path, name: str, schema: Path | None, level: float) -> Page:
    """Estimate noisy tables and show the result.

    Parameters
    ----------
    path : path
        Of a long table.
    name : str
        What the page calls it.
    schema : path or None
    level : float
        Of the intervals.

    Raises
    ------
    ValueError, OSError
        As `read_long_table`.
    """
    read = _read(path, schema, None)
    est = estimate(read.problem, read.y)
    frame = _frame(est, level)
    shown = {ERROR: STD_ERROR}
    keep = [own for own in frame.columns if own not in (MEASURED, "note")]
    listed = frame.select(keep).head(MOST_ROWS).rename(shown)
    formats = dict.fromkeys((ESTIMATE, STD_ERROR, "lower", "upper"), BY_ERROR)
    return judged_page(
        est, name, _precision(frame), listed_section(listed, frame.height, formats, level), difference=None
    )


def page_of_estimates(result: ResultFile, name: str, measured: Path | None, schema: Path | None, level: float) -> Page:
    """Judge estimates by what was measured, where that is known, and show them.

    Parameters
    ----------
    result : ResultFile
    name : str
        What the page calls it.
    measured : path or None
        A long table; by default what the result itself holds.
    schema : path or None
    level : float
        Of the intervals that the result holds, for the text.

    Raises
    ------
    ValueError, OSError
        As `read_long_table`, and if the result has cells that the measurements do not.
    """
    frame, formats = result.listed(MOST_ROWS)
    listed = listed_section(frame, len(result.keys), formats, level)
    source = result.measurements() if measured is None else measured
    if source is None:
        keys = [own for own in (GEOLEVEL, TABLE) if own in result.keys.columns]
        return unjudged_page(name, precision_rows(result.cells(), keys), listed, ADVICE)
    read = _read(source, schema, result.tables)
    est = estimate(read.problem, read.y)
    own = _frame(est, level)
    return judged_page(est, name, _precision(own), listed, result.difference(own))


def _read(source: Any, description: Path | None, desired: Any) -> Read:
    if description is None:
        table = read_measured_table(source, desired=desired, undetermined="nan")
    else:
        file = read_schema_file(description)
        wanted = file.desired if desired is None else desired
        table = read_measured_table(source, file.schema, desired=wanted, noise=file.noise, undetermined="nan")
    return Read(table.problem, table.y)


def _frame(est: Estimate, level: float) -> pl.DataFrame:
    """A row for every desired cell, with the standard error of what was measured of it."""
    frame = estimates_frame(est.problem, est.values, est.std_errors, *est.interval(level))
    variances = est.adjustments.variance
    errors = np.sqrt(np.where(np.isfinite(variances), variances, np.nan))
    return frame.with_columns(pl.Series(MEASURED, errors, nan_to_null=True))


def _precision(frame: pl.DataFrame) -> pl.DataFrame:
    keys = [own for own in (GEOLEVEL, TABLE) if own in frame.columns]
    return precision_rows(frame.lazy().rename({ERROR: STD_ERROR}), keys)
