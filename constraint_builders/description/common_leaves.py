"""Areas of several geographies over the same leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from constraint_builders.arrays import Index
from constraint_builders.description.areas import LEAF, Areas
from constraint_builders.description.spine_or_areas import Places


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
