"""Several measurements of the same cells, combined into one that says as much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Name
from constraint_builders.description.noise import LawOrName
from constraint_builders.description.reals import checked_variances, real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.source_values import SourceValues
from constraint_builders.description.spine import Spine
from constraint_builders.problem import Problem


class SourceTable(NamedTuple):
    """A table by one source: its values, NaN where not measured, and variances, of one shape."""

    source: str
    values: Float
    variances: Float


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
    values, variances : ndarray, of that shape
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
    if len(values) == 0 or len(values) != len(variances):
        raise ValueError(f"give values and variances of the same sources: got {len(values)} and {len(variances)}")
    measured = [real_array(own, f"values of source {i}") for i, own in enumerate(values, 1)]
    spread = [checked_variances(own, f"variance of source {i}") for i, own in enumerate(variances, 1)]
    for i, (own, variance) in enumerate(zip(measured, spread, strict=True), 1):
        if own.shape != measured[0].shape or variance.shape not in ((), own.shape):
            raise ValueError(
                f"source {i} has values of shape {own.shape} and variances of shape {variance.shape}: give values of "
                f"the same shape for all, here {measured[0].shape}, and as variances a number or an array of it"
            )
    y = np.stack(measured)
    v = np.stack([np.broadcast_to(own, y.shape[1:]) for own in spread])
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
        Their combined values, NaN where no survey measured. What each measured is in ``problem.sources``, by number:
        the fit of an estimate from y tests every measurement against all others.

    Raises
    ------
    ValueError
        As `Problem` and its `vector` do, by the number of the survey; or if surveys know a cell exactly and differ, or
        have noise of several laws.

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
    canonical: dict[tuple[int, str], Name] = {}
    given: dict[Name, list[SourceTable]] = {}
    laws: dict[LawOrName, int] = {}
    for number, source in enumerate(sources, 1):
        own, y = _read_source(schema, spine, source, number)
        if not (own.exact | own.unmeasured).all():
            laws.setdefault(own.noise.law, number)
        for level, table, spelt in zip(own.observed_levels, own.observed_tables, own.observed.names, strict=True):
            name = canonical.setdefault((level, table.name), spelt)
            parts = given.setdefault(name, [])
            shape = parts[0].values.shape if parts else own.observed.shape(name)
            cells = (own.observed.turned(vector, name).reshape(shape) for vector in (y, own.variances))
            parts.append(SourceTable(str(number), *cells))
    observed: dict[Any, Any] = {}
    values: dict[Any, Float] = {}
    for name, parts in given.items():
        values[name], variances = together(name, parts)
        if isinstance(name, tuple):
            observed.setdefault(name[0], {})[name[1]] = variances
        else:
            observed[name] = variances
    if len(laws) > 1:
        said = " and ".join(f"source {number} of {law}" for law, number in laws.items())
        raise ValueError(f"sources have noise of several laws, {said}: the noise of a problem has one")
    law = next(iter(laws), "gaussian")
    problem = Problem(schema, observed, desired, spine=spine, zeros=zeros, noise=law, undetermined=undetermined)
    problem = told_apart(problem, given, [str(number) for number in range(1, len(sources) + 1)])
    return problem, problem.vector(values)


def together(name: Name, parts: Sequence[SourceTable]) -> tuple[Float, Float]:
    """Values and variances of a table that sources measured, by `combine_sources`, whose errors then name the table."""
    try:
        return combine_sources([own.values for own in parts], [own.variances for own in parts])
    except ValueError as error:
        raise ValueError(f"table {name!r}: {error}") from None


def told_apart(problem: Problem, given: Mapping[Name, Sequence[SourceTable]], names: Sequence[str]) -> Problem:
    """A problem of combined sources, with what each of them measured.

    Parameters
    ----------
    problem : Problem
    given : mapping of name to sequence of SourceTable
        For every observed table what sources say, in the order of its cells.
    names : sequence of str
        Of the sources; there are no others than one that is called ``""``.
    """
    found = []
    for name, parts in given.items():
        start = problem.observed.slice(name).start
        for own in parts:
            cells = np.flatnonzero(np.isfinite(own.variances))
            number = np.full(cells.size, names.index(own.source))
            found.append((number, start + cells, own.values.ravel()[cells], own.variances.ravel()[cells]))
    sources = SourceValues(tuple(names), *(np.concatenate(own) for own in zip(*found, strict=True)))
    understood = replace(problem.understood, sources=tuple(filter(None, names)))
    return problem.replace(understood=understood, sources=sources if sources.repeated.any() else None)


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
