"""Several measurements of the same cells, combined into one that says as much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Name
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.variances import checked_variances
from constraint_builders.problem import Problem

Source = tuple[Mapping[str, Any], Mapping[Any, ArrayLike]]

TOLERANCE = 1e-9  # relative: by which exact values may differ that were rounded on their way


def combine_sources(values: Sequence[ArrayLike], variances: Sequence[ArrayLike]) -> tuple[Float, Float]:
    """Combine independent measurements of the same cells: means weighted by inverse variances, and their variances.

    Every best linear unbiased estimate from the combination is the one from all sources. A value known exactly
    (variance 0) is the combination; one that was not measured (``inf``) says nothing.

    Parameters
    ----------
    values : sequence of array_like
        One array for every source, all of one shape; NaN where not measured.
    variances : sequence of array_like
        Of each a number or an array of that shape.

    Returns
    -------
    values, variances : ndarray
        NaN and ``inf`` where no source measured.

    Raises
    ------
    ValueError
        If shapes differ, a variance is negative or NaN, a measured value is not finite, or exact values differ.

    Examples
    --------
    >>> combine_sources([[10.0, 7.0], [16.0, np.nan]], [[1.0, 2.0], [2.0, np.inf]])
    (array([12.,  7.]), array([0.66666667, 2.        ]))
    """
    if not values or len(values) != len(variances):
        raise ValueError(f"give values and variances of the same sources: got {len(values)} and {len(variances)}")
    y = np.stack([np.asarray(own, dtype=np.float64) for own in values])
    spread = [np.broadcast_to(np.asarray(own, dtype=np.float64), y.shape[1:]) for own in variances]
    v = np.stack([checked_variances(own, f"variance of source {i}") for i, own in enumerate(spread, 1)])
    wrong = np.argwhere(~np.isfinite(y) & np.isfinite(v))
    if wrong.size:
        source, *cell = wrong[0].tolist()
        value = y[source, *cell]
        raise ValueError(f"source {source + 1}, cell {tuple(cell)}: the value is {value}: give a number")
    return _combined(np.where(np.isfinite(v), y, 0.0), v)


def problem_of_sources(
    schema: Schema,
    sources: Sequence[Source],
    desired: Mapping[str, Any] | Sequence[str] | str | None = None,
    *,
    spine: Spine | None = None,
    zeros: Mapping[Any, Any] | None = None,
    undetermined: Literal["error", "nan"] = "error",
) -> tuple[Problem, Float]:
    """One problem of what several independent surveys say, each with its own tables, values and variances.

    Tables that several of them measured are combined, cell by cell, by `combine_sources`: estimates are those of all
    measurements together. For products that have schemas or geographies of their own see `joint`.

    Parameters
    ----------
    schema : Schema
    sources : sequence of (observed, values)
        For each survey its tables with the variances of their noise, as `Problem` takes them, and their values, as
        `Problem.vector` does. A table may be named otherwise in each.
    desired, spine, zeros, undetermined
        As in `Problem`.

    Returns
    -------
    problem : Problem
        Its observed tables are those of all surveys, in order of first appearance.
    y : ndarray, (n,)
        Their combined values, NaN where no survey measured.

    Raises
    ------
    ValueError
        As `Problem` and its `vector` do, by the number of the survey; or if surveys know a cell exactly and differ.

    Examples
    --------
    >>> schema = Schema({"sex": ["female", "male"]})
    >>> register = {"sex": 1.0}, {"sex": [10.0, 7.0]}
    >>> survey = {"sex": 2.0, "total": 4.0}, {"sex": [16.0, 7.0], "total": 20.0}
    >>> problem, y = problem_of_sources(schema, [register, survey])
    >>> problem.observed.tables(y)["sex"], problem.observed.tables(problem.variances)["sex"]
    (array([12.,  7.]), array([0.66666667, 0.66666667]))
    """
    if not sources:
        raise ValueError("there are no sources: give (observed, values) of each")
    found: dict[tuple[int, str], list[tuple[Problem, Name, Float]]] = {}
    for number, source in enumerate(sources, 1):
        own, y = _read_source(schema, spine, source, number)
        for level, table, name in zip(own.observed_levels, own.observed_tables, own.observed.names, strict=True):
            found.setdefault((level, table.name), []).append((own, name, y))
    observed: dict[Any, Any] = {}
    values: dict[Any, Float] = {}
    for parts in found.values():
        first, name, _ = parts[0]
        shape = first.observed.shape(name)
        of_each = [own.observed.turned(cells, name).reshape(shape) for own, _, cells in parts]
        spreads = [own.observed.turned(own.variances, name).reshape(shape) for own, _, _ in parts]
        try:
            values[name], variances = combine_sources(of_each, spreads)
        except ValueError as error:
            raise ValueError(f"table {name!r}: {error}") from None
        if isinstance(name, tuple):
            observed.setdefault(name[0], {})[name[1]] = variances
        else:
            observed[name] = variances
    problem = Problem(schema, observed, desired, spine=spine, zeros=zeros, undetermined=undetermined)
    return problem, problem.vector(values)


def _read_source(schema: Schema, spine: Spine | None, source: Source, number: int) -> tuple[Problem, Float]:
    """A survey's own problem, and its values."""
    try:
        observed, values = source
    except (TypeError, ValueError):
        raise ValueError(f"source {number} must be a pair: its tables with variances, and their values") from None
    try:
        problem = Problem(schema, observed, spine=spine, undetermined="nan")
        return problem, problem.vector(values)
    except ValueError as error:
        raise ValueError(f"source {number}: {error}") from None


def _combined(y: Float, v: Float) -> tuple[Float, Float]:
    """Combine (sources, *shape) values, 0 where not measured, and their variances."""
    known = v == 0
    exact = np.take_along_axis(y, known.argmax(axis=0)[None], axis=0)[0]
    wrong = np.argwhere(known & (abs(y - exact) > TOLERANCE * abs(exact)))
    if wrong.size:
        source, *cell = wrong[0].tolist()
        both = f"{exact[*cell]} and {y[source, *cell]}"
        raise ValueError(f"cell {tuple(cell)}: two sources know it exactly, as {both}: correct one of them")
    least, weights = v.min(axis=0), np.zeros_like(v)
    np.divide(least, v, out=weights, where=np.isfinite(v) & (least > 0))
    measured = weights.any(axis=0)
    total = np.where(measured, weights.sum(axis=0), 1.0)
    mean = np.where(measured, (weights * y).sum(axis=0) / total, np.nan)
    return np.where(known.any(axis=0), exact, mean), least / total
