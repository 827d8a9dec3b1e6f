"""Areas that nest, as geounits of a spine: what is solved on a tree is then solved for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.description.areas import Areas
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.noise_covariance import read_noise
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import NamedTables, Table, TableNames
from constraint_builders.measured import Measured
from constraint_builders.record import Record
from constraint_builders.relations.node_tree import layers_cross, nested_layers, sets_of_layers
from constraint_builders.relations.summing import NestedNodes, SummingMatrix

OverSpine = tuple[Record, Index, Index]  # and where the cells of another, which is a part of it, sit in its layouts


def over_spine(record: Record) -> OverSpine | None:
    """A problem of areas over a spine; None where those that have tables do not nest, or noise is correlated."""
    if record.is_correlated:
        return None
    tree = NestedAreas.of(record.domain.areas, sorted({*record.observed_levels, *record.desired_levels}))
    return tree.problem(record) if tree else None


def sums_over_spine(record: Record) -> tuple[Spine, dict[str, dict[str, Float]], Index]:
    """Nodes that form a tree of sums as a spine, the variances of their totals there, and where each sits in those."""
    spine, first = spine_of(record.relations.nested)
    nodes = slice(first, first + record.observed.size)
    variances = np.full(spine.size, np.inf)
    variances[nodes] = record.variances
    observed = {level: {"total": variances[own]} for level, own in zip(spine.levels, spine.members, strict=True)}
    starts = np.cumsum([0, *(members.size for members in spine.members)])
    places = (starts[spine.level_of[nodes]] + spine.rank_in_level[nodes]).astype(np.intp)
    return spine, observed, places


@dataclass(frozen=True)
class NestedAreas:
    """Areas of some layers as nodes of a tree; where its leaves are not there, one node more for what others leave.

    Attributes
    ----------
    areas : Areas
    node : ndarray of int, (areas,)
        Of the areas of those layers; -1 for others.
    spine : Spine
    rest : ndarray of int
        Nodes, one each, of which the last nodes are what their children leave.
    """

    areas: Areas
    node: Index
    spine: Spine
    rest: Index

    @classmethod
    def of(cls, areas: Areas, levels: list[int]) -> NestedAreas | None:
        """Of the layers at some positions; None if they do not nest."""
        chosen = np.concatenate([areas.members[level] for level in levels])
        nested = _nested(areas, levels)
        if nested is None:
            return None
        spine, first = spine_of(nested)
        node = np.full(areas.size, -1, dtype=np.intp)
        node[chosen] = np.arange(first, first + chosen.size)
        return cls(areas, node, spine, np.flatnonzero(nested.rest) + first)

    def problem(self, record: Record) -> OverSpine:
        """A problem of these areas over the spine."""
        schema = record.domain.schema
        observed, places = self._over_spine(schema, record.observed_levels, record.observed_tables)
        wanted, asked = observed, places
        if record.desired is not record.observed:
            wanted, asked = self._over_spine(schema, record.desired_levels, record.desired_tables)
        layout, tables, levels = observed
        variances = np.full(layout.size, np.inf)
        variances[places] = record.variances
        measured = Measured(
            observed=layout,
            noise=read_noise(layout, variances, None, record.noise.law),
            schema=schema,
            spine=self.spine,
            observed_tables=tables,
            observed_levels=levels,
            zeros=None if record.zeros is None else self._zeros(schema, record.zeros),
        )
        if record.equalities is not None:
            E, b = record.equalities
            entries = E.tocoo()
            shape = E.shape[0], layout.size
            spread = sparse.csr_array((entries.data, (entries.row, places[entries.col])), shape=shape)
            measured = replace(measured, equalities=(spread, b))
        return Record.of(measured, wanted), places, asked

    @cached_property
    def _depths(self) -> list[Index]:
        """Of every layer in use the depths of its areas."""
        return [self.spine.level_of[as_slice(self.node[own])] for own in self.areas.members]

    def _over_spine(
        self, schema: Schema, levels: tuple[int, ...], tables: tuple[Table, ...]
    ) -> tuple[NamedTables, Index]:
        """Tables, in the schema's order, at the depths where they are, and where every cell sits in them."""
        names, depths = TableNames.of(schema, self.spine), range(len(self.spine.levels))
        at = [np.flatnonzero(np.bincount(self._depths[level])).tolist() for level in levels]
        each = zip(at, tables, strict=True)
        named = names.tables(dict.fromkeys(names.called(depth, table.name) for own, table in each for depth in own))
        start = dict(zip(named.layout.names, named.layout.offsets.tolist(), strict=False))
        found = [np.zeros(0, dtype=np.intp)]
        for level, table in zip(levels, tables, strict=True):
            cells = np.empty(table.size, dtype=np.intp)
            cells[table.in_schema_order().places_in(table)] = np.arange(table.size)
            first = np.array([start.get(names.called(depth, table.name), 0) for depth in depths])
            rows = self.spine.rank_in_level[as_slice(self.node[self.areas.members[level]])] * table.size
            rows += first[self._depths[level]]
            found.append((rows[:, None] + cells).ravel() if table.size > 1 else rows)
        return named, np.concatenate(found)

    def _zeros(self, schema: Schema, zeros: StructuralZeros) -> StructuralZeros:
        """A node is empty where all its leaves are."""
        open_leaves = ~zeros.empty[self.areas.members[-1]].reshape(self.areas.leaves, -1)
        own = np.zeros((self.spine.size, open_leaves.shape[1]), dtype=np.int64)
        used = np.flatnonzero(self.node >= 0)
        own[self.node[used]] = self.areas.incidence[used].astype(np.int64) @ open_leaves.astype(np.int64)
        children = np.zeros_like(own)
        below = np.flatnonzero(self.spine.parent >= 0)
        np.add.at(children, self.spine.parent[below], own[below])
        own[self.spine.size - self.rest.size :] = own[self.rest] - children[self.rest]
        if used.size + self.rest.size < self.spine.size:
            own[0] = 1  # the root of their own
        return StructuralZeros.of(schema, zeros.axes, (own == 0).reshape(self.spine.size, *zeros.empty.shape[1:]))


def spine_of(nested: NestedNodes) -> tuple[Spine, int]:
    """Nodes as geounits, and the number of the first: behind a root of their own, if they have several; then rests."""
    rest = np.flatnonzero(nested.rest)
    first = int(np.count_nonzero(nested.parent < 0) > 1)
    parent = np.empty(first + nested.parent.size + rest.size, dtype=np.intp)
    parent[:first] = -1
    np.add(nested.parent, first, out=parent[first : first + nested.parent.size])
    np.add(rest, first, out=parent[first + nested.parent.size :])
    return Spine(parent), first


def _nested(areas: Areas, levels: list[int]) -> NestedNodes | None:
    """The areas of some layers as nodes, one layer after the other; None if they do not nest."""
    sets = sets_of_layers(areas, levels)
    sizes = [areas.members[level].size for level in sets]
    if len(sets) == len(levels):
        found = nested_layers(list(sets.values()), sizes)
        if found is not None:
            return found
    if layers_cross(list(sets.values()), sizes):
        return None
    chosen = np.concatenate([areas.members[level] for level in levels])
    return SummingMatrix(areas.incidence[chosen]).nested
