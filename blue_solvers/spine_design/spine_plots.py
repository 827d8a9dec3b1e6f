"""Pictures of spines and their off-spine entities. Each function draws on a matplotlib Axes and returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blue_solvers.spine_design.report import SpineReport
from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities, compositions, leaves, osed
from constraint_builders.geography.entities import walk_of_leaves
from constraint_builders.pictures import BLUE, COLOURS, DASHES, ORANGE, logarithmic
from constraint_builders.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


OUTLINE, INSIDE, ADDED, SUBTRACTED = "0.8", "0.35", BLUE, ORANGE
MOST_OUTLINES = 3000  # geounits of a level: more would be a grey bar


def spine(axes: Axes, tree: Spine, entities: Entities, name: str, *, whole: bool = False) -> Axes:
    """Draw a spine as nested bars, one row a geolevel, and the geounits that compose an entity.

    Every geounit spans its blocks. The bottom row is dark where a block lies in the entity; geounits that are added to
    compose it are blue, those subtracted orange and hatched, as few as possible. Of a geolevel with more than 3,000
    only these are drawn, and its label says so.

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
    start, stop = walk_of_leaves(tree)
    signs = compositions(tree, entity).toarray()[0]
    labels = []
    for row, (level, members) in enumerate(zip(tree.levels, tree.members, strict=True)):
        outlined = members.size <= MOST_OUTLINES
        if outlined:
            _bars(axes, start[members], stop[members], row, facecolor="white", edgecolor=OUTLINE)
        for sign, colour in ((1, ADDED), (-1, SUBTRACTED)):
            used = members[signs[members] == sign]
            _bars(axes, start[used], stop[used], row, colour, colour if sign > 0 else "black", "" if sign > 0 else "//")
        labels.append(level if outlined else f"{level}\n({members.size:,}, not outlined)")
    blocks = leaves(tree)
    inside = np.sort(start[blocks[entity.contains.indices]])
    _bars(axes, inside, inside + 1, len(tree.levels), facecolor=INSIDE, edgecolor="none")
    margin = 0.02 * (inside[-1] + 1 - inside[0]) + 1
    left, right = (0, blocks.size) if whole else (max(0, inside[0] - margin), min(blocks.size, inside[-1] + 1 + margin))
    axes.set(xlim=(left, right), ylim=(len(tree.levels) + 0.5, -0.5))
    axes.set_yticks(np.arange(len(labels) + 1), [*labels, "entity"])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("blocks, in the order of the spine (blue: added, orange: subtracted)")
    axes.set_title(f"{printable(name)}: {osed(tree, entity)[0]} geounits")
    return axes


def accuracy(axes: Axes, report: SpineReport) -> Axes:
    """Draw for every spine the standard errors of its entities, from the best entity to the worst.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw; its vertical axis becomes logarithmic.
    report : SpineReport
    """
    for i, (name, variances) in enumerate(report.variances.items()):
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        ranks, errors = np.arange(1, variances.size + 1), np.sort(np.sqrt(variances))
        axes.plot(ranks, errors, label=name, color=colour, linestyle=dashes)
    axes.set(xlabel="entities, from the most accurate", ylabel="standard error")
    logarithmic(axes, "y")
    axes.legend(loc="upper left")
    return axes


def same_scale(*pictures: Axes) -> None:
    """Let a block be as wide in every one of several pictures of spines, which stay where they were centred."""
    width = max(abs(right - left) for left, right in (axes.get_xlim() for axes in pictures))
    for axes in pictures:
        centre = sum(axes.get_xlim()) / 2
        axes.set_xlim(centre - width / 2, centre + width / 2)


def _bars(
    axes: Axes, start: Index, stop: Index, row: int, facecolor: str, edgecolor: str, hatch: str | None = None
) -> None:
    """Bars in a row, each from its start to its stop, (bars,)."""
    spans = np.stack([start, stop - start], axis=1)
    axes.broken_barh(
        [tuple(span) for span in spans.tolist()],
        (row - 0.4, 0.8),
        linewidth=0.5,
        facecolor=facecolor,
        edgecolor=edgecolor,
        hatch=hatch,
    )
