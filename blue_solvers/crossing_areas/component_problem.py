"""The problem of one component: one number, or one for every group cell, in every area.

Under A1 to A3 in each area the components of the schema do not mix, and all cells of one share its problem: the same
areas, and for every table the sums over groups along the variables that have no contrasts. What tables of an area tell
of the same sums is one measurement, weighed by precision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from blue_solvers.components.grouping import Grouping
from blue_solvers.crossing_areas.table_slots import Component, TableSlots, cells_of_groups
from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import LEAF
from constraint_builders.description.table import Table, parse_table
from constraint_builders.description.zeros import EmptyCells

Key: TypeAlias = tuple[Hashable, ...]
LayerTable: TypeAlias = tuple[str, str]
NOTHING = "number"  # the variable of a component that has one number in every area


@dataclass(frozen=True)
class TablePart:
    """A table's part in a measurement of a component's problem.

    Attributes
    ----------
    block : int
        The table, by its number.
    weights : ndarray, (areas of the layer * group cells,)
        Its share in it.
    """

    block: int
    weights: Float


@dataclass(frozen=True)
class ComponentProblem:
    """A component's problem, and how the tables are parts of it.

    Attributes
    ----------
    problem : Problem
    structure : tuple
        What it has in common with those that differ from it in the sizes of their noise alone.
    sources : list of list of TablePart
        For every block of its observed layout.
    place_of : dict of int to int
        For every desired table that sees the component the block of its desired layout.
    """

    problem: Problem
    structure: Key
    sources: list[list[TablePart]]
    place_of: dict[int, int]

    @cached_property
    def key(self) -> Key:
        """What components have in common that share a factorisation."""
        return self.structure, self.problem.variances.tobytes()


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


def anything_will_do(problem: Problem) -> bool:
    """Whether cells are desired that nothing determines, of which any value will do; see `Problem.observing`."""
    return problem.desired is problem.observed and problem.has_unmeasured


def component_problem(
    problem: Problem,
    groupings: Sequence[Grouping],
    slots: Mapping[str, TableSlots],
    component: Component,
    made: dict[Key, Problem],
) -> ComponentProblem | None:
    """The problem of a component that some desired table sees; None where nothing was measured of it, so that it is 0.

    That is where all such tables are of areas without leaves. `made` keeps one problem of every structure.
    """
    areas, schema = problem.domain.areas, problem.domain.schema
    tables = (*problem.observed_tables, *problem.desired_tables)
    reduced = ReducedSchema(schema, groupings, sorted({f for table in tables for f in table.factors}), component)
    measured = _measured(problem, reduced, slots, component)
    if not measured:
        return None
    names = sorted(measured, key=lambda own: areas.level_index(own[0]))  # as blocks come
    together = [_together([own for _, own in measured[name]]) for name in names]
    sources = [
        [TablePart(block, own) for (block, _), own in zip(measured[name], weights, strict=True)]
        for name, (_, weights) in zip(names, together, strict=True)
    ]
    wanted: dict[LayerTable, list[int]] = {}
    for block, (level, table) in enumerate(zip(problem.desired_levels, problem.desired_tables, strict=True)):
        if component <= slots[table.name].contrasts:
            wanted.setdefault((areas.levels[level], reduced.name(table)), []).append(block)
    variances = [own for own, _ in together]
    known = np.concatenate([np.sign(np.where(np.isinf(own), -1.0, own)) for own in variances])
    structure = repr(reduced.schema), *names, None, *wanted, known.tobytes()
    if structure not in made:
        made[structure] = _first_of_structure(problem, reduced, dict(zip(names, variances, strict=True)), wanted)
    own = made[structure].with_sizes_of_noise(np.concatenate(variances))
    return ComponentProblem(
        own, structure, sources, {block: own.desired.index(place) for place in wanted for block in wanted[place]}
    )


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
    undetermined: Literal["nan", "error"] = "nan" if anything_will_do(problem) else "error"
    zeros = reduced.zeros(problem.zeros, areas)
    return Problem(reduced.schema, observed, desired, areas=areas, zeros=zeros, undetermined=undetermined).determined


def _measured(
    problem: Problem, reduced: ReducedSchema, slots: Mapping[str, TableSlots], component: Component
) -> dict[LayerTable, list[tuple[int, Float]]]:
    """The tables that see a component by layer and what they see, each with the variances of that."""
    areas, variances = problem.domain.areas, equal_variances(problem)
    found: dict[LayerTable, list[tuple[int, Float]]] = {}
    for block, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True)):
        own = slots[table.name]
        if component <= own.contrasts:
            cells = variances[block][:, None] * own.roots(component) ** 2
            found.setdefault((areas.levels[level], reduced.name(table)), []).append((block, cells.ravel()))
    return found


def _together(variances: list[Float]) -> tuple[Float, list[Float]]:
    """The variance of several measurements of the same numbers together, and the weight of each; exact ones decide."""
    exact = [own == 0 for own in variances]
    number = np.sum(exact, axis=0)
    precisions = [np.divide(1.0, own, out=np.zeros_like(own), where=own > 0) for own in variances]
    total = np.sum(precisions, axis=0)
    shares = [np.divide(own, total, out=np.zeros_like(own), where=total > 0) for own in precisions]
    weights = [
        np.where(number > 0, is_exact / np.maximum(number, 1), share)
        for is_exact, share in zip(exact, shares, strict=True)
    ]
    together = np.divide(1.0, total, out=np.full_like(total, np.inf), where=total > 0)
    return np.where(number > 0, 0.0, together), weights
