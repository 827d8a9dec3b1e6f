"""Optimised block groups: blocks regrouped within the intersections of entities (Algorithm 2, first part)."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import Entities, check_blocks
from constraint_builders.geography.partitions import ancestors, leaves, level_above, numbers_within, relabel

Variant: TypeAlias = Literal["paper", "production"]
VARIANTS = ("paper", "production")
FANOUT_CUTOFF = 12  # production default


def most_members(count: int, fanout_cutoff: int = FANOUT_CUTOFF, variant: Variant = "paper") -> int:
    """The most geounits that a group may have among `count` under one parent.

    Parameters
    ----------
    count : int
        Geounits under the parent: blocks of the tract, or tracts of the county.
    fanout_cutoff : int
        Added to the square root of `count`.
    variant : {"paper", "production"}
        The paper says up to sqrt(count) + fanout_cutoff. The production code opens a new block group when the number
        exceeds that, and so allows one more.

    Raises
    ------
    ValueError
        If the cutoff leaves no room for any, or the variant is unknown.
    """
    check_variant(variant)
    most = math.isqrt(count) + fanout_cutoff + (variant == "production")
    if most < 1:
        raise ValueError(f"fanout_cutoff {fanout_cutoff} allows {most} geounits in a group of {count}: raise it")
    return most


def check_variant(variant: str) -> None:
    """Raise `ValueError` for a variant that is neither the paper's nor the production code's."""
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r} is unknown: use 'paper' or 'production'")


def regroup_blocks(
    spine: Spine,
    entities: Entities,
    *,
    fanout_cutoff: int = FANOUT_CUTOFF,
    variant: Variant = "paper",
    level: str = "Block_Group",
) -> Spine:
    """Redefine block groups so that each lies within one intersection of entities.

    Within the tract, blocks that lie in the same entities are taken in the order of their geocodes and cut into groups
    of `most_members`; only the last of them may be smaller.

    Parameters
    ----------
    spine : Spine
        With a geolevel above and one below `level`, each an ancestor of every block.
    entities : Entities
    fanout_cutoff, variant
        See `most_members`.
    level : str
        The geolevel to redefine.

    Returns
    -------
    Spine
        With groups named after the geounit above and a number, and the blocks in the same order.

    Raises
    ------
    ValueError
        If the entities are of another number of blocks, or the spine lacks the levels.

    References
    ----------
    Paper, Algorithm 2.
    """
    check_blocks(leaves(spine).size, entities)
    over = ancestors(spine, level_above(spine, level))
    sizes = np.bincount(over)
    most = np.array([most_members(int(n), fanout_cutoff, variant) if n else 0 for n in sizes])[over]
    codes = np.array([spine.geocodes[i] for i in leaves(spine)])
    cell = entities.intersections()
    order = np.lexsort((codes, cell, over))
    chunk = np.empty(order.size, dtype=np.intp)
    owner = over[order] * (cell.max() + 1) + cell[order]
    chunk[order] = numbers_within(owner) // most[order]
    return relabel(spine, level, name_groups(spine, over, np.stack([over, cell, chunk])))


def name_groups(spine: Spine, over: NDArray[np.intp], keys: NDArray[np.intp]) -> list[str]:
    """Geocodes of groups of leaves: that of the geounit above, and a number.

    Parameters
    ----------
    spine : Spine
    over : ndarray of int, (L,)
        For every leaf the geounit that its group lies under.
    keys : ndarray of int, (r, L)
        Leaves with equal columns form a group.
    """
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    group = group.ravel()
    by_appearance = np.argsort(first)
    number = np.empty(first.size, dtype=np.intp)
    number[by_appearance] = numbers_within(over[first][by_appearance])
    return [f"{spine.geocodes[unit]}-{number[g]:02d}" for unit, g in zip(over, group, strict=True)]
