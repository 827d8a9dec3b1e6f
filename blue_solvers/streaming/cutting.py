"""Where a spine is cut into parts: subtrees, and the top of the tree above them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from constraint_builders import Spine
from constraint_builders.arrays import Float, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.memory import format_bytes, read_limit


def choose_cut(spine: Spine, own: Float, memory: float | None, at: str | None = None) -> Index:
    """Roots of the parts: the largest subtrees that keep to a memory limit, at a geolevel or below.

    Parameters
    ----------
    spine : Spine
    own : ndarray, (N,)
        Bytes of every geounit.
    memory : float or None
    at : str, optional

    Returns
    -------
    ndarray of int
        Geounits, in the spine's order.

    Raises
    ------
    ValueError
        If neither `memory` nor `at` is given.
    MemoryError
        If a geounit without children, or all geounits above the cut, need more than `memory`.
    """
    roots = largest_subtrees(spine, own, memory, at)[0]
    require_top(own, members_of_parts(spine, roots)[-1], memory)
    return roots


def largest_subtrees(
    spine: Spine,
    own: Float,
    memory: float | None,
    at: str | None = None,
    reserved: float = 0.0,
    deepest: str | None = None,
) -> tuple[Index, Float]:
    """Roots of the parts as `choose_cut` gives them, whatever the top needs; and the bytes of every subtree.

    Of the memory some bytes may be reserved for what is there beside any part. Below the deepest level that is given
    nothing is cut.
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


def require_top(own: Float, top: Index, memory: float | None, reserved: float = 0.0) -> None:
    """Raise `MemoryError` if the geounits at and above the cut need more than a limit, beside what is reserved."""
    needed = own[top].sum() + reserved
    if memory is not None and needed > memory:
        raise MemoryError(
            f"the {top.size:,} geounits at and above the cut need {format_bytes(needed)} and the limit is "
            f"{format_bytes(memory)}: raise it"
        )


def members_of_parts(tree: LevelledTree, roots: Index) -> list[Index]:
    """Geounits of every part, then those of the top, which has the roots of all parts."""
    part = np.full(tree.size, -1)
    part[roots] = np.arange(roots.size)
    for members in tree.members[1:]:
        part[members] = np.maximum(part[members], part[tree.parent[members]])
    order = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[order], np.arange(roots.size + 1))
    parts = [order[start:stop] for start, stop in pairwise(bounds)]
    return [*parts, np.sort(np.concatenate([order[: bounds[0]], roots]))]
