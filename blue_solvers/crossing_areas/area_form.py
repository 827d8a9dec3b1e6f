"""The exact estimate over areas that may nest, overlap or cross, of equal variances within each table of an area.

The components of the schema do not mix (`components`): those with contrasts along a set T of variables, and sums over
groups along the others, are a problem of their own over the areas, of one number in each, or of one for every group
cell where recodes are in use. All cells of a component share it:

    X_T = Y_T - Sigma_T A_T' (A_T Sigma_T A_T')^-1 A_T Y_T

with one sparse Cholesky factor for every component. A_T says what holds between the measured areas, as sparse as it
comes. Exact variances are selected entries of the inverse from the same equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain, combinations

import numpy as np

from blue_solvers.components.grouping import Grouping
from blue_solvers.components.size import groupings_in_use
from blue_solvers.contract import Info, UnsupportedProblemError
from blue_solvers.crossing_areas.component_problem import ComponentProblem, Key, component_problem
from blue_solvers.crossing_areas.table_slots import Component, TableSlots
from blue_solvers.normal_equations.cell_variances import variances_of_several
from blue_solvers.normal_equations.factorisation import sparse_solver
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table

Blocks = list[Float]
COMPONENT = Info("cholesky", exact=True, reason="one component")


class AreaForm:
    """The estimate of tables of areas; it has the methods of `Components`.

    Parameters
    ----------
    problem : Problem
        For which `areas_refusal` is None.
    groupings : sequence of Grouping, optional
        How the variables are divided, at least as finely as by its own tables, which are the default.
    """

    def __init__(self, problem: Problem, groupings: Sequence[Grouping] | None = None) -> None:
        self._problem = problem
        schema, tables = problem.domain.schema, [*problem.observed_tables, *problem.desired_tables]
        apart = kept_by_all(problem) if groupings is None else frozenset()
        groupings = groupings_in_use(problem) if groupings is None else groupings
        everything = frozenset(range(len(schema.names)))
        asked = [TableSlots(schema, groupings, table, everything) for table in problem.desired_tables]
        wanted: Component = frozenset().union(*(own.contrasts for own in asked))
        self._slots = {table.name: TableSlots(schema, groupings, table, wanted, apart) for table in tables}
        self._components: list[tuple[Component, ComponentProblem, ConstrainedEstimate]] = []
        made: dict[Key, Problem] = {}
        solved: dict[Key, ConstrainedEstimate] = {}
        for component in components_of_tables([self._slots[table.name] for table in problem.desired_tables], apart):
            own = component_problem(problem, groupings, self._slots, component, made)
            if own is None:
                continue
            if own.key not in solved:
                alike = solved.get(own.structure)
                estimate = ConstrainedEstimate(own.problem, "independent", sparse_solver, COMPONENT, alike)
                solved[own.key] = solved[own.structure] = estimate
            self._components.append((component, own, solved[own.key]))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._estimate(Y)[0]

    def violation(self, Y: Float) -> float:
        """Largest disagreement between areas, of any component, in orthonormal contrasts and sums over groups."""
        return self._estimate(Y)[1]

    def _estimate(self, Y: Float) -> tuple[Float, float]:
        p, worst = self._problem, 0.0
        given = self._given(Y)
        found = [np.zeros(self._shape(p.desired.sizes[i], table, Y)) for i, table in enumerate(p.desired_tables)]
        for component, own, estimate in self._components:
            X, info = estimate.apply(self._measured(given, component, own))
            if not info.exact:
                raise UnsupportedProblemError(
                    "its variances, with the weights of areas, are so unequal that rounding decides what is known "
                    "well: use solver='dense'"
                )
            worst = max(worst, info.violation or 0.0)
            for block, place in own.place_of.items():
                slots = self._slots[p.desired_tables[block].name]
                slots.put(found[block], component, X[own.problem.desired.block(place)], -1)
        result = np.empty((p.desired.size, Y.shape[1]))
        for block, table in enumerate(p.desired_tables):
            result[p.desired.block(block)] = self._slots[table.name].cells(found[block]).reshape(-1, Y.shape[1])
        return result, worst

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        p = self._problem
        given = [
            self._slots[table.name].slots(self._cells(V, p.desired.block(i), table))
            for i, table in enumerate(p.desired_tables)
        ]
        pulls = [np.zeros(self._shape(p.observed.sizes[i], table, V)) for i, table in enumerate(p.observed_tables)]
        for component, own, estimate in self._components:
            layout, wanted = own.problem.observed, own.problem.desired
            parts = [
                (wanted.block(place), self._slots[p.desired_tables[block].name].part(given[block], component, -1))
                for block, place in own.place_of.items()
            ]
            U = estimate.adjoint(_put_together(parts, wanted.size))
            for place, sources in enumerate(own.sources):
                for source in sources:
                    slots = self._slots[p.observed_tables[source.block].name]
                    weighed = source.weights[:, None] * U[layout.block(place)]
                    slots.put(pulls[source.block], component, weighed, 1)
        result = np.empty((p.observed.size, V.shape[1]))
        for block, table in enumerate(p.observed_tables):
            result[p.observed.block(block)] = self._slots[table.name].cells(pulls[block]).reshape(-1, V.shape[1])
        return result

    def _given(self, Y: Float) -> Blocks:
        """Observed tables in slots."""
        p = self._problem
        return [
            self._slots[table.name].slots(self._cells(Y, p.observed.block(i), table))
            for i, table in enumerate(p.observed_tables)
        ]

    def _measured(self, given: Blocks, component: Component, own: ComponentProblem) -> Float:
        """What the tables tell of a component, over the observed layout of its problem."""
        layout = own.problem.observed
        parts = []
        for place, sources in enumerate(own.sources):
            for source in sources:
                slots = self._slots[self._problem.observed_tables[source.block].name]
                part = slots.part(given[source.block], component, 1)
                parts.append((layout.block(place), source.weights[:, None] * part))
        return _put_together(parts, layout.size)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        p = self._problem
        by_group = [
            np.zeros((int(size) // table.size, *self._slots[table.name].grouped_shape(frozenset())))
            for size, table in zip(p.desired.sizes, p.desired_tables, strict=True)
        ]
        for component, own, _ in self._components:
            found = self._component_variances(component, own)
            for block, place in own.place_of.items():
                slots = self._slots[p.desired_tables[block].name]
                by_group[block] = by_group[block] + slots.shared(found[own.problem.desired.block(place)], component)
        result = np.empty(p.desired.size)
        for block, table in enumerate(p.desired_tables):
            cells = self._slots[table.name].spread_groups(by_group[block])
            result[p.desired.block(block)].reshape(cells.shape)[...] = cells
        return result

    def _component_variances(self, component: Component, own: ComponentProblem) -> Float:
        """Variances over the desired layout of a component's problem."""
        return self._variances_of[own.key]

    @cached_property
    def _variances_of(self) -> dict[Key, Float]:
        """By the key of a component's problem the variances of its desired cells."""
        distinct = {own.key: estimate for _, own, estimate in self._components}
        return dict(zip(distinct, variances_of_several([own.sums for own in distinct.values()]), strict=True))

    def _cells(self, X: Float, place: slice, table: Table) -> Float:
        return X[place].reshape(-1, *table.shape, X.shape[1])

    def _shape(self, size: int, table: Table, X: Float) -> tuple[int, ...]:
        return (int(size) // table.size, *self._slots[table.name].shape, X.shape[1])


def _put_together(parts: list[tuple[slice, Float]], size: int) -> Float:
    """Rows of a layout of so many, each the sum of the parts that are put there."""
    result = np.zeros((size, parts[0][1].shape[1]))
    for place, part in parts:
        result[place] += part
    return result


def kept_by_all(problem: Problem) -> Component:
    """Variables that all tables keep by the same factor: what is measured and wanted of each of its cells is the same.

    Not those whose levels zeros tell apart.
    """
    tables = [*problem.observed_tables, *problem.desired_tables]
    alike = frozenset.intersection(*(frozenset(zip(own.axes, own.factors, strict=True)) for own in tables))
    return frozenset(axis for axis, _ in alike) - frozenset(problem.zero_axes)


def components_of_tables(tables: list[TableSlots], apart: Component) -> list[Component]:
    """All components that some of the tables see, those of few contrasts first; each has the variables `apart`."""
    seen = {
        apart.union(chosen)
        for contrasts in {own.contrasts - apart for own in tables}
        for chosen in chain.from_iterable(combinations(sorted(contrasts), k) for k in range(len(contrasts) + 1))
    }
    return sorted(seen, key=lambda component: (len(component), sorted(component)))
