"""The problem of one component: one number, or one for every group cell, in every area.

Under A1 to A3 in each area the components of the schema do not mix, and all cells of one share its problem: the same
areas, and for every table the sums over groups along the variables that have no contrasts. What tables of an area tell
of the same sums is one measurement, weighed by precision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from blue_solvers.components.component_products import Component
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.structured_problem import equal_variances
from blue_solvers.contract import Info
from blue_solvers.crossing_areas.table_slots import Contrasts, TableSlots
from blue_solvers.normal_equations.factorisation import sparse_solver
from blue_solvers.normal_equations.noisy_equations import equations_of, with_noise_of
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.areas import LEAF
from constraint_builders.description.schema import Recode
from constraint_builders.description.table import Table, factors_of, parse_table
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
    slots : TableSlots
    part : Component
        The component's part of its slots.
    place : slice
        Where that is in a layout of the component's problem.
    weights : ndarray, (areas of the layer * group cells, 1)
        Of an observed table its share in what is measured there, by precision, and the roots of the sizes of groups,
        which turn slots into sums over groups; of a desired one what turns these back.
    """

    block: int
    slots: TableSlots
    part: Component
    place: slice
    weights: Float

    def of(self, slots: Sequence[Float]) -> Float:
        """From slots of all tables, each (areas, *shape, K), to a layout of the component's problem."""
        own = self.part.to_front(slots[self.block][self.part.place], self.part.size)
        return self.weights * own.reshape(self.weights.size, -1)

    def put(self, slots: Sequence[Float], X: Float) -> None:
        """The transpose, into slots."""
        self.part.put_front(slots[self.block][self.part.place], self.weights * X[self.place])


class ComponentEstimate(NamedTuple):
    """The estimate of a component, which those share whose problems are the same, and what tables have of it.

    Attributes
    ----------
    component : Contrasts
    estimate : ConstrainedEstimate
    observed, desired : list of TablePart
        Of the tables that see the component.
    """

    component: Contrasts
    estimate: ConstrainedEstimate
    observed: list[TablePart]
    desired: list[TablePart]


def gathered(parts: Sequence[TablePart], slots: Sequence[Float]) -> Float:
    """What tables in slots have of a component, added up over the layout of its problem."""
    found = [own.of(slots) for own in parts]
    result = np.zeros((max(own.place.stop for own in parts), found[0].shape[1]))
    for own, part in zip(parts, found, strict=True):
        result[own.place] += part
    return result


class ReducedSchema:
    """Groups of the variables that are no contrasts of a component, as a schema of their own.

    Parameters
    ----------
    schema : Schema
    groupings : sequence of Grouping
        Of the variables in use.
    tables : sequence of Table
    component : Contrasts
    """

    def __init__(
        self, schema: Schema, groupings: Sequence[Grouping], tables: Sequence[Table], component: Contrasts
    ) -> None:
        grouped = [own for own in groupings if own.axis not in component and own.sizes.size > 1]
        self._variables = {own.axis: schema.names[own.axis] for own in grouped}
        self._names: dict[str, str] = {}
        self.schema = Schema({schema.names[own.axis]: own.sizes.size for own in grouped} or {NOTHING: 1})
        factors = sorted(factors_of(tables))
        for number, own in enumerate(grouped):
            variable, count = schema.names[own.axis], own.sizes.size
            known = {tuple(range(count)): variable}
            for factor in (name for name in factors if schema.axis_of(name) == own.axis):
                cells = np.arange(count)
                if factor != variable:
                    cells[own.groups] = schema.groups_of(factor)
                groups = tuple(cells.tolist())
                if groups not in known:
                    known[groups] = factor
                    self.schema = self.schema.with_recode(Recode(factor, number, groups, schema.labels_of(factor)))
                self._names[factor] = known[groups]

    def name(self, table: Table) -> str:
        """What a table is called whose other variables are summed out, or along which it has contrasts."""
        return " * ".join(self._names[factor] for factor in table.factors if factor in self._names) or "total"

    def zeros(self, zeros: EmptyCells | None, areas: Areas) -> dict[LayerTable, Flags] | None:
        """Cells of leaves that are known to be empty, by a table of the variables that tell them apart."""
        if zeros is None:
            return None
        kept = [self._variables[axis] for axis in zeros.axes if axis in self._variables]
        empty = zeros.empty[areas.members[-1]]
        return {(LEAF, " * ".join(kept) or "total"): empty.reshape(len(empty), *map(self.schema.size_of, kept))}


def component_estimate(
    problem: Problem,
    groupings: Sequence[Grouping],
    slots: Mapping[str, TableSlots],
    component: Contrasts,
    made: dict[Key, ConstrainedEstimate],
) -> ComponentEstimate | None:
    """The estimate of a component that some desired table sees; None where nothing was measured of it, so that it is 0.

    That is where all such tables are of areas without leaves. `made` keeps those of every structure, which problems
    have in common that differ in the sizes of their noise alone: their equations are the same.
    """
    areas, of_places = problem.domain.areas, equal_variances(problem)
    tables = (*problem.observed_tables, *problem.desired_tables)
    reduced = ReducedSchema(problem.domain.schema, groupings, tables, component)

    def seeing(levels: Iterable[int], tables: Iterable[Table]) -> dict[LayerTable, list[tuple[int, TableSlots, Float]]]:
        """Tables by what they are called, with the roots of the sizes of their groups, of every area."""
        found: dict[LayerTable, list[tuple[int, TableSlots, Float]]] = {}
        for block, (level, table) in enumerate(zip(levels, tables, strict=True)):
            if component <= (own := slots[table.name]).contrasts:
                roots = np.tile(own.roots(component), areas.members[level].size)
                found.setdefault((areas.levels[level], reduced.name(table)), []).append((block, own, roots))
        return found

    given = seeing(problem.observed_levels, problem.observed_tables)
    if not given:
        return None
    wanted = seeing(problem.desired_levels, problem.desired_tables)
    variances, shares = dict[LayerTable, Float](), dict[LayerTable, Float]()
    for name, seen in given.items():
        noise = [roots**2 * np.repeat(of_places[i], roots.size // of_places[i].size) for i, _, roots in seen]
        variances[name], shares[name] = _together(np.array(noise))
    known = [np.sign(np.where(np.isinf(own), -1.0, own)).tobytes() for own in variances.values()]
    structure = *variances, *known, *wanted
    alike = made.get(structure)
    first = alike.problem if alike else _first_of_structure(problem, reduced, variances, wanted)
    sizes = np.empty(first.observed.size)
    for name, own in variances.items():
        sizes[first.observed.slice(name)] = own
    key = *structure, sizes.tobytes()
    if key not in made:
        like = first.with_sizes_of_noise(sizes)
        equations = with_noise_of(like, alike.equations) if alike else equations_of(like, "independent")
        made[key] = made[structure] = ConstrainedEstimate(like, equations, sparse_solver, COMPONENT)
    observed = [
        TablePart(i, own, own.component(component), first.observed.slice(name), (roots * share)[:, None])
        for name, seen in given.items()
        for (i, own, roots), share in zip(seen, shares[name], strict=True)
    ]
    desired = [
        TablePart(i, own, own.component(component), first.desired.slice(name), 1 / roots[:, None])
        for name, seen in wanted.items()
        for i, own, roots in seen
    ]
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
