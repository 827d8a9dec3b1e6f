"""From long tables to a page: of noisy tables, which are estimated, or of estimates, which are judged by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike

import numpy as np
import polars as pl

from blue_solvers.estimates import Estimate
from blue_solvers.operator import estimate
from blue_solvers.reporting.for_readers import NO_NAMES, VALUE, listed_sections, sizes_of, told_apart
from blue_solvers.reporting.judged import judged_page
from blue_solvers.reporting.page_parts import BY_ERROR, MOST_ROWS, STD_ERROR, Page
from blue_solvers.reporting.precision import GEOLEVEL, MEASURED, TABLE, precision_rows
from blue_solvers.reporting.result_file import ERROR, ESTIMATE, VARIANCE, ResultFile
from blue_solvers.reporting.unjudged import unjudged_page
from constraint_builders.description.common_leaves import LeavesByGroup
from constraint_builders.files import estimates_frame
from constraint_builders.files.columns import without_source
from constraint_builders.files.long_table import with_groups
from constraint_builders.files.schema_file import SchemaFile
from constraint_builders.files.survey_frame import Said, tables_as_said

ADVICE = "Give the tables that it was made from as --measured, and it is judged by them."

Path = str | PathLike[str]


def page_of_measurements(
    est: Estimate, name: str, level: float, apart: LeavesByGroup | None = None, names: Mapping[str, str] = NO_NAMES
) -> Page:
    """Show an estimate of noisy tables.

    Parameters
    ----------
    est : Estimate
    name : str
        What the page calls it.
    level : float
        Of the intervals.
    apart : LeavesByGroup, optional
        Of several inputs of which some count some people alone.
    names : mapping of str to str
        Of places, by GEOID.
    """
    frame = _frame(est, level)
    precision = _precision(frame)
    frame = est.with_measurements(frame)
    frame = frame if apart is None else with_groups(frame, est.problem, apart)
    keep = [own for own in frame.columns if own not in (MEASURED, "note", VARIANCE, "adjustment", "adjustment_z")]
    whole = frame.select(own for own in keep if not without_source(own)[1])
    variables = told_apart(est.problem.domain.schema.names)
    whole = whole.rename({**variables, ERROR: STD_ERROR, "value": VALUE}, strict=False)
    formats = dict.fromkeys((ESTIMATE, STD_ERROR, "lower", "upper"), BY_ERROR)
    sections = listed_sections(whole.head(MOST_ROWS), sizes_of(frame), formats, level, names)
    return replace(judged_page(est, name, precision, sections, difference=None), places=partial(_of_level, whole))


def page_of_estimates(
    result: ResultFile,
    name: str,
    measured: Path | None,
    schema: SchemaFile | None,
    level: float,
    said: Said | None,
    names: Mapping[str, str] = NO_NAMES,
) -> Page:
    """Judge estimates by what was measured, where that is known, and show them.

    Parameters
    ----------
    result : ResultFile
    name : str
        What the page calls it.
    measured : path or None
        A table; by default what the result itself holds.
    schema : SchemaFile or None
    level : float
        Of the intervals that the result holds, for the text.
    said : Said or None
        What the table `measured` does not say itself.
    names : mapping of str to str
        Of places, by GEOID.

    Raises
    ------
    ValueError, OSError
        As `read_long_table`, and if the result has cells that the measurements do not.
    """
    whole, formats = result.listed(len(result.keys))
    listed = listed_sections(whole.head(MOST_ROWS), sizes_of(result.keys), formats, level, names)
    held = result.measurements() if measured is None else None
    source: pl.DataFrame | Path | None = measured
    if held is not None:  # a file that was written here says what counts everybody
        given = said or Said()
        said = Said(total=["*"], areas=given.areas, law=given.law)
        source = held if said.law is None else held.drop(VARIANCE)
    if source is None:
        keys = [own for own in (GEOLEVEL, TABLE) if own in result.keys.columns]
        page = unjudged_page(name, precision_rows(result.cells(), keys), listed, ADVICE)
        return replace(page, places=partial(_of_level, whole))
    read = tables_as_said(source, schema, said, desired=result.tables)
    est = estimate(read.problem, read.y)
    best = _frame(est, level)
    page = judged_page(est, name, _precision(best), listed, result.difference(best))
    return replace(page, places=partial(_of_level, whole))


def _of_level(frame: pl.DataFrame, geolevel: str) -> pl.DataFrame:
    return frame.filter(pl.col(GEOLEVEL) == geolevel)


def _frame(est: Estimate, level: float) -> pl.DataFrame:
    """A row for every desired cell, with the standard error of what was measured of it."""
    frame = estimates_frame(est.problem, est.values, est.std_errors, *est.interval(level))
    variances = est.adjustments.variance
    errors = np.sqrt(np.where(np.isfinite(variances), variances, np.nan))
    return frame.with_columns(pl.Series(MEASURED, errors, nan_to_null=True))


def _precision(frame: pl.DataFrame) -> pl.DataFrame:
    keys = [own for own in (GEOLEVEL, TABLE) if own in frame.columns]
    return precision_rows(frame.lazy().rename({ERROR: STD_ERROR}), keys)
