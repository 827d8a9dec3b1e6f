"""What a pass of sums adds up over the parts of a spine, and the bound that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines

EXACT_TO = 1e-13  # of the largest figure: how far figures that are known exactly may be off, rounding of their sums


@dataclass
class Tally:
    """Sums and maxima over cells; those of several parts are added by `+`.

    Attributes
    ----------
    cells : int
        Looked at.
    left : float
        Squares of what is left of the residuals, in variances of the cells where it was left.
    returned, rounding : dict of str to float
        By geolevel the squares of what is left where nothing better was measured than in the cells below, and of what
        rounding may have added in moving the residuals.
    weighted : float
        Squares of what rounding may have added in weighting them.
    apart : float
        Squares of the tables' disagreement, in variances.
    violation, figures : float
        Its largest, in standard deviations of the measurements, and in counts.
    corrected, wrong, scale : float
        What cells known exactly are off by, together and at most; the largest figure.
    least : dict of str to float
        The least variance above 0 of every table of every geolevel.
    exact : dict of str to bool
        Those with cells that are known exactly.
    """

    cells: int = 0
    left: float = 0.0
    returned: dict[str, float] = field(default_factory=dict)
    rounding: dict[str, float] = field(default_factory=dict)
    weighted: float = 0.0
    apart: float = 0.0
    violation: float = 0.0
    figures: float = 0.0
    corrected: float = 0.0
    wrong: float = 0.0
    scale: float = 0.0
    least: dict[str, float] = field(default_factory=dict)
    exact: dict[str, bool] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: ADDED[name](getattr(self, name), getattr(other, name)) for name in ADDED})

    def note(self, key: str, variance: Float) -> None:
        """Take note of the variances of a table."""
        positive = float(np.min(variance, where=variance > 0, initial=np.inf))
        self.least[key] = min(self.least.get(key, np.inf), positive)
        self.exact[key] = self.exact.get(key, False) or bool((variance == 0).any())

    def judge(self, variance: Float, least: Float, off: Float, x: Float, y: Float | None) -> None:
        """Take in how far the claimed figures `x` of a table are off the sums of the finest ones; `off` is used up."""
        self.look_at(x)
        worst = off.max(axis=1, initial=0.0)
        if np.isnan(worst).any():  # nothing is claimed there, or nothing is known
            off = np.nan_to_num(off, copy=False)
            worst = off.max(axis=1, initial=0.0)
        fixed = variance == 0
        if fixed.any():
            fixed = np.broadcast_to(fixed, off.shape)
            against = np.nan_to_num(abs(x - (0.0 if y is None else y)))[fixed]
            self.wrong = max(self.wrong, float(against.max()), float(off[fixed].max()))
            self.corrected += float(off[fixed].sum() + against.sum())
            off[fixed] = 0.0
            worst = off.max(axis=1, initial=0.0)
        self.figures = max(self.figures, float(worst.max(initial=0.0)))
        precision, spread = (np.divide(1.0, v, out=np.zeros_like(v), where=v > 0) for v in (least, variance))
        if precision.shape[1] == 1:
            self.apart += float(np.einsum("ij,ij->i", off, off) @ precision[:, 0])
            greatest = worst**2 * spread[:, 0]
        else:
            self.apart += float(np.einsum("ij,ij,ij->", off, off, precision))
            greatest = off**2 * spread
        self.violation = max(self.violation, float(np.sqrt(greatest.max(initial=0.0))))

    def look_at(self, x: Float) -> None:
        """Take in the size of figures that are claimed."""
        self.cells += x.size
        largest = max(float(x.max(initial=0.0)), -float(x.min(initial=0.0)))
        self.scale = max(self.scale, float(np.nanmax(abs(x), initial=0.0)) if np.isnan(largest) else largest)

    def moved(self) -> float:
        """What is left of the residuals but in the cells themselves: returned, and rounding."""
        return float(sum(np.sqrt(square) for own in (self.returned, self.rounding) for square in own.values()))

    def bound(self, tables: Mapping[str, tuple[int, Table]], schema: Schema, left: float) -> float:
        """The bound, from what is left of the residuals.

        Of one count alone, or of two where a nested family of tables is known exactly, the information says from
        below what a figure's standard error can be.

        Raises
        ------
        NotCertifiedError
            If that is not known, or what is known exactly is contradicted.
        """
        if self.wrong > EXACT_TO * self.scale:
            raise NotCertifiedError(f"x contradicts what is known exactly by {self.wrong:.3g}")
        known = sorted((tables[key] for key, some in self.exact.items() if some), key=lambda own: (own[0], own[1].size))
        if not all(refines(schema, b, a) for (_, a), (_, b) in pairwise(known)):
            raise NotCertifiedError(
                "tables are known exactly that do not nest: the least standard errors are not known"
            )
        information = sum(1 / least for least in self.least.values())
        figures = (self.corrected + self.figures) * np.sqrt(information) * (2 if known else 1)
        return float((left + np.sqrt(self.weighted) + np.sqrt(self.apart) + figures) * (1 + self.cells * ROUNDING))

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it; no infinity is in it."""
        return {**asdict(self), "least": {key: value for key, value in self.least.items() if np.isfinite(value)}}


def _joined(one: dict[str, Any], two: dict[str, Any], how: Any) -> dict[str, Any]:
    return {key: how([own[key] for own in (one, two) if key in own]) for key in {**one, **two}}


def _sum(one: Any, two: Any) -> Any:
    return one + two


ADDED: dict[str, Any] = {
    **dict.fromkeys(("cells", "left", "weighted", "apart", "corrected"), _sum),
    **dict.fromkeys(("violation", "figures", "wrong", "scale"), max),
    **dict.fromkeys(("returned", "rounding"), lambda one, two: _joined(one, two, sum)),
    "least": lambda one, two: _joined(one, two, min),
    "exact": lambda one, two: _joined(one, two, any),
}
