"""Several readings of the same quantities, each a dot with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.description.reals import real_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPREAD = 0.5  # of the height of a row, over which its readings lie
MARKERS = "osD^v"


def dots_and_intervals(
    ax: Axes,
    labels: Sequence[str],
    readings: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    truth: ArrayLike | None = None,
) -> Axes:
    """Draw a row for every quantity, and in it a dot with its interval for every reading of it.

    Parameters
    ----------
    ax : Axes
    labels : sequence of str, (K,)
        Names of the quantities, from the top down.
    readings : mapping of str to (centre, lower, upper), each array_like, (K,)
        Values with the ends of their intervals, by the name of the reading, such as ``"noisy"`` and ``"estimate"``.
    truth : array_like, (K,), optional
        Drawn as a line across each row.

    Raises
    ------
    ValueError
        If there is no reading, or one has not a number and an ordered interval around it for every label.
    """
    if not readings:
        raise ValueError("no readings: give at least one, {name: (centre, lower, upper)}")
    rows = np.arange(len(labels))
    steps = np.linspace(-SPREAD / 2, SPREAD / 2, len(readings)) if len(readings) > 1 else np.zeros(1)
    for step, marker, (name, values) in zip(steps, cycle(MARKERS), readings.items(), strict=False):
        centre, lower, upper = (_row_values(value, name, len(labels)) for value in values)
        if np.any((lower > centre) | (centre > upper)):
            raise ValueError(f"{name}: every value must lie in its interval, lower <= centre <= upper")
        ax.errorbar(centre, rows + step, xerr=[centre - lower, upper - centre], fmt=marker, label=name)
    if truth is not None:
        true_values = _row_values(truth, "truth", len(labels))
        ax.plot(true_values, rows, "|", color="0.46", markersize=22, markeredgewidth=1.2, zorder=0, label="truth")
    ax.set_yticks(rows, labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return ax


def _row_values(values: ArrayLike, name: str, count: int) -> np.ndarray:
    """One number for each of the labels, (count,)."""
    array = real_array(values, name)
    if array.shape != (count,):
        raise ValueError(f"{name} has shape {array.shape}: give one number for each of the {count} labels")
    return array
