"""Areas: any sets of leaves, or weighted sums of them, in layers that may nest, overlap or cross."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Index
from constraint_builders.description.area_layers import (
    BETWEEN,
    AreaLayer,
    columns_of,
    crossed,
    read_labels,
    read_layer,
    read_leaves,
)
from constraint_builders.description.described import Compared, Described
from constraint_builders.description.spine import Spine

LEAF = "Leaf"


class Areas(Compared, Described):
    """Sets of leaves, or weighted sums of them, in named layers.

    The areas of a layer may be a partition of the leaves, leave some out, or overlap, and layers may nest or cross. A
    tree of geounits is the case where they nest; see `from_spine`. A layer ``"Leaf"`` with every leaf as an area of its
    own is always there, the last.

    Parameters
    ----------
    leaves : int or sequence
        Their number, or their names.
    layers : mapping of str to array_like, sparse array or data frame
        For every layer either a label for each leaf, the name or number of its area, or a matrix (areas, leaves) of
        weights: 1 where an area holds a leaf, 0 where it does not, or any other number, negative ones too. The index
        of a frame names its areas. Areas that are labelled by numbers come in increasing order, others in the order of
        their first leaves.

    Attributes
    ----------
    levels : tuple of str
        Names of the layers, ``"Leaf"`` last.
    members : tuple of ndarray of int
        For every layer the positions of its areas among those of all layers.
    incidence : csr_array, (areas, leaves)
        Of all layers, one after the other.

    Raises
    ------
    ValueError
        If a layer has another number of leaves, a label is missing, a weight is not a finite number, two areas of a
        layer have one name, or there are no leaves. The layer is named.

    Examples
    --------
    >>> areas = Areas(4, {"Region": ["N", "N", "S", "S"], "Product": ["a", "b", "a", "b"]})
    >>> areas
    Areas(4 leaves; 2 Region, 2 Product)
    >>> areas.cross("Region", "Product").names("Region * Product")
    ('N * a', 'N * b', 'S * a', 'S * b')
    """

    _same_in, _hashed_by = ("levels", "_layers"), ("levels", "size")

    def __init__(self, leaves: int | Sequence[Hashable], layers: Mapping[str, Any]) -> None:
        count, labels = read_leaves(leaves)
        if not isinstance(layers, Mapping):
            raise TypeError(
                "layers are given by name, as in {'Region': [0, 0, 1, 1]}, a label for every leaf: "
                f"got {type(layers).__name__}"
            )
        own: dict[str, AreaLayer] = {}
        for name, given in layers.items():
            own[_layer_name(name, own)] = read_layer(str(name), given, count, labels)
        self._build({**own, LEAF: _leaves_of_their_own(count, labels)})

    def _build(self, layers: dict[str, AreaLayer]) -> None:
        for name, layer in layers.items():
            _refuse_repeated_names(name, layer)
        self._layers = layers
        self.levels = tuple(layers)
        stops = np.cumsum([0, *(layer.size for layer in layers.values())])
        self.members: tuple[Index, ...] = tuple(np.arange(a, b, dtype=np.intp) for a, b in pairwise(stops.tolist()))

    def _with(self, name: str, layer: AreaLayer) -> Areas:
        other = object.__new__(Areas)
        layers = {own: kept for own, kept in self._layers.items() if own != LEAF}
        other._build({**layers, _layer_name(name, layers): layer, LEAF: self._layers[LEAF]})
        return other

    @classmethod
    def from_frame(cls, frame: Any, leaf: str | None = None) -> Areas:
        """Areas from a data frame with a row for every leaf, and a column of labels for every layer.

        Parameters
        ----------
        frame : data frame or mapping of str to sequence
            Of pandas, polars, pyarrow, or anything else with the Arrow PyCapsule interface.
        leaf : str, optional
            The column that names the leaves, by default none.

        Returns
        -------
        Areas

        Raises
        ------
        ValueError
            If there is no such column, or as `Areas`.
        """
        columns = columns_of(frame)
        if leaf is not None and leaf not in columns:
            raise ValueError(f"no column {leaf!r} in the frame: it has {', '.join(map(repr, columns))}")
        if not columns:
            raise ValueError("the frame has no columns: give one for every layer")
        count = len(next(iter(columns.values())))
        names = count if leaf is None else read_labels(columns.pop(leaf), f"column {leaf!r}")
        return cls(names, columns)

    @classmethod
    def from_spine(cls, spine: Spine) -> Areas:
        """The areas of a tree of geounits: a layer for every geolevel, over the geounits without children.

        Parameters
        ----------
        spine : Spine

        Returns
        -------
        Areas
            Layers in the order of the geolevels.

        Raises
        ------
        ValueError
            If a geolevel is called ``"Leaf"`` that is not of all of them.
        """
        if calls_others_leaves(spine):
            raise ValueError(
                f"geolevel {LEAF!r} is not of all geounits without children, as the layer of that name is: call it "
                "otherwise"
            )
        leaves = np.flatnonzero(spine.child_counts == 0)
        layers: dict[str, AreaLayer] = {}
        for level, (name, members) in enumerate(zip(spine.levels, spine.members, strict=True)):
            if name == LEAF:
                continue  # it is there as it is
            above = spine.ancestors_at(leaves, level)
            own = np.where(above >= 0, spine.rank_in_level[above], -1).astype(np.int32)
            labels = tuple(spine.geocodes[i] for i in members.tolist())
            layers[_layer_name(name, layers)] = AreaLayer.of_sets(own, members.size, labels)
        codes = tuple(spine.geocodes[i] for i in leaves.tolist())
        unique = len(set(codes)) == len(codes)
        areas = object.__new__(cls)
        areas._build({**layers, LEAF: _leaves_of_their_own(leaves.size, codes if unique else None)})
        return areas

    def with_layer(self, name: str, layer: Any, names: Sequence[Hashable] | None = None) -> Areas:
        """The same areas and one layer more, such as places that lie off a spine.

        Parameters
        ----------
        name : str
        layer : array_like, sparse array or data frame
            As `Areas` takes it.
        names : sequence, optional
            Of the areas of a matrix.

        Returns
        -------
        Areas

        Raises
        ------
        ValueError
            As `Areas`; or if there is such a layer already.
        """
        read = read_layer(str(name), layer, self.leaves, self._layers[LEAF].labels)
        if names is not None:
            labels = tuple(read_labels(names, f"names of layer {name!r}"))
            if len(labels) != read.size:
                raise ValueError(f"layer {name!r} has {read.size} areas, and {len(labels)} names: give one for each")
            read = replace(read, labels=labels)
        return self._with(name, read)

    def cross(self, *layers: str, name: str | None = None) -> Areas:
        """The same areas, and a layer of all intersections of areas of some layers that hold a leaf.

        Parameters
        ----------
        *layers : str
            Of sets, at least two.
        name : str, optional
            Of the new layer, by default theirs joined by ``" * "``, as the names of the areas are.

        Returns
        -------
        Areas

        Raises
        ------
        ValueError
            If there are fewer than two, one is unknown, or its leaves have other weights than 1.
        """
        if len(set(layers)) < max(2, len(layers)):
            raise ValueError(f"intersections are of two layers or more, each named once: got {list(layers)}")
        found = self._set_layer(layers[0])
        for other in layers[1:]:
            found = crossed(found, self._set_layer(other))
        return self._with(name or BETWEEN.join(layers), found)

    def _set_layer(self, name: str) -> AreaLayer:
        layer = self.layer(name)
        if not layer.is_of_sets:
            raise ValueError(f"layer {name!r} weighs leaves otherwise than by 1: only sets intersect")
        return layer

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return self._layers[LEAF].size

    @property
    def size(self) -> int:
        """Number of areas of all layers."""
        return int(self.members[-1][-1]) + 1

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """With which weight every leaf counts in every area of all layers, (areas, leaves)."""
        return sparse.csr_array(sparse.vstack([layer.incidence for layer in self._layers.values()], format="csr"))

    @cached_property
    def geocodes(self) -> tuple[str, ...]:
        """Names of all areas."""
        return tuple(name for layer in self._layers.values() for name in layer.names)

    @cached_property
    def level_of(self) -> Index:
        """Position among `levels` of every area's layer, (areas,)."""
        return np.repeat(np.arange(len(self.levels)), [own.size for own in self.members])

    @cached_property
    def rank_in_level(self) -> Index:
        """For every area its number within its layer, (areas,)."""
        return np.concatenate([np.arange(own.size) for own in self.members])

    def layer(self, name: str) -> AreaLayer:
        """The layer of that name; `ValueError` if there is none.

        Parameters
        ----------
        name : str

        Returns
        -------
        AreaLayer

        Raises
        ------
        ValueError
            If there is none of that name.
        """
        return self._layers[self.levels[self.level_index(name)]]

    def names(self, layer: str) -> tuple[str, ...]:
        """Names of the areas of a layer.

        Parameters
        ----------
        layer : str

        Returns
        -------
        tuple of str, (areas,)

        Raises
        ------
        ValueError
            If there is no such layer.
        """
        return self.layer(layer).names

    def level_index(self, level: str) -> int:
        """Position of a layer among `levels`.

        Parameters
        ----------
        level : str
            A layer's name.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If there is no such layer.
        """
        if level not in self.levels:
            raise ValueError(f"no layer {level!r} of areas: there are {', '.join(map(repr, self.levels))}")
        return self.levels.index(level)

    def leaves_of(self, level: int) -> sparse.csr_array:
        """With which weight every leaf counts in every area of a layer, (areas, leaves).

        Parameters
        ----------
        level : int
            The number of a layer among `levels`.

        Returns
        -------
        csr_array, (areas, leaves)
        """
        return self._layers[self.levels[level]].incidence

    def inherited(self, flags: Flags) -> Flags:
        """What holds for whole areas and so for all leaves in them: (areas, ...), passed on to the leaves.

        Parameters
        ----------
        flags : ndarray of bool, (areas, ...)

        Returns
        -------
        ndarray of bool, (areas, ...)

        Raises
        ------
        ValueError
            If it holds for an area that weighs a leaf by less than 0.
        """
        own = flags.reshape(self.size, -1)
        marked = np.flatnonzero(own.any(axis=1))
        weights = sparse.csr_array(self.incidence[marked])
        if weights.nnz and weights.data.min() < 0:
            area = marked[int(np.repeat(np.arange(marked.size), np.diff(weights.indptr))[weights.data.argmin()])]
            raise ValueError(
                f"area {self.geocodes[area]!r} of {self.levels[self.level_of[area]]!r} is a structural zero, and "
                "weighs a leaf by less than 0, so that nothing follows for its leaves: say which leaves are empty"
            )
        passed = own.copy()
        passed[self.members[-1]] = (weights != 0).T.astype(np.int64) @ own[marked].astype(np.int64) > 0
        return passed.reshape(flags.shape)

    def __repr__(self) -> str:
        counts = [f"{layer.size:,} {name}" for name, layer in self._layers.items() if name != LEAF]
        return f"Areas({self.leaves:,} leaves{'; ' if counts else ''}{', '.join(counts)})"


Places: TypeAlias = Spine | Areas  # where tables are from, in levels


def _leaves_of_their_own(count: int, labels: tuple[Hashable, ...] | None) -> AreaLayer:
    return AreaLayer.of_sets(np.arange(count, dtype=np.int32), count, labels)


def calls_others_leaves(spine: Spine) -> bool:
    """Whether a geolevel has the name of the layer of leaves and is not theirs."""
    if LEAF not in spine.levels:
        return False
    return not np.array_equal(spine.members[spine.level_index(LEAF)], np.flatnonzero(spine.child_counts == 0))


def _layer_name(name: Any, known: Mapping[str, AreaLayer]) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a layer must be text: got {name!r}")
    if name == LEAF:
        raise ValueError(f"layer {LEAF!r} is always there, every leaf an area of its own: call yours otherwise")
    if name in known:
        raise ValueError(f"layer {name!r} is there already: give every layer once")
    return name


def _refuse_repeated_names(name: str, layer: AreaLayer) -> None:
    if layer.labels is None or len(set(layer.names)) == layer.size:
        return
    seen: set[str] = set()
    for own in layer.names:
        if own in seen:
            raise ValueError(f"layer {name!r} has two areas called {own!r}: give each a name of its own")
        seen.add(own)
