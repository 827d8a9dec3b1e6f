"""Where a spine is cut into parts: subtrees, siblings that fit in memory together, and the top of the tree above them.

The root of siblings is a geounit put in above them, at a level of its own, where nothing is measured and nothing is
wanted: so a part has one root whatever it holds, and tells and is told the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from constraint_builders import Spine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.memory import format_bytes, read_limit

SIBLINGS = "siblings"  # what a level is called that is put in
HALVINGS = 40  # until siblings are shared out as evenly as can be


def largest_subtrees(
    spine: Spine,
    own: Float,
    memory: float | None,
    at: str | None = None,
    reserved: float = 0.0,
    deepest: str | None = None,
) -> tuple[Index, Float]:
    """The largest subtrees that keep to a memory limit, at a geolevel or below, whatever the top needs.

    Parameters
    ----------
    spine : Spine
    own : ndarray, (N,)
        Bytes of every geounit.
    memory : float or None
    at : str, optional
    reserved : float
        Bytes of the memory for what is there beside any part.
    deepest : str, optional
        The level below which nothing is cut.

    Returns
    -------
    roots : ndarray of int
        Geounits, in the spine's order.
    below : ndarray, (N,)
        Bytes of every subtree.

    Raises
    ------
    ValueError
        If neither `memory` nor `at` is given.
    MemoryError
        If a subtree that is not to be cut needs more than `memory`.
    """
    if memory is None and at is None:
        raise ValueError("nothing says where to cut: give memory= in bytes, or at= a geolevel")
    limit = np.inf if memory is None else read_limit(memory) - reserved
    first, last = 0 if at is None else spine.level_index(at), spine.level_index(deepest or spine.levels[-1])
    below = own.astype(float)
    for members in reversed(spine.members[1:]):
        np.add.at(below, spine.parent[members], below[members])
    fits = (below <= limit) & (spine.level_of >= first) & (spine.level_of <= last)
    whole = (spine.child_counts == 0) | (deepest is not None and spine.level_of == last)
    large = np.flatnonzero(whole & (below > limit))
    if large.size:
        worst = large[0]
        what = "with all inside it" if spine.child_counts[worst] else "alone"
        raise MemoryError(
            f"{spine.levels[spine.level_of[worst]]} {spine.geocodes[worst]!r} {what} needs "
            f"{format_bytes(below[worst] + reserved)} and the limit is {format_bytes(limit + reserved)}: raise it, "
            "or want fewer tables"
        )
    return np.flatnonzero(fits & ((spine.parent < 0) | ~fits[spine.parent])), below


def members_of_parts(tree: LevelledTree, roots: Index) -> list[Index]:
    """Geounits of every part, (G,), then those of the top, which has the roots of all parts, (parts,)."""
    part = np.full(tree.size, -1)
    part[roots] = np.arange(roots.size)
    for members in tree.members[1:]:
        part[members] = np.maximum(part[members], part[tree.parent[members]])
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(roots.size + 1))
    parts = [order[start:stop] for start, stop in pairwise(bounds)]
    return [*parts, np.sort(np.concatenate([order[: bounds[0]], roots]))]


@dataclass(frozen=True)
class CutSpine:
    """A spine, with geounits put in above siblings that go together, and where it is cut.

    Attributes
    ----------
    tree : LevelledTree
        Geounits of the spine as they were numbered, then those put in.
    geocodes : sequence of str
    own : ndarray, (geounits of the tree,)
        Bytes of each.
    roots : ndarray of int
        Of the parts, in the spine's order.
    together : list of ndarray of int
        The siblings under every geounit put in.
    level_numbers : ndarray of int
        For every level of the spine its number in the tree.
    """

    tree: LevelledTree
    geocodes: Sequence[str]
    own: Float
    roots: Index
    together: list[Index]
    level_numbers: Index


def cut_with_siblings(
    spine: Spine,
    own: Float,
    memory: float | None,
    at: str | None = None,
    reserved: float = 0.0,
    deepest: str | None = None,
) -> CutSpine:
    """Cut a spine, of bytes (N,), as `largest_subtrees`; put siblings below the geolevel together as memory allows.

    Raises
    ------
    ValueError, MemoryError
        As `largest_subtrees`, or if all geounits at and above the cut need more than `memory`.
    """
    roots, below = largest_subtrees(spine, own, memory, at, reserved, deepest)
    together = []
    if memory is not None:
        first = 0 if at is None else spine.level_index(at)
        parents = spine.parent[roots]
        inner = (parents >= 0) & (spine.level_of[parents] >= first)
        for parent in np.unique(parents[inner]).tolist():
            siblings = roots[parents == parent]
            lots = shared_out(siblings, below[siblings], memory - reserved - float(own[parent]))
            together += [lot for lot in lots if lot.size > 1]
    cut = _put_in(spine, own, roots, together)
    top = members_of_parts(cut.tree, cut.roots)[-1]
    needed = cut.own[top].sum() + reserved
    if memory is not None and needed > memory:
        raise MemoryError(
            f"the {top.size:,} geounits at and above the cut need {format_bytes(needed)} and the limit is "
            f"{format_bytes(memory)}: raise it"
        )
    return cut


def shared_out(siblings: Index, needed: Float, limit: float) -> list[Index]:
    """Siblings that follow one another, (k,), and keep to a limit, in as few lots as can be, as even as can be."""
    most = len(_lots(needed, limit))
    low, high = min(limit, float(needed.sum()) / most), limit
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_lots(needed, middle)) <= most else (middle, high)
    return [siblings[lot] for lot in _lots(needed, high)]


def _lots(needed: Float, limit: float) -> list[slice]:
    """As many as keep to a limit, of needs (k,), one after another; what does not keep to it is alone."""
    sums, lots, start = np.cumsum(needed), [], 0
    while start < needed.size:
        before = sums[start] - needed[start]
        stop = max(start + 1, int(np.searchsorted(sums, before + limit, side="right")))
        lots.append(slice(start, stop))
        start = stop
    return lots


def _put_in(spine: Spine, own: Float, roots: Index, together: list[Index]) -> CutSpine:
    """Put a geounit in above each of some siblings, (k,), of a spine of bytes (N,), cut at roots (parts,)."""
    parents = spine.parent[np.array([lot[0] for lot in together], dtype=np.intp)]
    above = np.unique(spine.level_of[parents])  # each has a level more below it
    numbers = np.arange(len(spine.levels)) + np.searchsorted(above, np.arange(len(spine.levels)))
    names = names_not_in(spine.levels)
    levels = [name for i, level in enumerate(spine.levels) for name in [level, *([next(names)] if i in above else [])]]
    level_of = np.concatenate([numbers[spine.level_of], numbers[spine.level_of[parents]] + 1])
    part, parent = np.arange(spine.size), np.concatenate([spine.parent, parents])
    for i, lot in enumerate(together):
        part[lot] = parent[lot] = spine.size + i
    firsts = np.sort(np.unique(part[roots], return_index=True)[1])
    return CutSpine(
        LevelledTree(parent, level_of, tuple(levels)),
        [*spine.geocodes, *(f"{spine.geocodes[lot[0]]} to {spine.geocodes[lot[-1]]}" for lot in together)],
        np.concatenate([own, own[parents]]),
        part[roots[firsts]],
        together,
        numbers,
    )


def names_not_in(taken: Sequence[str], name: str = SIBLINGS) -> Iterator[str]:
    """What levels that are put in are called, where there are these."""
    while True:
        if name not in taken:
            yield name
        name += "'"
