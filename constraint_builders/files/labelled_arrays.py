"""Datasets of xarray: tables as arrays over named dimensions, in and out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.noise import LawOrName, NoiseLaw
from constraint_builders.description.reals import real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.source_values import Understood
from constraint_builders.description.table import parse_table
from constraint_builders.extras import needing
from constraint_builders.files.columns import CV_PERCENT, HOW_PRECISE, plain_name, spreads_by_stem, stem_of, with_unit
from constraint_builders.files.doubts import doubts
from constraint_builders.files.hidden_totals import hidden_totals
from constraint_builders.files.labels import (
    ask_about,
    in_order,
    is_total,
    may_be_total,
    refuse_alike,
    refuse_overlapping,
)
from constraint_builders.files.measured_table import variances_of
from constraint_builders.files.rows import MeasuredCells
from constraint_builders.problem import Problem

if TYPE_CHECKING:
    import xarray

ESTIMATE, STD_ERROR = "estimate", "std_error"


def is_dataset(source: Any) -> bool:
    """Whether something is a dataset of xarray."""
    kind = type(source)
    return kind.__name__ == "Dataset" and kind.__module__.partition(".")[0] == "xarray"


def problem_from_dataset(
    source: xarray.Dataset,
    schema: Schema | None,
    *,
    asks: bool,
    desired: Any,
    noise: LawOrName,
    undetermined: Literal["error", "nan"],
) -> tuple[Problem, Float]:
    """The problem of a dataset's tables, each named by its dimensions, and their values.

    Of labels without a schema it `asks` whether some count others once more.

    Raises
    ------
    ValueError
        If an array says nothing of its precision, is of a geography, as `dataset` names them, or two are of one table.
    """
    spreads = {stem: own for stem, (_, own) in spreads_by_stem(map(str, source.data_vars), "arrays").items()}
    written = {str(name): [str(label) for label in source[name].values] for name in source.sizes}
    inferred, schema = not schema, schema or Schema({name: in_order(labels) for name, labels in written.items()})
    values: dict[str, Any] = {}
    observed: dict[str, Any] = {}
    for name in source.data_vars:
        if name in {own.column for own in spreads.values()}:
            continue
        table = " * ".join(map(str, source[name].dims)) or "total"
        if table in values:
            raise ValueError(f"array {name!r}: there is another over {source[name].dims}, so one table is given twice")
        if inferred and _is_of_geounits(str(name), list(map(str, source[name].dims))):
            raise ValueError(
                f"array {name!r} is of a geography, and a dataset does not say what lies in what: give the cells as a "
                f"long table, with columns geolevel and geocode; or a schema that has {source[name].dims[0]!r}"
            )
        stem = plain_name(with_unit(stem_of(str(name))))
        if stem not in spreads:
            raise ValueError(f"array {name!r} says nothing of its precision: give {stem!r} with {HOW_PRECISE} after it")
        spread = spreads[stem]
        own = real_array(source[name].values, f"array {name!r}")
        said = real_array(source[spread.column].transpose(*source[name].dims).values, f"array {spread.column!r}")
        if (said < 0).any():
            raise ValueError(f"array {spread.column!r} has a negative entry: give numbers of 0 or more")
        measured = np.where(np.isnan(own), np.inf, said)
        variances = variances_of(measured, own, spread, partial(_refuse, str(name)))
        observed[table] = source[name].copy(data=np.where(np.isnan(own), np.inf, variances))
        values[table] = source[name]
    tables = sorted(observed, key=lambda name: parse_table(schema, name).sort_key)
    observed = {table: observed[table] for table in tables}
    problem = Problem(schema, observed, desired, noise=noise, undetermined=undetermined)
    y = problem.vector(values)
    in_percent = any(own.kind == CV_PERCENT for own in spreads.values())
    notes = [*doubts(problem.observed, y, problem.variances, isinstance(noise, NoiseLaw), in_percent)]
    notes += _ask_about_totals(problem, y, written) if inferred and asks else ()
    return problem.replace(understood=Understood((), (), "", tuple(notes))), y


def _is_of_geounits(name: str, dimensions: Sequence[str]) -> bool:
    """Whether an array is called as `dataset` calls those of a geolevel, its first dimension."""
    found = re.fullmatch(rf"{re.escape(dimensions[0])}: (.*) {ESTIMATE}", name) if dimensions else None
    return found is not None and re.split(r"\s*\*\s*", found[1]) in (["total"], ["detailed"], dimensions[1:])


def _refuse(array: str, what: str, wrong: Flags, why: str) -> None:
    """Raise `ValueError` if something is wrong anywhere in an array, of flags (...)."""
    if wrong.any():
        raise ValueError(f"array {array!r}: {what} {why}")


def _ask_about_totals(problem: Problem, y: Float, written: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Refuse labels of y, (n,), that count some twice, in the order of the arrays; or may: what is doubtful.

    One of everybody is refused too: a total has no such dimension.
    """
    schema = problem.domain.schema
    for variable in schema.variables:
        total = next((label for label in variable.levels if is_total(label) or may_be_total(label)), None)
        if total is not None:
            raise ValueError(
                f"dimension {variable.name!r} has the label {total!r}: give what counts everybody as an array without "
                "the dimension, or give a schema where it is a level"
            )
        refuse_alike(variable.levels, f"dimension {variable.name!r}")
        ask_about(variable.name, variable.levels)
    refuse_overlapping(schema)
    parts = zip(problem.observed.names, problem.observed_tables, strict=True)
    values, variances = (problem.observed.tables(vector) for vector in (y, problem.variances))
    cells = [MeasuredCells("", own, values[name][None], variances[name][None]) for name, own in parts]
    return hidden_totals(schema, cells, written)


def dataset(problem: Problem, values: ArrayLike, std_errors: ArrayLike) -> xarray.Dataset:
    """Results over a problem's desired layout, (m,) each, as a dataset.

    Raises
    ------
    ValueError
        If the problem has no tables.
    ImportError
        Without the extra ``arrays``.
    """
    with needing("labelled arrays need xarray", "arrays"):
        import xarray
    if not problem.is_tabular:
        raise ValueError("a problem made from a matrix has no tables: there is no dataset of it")
    schema, places = problem.domain.schema, problem.places
    found = {}
    estimates, errors = (
        problem.desired.tables(problem.desired.flat(own, what))
        for what, own in (("values", values), ("std_errors", std_errors))
    )
    for name, table in zip(problem.desired.names, problem.desired_tables, strict=True):
        coordinates: dict[str, list[str]] = {factor: list(schema.labels_of(factor)) for factor in table.factors}
        if places is not None and isinstance(name, tuple):
            members = places.members[places.level_index(name[0])].tolist()
            coordinates = {name[0]: [places.geocodes[i] for i in members], **coordinates}
        called = f"{name[0]}: {name[1]}" if isinstance(name, tuple) else str(name)
        for what, own in ((ESTIMATE, estimates[name]), (STD_ERROR, errors[name])):
            found[f"{called} {what}"] = xarray.DataArray(own, coordinates, list(coordinates))
    return xarray.Dataset(found)
