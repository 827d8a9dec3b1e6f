"""The exact estimate over areas that may nest, overlap or cross, of equal variances within each table of an area.

The components of the schema do not mix (`components`): those with contrasts along a set T of variables, and sums over
groups along the others, are a problem of their own over the areas, of one number in each, or of one for every group
cell where recodes are in use. All cells of a component share it, and so do components that the same tables see:

    X_T = Y_T - Sigma_T A_T' (A_T Sigma_T A_T')^-1 A_T Y_T

with one sparse Cholesky factor for all of these. A_T says what holds between the measured areas, as sparse as it
comes. Exact variances are selected entries of the inverse from the same equations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers.components import Components, TreeForm
from blue_solvers.components.assumptions import GENERAL, beyond_assumptions, groupings_in_use, too_many_groups
from blue_solvers.components.conditioning import NO_CELLS, conditioned
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import StructuredProblem, equal_variances
from blue_solvers.components.tree.tree_form import chunks, sums_of_rows
from blue_solvers.contract import Refusal, UnsupportedProblemError
from blue_solvers.crossing_areas.component_problem import (
    MOST_NUMBERS,
    ComponentEstimate,
    Contrasts,
    Key,
    TableSlots,
    component_estimate,
    shared_problems,
)
from blue_solvers.normal_equations.noisy_equations import uneven_refusal
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from blue_solvers.threads import Workers
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Float, Index, kinds_of_rows
from constraint_builders.description.areas import LEAF, calls_others_leaves
from constraint_builders.description.common_leaves import by_layer
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.layout import Layout
from constraint_builders.relations.marginals import refines

MOST_COMPONENTS = 4_096  # each has a factorisation
LEAST_NOISE = 1e-90  # of the variances of measurements that several make one of, which may not be below 1e-100
LEAST_CELLS = 2**17  # measured: fewer are solved for sooner than two problems are gone through
LEAST_ALIKE = 4  # leaves of a kind, on average: measured too, see `alike_leaves`


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
            target.spread(result, run, act(own, source.gather(given, run)))

        with Workers(X.nbytes + result.nbytes) as workers:
            given = tables[0].slots(X, workers)
            workers.for_each(carry, [(own, run) for own in self._shared for run in own.runs(given)])
            tables[1].to_cells(result, workers)
        return result

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        tables, sizes = self._desired.tables, self._problem.desired.sizes.tolist()
        by_group = [np.zeros((size // own.size, *own.groups)) for own, size in zip(tables, sizes, strict=True)]
        for own in self._shared:
            for component, found in zip(own.components, self._variances_of(own), strict=True):
                for part in own.desired.parts:
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

    def slots(self, X: Float, workers: Workers) -> Float:
        """From cells, (n, K), a copy."""
        slots = np.array(X, order="C")
        workers.for_each(lambda part: part[0].to_slots(part[1]), self._parts(slots))
        return slots

    def to_cells(self, slots: Float, workers: Workers) -> None:
        """The inverse, and the transpose, of slots, (n, K), in their place."""
        workers.for_each(lambda part: part[0].to_cells(part[1]), self._parts(slots))

    def _parts(self, X: Float) -> Iterator[tuple[Basis, Float]]:
        """Some areas of a table at a time, (areas, *shape, K), with its basis, of all tables, (n, K)."""
        for i, own in enumerate(self.tables):
            block = X[self._layout.block(i)].reshape(-1, *own.shape, X.shape[1])
            for some in chunks(len(block), max(1, MOST_NUMBERS * len(block) // block.size)):
                yield own.basis, block[some]


def subsets(sets: Iterable[Iterable[int]]) -> list[Contrasts]:
    """All subsets of some sets of variables, small ones first."""
    found = {frozenset(some) for own in map(sorted, sets) for k in range(len(own) + 1) for some in combinations(own, k)}
    return sorted(found, key=lambda some: (len(some), sorted(some)))


class AlikeLeaves(Components):
    """The estimate of areas of leaves many of which are alike.

    Leaves in the same areas, with the same weights, whose tables have the same variances tell of their sum what the
    sums of their tables tell. So areas are solved for over these sums, and given the sum of n leaves each of them is
    what its own tables say, m, and its share of what the sum says beside those,

        x = m + (x_sum - sum of m) / n,    Var = (1 - 1 / n) Var_m + Var_sum / n^2

    which are the two passes over a tree whose inner nodes are known exactly.

    Parameters
    ----------
    problem : Problem
        For which `areas_refusal` is None.
    layer : str
        Whose areas are the leaves.
    kinds : ndarray of int, (leaves,)
        Which of them are alike; see `alike_leaves`.
    """

    def __init__(self, problem: Problem, layer: str, kinds: Index) -> None:
        self._problem, self._layer, self._kinds, self._of_sums = problem, layer, kinds, f"sums of {layer}"
        first, counts = np.unique(kinds, return_index=True, return_counts=True)[1:]
        self._adding = sparse.csr_array((np.ones(kinds.size), (kinds, np.arange(kinds.size))))
        self._squares = counts**2.0
        names: Any = problem.observed.names, problem.desired.names  # (layer, table)
        schema, areas, wanted = problem.domain.schema, problem.domain.areas, by_layer(names[1])
        given: dict[str, dict[str, Float]] = {name: {} for name in by_layer(names[0])}
        for (name, table), noise in zip(names[0], equal_variances(problem), strict=True):
            given[name][table] = noise
        layers = {
            name: areas.layer(name).incidence[:, first] for name in areas.levels[:-1] if name in {*given, *wanted}
        }
        places = Areas(counts.size, layers | ({layer: np.arange(counts.size)} if layer in layers else {}))
        summed = {table: noise[first] * counts for table, noise in given[layer].items()}
        self._sums = Problem(schema, given | {layer: summed}, wanted, areas=places)
        added = np.zeros(places.size)
        with np.errstate(divide="ignore"):  # no cell is known better than by as much of every table of its leaf
            added[places.members[places.level_index(layer)]] = (counts - 1) / sum([1 / own for own in summed.values()])
        self._above = AreaForm(self._sums, added=added)
        parent = np.concatenate([[-1], np.zeros(counts.size, dtype=np.intp), 1 + kinds])
        spine = Spine(parent, np.repeat(["", self._of_sums, layer], [1, counts.size, kinds.size]).tolist())
        measured = {self._of_sums: dict.fromkeys(wanted[layer], 0.0), layer: given[layer]}
        self._leaves = Problem(schema, measured, {layer: wanted[layer]}, spine=spine)
        self._below = TreeForm(StructuredProblem.of(self._leaves))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._estimate(Y)[0]

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest disagreement of areas, or of leaves with their sum."""
        X, found, gap = self._estimate(Y)
        of_leaves = ((name, own) for name, own in self._problem.desired.tables(X).items() if name[0] == self._layer)
        return X, max([gap, *(abs(sums_of_rows(self._adding, own) - found[name]).max() for name, own in of_leaves)])

    def _estimate(self, Y: Float) -> tuple[Float, dict[Any, Float], float]:
        """P Y, (m, K), estimates of sums by table, and the largest disagreement of areas."""
        given, layer = self._problem.observed.tables(Y), self._layer
        of_leaves = {name: own for name, own in given.items() if name[0] == layer}
        sums = {name: sums_of_rows(self._adding, own) for name, own in of_leaves.items()}
        above, gap = self._above.apply_checked(_vector(self._sums.observed, given | sums))
        found, X = self._sums.desired.tables(above), np.empty((self._problem.desired.size, Y.shape[1]))
        known = [own for name, own in found.items() if name[0] == layer]
        results = self._problem.desired.tables(X)
        for name in [name for name in results if name[0] != layer]:
            results.pop(name)[...] = found[name]
        deque(self._below.passes([*known, *of_leaves.values()], list(results.values())), 0)
        return X, found, gap

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        given, layer = self._problem.desired.tables(V), self._layer
        W = np.zeros((self._problem.observed.size, V.shape[1]))
        results = self._problem.observed.tables(W)
        of_leaves = {name: own for name, own in results.items() if name[0] == layer}
        wanted = {name: own for name, own in given.items() if name[0] == layer}
        known = {name: np.zeros((self._adding.shape[0], *own.shape[1:])) for name, own in wanted.items()}
        deque(self._below.passes(list(wanted.values()), [*known.values(), *of_leaves.values()], transpose=True), 0)
        found = self._sums.observed.tables(self._above.adjoint(_vector(self._sums.desired, given | known)))
        for name, own in results.items():
            own += found[name][self._kinds] if name[0] == layer else found[name]
        return W

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        found = self._sums.desired.tables(self._above.variances())
        for name, given_sum in self._leaves.desired.tables(self._below.variances()).items():
            found[name] = given_sum + (found[name].T / self._squares).T[self._kinds]
        return _vector(self._problem.desired, found).ravel()


def _vector(layout: Layout, tables: Mapping[Any, Float]) -> Float:
    """The tables of a layout, each of areas, (n, ..., K), one after the other, (n, K)."""
    sizes = zip(layout.names, layout.sizes.tolist(), strict=True)
    return np.concatenate([tables[name].reshape(size, -1) for name, size in sizes])


def form_of_areas(problem: Problem) -> Components:
    """The exact estimate of a problem without equalities, for which `areas_refusal` is None."""
    alike = alike_leaves(problem)
    return AreaForm(problem) if alike is None else AlikeLeaves(problem, *alike)


def alike_leaves(problem: Problem) -> tuple[str, Index] | None:
    """The layer of all leaves, and which of them are alike, (leaves,), kinds in order of their first; None if few are.

    It is the one layer of leaves that is measured and wanted, of which one measured table holds all others. Beside
    solving for all areas an apply takes .63 of the CPU time for a state's blocks with a second partition, 18 of a kind,
    at 16 cells each (730,000 cells), and .33 at 2,016. Of its tracts, and of invented areas of 16 and 384 cells:

    ==================  ============  ===========  ==========
    cells               8, 18 and 20  4 of a kind  2
    ==================  ============  ===========  ==========
    15,000 to 60,000    1.1 to 1.3    1.2 to 1.4   1.4 to 1.5
    70,000 to 80,000    .9 to 1.2     1.1 to 1.3   1.4 to 1.5
    125,000 to 160,000  .7 to 1.0     1.0 to 1.1   1.3 to 1.4
    500,000             .5 to .7      1.0          1.4
    ==================  ============  ===========  ==========

    From 125,000 cells on variances take .1 to 1.0 of the time, and to prepare 1.3 to 2 times as long.
    """
    areas, levels = problem.domain.areas, dict.fromkeys((*problem.observed_levels, *problem.desired_levels))
    of_leaves = [level for level in levels if areas.layer(areas.levels[level]).is_of_leaves]
    if problem.observed.size < LEAST_CELLS or problem.has_zeros or problem.has_unmeasured or len(of_leaves) != 1:
        return None
    numbers = [i for i, level in enumerate(problem.observed_levels) if level == of_leaves[0]]
    measured = [problem.observed_tables[i] for i in numbers]
    pairs = zip(problem.desired_levels, problem.desired_tables, strict=True)
    wanted = [table for level, table in pairs if level == of_leaves[0]]
    schema, noise = problem.domain.schema, np.array([equal_variances(problem)[i] for i in numbers])
    if not (wanted and any(all(refines(schema, own, other) for other in measured + wanted) for own in measured)):
        return None
    others = [areas.leaves_of(level) for level in levels if level != of_leaves[0]]
    kinds = kinds_of_rows(sparse.csc_array(sparse.vstack([*others, sparse.csr_array(noise)])))
    return None if LEAST_ALIKE * (kinds.max() + 1) > kinds.size else (areas.levels[of_leaves[0]], kinds)


def exact_form_of_areas(problem: Problem, known: Index = NO_CELLS) -> Components:
    """The exact estimate of a problem for which `areas_refusal` is None, given its equalities.

    Parameters
    ----------
    problem : Problem
        Of areas; of geounits, which are areas that nest; or of a single place, which is an area of one leaf.
    known : ndarray of int, (k,), optional
        Observed cells whose measurement is exact, whatever variance the problem gives them.
    """
    if not problem.has_areas:
        areas, zeros = Areas.from_spine(problem.domain.spine), problem.zeros
        if problem.has_zeros:
            empty = np.zeros((areas.size, *problem.known_empty.empty.shape[1:]), dtype=bool)
            empty[areas.members[-1]] = problem.known_empty.empty[problem.domain.leaves]
            zeros = StructuralZeros.of(problem.domain.schema, problem.zero_axes, empty)
        problem = problem.replace(spine=None, areas=areas, zeros=zeros)
    return conditioned(problem, known, form_of_areas)


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
