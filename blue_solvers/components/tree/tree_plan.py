"""What a tree problem consists of, apart from the data: tables, components, and which geounits are alike.

Childless geounits of one level with the same tables and variances share a class; every other geounit is one by itself.
Children of one parent and one class share a pair. Coefficients exist once for each class, each geounit with children
and each pair, so millions of leaves cost no more than the geounits above them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from scipy import sparse

from blue_solvers.components.component_products import Component, TableMap
from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.splitting import Axes, Division, split
from constraint_builders.arrays import Flags, Float, Index, as_slice, kinds_of_rows
from constraint_builders.description.table import Table, factors_of, make_table

DesignKey = tuple[tuple[int, ...], tuple[tuple[str, float], ...]]
Divisions = dict[DesignKey, Division]


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
    first_class, class_count : int
        Its classes, one after the other; at last those of members with children.
    class_of : ndarray of int, (G,)
    parent_pair : ndarray of int, (G,)
        For every member its pair with its parent; -1 at the root.
    """

    members: Index
    tables: list[tuple[int, Table]]
    weights: list[Float]
    exact: list[Flags]
    inner: Index
    first_class: int = 0
    class_count: int = 0
    class_of: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    parent_pair: Index = field(default_factory=lambda: np.zeros(0, np.intp))


class TreePlan:
    """Classes, pairs and coefficients.

    Parameters
    ----------
    problem : StructuredProblem
        The variables that tell empty cells apart have no contrasts.
    divisions : dict, optional
        How components fall apart, by what tables tell of them (`design_keys`): plans that have the schema and the
        groupings in common may share it. What is missing is added.
    alike : bool
        Whether geounits without children that are alike share a class.
    unmeasured : frozenset of str
        Tables that are listed for how they divide the variables alone, and never measured.

    Attributes
    ----------
    tables : list of Table
        Observed tables.
    groupings : tuple of Grouping
        Of the variables in use.
    finest : Table
        Of all variables in use.
    has_zeros : bool
        Whether some cells may be structural zeros.
    components : list of Component
    design_keys : list of tuple
        What tables tell of each: those of equal keys have all coefficients in common.
    maps : dict of str to TableMap
        What every table, by name, sees of the variables in use.
    levels : list of LevelPlan
    parents : ndarray of int
        Geounits with children; `parent_number` gives every geounit's place among them, or -1.
    pair_parent, pair_class : ndarray of int
        For every pair its parent, by its place among `parents`, and its children's class; in order of these.
    pair_count : ndarray of int
        How many children.
    posterior_of : ndarray of int, (geounits,)
        For every geounit its entry among the posterior covariances: 0 for the root, then pairs.
    """

    def __init__(
        self,
        problem: StructuredProblem,
        divisions: Divisions | None = None,
        alike: bool = True,
        unmeasured: frozenset[str] = frozenset(),
    ) -> None:
        self.schema, self.spine, self._zeros = schema, spine, zeros = problem.schema, problem.spine, problem.zeros
        self.tables, self._unmeasured = list(problem.observed_tables), unmeasured
        tables = [*self.tables, *problem.desired_tables]
        self.groupings = groupings = groupings_of(schema, factors_of(tables), zeros.axes)
        self.finest = make_table(schema, tuple(schema.names[grouping.axis] for grouping in groupings))
        self._divisions: Divisions = {} if divisions is None else divisions
        self.has_zeros = bool(zeros.axes or zeros.empty.any())
        self.levels = [self._level(level, problem) for level in range(len(spine.levels))]
        self.parents = np.flatnonzero(spine.child_counts > 0)
        self.parent_number = np.full(spine.size, -1, dtype=np.intp)
        self.parent_number[self.parents] = np.arange(self.parents.size)
        contrasts = product(*([False, True] if own.has_contrasts else [False] for own in groupings))
        self.components = [Component(groupings, own) for own in contrasts]
        self.maps = {own.name: TableMap(schema, groupings, self.components, own) for own in {*tables, self.finest}}
        self._classify(alike)
        self._pair()

    def _level(self, level: int, problem: StructuredProblem) -> LevelPlan:
        here = [i for i, own in enumerate(problem.observed_levels) if own == level]
        members = self.spine.members[level]
        own = [problem.geounit_variances[i] for i in here]
        noisy = [np.isfinite(variance) & (variance > 0) for variance in own]
        weights = [np.divide(1.0, v, out=np.zeros(members.size), where=ok) for v, ok in zip(own, noisy, strict=True)]
        return LevelPlan(
            members,
            [(i, self.tables[i]) for i in here],
            weights,
            [variance == 0 for variance in own],
            np.flatnonzero(self.spine.child_counts[members] > 0),
        )

    def _classify(self, alike: bool) -> None:
        """Number the classes, of every level those of leaves first; `class_rank` is one geounit's rank of each."""
        ranks: list[Index] = []
        count = 0
        for level in self.levels:
            leaves = np.flatnonzero(self.spine.child_counts[level.members] == 0)
            every = np.arange(leaves.size)
            first, kinds = self._alike(level, leaves) if alike else (every, every)
            level.first_class, level.class_count = count, first.size + level.inner.size
            level.class_of = np.empty(level.members.size, dtype=np.intp)
            level.class_of[leaves] = count + kinds
            level.class_of[level.inner] = count + first.size + np.arange(level.inner.size)
            ranks += [leaves[first], level.inner]
            count += level.class_count
        self.class_rank = np.concatenate(ranks)

    def _alike(self, level: LevelPlan, rows: Index) -> tuple[Index, Index]:
        """Positions among members, (rows,), of a level of one of each kind, by what was measured, and the kind of each.

        Where coefficients are single numbers, a kind for every geounit takes .6 to .9 of the time if most differ.
        """
        some = as_slice(rows)
        columns = [column[some] for column in (*level.weights, *level.exact)]
        columns += list(self._zeros.empty_kinds(level.members[rows]).T) if self.has_zeros else []
        columns = [column for column in columns if column.size and (column != column[0]).any()]
        if not columns:
            return np.arange(min(rows.size, 1)), np.zeros(rows.size, dtype=np.intp)
        if sum(component.size**2 for component in self.components) == 1:
            return np.arange(rows.size), np.arange(rows.size)
        kinds = kinds_of_rows(sparse.csc_array(np.stack(columns)))  # numbered as they come: neighbours lie together
        return np.unique(kinds, return_index=True)[1], kinds

    def _pair(self) -> None:
        """Number the pairs (parent, class of child)."""
        classes = self.class_rank.size
        above = [self.spine.parent[as_slice(level.members)] for level in self.levels]
        numbers = [np.where(own < 0, -1, self.parent_number[own]) for own in above]
        keys = [own * classes + level.class_of for own, level in zip(numbers, self.levels, strict=True)]
        found, pairs = np.unique(np.concatenate(keys), return_inverse=True)
        below = found[1:]  # the root has no parent
        self.pair_parent = below // classes
        self.pair_class = below - self.pair_parent * classes
        self.pair_count = np.bincount(pairs, minlength=found.size)[1:]
        stops = np.cumsum([level.members.size for level in self.levels])[:-1]
        self.posterior_of = np.empty_like(pairs)
        self.posterior_of[np.concatenate([level.members for level in self.levels])] = pairs
        pairs -= 1
        for level, places in zip(self.levels, np.split(pairs, stops), strict=True):
            level.parent_pair = places

    @cached_property
    def class_of(self) -> Index:
        """Of every geounit."""
        found = np.empty_like(self.posterior_of)
        for level in self.levels:
            found[level.members] = level.class_of
        return found

    @property
    def entries(self) -> dict[str | int, int]:
        """How many coefficients there are of every name: by geounit with children, pair, class, `posterior_of`."""
        pairs = self.pair_parent.size
        square = {"children": self.parents.size, "gain": pairs, "root": self.class_rank.size, "posterior": pairs + 1}
        return square | {t: level.class_count for level in self.levels for t, _ in level.tables}

    def pairs_of(self, numbers: Index) -> tuple[Index, Index]:
        """The pairs of some geounits with children, (k,), and the place of each one's parent among these, (pairs,)."""
        firsts, stops = (np.searchsorted(self.pair_parent, numbers, side) for side in ("left", "right"))
        counts = stops - firsts
        starts = np.cumsum(counts) - counts
        return np.repeat(firsts - starts, counts) + np.arange(counts.sum()), np.repeat(np.arange(numbers.size), counts)

    @cached_property
    def design_keys(self) -> list[DesignKey]:
        """See the class."""
        seeing: list[list[tuple[str, float]]] = [[] for _ in self.components]
        speaking = {table.name: table for table in self.tables if table.name not in self._unmeasured}
        for _, table in sorted(speaking.items()):
            own = self.maps[table.name]
            # What its sums along variables of one group multiply a component by:
            scales = [float(W[0, 0]) if W.shape[1] == 1 else 1.0 for W in own.sums]
            for i in own.seen:
                shares = zip(scales, self.components[i].contrasts, strict=True)
                seeing[i].append((table.name, prod(scale for scale, contrast in shares if not contrast)))
        keys = []
        for component, told in zip(self.components, seeing, strict=True):
            axes = zip(self.groupings, component.contrasts, strict=True)
            several = tuple(own.axis for own, contrast in axes if own.sizes.size > 1 and not contrast)
            keys.append((several, tuple(told)))
        return keys

    def division(self, key: DesignKey) -> Division:
        """How the components of a key fall apart."""
        if key not in self._divisions:
            several, seeing = key
            groupings = tuple([g for g in self.groupings if g.axis in several])
            tables = {table.name: table for table in self.tables}
            axes = {name: self._axes(tables[name], groupings, scale) for name, scale in seeing}
            self._divisions[key] = split(axes, self._kinds(groupings))
        return self._divisions[key]

    def _axes(self, table: Table, groupings: tuple[Grouping, ...], scale: float) -> Axes:
        """Cells of a table from group sums along every variable, (cells, r), the first times a number."""
        maps = dict(zip((g.axis for g in self.groupings), self.maps[table.name].sums, strict=True))
        first, *others = [maps[g.axis] for g in groupings] or [np.ones((1, 1))]
        return [scale * first, *others]

    def empty_kinds(self, number: int, ranks: Index) -> Flags:
        """Which kinds of cells are empty at geounits of a level, (N, kinds + 1); the last is so everywhere."""
        empty = self._zeros.empty_kinds(self.levels[number].members[ranks])
        return np.concatenate([empty, np.ones((ranks.size, 1), dtype=bool)], axis=1)

    def _kinds(self, groupings: tuple[Grouping, ...]) -> Index:
        """Of every combination of group sums along some variables the kind by which it is empty."""
        shape = [g.sizes.size for g in groupings]
        lengths = [n if g.axis in self._zeros.axes else 1 for n, g in zip(shape, groupings, strict=True)]
        return np.broadcast_to(self._zeros.kinds.reshape(lengths), shape).ravel()
