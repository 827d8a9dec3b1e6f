"""The problems of components: one number, or one for every group cell, in every area.

Under A1 to A3 in each area the components of the schema do not mix, and all cells of one share its problem: the same
areas, and for every table the sums over groups along the variables that have no contrasts. What tables of an area tell
of the same sums is one measurement, weighed by precision.

In units in which a contrast counts as the sum of all levels does, components that the same tables see differ in
nothing but what has contrasts along a variable with several groups: they share one problem.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from blue_solvers.components.component_products import Component
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import equal_variances
from blue_solvers.contract import Info
from blue_solvers.normal_equations.factorisation import sparse_solver
from blue_solvers.normal_equations.noisy_equations import equations_of, with_noise_of
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.areas import LEAF
from constraint_builders.description.domain import EmptyCells
from constraint_builders.description.schema import Recode
from constraint_builders.description.table import Table, factors_of, parse_table

Contrasts: TypeAlias = frozenset[int]  # the variables along which a component has contrasts, by their axes
Key: TypeAlias = tuple[Hashable, ...]
LayerTable: TypeAlias = tuple[str, str]
COMPONENT = Info("cholesky", exact=True, reason="components that share a problem")
NOTHING = "number"  # the variable of a component that has one number in every area
MOST_NUMBERS = 2**18  # of components, in all areas, that are solved for at once, or, where that is more,
LEAST_PART = 32  # one in so many of all: fewer would be gathered from a bit of every page of memory


class TableSlots:
    """A table's cells in orthonormal slots along every variable that it keeps whole, and what components have of these.

    Along such a variable contrasts come first, then a sum over every group by the root of its size.

    Parameters
    ----------
    schema : Schema
    groupings : mapping of int to Grouping
        How every variable in use is divided, by its axis. Cells of a recode stay as they are, each a group of its own.
    table : Table
        In the schema's order.

    Attributes
    ----------
    shape : tuple of int
    size : int
    groups : tuple of int
        Number of groups along every axis.
    contrasts : Contrasts
        The variables along which it has contrasts.
    basis : Basis
        From cells (G, *shape, K) to slots and back, in place.
    """

    def __init__(self, schema: Schema, groupings: Mapping[int, Grouping], table: Table) -> None:
        self.shape, self.size = table.shape, table.size
        self._axes = [
            groupings[axis] if factor == schema.names[axis] else Grouping(axis, np.arange(length))
            for axis, factor, length in zip(table.axes, table.factors, table.shape, strict=True)
        ]
        self.groups = tuple(own.sizes.size for own in self._axes)
        self.contrasts = frozenset(own.axis for own in self._axes if own.has_contrasts)
        self.basis = Basis(self._axes)

    def places(self, component: Contrasts) -> Index:
        """Which of its slots a component has, (group cells, contrasts)."""
        own = Component(self._axes, [axis.axis in component for axis in self._axes])
        return own.to_front(np.arange(self.size).reshape(1, *self.shape, 1)[own.place])[0]

    def roots(self, component: Contrasts) -> Float:
        """What turns slots into sums over groups, of every group cell, and contrasts into units of all levels."""
        return _outer([np.sqrt(own.levels if own.axis in component else own.sizes) for own in self._axes]).ravel()

    def shared(self, variances: Float, component: Contrasts) -> Float:
        """What a component's variances, (G * group cells,), are of a cell's, (G, *groups along every axis)."""
        pairs = [(own, own.axis in component) for own in self._axes]
        shares = _outer([(1 - 1 / own.sizes) / own.levels if contrast else 1 / own.sizes**2 for own, contrast in pairs])
        return variances.reshape(-1, *(1 if contrast else own.sizes.size for own, contrast in pairs)) * shares

    def spread_groups(self, by_group: Float) -> Float:
        """From (G, *groups along every axis) to (G, *shape): every level has what its group has."""
        for i, own in enumerate(self._axes, start=1):
            by_group = np.take(by_group, own.groups, axis=i)
        return by_group


def _outer(factors: Sequence[Float]) -> Float:
    """Products of the entries of some vectors, (a, b, ...) from (a,), (b,), ..."""
    return reduce(np.multiply.outer, factors, np.ones(()))


class TablePart(NamedTuple):
    """What a table has of components that share a problem.

    Attributes
    ----------
    block : int
        The table, by its number.
    slots : ndarray of int, (group cells, contrasts)
        Where that is in its slots, the contrasts of one component after those of another.
    place : slice
        Where it is in a layout of the shared problem.
    weights : ndarray, (areas of the layer * group cells, 1)
        Of an observed table its share in what is measured there, by precision, and what turns slots into sums over
        groups; of a desired one what turns these back.
    """

    block: int
    slots: Index
    place: slice
    weights: Float


class ComponentEstimate(NamedTuple):
    """The estimate of components that share a problem, and what tables have of them.

    Attributes
    ----------
    components : list of Contrasts
    estimate : ConstrainedEstimate
    observed, desired : list of TablePart
        Of the tables that see the components.
    """

    components: list[Contrasts]
    estimate: ConstrainedEstimate
    observed: list[TablePart]
    desired: list[TablePart]

    def runs(self, slots: Sequence[Float]) -> Iterator[slice]:
        """Contrasts of all components, of slots (areas, cells, K), as many at once as there is room for."""
        most = max(MOST_NUMBERS, sum(own.size for own in slots) // LEAST_PART)
        width = max(1, most // (self.estimate.problem.observed.size * slots[0].shape[-1]))
        return (slice(start, start + width) for start in range(0, self.observed[0].slots.shape[1], width))


def gathered(parts: Sequence[TablePart], slots: Sequence[Float], run: slice = slice(None)) -> Float:
    """From slots of all tables, each (areas, cells, K), to a layout of a shared problem: what is there is added up."""
    width = parts[0].slots[0, run].size * slots[0].shape[-1]
    result = np.zeros((max(own.place.stop for own in parts), width))
    for own in parts:
        result[own.place] += own.weights * slots[own.block].take(own.slots[:, run].ravel(), axis=1).reshape(-1, width)
    return result


def spread(parts: Sequence[TablePart], slots: Sequence[Float], run: slice, X: Float) -> None:
    """The transpose of `gathered`, from (numbers, contrasts * K) into slots of all tables, (areas, cells, K)."""
    for own in parts:
        table, places = slots[own.block], own.slots[:, run]
        table[:, places] = (own.weights * X[own.place]).reshape(len(table), *places.shape, -1)


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

    def zeros(self, zeros: EmptyCells, areas: Areas) -> dict[LayerTable, Flags]:
        """Cells of leaves that are structural zeros, by a table of the variables that tell them apart."""
        kept = [self._variables[axis] for axis in zeros.axes if axis in self._variables]
        empty = zeros.empty[areas.members[-1]]
        return {(LEAF, " * ".join(kept) or "total"): empty.reshape(len(empty), *map(self.schema.size_of, kept))}


def shared_problems(
    groupings: Sequence[Grouping], slots: Mapping[str, TableSlots], components: Iterable[Contrasts]
) -> Iterable[list[Contrasts]]:
    """Components, those together that share a problem: the same tables see them, and the same groups are summed."""
    recoded = {own.axis for own in groupings if own.sizes.size > 1}
    found: dict[Key, list[Contrasts]] = {}
    for component in components:
        seen = (name for name, own in slots.items() if component <= own.contrasts)
        found.setdefault((component & recoded, *seen), []).append(component)
    return found.values()


def component_estimate(
    problem: Problem,
    groupings: Sequence[Grouping],
    slots: Mapping[str, TableSlots],
    components: list[Contrasts],
    made: dict[Key, ConstrainedEstimate],
) -> ComponentEstimate:
    """The estimate of components that share a problem; see `shared_problems`.

    `made` keeps those that are the same for others, and one of every structure, which problems have in common that
    differ in the sizes of their noise alone: their equations are the same.
    """
    component, areas, of_places = components[0], problem.domain.areas, equal_variances(problem)
    tables = (*problem.observed_tables, *problem.desired_tables)
    reduced = ReducedSchema(problem.domain.schema, groupings, tables, component)
    parts = {
        name: (np.concatenate([own.places(each) for each in components], axis=1), own.roots(component))
        for name, own in slots.items()
        if component <= own.contrasts
    }

    def seeing(levels: Sequence[int], tables: Sequence[Table]) -> dict[LayerTable, list[tuple[int, Index, Float]]]:
        """Tables by what they are called, as layouts have them, with what turns their slots into sums over groups."""
        found: dict[LayerTable, list[tuple[int, Index, Float]]] = {}
        for level, block in sorted(zip(levels, range(len(levels)), strict=True)):
            if (table := tables[block]).name in parts:
                places, roots = parts[table.name]
                own = block, places, np.tile(roots, areas.members[level].size)
                found.setdefault((areas.levels[level], reduced.name(table)), []).append(own)
        return found

    given = seeing(problem.observed_levels, problem.observed_tables)
    wanted = seeing(problem.desired_levels, problem.desired_tables)
    variances, shares = dict[LayerTable, Float](), list[Float]()
    for name, seen in given.items():
        noise = [roots**2 * np.repeat(of_places[i], roots.size // of_places[i].size) for i, _, roots in seen]
        variances[name], share = together(np.array(noise))
        shares.append(share)
    sizes = np.concatenate(list(variances.values()))
    structure = *given, *wanted, np.sign(np.where(np.isinf(sizes), -1.0, sizes)).tobytes()
    if (key := (*structure, sizes.tobytes())) not in made:
        alike = made.get(structure)
        like = alike.problem.with_sizes_of_noise(sizes) if alike else _first_of(problem, reduced, variances, wanted)
        equations = with_noise_of(like, alike.equations) if alike else equations_of(like, "independent")
        made[key] = made[structure] = ConstrainedEstimate(like, equations, sparse_solver, COMPONENT)
    of_observed, of_desired = made[key].problem.observed, made[key].problem.desired
    observed = [
        TablePart(i, places, of_observed.block(k), (roots * share)[:, None])
        for k, seen in enumerate(given.values())
        for (i, places, roots), share in zip(seen, shares[k], strict=True)
    ]
    desired = [
        TablePart(i, places, of_desired.block(k), 1 / roots[:, None])
        for k, seen in enumerate(wanted.values())
        for i, places, roots in seen
    ]
    return ComponentEstimate(components, made[key], observed, desired)


def _first_of(
    problem: Problem, reduced: ReducedSchema, variances: Mapping[LayerTable, Float], wanted: Iterable[LayerTable]
) -> Problem:
    """A problem of one component, of variances (cells,); cells that are not estimable as if measured as 0."""
    areas, schema = problem.domain.areas, reduced.schema
    given = {
        (layer, name): own.reshape(-1, *parse_table(schema, name).shape) for (layer, name), own in variances.items()
    }
    observed = {layer: {name: given[own, name] for own, name in given if own == layer} for layer, _ in given}
    desired = {layer: [name for own, name in wanted if own == layer] for layer, _ in wanted}
    arbitrary_allowed = problem.desired is problem.observed and problem.has_unmeasured  # see `Problem.observing`
    undetermined: Literal["nan", "error"] = "nan" if arbitrary_allowed else "error"
    zeros = reduced.zeros(problem.known_empty, areas) if problem.has_zeros else None
    return Problem(schema, observed, desired, areas=areas, zeros=zeros, undetermined=undetermined).determined


def together(own: Float) -> tuple[Float, Float]:
    """The variance of several measurements of the same numbers together, and the weight of each; exact ones decide."""
    exact = own == 0
    with np.errstate(divide="ignore"):
        precisions = np.where(exact.any(axis=0), exact, 1 / own)
        total = precisions.sum(axis=0)
        together = np.where(exact.any(axis=0), 0.0, 1 / total)
    return together, precisions / np.where(total > 0, total, 1.0)
