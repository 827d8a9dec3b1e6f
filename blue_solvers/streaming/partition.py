"""Cutting a problem and its measurements into the files of its parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blue_solvers.components.structured_problem import equal_variances
from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.solvers import TwoPass
from blue_solvers.streaming.crossing_partition import cut_areas, refusal_of_areas
from blue_solvers.streaming.cutting import CutSpine, cut_with_siblings
from blue_solvers.streaming.least_noise import with_little_noise
from blue_solvers.streaming.part_data import Design
from blue_solvers.streaming.part_files import (
    BUFFERS,
    Partitions,
    Read,
    Sources,
    write_parts,
)
from blue_solvers.streaming.subtrees import TableAtLevel, part_bytes
from blue_solvers.verification.exact_combinations import ExactCombinations
from blue_solvers.verification.problem_places import Claim, problem_places
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Problem, Schema, Spine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.domain import EmptyCells, StructuralZeros
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import IndependentNoise, LawOrName
from constraint_builders.description.reals import real_array
from constraint_builders.description.table import Table, TableNames, parse_table, read_desired
from constraint_builders.estimability import lacks, undetermined_refusal
from constraint_builders.measured import Measured
from constraint_builders.schema_order import in_schema_order
from noise_mechanisms.laws.named_laws import tails_of

Desired: TypeAlias = Mapping[str, Sequence[str] | str] | Sequence[str] | str | None


def partition(
    folder: str | os.PathLike[str],
    problem: Problem,
    y: ArrayLike,
    *,
    memory: float | None = None,
    at: str | None = None,
) -> Partitions:
    """Cut a problem and its measurements into parts, whole or not at all.

    Parameters
    ----------
    folder : path
        Made anew.
    problem : Problem
        On a spine, as `TwoPass` takes it; or of areas, as `AreaSolver` takes it, without zeros and equalities, that
        cross inside the areas of one layer only.
    y : array_like, (n,)
        Measurements over its observed layout.
    memory, at
        As in `partition_source`.

    Returns
    -------
    Partitions

    Raises
    ------
    UnsupportedProblemError
        If `TwoPass`, or of areas `AreaSolver`, cannot take the problem, it has zeros or equalities over areas, areas
        cross between parts, or some desired cells are not estimable.
    ValueError
        If the problem has neither spine nor areas, or `y` is not a vector of its measurements.
    MemoryError, OSError
        As in `partition_source`.
    """
    if problem.areas is None and problem.spine is None:
        raise ValueError("only a problem on a spine, or of areas, can be cut into parts: this one has neither")
    order = in_schema_order(problem)
    reason = TwoPass().refusal(order.problem) if problem.areas is None else refusal_of_areas(order.problem)
    reason = reason or _unmeasured_in_equalities(problem) or undetermined_refusal(problem)
    if reason is not None:
        raise UnsupportedProblemError(f"this problem cannot be streamed: {reason}")
    values = problem.observed.flat(y, "y")
    problem.observed.tables(values)  # refuses another shape
    problem.check_vector(values)
    problem, values = order.problem, problem.noise.centred(values)[order.observed]
    places, variances = problem.domain.places, equal_variances(problem)

    def read(level: str, table: str, ranks: Index) -> Float:
        """Values of a table at places by their ranks in a level, (k,) to (k, cells)."""
        members = places.members[places.level_index(level)]
        return values[problem.observed.slice((level, table))].reshape(members.size, -1)[ranks]

    if problem.areas is not None:
        design, cut, leaves = cut_areas(problem, memory, at)
        nothing = np.zeros((cut.tree.size, 1), dtype=bool)
        return write_parts(folder, Sources(design, cut, variances, read, nothing, leaves=leaves))
    design = Design.of(problem, places.levels)
    design = replace(design, combinations=_exact_combinations(design, problem))
    cut, empty = _cut_spine(design, problem.domain.spine, problem.known_empty, memory, at)
    return write_parts(folder, Sources(design, cut, variances, read, empty, with_little_noise(problem)))


def _exact_combinations(design: Design, problem: Problem) -> ExactCombinations | None:
    """What equalities leave free; None without any, or where no proof would get as far."""
    if not design.equal_to:
        return None
    with suppress(NotCertifiedError):
        places = problem.domain.spine.members
        others = [own for own in design.estimated if own not in design.observed]
        made = [Claim(i, k, t, np.zeros(places[k].size * t.size)) for i, (k, t) in enumerate(others)]
        known = problem_places(problem, made)
        if known.nest:
            return ExactCombinations.of(problem, known, design.key)
    return None


def _unmeasured_in_equalities(problem: Problem) -> str | None:
    rows = problem.equality_rows[0].tocoo()
    touched = problem.unmeasured[rows.coords[1][rows.data != 0]]
    return "its equalities speak of cells that were not measured: estimate it in memory" if touched.any() else None


def partition_source(
    folder: str | os.PathLike[str],
    schema: Schema,
    spine: Spine,
    observed: Mapping[str, Mapping[str, ArrayLike]],
    desired: Desired,
    read: Read,
    *,
    zeros: Mapping[tuple[str, str], NDArray[np.bool_]] | StructuralZeros | None = None,
    memory: float | None = None,
    at: str | None = None,
    reserved: float = 0.0,
    noise: LawOrName = "gaussian",
) -> Partitions:
    """Cut measurements that do not fit in memory into parts, whole or not at all.

    Parameters
    ----------
    folder : path
        Made anew.
    schema : Schema
    spine : Spine
    observed : mapping of str to mapping of str to float or array_like (geounits,)
        For every geolevel its measured tables with their variances; 0 exact, ``inf`` not measured.
    desired
        As in `Problem`.
    read : callable
        Called with a geolevel, the name of an observed table and the numbers of some geounits within their level (G,);
        gives the measurements, (G, cells) or (G, *shape), anything where there is none.
    zeros : mapping of (geolevel, table) to ndarray of bool (geounits, *shape), optional
        Structural zeros, as in `Problem`; or what was read of them.
    memory : float, optional
        Bytes that the work on a part may take beside the program itself; parts are the largest subtrees that keep to
        it, and siblings together that do. By default there is no limit, and `at` is needed.
    at : str, optional
        Cut at this geolevel, each of its subtrees by itself, or below where `memory` demands it.
    reserved : float
        Bytes of the memory that others take.
    noise : str or Law
        The kind of noise, as in `Problem`: for the fit.

    Returns
    -------
    Partitions

    Raises
    ------
    ValueError
        If a table or level is unknown or given twice, a variance is not one, a desired table is not estimable, zeros
        are not truth values of their table's shape, neither `memory` nor `at` is given, or a name cannot be that of a
        file.
    MemoryError
        If a geounit without children, or the top of the tree, needs more than `memory`; it is named.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    names = [(level, table) for level, tables in observed.items() for table in tables]
    given = [parse_table(schema, table) for _, table in names]
    tables = [(spine.level_index(level), own.in_schema_order()) for (level, _), own in zip(names, given, strict=True)]
    _refuse_repeats("observed", tables)
    variances = [
        _geounit_variances((level, table), value, spine.members[spine.level_index(level)].size)
        for level, own in observed.items()
        for table, value in own.items()
    ]
    open_at = partial(lacks, _TablesAlone.of(schema, spine, tables, variances))
    wanted = _desired(schema, spine, desired, names, tables, open_at)
    checked = tuple(own for own in tables if own not in wanted and open_at(*own) is None)
    tails = tails_of(noise, variances)
    design = Design(schema, spine.levels, tuple(tables), tuple(wanted), checked=checked, tails=tails)
    spelled = {
        (level, table.name): (name, table.places_in(own) if own.is_turned else None)
        for (level, table), (_, name), own in zip(tables, names, given, strict=True)
    }

    def read_as_named(level: str, table: str, ranks: Index) -> ArrayLike:
        """What `read` gives of geounits, (k,) to (k, ...), checked, its cells in the schema's order."""
        name, places = spelled[spine.level_index(level), table]
        values = read(level, name, ranks)
        if np.asarray(values).dtype != np.int32:
            values = real_array(values, f"what was read of table {name!r} of {level}")
        if np.shape(values)[:1] != ranks.shape:
            raise ValueError(
                f"table {name!r} of {level} was read in the shape {np.shape(values)}: give a row for each of "
                f"{ranks.size} geounits"
            )
        return values if places is None else np.reshape(values, (ranks.size, -1))[:, places]

    if not isinstance(zeros, StructuralZeros):
        zeros = StructuralZeros(TableNames.of(schema, spine), zeros or {})
    design = design.with_zeros(zeros)
    cut, empty = _cut_spine(design, spine, zeros, memory, at, reserved)
    return write_parts(folder, Sources(design, cut, variances, read_as_named, empty))


@dataclass(frozen=True, eq=False, kw_only=True)
class _TablesAlone(Measured):
    """Measurements of more cells than a layout can have: with the variances of tables in every geounit."""

    by_geounit: list[Float]

    @classmethod
    def of(cls, schema: Schema, spine: Spine, own: Sequence[TableAtLevel], variances: list[Float]) -> _TablesAlone:
        """Of tables at geolevels of a spine, each with variances (geounits,)."""
        levels, tables = zip(*own, strict=True)
        return cls(
            observed=Layout([], []),
            noise=IndependentNoise("gaussian", np.zeros(0)),
            schema=schema,
            spine=spine,
            observed_tables=tables,
            observed_levels=levels,
            by_geounit=variances,
        )

    def typical_variances(self) -> list[Float]:
        """Variances of every table, (geounits,)."""
        return self.by_geounit


def _refuse_repeats(kind: str, tables: Sequence[TableAtLevel]) -> None:
    if not tables or len(set(tables)) < len(tables):
        raise ValueError(f"{kind} tables must be at least one, each given once: got {len(tables)}")


def _geounit_variances(name: tuple[str, str], value: ArrayLike, count: int) -> Float:
    """The variances of a table in all geounits, (count,), given as so many or as one number."""
    variances = real_array(value, f"variances of {name!r}")
    if variances.shape not in ((), (count,)) or np.isnan(variances).any() or (variances < 0).any():
        raise ValueError(f"variances of {name!r} must be one number, or {count} of them, none negative or NaN")
    return np.broadcast_to(variances, (count,))


def _desired(
    schema: Schema,
    spine: Spine,
    desired: Desired,
    names: Sequence[tuple[str, str]],
    tables: Sequence[TableAtLevel],
    open_at: Callable[[int, Table], int | None],
) -> list[TableAtLevel]:
    """The desired tables, all estimable."""
    wanted = names
    if desired is not None:
        wanted = read_desired(TableNames.of(schema, spine), desired, [table for _, table in tables], open_at)
    found = [(spine.level_index(level), parse_table(schema, table).in_schema_order()) for level, table in wanted]
    _refuse_repeats("desired", found)
    for level, table in found:
        geounit = open_at(level, table)
        if geounit is not None:
            raise ValueError(
                f"table {table.name!r} is not estimable at {spine.levels[level]} {spine.geocodes[geounit]!r}: nothing "
                "measured there, below or above determines it"
            )
    return found


def _cut_spine(
    design: Design, spine: Spine, zeros: EmptyCells, memory: float | None, at: str | None, reserved: float = 0.0
) -> tuple[CutSpine, NDArray[np.bool_]]:
    """Where a spine is cut, and the structural zeros of all that is cut."""
    flags = zeros.empty.reshape(spine.size, -1)
    own = part_bytes(design, spine.level_of, spine.child_counts > 0, flags)
    cut = cut_with_siblings(spine, own, memory, at, BUFFERS + reserved)
    above = (flags[lot].all(axis=0, keepdims=True) for lot in cut.together)  # cells that are empty in all siblings
    return cut, np.concatenate([flags, *above])
