"""How far a non-negative fit moved away from the unbiased estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.nonnegative.anchored_fit import anchored_fit
from blue_solvers.nonnegative.fit import NonnegativeFit
from blue_solvers.nonnegative.least_squares import nnls
from blue_solvers.nonnegative.max_fit import max_fit
from blue_solvers.nonnegative.reweighted_fit import reweighted_fit
from blue_solvers.nonnegative.sequential_fit import sequential_fit
from constraint_builders.description.layout import Name

METHODS: dict[str, Callable[..., NonnegativeFit]] = {
    "nnls": nnls,
    "max": max_fit,
    "sequential": sequential_fit,
    "reweighted": reweighted_fit,
    "anchored": anchored_fit,
}


@dataclass(frozen=True)
class Movement:
    """How far one table moved.

    Attributes
    ----------
    table : str
    total, unbiased_total : float
        Sum of the table's cells: fitted, and unbiased; NaN where one is not estimable.
    cell : tuple of int
        The cell that moved farthest, of those that are estimable.
    value, unbiased_value : float
        That cell: fitted, and unbiased.
    """

    table: Name
    total: float
    unbiased_total: float
    cell: tuple[int, ...]
    value: float
    unbiased_value: float

    def __str__(self) -> str:
        totals = "" if np.isnan(self.total) else f"total {_moved(self.unbiased_total, self.total)}; "
        where = f" at {self.cell}" if self.cell else ""
        return f"{self.table}: {totals}worst cell{where} {_moved(self.unbiased_value, self.value)}"


def movements(fit: NonnegativeFit, unbiased: ArrayLike) -> list[Movement]:
    """How far every desired table moved from the unbiased estimates.

    Parameters
    ----------
    fit : NonnegativeFit
        Of one vector.
    unbiased : array_like, (m,)
        Unbiased estimates over the desired layout, ``P @ y + P.offset``.

    Returns
    -------
    list of Movement
        One for each desired table, in order; ``str`` of each is a line of text.

    Raises
    ------
    ValueError
        If the fit is of several columns, or `unbiased` has another length.
    """
    layout = fit.problem.desired
    before = layout.flat(unbiased, "unbiased")
    if fit.observed.ndim != 1 or before.shape != (layout.size,):
        raise ValueError(
            f"movements compare one fit with a vector of {layout.size} unbiased estimates: got a fit of shape "
            f"{fit.observed.shape} and estimates of shape {before.shape}"
        )
    tables = zip(layout.names, layout.tables(fit.desired).values(), layout.tables(before).values(), strict=True)
    return [_movement(name, fitted, estimated) for name, fitted, estimated in tables]


def _movement(name: Name, fitted: np.ndarray, unbiased: np.ndarray) -> Movement:
    """How far a table moved, fitted and unbiased, both of its shape."""
    apart = np.nan_to_num(abs(fitted - unbiased), nan=-1.0)
    cell = tuple(int(i) for i in np.unravel_index(apart.argmax(), fitted.shape))
    return Movement(name, float(fitted.sum()), float(unbiased.sum()), cell, float(fitted[cell]), float(unbiased[cell]))


def _moved(before: float, after: float) -> str:
    return f"{before:,.2f} -> {after:,.2f} ({after - before:+,.2f})"
