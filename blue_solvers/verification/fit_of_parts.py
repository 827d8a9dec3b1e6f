"""The fit of measurements to their noise, added up over the parts of a spine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from blue_solvers.verification.goodness_of_fit import LEAST_CHECKED
from blue_solvers.verification.probabilities import of_chi_square, of_largest, squares_and_redundancy
from blue_solvers.verification.weighed_noise import PIECE
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table

Arrays: TypeAlias = tuple[Float, Float, Float, Float]
ReadRows: TypeAlias = Callable[[slice], Arrays]
KEPT = 5  # largest residuals that are named
FEW_SQUARES = 10  # as many whole numbers of variance 1 are all 0 with a probability of .4^10, which is in doubt
ROUNDING = 1e-12  # of what squares are expected to be
DOUBTFUL = 1e-4  # the probability of a chi-square, or of a residual, below which measurements do not fit their noise


@dataclass(frozen=True)
class Residual:
    """A measured cell and what the others say of it.

    Attributes
    ----------
    geolevel, geocode, table : str
    cell : int
        Its number in C order of the table.
    value, expected : float
        What was measured, and what all other measurements predict.
    residual : float
        Studentised.
    """

    geolevel: str
    geocode: str
    table: str
    cell: int
    value: float
    expected: float
    residual: float

    def labels(self, schema: Schema) -> str:
        """What the cell is called, such as ``sex=female, age=3``; empty of a total."""
        own = parse_table(schema, self.table).in_schema_order()
        place = np.unravel_index(self.cell, own.shape) if own.shape else ()
        return ", ".join(
            f"{factor}={schema.labels_of(factor)[i]}" for factor, i in zip(own.factors, place, strict=True)
        )


@dataclass(frozen=True)
class LotFit:
    """All cells of a lot together: weighted squares, what they are expected to be, and the noise's excess kurtosis."""

    statistic: float = 0.0
    expectation: float = 0.0
    excess: float = field(default=0.0, kw_only=True)

    @property
    def z(self) -> float:
        """How many standard deviations the statistic is off, at least."""
        if self.expectation <= LEAST_CHECKED:
            return 0.0
        return (self.statistic - self.expectation) / float(np.sqrt((2 + self.excess) * self.expectation))


def _cancels(lot: LotFit) -> bool:
    """Whether few cells leave no residuals but rounding; more where the law has most noise at 0."""
    return lot.expectation <= FEW_SQUARES * (1 + lot.excess) and lot.statistic <= ROUNDING * lot.expectation


@dataclass(frozen=True)
class GeounitFit(LotFit):
    """Of a geounit."""

    geolevel: str = ""
    geocode: str = ""


@dataclass(frozen=True)
class TableFit(LotFit):
    """Of a table at a geolevel: how many cells others check too, and how many were measured with noise."""

    checked: int = 0
    noisy: int = 0

    def __add__(self, other: TableFit) -> TableFit:
        return TableFit(
            self.statistic + other.statistic,
            self.expectation + other.expectation,
            self.checked + other.checked,
            self.noisy + other.noisy,
            excess=max(self.excess, other.excess),
        )

    @property
    def p_value(self) -> float:
        """Two-sided, of a chi-square with as many degrees of freedom: never too small, since no cell varies more."""
        known = self.expectation > LEAST_CHECKED
        return of_chi_square(self.statistic, self.expectation, self.excess) if known else 1.0


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
        The largest, first.
    geounit : GeounitFit or None
        That which is furthest from what is expected.
    excess : float
        The largest excess kurtosis of the noise: 0 is Gaussian, and 3 Laplace noise.
    """

    tables: dict[tuple[str, str], TableFit] = field(default_factory=dict)
    largest: list[Residual] = field(default_factory=list)
    geounit: GeounitFit | None = None
    excess: float = 0.0

    def __add__(self, other: FitOfParts) -> FitOfParts:
        tables = {**self.tables, **{key: self.tables.get(key, TableFit()) + own for key, own in other.tables.items()}}
        largest = sorted([*self.largest, *other.largest], key=lambda own: -abs(own.residual))[:KEPT]
        geounits = [own for own in (self.geounit, other.geounit) if own is not None]
        furthest = max(geounits, key=lambda own: abs(own.z), default=None)
        return FitOfParts(tables, largest, furthest, max(self.excess, other.excess))

    @property
    def statistic(self) -> float:
        """Chi-square: weighted squares of all residuals."""
        return sum(own.statistic for own in self.tables.values())

    @property
    def degrees_of_freedom(self) -> int:
        """Of the chi-square: what the redundancies of all cells sum to."""
        return round(sum(own.expectation for own in self.tables.values()))

    @property
    def p_value(self) -> float:
        """Two-sided: of a statistic as far from what is expected."""
        degrees = self.degrees_of_freedom
        return of_chi_square(self.statistic, degrees, self.excess) if degrees else 1.0

    @property
    def probability(self) -> float:
        """Of a residual as large as the largest among all cells that are checked; Sidak's, never too small."""
        checked = sum(own.checked for own in self.tables.values())
        return of_largest(self.largest[0].residual, checked, self.excess) if self.largest and checked else 1.0

    @property
    def worst_table(self) -> tuple[tuple[str, str], TableFit] | None:
        """The table furthest from what is expected, with the probability that its z is as large among all tables."""
        return max(self.tables.items(), key=lambda item: abs(item[1].z), default=None)

    @property
    def fits(self) -> bool:
        """Whether nothing of this is too improbable; residuals of few cells, whole numbers, may all be 0."""
        alone = min(1 - 1e-16, *(own.p_value for own in self.tables.values() if not _cancels(own)), 1.0)
        of_worst = float(-np.expm1(max(len(self.tables), 1) * np.log1p(-alone)))
        every = LotFit(self.statistic, self.degrees_of_freedom, excess=self.excess)
        together = 1.0 if _cancels(every) else self.p_value
        return min(together, self.probability, of_worst) >= DOUBTFUL

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
            found[level] = found.get(level, TableFit()) + own
        return found

    def look_at(self, geolevel: str, geocodes: Sequence[str], tables: Iterable[tuple[Table, ReadRows]]) -> None:
        """Take in some geounits of a level, (G,).

        Parameters
        ----------
        geolevel : str
        geocodes : sequence of str, (G,)
        tables : iterable of (Table, callable)
            What was measured there, and what gives of some of the geounits the measurements, (rows, cells), their
            estimates, the variances of the measurements, (rows, 1) or (rows, cells), 0 exact and ``inf`` not measured,
            and those of the estimates, (rows, cells).
        """
        sums = np.zeros((2, len(geocodes)))
        for table, read in tables:
            step = PIECE // table.size + 1
            for here in (slice(start, start + step) for start in range(0, len(geocodes), step)):
                sums[:, here] += self._add(geolevel, table.name, geocodes[here], *read(here))
        statistic, expectation = sums
        for i in np.argsort(-abs(statistic - expectation) / np.sqrt(2 * expectation + 1e-300))[:1].tolist():
            own = GeounitFit(float(statistic[i]), float(expectation[i]), geolevel, geocodes[i], excess=self.excess)
            if self.geounit is None or abs(own.z) > abs(self.geounit.z):
                self.geounit = own

    def _add(
        self, geolevel: str, table: str, geocodes: Sequence[str], y: Float, x: Float, noise: Float, spread: Float
    ) -> tuple[Float, Float]:
        """Take in a table of some geounits; gives their statistics and expectations, (G,)."""
        noisy = (noise > 0) & np.isfinite(noise)
        precision = np.divide(1.0, noise, out=np.zeros_like(noise), where=noisy)
        squares, redundancy = squares_and_redundancy(y, x, precision, spread)
        statistic, expectation = squares.sum(axis=1), redundancy.sum(axis=1)
        checked = redundancy > LEAST_CHECKED
        count = int(np.count_nonzero(noisy)) * (y.shape[1] // noisy.shape[1])
        sums = float(statistic.sum()), float(expectation.sum()), int(np.count_nonzero(checked)), count
        own = TableFit(*sums, excess=self.excess)
        self.tables[geolevel, table] = self.tables.get((geolevel, table), TableFit()) + own
        cells = np.divide(squares, redundancy, out=np.full_like(squares, -1.0), where=checked).ravel()
        least = self.largest[-1].residual ** 2 if len(self.largest) == KEPT else 0.0
        if cells.max(initial=-1.0) >= least:
            for place in np.argpartition(-cells, min(KEPT, cells.size) - 1)[:KEPT].tolist():
                row, cell = divmod(place, y.shape[1])
                if checked[row, cell]:
                    value, e = float(y[row, cell]), float(y[row, cell] - x[row, cell])
                    expected = value - e / float(redundancy[row, cell])
                    residual = float(np.copysign(np.sqrt(cells[place]), e))
                    self.largest.append(Residual(geolevel, geocodes[row], table, cell, value, expected, residual))
            self.largest = sorted(self.largest, key=lambda own: -abs(own.residual))[:KEPT]
        return statistic, expectation

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it, and the verdict for other readers."""
        return {
            "fits": self.fits,
            "tables": [
                [*key, own.statistic, own.expectation, own.checked, own.noisy] for key, own in self.tables.items()
            ],
            "largest": [asdict(own) for own in self.largest],
            "geounit": None if self.geounit is None else asdict(self.geounit),
            "excess": self.excess,
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> FitOfParts:
        """What `to_json` gave; of Gaussian noise where it does not say."""
        excess = said.get("excess", 0.0)
        return cls(
            {(level, table): TableFit(*own, excess=excess) for level, table, *own in said["tables"]},
            [Residual(**own) for own in said["largest"]],
            None if said["geounit"] is None else GeounitFit(**(said["geounit"] | {"excess": excess})),
            excess,
        )


def fit_of_geography(
    problem: Problem, y: Float, x: Float, variances: Callable[[int, slice], Float], excess: float = 0.0
) -> FitOfParts:
    """The fit of a whole problem on a spine or on areas.

    Parameters
    ----------
    problem : Problem
    y, x : ndarray, (n,)
        Measured, and estimated.
    variances : callable
        Of the estimates of an observed table, by its number, at some of its geounits, (geounits, cells).
    excess : float
        The largest excess kurtosis of the noise, as `noise_mechanisms.laws.named_laws.excess_kurtosis` gives it.
    """
    places, fit, by_geounit = problem.domain.places, FitOfParts(excess=excess), problem.geounit_variances

    def read(i: int, rows: slice) -> Arrays:
        cut = problem.observed.block(i)
        noise = problem.variances[cut] if by_geounit is None else by_geounit[i]
        geounits = places.members[problem.observed_levels[i]].size
        measured, estimated, own = (values.reshape(geounits, -1)[rows] for values in (y[cut], x[cut], noise))
        return measured, estimated, own, variances(i, rows)

    for level, members in enumerate(places.members):
        numbers = [i for i, own in enumerate(problem.observed_levels) if own == level]
        tables = [(problem.observed_tables[i], partial(read, i)) for i in numbers]
        fit.look_at(places.levels[level], [places.geocodes[i] for i in members.tolist()], tables)
    return fit
