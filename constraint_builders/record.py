"""All that a problem holds: what was measured, and which tables are wanted from it.

Areas that nest are geounits of a spine: what is solved on a tree is then solved for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.description.areas import Areas
from constraint_builders.description.described import equal
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import NoiseLaw
from constraint_builders.description.noise_covariance import read_noise
from constraint_builders.description.schema import Schema
from constraint_builders.description.source_values import SourceValues, Understood
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import NamedTables, Table, TableNames, factors_of
from constraint_builders.measured import Measured
from constraint_builders.relations.node_tree import layers_cross, nested_layers, sets_of_layers
from constraint_builders.relations.summing import NestedNodes, SummingMatrix
from constraint_builders.relations.tabulation import Tabulation
from constraint_builders.vectors import refuse_copies, refuse_impossible

NOTHING_ASSUMED: Mapping[str, Any] = MappingProxyType({"assumed": np.zeros(0, dtype=np.intp), "undetermined": None})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Record(Measured):
    """The fields of a `Problem`, which are explained there."""

    desired: Layout
    desired_tables: tuple[Table, ...] = ()
    desired_levels: tuple[int, ...] = ()
    truth: Float | None = None
    undetermined: NDArray[np.bool_] | None = None
    assumed: NDArray[np.intp] = field(default_factory=lambda: NOTHING_ASSUMED["assumed"])
    understood: Understood = field(default_factory=Understood, compare=False)
    sources: SourceValues | None = field(default=None, compare=False)

    @classmethod
    def of(cls, measured: Measured, wanted: NamedTables, **others: Any) -> Record:
        """Measurements, with what they have worked out already, the tables that are wanted from them, other fields."""
        desired, tables, levels = wanted
        own = {"desired": desired, "desired_tables": tables, "desired_levels": levels, **others}
        record = cls(**_values(measured, Measured), **own)
        vars(record).update(vars(measured))
        return record

    def replaced(self, **changes: Any) -> Record:
        """The same with other values of some fields; of the noise also by the name of its law."""
        if isinstance(law := changes.get("noise"), str | NoiseLaw):
            changes["noise"] = self.noise.of_law(law if isinstance(law, str) else law.declared)
        if equalities := changes.get("equalities"):
            E, b = equalities
            changes["equalities"] = (E := sparse.csr_array(E, copy=True)), b
            E.sum_duplicates()  # and says so: whoever uses it would note that on it, and in its pickle
        return Record(**_values(self, Record) | changes)

    def sources_of(self, y: Float) -> SourceValues | None:
        """What every source measured, of which values, (n,), are the combination; None where nothing is known of it."""
        if self.sources and self.sources.are_of(self.noise, y):
            return self.sources.completed(self.noise, y)
        return None

    def check_vector(self, y: Float) -> None:
        """As of `Measured`, of (n,) or (n, K); and for values that no count leads to, by the law of the noise."""
        super().check_vector(y)
        refuse_impossible(self, y)
        refuse_copies(self)

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Desired cells that are not estimable, (m,)."""
        return np.zeros(self.desired.size, dtype=bool) if self.undetermined is None else self.undetermined

    @cached_property
    def has_turned_tables(self) -> bool:
        """Whether some table's name has its factors in another order than the schema's."""
        same = self.desired_tables is self.observed_tables
        return any(table.is_turned for table in (*self.observed_tables, *(() if same else self.desired_tables)))

    @cached_property
    def factors(self) -> set[str]:
        """What observed and desired tables keep: names of variables and recodes."""
        same = self.desired_tables is self.observed_tables
        return factors_of(self.observed_tables) | (set() if same else factors_of(self.desired_tables))

    @cached_property
    def sums(self) -> Tabulation:
        """How desired cells are summed from observed ones."""
        return Tabulation(self, NamedTables(self.desired, self.desired_tables, self.desired_levels))

    @property
    def tabulation(self) -> sparse.csr_array | None:
        """Desired cells in terms of measured ones, (m, n), for consistent values.

        None where every desired table is summed from one observed table.
        """
        return self.sums.matrix

    def tabulate(self, X: Float) -> Float:
        """Sum consistent values over the observed layout, (n, K), to the desired layout, (m, K)."""
        return self.sums.apply(self.observed.flat(X, "X"))

    def tabulate_transpose(self, V: Float) -> Float:
        """The transpose of `tabulate`: (m, K) over the desired layout to (n, K) over the observed one."""
        return self.sums.transpose(self.desired.flat(V, "V"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(equal(getattr(self, own.name), getattr(other, own.name)) for own in fields(Record) if own.compare)

    def __hash__(self) -> int:
        return hash((self.observed.names, self.desired.names, self.noise.law))


def _values(record: Measured, kind: type[Measured]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in kind.__dataclass_fields__}


OverSpine = tuple[Record, Index, Index]  # and where the cells of another, which is a part of it, sit in its layouts


def over_spine(record: Record) -> OverSpine | None:
    """A problem of areas over a spine; None where those that have tables do not nest, or noise is correlated."""
    if record.is_correlated:
        return None
    levels = sorted({*record.observed_levels, *record.desired_levels})
    tree = NestedAreas.of(record.domain.areas, levels)
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
            nodes = self.node[self.areas.members[level]]
            rows = self.spine.rank_in_level[as_slice(nodes)] * table.size
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
