"""Siblings that fit in memory together, as one part.

Its root is a geounit put in above them, at a level of its own, where nothing is measured and nothing is wanted: so a
part has one root whatever it holds, and tells and is told the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blue_solvers.streaming.cutting import largest_subtrees, members_of_parts, require_top
from constraint_builders import Spine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.levelled_tree import LevelledTree

SIBLINGS = "siblings"  # what a level is called that is put in
HALVINGS = 40  # until siblings are shared out as evenly as can be


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
    """Cut a spine as `largest_subtrees`, and put siblings below the geolevel together as far as memory allows.

    Raises
    ------
    ValueError, MemoryError
        As `choose_cut`.
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
    require_top(cut.own, members_of_parts(cut.tree, cut.roots)[-1], memory, reserved)
    return cut


def shared_out(siblings: Index, needed: Float, limit: float) -> list[Index]:
    """Siblings that follow one another and keep to a limit, in as few lots as can be, as even as can be."""
    most = len(_lots(needed, limit))
    low, high = min(limit, float(needed.sum()) / most), limit
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_lots(needed, middle)) <= most else (middle, high)
    return [siblings[lot] for lot in _lots(needed, high)]


def _lots(needed: Float, limit: float) -> list[slice]:
    """As many as keep to a limit, one after another; what does not keep to it is alone."""
    sums, lots, start = np.cumsum(needed), [], 0
    while start < needed.size:
        before = sums[start] - needed[start]
        stop = max(start + 1, int(np.searchsorted(sums, before + limit, side="right")))
        lots.append(slice(start, stop))
        start = stop
    return lots


def _put_in(spine: Spine, own: Float, roots: Index, together: list[Index]) -> CutSpine:
    """Put a geounit in above each of some siblings."""
    parents = np.array([spine.parent[lot[0]] for lot in together], dtype=np.intp)
    above = np.unique(spine.level_of[parents])  # each has a level more below it
    numbers = np.arange(len(spine.levels)) + np.searchsorted(above, np.arange(len(spine.levels)))
    levels, names = [""] * (len(spine.levels) + above.size), names_not_in(spine.levels)
    for number, name in zip(numbers.tolist(), spine.levels, strict=True):
        levels[number] = name
    levels = [name or next(names) for name in levels]
    parent = np.concatenate([spine.parent, parents])
    for i, lot in enumerate(together):
        parent[lot] = spine.size + i
    level_of = np.concatenate([numbers[spine.level_of], numbers[spine.level_of[parents]] + 1])
    codes = [f"{spine.geocodes[lot[0]]} to {spine.geocodes[lot[-1]]}" for lot in together]
    new = spine.size + np.arange(len(together))
    apart = np.setdiff1d(roots, np.concatenate([np.zeros(0, dtype=np.intp), *together]))
    order = np.argsort(np.array([*apart.tolist(), *(int(lot[0]) for lot in together)]), kind="stable")
    return CutSpine(
        LevelledTree(parent, level_of, tuple(levels)),
        [*spine.geocodes, *codes],
        np.concatenate([own, own[parents]]),
        np.concatenate([apart, new])[order],
        together,
        numbers,
    )


def names_not_in(taken: Sequence[str], name: str = SIBLINGS) -> Iterator[str]:
    """What levels that are put in are called, where there are these."""
    while True:
        if name not in taken:
            yield name
        name += "'"
