"""A spine as nested partitions of its leaves, one for every geolevel, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Index
from constraint_builders.description.labelled import read_texts
from constraint_builders.description.spine import Spine


def leaves(spine: Spine) -> Index:
    """Positions of the geounits without children, (L,), in the spine's order: the order of every block vector here."""
    return np.flatnonzero(spine.child_counts == 0)


def depths(spine: Spine) -> Index:
    """Number of ancestors of every geounit, (N,)."""
    depth = np.zeros(spine.size, dtype=np.intp)
    for members in spine.members[1:]:
        depth[members] = depth[spine.parent[members]] + 1
    return depth


def ancestors(spine: Spine, level: str) -> Index:
    """For every leaf the position of its ancestor (or itself) at a geolevel, (L,).

    Raises
    ------
    ValueError
        If there is no such level, or a leaf has no ancestor there.
    """
    found = spine.ancestors_at(leaves(spine), spine.level_index(level))
    missing = np.flatnonzero(found < 0)
    if missing.size:
        leaf = spine.geocodes[leaves(spine)[missing[0]]]
        raise ValueError(f"geounit {leaf!r} has no ancestor at geolevel {level!r}: regrouping needs one for every leaf")
    return found


def partitions(spine: Spine) -> dict[str, list[str]]:
    """For every geolevel the geocode of every leaf's ancestor there; the inverse of `from_partitions`."""
    return {level: [spine.geocodes[i] for i in ancestors(spine, level)] for level in spine.levels}


def from_partitions(geocodes: Mapping[str, Sequence[str]]) -> Spine:
    """A spine from the geocodes of every leaf's ancestors.

    Parameters
    ----------
    geocodes : mapping of str to sequence of str, (L,)
        For every geolevel from the root down, to the leaves themselves, a geocode for every leaf.

    Returns
    -------
    Spine
        Geounits of a level in the order in which leaves first name them; the leaves in the order given.

    Raises
    ------
    ValueError
        If a geounit would have two parents, or levels list different numbers of leaves.
    """
    parents: list[Index] = []
    levels: list[str] = []
    codes: list[str] = []
    by_level = {level: read_texts(labels, f"geocodes of {level!r}") for level, labels in geocodes.items()}
    above = np.full(len(next(iter(by_level.values()))), -1)
    for level, labels in by_level.items():
        position = {code: len(codes) + i for i, code in enumerate(dict.fromkeys(labels))}
        of_leaf = np.array([position[code] for code in labels])
        if of_leaf.size != above.size:
            raise ValueError(f"geocodes of {level!r} are {of_leaf.size}: give one for each of {above.size} leaves")
        _, first = np.unique(of_leaf, return_index=True)
        torn = np.flatnonzero(above[first][of_leaf - len(codes)] != above)
        if torn.size:
            raise ValueError(f"geounit {labels[torn[0]]!r} of {level!r} would have two parents: give it two geocodes")
        parents.append(above[first])
        levels += [level] * len(position)
        codes += position
        above = of_leaf
    return Spine(np.concatenate(parents), levels, codes)


def relabel(spine: Spine, level: str, geocodes: Sequence[str], *, above: str | None = None) -> Spine:
    """The spine with the geounits of one level redefined, or with a new level put in.

    Parameters
    ----------
    spine : Spine
    level : str
        The level to redefine, or the name of the new one.
    geocodes : sequence of str, (L,)
        For every leaf the geocode of its new ancestor at that level.
    above : str, optional
        Of a new level: the level that it is put directly above.
    """
    known = partitions(spine)
    if above is None:
        return from_partitions(known | {level: list(geocodes)})
    if level in known:
        raise ValueError(f"geolevel {level!r} is already in the spine: give the new one another name")
    result: dict[str, Sequence[str]] = {}
    for name, labels in known.items():
        if name == above:
            result[level] = list(geocodes)
        result[name] = labels
    return from_partitions(result)


def level_above(spine: Spine, level: str) -> str:
    """The geolevel directly above one.

    Raises
    ------
    ValueError
        If it is the topmost.
    """
    index = spine.level_index(level)
    if index == 0:
        raise ValueError(f"geolevel {level!r} is the root's: nothing lies above it")
    return spine.levels[index - 1]


def numbers_within(owner: ArrayLike) -> Index:
    """For every item its number among those of the same owner, in the order given, (n,)."""
    owner = np.asarray(owner)
    order = np.argsort(owner, kind="stable")
    sorted_owner = owner[order]
    starts = np.flatnonzero(np.r_[True, sorted_owner[1:] != sorted_owner[:-1]]) if owner.size else np.array([], int)
    numbers = np.empty(owner.size, dtype=np.intp)
    numbers[order] = np.arange(owner.size) - np.repeat(starts, np.diff(np.r_[starts, owner.size]))
    return numbers
