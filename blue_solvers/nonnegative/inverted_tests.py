"""Intervals that use every constraint, by inverting tests cell by cell, with simulated critical values.

For a value t of a desired cell let D(t) be the least sum of squared deviations, in standard deviations, of cells that
keep their bounds, as that none is negative, meet everything known exactly and give the desired cell the value t. D(t) -
min D is the likelihood-ratio statistic of the hypothesis that the cell is t, and the test keeps the t at which it is
below a critical value. Without bounds the statistic is chi-square with one degree of freedom, and this is the interval
around the BLUE. With bounds its law depends on the truth, and a chi-square quantile is no guarantee at all (Burrus'
conjecture is false; of a total over 99 empty cells it keeps the truth 4 times in 10). So the critical value is the
largest of that quantile and of those simulated at two truths that fit best under the hypothesis: among all cells, and
among those that stay at a bound wherever they are not clearly off it. Half of the error goes to this test and half to
the interval around the BLUE, and the truth is where both agree.

References
----------
Batlle, Patil, Stanley, Owhadi and Kuusela, "Optimization-based frequentist confidence intervals for functionals in
constrained inverse problems: resolving the Burrus conjecture" (2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blue_solvers.estimates import Estimate
from blue_solvers.nonnegative.block_pivoting import fits_in
from blue_solvers.nonnegative.bounded_sums import (
    has_leaves,
    program_of_leaves,
    program_within,
    read_bounds,
    read_bounds_of_leaves,
    solved,
    solved_together,
)
from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.fit import read_measurements
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram
from blue_solvers.nonnegative.refined_intervals import limits
from blue_solvers.operator import blue
from blue_solvers.quantiles import normal_multiple, read_level, takes_confidence_level
from blue_solvers.verification.weighed_noise import reciprocal
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import random_generator, whole_number
from constraint_builders.estimability import why_undetermined
from noise_mechanisms import draw_noise
from noise_mechanisms.laws.base_law import Seed

_CLOSE = 1e-3  # of a standard error: how precisely ends are found
_FARTHEST = 20.0  # standard errors from the BLUE, beyond which no end is looked for
_CLEAR = 2.0  # standard deviations of all that was measured of a cell, beyond which it is clearly off a bound


@dataclass(frozen=True)
class InvertedIntervals:
    """Intervals for some desired cells.

    Attributes
    ----------
    cells : ndarray of int, (k,)
        Places in the desired layout.
    estimate : ndarray, (k,)
        The BLUE, moved to the nearest value of the interval where it lies outside: unbiased but for that.
    lower, upper : ndarray, (k,)
    critical : ndarray, (2, k)
        The critical values that the lower and the upper ends were found with, squared standard deviations.
    """

    cells: NDArray[np.intp]
    estimate: Float
    lower: Float
    upper: Float
    critical: Float


@takes_confidence_level
def inverted_intervals(
    problem: Problem | Estimate,
    y: ArrayLike,
    cells: Sequence[int],
    confidence_level: float = 0.95,
    draws: int = 200,
    rng: Seed = None,
    bounds: Any = None,
) -> InvertedIntervals:
    """Intervals of desired cells that use bounds and everything known exactly, by inverted tests.

    Short where cells are near zero, or another bound, hardly longer than the BLUE's elsewhere.

    Parameters
    ----------
    problem : Problem or Estimate
        With uncorrelated noise of any law; of `least_squares` the estimate, whose leaves are the cells.
    y : array_like, (n,)
        Measurements over ``problem.observed``, in counts.
    cells : sequence of int
        Places in the desired layout.
    confidence_level : float
        Between 0 and 1.
    draws : int
        Simulations of the statistic at either end and at either truth, two fits each.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness.
    bounds : (lower, upper), optional
        Between which observed cells are, as in `ols`, or leaves or rows, as in `least_squares`; by default no detailed
        cell, or leaf, is negative.

    Returns
    -------
    InvertedIntervals

    Raises
    ------
    ValueError
        If y or bounds do not fit the problem, a cell is not one of the desired layout or not estimable, or an exact
        value is negative, or outside of its bounds.
    NotConvergedError
        If no cells within their bounds meet the values known exactly.

    Notes
    -----
    The simulated quantiles are those at two truths, not the largest over all: coverage is measured (docs/microdata.md),
    not proved. What is proved is the BLUE's interval and its intersection with known bounds, `refine_intervals`.
    """
    given = problem
    problem = given.problem if isinstance(given, Estimate) else given
    values = read_measurements(problem, y)
    if values.ndim != 1:
        raise ValueError(f"y must be one vector of {problem.observed.size} measurements: got shape {values.shape}")
    confidence_level, draws = read_level(confidence_level), whole_number(draws, "draws", 1)
    places = problem.desired.positions(cells)
    lost = places[problem.lost[places]]
    if lost.size:
        raise ValueError(f"{why_undetermined(problem, int(lost[0]))}: leave it out of cells")
    half = (1 + confidence_level) / 2
    multiple = normal_multiple(half)
    tests = _Tests(problem, values, multiple**2, half, draws, random_generator(rng), bounds)
    P = given.operator if isinstance(given, Estimate) else blue(problem)
    centres = (P @ problem.noise.published(values) + P.offset)[places]
    errors = np.sqrt(np.maximum(P.variances()[places], 0))
    low, high = (own[places].tolist() for own in (limits(problem, values) if bounds is None else tests.limits()))
    each = zip(places.tolist(), centres.tolist(), errors.tolist(), low, high, strict=True)
    found = [tests.invert(*one) for one in each]
    lower, upper, low_critical, high_critical = np.array(found).reshape(-1, 4).T
    fitted = tests.fitted(places)
    lower = np.minimum(np.maximum(lower, centres - multiple * errors), fitted)
    upper = np.maximum(np.minimum(upper, centres + multiple * errors), fitted)
    return InvertedIntervals(
        places, np.clip(centres, lower, upper), lower, upper, np.stack([low_critical, high_critical])
    )


class _Tests:
    """Likelihood-ratio tests of one set of measurements."""

    def __init__(
        self,
        problem: Problem,
        y: Float,
        quantile: float,
        confidence_level: float,
        draws: int,
        rng: np.random.Generator,
        bounds: Any,
    ) -> None:
        self._problem, self._model, self._of_leaves = problem, FittingModel.of(problem), has_leaves(problem)
        self._bounds: list[Ranges] | None = None
        if bounds is not None:
            read = read_bounds_of_leaves if self._of_leaves else lambda own, both: [read_bounds(own.observed, both)]
            self._bounds = read(problem, bounds)
        self._y, self._quantile, self._level = y, quantile, confidence_level
        self._noise = draw_noise(problem, draws, rng)
        desired = self._model.cells.to_desired()
        self._program = self._measured(y)
        self._best, objective = self._solved(self._program)
        self._least, sums = 2 * objective, self._best.size - desired.shape[1]  # sums that have bounds follow the cells
        self._desired = sparse.csr_array(sparse.hstack([desired, sparse.csr_array((desired.shape[0], sums))]))
        variances = np.where(self._model.measured & ~problem.exact, problem.variances, np.inf)
        information = np.square(self._model.M).T @ (1 / variances)
        self._errors = np.append(
            1 / np.sqrt(np.maximum(information, 1e-300)), np.sqrt(reciprocal(self._program.weight[information.size :]))
        )

    def _measured(self, y: Float) -> QuadraticProgram:
        """The program of measurements, (n,), or those of many, (K, n), together."""
        if self._bounds is None:
            return self._model.program(y)
        return (program_of_leaves if self._of_leaves else program_within)(self._model, y, *self._bounds)

    def _solved(self, program: QuadraticProgram) -> tuple[Float, float]:
        """Cells, (d,), and half their sum of squares."""
        alone = replace(program, target=program.target[None], answer=program.answer[None])
        cells, objectives = self._together(alone)
        return cells[0], float(objectives[0])

    def _together(self, programs: QuadraticProgram, impossible: bool = False) -> tuple[Float, Float]:
        """Cells, (K, d), and half their sums of squares, (K,), of programs that differ in measurements alone.

        Raises
        ------
        NotConvergedError
            If no cells meet one; where that is `impossible`, its squares are infinite instead.
        """
        count = programs.target.shape[0]
        cells, objectives, proved = np.empty(programs.target.shape), np.empty(count), np.zeros(count, dtype=bool)
        if fits_in(programs):
            cells, objectives, proved = solved_together(programs)
        for number in np.flatnonzero(~proved):
            try:
                found = solved(programs.one(int(number)), self._problem.is_tabular)
                cells[number], objectives[number] = found.cells, found.objective
            except NotConvergedError:
                if not impossible:
                    raise
                objectives[number] = np.inf
        return cells, objectives

    def limits(self) -> tuple[Float, Float]:
        """Between what desired cells are by the bounds of their parts alone, and by their own, (m,) each."""
        parts, ends = self._desired.tocoo(), np.stack([self._program.lower, self._program.upper])
        low, high = np.sort(parts.data * ends[:, parts.col], axis=0)
        sums = (np.bincount(parts.row, own, minlength=self._desired.shape[0]).astype(float) for own in (low, high))
        found = Ranges(*sums)
        if self._bounds is None or self._problem.desired is not self._problem.observed:
            return found.low, found.high
        return np.maximum(found.low, self._bounds[-1].low), np.minimum(found.high, self._bounds[-1].high)

    def fitted(self, places: NDArray[np.intp]) -> Float:
        """The non-negative fit of desired cells, (places,)."""
        return np.asarray(self._desired[places] @ self._best)

    def invert(
        self, place: int, centre: float, error: float, low: float, high: float
    ) -> tuple[float, float, float, float]:
        """Both ends for a desired cell between two limits, and their critical values."""
        weights = sparse.csr_array(self._desired[[place]])
        fitted = float((weights @ self._best)[0])
        if error == 0:
            return fitted, fitted, self._quantile, self._quantile
        reach = _FARTHEST * error
        ends = (
            self._end(weights, fitted, max(low, min(centre, fitted) - reach), error),
            self._end(weights, fitted, min(high, max(centre, fitted) + reach), error),
        )
        return ends[0][0], ends[1][0], ends[0][1], ends[1][1]

    def _end(self, weights: sparse.csr_array, fitted: float, farthest: float, error: float) -> tuple[float, float]:
        """The end of the interval towards `farthest`, and its critical value, of the cell with weights (1, d)."""
        critical = self._quantile
        end = self._cross(weights, fitted, farthest, critical, error)
        critical = max(critical, *(self._simulated(weights, cells) for cells in self._truths(weights, end)))
        if critical > self._quantile:
            end = self._cross(weights, fitted, farthest, critical, error)
        return end, critical

    def _truths(self, weights: sparse.csr_array, value: float) -> Iterator[Float]:
        """Cells, (d,), that fit best under the hypothesis: among all, and among those clearly off bounds if any do."""
        cells = self._statistic(self._program, self._least, weights, value)[1]
        if cells is None:
            cells = self._best
        yield cells
        p, room = self._program, _CLEAR * self._errors
        low, high = cells - p.lower <= room, p.upper - cells <= room
        few = replace(p, lower=np.where(high & ~low, p.upper, p.lower), upper=np.where(low, p.lower, p.upper))
        fewest = self._statistic(few, 0.0, weights, value)[1]
        if fewest is not None:
            yield fewest

    def _cross(self, weights: sparse.csr_array, fitted: float, farthest: float, critical: float, error: float) -> float:
        """Where the statistic of weights, (1, d), is critical, between the fitted value and the farthest, or beyond.

        Noise of whole numbers makes a statistic exactly critical often: such a value is inside.
        """
        if abs(farthest - fitted) <= _CLOSE * error:
            return farthest

        def excess(value: float) -> float:
            statistic = self._statistic(self._program, self._least, weights, value)[0]
            return min(statistic, 1e12) - critical

        if excess(farthest) <= 0:
            return farthest
        found = scipy.optimize.brentq(excess, fitted, farthest, xtol=_CLOSE * error / 2)
        beyond = found + np.copysign(_CLOSE * error / 2, farthest - fitted)
        return float(np.clip(beyond, min(fitted, farthest), max(fitted, farthest)))

    def _statistic(
        self, program: QuadraticProgram, least: float, weights: sparse.csr_array, value: float
    ) -> tuple[float, Float | None]:
        """The statistic of the hypothesis that a desired cell has this value, and the cells, (d,), that fit it best.

        Infinite where no cells give it.
        """
        try:
            cells, objective = self._solved(program.with_rows(weights, value, 0.0))
        except NotConvergedError:
            return np.inf, None
        return max(0.0, 2 * objective - least), cells

    def _simulated(self, weights: sparse.csr_array, cells: Float) -> float:
        """The quantile of the statistic where these cells, (cells,), are the truth."""
        truth = self._model.M @ cells[: self._model.M.shape[1]]
        programs = self._measured(np.where(self._problem.exact, self._y, truth + self._noise.T))
        least = self._together(programs)[1]
        held = self._together(programs.with_rows(weights, float((weights @ cells)[0]), 0.0), impossible=True)[1]
        statistics = np.maximum(0.0, 2 * (held - least))
        return float(np.quantile(statistics, self._level, method="higher"))
