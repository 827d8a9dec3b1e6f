"""A tree of geounits, each a dot whose colour tells a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array
from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import walk_of_leaves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NODES = 2_000  # more are a smear


def hierarchy(ax: Axes, spine: Spine, values: ArrayLike, label: str) -> Axes:
    """Draw a spine from its root at the top, its geounits coloured by a number, with the bar that explains the colours.

    Parameters
    ----------
    ax : Axes
    spine : Spine
        Of at most 2,000 geounits.
    values : array_like, (G,)
        A number for every geounit, in the spine's order; NaN is drawn hollow.
    label : str
        What the numbers are.

    Raises
    ------
    ValueError
        If the spine has more geounits, or not as many as there are values.
    """
    numbers = real_array(values, label)
    if spine.size > MOST_NODES:
        raise ValueError(f"the spine has {spine.size:,} geounits: no more than {MOST_NODES:,} can be told apart")
    if numbers.shape != (spine.size,):
        raise ValueError(f"values have shape {numbers.shape}: give one for each of the {spine.size} geounits")
    across, down = _places(spine), spine.level_of
    below = np.flatnonzero(spine.parent >= 0)
    above = spine.parent[below]
    ax.plot([across[above], across[below]], [down[above], down[below]], color="0.6", linewidth=0.7, marker="", zorder=0)
    known = np.isfinite(numbers)
    ax.scatter(across[~known], down[~known], s=40, facecolors="none", edgecolors="0.46", marker="o")
    dots = ax.scatter(across[known], down[known], c=numbers[known], s=40, edgecolors="0.46", linewidths=0.5, marker="o")
    ax.figure.colorbar(dots, ax=ax, label=label, shrink=0.8)
    ax.set_yticks(range(len(spine.levels)), [level.replace("_", " ") for level in spine.levels])
    ax.invert_yaxis()
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    return ax


def _places(spine: Spine) -> Float:
    """Leaves side by side in the order of a walk through the tree, others over the middle of their children, (G,)."""
    across, below = walk_of_leaves(spine)[0].astype(float), np.flatnonzero(spine.parent >= 0)
    for members in spine.members[-2::-1]:
        inner = members[spine.child_counts[members] > 0]
        sums = np.bincount(spine.parent[below], across[below], spine.size)
        across[inner] = sums[inner] / spine.child_counts[inner]
    return across
