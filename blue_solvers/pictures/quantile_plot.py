"""Whether residuals are as normal as they claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from blue_solvers.quantiles import takes_confidence_level
from constraint_builders.description.reals import real_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@takes_confidence_level
def normal_quantiles(
    ax: Axes,
    residuals: ArrayLike,
    names: Sequence[str] | None = None,
    *,
    named: int = 0,
    confidence_level: float = 0.95,
) -> Axes:
    """Draw sorted residuals against the quantiles of the normal law, with the band in which each would lie.

    Parameters
    ----------
    ax : Axes
    residuals : array_like, (n,)
        Studentised, as of `blue_solvers.fit_test`; those that are NaN are left out.
    names : sequence of str, (n,), optional
        Of the residuals.
    named : int
        How many of the largest are written on the picture.
    confidence_level : float
        Of the band, which holds each quantile by itself, as if residuals were independent.

    Raises
    ------
    ValueError
        If no residual is a number, names are missing or not as many, or the level is not between 0 and 1.
    """
    values = real_array(residuals, "residuals").ravel()
    if not 0 < confidence_level < 1:
        raise ValueError(f"confidence_level is {confidence_level}: it must lie between 0 and 1")
    labels = () if names is None else names
    if named and len(labels) != values.size:
        raise ValueError(f"names must be given, one for each of the {values.size} residuals, for {named} to be written")
    checked = np.flatnonzero(np.isfinite(values))
    if not checked.size:
        raise ValueError("no residual is a number: nothing checks any of these cells")
    order = checked[np.argsort(values[checked])]
    ranks = np.arange(1, order.size + 1)
    expected = ndtri((ranks - 0.5) / order.size)
    low, high = (
        ndtri(betaincinv(ranks, order.size + 1 - ranks, p))
        for p in ((1 - confidence_level) / 2, (1 + confidence_level) / 2)
    )
    ax.fill_between(
        expected, low, high, color="0.5", alpha=0.25, linewidth=0, label=f"{100 * confidence_level:g} % band"
    )
    ax.plot(expected, expected, color="0.46", linewidth=1, marker="")
    ax.plot(expected, values[order], "o")
    for place in sorted(range(order.size), key=lambda k: -abs(values[order[k]]))[:named]:
        right = values[order[place]] > 0
        ax.annotate(
            labels[order[place]],
            (expected[place], values[order[place]]),
            (-7 if right else 7, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            va="center",
        )
    ax.set_xlabel("quantile of the normal law")
    ax.set_ylabel("residual, in standard errors")
    return ax
