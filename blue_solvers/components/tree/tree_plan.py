"""What a tree problem consists of, apart from the data: tables, components, and which geounits are alike.

Geounits without children that were measured alike share a class, and so do those with children that are alike in all
that coefficients depend on (`families`). Children of one parent and one class share a pair. Coefficients exist once for
each class, each family and each pair of a family, so millions of leaves cost no more than the geounits above them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import TypeVar

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import chunks, distinct
from blue_solvers.components.component_products import Component
from blue_solvers.components.grouping import Grouping, group_sums, groupings_of, sees_contrasts
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.families import Families, alike_with_children
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.splitting import Axes, Division, split
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index, as_slice
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table, make_table
from constraint_builders.description.zeros import EmptyCells

T = TypeVar("T")
STACKED = 1 << 18  # numbers in an array that several components share: beyond, each by itself costs no more
DesignKey = tuple[tuple[int, ...], tuple[tuple[str, float], ...]]
Divisions = dict[DesignKey, Division]


class TreePlan:
    """Classes, pairs and coefficients.

    Parameters
    ----------
    schema : Schema
    spine : LevelledTree
    groupings : list of Grouping
        Of the variables in use.
    tables : list of Table
        Observed tables.
    levels : sequence of int
        Their geolevels.
    variances : list of ndarray (G,)
        Their variances in each geounit; 0 exact, ``inf`` not measured.
    zeros : EmptyCells or None
        Cells known to be empty; the variables that tell them apart have no contrasts among `groupings`.
    divisions : dict, optional
        How components fall apart, by what tables tell of them (`design_key`): plans that have the schema and the
        groupings in common may share it. What is missing is added.
    alike : bool
        Whether geounits that are alike share a class.
    silent : frozenset of str
        Tables that are listed for how they divide the variables alone, and never measured.

    Attributes
    ----------
    schema : Schema
    finest : Table
        Of all variables in use.
    components : list of Component
    levels : list of LevelPlan
    parents : ndarray of int
        Geounits with children; `parent_number` gives every geounit's place among them, or -1.
    pair_parent, pair_class : ndarray of int
        For every pair its parent, by its place among `parents`, and its children's class; in order of these.
    """

    def __init__(
        self,
        schema: Schema,
        spine: LevelledTree,
        groupings: list[Grouping],
        tables: list[Table],
        levels: tuple[int, ...],
        variances: list[Float],
        zeros: EmptyCells | None = None,
        divisions: Divisions | None = None,
        alike: bool = True,
        silent: frozenset[str] = frozenset(),
    ) -> None:
        self.tables = tables
        self._silent = silent
        self.schema = schema
        self._zeros = zeros
        self.spine = spine
        self.groupings = groupings
        self.finest = make_table(schema, tuple(schema.names[grouping.axis] for grouping in groupings))
        self._maps: dict[str, list[Float | None]] = {}
        self._seen: dict[tuple[str, tuple[bool, ...]], bool] = {}
        self._divisions: Divisions = {} if divisions is None else divisions
        self.levels = [self._level(level, tables, levels, variances) for level in range(len(spine.levels))]
        self.parents = np.flatnonzero(spine.child_counts > 0)
        self.parent_number = np.full(spine.size, -1, dtype=np.intp)
        self.parent_number[self.parents] = np.arange(self.parents.size)
        self.components = list(self._components())
        self._classify(alike)
        self._pair()

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

    def _classify(self, alike: bool) -> None:
        """Number the classes, of every level those of leaves first; `class_rank` is one geounit's rank of each."""
        leaves = [np.flatnonzero(self.spine.child_counts[level.members] == 0) for level in self.levels]
        kinds = [
            self._alike(level, rows) if alike else (np.arange(rows.size), np.arange(rows.size))
            for level, rows in zip(self.levels, leaves, strict=True)
        ]
        inner_kinds = self._inner_alike(leaves, kinds) if alike else [np.arange(own.inner.size) for own in self.levels]
        ranks: list[Index] = []
        count = 0
        for level, rows, (first, own), kind in zip(self.levels, leaves, kinds, inner_kinds, strict=True):
            _, first_inner, own_inner = np.unique(kind, return_index=True, return_inverse=True)
            level.class_of = np.empty(level.members.size, dtype=np.intp)
            level.class_of[rows] = count + own
            level.class_of[level.inner] = count + first.size + own_inner
            level.leaf_classes = count + np.arange(first.size)
            level.inner_classes = count + first.size + np.arange(first_inner.size)
            level.first_class, level.class_count = count, first.size + first_inner.size
            ranks += [rows[first], level.inner[first_inner]]
            count += level.class_count
        self.class_rank = np.concatenate(ranks)

    def _inner_alike(self, leaves: list[Index], kinds: list[tuple[Index, Index]]) -> list[Index]:
        """For every geounit with children, by level, a number that those share that have all coefficients in common.

        Where coefficients are single numbers, one for every geounit takes less time than telling them apart.
        """
        if all(component.size == 1 for component in self.components):
            return [np.arange(level.inner.size) for level in self.levels]
        own = np.empty(self.spine.size, dtype=np.intp)
        for level, rows, (first, kind) in zip(self.levels, leaves, kinds, strict=True):
            own[level.members[rows]] = level.members[rows[first]][kind]
            first, kind = self._alike(level, level.inner)
            own[level.members[level.inner]] = level.members[level.inner[first]][kind]
        found = alike_with_children(self.spine, own)
        return [found[level.members[level.inner]] for level in self.levels]

    def _alike(self, level: LevelPlan, rows: Index) -> tuple[Index, Index]:
        """Positions among members of a level of one of each kind, by what was measured, and the kind of each.

        Where coefficients are single numbers, a kind for every geounit takes less time than telling them apart.
        """
        columns = [column[as_slice(rows)] for column in (*level.weights, *level.exact)]
        if self._zeros is not None:
            columns += list(self._zeros.empty_kinds(level.members[rows]).T)
        columns = [column for column in columns if column.size and (column != column[0]).any()]
        if not columns:
            return np.arange(min(rows.size, 1)), np.zeros(rows.size, dtype=np.intp)
        if sum(component.size**2 for component in self.components) == 1:
            every = np.arange(rows.size)
            return every, every
        _, first, own = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
        return first, own.ravel()

    def _pair(self) -> None:
        """Number the pairs (parent, class of child)."""
        classes = self.class_rank.size
        keys = np.empty(self.spine.size, dtype=np.intp)
        start = 0
        for level in self.levels:
            own = keys[start : start + level.members.size]
            above = self.spine.parent[as_slice(level.members)]
            np.take(self.parent_number, above, out=own, mode="clip")  # numpy copies unless it may clip
            own[above < 0] = -1
            own *= classes
            own += level.class_of
            start += own.size
        found, pairs = distinct(keys)
        below = found[1:]  # the root has no parent
        self.pair_parent = below // classes
        self.pair_class = below - self.pair_parent * classes
        stops = np.cumsum([level.members.size for level in self.levels])[:-1]
        pairs -= 1
        for level, places in zip(self.levels, np.split(pairs, stops), strict=True):
            level.parent_pair = places

    @cached_property
    def class_of(self) -> Index:
        """Of every geounit."""
        class_of = np.empty(self.spine.size, dtype=np.intp)
        for level in self.levels:
            class_of[level.members] = level.class_of
        return class_of

    @cached_property
    def families(self) -> Families:
        """Geounits with children, and pairs, that have coefficients in common."""
        pairs = np.concatenate([level.parent_pair for level in self.levels])
        counts = np.bincount(pairs[pairs >= 0], minlength=self.pair_parent.size)
        return Families.of(self.parents, self.class_of, self.pair_parent, self.pair_class, counts)

    def inner_families(self, number: int) -> Index:
        """Of the classes of a level's geounits with children the families."""
        level = self.levels[number]
        ranks = self.class_rank[level.inner_classes]
        return self.families.of_parent[self.parent_number[level.members[ranks]]]

    def sums_of_children(self, numbers: Index, *by_class: Float | Flags) -> list[Float]:
        """Sums over the children of some families, (components, families), of values by class."""
        pairs, starts = self.families.pairs_of(numbers)
        classes, counts = as_slice(self.families.child_class[pairs]), self.families.count[pairs].astype(float)
        shape = numbers.size, counts.size
        adding = sparse.csr_array((counts, np.arange(counts.size), starts), shape=shape)
        nothing = np.zeros((len(by_class[0]), numbers.size))
        return [(adding @ own[:, classes].T.astype(float, copy=False)).T if own.any() else nothing for own in by_class]

    def sums_of_pairs(self, by_pair: Float) -> Float:
        """Sums over the pairs of every family."""
        return np.add.reduceat(by_pair, self.families.starts[:-1], axis=1)

    @cached_property
    def pairs_by_level(self) -> list[Index]:
        """Pairs of families in every geolevel that has such, from the root down."""
        smallest = np.min_scalar_type(len(self.levels))
        levels = self.spine.level_of[self.families.geounits].astype(smallest)[self.families.parent]
        return [np.flatnonzero(levels == number) for number in range(len(self.levels) - 1)]

    def bounded(self, number: int, classes: Index, below: Mapping[int, object]) -> Iterator[tuple[int, int]]:
        """Classes of a level, each with its geounit, of which a message comes from below."""
        if below:
            for own in classes.tolist():
                geounit = int(self.levels[number].members[self.class_rank[own]])
                if geounit in below:
                    yield own, geounit

    def stacks(self, items: Sequence[T], size: int) -> list[Sequence[T]]:
        """Components or parts of them, of one size, in lots that are worked out together as far as they are small."""
        entries = max(self.class_rank.size, self.families.parent.size)
        count = max(1, STACKED // (entries * size**2))
        return [items[some] for some in chunks(len(items), count)]

    def _components(self) -> Iterator[Component]:
        for contrasts in product(*([False, True] if g.has_contrasts else [False] for g in self.groupings)):
            firsts = [g.levels - g.sizes.size for g in self.groupings]
            slots = tuple(slice(0, n) if own else slice(n, None) for own, n in zip(contrasts, firsts, strict=True))
            groups = tuple(g.sizes.size for g, own in zip(self.groupings, contrasts, strict=True) if not own)
            yield Component(contrasts, slots, groups)

    def factor_map(self, grouping: Grouping, factor: str | None) -> Float | None:
        """The factor's cells from orthonormal group coordinates, (cells, r); None if it sees every slot."""
        if sees_contrasts(self.schema, grouping, factor):
            return None
        return group_sums(self.schema, grouping, factor) * np.sqrt(grouping.sizes)

    def cells_of_levels(self, grouping: Grouping, factor: str | None) -> Index:
        """For every level the factor's cell, (n,); None is the total."""
        return np.zeros(grouping.levels, np.intp) if factor is None else np.array(self.schema.groups_of(factor))

    def table_maps(self, table: Table) -> list[Float | None]:
        """`factor_map` of a table along every variable in use."""
        if table.name not in self._maps:
            factors = dict(zip(table.axes, table.factors, strict=True))
            self._maps[table.name] = [self.factor_map(own, factors.get(own.axis)) for own in self.groupings]
        return self._maps[table.name]

    def sees(self, table: Table, component: Component) -> bool:
        """Whether a table keeps every variable whole that a component is contrasts along."""
        key = table.name, component.contrasts
        if key not in self._seen:
            pairs = zip(self.table_maps(table), component.contrasts, strict=True)
            self._seen[key] = not any(contrast and sums is not None for sums, contrast in pairs)
        return self._seen[key]

    def scale(self, table: Table, component: Component) -> float:
        """What a table's sums along variables of one group multiply a component by that it sees."""
        maps = zip(self.groupings, self.table_maps(table), component.contrasts, strict=True)
        return prod(float(W[0, 0]) for g, W, contrast in maps if g.sizes.size == 1 and W is not None and not contrast)

    def design_key(self, component: Component) -> DesignKey:
        """What tables tell of a component: those of equal keys have all coefficients in common."""
        pairs = zip(self.groupings, component.contrasts, strict=True)
        several = tuple(g.axis for g, contrast in pairs if g.sizes.size > 1 and not contrast)
        seeing = {t.name: self.scale(t, component) for t in self._speaking if self.sees(t, component)}
        return several, tuple(sorted(seeing.items()))

    @cached_property
    def _speaking(self) -> list[Table]:
        return [table for table in self.tables if table.name not in self._silent]

    def division(self, key: DesignKey) -> Division:
        """How the components of a key fall apart."""
        if key not in self._divisions:
            several, seeing = key
            groupings = [g for g in self.groupings if g.axis in several]
            tables = {table.name: table for table in self.tables}
            axes = {name: self._axes(tables[name], groupings, scale) for name, scale in seeing}
            self._divisions[key] = split(axes, self._kinds(groupings))
        return self._divisions[key]

    def _axes(self, table: Table, groupings: list[Grouping], scale: float) -> Axes:
        """Cells of a table from group sums along every variable, (cells, r), the first times a number."""
        maps = dict(zip((g.axis for g in self.groupings), self.table_maps(table), strict=True))
        if not groupings:
            return [np.full((1, 1), scale)]
        first, *others = (np.eye(g.sizes.size) if (W := maps[g.axis]) is None else W for g in groupings)
        return [scale * first, *others]

    @property
    def zero_axes(self) -> tuple[int, ...]:
        """The variables that tell empty cells apart."""
        return () if self._zeros is None else self._zeros.axes

    def empty_groups(self, number: int, ranks: Index, component: Component) -> Flags:
        """Which group sums of a component are known to be empty at geounits of a level, (N, m)."""
        if self._zeros is None:
            return np.zeros((ranks.size, component.size), dtype=bool)
        own = self._zeros.empty[self.levels[number].members[ranks]]
        kept = [g for g, contrast in zip(self.groupings, component.contrasts, strict=True) if not contrast]
        lengths = [g.sizes.size if g.axis in self._zeros.axes else 1 for g in kept]
        flags = np.broadcast_to(own.reshape(-1, *lengths), (len(own), *(g.sizes.size for g in kept)))
        return flags.reshape(len(own), component.size)

    def empty_kinds(self, number: int, ranks: Index) -> Flags:
        """Which kinds of cells are empty at geounits of a level, (N, kinds + 1); the last is so everywhere."""
        empty = np.zeros((ranks.size, 1), dtype=bool)
        if self._zeros is not None:
            empty = self._zeros.empty_kinds(self.levels[number].members[ranks])
        return np.concatenate([empty, np.ones((ranks.size, 1), dtype=bool)], axis=1)

    def _kinds(self, groupings: list[Grouping]) -> Index:
        """Of every combination of group sums along some variables the kind by which it is empty."""
        shape = [g.sizes.size for g in groupings]
        if self._zeros is None:
            return np.zeros(prod(shape), dtype=np.intp)
        lengths = [n if g.axis in self._zeros.axes else 1 for n, g in zip(shape, groupings, strict=True)]
        return np.broadcast_to(self._zeros.kinds.reshape(lengths), shape).ravel()

    @cached_property
    def posterior_of(self) -> Index:
        """For every geounit its entry among the posterior covariances: 0 for the root, then pairs of families, (N,)."""
        places = np.zeros(self.spine.size, dtype=np.intp)
        for level in self.levels:
            below = level.parent_pair >= 0
            places[level.members[below]] = self.families.of_pair[level.parent_pair[below]] + 1
        return places

    def posterior_above(self, pairs: Index) -> Index:
        """Of the families of some pairs the entry among the posterior covariances."""
        return self.posterior_of[self.families.geounits[self.families.parent[pairs]]]


def plan_of(
    problem: StructuredProblem,
    divisions: Divisions | None = None,
    alike: bool = True,
    silent: frozenset[str] = frozenset(),
) -> TreePlan:
    """The plan of a problem of equal variances within every table of every geounit; see `TreePlan`."""
    tables = list(problem.observed_tables)
    told_apart = () if problem.zeros is None else problem.zeros.axes
    groupings = groupings_of(problem.schema, tables + list(problem.desired_tables), told_apart)
    return TreePlan(
        problem.schema,
        problem.spine,
        groupings,
        tables,
        problem.observed_levels,
        problem.geounit_variances,
        problem.zeros,
        divisions,
        alike,
        silent,
    )
