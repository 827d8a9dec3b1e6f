"""The exact estimate over areas that may nest, overlap or cross, of equal variances within each table of an area.

The components of the schema do not mix (`components`): those with contrasts along a set T of variables, and sums over
groups along the others, are a problem of their own over the areas, of one number in each, or of one for every group
cell where recodes are in use. All cells of a component share it, and so do components that the same tables see:

    X_T = Y_T - Sigma_T A_T' (A_T Sigma_T A_T')^-1 A_T Y_T

with one sparse Cholesky factor for all of these. A_T says what holds between the measured areas, as sparse as it
comes. Exact variances are selected entries of the inverse from the same equations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import combinations

import numpy as np

from blue_solvers.components import Components
from blue_solvers.components.assumptions import GENERAL, beyond_assumptions, groupings_in_use, too_many_groups
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import equal_variances
from blue_solvers.contract import Refusal, UnsupportedProblemError
from blue_solvers.crossing_areas.component_problem import (
    MOST_NUMBERS,
    ComponentEstimate,
    Contrasts,
    Key,
    TableSlots,
    component_estimate,
    gathered,
    shared_problems,
    spread,
)
from blue_solvers.normal_equations.noisy_equations import uneven_refusal
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from blue_solvers.threads import Workers
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.areas import LEAF, calls_others_leaves
from constraint_builders.description.layout import Layout

MOST_COMPONENTS = 4_096  # each has a factorisation
LEAST_NOISE = 1e-90  # of the variances of measurements that several make one of, which may not be below 1e-100


class AreaForm(Components):
    """The estimate of tables of areas.

    Parameters
    ----------
    problem : Problem
        For which `areas_refusal` is None.
    groupings : sequence of Grouping, optional
        How the variables are divided, at least as finely as by its own tables, which are the default.
    added : ndarray, (areas,), optional
        To what at least the variance of a cell of an area is added: it needs no more digits than that leaves.
    """

    def __init__(
        self, problem: Problem, groupings: Sequence[Grouping] | None = None, added: Float | None = None
    ) -> None:
        self._problem = problem
        schema, groupings = problem.domain.schema, groupings or groupings_in_use(problem)
        by_axis = {own.axis: own for own in groupings}
        tables = {table.name: table for table in (*problem.observed_tables, *problem.desired_tables)}
        self._slots = {name: TableSlots(schema, by_axis, table) for name, table in tables.items()}
        self._observed = TablesInSlots(problem.observed, [self._slots[table.name] for table in problem.observed_tables])
        self._desired = TablesInSlots(problem.desired, [self._slots[table.name] for table in problem.desired_tables])
        wanted = subsets({own.contrasts for own in self._desired.tables})
        told = [own for own in wanted if any(own <= table.contrasts for table in self._observed.tables)]  # else 0
        made: dict[Key, ConstrainedEstimate] = {}
        self._shared = [
            component_estimate(problem, groupings, self._slots, own, made)
            for own in shared_problems(groupings, self._slots, told)
        ]
        added = np.zeros(problem.domain.areas.size) if added is None else added
        self._variances = cache(partial(_variances_beside, [added[own] for own in problem.domain.areas.members]))

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest disagreement of areas, in sums over groups or contrasts of as many cells."""
        gaps = [0.0]

        def project(own: ComponentEstimate, Y: Float) -> Float:
            """The estimate of a component, (n, K), of what was measured, (n, K)."""
            X, info = own.estimate.apply(Y)
            if not info.exact:
                raise UnsupportedProblemError(
                    "its variances, with the weights of areas, are so unequal that rounding decides what is known "
                    "well: use solver='dense'"
                )
            gaps.append(info.violation or 0.0)
            return X

        return self._by_component(Y, project), max(gaps)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._by_component(V, lambda own, V: own.estimate.adjoint(V), back=True)

    def _by_component(self, X: Float, act: Callable[[ComponentEstimate, Float], Float], back: bool = False) -> Float:
        """Act on the numbers of every component, from observed to desired cells, (n, K) to (m, K), or `back`."""
        tables = (self._observed, self._desired)[:: -1 if back else 1]
        result = np.zeros((tables[1].size, X.shape[1]))

        def carry(part: tuple[ComponentEstimate, slice]) -> None:
            own, run = part
            source, target = (own.observed, own.desired)[:: -1 if back else 1]
            spread(target, found, run, act(own, gathered(source, given, run)))

        with Workers(X.nbytes + result.nbytes) as workers:
            given, found = tables[0].slots(X, workers), tables[1].blocks(result)
            workers.for_each(carry, [(own, run) for own in self._shared for run in own.runs(given)])
            tables[1].to_cells(found, workers)
        return result

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        tables, sizes = self._desired.tables, self._problem.desired.sizes.tolist()
        by_group = [np.zeros((size // own.size, *own.groups)) for own, size in zip(tables, sizes, strict=True)]
        for own in self._shared:
            for component, found in zip(own.components, self._variances_of(own), strict=True):
                for part in own.desired:
                    by_group[part.block] += tables[part.block].shared(found[part.place], component)
        every = (slots.spread_groups(own).ravel() for slots, own in zip(tables, by_group, strict=True))
        return np.concatenate([np.zeros(0), *every])

    def _variances_of(self, own: ComponentEstimate) -> Iterable[Float]:
        """Of every component variances over the desired layout of the problem that they share."""
        return [self._variances(own.estimate)] * len(own.components)


def _variances_beside(added: Sequence[Float], estimate: ConstrainedEstimate) -> Float:
    """Of the desired layout of a shared problem, (m,); to those of each layer is added as much, (areas of it,)."""
    problem = estimate.problem
    blocks = zip(problem.desired_levels, problem.desired.sizes.tolist(), strict=True)
    own = [np.repeat(added[level], size // added[level].size) for level, size in blocks]
    return estimate.variances(np.concatenate(own))


class TablesInSlots:
    """The tables of a layout, in slots."""

    def __init__(self, layout: Layout, tables: Sequence[TableSlots]) -> None:
        self._layout, self.tables, self.size = layout, tables, layout.size

    def blocks(self, X: Float) -> list[Float]:
        """The tables of vectors, (n, K), in their place, each (areas, cells, K)."""
        return [X[self._layout.block(i)].reshape(-1, own.size, X.shape[1]) for i, own in enumerate(self.tables)]

    def slots(self, X: Float, workers: Workers) -> list[Float]:
        """From cells, (n, K), a copy."""
        blocks = self.blocks(np.array(X, order="C"))
        workers.for_each(lambda part: part[0].to_slots(part[1]), self._parts(blocks))
        return blocks

    def to_cells(self, slots: list[Float], workers: Workers) -> None:
        """The inverse, and the transpose, in their place, each (areas, cells, K)."""
        workers.for_each(lambda part: part[0].to_cells(part[1]), self._parts(slots))

    def _parts(self, blocks: list[Float]) -> Iterator[tuple[Basis, Float]]:
        """Some areas of a table at a time, (areas, *shape, K), with its basis; tables are (areas, cells, K)."""
        for own, block in zip(self.tables, blocks, strict=True):
            for part in np.array_split(block, 1 + block.size // MOST_NUMBERS):
                yield own.basis, part.reshape(len(part), *own.shape, block.shape[-1])


def subsets(sets: Iterable[Iterable[int]]) -> list[Contrasts]:
    """All subsets of some sets of variables, small ones first."""
    found = {frozenset(some) for own in map(sorted, sets) for k in range(len(own) + 1) for some in combinations(own, k)}
    return sorted(found, key=lambda some: (len(some), sorted(some)))


def areas_refusal(problem: Problem) -> str | None:
    """Why components do not take a problem, or None: equal variances within every table of an area, or geounit."""
    if (reason := beyond_assumptions(problem, "an area")) is not None:
        return reason
    if any(((own > 0) & (own < LEAST_NOISE)).any() for own in equal_variances(problem)):
        return Refusal(f"it has variances below {LEAST_NOISE:g}, which measurements put together have less of", GENERAL)
    if not problem.has_areas and calls_others_leaves(problem.domain.spine):
        return Refusal(f"its geolevel {LEAF!r} is not of all geounits without children", f"rename it, or {GENERAL}")
    names, divided = problem.domain.schema.names, [own.axis for own in groupings_in_use(problem) if own.has_contrasts]
    seen = {tuple(axis for axis in divided if names[axis] in table.factors) for table in problem.desired_tables}
    count = sum(2 ** len(own) for own in seen)
    if count > MOST_COMPONENTS:
        return Refusal(f"its tables have up to {count:,} components, more than {MOST_COMPONENTS:,}", GENERAL)
    return uneven_refusal(problem) or too_many_groups(problem)
