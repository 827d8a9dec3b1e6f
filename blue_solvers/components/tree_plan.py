"""Everything about a tree problem that does not depend on the data: gains and covariances of every component.

Geounits without children that were measured alike share a class; every other geounit is a class of its own.
Children of one parent and one class share a pair. Coefficients exist once for each class, each geounit with
children and each pair, so millions of leaves cost no more than the geounits above them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.batches import chunks, distinct
from blue_solvers.components.component_products import Component
from blue_solvers.components.grouping import Grouping, group_sums, sees_contrasts
from blue_solvers.components.information import kronecker
from blue_solvers.components.messages import (
    Message,
    Total,
    Update,
    add_up,
    conditional_covariance,
    gain,
    update,
)
from blue_solvers.solver import Float
from constraint_builders import Schema, Spine
from constraint_builders.table import Table, make_table
from constraint_builders.zeros import StructuralZeros

Index = NDArray[np.intp]
STACKED = 1 << 14  # numbers in an array that several components share: beyond, each by itself costs no more
Informations = dict[tuple[str, tuple[bool, ...]], Float | None]


@dataclass
class LevelPlan:
    """The geounits of one geolevel.

    Attributes
    ----------
    members : ndarray of int, (G,)
    tables : list of (block of the observed layout, Table)
    weights : list of ndarray (G,)
        Precision of each table in each geounit; 0 where exact or not measured.
    exact : list of ndarray of bool (G,)
    inner : ndarray of int
        Which members have children.
    zeros : ndarray of bool, (G, ...), or None
        Empty cells over the variables that tell them apart.
    class_of : ndarray of int, (G,)
    leaf_classes : ndarray of int
        Classes of members without children.
    parent_pair : ndarray of int, (G,)
        For every member its pair with its parent; -1 at the root.
    """

    members: Index
    tables: list[tuple[int, Table]]
    weights: list[Float]
    exact: list[NDArray[np.bool_]]
    inner: Index
    zeros: NDArray[np.bool_] | None
    class_of: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    leaf_classes: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    parent_pair: Index = field(default_factory=lambda: np.zeros(0, np.intp))

    @cached_property
    def has_exact(self) -> bool:
        """Whether anything is known exactly in any geounit."""
        return self.zeros is not None or any(flags.any() for flags in self.exact)


@dataclass
class Coefficients:
    """Coefficients of one component, arrays (entries, m, m).

    Attributes
    ----------
    own, own_exact : by class
    children : by geounit with children, over all levels
    gain : by pair
    posterior : by geounit of `posterior_of`: covariance of the estimate
    """

    own: Float
    own_exact: Float
    children: Float
    gain: Float
    posterior: Float


class TreePlan:
    """Classes, pairs and coefficients.

    Parameters
    ----------
    schema : Schema
    spine : Spine
    groupings : list of Grouping
        Of the variables in use.
    tables : list of Table
        Observed tables.
    levels : sequence of int
        Their geolevels.
    variances : list of ndarray (G,)
        Their variances in each geounit; 0 exact, ``inf`` not measured.
    zeros : StructuralZeros or None
        Cells known to be empty; the variables that tell them apart have no contrasts among `groupings`.
    informations : dict, optional
        What tables tell of components, by the table's name and the component's contrasts: plans that have the schema
        and the groupings in common may share it. What is missing is added.

    Attributes
    ----------
    finest : Table
        Of all variables in use.
    """

    def __init__(
        self,
        schema: Schema,
        spine: Spine,
        groupings: list[Grouping],
        tables: list[Table],
        levels: tuple[int, ...],
        variances: list[Float],
        zeros: StructuralZeros | None = None,
        informations: Informations | None = None,
    ) -> None:
        self._schema = schema
        self._zeros = zeros
        self.spine = spine
        self.groupings = groupings
        self.finest = make_table(schema, tuple(schema.names[grouping.axis] for grouping in groupings))
        self._maps: dict[str, list[Float | None]] = {}
        self._informations: Informations = {} if informations is None else informations
        self.levels = [self._level(level, tables, levels, variances) for level in range(len(spine.levels))]
        self.parents = np.flatnonzero(spine.child_counts > 0)  # geounits with children, as `children` lists them
        self.parent_number = np.full(spine.size, -1, dtype=np.intp)
        self.parent_number[self.parents] = np.arange(self.parents.size)
        self.components = list(self._components())
        self._classify()
        self._pair()
        self.coefficients = self._solve_all()

    def _level(self, level: int, tables: list[Table], levels: tuple[int, ...], variances: list[Float]) -> LevelPlan:
        here = [i for i, own in enumerate(levels) if own == level]
        members = self.spine.members[level]
        usable = [np.isfinite(variances[i]) & (variances[i] > 0) for i in here]
        return LevelPlan(
            members,
            [(i, tables[i]) for i in here],
            [
                np.divide(1.0, variances[i], out=np.zeros(members.size), where=ok)
                for i, ok in zip(here, usable, strict=True)
            ],
            [variances[i] == 0 for i in here],
            np.flatnonzero(self.spine.child_counts[members] > 0),
            None if self._zeros is None else self._zeros.empty[members],
        )

    def _classify(self) -> None:
        """Number the classes, of every level those of leaves first; `class_rank` is one geounit's rank of each."""
        ranks: list[Index] = []
        count = 0
        for level in self.levels:
            leaves = np.flatnonzero(self.spine.child_counts[level.members] == 0)
            first, own = self._leaves_alike(level, leaves)
            level.class_of = np.empty(level.members.size, dtype=np.intp)
            level.class_of[leaves] = count + own
            level.class_of[level.inner] = count + first.size + np.arange(level.inner.size)
            level.leaf_classes = count + np.arange(first.size)
            ranks += [leaves[first], level.inner]
            count += first.size + level.inner.size
        self.class_rank = np.concatenate(ranks)

    def _leaves_alike(self, level: LevelPlan, leaves: Index) -> tuple[Index, Index]:
        """Positions among leaves of one of each class, and the class of every leaf.

        Where coefficients are single numbers, a class for every leaf takes less time than telling them apart.
        """
        columns = [column[leaves] for column in (*level.weights, *level.exact)]
        if level.zeros is not None:
            columns += list(level.zeros[leaves].reshape(leaves.size, level.zeros[0].size).T)
        columns = [column for column in columns if column.size and (column != column[0]).any()]
        if not columns:
            return np.arange(min(leaves.size, 1)), np.zeros(leaves.size, dtype=np.intp)
        if sum(component.size**2 for component in self.components) == 1:
            return np.arange(leaves.size), np.arange(leaves.size)
        _, first, own = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
        return first, own.ravel()

    def _pair(self) -> None:
        """Number the pairs (parent, class of child)."""
        parents = [self.spine.parent[level.members] for level in self.levels]
        number = np.concatenate([np.where(above >= 0, self.parent_number[above], -1) for above in parents])
        own = np.concatenate([level.class_of for level in self.levels])
        keys = number * self.class_rank.size + own
        found, pairs = distinct(keys)
        below = found[found >= 0]  # the root has no parent
        self.pair_parent, self.pair_class = np.divmod(below, self.class_rank.size)
        stops = np.cumsum([level.members.size for level in self.levels])[:-1]
        for level, places in zip(self.levels, np.split(pairs - (found.size - below.size), stops), strict=True):
            level.parent_pair = np.maximum(places, -1)

    @cached_property
    def _children_by_class(self) -> sparse.csr_array:
        """Number of children of every class, (geounits with children, classes)."""
        counts = np.concatenate([level.parent_pair for level in self.levels])
        number = np.bincount(counts[counts >= 0], minlength=self.pair_parent.size)
        shape = (self.parents.size, self.class_rank.size)
        return sparse.csr_array((number.astype(float), (self.pair_parent, self.pair_class)), shape=shape)

    def _components(self) -> Iterator[Component]:
        for contrasts in product(*([False, True] if g.has_contrasts else [False] for g in self.groupings)):
            firsts = [g.levels - g.sizes.size for g in self.groupings]
            slots = tuple(slice(0, n) if own else slice(n, None) for own, n in zip(contrasts, firsts, strict=True))
            sizes = [g.sizes.size for g, own in zip(self.groupings, contrasts, strict=True) if not own]
            yield Component(contrasts, slots, int(np.prod(sizes, dtype=np.intp)))

    def factor_map(self, grouping: Grouping, factor: str | None) -> Float | None:
        """The factor's cells from orthonormal group coordinates, (cells, r); None if it sees every slot."""
        if sees_contrasts(self._schema, grouping, factor):
            return None
        return group_sums(self._schema, grouping, factor) * np.sqrt(grouping.sizes)

    def cells_of_levels(self, grouping: Grouping, factor: str | None) -> Index:
        """For every level the factor's cell, (n,); None is the total."""
        return np.zeros(grouping.levels, np.intp) if factor is None else np.array(self._schema.groups_of(factor))

    def table_maps(self, table: Table) -> list[Float | None]:
        """`factor_map` of a table along every variable in use."""
        if table.name not in self._maps:
            factors = dict(zip(table.axes, table.factors, strict=True))
            self._maps[table.name] = [self.factor_map(own, factors.get(own.axis)) for own in self.groupings]
        return self._maps[table.name]

    def table_information(self, table: Table, component: Component) -> Float | None:
        """Information (m, m) of a unit-variance measurement of a table about a component; None if it sees nothing."""
        key = table.name, component.contrasts
        if key not in self._informations:
            self._informations[key] = self._work_out_information(table, component)
        return self._informations[key]

    def _work_out_information(self, table: Table, component: Component) -> Float | None:
        matrices = []
        for grouping, sums, contrast in zip(self.groupings, self.table_maps(table), component.contrasts, strict=True):
            if contrast:
                if sums is not None:
                    return None
            else:
                matrices.append(np.eye(grouping.sizes.size) if sums is None else sums.T @ sums)
        return kronecker(matrices)

    def _solve_all(self) -> list[Coefficients]:
        """Coefficients of every component; those of one size together, as far as they are small."""
        found: dict[int, Coefficients] = {}
        for size in {component.size for component in self.components}:
            alike = [i for i, component in enumerate(self.components) if component.size == size]
            entries = max(self.class_rank.size, self.pair_parent.size)
            for some in chunks(len(alike), max(1, STACKED // (entries * size**2))):
                found |= dict(zip(alike[some], self._solve(alike[some]), strict=True))
        return [found[i] for i in range(len(self.components))]

    def _solve(self, stack: list[int]) -> list[Coefficients]:
        """Going up, messages of all classes and totals of all geounits with children; then gains and posteriors.

        Of components of one size, given by their numbers: arrays (components, entries, m, m).
        """
        m = self.components[stack[0]].size
        by_class = len(stack), self.class_rank.size, m, m
        by_parent = len(stack), self.parents.size, m, m
        message, totals = Message.zeros(by_class), Total.zeros(by_parent)
        own, own_exact, children = np.zeros(by_class), np.zeros(by_class), np.zeros(by_parent)
        for number in reversed(range(len(self.levels))):
            level = self.levels[number]
            inner = level.class_of[level.inner]
            numbers = self.parent_number[level.members[level.inner]]
            total = self._total(message, numbers)
            totals[:, numbers] = total
            for entries, known in ((level.leaf_classes, None), (inner, total)):
                if not entries.size:
                    continue
                result = self._update(stack, number, entries, known)
                message[:, entries] = result.message
                own[:, entries] = result.own
                if result.own_exact is not None:
                    own_exact[:, entries] = result.own_exact
                if result.children is not None:
                    children[:, numbers] = result.children
        child, total = message[:, self.pair_class], totals[:, self.pair_parent]
        gains = gain(child, total)
        posterior = self._posterior(stack, message, child, total, gains)
        return [Coefficients(*parts) for parts in zip(own, own_exact, children, gains, posterior, strict=True)]

    def _total(self, message: Message, numbers: Index) -> Total:
        count, m = len(message.V), message.V.shape[-1]
        counts = self._children_by_class[numbers]
        sums = [
            (counts @ part.swapaxes(0, 1).reshape(-1, count * m * m)).reshape(-1, count, m, m).swapaxes(0, 1)
            for part in (message.V, message.unknown, np.eye(m) - message.exact)
        ]
        return add_up(*sums)

    def _update(self, stack: list[int], number: int, classes: Index, total: Total | None) -> Update:
        m, level = self.components[stack[0]].size, self.levels[number]
        ranks = self.class_rank[classes]
        shape = len(stack), classes.size, m, m
        J, seen = np.zeros(shape), np.zeros(shape)
        J_exact = np.zeros(shape) if level.has_exact else None
        for (_, table), weights, exact in zip(level.tables, level.weights, level.exact, strict=True):
            K = self._stacked_information(table, stack)
            if K is not None:
                J += weights[ranks, None, None] * K
                seen += (weights[ranks, None, None] > 0) * K
                if J_exact is not None:
                    J_exact += exact[ranks, None, None] * K
        if J_exact is not None and level.zeros is not None:
            for i, place in enumerate(stack):
                J_exact[i] += self._empty_information(level.zeros[ranks], self.components[place])
        return update(J, seen, J_exact, total)

    def _stacked_information(self, table: Table, stack: list[int]) -> Float | None:
        """`table_information` about several components, (components, 1, m, m), 0 where it sees nothing."""
        found = [self.table_information(table, self.components[place]) for place in stack]
        if all(K is None for K in found):
            return None
        m = self.components[stack[0]].size
        return np.stack([np.zeros((m, m)) if K is None else K for K in found])[:, None]

    def _empty_information(self, empty: NDArray[np.bool_], component: Component) -> Float:
        """Information of empty cells, (N, m, m): each is one group sum, or several where others are told apart too."""
        assert self._zeros is not None
        kept = [g for g, contrast in zip(self.groupings, component.contrasts, strict=True) if not contrast]
        lengths = [g.sizes.size if g.axis in self._zeros.axes else 1 for g in kept]
        shape = [g.sizes.size for g in kept]
        flags = np.broadcast_to(empty.reshape(len(empty), *lengths), (len(empty), *shape)).reshape(
            len(empty), component.size
        )
        return flags[:, :, None] * np.eye(flags.shape[1])

    def _posterior(self, stack: list[int], message: Message, child: Message, total: Total, gains: Float) -> Float:
        """Covariance of the estimate: of the root first, then of every pair."""
        root = message.V[:, self.levels[0].class_of[:1]]
        posterior = np.concatenate([root, conditional_covariance(child, total)], axis=1)
        for level in self.levels[:-1]:
            here = np.zeros(self.parents.size, dtype=bool)
            here[self.parent_number[level.members[level.inner]]] = True
            pairs = np.flatnonzero(here[self.pair_parent])
            above = posterior[:, self.posterior_of[self.parents[self.pair_parent[pairs]]]]
            posterior[:, pairs + 1] += gains[:, pairs] @ above @ gains[:, pairs].swapaxes(-1, -2)
        return posterior

    @cached_property
    def posterior_of(self) -> Index:
        """For every geounit its entry among the posterior covariances: 0 for the root, then the pairs, (N,)."""
        places = np.zeros(self.spine.size, dtype=np.intp)
        for level in self.levels:
            places[level.members] = level.parent_pair + 1
        return places
