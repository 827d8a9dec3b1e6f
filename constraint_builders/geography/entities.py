"""A spine as nested partitions of its leaves, and entities that need not be its geounits: places, school districts.

Partitions are one for every geolevel, and lead back to the spine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from constraint_builders.arrays import Index, kinds_of_rows
from constraint_builders.description.labelled import is_missing, read_names, read_texts
from constraint_builders.description.reals import read_matrix
from constraint_builders.description.spine import Spine, read_positions

OUTSIDE = "outside"


class Entities:
    """Off-spine entities, each a set of blocks.

    Parameters
    ----------
    names : sequence of str, (K,)
    contains : array_like or sparse array of bool, (K, L)
        Whether an entity contains a block, blocks in the order of the spine's leaves.

    Raises
    ------
    ValueError
        If shapes differ, a name is repeated, an entry is neither 0 nor 1, or an entity contains no block.
    """

    def __init__(self, names: Sequence[str], contains: Any) -> None:
        self.names = tuple(read_texts(names, "names of entities"))
        matrix = read_matrix(contains, "contains")
        if matrix.ndim != 2 or matrix.shape[0] != len(self.names):
            raise ValueError(f"contains must have a row for each of {len(self.names)} entities: got {matrix.shape}")
        name, times = Counter(self.names).most_common(1)[0] if self.names else ("", 0)
        if times > 1:
            raise ValueError(f"entity {name!r} is given {times} times: give it once, or another name")
        if not (matrix.data == 1).all():
            raise ValueError("contains must hold 0 and 1 only: an entity contains a block or does not")
        empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
        if empty.size:
            raise ValueError(f"entity {self.names[empty[0]]!r} contains no block: leave it out")
        self.contains: sparse.csr_array = matrix

    @classmethod
    def from_labels(cls, categories: Mapping[str, Sequence[str | None]], outside: bool = True) -> Entities:
        """Entities from a block table's columns of codes.

        Parameters
        ----------
        categories : mapping of str to sequence of str or None, (L,)
            For every category of entities the code of every block's entity; "" or missing where it lies in none.
        outside : bool
            Whether the region outside all entities of a category is an entity too, as in production (paper,
            section 6).

        Returns
        -------
        Entities
            Named ``"category code"``.

        Raises
        ------
        ValueError
            If columns have different lengths, or no block has a label.
        """
        names: list[str] = []
        rows: list[NDArray] = []
        columns: list[NDArray] = []
        blocks = 0
        for category, labels in categories.items():
            given = read_names(labels, f"labels of {category!r}")
            codes = np.array(["" if is_missing(label) else str(label) for label in given])
            if names and codes.size != blocks:
                raise ValueError(f"labels of {category!r} are {codes.size}: give one for each of {blocks} blocks")
            blocks = codes.size
            found, number = np.unique(codes, return_inverse=True)
            kept = np.flatnonzero(np.isin(number, np.flatnonzero(found != "")) | outside)
            renumbered = np.unique(number[kept], return_inverse=True)[1]
            rows.append(len(names) + renumbered)
            columns.append(kept)
            names += [f"{category} {code or OUTSIDE}" for code in found if code or outside]
        if not names:
            raise ValueError("no entities: give at least one category with a labelled block")
        row, column = np.concatenate(rows), np.concatenate(columns)
        return cls(names, sparse.coo_array((np.ones(row.size), (row, column)), shape=(len(names), blocks)))

    @classmethod
    def from_geounits(cls, spine: Spine, geounits: Mapping[str, ArrayLike]) -> Entities:
        """Entities from geounits of a spine, at any geolevels.

        Parameters
        ----------
        spine : Spine
        geounits : mapping of str to array_like of int, (geounits,)
            For every entity the positions of its geounits in the spine, which `Spine.position` finds.

        Returns
        -------
        Entities

        Raises
        ------
        ValueError
            If a position lies outside the spine, or a geounit is given twice or within another one.
        """
        names = tuple(geounits)
        given, blocks = _times_given(spine, geounits), leaves(spine)
        contains = sparse.csr_array((len(names), blocks.size))
        for level, members in enumerate(spine.members):
            contains += given[:, members] @ spine.leaves_of(level)
        repeated = np.flatnonzero(contains.data > 1)
        if repeated.size:
            entity, block = (int(where[repeated[0]]) for where in contains.tocoo().coords)
            times, code = contains.data[repeated[0]], spine.geocodes[blocks[block]]
            raise ValueError(f"entity {names[entity]!r} has block {code!r} {times:.0f} times: give disjoint geounits")
        return cls(names, contains)

    @property
    def size(self) -> int:
        """Number of entities."""
        return len(self.names)

    @property
    def blocks(self) -> int:
        """Number of blocks of the geography."""
        return self.contains.shape[1]

    def intersections(self) -> NDArray[np.intp]:
        """For every block the number of its cell, (L,): blocks of a cell are contained in the same entities.

        Returns
        -------
        ndarray of int, (L,)
        """
        return kinds_of_rows(sparse.csr_array(self.contains.T))

    def __repr__(self) -> str:
        return f"Entities({self.size:,} entities of {self.blocks:,} blocks)"


def _times_given(spine: Spine, geounits: Mapping[str, ArrayLike]) -> sparse.csr_array:
    """How often every entity is given every geounit of a spine, (K, N)."""
    chosen = []
    for name, positions in geounits.items():
        chosen.append(read_positions(positions, f"entity {name!r}").ravel())
        if chosen[-1].size and not (chosen[-1].min() >= 0 and chosen[-1].max() < spine.size):
            raise ValueError(f"entity {name!r} has a geounit outside the spine: positions run to {spine.size - 1}")
    entity = np.repeat(np.arange(len(chosen)), [own.size for own in chosen])
    geounit = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.intp)
    return sparse.csr_array((np.ones(geounit.size), (entity, geounit)), shape=(len(chosen), spine.size))


def check_blocks(blocks: int, own: int, what: str = "entities") -> None:
    """Raise `ValueError` unless entities are of as many blocks as the spine has leaves."""
    if own != blocks:
        raise ValueError(
            f"the {what} are of {own:,} blocks, the spine has {blocks:,} leaves: use one block table for both"
        )


def leaves(spine: Spine) -> Index:
    """Positions of the geounits without children, (L,), in the spine's order: the order of every block vector here."""
    return np.flatnonzero(spine.child_counts == 0)


def depths(spine: Spine) -> Index:
    """Number of ancestors of every geounit, (N,)."""
    depth = np.zeros(spine.size, dtype=np.intp)
    for members in spine.members[1:]:
        depth[members] = depth[spine.parent[members]] + 1
    return depth


def walk_of_leaves(spine: Spine) -> tuple[Index, Index]:
    """For every geounit, (N,), its first leaf and the one after its last, in the order of a walk through the tree."""
    below = (spine.child_counts == 0).astype(np.intp)
    for members in spine.members[:0:-1]:
        np.add.at(below, spine.parent[members], below[members])
    order = np.argsort(spine.parent, kind="stable")
    parent, ahead = spine.parent[order], np.cumsum(below[order]) - below[order]
    start = np.empty_like(below)
    start[order] = ahead - ahead[np.searchsorted(parent, parent)]
    for members in spine.members[1:]:
        start[members] += start[spine.parent[members]]
    return start, start + below


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
