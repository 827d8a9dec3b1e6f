"""The fit of measurements to their noise, added up over the parts of a spine; all of a problem are one part."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np

from blue_solvers.verification.fitted_lots import GeounitFit, Residual, TableFit
from blue_solvers.verification.probabilities import (
    DOUBTFUL,
    LEAST_CHECKED,
    log_tail,
    of_chi_square,
    of_largest,
    residual_beyond,
    squares_and_redundancy,
)
from blue_solvers.verification.weighed_noise import PIECE, reciprocal
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table
from constraint_builders.description.tails import GAUSSIAN_TAILS, Tails

Arrays: TypeAlias = tuple[Float, Float, Float, Float]
ReadRows: TypeAlias = Callable[[slice], Arrays]
KEPT = 5  # largest residuals that are named


class Verdict(StrEnum):
    """What a fit comes to."""

    FITS = "as declared"
    TOO_CLOSE = "too close"
    CONTRADICTORY = "contradictory"
    UNTESTED = "cannot be tested"

    @property
    def explained(self) -> str:
        """The end of a sentence about the measurements."""
        return {
            Verdict.FITS: "values agree with the variances that they claim",
            Verdict.TOO_CLOSE: "values differ by less than their variances claim",
            Verdict.CONTRADICTORY: "values differ by more than their variances allow",
            Verdict.UNTESTED: "no measurement checks another",
        }[self]


class FitByGeolevel(dict[str, TableFit]):
    """All tables of every geolevel together; may be called, as the method that it was."""

    def __call__(self) -> FitByGeolevel:
        warnings.warn("by_geolevel is a property now, not a method", DeprecationWarning, stacklevel=2)
        return self


@dataclass
class FitOfParts:
    """How measurements agree with their declared noise; those of several parts are added by `+`.

    Attributes
    ----------
    tables : dict of (geolevel, table) to TableFit
    largest : list of Residual
        Those that are least probable, first: of one law the largest.
    geounit : GeounitFit or None
        That which is furthest from what is expected.
    """

    tables: dict[tuple[str, str], TableFit] = field(default_factory=dict)
    largest: list[Residual] = field(default_factory=list)
    geounit: GeounitFit | None = None

    def __add__(self, other: FitOfParts) -> FitOfParts:
        tables = dict(self.tables)
        for key, own in other.tables.items():
            _add_to(tables, key, own)
        largest = sorted([*self.largest, *other.largest], key=lambda own: own.rank)[:KEPT]
        geounits = [own for own in (self.geounit, other.geounit) if own is not None]
        furthest = max(geounits, key=lambda own: abs(own.z), default=None)
        return FitOfParts(tables, largest, furthest)

    @property
    def total(self) -> TableFit:
        """All tables together."""
        return reduce(add, self.tables.values()) if self.tables else TableFit()

    @property
    def statistic(self) -> float:
        """Chi-square: weighted squares of all residuals."""
        return self.total.statistic

    @property
    def degrees_of_freedom(self) -> int:
        """Of the chi-square: what the redundancies of all cells sum to."""
        return round(self.total.expectation)

    @property
    def p_value(self) -> float:
        """Two-sided: of a statistic as far from what is expected."""
        if not self.degrees_of_freedom:
            return 1.0
        total = self.total
        degrees, excess = np.array([(own.expectation, own.excess) for own in self.tables.values()]).T
        return of_chi_square(total.statistic, degrees, excess * total.most, total.missing, total.by_proxy)

    @property
    def probability(self) -> float:
        """Of a residual as large as the largest among all cells that are checked; Sidak's, never too small."""
        return self.probability_of(self.largest[0].residual, self.largest[0].excess) if self.largest else 1.0

    def probability_of(self, residual: float, excess: float) -> float:
        """The same of another residual, by the excess kurtosis of its table's noise."""
        total = self.total
        return of_largest(residual, total.checked, excess * total.most, total.by_proxy) if total.checked else 1.0

    def least_detected(self, excess: Float, power: float, level: float) -> Float:
        """Residuals that are found with some power, tested at a level over all, by the noise's kurtosis, (...)."""
        total = self.total
        each, tail = -np.expm1(np.log1p(-level) / max(total.checked, 1)), (excess * total.most, total.by_proxy)
        return residual_beyond(each / 2, *tail) + residual_beyond(1 - power, *tail)

    @property
    def worst_table(self) -> tuple[tuple[str, str], TableFit] | None:
        """The least probable table, of probabilities that are one that furthest from what is expected."""
        most = self.total.most
        return min(self.tables.items(), key=lambda item: (item[1].p_value(most), -abs(item[1].z)), default=None)

    @property
    def verdict(self) -> Verdict:
        """Whether all residuals together are improbable, those of a table among all tables, or the largest of them."""
        if not self.degrees_of_freedom:
            return Verdict.UNTESTED
        each, total = -np.expm1(np.log1p(-DOUBTFUL) / len(self.tables)), self.total
        doubtful = [own for own in self.tables.values() if own.p_value(total.most) < each]
        doubtful += [total] * (self.p_value < DOUBTFUL)
        if self.probability < DOUBTFUL or any(own.statistic > own.expectation for own in doubtful):
            return Verdict.CONTRADICTORY
        return Verdict.TOO_CLOSE if doubtful else Verdict.FITS

    @property
    def fits(self) -> bool:
        """Whether nothing of this is too improbable."""
        return self.verdict in (Verdict.FITS, Verdict.UNTESTED)

    @property
    def unchecked(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Of every table with noisy cells that nothing checks how many these are, and how many are noisy."""
        return {
            key: (own.noisy - own.checked, own.noisy) for key, own in self.tables.items() if own.noisy > own.checked
        }

    @property
    def by_table(self) -> dict[tuple[str, str], TableFit]:
        """Every table at every geolevel, as `Fit.by_table` has them."""
        return self.tables

    @property
    def by_geolevel(self) -> FitByGeolevel:
        """All tables of every geolevel together, as `Fit.by_geolevel` has them."""
        found = FitByGeolevel()
        for (level, _), own in self.tables.items():
            _add_to(found, level, own)
        return found

    def look_at(
        self, geolevel: str, geocodes: Sequence[str], tables: Iterable[tuple[int, Table, ReadRows]], tails: Tails
    ) -> None:
        """Take in some geounits of a level, (G,).

        Parameters
        ----------
        geolevel : str
        geocodes : sequence of str, (G,)
        tables : iterable of (int, Table, callable)
            The number of an observed table, what was measured there, and what gives of some of the geounits the
            measurements, (rows, cells), their estimates, the variances of the measurements, (rows, 1) or (rows, cells),
            0 exact and ``inf`` not measured, and those of the estimates, (rows, cells).
        tails : Tails
            Of the noise of all observed tables.
        """
        sums = np.zeros((3, len(geocodes)))
        for number, table, read in tables:
            excess, step = tails.of_table(number), PIECE // table.size + 1
            for here in (slice(start, start + step) for start in range(0, len(geocodes), step)):
                statistic, expectation = self._add(geolevel, table.name, geocodes[here], read(here), tails, excess)
                sums[:, here] += statistic, expectation, excess * expectation
        statistic, expectation, heavy = sums
        for i in np.argsort(-abs(statistic - expectation) / np.sqrt(2 * expectation + heavy + 1e-300))[:1].tolist():
            own = GeounitFit(float(statistic[i]), float(expectation[i]), geolevel, geocodes[i], float(heavy[i]))
            if self.geounit is None or abs(own.z) > abs(self.geounit.z):
                self.geounit = own

    def _add(
        self, geolevel: str, table: str, geocodes: Sequence[str], read: Arrays, tails: Tails, excess: float
    ) -> tuple[Float, Float]:
        """Take in a table of some geounits; gives their statistics and expectations, (G,)."""
        y, x, noise, spread = read
        precision = reciprocal(noise)
        squares, redundancy = squares_and_redundancy(y, x, precision, spread)
        own = TableFit.of(excess, tails, y, squares, redundancy, precision)
        _add_to(self.tables, (geolevel, table), own)
        checked = redundancy > LEAST_CHECKED
        cells = np.divide(squares, redundancy, out=np.full_like(squares, -1.0), where=checked).ravel()
        least = self.largest[-1].rank if len(self.largest) == KEPT else 0.0
        if (most := cells.max(initial=-1.0)) >= 0 and log_tail(np.sqrt(most), excess) <= least:
            for place in np.argpartition(-cells, min(KEPT, cells.size) - 1)[:KEPT].tolist():
                row, cell = divmod(place, y.shape[1])
                if checked[row, cell]:
                    value, e = float(y[row, cell]), float(y[row, cell] - x[row, cell])
                    expected = value - e / float(redundancy[row, cell])
                    residual = float(np.copysign(np.sqrt(cells[place]), e))
                    self.largest.append(
                        Residual(geolevel, geocodes[row], table, cell, value, expected, residual, excess)
                    )
            self.largest = sorted(self.largest, key=lambda own: own.rank)[:KEPT]
        return squares.sum(axis=1), redundancy.sum(axis=1)

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it, and the verdict for other readers."""
        return {
            "fits": self.fits,
            "tables": [[*key, *vars(own).values()] for key, own in self.tables.items()],
            "largest": [asdict(own) for own in self.largest],
            "geounit": None if self.geounit is None else asdict(self.geounit),
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> FitOfParts:
        """What `to_json` gave; former versions said one excess of all tables, or none of Gaussian noise."""
        former, last = said.get("excess", 0.0), said["geounit"]
        tables = {(level, table): TableFit(*own) for level, table, *own in said["tables"]}
        return cls(
            {key: replace(own, heavy=own.heavy + former * own.expectation) for key, own in tables.items()},
            [replace(own, excess=own.excess + former) for own in (Residual(**each) for each in said["largest"])],
            last and replace(own := GeounitFit(**last), heavy=own.heavy + former * own.expectation),
        )


def _add_to(tables: dict[Any, TableFit], key: Any, own: TableFit) -> None:
    tables[key] = tables[key] + own if key in tables else own


def fit_of_geography(
    problem: Problem, y: Float, x: Float, variances: Callable[[int, slice], Float], tails: Tails = GAUSSIAN_TAILS
) -> FitOfParts:
    """The fit of a whole problem on a spine or on areas.

    Parameters
    ----------
    problem : Problem
    y, x : ndarray, (n,)
        Measured, and estimated.
    variances : callable
        Of the estimates of an observed table, by its number, at some of its geounits, (geounits, cells).
    tails : Tails
        Of the noise, as `noise_mechanisms.laws.named_laws.tails_of` gives them.
    """
    places, fit, by_geounit = problem.domain.places, FitOfParts(), problem.geounit_variances

    def read(i: int, rows: slice) -> Arrays:
        cut = problem.observed.block(i)
        noise = problem.variances[cut] if by_geounit is None else by_geounit[i]
        geounits = places.members[problem.observed_levels[i]].size
        measured, estimated, own = (values.reshape(geounits, -1)[rows] for values in (y[cut], x[cut], noise))
        return measured, estimated, own, variances(i, rows)

    for level, members in enumerate(places.members):
        numbers = [i for i, own in enumerate(problem.observed_levels) if own == level]
        tables = [(i, problem.observed_tables[i], partial(read, i)) for i in numbers]
        fit.look_at(places.levels[level], [places.geocodes[i] for i in members.tolist()], tables, tails)
    return fit
