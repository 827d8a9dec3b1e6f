"""Pictures of convergence and of noise. Each function draws on a matplotlib Axes and returns it (extra ``plots``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.pictures import BLUE, COLOURS, DASHES, ORANGE, lines_that_fit, logarithmic
from noise_mechanisms.integer_subspace.chains import MeetingTimes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 200  # iterations at which a curve is evaluated
MOST_NUMBERS = 12  # cells that are numbered on an axis


def total_variation(axes: Axes, meetings: Mapping[str, MeetingTimes]) -> Axes:
    """Draw the bound on the distance from the law against the iteration, with a band of two standard errors.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    meetings : mapping of label to MeetingTimes
        One curve each.
    """
    for i, (label, meeting) in enumerate(meetings.items()):
        iterations = np.unique(np.linspace(0, meeting.times.max(), POINTS).astype(int))
        bounds = np.array([meeting.bound(int(t)) for t in iterations])
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        axes.plot(iterations, bounds[:, 0], label=label, color=colour, linestyle=dashes)
        low, high = bounds[:, 0] - 2 * bounds[:, 1], bounds[:, 0] + 2 * bounds[:, 1]
        axes.fill_between(iterations, np.maximum(low, 0), np.minimum(high, 1), color=colour, alpha=0.2)
    axes.set(xlabel="iteration", ylabel="total variation distance, upper bound", ylim=(0, 1.02))
    axes.legend(loc="upper right")
    return axes


def noise_by_cell(axes: Axes, noise: ArrayLike, labels: Sequence[str] | None = None) -> Axes:
    """Draw one boxplot of the noise for every cell.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    noise : array_like, (draws, d)
        Independent draws.
    labels : sequence of str, optional
        Names of the cells, by default their numbers.
    """
    values = np.asarray(noise)
    cells = values.shape[1]
    axes.boxplot(values, flierprops={"marker": "x", "markersize": 3}, medianprops={"color": ORANGE})
    every = -(-cells // min(lines_that_fit(axes, "x"), cells if labels else MOST_NUMBERS))
    named = np.arange(0, cells, every)
    axes.set_xticks(named + 1, [labels[cell] if labels else str(cell) for cell in named])
    axes.tick_params(axis="x", rotation=90 if labels else 0)
    if every > 1 and labels:
        axes.set_xlabel(f"{cells:,} cells, one in {every} named")
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_ylabel("noise")
    return axes


def noise_by_size(axes: Axes, sizes: ArrayLike, noise: ArrayLike) -> Axes:
    """Draw every county's noise against its true size: median, quartiles, and 1 and 99 per cent points.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw; its horizontal axis becomes logarithmic.
    sizes : array_like, (d,)
        True counts, positive.
    noise : array_like, (draws, d)
        Independent draws.
    """
    order = np.argsort(np.asarray(sizes))
    ordered = np.asarray(sizes)[order]
    tails = np.percentile(np.asarray(noise)[:, order], [1, 25, 50, 75, 99], axis=0)
    axes.vlines(ordered, tails[0], tails[4], color="0.7", label="1 to 99 per cent")
    axes.vlines(ordered, tails[1], tails[3], color=BLUE, linewidth=3, label="quartiles")
    axes.plot(ordered, tails[2], "k.", label="median")
    axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    axes.set(xlabel="true count", ylabel="noise")
    logarithmic(axes, "x")
    axes.legend()
    return axes
