"""The problem of one component: one number, or one for every group cell, in every area.

Under A1 to A3 in each area the components of the schema do not mix, and all cells of one share its problem: the same
areas, and for every table the sums over groups along the variables that have no contrasts. What tables of an area tell
of the same sums is one measurement, weighed by precision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from blue_solvers.components.grouping import Grouping
from blue_solvers.contract import Info
from blue_solvers.crossing_areas.table_slots import Component, TableSlots, cells_of_groups
from blue_solvers.normal_equations.factorisation import sparse_solver
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import LEAF
from constraint_builders.description.table import Table, parse_table
from constraint_builders.description.zeros import EmptyCells

Key: TypeAlias = tuple[Hashable, ...]
LayerTable: TypeAlias = tuple[str, str]
COMPONENT = Info("cholesky", exact=True, reason="one component")
NOTHING = "number"  # the variable of a component that has one number in every area


class TablePart(NamedTuple):
    """What a table has of a component.

    Attributes
    ----------
    block : int
        The table, by its number.
    name : (str, str)
        What that is called in the component's problem.
    weights : ndarray, (areas of the layer * group cells, 1)
        Of an observed table its share in what is measured there, by precision, and the roots of the sizes of groups,
        which turn slots into sums over groups; of a desired one what turns these back.
    """

    block: int
    name: LayerTable
    weights: Float


@dataclass(frozen=True)
class ComponentEstimate:
    """The estimate of a component, which those share whose problems are the same, and how tables are parts of it.

    Attributes
    ----------
    component : Component
    estimate : ConstrainedEstimate
    observed, desired : list of TablePart
        Of the tables that see the component, in the observed and in the desired layout of its problem.
    """

    component: Component
    estimate: ConstrainedEstimate
    observed: list[TablePart]
    desired: list[TablePart]


class ReducedSchema:
    """Groups of the variables that are no contrasts of a component, as a schema of their own.

    Parameters
    ----------
    schema : Schema
    groupings : sequence of Grouping
        Of the variables in use.
    factors : sequence of str
        Variables and recodes in use.
    component : Component
    """

    def __init__(
        self, schema: Schema, groupings: Sequence[Grouping], factors: Sequence[str], component: Component
    ) -> None:
        self._names: dict[str, str] = {}
        recodes: dict[str, dict[str, tuple[int, ...]]] = {}
        sizes: dict[str, int] = {}
        for own in groupings:
            if own.axis in component or own.sizes.size == 1:
                continue
            variable, count = schema.names[own.axis], int(own.sizes.size)
            sizes[variable] = count
            known = {tuple(range(count)): variable, (0,) * count: ""}
            for factor in factors:
                if schema.axis_of(factor) == own.axis:
                    groups = tuple(range(count)) if factor == variable else cells_of_groups(schema, own, factor)[0]
                    if groups not in known:
                        known[groups] = factor
                        recodes.setdefault(variable, {})[factor] = groups
                    self._names[factor] = known[groups]
        self.schema = Schema(sizes or {NOTHING: 1}, recodes)
        self._variables = {schema.axis_of(variable): variable for variable in sizes}

    def name(self, table: Table) -> str:
        """What a table is called whose other variables are summed out, or along which it has contrasts."""
        factors = (self._names.get(factor, "") for factor in table.factors)
        return " * ".join(factor for factor in factors if factor) or "total"

    def zeros(self, zeros: EmptyCells | None, areas: Areas) -> dict[LayerTable, Flags] | None:
        """Cells of leaves that are known to be empty, by a table of the variables that tell them apart."""
        if zeros is None:
            return None
        kept = [self._variables[axis] for axis in zeros.axes if axis in self._variables]
        empty = zeros.empty[areas.members[-1]]
        return {(LEAF, " * ".join(kept) or "total"): empty.reshape(len(empty), *map(self.schema.size_of, kept))}


def equal_variances(problem: Problem) -> list[Float]:
    """The one variance of every table in every area, (areas,) for each table.

    Raises
    ------
    ValueError
        If variances differ within a table of an area, or noise is correlated.
    """
    if problem.geounit_variances is None:
        raise ValueError("components of areas need tables of equal variances in every area")
    return problem.geounit_variances


def component_estimate(
    problem: Problem,
    groupings: Sequence[Grouping],
    slots: Mapping[str, TableSlots],
    component: Component,
    made: dict[Key, ConstrainedEstimate],
) -> ComponentEstimate | None:
    """The estimate of a component that some desired table sees; None where nothing was measured of it, so that it is 0.

    That is where all such tables are of areas without leaves. `made` keeps those of every structure, which problems
    have in common that differ in the sizes of their noise alone: their equations are the same.
    """
    areas, tables = problem.domain.areas, (*problem.observed_tables, *problem.desired_tables)
    factors = sorted({f for table in tables for f in table.factors})
    reduced = ReducedSchema(problem.domain.schema, groupings, factors, component)
    of_places = equal_variances(problem)

    def seeing(levels: Iterable[int], tables: Iterable[Table]) -> dict[LayerTable, list[int]]:
        found: dict[LayerTable, list[int]] = {}
        for block, (level, table) in enumerate(zip(levels, tables, strict=True)):
            if component <= slots[table.name].contrasts:
                found.setdefault((areas.levels[level], reduced.name(table)), []).append(block)
        return found

    def roots(tables: Sequence[Table], blocks: list[int], count: int) -> Float:
        return np.array([np.tile(slots[tables[i].name].roots(component), count) for i in blocks])

    counts = {name: members.size for name, members in zip(areas.levels, areas.members, strict=True)}
    variances: dict[LayerTable, Float] = {}
    observed, desired = list[TablePart](), list[TablePart]()
    for name, blocks in seeing(problem.observed_levels, problem.observed_tables).items():
        scales = roots(problem.observed_tables, blocks, counts[name[0]])
        noise = [np.repeat(of_places[i], scales.shape[1] // counts[name[0]]) for i in blocks]
        variances[name], shares = _together(scales**2 * noise)
        observed += [TablePart(i, name, own[:, None]) for i, own in zip(blocks, scales * shares, strict=True)]
    if not observed:
        return None
    wanted = seeing(problem.desired_levels, problem.desired_tables)
    for name, blocks in wanted.items():
        scales = roots(problem.desired_tables, blocks, counts[name[0]])
        desired += [TablePart(i, name, 1 / own[:, None]) for i, own in zip(blocks, scales, strict=True)]
    known = [np.sign(np.where(np.isinf(own), -1.0, own)).tobytes() for own in variances.values()]
    structure = repr(reduced.schema), *variances, *known, *wanted
    alike = made.get(structure)
    first = _first_of_structure(problem, reduced, variances, wanted) if alike is None else alike.problem
    sizes = np.empty(first.observed.size)
    for name, own in variances.items():
        sizes[first.observed.slice(name)] = own
    key = *structure, sizes.tobytes()
    if key not in made:
        like = first.with_sizes_of_noise(sizes)
        made[key] = made[structure] = ConstrainedEstimate(like, "independent", sparse_solver, COMPONENT, alike)
    return ComponentEstimate(component, made[key], observed, desired)


def _first_of_structure(
    problem: Problem, reduced: ReducedSchema, variances: Mapping[LayerTable, Float], wanted: Iterable[LayerTable]
) -> Problem:
    """A problem of one component; cells that nothing determines as if they had been measured as 0."""
    areas = problem.domain.areas
    observed: dict[str, dict[str, Float]] = {}
    for (layer, name), own in variances.items():
        observed.setdefault(layer, {})[name] = own.reshape(-1, *parse_table(reduced.schema, name).shape)
    desired: dict[str, list[str]] = {}
    for layer, name in wanted:
        desired.setdefault(layer, []).append(name)
    anything_will_do = problem.desired is problem.observed and problem.has_unmeasured  # see `Problem.observing`
    undetermined: Literal["nan", "error"] = "nan" if anything_will_do else "error"
    zeros = reduced.zeros(problem.zeros, areas)
    return Problem(reduced.schema, observed, desired, areas=areas, zeros=zeros, undetermined=undetermined).determined


def _together(own: Float) -> tuple[Float, Float]:
    """The variance of several measurements of the same numbers together, and the weight of each; exact ones decide."""
    exact = own == 0
    with np.errstate(divide="ignore"):
        precisions = np.where(exact.any(axis=0), exact, 1 / own)
        total = precisions.sum(axis=0)
        together = np.where(exact.any(axis=0), 0.0, 1 / total)
    return together, precisions / np.where(total > 0, total, 1.0)
