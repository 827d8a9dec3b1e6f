"""Reading what a problem is made from: tables and their variances, equations, a summing matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import Areas
from constraint_builders.description.domain import Places, StructuralZeros
from constraint_builders.description.labelled import Nodes, aligned, refuse_sets, row_labels
from constraint_builders.description.layout import Layout, by_table
from constraint_builders.description.noise import IndependentNoise, Noise
from constraint_builders.description.noise_covariance import read_noise, read_repeated_noise
from constraint_builders.description.reals import (
    checked_variances,
    plain_variances,
    read_matrix,
    read_vector,
    real_array,
    refuse_masked,
)
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import ONE_PLACE, Spine
from constraint_builders.description.table import Table, parse_table
from constraint_builders.estimability import ASSUMED_VARIANCE, lacks, refuse_unestimable, undetermined_cells
from constraint_builders.measured import Measured
from constraint_builders.record import Record
from constraint_builders.relations.spine_tables import (
    TableDimensions,
    read_desired,
    read_observed,
    spine_layout,
    table_layout,
)
from constraint_builders.relations.summing import SummingMatrix
from constraint_builders.vectors import refuse_unreadable

MOST_UNEVEN = 1e8  # ratio of the weights in an equality: the root of what doubles tell apart


def read_problem(
    schema: Any,
    observed: Any,
    desired: Any,
    spine: Spine | None,
    areas: Areas | None,
    covariance: Any,
    zeros: Mapping[Any, Any] | None,
    equalities: tuple[Any, ArrayLike] | None,
    noise: str,
    truth: Any,
    undetermined: str,
) -> Record:
    """A problem of tables; see `Problem`."""
    if undetermined not in ("error", "nan"):
        raise ValueError(f"undetermined must be 'error' or 'nan': got {undetermined!r}")
    if not isinstance(schema, Schema):
        raise TypeError(
            "a problem begins with a Schema, such as Schema({'sex': ['female', 'male']}): "
            f"got {type(schema).__name__}"
        )
    if not isinstance(observed, Mapping):
        raise TypeError(
            "observed tables are given with the variance of their noise, as in {'sex': 2.0}, 0 where exact: "
            f"got {type(observed).__name__}"
        )
    if not observed:
        raise ValueError("a problem needs at least one observed table: got none")
    _refuse_places(spine, areas)
    measured = _read_measured(schema, observed, spine, areas, covariance, noise)
    if zeros is not None:
        measured = replace(measured, zeros=_read_zeros(schema, measured.places, zeros))
    if equalities is not None:
        measured = replace(measured, equalities=_read_equalities(measured.observed.size, *equalities))
        _refuse_filled_zeros(measured)
    assumed = np.zeros(0, dtype=np.intp)
    if undetermined == "nan" and measured.has_unmeasured:
        assumed = measured.relations.open_elimination.free_columns
    known = measured
    if assumed.size:
        known = replace(measured, noise=measured.noise.had_been_measured(assumed, ASSUMED_VARIANCE))
    wanted = _read_desired(schema, known, desired)
    if truth is not None:
        wanted["truth"] = _read_truth(measured, truth)
    record = Record.of(known, **wanted)
    refuse_unestimable(record)
    if assumed.size:
        lost = undetermined_cells(measured, record, assumed)
        record = Record.of(measured, **wanted, assumed=assumed, undetermined=lost)
    return record


def _refuse_places(spine: Any, areas: Any) -> None:
    if spine is not None and areas is not None:
        raise ValueError(
            "a problem is about the geounits of a spine or about areas: give one of spine= and areas=; "
            "Areas.from_spine(spine).with_layer(...) has both"
        )
    if areas is not None and not isinstance(areas, Areas):
        raise TypeError(
            f"areas must be Areas, such as Areas(4, {{'Region': [0, 0, 1, 1]}}): got {type(areas).__name__}"
        )


def _read_measured(
    schema: Schema, observed: Mapping, spine: Spine | None, areas: Areas | None, covariance: Any, noise: str
) -> Measured:
    """The observed tables and their noise."""
    places = areas if spine is None else spine
    if places is None:
        tables = tuple(parse_table(schema, name) for name in observed)
        levels = (0,) * len(tables)
        layout = table_layout(schema, list(observed), tables)
        by_table = None if covariance is not None else plain_variances(list(observed.values()))
        if by_table is None:
            own = zip(observed.items(), tables, strict=True)
            given = np.concatenate([_table_variances(schema, name, table, value) for (name, value), table in own])
            law: Noise = read_noise(layout, given, covariance, noise)
        else:
            law = IndependentNoise(noise, by_table, layout.sizes)
    else:
        names, by_level = read_observed(schema, places, observed)
        tables = tuple(parse_table(schema, table) for _, table in names)
        levels = tuple(places.level_index(level) for level, _ in names)
        layout = spine_layout(schema, places, names)
        alike = covariance is None and all(own.strides[1:] == (0,) * (own.ndim - 1) for own in by_level)
        if alike:
            law = read_repeated_noise(layout, by_level, noise)
        else:
            law = read_noise(layout, np.concatenate(by_level, axis=None), covariance, noise)
    return Measured(
        observed=layout,
        noise=law,
        schema=schema,
        spine=spine,
        areas=areas,
        observed_tables=tables,
        observed_levels=levels,
    )


def _table_variances(schema: Schema, name: str, table: Table, value: Any) -> Float:
    if value is None:
        return np.full(table.size, np.nan)
    what = f"variance of table {name!r}"
    variances = real_array(aligned(value, partial(TableDimensions(schema), name), what), what)
    if variances.shape not in ((), table.shape):
        raise ValueError(
            f"variance of table {name!r} must be a number or have shape {table.shape}: got {variances.shape}"
        )
    return checked_variances(np.broadcast_to(variances, table.shape).ravel(), what)


def _read_zeros(schema: Schema, places: Places | None, zeros: Mapping[Any, Any]) -> StructuralZeros:
    if places is not None:
        zeros = by_table(zeros)
        return StructuralZeros(schema, places, spine_layout(schema, places, list(zeros)), zeros)
    names = list(zeros)
    layout = table_layout(schema, names, [parse_table(schema, name) for name in names])
    return StructuralZeros(schema, ONE_PLACE, layout, zeros)


def _read_equalities(size: int, matrix: Any, b: ArrayLike) -> tuple[sparse.csr_array, Float]:
    E = read_matrix(matrix)
    if E.shape[1] != size:
        raise ValueError(f"equalities must have {size} columns, one for every observed cell: got {E.shape[1]}")
    sizes = abs(E).tocoo()
    largest = abs(E).max(axis=1).toarray().ravel()
    lost = np.flatnonzero(sizes.data * MOST_UNEVEN < largest[sizes.row])
    if lost.size:
        row = int(sizes.row[lost[0]])
        raise ValueError(
            f"equality {row} weighs cells by {sizes.data[lost[0]]:.3g} and by {largest[row]:.3g}: rounding would "
            "decide what so small a weight says; leave it out, or state what it ties in an equality of its own"
        )
    return E, read_vector(b, E.shape[0], "right-hand side of the equalities")


def _refuse_filled_zeros(measured: Measured) -> None:
    """Refuse equalities that put something into cells known to be empty."""
    if measured.zeros is None or measured.equalities is None:
        return
    (E, b), empty = measured.equalities, _empty_cells(measured)
    filled = np.flatnonzero((b != 0) & (abs(E) @ empty > 0) & (abs(E) @ ~empty == 0))
    if filled.size:
        row = int(filled[0])
        cell = measured.observed.describe(int(E[[row]].nonzero()[1][0]))
        raise ValueError(
            f"equality {row} and the structural zeros contradict one another: it makes {b[row]:.6g} of cells that are "
            f"known to be empty, such as {cell}: correct its right-hand side, or leave out the zeros"
        )


def _empty_cells(measured: Measured) -> Flags:
    """Observed cells that structural zeros say are empty, (n,)."""
    places, zeros = measured.domain.places, measured.zeros
    own = zip(measured.observed_levels, measured.observed_tables, strict=True)
    if zeros is None:
        return np.zeros(measured.observed.size, dtype=bool)
    return np.concatenate([zeros.cells(table, places.members[level]).ravel() for level, table in own])


def _read_desired(schema: Schema, measured: Measured, desired: Any) -> dict[str, Any]:
    """The fields of a record that say what is wanted."""
    places, observed = measured.places, measured.observed
    if desired is None and not measured.has_unmeasured:
        tables, levels = measured.observed_tables, measured.observed_levels
        return {"desired": observed, "desired_tables": tables, "desired_levels": levels}
    if places is None:
        names = _desired_names(schema, measured, desired)
        wanted_tables = tuple(parse_table(schema, name) for name in names)
        return {
            "desired": table_layout(schema, names, wanted_tables),
            "desired_tables": wanted_tables,
            "desired_levels": (0,) * len(names),
        }
    wanted = [(str(name[0]), str(name[1])) for name in observed.names if isinstance(name, tuple)]
    if desired is not None:
        wanted = read_desired(schema, places, desired, measured.observed_tables, partial(lacks, measured))
    return {
        "desired": spine_layout(schema, places, wanted),
        "desired_tables": tuple(parse_table(schema, table) for _, table in wanted),
        "desired_levels": tuple(places.level_index(level) for level, _ in wanted),
    }


def _desired_names(schema: Schema, measured: Measured, desired: Sequence[str] | str | None) -> list[str]:
    if desired is None:
        return [str(name) for name in measured.observed.names]
    if isinstance(desired, str):
        if desired != "all":
            raise ValueError(f"desired must be a list of tables, or 'all': got {desired!r}")
        return _all_names(schema, measured)
    refuse_sets(desired, "desired tables")
    names = list(desired)
    if not names:
        raise ValueError("no table is desired: name at least one, or leave it out for the observed ones")
    return names


def _all_names(schema: Schema, of: Measured) -> list[str]:
    """Every plain marginal of some measured table in order of size, and the observed tables."""
    plain: dict[str, Table] = {}
    for table, measured in zip(of.observed_tables, of.measured_tables, strict=True):
        plain.setdefault(table.name, table)
        kept = [factor for factor in table.factors if factor in schema.names] if measured else []
        for chosen in product((False, True), repeat=len(kept)):
            name = " * ".join(f for f, keep in zip(kept, chosen, strict=True) if keep) or "total"
            marginal = parse_table(schema, name)
            plain.setdefault(marginal.name, marginal)
    return [table.name for table in sorted(plain.values(), key=attrgetter("sort_key"))]


def _read_truth(measured: Measured, truth: Any) -> Float:
    observed = measured.observed
    vector = observed.vector(truth) if isinstance(truth, Mapping) else read_vector(truth, observed.size, "truth")
    filled = np.flatnonzero(_empty_cells(measured) & (vector != 0))
    if filled.size:
        cell = observed.describe(int(filled[0]))
        raise ValueError(
            f"truth is {vector[filled[0]]:.6g} in {cell}, which structural zeros say is empty: correct one of the two"
        )
    refuse_unreadable(measured, vector)
    measured.check_truth(vector)
    vector.flags.writeable = False
    return vector


def read_equations(A: Any, covariance: Any, b: ArrayLike | None) -> Record:
    """A problem of anybody's equations; see `Problem.from_matrix`."""
    matrix = read_matrix(A)
    rows, size = matrix.shape
    right = None if b is None else read_vector(b, rows, "b")
    return _of_nodes(size, covariance, "covariance", None, matrix=matrix, b=right)


def read_summing_matrix(S: Any, variances: Any, covariance: Any) -> Record:
    """A problem of nodes that are sums of leaves; see `Problem.from_summing_matrix`."""
    labels, S = row_labels(S, "S")
    summing = SummingMatrix(S)
    size = summing.size
    if (variances is None) == (covariance is None):
        raise ValueError("give variances, one for every row of S, or covariance=, the noise of all rows: not both")
    refuse_masked(variances if covariance is None else covariance, "variances" if covariance is None else "covariance")
    if covariance is not None:
        if np.shape(covariance) != (size, size):
            raise ValueError(f"covariance must have shape ({size}, {size}): got {np.shape(covariance)}")
        return _of_nodes(size, covariance, "covariance", labels, summing=summing)
    if np.shape(variances) not in ((), (size,)):
        raise ValueError(
            f"variances must be a number or have shape ({size},), one for every row of S: got {np.shape(variances)}"
        )
    return _of_nodes(size, variances, "variances", labels, summing=summing)


def _of_nodes(size: int, covariance: Any, what: str, labels: tuple[str, ...] | None, **given: Any) -> Record:
    """A problem of the one table "x", and its noise."""
    layout = Layout(["x"], [(size,)], dimensions=Nodes(size, labels))
    refuse_masked(covariance, what)
    if sparse.issparse(covariance) or isinstance(covariance, LinearOperator) or np.ndim(covariance) == 2:
        noise = read_noise(layout, np.full(size, np.nan), covariance)
    elif np.shape(covariance) in ((), (size,)):
        own = checked_variances(layout.flat(covariance, what), what)
        noise = read_noise(layout, np.array(np.broadcast_to(own, (size,))))
    else:
        raise ValueError(
            f"{what} must be a number or have shape ({size},) or ({size}, {size}): got {np.shape(covariance)}"
        )
    measured = Measured(observed=layout, noise=noise, **given)
    record = Record.of(measured, desired=layout)
    refuse_unestimable(record)
    return record
