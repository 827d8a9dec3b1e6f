"""Reading what a problem is made from: tables and their variances, equations, a summing matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import Areas
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.labelled import Nodes, aligned, names_of_columns, read_texts, row_labels
from constraint_builders.description.layout import Layout, by_table
from constraint_builders.description.noise import (
    IndependentNoise,
    LawOrName,
    Noise,
    NoiseLaw,
    common_law,
    refuse_variances_beside_law,
    require_law,
)
from constraint_builders.description.noise_covariance import read_noise
from constraint_builders.description.reals import (
    LARGEST_WEIGHT,
    checked_variances,
    plain_variances,
    read_matrix,
    read_vector,
    real_array,
    refuse_masked,
)
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import NamedTables, Table, TableNames, read_desired
from constraint_builders.estimability import ASSUMED_VARIANCE, lacks, refuse_unestimable, undetermined_cells
from constraint_builders.measured import Measured
from constraint_builders.record import Record
from constraint_builders.relations.summing import SummingMatrix
from constraint_builders.vectors import refuse_unreadable

MOST_UNEVEN = 1e8  # ratio of the weights in an equality: the root of what doubles tell apart


def require_schema(schema: Any, what: str, or_none: bool = False) -> None:
    """`TypeError` for what is no schema; `what` begins the message."""
    if not isinstance(schema, Schema | None if or_none else Schema):
        example, within = "such as Schema({'sex': ['female', 'male']})", getattr(schema, "schema", None)
        hint = ", give its .schema" if isinstance(within, Schema) else ""
        raise TypeError(f"{what} a Schema, {example}: got {type(schema).__name__}{hint}")


def read_problem(
    schema: Any,
    observed: Any,
    desired: Any,
    spine: Spine | None,
    areas: Areas | None,
    covariance: Any,
    zeros: Mapping[Any, Any] | None,
    equalities: tuple[Any, ArrayLike] | None,
    noise: LawOrName,
    truth: Any,
    undetermined: str,
) -> Record:
    """A problem of tables, its equalities being E, (k, n), and b, (k,); see `Problem`."""
    if undetermined not in ("error", "nan"):
        raise ValueError(f"undetermined must be 'error' or 'nan': got {undetermined!r}")
    require_schema(schema, "a problem begins with")
    if not isinstance(observed, Mapping):
        raise TypeError(
            "observed tables are given with the variance of their noise, as in {'sex': 2.0}, 0 where exact: "
            f"got {type(observed).__name__}"
        )
    if not isinstance(zeros, Mapping | None):
        raise TypeError(f"zeros are given by table, as in {{'sex': [True, False]}}: got {type(zeros).__name__}")
    if equalities is not None and (not isinstance(equalities, tuple | list) or len(equalities) != 2):
        raise TypeError(
            "equalities are a matrix over the observed cells and what its rows come to, as in ([[1, 1]], [9])"
        )
    _refuse_places(spine, areas)
    names = TableNames.of(schema, areas if spine is None else spine)
    given = dict(_by_name(names, observed)) if names.by_level else observed
    return read_measured_tables(names, given, desired, covariance, zeros, equalities, noise, truth, undetermined)


def read_measured_tables(
    names: TableNames,
    given: Mapping[Any, Any],
    desired: Any,
    covariance: Any,
    zeros: Mapping[Any, Any] | None,
    equalities: tuple[Any, ArrayLike] | None,
    noise: LawOrName,
    truth: Any,
    undetermined: str,
) -> Record:
    """The same, where each table is given by its whole name; equalities are E, (k, n), and b, (k,)."""
    measured = _read_measured(names, given, covariance, noise)
    if zeros is not None:
        measured = replace(measured, zeros=StructuralZeros(names, by_table(zeros) if names.by_level else zeros))
    if equalities is not None:
        measured = replace(measured, equalities=_read_equalities(measured.observed.size, *equalities))
        _refuse_filled_zeros(measured)
    assumed = np.zeros(0, dtype=np.intp)
    if undetermined == "nan" and measured.has_unmeasured:
        assumed = measured.relations.open_elimination.free_columns
    known = measured
    if assumed.size:
        known = replace(measured, noise=measured.noise.had_been_measured(assumed, ASSUMED_VARIANCE))
    wanted = _read_desired(known, desired)
    told = {} if truth is None else {"truth": _read_truth(measured, truth)}
    record = Record.of(known, wanted, **told)
    refuse_unestimable(record)
    if assumed.size:
        lost = undetermined_cells(measured, record, assumed)
        record = Record.of(measured, wanted, **told, assumed=assumed, undetermined=lost)
    return record


def _refuse_places(spine: Any, areas: Any) -> None:
    if spine is not None and areas is not None:
        raise ValueError(
            "a problem is about the geounits of a spine or about areas: give one of spine= and areas=; "
            "Areas.from_spine(spine).with_layer(...) has both"
        )
    if spine is not None and not isinstance(spine, Spine):
        raise TypeError(
            "spine must be a Spine, such as Spine.from_geoids(['01001', '01003'], {'State': 2, 'County': 5}): got "
            f"{type(spine).__name__}"
        )
    if areas is not None and not isinstance(areas, Areas):
        raise TypeError(
            f"areas must be Areas, such as Areas(4, {{'Region': [0, 0, 1, 1]}}): got {type(areas).__name__}"
        )


def _read_measured(names: TableNames, given: Mapping[Any, Any], covariance: Any, noise: LawOrName) -> Measured:
    """The observed tables and their noise."""
    if not given:
        raise ValueError("a problem needs at least one observed table: got none")
    layout, tables, levels = named = names.tables(given)
    found = _read_noise(names, named, list(given.values()), covariance, noise)
    refuse_variances_beside_law(found, layout)
    return Measured(
        observed=layout,
        noise=found,
        schema=names.schema,
        spine=names.places if names.by_level and isinstance(names.places, Spine) else None,
        areas=names.places if isinstance(names.places, Areas) else None,
        observed_tables=tables,
        observed_levels=levels,
    )


def _by_name(names: TableNames, observed: Mapping) -> Iterator[tuple[Any, Any]]:
    """Names of tables with what is said of each as ``{level: {table: ...}}``."""
    for level, tables in observed.items():
        number = names.places.level_index(level)
        if not isinstance(tables, Mapping):
            raise ValueError(f"observed tables of {level!r} must be given as {{table: variance}}: got {tables!r}")
        yield from ((names.called(number, table), own) for table, own in tables.items())


def _read_noise(names: TableNames, named: NamedTables, given: Sequence[Any], covariance: Any, law: LawOrName) -> Noise:
    """The noise of tables, by what is given of the variances, or the law, of each."""
    layout, tables, levels = named
    if laws := [own for own in given if isinstance(own, NoiseLaw)]:
        law = common_law(laws, require_law(law))
        given = [own.variance if isinstance(own, NoiseLaw) else own for own in given]
    geounits, counts = [1] * len(tables), layout.sizes
    if names.by_level:
        geounits = [names.places.members[level].size for level in levels]
        counts = np.repeat([table.size for table in tables], geounits)
    plain = None if covariance is not None else plain_variances(given)
    if plain is not None:
        return IndependentNoise(law, np.repeat(plain, geounits) if names.by_level else plain, counts)
    each = zip(layout.names, tables, geounits, given, strict=True)
    variances = [_cell_variances(names, name, (count, *table.shape), own) for name, table, count, own in each]
    if covariance is None and all(own.strides[1:] == (0,) * (own.ndim - 1) for own in variances):
        alike = np.concatenate([own.reshape(len(own), -1)[:, 0] for own in variances])
        if not np.isnan(alike).any():
            return IndependentNoise(law, alike, counts)
    return read_noise(layout, np.concatenate(variances, axis=None), covariance, law)


def _cell_variances(names: TableNames, name: Any, shape: tuple[int, ...], value: Any) -> Float:
    """Variances of a table, (geounits, *cells): given as a number, of every cell, or of every geounit."""
    what = f"variance of table {name!r}"
    if value is None:
        return np.broadcast_to(np.nan, shape)
    variances = real_array(aligned(value, partial(names.dimensions, name), what), what)
    if names.by_level and variances.shape not in ((), shape[:1], shape):
        raise ValueError(f"{what} must have shape (), {shape[:1]} or {shape}: got {variances.shape}")
    if not names.by_level and variances.shape not in ((), shape[1:]):
        raise ValueError(f"{what} must be a number or have shape {shape[1:]}: got {variances.shape}")
    if names.by_level and variances.shape == shape[:1]:
        variances = variances.reshape(-1, *[1] * (len(shape) - 1))
    return np.broadcast_to(checked_variances(variances, what), shape)  # checked before they are spread over all cells


def _read_equalities(size: int, matrix: Any, b: ArrayLike) -> tuple[sparse.csr_array, Float]:
    """E, (k, n), and b, (k,), as they are given; refused where rounding would decide what a small weight says."""
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
    """Refuse equalities that put something into structural zeros."""
    (E, b), empty = measured.equality_rows, _empty_cells(measured)
    filled = np.flatnonzero((b != 0) & (abs(E) @ empty > 0) & (abs(E) @ ~empty == 0))
    if filled.size:
        row = int(filled[0])
        cell = measured.observed.describe(int(E[[row]].nonzero()[1][0]))
        raise ValueError(
            f"equality {row} and the structural zeros contradict one another: it makes {b[row]:.6g} of structural "
            f"zeros, such as {cell}: correct its right-hand side, or leave out the zeros"
        )


def _empty_cells(measured: Measured) -> Flags:
    """Observed cells that structural zeros say are empty, (n,)."""
    members, zeros = measured.domain.places.members, measured.known_empty
    own = zip(measured.observed_levels, measured.observed_tables, strict=True)
    return np.concatenate([zeros.cells(table, members[level]).ravel() for level, table in own])


def _read_desired(measured: Measured, desired: Any) -> NamedTables:
    """The tables that are wanted: by default those that were observed."""
    if desired is None and not measured.has_unmeasured:
        return NamedTables(measured.observed, measured.observed_tables, measured.observed_levels)
    names = measured.names
    if desired is None:
        return names.tables(measured.observed.names)
    lacking = partial(lacks if names.by_level else _not_measured, measured)
    return names.tables(read_desired(names, desired, measured.observed_tables, lacking))


def _not_measured(measured: Measured, level: int, table: Table) -> int | None:
    """0 of a table without a geography that is neither observed nor a margin of one that was measured."""
    if not measured.has_unmeasured or table in measured.observed_tables:
        return None
    told = zip(measured.observed_tables, measured.measured_tables, strict=True)
    return None if any(known and set(own.factors).issuperset(table.factors) for own, known in told) else 0


def _read_truth(measured: Measured, truth: Any) -> Float:
    observed = measured.observed
    vector = observed.vector(truth) if isinstance(truth, Mapping) else read_vector(truth, observed.size, "truth")
    why = "truth is {1:.6g} in {0}, which structural zeros say is empty: correct one of the two"
    observed.refuse(_empty_cells(measured) & (vector != 0), why, vector)
    refuse_unreadable(measured, vector)
    measured.check_truth(vector)
    vector.flags.writeable = False
    return vector


def read_equations(A: Any, covariance: Any, b: ArrayLike | None) -> Record:
    """A problem of any equations A, (k, n), and b, (k,); see `Problem.from_matrix`."""
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


def read_leaves(S: Any, covariance: Any, names: Any, row_names: Any) -> Record:
    """A problem of measured rows that are sums of leaves, and of the leaves, which are wanted.

    Parameters
    ----------
    S : sparse array, array_like or data frame, (n, k)
        An index names the rows, columns the leaves.
    covariance : array_like () or (n,), or a covariance (n, n)
        Of the noise of the rows.
    names, row_names : sequence of str, (k,) and (n,), or None
        Of the leaves and of the rows.

    Returns
    -------
    Record
        Of the tables ``"rows"``, (n,), observed, and ``"leaves"``, (k,), desired. Which are estimable is not looked at.

    Raises
    ------
    ValueError
        If a shape does not fit, a value is no usable number, or a name is repeated.
    """
    columns = names_of_columns(S)
    labels, S = row_labels(S, "S")
    summing = SummingMatrix(S)
    size, leaves = summing.matrix.shape
    called = _names_of("leaves", "column", columns if names is None else names, leaves)
    labels = _names_of("rows", "row", labels if row_names is None else row_names, size)
    largest = np.zeros(leaves)
    np.maximum.at(largest, summing.matrix.indices, abs(summing.matrix.data))
    small = np.flatnonzero((largest > 0) & (largest < 1 / LARGEST_WEIGHT))
    if small.size:
        leaf, most = int(small[0]), float(largest[small[0]])
        said = repr(called[leaf]) if called else str(leaf)
        raise ValueError(f"S weighs leaf {said} by {most:g} at most, below {1 / LARGEST_WEIGHT:g}: scale its column")
    measured = _nodes_with_noise("rows", size, covariance, "variances", labels, summing=summing)
    return Record.of(measured, NamedTables(Layout(["leaves"], [(leaves,)], Nodes(leaves, called)), (), ()))


def _names_of(what: str, of: str, names: Any, size: int) -> tuple[str, ...] | None:
    """Names of leaves, or of rows, (size,); None without any."""
    if names is None:
        return None
    called = tuple(read_texts(names, f"names of {what}"))
    if len(called) != size:
        raise ValueError(f"names of {what} must be {size}, one for every {of} of S: got {len(called)}")
    if len(set(called)) < size:
        twice = next(name for name in called if called.count(name) > 1)
        raise ValueError(f"two {what} are called {twice!r}: their names are unique")
    return called


def _of_nodes(size: int, covariance: Any, what: str, labels: tuple[str, ...] | None, **given: Any) -> Record:
    """A problem of the one table "x", and its noise."""
    measured = _nodes_with_noise("x", size, covariance, what, labels, **given)
    record = Record.of(measured, NamedTables(measured.observed, (), ()))
    refuse_unestimable(record)
    return record


def _nodes_with_noise(
    name: str, size: int, covariance: Any, what: str, labels: tuple[str, ...] | None, **given: Any
) -> Measured:
    """One table of nodes that were measured, and its noise."""
    layout = Layout([name], [(size,)], Nodes(size, labels))
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
    return Measured(observed=layout, noise=noise, **given)
