"""Pictures of spines and their off-spine entities. Each function draws on a matplotlib Axes and returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blue_solvers.spine_design.report import SpineReport
from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities, compositions, leaves, osed
from constraint_builders.geography.partitions import depths

if TYPE_CHECKING:
    from matplotlib.axes import Axes


OUTLINE, INSIDE, ADDED, SUBTRACTED = "0.8", "0.35", "tab:green", "tab:red"
MOST_OUTLINES = 3000  # geounits of a level: more would be a grey bar


def spine(axes: Axes, tree: Spine, entities: Entities, name: str, *, whole: bool = False) -> Axes:
    """Draw a spine as nested bars, one row a geolevel, and the geounits that compose an entity.

    Every geounit spans its blocks. The bottom row is dark where a block lies in the entity; geounits that are added to
    compose it are green, those subtracted red, as few as possible.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    tree : Spine
    entities : Entities
    name : str
        Name of the entity to draw.
    whole : bool
        Show every block rather than the stretch around the entity.

    Raises
    ------
    ValueError
        If there is no such entity, or the entities are of another number of blocks.
    """
    if name not in entities.names:
        raise ValueError(f"no entity {name!r}: there are {', '.join(map(repr, entities.names[:8]))}, ...")
    entity = Entities([name], entities.contains[[entities.names.index(name)]])
    start, stop = _spans(tree)
    signs = compositions(tree, entity).toarray()[0]
    for row, (level, members) in enumerate(zip(tree.levels, tree.members, strict=True)):
        if members.size <= MOST_OUTLINES:
            _bars(axes, start[members], stop[members], row, facecolor="white", edgecolor=OUTLINE)
        for sign, colour in ((1, ADDED), (-1, SUBTRACTED)):
            used = members[signs[members] == sign]
            _bars(axes, start[used], stop[used], row, facecolor=colour, edgecolor=colour)
        axes.text(-0.01, row, level, transform=axes.get_yaxis_transform(), ha="right", va="center")
    blocks = leaves(tree)
    inside = np.sort(start[blocks[entity.contains.indices]])
    _bars(axes, inside, inside + 1, len(tree.levels), facecolor=INSIDE, edgecolor="none")
    margin = 0.02 * (inside[-1] + 1 - inside[0]) + 1
    left, right = (0, blocks.size) if whole else (max(0, inside[0] - margin), min(blocks.size, inside[-1] + 1 + margin))
    axes.set(xlim=(left, right), ylim=(len(tree.levels) + 0.5, -0.5), yticks=[])
    axes.set_xlabel("blocks, in the order of the spine")
    axes.text(-0.01, len(tree.levels), "entity", transform=axes.get_yaxis_transform(), ha="right", va="center")
    axes.set_title(f"{name}: {osed(tree, entity)[0]} geounits")
    return axes


def accuracy(axes: Axes, report: SpineReport) -> Axes:
    """Draw for every spine the standard errors of its entities' totals, from the best entity to the worst.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw; its vertical axis becomes logarithmic.
    report : SpineReport
    """
    for name, variances in report.variances.items():
        axes.plot(np.arange(1, variances.size + 1), np.sort(np.sqrt(variances)), label=name)
    axes.set(xlabel="entities, from the most accurate", ylabel="standard error of the total", yscale="log")
    axes.legend()
    return axes


def _bars(axes: Axes, start: Index, stop: Index, row: int, facecolor: str, edgecolor: str) -> None:
    spans = np.stack([start, stop - start], axis=1)
    axes.broken_barh(
        [tuple(span) for span in spans.tolist()],
        (row - 0.4, 0.8),
        linewidth=0.5,
        facecolor=facecolor,
        edgecolor=edgecolor,
    )


def _spans(tree: Spine) -> tuple[Index, Index]:
    """For every geounit its first block and the one after its last, blocks in the order of a walk through the tree."""
    depth = depths(tree)
    below = (tree.child_counts == 0).astype(np.intp)
    by_depth = [np.flatnonzero(depth == d) for d in range(depth.max() + 1)]
    for geounits in reversed(by_depth[1:]):
        np.add.at(below, tree.parent[geounits], below[geounits])
    start = np.zeros(tree.size, dtype=np.intp)
    for geounits in by_depth[1:]:
        siblings = geounits[np.argsort(tree.parent[geounits], kind="stable")]
        parent = tree.parent[siblings]
        before = np.cumsum(below[siblings]) - below[siblings]
        first = np.searchsorted(parent, parent)
        start[siblings] = start[parent] + before - before[first]
    return start, start + below
