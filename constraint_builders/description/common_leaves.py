"""Leaves that several geographies share, and leaves told apart by a variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.area_layers import AreaLayer
from constraint_builders.description.areas import LEAF, Areas, Places
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table

BY = " by "


class CommonLeaves:
    """Layers of several geographies over the same leaves, which are matched by name.

    Parameters
    ----------
    places : mapping of str to Spine or Areas
        The geographies, by name.
    of_leaves : collection of str
        Those of areas with tables of the layer ``"Leaf"``.

    Attributes
    ----------
    areas : Areas
        With all their layers.

    Raises
    ------
    ValueError
        If leaves differ, or some have no names, or two layers would be called alike.
    """

    def __init__(self, places: Mapping[str, Places], of_leaves: Collection[str]) -> None:
        own = {name: _areas(name, given) for name, given in places.items()}
        alone = len(of_leaves) == 1
        first = next(iter(of_leaves if alone else own))  # whose order leaves have
        kept = {
            name: [level for level in areas.levels if level != LEAF or (name in of_leaves and not alone)]
            for name, areas in own.items()
        }
        times = Counter([LEAF, *(level for levels in kept.values() for level in levels)])
        self._layers = {
            (name, level): level if times[level] == 1 else f"{level} ({name})"
            for name, levels in kept.items()
            for level in levels
        }
        twice = [layer for layer, count in Counter(self._layers.values()).items() if count > 1]
        if twice:
            raise ValueError(f"two layers would be called {twice[0]!r}: give the problems other names=")
        labels = own[first].layer(LEAF).labels
        areas = Areas(own[first].leaves if labels is None else labels, {})
        order = {
            name: _order(own[first], given, f"problem {first!r}", f"problem {name!r}") for name, given in own.items()
        }
        for (name, level), layer in self._layers.items():
            incidence = own[name].layer(level).incidence[:, order[name]]
            areas = areas.with_layer(layer, incidence, own[name].names(level))
        if alone:
            self._layers[first, LEAF] = LEAF
        self.areas = areas

    def layer(self, name: str, level: str) -> str:
        """What a layer of a geography is called."""
        return self._layers[name, level]

    def geography_of(self, layer: str) -> str | None:
        """Whose layer one of `areas` is; None of the leaves that all share."""
        return next((name for (name, _), called in self._layers.items() if called == layer), None)


def _areas(name: str, places: Places) -> Areas:
    """Of the geography of that name."""
    try:
        return places if isinstance(places, Areas) else Areas.from_spine(places)
    except ValueError as error:
        raise ValueError(f"problem {name!r}: {error}") from None


def _order(first: Areas, other: Areas, of_first: str, of_other: str) -> Index:
    """Where the leaves of one are among those of another."""
    named = [areas.layer(LEAF).labels is not None for areas in (first, other)]
    if named[0] != named[1]:
        raise ValueError(
            f"the leaves of {of_other if named[0] else of_first} have no names, or one name at several geolevels: name "
            "each, as the other problem does, so that they can be matched"
        )
    lost = _lost(first, other, of_other) or _lost(other, first, of_first)
    if lost:
        raise ValueError(
            f"the leaves of {of_first} and {of_other} differ, {lost}: joint estimates are over the same leaves"
        )
    places = {leaf: i for i, leaf in enumerate(other.names(LEAF))}
    return np.array([places[leaf] for leaf in first.names(LEAF)], dtype=np.intp)


def _lost(first: Areas, other: Areas, of_other: str) -> str:
    """A leaf that the other lacks, as part of a sentence; empty where there is none."""
    known = set(other.names(LEAF))
    return next((f"{of_other} has no leaf {leaf!r}" for leaf in first.names(LEAF) if leaf not in known), "")


class LeavesByGroup:
    """A schema without one or two of its variables, whose levels are told apart by the leaves.

    So a product may count some of their levels alone. Households are counted by their householders: what a product of
    households says of a block is said of those persons there who are householders. With leaves such as "block 1,
    householder" in the place of "block 1" that is an area like any other, and no table has cells that were not
    measured. What a product counts beside, such as vacant units, is of no person: leaves such as "block 1, vacant"
    that no other product has.

    Parameters
    ----------
    schema : Schema
    leaves : CommonLeaves
    only : mapping of str to mapping of str to sequence of str
        For products that count some persons alone the labels that these have, all of factors of one variable.
    beside : mapping of str to mapping of str to sequence of str
        For some of these products the labels of one other variable, their own, whose counts are of no person.

    Attributes
    ----------
    whole, schema : Schema
        Of all variables, and of the others.
    told_apart : tuple of str
        The variables whose levels the leaves tell apart.

    Raises
    ------
    ValueError
        If there is no such factor or label, or they are of several variables; or products with counts of no person
        count different persons beside.
    """

    def __init__(
        self,
        schema: Schema,
        leaves: CommonLeaves,
        only: Mapping[str, Mapping[str, Sequence[str]]],
        beside: Mapping[str, Mapping[str, Sequence[str]]],
    ) -> None:
        self.whole, self._leaves, self._beside = schema, leaves, tuple(beside)
        self._axis = _one_variable(schema, only, "only=")
        self._only = {name: self._counted(said) for name, said in only.items()}
        self._own = _one_variable(schema, beside, "beside=") if beside else None
        self._level, self._label = self._kinds(beside)
        self.schema = _without(schema, {self._axis, self._own})
        self.told_apart = tuple(schema.names[axis] for axis in (self._axis, self._own) if axis is not None)
        self._layers: dict[str, tuple[AreaLayer, Float, tuple[str, ...]]] = {}

    def _counted(self, said: Mapping[str, Sequence[str]]) -> Flags:
        """Which levels of their variable have all labels that are said."""
        flags: Flags = np.logical_and.reduce([levels_having(self.whole, factor, said[factor]) for factor in said])
        return flags

    def _kinds(self, beside: Mapping[str, Mapping[str, Sequence[str]]]) -> tuple[Index, Index]:
        """Level of the variable and of that of counts beside it, -1 for none, of every kind of leaf, (kinds,) each."""
        levels = np.arange(self.whole.shape[self._axis])
        if self._own is None:
            return levels, np.full(levels.size, -1)
        own = self.whole.names[self._own]
        nobody = [self._counted(said) for said in beside.values()]
        counted = [self._only[name] for name in beside if name in self._only]
        if len(counted) < len(beside):
            raise ValueError(f"beside= names problem {next(n for n in beside if n not in self._only)!r}, not in only=")
        if any((one != nobody[0]).any() for one in nobody) or any((one != counted[0]).any() for one in counted):
            raise ValueError(f"problems {', '.join(map(repr, beside))} count different things by {own!r}: join one")
        if nobody[0].all():
            raise ValueError(f"beside= names all labels of {own!r}: one at least must be of what is counted")
        theirs, nobodys = np.flatnonzero(~nobody[0]), np.flatnonzero(nobody[0])
        both = np.stack(np.meshgrid(np.flatnonzero(counted[0]), theirs, indexing="ij"), axis=-1).reshape(-1, 2)
        others = levels[~counted[0]]
        level = np.concatenate([both[:, 0], others, np.full(nobodys.size, -1)])
        return level, np.concatenate([both[:, 1], np.full(others.size, -1), nobodys])

    def _told(self, factor: str) -> Float:
        """1 where a label of a factor has a kind of leaf, (labels, kinds)."""
        cells = self._level if self.whole.axis_of(factor) == self._axis else self._label
        groups = np.array(self.whole.groups_of(factor))[cells]
        return np.equal.outer(np.arange(self.whole.size_of(factor)), np.where(cells >= 0, groups, -1)).astype(float)

    def _weights(self, name: str) -> Float:
        """1 for the kinds of leaves that a product counts, (kinds,)."""
        if name in self._beside:
            return (self._label >= 0).astype(float)
        counted = self._only.get(name)
        flags = self._level >= 0 if counted is None else (self._level >= 0) & counted[self._level]
        return flags.astype(float)

    def place(self, layer: str, table: str) -> tuple[str, str, int]:
        """The layer and the table over the other variables that a table at a layer is, cells in its order.

        Returns
        -------
        layer, table : str
        groups : int
            How many areas of the layer every area has become.

        Raises
        ------
        ValueError
            If the table has a factor of the variable that is not its first, or the product counts some levels alone.
        """
        own = parse_table(self.whole, table)
        name, areas = self._leaves.geography_of(layer) or "", self._leaves.areas.layer(layer)
        called = self._called(layer)
        told = [axis for axis in own.axes if axis in (self._axis, self._own)]
        if not told:
            self._layers.setdefault(called, (areas, self._weights(name)[None], areas.names))
            return called, _named(own.factors), 1
        variable = self.whole.names[told[0]]
        if own.axes[0] != told[0]:
            raise ValueError(
                f"table {table!r}: the factor of {variable!r} must come first in its name: in a schema list "
                f"{variable!r} first"
            )
        if len(told) > 1 or (name in self._only if told[0] == self._axis else name not in self._beside):
            raise ValueError(f"table {table!r} of problem {name!r} tells {variable!r} apart, of which it counts a part")
        first = own.factors[0]
        labels, called = self.whole.labels_of(first), f"{called}{BY}{first}"
        names = tuple(f"{area}, {label}" for area in areas.names for label in labels)
        self._layers.setdefault(called, (areas, self._told(first), names))
        return called, _named(own.factors[1:]), len(labels)

    def part(self, called: str) -> tuple[str, str]:
        """The layer that `place` calls so, and the factor whose labels tell its areas apart, "" where none does."""
        axes = (self._axis, self._own)
        factors = ["", *(name for name in self.whole.factor_names if self.whole.axis_of(name) in axes)]
        layers = self._leaves.areas.levels
        named = {f"{self._called(own)}{BY * bool(first)}{first}": (own, first) for own in layers for first in factors}
        return named[called]

    def _called(self, layer: str) -> str:
        """What a layer is called here, where ``"Leaf"`` is of the leaves that are told apart."""
        return f"{LEAF} ({self._leaves.geography_of(layer) or 'all'})" if layer == LEAF else layer

    def first(self, table: str, cells: NDArray) -> tuple[str, NDArray]:
        """A table with the factor of such a variable, if it has one, first; its cells are (areas, *shape)."""
        own = parse_table(self.whole, table)
        place = next((i for i, axis in enumerate(own.axes) if axis in (self._axis, self._own)), None)
        if place is None:
            return table, cells
        factors = (own.factors[place], *own.factors[:place], *own.factors[place + 1 :])
        return _named(factors), np.moveaxis(cells, 1 + place, 1)

    def measured(self, layer: str, table: str, variances: Float) -> tuple[str, str, Float]:
        """A table with its variances, (areas,) or (areas, *shape), as `place` gives it; its cells keep their order."""
        called, over, groups = self.place(layer, table)
        if variances.ndim == 1:
            return called, over, np.repeat(variances, groups)
        return called, over, variances.reshape(len(variances) * groups, *variances.shape[1 if groups == 1 else 2 :])

    def empty(self, zeros: Mapping[tuple[str, str], Flags]) -> dict[tuple[str, str], Flags]:
        """Structural zeros by layer and table, (areas, *shape), as `Problem` takes them."""
        found: dict[tuple[str, str], Flags] = {}
        for (layer, table), flags in zeros.items():
            turned, cells = self.first(table, flags)
            called, over, groups = self.place(layer, turned)
            found[called, over] = cells.reshape(len(cells) * groups, *cells.shape[1 if groups == 1 else 2 :])
        return found

    def areas(self) -> Areas:
        """All layers in use, over the leaves by what the layers tell apart."""
        told = np.vstack([weights for _, weights, _ in self._layers.values()])
        kinds = np.sort(np.unique(told, axis=1, return_index=True)[1])
        kinds = kinds[told[:, kinds].sum(axis=0) > 0]  # others nobody counts
        labels = [self._kind(kind) for kind in kinds.tolist()]
        found = Areas([f"{leaf}, {label}" for leaf in self._leaves.areas.names(LEAF) for label in labels], {})
        for layer, (own, weights, called) in self._layers.items():
            incidence = sparse.csr_array(sparse.kron(own.incidence, weights[:, kinds]))
            found = found.with_layer(layer, incidence, called)
        return found

    def _kind(self, kind: int) -> str:
        """What a kind of leaf is called."""
        level, label = int(self._level[kind]), int(self._label[kind])
        own = [self.whole.labels_of(self.whole.names[self._axis])[level]] if level >= 0 else []
        if self._own is not None and label >= 0:
            name = self.whole.names[self._own]
            own.append(f"{name} {self.whole.labels_of(name)[label]}")
        return ", ".join(own)


def _one_variable(schema: Schema, said: Mapping[str, Mapping[str, Sequence[str]]], option: str) -> int:
    """The axis of the one variable of which labels are named."""
    axes = {schema.axis_of(factor) for own in said.values() for factor in own}
    if len(axes) != 1 or not all(said.values()):
        named = ", ".join(repr(schema.names[axis]) for axis in sorted(axes)) or "none"
        raise ValueError(f"{option} must name labels of one variable of the finer schema: got {named}")
    return axes.pop()


def levels_having(schema: Schema, factor: str, labels: Sequence[str]) -> Flags:
    """Which levels of its variable have one of some labels of a factor; `ValueError` if one is unknown, or none."""
    known, asked = schema.labels_of(factor), [labels] if isinstance(labels, str) else list(labels)
    unknown = [label for label in asked if label not in known]
    if unknown or not asked:
        shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        names = f"has no level {', '.join(map(repr, unknown))}" if unknown else "is named without a level"
        raise ValueError(f"{factor!r} {names}: there are {shown}")
    flags: Flags = np.isin(known, asked)[list(schema.groups_of(factor))]
    return flags


def by_layer(tables: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names of tables by their layers, both in order, each once."""
    found: dict[str, list[str]] = {}
    for layer, table in dict.fromkeys(tables):
        found.setdefault(layer, []).append(table)
    return found


def _named(factors: Sequence[str]) -> str:
    return " * ".join(factors) or "total"


def _without(schema: Schema, axes: Collection[int | None]) -> Schema:
    """A schema without some of its variables; of one variable that has a single level where there is no other."""
    kept = [name for i, name in enumerate(schema.names) if i not in axes]
    return Schema({name: schema.labels_of(name) for name in kept} or {"unit": 1}).with_recodes_of(schema)
