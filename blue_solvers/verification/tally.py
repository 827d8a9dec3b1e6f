"""What a pass of sums adds up over the parts of a spine, and the bound that follows."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from blue_solvers.verification.placed_tables import LevelTable, added
from blue_solvers.verification.ties import Ties, finest_known, holds_whole_cells
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, DisprovedError, NotCertifiedError, reciprocal
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float


@dataclass
class Tally:
    """Sums and maxima over cells; those of several parts are added by `+`.

    Attributes
    ----------
    cells : int
        Looked at.
    left : float
        Squares of what is left of the residuals, in variances of the cells where it was left.
    returned : dict of str to float
        Likewise of what is left in roots of parts that were cut off, by geolevel: it is moved back to their leaves.
    weighted, rounded : float
        Squares of what rounding may have added in weighting residuals, and in moving them.
    apart : float
        Squares of the tables' disagreement, in variances.
    violation : float
        Its largest, in standard deviations of the measurements.
    figures, alone : dict of str to float
        Its largest in every table of every geolevel, in counts, and that in geounits that are all of the one above.
    has_empty : bool
        Whether cells are known to be empty.
    tied : list of list of float
        Of every combination of cells that is known exactly what `TiedCells.sums` says; empty without any.
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
    weighted: float = 0.0
    rounded: float = 0.0
    apart: float = 0.0
    violation: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    has_empty: bool = False
    tied: list[list[float]] = field(default_factory=list)
    corrected: float = 0.0
    wrong: float = 0.0
    scale: float = 0.0
    least: dict[str, float] = field(default_factory=dict)
    exact: dict[str, bool] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: ADDED[name](getattr(self, name), getattr(other, name)) for name in ADDED})

    def note(self, key: str, variance: Float, squares: float = 1.0) -> None:
        """Take note of the variances of a table, in whose cells a count has squared weights of so much at most."""
        positive = float(np.min(variance, where=variance > 0, initial=np.inf)) / (squares or 1.0)
        self.least[key] = min(self.least.get(key, np.inf), positive)
        self.exact[key] = self.exact.get(key, False) or bool((variance == 0).any())

    def judge(
        self,
        key: str,
        alone: Flags,
        variance: Float,
        least: Float,
        apart: Float,
        error: Float,
        x: Float,
        y: Float | None,
        weight: Float,
    ) -> None:
        """Take in how far the claimed figures `x` of a table are off the sums of the finest ones.

        They are `apart`, which is used up, and up to `error` more in every place; `alone` is which of these may be
        all of the one above, and `weight` the largest of a leaf in each.
        """
        self.look_at(x)
        fixed = variance == 0
        if has_fixed := bool(fixed.any()):
            fixed = np.broadcast_to(fixed, x.shape)
            known = x[fixed] if y is None else x[fixed] - y[fixed]
            self.corrected += float(np.nan_to_num(abs(apart[fixed] - known)).sum() + error @ fixed.sum(axis=1))
        off = np.abs(apart, out=apart)
        off += error[:, None]
        worst = off.max(axis=1, initial=0.0)
        if has_fixed or np.isnan(worst).any():  # of NaN nothing is claimed there, or nothing is known
            np.nan_to_num(off, copy=False)
            if has_fixed:
                self.wrong = max(self.wrong, float(np.nanmax(abs(known), initial=0.0)), float(off[fixed].max()))
                off[fixed] = 0.0
            worst = off.max(axis=1, initial=0.0)
        self.wrong = max(self.wrong, float(worst.max(initial=0.0, where=weight == 0)))  # of no leaf: known to be 0
        moved = np.divide(worst, weight, out=np.zeros_like(worst), where=weight > 0)
        self.figures[key] = max(self.figures.get(key, 0.0), float(moved.max(initial=0.0)))
        if alone.any():
            self.alone[key] = max(self.alone.get(key, 0.0), float(worst[alone].max()))
        precision = reciprocal(least)
        spread = precision if least is variance else reciprocal(variance)
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
        return float(sum(np.sqrt(square) for square in (*self.returned.values(), self.rounded)))

    def bound(self, tables: Mapping[str, LevelTable], schema: Schema, left: float, ties: Ties | None = None) -> float:
        """The bound, from what is left of the residuals.

        Of one count alone, or of two where a nested family of tables is known exactly, the information says from
        below what a figure's standard error can be.

        Raises
        ------
        NotCertifiedError
            If that is not known, or what is known exactly is contradicted.
        """
        if self.wrong > EXACT_TO * self.scale:
            raise DisprovedError(f"x contradicts what is known exactly by {self.wrong:.3g}")
        known = finest_known(schema, (tables[key] for key, some in self.exact.items() if some))
        bound_by = {key: self._perhaps_known(key, own, schema, known, ties) for key, own in tables.items()}
        for key, off in bound_by.items():
            if off is not None and off > EXACT_TO * self.scale:
                what = tables[key][1].name
                raise NotCertifiedError(f"figures of {what!r} that may be known exactly are off by {off:.3g}")
        apart, longest = max(self.figures.values(), default=0.0), np.sqrt(2.0) if known else 1.0
        if ties is not None:
            longest = ties.length / ties.least
            apart += (1 + 1 / longest) * ties.moved(self.tied, self.corrected, self.scale)
        if any(off is not None and np.isfinite(self.least.get(key, np.inf)) for key, off in bound_by.items()):
            apart += self.corrected  # which only figures have that hold all of a cell known exactly
        counts = (self.corrected + apart * longest) * np.sqrt(sum(1 / least for least in self.least.values()))
        return float((left + np.sqrt(self.weighted) + np.sqrt(self.apart) + counts) * (1 + self.cells * ROUNDING))

    def _perhaps_known(
        self, key: str, table: LevelTable, schema: Schema, known: LevelTable | None, ties: Ties | None
    ) -> float | None:
        """How far figures of a table are off that may follow from what is known of others; None where none does.

        Others change with a count that is moved alone, or against another within a cell of the finest table known.
        """
        if self.has_empty or (ties is not None and key in ties.fixed):
            return self.figures.get(key, 0.0)
        if known is None or not holds_whole_cells(schema, table[1], known[1]):
            return None
        return self.figures.get(key, 0.0) if table[0] <= known[0] else self.alone.get(key)

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it; no infinity is in it."""
        return {**asdict(self), "least": {key: value for key, value in self.least.items() if np.isfinite(value)}}


def _joined(how: Any) -> Any:
    """Of dicts whose values are put together so, in lists."""
    return lambda one, two: {key: how([own[key] for own in (one, two) if key in own]) for key in {**one, **two}}


ADDED: dict[str, Any] = {
    **dict.fromkeys(("cells", "left", "weighted", "rounded", "apart", "corrected"), operator.add),
    **dict.fromkeys(("violation", "wrong", "scale", "has_empty"), max),
    **dict.fromkeys(("figures", "alone"), _joined(max)),
    "returned": _joined(sum),
    "least": _joined(min),
    "exact": _joined(any),
    "tied": added,
}
