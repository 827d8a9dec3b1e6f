"""Leaves that lie in the same areas and were measured alike, estimated together.

Let n leaves share all areas but themselves, with the same weights, and have the same tables with the same variances.
What their tables say of one another does not depend on any area, and what areas say of them is about their sum. With x
the sum's estimate over clusters of such leaves, and m_l what a leaf's own tables alone make of it,

    x_l = m_l + (x - sum of m over the cluster) / n,
    Var(x_l) = (1 - 1 / n) Var(m_l) + Var(x) / n^2.

So only the areas, and clusters in place of leaves, are factorised, and the leaves' tables never change basis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blue_solvers.components.batches import chunks
from blue_solvers.components.size import holds_many_times_its_tables
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.clusters import Clusters, zeros_of_leaves
from blue_solvers.crossing_areas.component_problem import equal_variances
from blue_solvers.crossing_areas.leaves_alone import LeavesAloneForm
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Float
from constraint_builders.description.areas import LEAF
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import Table

BLOCK_BYTES = 1 << 20  # of a block of leaves that stays in cache


@dataclass(frozen=True)
class Pair:
    """Where a table's cells are in three layouts.

    Attributes
    ----------
    place, summed : slice
        In the problem's, and in that of the areas and the sums of leaves.
    alone : slice or None
        In that of the leaves alone, if they are leaves'.
    """

    place: slice
    summed: slice
    alone: slice | None


class AlikeLeavesForm:
    """The estimate of a problem by that of the sums of alike leaves; it has the methods of `Components`.

    Parameters
    ----------
    problem : Problem
        For which `areas_refusal` is None.
    clusters : Clusters
        Of this problem.
    make_form : callable, optional
        Makes the estimate of the areas and the sums of alike leaves.
    """

    def __init__(
        self, problem: Problem, clusters: Clusters, make_form: Callable[[Problem], AreaForm] = AreaForm
    ) -> None:
        self._problem, self._clusters = problem, clusters
        self._sums, self._sizes = clusters.sums, clusters.sizes.astype(float)[:, None]
        self._summed, self._alone = self._of_clusters(), self._leaves_alone(clusters.of_leaf.size)
        p, q, a = problem, self._summed, self._alone
        self._observed = self._pairs(p.observed, p.observed_levels, p.observed_tables, q.observed, a.observed)
        self._desired = self._pairs(p.desired, p.desired_levels, p.desired_tables, q.desired, a.desired)
        leaves_wanted = any(pair.alone is not None for pair in self._desired)
        self._is_wide = holds_many_times_its_tables(a, clusters.of_leaf.size)
        self._form, self._alone_form = make_form(q), self._form_alone(a) if leaves_wanted else None
        own = [pair for pair in self._observed if pair.alone is not None]
        self._cut = slice(own[0].place.start, own[-1].place.stop)  # leaves' tables, if they lie as those alone do
        self._lie_together = all(
            (pair.place.start - self._cut.start, pair.place.stop - self._cut.start)
            == (pair.alone.start, pair.alone.stop)
            for pair in own
            if pair.alone is not None
        )

    def _form_alone(self, leaves: Problem) -> TreeForm | LeavesAloneForm:
        """That of the leaves alone."""
        return LeavesAloneForm(leaves) if self._is_wide else TreeForm(StructuredProblem.of(leaves))

    def _layer(self, level: int) -> str:
        """The layer's name; those of single leaves have all the same."""
        return LEAF if level in self._clusters.leaf_levels else self._problem.domain.areas.levels[level]

    def _pairs(
        self, own: Layout, levels: tuple[int, ...], tables: tuple[Table, ...], summed: Layout, alone: Layout
    ) -> list[Pair]:
        found = []
        for block, (level, table) in enumerate(zip(levels, tables, strict=True)):
            name = self._layer(level), table.name
            found.append(Pair(own.block(block), summed.slice(name), alone.slice(name) if name[0] == LEAF else None))
        return found

    def _of_clusters(self) -> Problem:
        """The problem of the other areas, and of clusters as leaves."""
        p, variances, areas = self._problem, equal_variances(self._problem), self._problem.domain.areas
        firsts = np.unique(self._clusters.of_leaf, return_index=True)[1]
        levels = sorted({*p.observed_levels, *p.desired_levels} - self._clusters.leaf_levels)
        layers = {self._layer(level): areas.leaves_of(level)[:, firsts] for level in levels}
        observed: dict[str, dict[str, Float]] = {}
        for level, table, own in zip(p.observed_levels, p.observed_tables, variances, strict=True):
            cells = own[0] * self._sizes[:, 0] if self._layer(level) == LEAF else own
            observed.setdefault(self._layer(level), {})[table.name] = cells
        desired: dict[str, dict[str, None]] = {}
        for level, table in zip(p.desired_levels, p.desired_tables, strict=True):
            desired.setdefault(self._layer(level), {})[table.name] = None
        wanted = {layer: list(own) for layer, own in desired.items()}
        zeros = zeros_of_leaves(p, len(self._sizes))
        return Problem(p.domain.schema, observed, wanted, areas=Areas(len(self._sizes), layers), zeros=zeros)

    def _leaves_alone(self, leaves: int) -> Problem:
        """The problem of the own tables of so many leaves."""
        p, variances = self._problem, equal_variances(self._problem)
        given = zip(p.observed_levels, p.observed_tables, variances, strict=True)
        observed = {table.name: float(own[0]) for level, table, own in given if self._layer(level) == LEAF}
        asked = zip(p.desired_levels, p.desired_tables, strict=True)
        desired = dict.fromkeys(table.name for level, table in asked if self._layer(level) == LEAF)
        spine = Spine(np.concatenate([[-1], np.zeros(leaves, dtype=np.intp)]), ["above"] + [LEAF] * leaves)
        if not desired:  # nothing is asked of them
            observed, desired = dict.fromkeys(observed, 1.0), dict.fromkeys(observed)
        zeros = zeros_of_leaves(p, leaves)
        return Problem(p.domain.schema, {LEAF: observed}, {LEAF: list(desired)}, spine=spine, zeros=zeros)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        X = self._form.apply(self.measured(Y))
        own = Y if self._alone_form is None else self._alone_form.apply(self._of_leaves(Y))
        result = np.empty((self._problem.desired.size, Y.shape[1]))
        for pair in self._desired:
            if pair.alone is None:
                result[pair.place] = X[pair.summed]
            else:
                self._add(own[pair.alone], X[pair.summed], result[pair.place])
        return result

    def violation(self, Y: Float) -> float:
        """That of the areas and the sums of alike leaves, which leaves share without rest."""
        return self._form.violation(self.measured(Y))

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        K = V.shape[1]
        pulls, alone = np.zeros((self._summed.desired.size, K)), np.zeros((self._alone.desired.size, K))
        for pair in self._desired:
            if pair.alone is None:
                pulls[pair.summed] += V[pair.place]
            else:
                pulls[pair.summed] += self._sum(V[pair.place]) / self._repeated(pair)
                alone[pair.alone] += V[pair.place]
        found = self._form.adjoint(pulls)
        own = np.zeros((self._alone.observed.size, K)) if self._alone_form is None else self._alone_form.adjoint(alone)
        result = np.empty((self._problem.observed.size, K))
        for pair in self._observed:
            if pair.alone is None:
                result[pair.place] = found[pair.summed]
            else:
                self._add(own[pair.alone], found[pair.summed], result[pair.place], pulled=True)
        return result

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        found, result = self._form.variances(), np.empty(self._problem.desired.size)
        one = self._leaves_alone(1)
        own = found if self._alone_form is None else self._form_alone(one).variances()
        leaves, sizes = self._clusters.of_leaf.size, self._sizes
        for pair in self._desired:
            if pair.alone is None:
                result[pair.place] = found[pair.summed]
                continue
            alone = own[pair.alone.start // leaves : pair.alone.stop // leaves]
            shared = found[pair.summed].reshape(sizes.size, -1) / sizes**2 + alone * (1 - 1 / sizes)
            np.take(shared, self._clusters.of_leaf, axis=0, out=result[pair.place].reshape(leaves, -1), mode="clip")
        return result

    def measured(self, Y: Float) -> Float:
        """What is measured of the areas and of the sums of alike leaves."""
        result = np.empty((self._summed.observed.size, Y.shape[1]))
        for pair in self._observed:
            result[pair.summed] = Y[pair.place] if pair.alone is None else self._sum(Y[pair.place])
        return result

    def _of_leaves(self, Y: Float) -> Float:
        """What is measured of the leaves."""
        if self._lie_together:
            return Y[self._cut]
        result = np.empty((self._alone.observed.size, Y.shape[1]))
        for pair in self._observed:
            if pair.alone is not None:
                result[pair.alone] = Y[pair.place]
        return result

    def _repeated(self, pair: Pair) -> Float:
        """Leaves of the cluster of every cell of a table of sums, (cells, 1)."""
        cells = pair.summed.stop - pair.summed.start
        return np.repeat(self._sizes, cells // len(self._sizes), axis=0)

    def _sum(self, cells: Float) -> Float:
        """Of alike leaves, (leaves * cells, K) to (clusters * cells, K)."""
        return (self._sums @ cells.reshape(self._sums.shape[1], -1)).reshape(-1, cells.shape[1])

    def _add(self, own: Float, of_sums: Float, result: Float, pulled: bool = False) -> None:
        """To leaves' own what their sums learn, each its part; of the adjoint what sums are pulled by, whole."""
        leaves, clusters = self._sums.shape[::-1]
        rows, learnt = own.reshape(leaves, -1), of_sums.reshape(clusters, -1).copy()
        sums = self._sums @ rows
        if pulled:
            learnt -= sums / self._sizes
        else:
            learnt -= sums
            learnt /= self._sizes
        target = result.reshape(leaves, -1)
        for some in chunks(leaves, max(1, BLOCK_BYTES // (8 * max(1, rows.shape[1])))):
            np.add(rows[some], learnt[self._clusters.of_leaf[some]], out=target[some])
