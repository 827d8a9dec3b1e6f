"""What a pass of sums adds up over the parts of a spine, and the bound that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from blue_solvers.verification.exact_combinations import ExactCombinations, finest_known, holds_whole_cells
from blue_solvers.verification.placed_tables import TableAtLevel, added
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, DisprovedError, NotCertifiedError
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index, Long
from constraint_builders.compiled import compiled
from constraint_builders.description.table import Table

Pair = tuple[Float, Float]


def judge_in_numpy(
    rows: Index,
    figures: Pair,
    noise: Pair,
    sums: Pair,
    places: Pair,
    error: float,
    empty: Flags,
    rho: Float,
    found: Pair,
) -> None:
    """Weigh residuals of a table of some places, and compare its figures with sums of the finest ones.

    Parameters
    ----------
    rows : ndarray of int, (rows,)
        These places, of all.
    figures : (x, y), ndarray (G, cells)
        What is claimed, NaN where nothing is, and what was measured.
    noise : (variance, least), ndarray (G, 1) or (G, cells)
        As of a `LevelTable`.
    sums : (high, low), ndarray (rows, cells)
        NaN where these are not known, and what they lose by rounding.
    places : (weight, alone), ndarray (G,) or (1,) each
        As of a `Level`.
    error : float
        By how much sums may be off.
    empty : ndarray of bool, (rows, cells) or (0, 0)
        Cells that are structural zeros.
    rho : ndarray, (rows, cells)
        Where to put (y - x) / variance of what was measured with noise.
    found : (ndarray (7,), ndarray (4,))
        As of a `CertificateSums`, and the first two of its table; the last of the former is 1 if sums are not known of
        a figure.
    """
    x, y = (own[rows] for own in figures)
    weight, alone = (np.broadcast_to(own, len(figures[0]))[rows] for own in places)
    variance, least = (np.broadcast_to(own[rows], x.shape) for own in noise)
    noisy, claimed = (variance > 0) & np.isfinite(variance), np.isfinite(x)
    np.divide(y - x, variance, out=rho, where=noisy)
    fixed = (variance == 0) | (empty if empty.size else False)
    off = np.where(claimed, x - sums[0] - sums[1], 0.0)
    lacks = np.isnan(off)
    off[lacks] = 0.0
    known = np.where(claimed, x - np.where(variance == 0, y, 0.0), 0.0)
    corrected = (abs(off - known) + error)[fixed].sum()
    off = abs(off) + np.where(claimed & ~lacks, error, 0.0)
    worst = np.max(off, axis=1, initial=0.0, where=~fixed)
    wrong = np.where(fixed, np.maximum(off, abs(known)), np.where(weight[:, None] == 0, off, 0.0))
    moved = np.divide(worst, weight, out=np.zeros_like(worst), where=weight > 0)
    square = np.where(fixed, 0.0, off**2)
    by_variance, by_least = (np.divide(square, own, out=np.zeros_like(off), where=own > 0) for own in (variance, least))
    weighted = (6 * ROUNDING) ** 2 * np.sum((y - x) * rho, where=noisy)
    most = [own.max(initial=0.0) for own in (np.where(claimed, abs(x), 0.0), wrong, by_variance)]
    found[0][:3], found[0][6] = np.maximum(found[0][:3], most), max(found[0][6], lacks.any())
    found[0][3:6] += [corrected, by_least.sum(), weighted]
    of_table = [moved.max(initial=0.0), np.max(worst, where=alone > 0, initial=-1.0)]
    found[1][:2] = np.maximum(found[1][:2], of_table)


@compiled(reference=judge_in_numpy)
def judge(
    rows: Index,
    figures: Pair,
    noise: Pair,
    sums: Pair,
    places: Pair,
    error: float,
    empty: Flags,
    rho: Float,
    found: Pair,
) -> None:
    """See `judge_in_numpy`: figures are (G, cells) each, noise (G, 1) or (G, cells), sums and rho (rows, cells)."""
    own, table = found  # number by number: to unpack an array, or set it from a tuple, takes seconds to compile
    scale, wrong, violation, corrected, apart, weighted, lacks = own[0], own[1], own[2], own[3], own[4], own[5], own[6]
    largest, by_alone = table[0], table[1]
    wide, tall = noise[0].shape[1] > 1, noise[1].shape[1] > 1
    each = places[0].size > 1, places[1].size > 1
    for i in range(rows.size):
        row, worst = rows[i], 0.0
        for j in range(rho.shape[1]):
            v, b = noise[0][row, j * wide], noise[1][row, j * tall]
            value, y = figures[0][row, j], figures[1][row, j]
            if 0 < v < np.inf:
                rho[i, j] = (y - value) / v
                weighted += (6 * ROUNDING) ** 2 * (y - value) * rho[i, j]
            off, slack, known = 0.0, 0.0, 0.0
            if value == value:
                scale, known = max(scale, abs(value)), value - (y if v == 0 else 0.0)
                off, slack = value - sums[0][i, j] - sums[1][i, j], error
            if off != off:
                lacks, off, slack = 1.0, 0.0, 0.0
            if v == 0 or (empty.size > 0 and empty[i, j]):
                corrected += abs(off - known) + error
                wrong = max(wrong, abs(off) + slack, abs(known))
            elif abs(off) + slack > 0:
                worst = max(worst, abs(off) + slack)
                square = (abs(off) + slack) ** 2
                violation = max(violation, square / v)
                if b > 0:
                    apart += square / b
        weight, alone = places[0][row * each[0]], places[1][row * each[1]]
        if alone > 0:
            by_alone = max(by_alone, worst)
        if weight > 0:
            largest = max(largest, worst / weight)
        else:  # of no leaf: known to be 0
            wrong = max(wrong, worst)
    own[0], own[1], own[2], own[3], own[4], own[5], own[6] = scale, wrong, violation, corrected, apart, weighted, lacks
    table[0], table[1] = largest, by_alone


NOTHING_KNOWN = np.array([0.0, -1.0, 0.0, 0.0])  # of a table that is nowhere
ARE_SUMS = np.arange(7) // 3 == 1  # of what is found the sums


@dataclass
class CertificateSums:
    """Sums and maxima over cells; those of several parts are added by `+`.

    Attributes
    ----------
    cells : int
        Looked at.
    left : float
        Squares of what is left of the residuals, in variances of the cells where it was left.
    returned : dict of str to float
        Likewise of what is left in roots of parts that were cut off, by geolevel: it is moved back to their leaves; by
        "" of what is left in cells that were not measured, which areas take.
    rounded : float
        Squares of what rounding may have added in moving residuals.
    has_empty : bool
        Whether cells are structural zeros.
    combined : ndarray of longdouble, (k, 3), or (1, 3) of none
        Of every combination of cells that is known exactly what figures give, how far off that may be, and its size.
    found : ndarray, (7,)
        The largest figure; what cells known exactly are off by at most; squares of what tables disagree by, in
        variances, at most; what cells known exactly are off by, together; squares of what tables disagree by, in
        variances from below, together; squares of what rounding may have added in weighting residuals; nothing.
    tables : dict of str to ndarray, (4,)
        Of every table of every geolevel what its figures are off by at most, and that of places that may be all of the
        one above, -1 if none is; one by the least variance; whether cells are known exactly.
    """

    cells: int = 0
    left: float = 0.0
    returned: dict[str, float] = field(default_factory=dict)
    rounded: float = 0.0
    has_empty: bool = False
    combined: Long = field(default_factory=lambda: np.zeros((1, 3), dtype=np.longdouble))
    found: Float = field(default_factory=lambda: np.zeros(7))
    tables: dict[str, Float] = field(default_factory=dict)

    def __add__(self, other: CertificateSums) -> CertificateSums:
        cells, left, rounded = self.cells + other.cells, self.left + other.left, self.rounded + other.rounded
        both = {**self.returned, **other.returned}
        returned = {key: self.returned.get(key, 0.0) + other.returned.get(key, 0.0) for key in both}
        found = np.where(ARE_SUMS, self.found + other.found, np.maximum(self.found, other.found))
        tables = {key: np.maximum(self.of(key), other.of(key)) for key in {**self.tables, **other.tables}}
        has_empty = self.has_empty or other.has_empty
        return CertificateSums(
            cells, left, returned, rounded, has_empty, added(self.combined, other.combined), found, tables
        )

    def of(self, key: str) -> Float:
        """What is known of a table."""
        return self.tables.get(key, NOTHING_KNOWN)

    @property
    def apart(self) -> float:
        """Squares of the tables' disagreement, in variances."""
        return float(self.found[4])

    @property
    def violation(self) -> float:
        """Its largest, in standard deviations of the measurements."""
        return float(np.sqrt(self.found[2]))

    def moved(self) -> float:
        """What is left of the residuals but in the cells themselves: returned, and rounding."""
        return float(sum(np.sqrt(square) for square in (*self.returned.values(), self.rounded)))

    def all_left(self) -> float:
        """All that is left of the residuals, in standard errors."""
        return float(np.sqrt(self.left)) + self.moved()

    def bound(
        self,
        tables: Mapping[str, TableAtLevel],
        schema: Schema,
        left: float,
        combinations: ExactCombinations | None = None,
    ) -> float:
        """The bound, from what is left of the residuals.

        Of one count alone, or of two where a nested family of tables is known exactly, the information says from
        below what a figure's standard error can be.

        Raises
        ------
        NotCertifiedError
            If that is not known, or what is known exactly is contradicted.
        """
        scale, wrong, _, corrected, apart, weighted, _ = self.found.tolist()
        if wrong > EXACT_TO * scale:
            raise DisprovedError(f"x contradicts what is known exactly by {wrong:.3g}")
        known = finest_known(schema, (tables[key] for key, own in self.tables.items() if own[3]))
        precision = float(sum(self.of(key)[2] for key in tables))
        if combinations is None:
            counts = self._by_counts(tables, schema, known, corrected, scale) * np.sqrt(precision)
        else:
            off, figure = combinations.off(self.combined, corrected, scale), 0.0
            for key, (_, table) in tables.items():
                most = self.of(key)[0]
                if key in combinations.fixed:
                    _require_exact(table, most, scale)
                figure = max(figure, (most + corrected) / combinations.least[key] + off @ combinations.moved[key])
            counts = figure + float(off @ combinations.lengths) + corrected * np.sqrt(precision)
        return float((left + np.sqrt(weighted) + np.sqrt(apart) + counts) * (1 + self.cells * ROUNDING))

    def _by_counts(
        self,
        tables: Mapping[str, TableAtLevel],
        schema: Schema,
        known: TableAtLevel | None,
        corrected: float,
        scale: float,
    ) -> float:
        """How far counts are moved at most, and figures off, where each changes with one count, or two of `known`."""
        off, holds_known = max((own[0] for own in self.tables.values()), default=0.0), False
        for key, (level, table) in tables.items():
            figures, alone, measured, _ = self.of(key)
            if not self.has_empty:  # others change with a count that is moved alone, or against
                if known is None or not holds_whole_cells(schema, table, known[1]):  # another of one cell known exactly
                    continue
                figures = figures if level <= known[0] else alone
            _require_exact(table, figures, scale)
            holds_known |= bool(measured > 0 and figures >= 0)
        off += corrected * holds_known  # which only figures have that hold all of a cell known exactly
        return float(corrected + off * (np.sqrt(2.0) if known else 1.0))


def _require_exact(table: Table, figures: float, scale: float) -> None:
    """Raise `NotCertifiedError` where figures that may be known exactly are off by more than rounding."""
    if figures > EXACT_TO * scale:
        raise NotCertifiedError(f"figures of {table.name!r} that may be known exactly are off by {figures:.3g}")
