"""Areas of leaves many of which are alike: solved for over sums of these, and the leaves given their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers.components import Components, TreeForm
from blue_solvers.components.conditioning import NO_CELLS, conditioned
from blue_solvers.components.structured_problem import StructuredProblem, equal_variances
from blue_solvers.components.tree.tree_form import sums_of_rows
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.threads import Workers
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Float, Index, kinds_of_rows
from constraint_builders.description.common_leaves import by_layer
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.layout import Layout
from constraint_builders.relations.marginals import refines

LEAST_CELLS = 2**17  # measured: fewer are solved for sooner than two problems are gone through
LEAST_ALIKE = 4  # leaves of a kind, on average: measured too, see `alike_leaves`


class LeavesGivenSums(TreeForm):
    """Estimates of geounits without children whose parents, below the root, are known exactly."""

    def between(
        self,
        parents: Float,
        given: list[Float],
        result: list[Float],
        transpose: bool = False,
        by_parent: Sequence[Float] = (),
    ) -> None:
        """From tables of leaves to others, each (G, ..., K), or the transpose; `parents` are used up.

        These are in cells, (parents, ..., K); in their place, where they are 0, the transpose sets what falls to them.
        """
        tables = (given, [parents, *result]) if transpose else ([parents, *given], result)
        with Workers(sum(own.nbytes for own in given + result)) as workers:
            run, last = self._run(*tables, transpose, workers, False, by_parent), len(self.plan.levels) - 1
            held = self._go_up(run, last)
            known, learnt = parents.reshape(run.sums[1:].shape), run.sums[1:]
            self._basis.to_slots(known)
            np.subtract(known, learnt, out=learnt)
            self._go_down(run, last, held)
            if transpose:
                np.negative(learnt, out=known)
                self._basis.to_cells(known)


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
    finest : str
        The table of theirs that holds all others.
    """

    def __init__(self, problem: Problem, layer: str, kinds: Index, finest: str) -> None:
        self._problem, self._layer, self._kinds, self._of_sums = problem, layer, kinds, f"sums of {layer}"
        first, counts = np.unique(kinds, return_index=True, return_counts=True)[1:]
        self._adding = sparse.csr_array((np.ones(kinds.size), (1 + kinds, np.arange(kinds.size))))
        self._squares = counts**2.0
        names: Any = problem.observed.names, problem.desired.names  # (layer, table)
        schema, areas, wanted = problem.domain.schema, problem.domain.areas, by_layer(names[1])
        given: dict[str, dict[str, Float]] = {name: {} for name in by_layer(names[0])}
        for (name, table), noise in zip(names[0], equal_variances(problem), strict=True):
            given[name][table] = noise
        layers = {
            name: areas.layer(name).incidence[:, first] for name in areas.levels[:-1] if name in {*given, *wanted}
        }
        named = zip(problem.desired_tables, names[1], strict=True)
        self._finest = next((name for own, name in named if (own.name, name[0]) == (finest, layer)), (layer, finest))
        places = Areas(counts.size, layers | ({layer: np.arange(counts.size)} if layer in layers else {}))
        summed = {table: noise[first] * counts for table, noise in given[layer].items()}
        of_sums = dict.fromkeys([*wanted[layer], self._finest[1]])
        self._sums = Problem(schema, given | {layer: summed}, wanted | {layer: list(of_sums)}, areas=places)
        added = np.zeros(places.size)
        with np.errstate(divide="ignore"):  # no cell is known better than by as much of every table of its leaf
            added[places.members[places.level_index(layer)]] = (counts - 1) / sum([1 / own for own in summed.values()])
        self._above = AreaForm(self._sums, added=added)
        parent = np.concatenate([[-1], np.zeros(counts.size, dtype=np.intp), 1 + kinds])
        spine = Spine(parent, np.repeat(["", self._of_sums, layer], [1, counts.size, kinds.size]).tolist())
        measured = {self._of_sums: {finest: 0.0}, layer: given[layer]}
        self._leaves = Problem(schema, measured, {layer: wanted[layer]}, spine=spine)
        self._below = LeavesGivenSums(StructuredProblem.of(self._leaves))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._estimate(Y)[0]

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest disagreement of areas, or of leaves with their sum."""
        X, found, gap = self._estimate(Y)
        parts = self._split(self._problem.desired, X)[1].items()
        return X, max(gap, *(abs(sums_of_rows(self._adding, own)[1:] - found[name]).max() for name, own in parts))

    def _split(self, layout: Layout, X: Float) -> tuple[dict[Any, Float], dict[Any, Float]]:
        """Tables of vectors, (n, K), of other areas and of leaves."""
        tables = layout.tables(X)
        of_leaves = {name: own for name, own in tables.items() if name[0] == self._layer}
        return {name: own for name, own in tables.items() if name not in of_leaves}, of_leaves

    def _estimate(self, Y: Float) -> tuple[Float, dict[Any, Float], float]:
        """P Y, (m, K), estimates of sums by table, and the largest disagreement of areas."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        given, leaves = self._split(self._problem.observed, Y)
        others, results = self._split(self._problem.desired, X)
        by_parent = [sums_of_rows(self._adding, own) for own in leaves.values()]
        sums = dict(zip(leaves, (own[1:] for own in by_parent), strict=True))
        above, gap = self._above.apply_checked(self._sums.observed.vector(given | sums))
        found = self._sums.desired.tables(above)
        for name, own in others.items():
            own[...] = found[name]
        known = found[self._finest].copy()
        self._below.between(known, list(leaves.values()), list(results.values()), by_parent=by_parent)
        return X, found, gap

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        U, W = (np.zeros((layout.size, V.shape[1])) for layout in (self._sums.desired, self._problem.observed))
        given, leaves = self._split(self._problem.desired, V)
        others, results = self._split(self._problem.observed, W)
        sums = self._sums.desired.tables(U)
        for name, own in given.items():
            sums[name][...] = own
        self._below.between(sums[self._finest], list(leaves.values()), list(results.values()), transpose=True)
        found = self._sums.observed.tables(self._above.adjoint(U))
        for name, own in others.items():
            own[...] = found[name]
        for name, own in results.items():
            own += found[name][self._kinds]
        return W

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        found = self._sums.desired.tables(self._above.variances())
        for name, given_sum in self._leaves.desired.tables(self._below.variances()).items():
            found[name] = given_sum + (found[name].T / self._squares).T[self._kinds]
        desired = self._problem.desired
        return desired.vector({name: found[name] for name in desired.names})


def form_of_areas(problem: Problem) -> Components:
    """The exact estimate of a problem without equalities, for which `areas_refusal` is None."""
    alike = alike_leaves(problem)
    return AreaForm(problem) if alike is None else AlikeLeaves(problem, *alike)


def alike_leaves(problem: Problem) -> tuple[str, Index, str] | None:
    """The layer of all leaves, and which of them are alike, (leaves,), kinds in order of their first; None if few are.

    It is the one layer of leaves that is measured and wanted, of which one measured table, without recodes, holds all
    others, and is named last. Beside solving for all areas an apply takes .42 of the CPU time for a state's blocks with
    a second partition, 18 of a kind, at 16 cells each (730,000 cells), and .27 at 2,016. Of invented areas of 16 and
    384 cells:

    ==================  ============  ===========  ==========
    cells               18 of a kind  4            2
    ==================  ============  ===========  ==========
    40,000 to 50,000    .8            .8           1.4
    75,000 to 100,000   1.0           .8 to 1.2    .8 to 1.6
    130,000 to 180,000  .6 to .7      .7 to 1.0    .9
    500,000             .4 to .5      .6           .8
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
    whole = (own for own in measured if set(own.factors) <= set(schema.names))
    finest = next((own.name for own in whole if all(refines(schema, own, other) for other in measured + wanted)), "")
    if not (wanted and finest):
        return None
    others = [areas.leaves_of(level) for level in levels if level != of_leaves[0]]
    kinds = kinds_of_rows(sparse.csc_array(sparse.vstack([*others, sparse.csr_array(noise)])))
    return None if LEAST_ALIKE * (kinds.max() + 1) > kinds.size else (areas.levels[of_leaves[0]], kinds, finest)


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
