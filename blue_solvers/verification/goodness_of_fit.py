"""Whether measurements agree with the noise that they claim, cell by cell and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blue_solvers.verification.correlated_residuals import CorrelatedResiduals
from blue_solvers.verification.fit_of_parts import FitOfParts
from blue_solvers.verification.fitted_lots import Residual, TableFit
from blue_solvers.verification.probabilities import (
    LEAST_CHECKED,
    FitOfCells,
    Outlier,
    ResidualReplicates,
    by_name,
    log_tail,
    of_chi_square,
    replicated,
    share_beyond,
    squares_and_redundancy,
    z_of,
)
from blue_solvers.verification.weighed_noise import (
    NotCertifiedError,
    WeighedNoise,
    measured_vector,
    reciprocal,
    rounding_of,
)
from blue_solvers.verification.wide import table_deviations
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.areas import Places
from constraint_builders.description.layout import Name
from constraint_builders.description.reals import random_generator, share, whole_number
from constraint_builders.description.source_values import SourceValues
from constraint_builders.description.tails import GAUSSIAN_TAILS, Tails
from constraint_builders.vectors import refuse_large_values

CHECKED, KNOWN_EXACTLY, NOT_MEASURED, UNCHECKED = range(4)
REASONS = ("checked by others", "known exactly", "not measured", "nothing else that was measured checks it")


@dataclass(frozen=True)
class Fit:
    """How measurements agree with their declared noise.

    Every measurement stands for itself: where several sources measured a cell (``problem.sources``), each of them has a
    residual. Elsewhere there is one measurement for each observed cell, N = n, in their order.

    Attributes
    ----------
    problem : Problem
    y : ndarray, (n,)
        What was measured, sources combined, less what its law adds on average.
    statistic : float
        Weighted squares of what the estimate leaves of the measurements, e' Sigma^-1 e.
    degrees_of_freedom : int
    p_value : float
        Two-sided: of a statistic as far from what is expected, too large or too small.
    residuals : ndarray, (N,)
        Studentised residuals, standard normal where the noise is; NaN where nothing checks the measurement.
    status : ndarray of int8, (N,)
        Why, as a position in `REASONS`.
    redundancy : ndarray, (N,)
        1 - Var(estimate) / variance: of noise without correlations which share of an error in the measurement shows in
        its residual.
    squares : ndarray, (N,)
        Every measurement's e^2 / variance.
    replicates : ResidualReplicates or None
    rounding : float
        How far rounding may have moved a residual, in counts; those of replicates are rounded as noise alone is.
    sources : SourceValues or None
        Whose measurements these are, where they are not one for each cell.
    correlated : CorrelatedResiduals or None
        What else is known of residuals whose noise is correlated.
    tails : Tails
        Of the noise; of uncorrelated noise the verdict goes by them, and without replicates probabilities of residuals.
    """

    problem: Problem
    y: Float
    statistic: float
    degrees_of_freedom: int
    p_value: float
    residuals: Float
    status: NDArray[np.int8]
    redundancy: Float
    squares: Float
    replicates: ResidualReplicates | None = None
    rounding: float = 0.0
    sources: SourceValues | None = None
    correlated: CorrelatedResiduals | None = None
    tails: Tails = GAUSSIAN_TAILS

    @property
    def values(self) -> Float:
        """What was measured, (N,)."""
        return self.y if self.sources is None else self.sources.values

    @property
    def published(self) -> Float:
        """The same as it was published, (N,): with what its law adds on average, which is taken off `y`."""
        return self.problem.noise.published(self.y) if self.sources is None else self.sources.values

    @property
    def variances(self) -> Float:
        """Of the noise in it, (N,), in squared units of the counts."""
        return self.problem.variances if self.sources is None else self.sources.variances

    def cell(self, position: int) -> int:
        """The cell of a measurement, as a position in the observed layout."""
        return position if self.sources is None else int(self.sources.cell[position])

    def source(self, position: int) -> str:
        """Who measured, where several did."""
        return "" if self.sources is None else self.sources.names[self.sources.source[position]]

    def describe(self, position: int) -> str:
        """Name a measurement for a message: its table, cell and source."""
        source = self.source(position)
        return self.problem.observed.describe(self.cell(position)) + (f", source {source!r}" if source else "")

    def of_table(self, name: Name) -> Index:
        """Positions of the measurements of an observed table.

        Parameters
        ----------
        name : str or tuple
            As in `problem.observed.names`.

        Returns
        -------
        ndarray of int, (cells,)
        """
        cells = self.problem.observed.slice(name)
        if self.sources is None:
            return np.arange(cells.start, cells.stop)
        return np.flatnonzero((self.sources.cell >= cells.start) & (self.sources.cell < cells.stop))

    def reason(self, position: int) -> str:
        """Why a measurement has a residual, or none."""
        return REASONS[self.status[position]]

    @cached_property
    def parts(self) -> FitOfParts:
        """What this comes to, as the one part of a fit that adds up: by it measurements are judged."""
        tables, precision = dict[tuple[str, str], TableFit](), reciprocal(self.variances)
        for i, name in enumerate(self.problem.observed.names):
            cells = self.of_table(name)
            measured = (own[cells] for own in (self.values, self.squares, self.redundancy, precision))
            level, table = name if isinstance(name, tuple) else ("", name)
            tables[level, table] = TableFit.of(self.tails.of_table(i), self.tails, *measured)
        if self.correlated is not None:  # all tables are judged together
            tables = {("", ""): TableFit(self.statistic, float(self.degrees_of_freedom), self.checked)}
        where = "", "", "", 0, np.nan, np.nan
        return FitOfParts(tables, [Residual(*where, self.residuals[i], self._excess[i]) for i in self.furthest(1)])

    @property
    def p_value_beyond(self) -> float:
        """As `parts` have it; the former name."""
        return self.parts.p_value

    @cached_property
    def _excess(self) -> Float:
        """Excess kurtosis of every measurement's table, (N,)."""
        sizes = self.problem.observed.sizes
        return np.repeat(np.array(self.tails.excess or np.zeros(sizes.size)), sizes)[self._cells]

    @property
    def _cells(self) -> slice | Index:
        """The cell of every measurement, (N,), as `cell` gives them."""
        return slice(None) if self.sources is None else self.sources.cell

    @cached_property
    def checked(self) -> int:
        """Number of measurements that others check."""
        return int((self.status == CHECKED).sum())

    @cached_property
    def by_table(self) -> dict[Name, FitOfCells]:
        """Every observed table, with a spine at every geolevel.

        Without replicates the standard deviation is exact of Gaussian noise in plain tables of one place with equal
        variances within tables; elsewhere it is the largest that it can be, so that z is never too far from 0.
        """
        names, sizes = self.problem.observed.names, self.problem.observed.sizes
        number = np.repeat(np.arange(sizes.size), sizes)[self._cells]
        statistic, expectation, deviation = self._together(number, sizes.size)
        if self.replicates is not None:
            of_draws = self.replicates.tables.std(axis=0, ddof=1)
            deviation = np.where(of_draws > 0, of_draws, deviation)  # all noise may be 0
            expectation = self.replicates.tables.mean(axis=0)
        elif self.sources is self.correlated is None and not any(self.tails.excess):
            deviation = deviation if (exact := table_deviations(self.problem)) is None else exact
        return by_name(names, statistic, expectation, deviation)

    @cached_property
    def by_source(self) -> dict[str, FitOfCells]:
        """All measurements of every source, where several measured some cell; z as that of tables."""
        if self.sources is None:
            return {}
        return by_name(self.sources.names, *self._together(self.sources.source, len(self.sources.names)))

    @cached_property
    def by_geolevel(self) -> dict[str, FitOfCells]:
        """All tables of every geolevel, or layer of areas, together; only with a geography."""
        levels = self._places().levels
        number = np.repeat(self.problem.observed_levels, self.problem.observed.sizes)
        return by_name(levels, *self._together(number[self._cells], len(levels)))

    @cached_property
    def by_geounit(self) -> Float:
        """Statistic, expectation and z of every geounit or area, (3, geounits), in their order."""
        places = self._places()
        tables = zip(self.problem.observed_levels, self.problem.observed_tables, strict=True)
        number = np.concatenate([np.repeat(places.members[level], table.size) for level, table in tables])
        statistic, expectation, deviation = self._together(number[self._cells], places.size)
        return np.array([statistic, expectation, z_of(statistic, expectation, deviation)])

    def _together(self, number: Index, count: int) -> tuple[Float, Float, Float]:
        """Statistic, expectation and largest deviation of so many lots, `number`, (N,), saying what is in which."""
        variance = (2 + self._excess * self.redundancy.max(initial=0.0)) * self.redundancy
        weights = self.squares, self.redundancy, variance
        statistic, expectation, variance = (np.bincount(number, own, count).astype(float) for own in weights)
        own = self.correlated
        return statistic, expectation, np.sqrt(variance) if own is None else own.deviations(number, expectation)

    def outliers(self, k: int = 10) -> list[Outlier]:
        """The measurements with the k largest residuals, whose positions are `furthest`.

        Parameters
        ----------
        k : int

        Returns
        -------
        list of Outlier
            The largest first; of tables whose noise has other tails, the least probable.
        """
        return [self._outlier(i) for i in self.furthest(k)]

    def furthest(self, k: int = 10) -> list[int]:
        """Positions of the k largest residuals.

        Parameters
        ----------
        k : int

        Returns
        -------
        list of int
            The largest first.
        """
        sizes = abs(self.residuals) if len({*self.tails.excess}) < 2 else -log_tail(self.residuals, self._excess)
        sizes[self.status != CHECKED] = -1.0
        k = min(whole_number(k, "k", 0), self.checked)
        chosen = np.argpartition(-sizes, max(k - 1, 0))[:k]
        return [int(i) for i in chosen[np.argsort(-sizes[chosen], kind="stable")]]

    def minimal_detectable_error(self, power: float = 0.8, level: float = 0.05) -> Float:
        """The error in every measurement that its residual shows with some power, tested at a level over all, (N,).

        Infinite where nothing checks it.

        Parameters
        ----------
        power : float
            With which the error is found; it and the level lie between 0 and 1, or `ValueError` is raised.
        level : float
            Of the test, over all measurements.

        Returns
        -------
        ndarray, (N,)
            In units of the counts.
        """
        kinds, kind = np.unique(self._excess, return_inverse=True)
        distance = self.parts.least_detected(kinds, share(power, "power"), share(level, "level"))[kind]
        shown = self.redundancy if self.correlated is None else abs(self.correlated.shown())
        seen = (self.status == CHECKED) & (shown > LEAST_CHECKED)
        sd = np.sqrt(np.where(seen, self.variances, np.inf))
        return sd * distance * np.where(seen, np.sqrt(self.redundancy) * reciprocal(shown), 1.0)

    def __str__(self) -> str:
        degrees, p_value = f"{self.degrees_of_freedom:,} degrees of freedom", f"p = {self.parts.p_value:.2g}"
        fits = "fits" if self.parts.fits else "does not fit"
        lines = [f"{fits}: chi-square {self.statistic:.6g} on {degrees}, {p_value}"]
        for what, lots in (("table", self.by_table), ("source", self.by_source)):
            for name, own in sorted(lots.items(), key=lambda item: -abs(item[1].z))[:1]:
                lines.append(f"{what} furthest from its noise: {name!r}, {own.z:+.1f} standard deviations")
        for one in self.outliers(1):
            where = f"{one.table!r} {one.labels}" + (f" by {one.source!r}" if one.source else "")
            lines[-1] += f"; largest residual: {where}, {one.residual:+.1f}, probability {one.probability:.2g}"
        return "\n".join(lines)

    def _places(self) -> Places:
        if self.problem.places is None:
            raise ValueError("the problem has no spine: there are no geolevels or geounits, nor layers of areas")
        return self.problem.places

    def _outlier(self, i: int) -> Outlier:
        layout, residual, value = self.problem.observed, float(self.residuals[i]), float(self.published[i])
        sd, own = np.sqrt(self.variances[i] * self.redundancy[i]), self.correlated
        left = float(residual * sd / self.redundancy[i]) if own is None else own.from_others(i)
        if self.replicates is None:
            probability = self.parts.probability_of(residual, float(self._excess[i]))
        else:
            probability = share_beyond(self.replicates.largest, abs(residual) - self.rounding / sd)
        name, cell = layout.locate(self.cell(i))
        labels = layout.labels(self.cell(i))
        return Outlier(name, cell, value, value - left, residual, probability, self.source(i), labels)


def fit_of_estimate(
    problem: Problem,
    y: ArrayLike,
    x: ArrayLike,
    variances: ArrayLike,
    *,
    replicate: Callable[[np.random.Generator], Float] | None = None,
    draws: int = 200,
    rng: np.random.Generator | int | None = None,
    apply: Callable[[Float], Float] | None = None,
    tails: Tails = GAUSSIAN_TAILS,
) -> Fit:
    """Test the measurements against the noise that they claim. No solver takes part.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,)
        What was measured, over the observed layout, less what its law adds on average, as `Estimate.y`.
    x, variances : array_like, (n,)
        The best linear unbiased estimate over the observed layout and its variances.
    replicate : callable, optional
        Gives residuals y - x, (N,), of data drawn with the declared noise: for noise that is not Gaussian, whose
        probabilities are then those of `draws` replicates.
    draws : int
    rng : Generator or int, optional
        What `replicate` draws from.
    apply : callable, optional
        The estimate of columns over the observed layout, (n, K), without an offset: by it outliers of correlated noise
        are compared with what others predict.
    tails : Tails
        Of the noise, as `noise_mechanisms.laws.named_laws.tails_of` gives them.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        If a shape does not fit, a value is NaN or infinite in a cell that was measured, or draws are no whole number
        above 0.

    References
    ----------
    W. Baarda (1968), "A testing procedure for use in geodetic networks": residuals one by one.
    """
    y, x, spread = (
        np.where(problem.unmeasured, 0.0, measured_vector(problem, values, what))
        for values, what in ((y, "y"), (x, "x"), (variances, "variances"))
    )
    refuse_large_values(problem, y, "y of ")
    draws = whole_number(draws, "draws", 1)
    sources = problem.sources_of(y)
    try:
        noise = WeighedNoise.of(problem) if sources is None else WeighedNoise.apart(sources)
    except NotCertifiedError as refusal:
        raise ValueError(f"this fit is not tested: {refusal}") from None
    cell: slice | Index = slice(None) if sources is None else sources.cell
    value, known = (y, problem.exact) if sources is None else (sources.values, sources.variances == 0)
    x, spread, unmeasured = x[cell], spread[cell], problem.unmeasured[cell]
    e, precision = np.where(noise.noisy, value - x, 0.0), reciprocal(noise.sd**2)
    squares, redundancy = squares_and_redundancy(value, x, precision, spread)
    status = np.full(e.size, CHECKED, dtype=np.int8)
    status[redundancy <= LEAST_CHECKED] = UNCHECKED
    status[known], status[unmeasured] = KNOWN_EXACTLY, NOT_MEASURED
    weight = np.where(status == CHECKED, np.sqrt(precision * reciprocal(redundancy)), np.nan)
    degrees, own = round(float(redundancy.sum())), None  # the rank of the equations that bind noisy cells
    if problem.covariance is not None:
        degrees = problem.rank - problem.exact_equations[0].shape[0]
        own = CorrelatedResiduals(noise, e, apply)
    statistic, rounding, found = float(e @ noise.weighted(e)[0]), float(rounding_of(value, x)), None
    p_value = of_chi_square(statistic, degrees) if degrees else 1.0
    if replicate is not None:
        table = np.repeat(np.arange(len(problem.observed.names)), problem.observed.sizes)[cell]
        found = replicated(noise, table, weight, replicate, draws, random_generator(rng))
        slack = noise.slack(statistic, rounding)
        above, below = share_beyond(found.totals, statistic - slack), share_beyond(-found.totals, -statistic - slack)
        p_value = min(1.0, 2 * min(above, below))
    studentised = e * weight, status, redundancy, squares
    return Fit(problem, y, statistic, degrees, p_value, *studentised, found, rounding, sources, own, tails)
