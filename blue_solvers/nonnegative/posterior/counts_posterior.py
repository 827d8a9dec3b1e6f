"""What non-negative whole counts may be, given noisy tables and everything that is known exactly.

Where most counts are near zero the BLUE loses to what knows that counts are not negative, and a non-negative fit is one
point without an error. The posterior has both: every table of non-negative whole counts that meets all exact values,
zeros and equalities, as likely beforehand as `counts_posterior` says, is weighted by the probability of the noise that
it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import gammaln

from blue_solvers.nonnegative.fit import read_measurements
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.posterior.count_moves import count_moves, step_sizes
from blue_solvers.nonnegative.posterior.metropolis import OUTSIDE, Chains, MoveLists, metropolis_steps, misfit_of
from blue_solvers.nonnegative.posterior.whole_starts import whole_starts
from blue_solvers.nonnegative.quadratic_program import NotConvergedError
from blue_solvers.quantiles import read_level, takes_confidence_level
from constraint_builders import Problem
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.layout import Name
from constraint_builders.description.reals import positive_number, random_generator, whole_number
from constraint_builders.memory import require_memory
from noise_mechanisms.chain_diagnostics import effective_sizes, split_scale_reduction
from noise_mechanisms.laws.base_law import Seed

if TYPE_CHECKING:
    import xarray

_CHAINS = 4
_AGREEMENT = 1.05  # of split scale reductions, above which chains are said to disagree
_FIRST_DRAWS = 250
_TURNS_A_CELL = 4  # proposals between two draws that are kept
_MANY_CELLS = 1000  # beyond, redrawing concentrations costs little beside the proposals, and decides how chains mix
_TURNS_AT_ONCE = 1 << 18
_SINGLE = 0.7  # share of the proposals that are of single cells beside those that are drawn, where all may move alone
_COMING_AND_GOING = 0.3  # share of the proposals: somebody comes to any cell, or goes from one that is occupied
_VALUES_AT_ONCE = 1 << 23
_WHOLE = 1e-9
_IMPOSSIBLE = (
    "chains found no whole counts that all figures may be published of: give more `most_draws`, or correct them; "
    "`possible_counts` says whether there are any"
)
_MOST = int(np.iinfo(np.int32).max)  # of a count among the draws
_GRID = np.geomspace(0.02, 100.0, 38)  # of concentrations


@dataclass(frozen=True)
class CountsPosterior:
    """Draws of non-negative whole counts given the measurements, and what they say.

    Attributes
    ----------
    problem : Problem
    draws : ndarray of int32, (chains, draws, d)
        Counts of the possible cells, the first half of every chain left out.
    desired : ndarray, (m,)
        Posterior means over the desired layout.
    observed : ndarray, (n,)
        The same over the observed layout.
    detail : ndarray, schema shape
        The same of the detailed cells; with a spine of every geounit without children along the first axis.
    std_errors : ndarray, (m,)
        Posterior standard deviations of the desired cells.
    effective_sizes : ndarray, (m,)
        How many independent draws each mean is worth; its error from drawing is ``std_errors / sqrt(effective_sizes)``.
    scale_reduction : ndarray, (m,)
        How far the chains disagree about each desired cell, 1 where they do not; see `split_scale_reduction`.
    acceptance : float
        Share of the proposals that were accepted.
    """

    problem: Problem
    draws: NDArray[np.int32]
    desired: Float
    observed: Float
    detail: Float
    std_errors: Float
    effective_sizes: Float
    scale_reduction: Float
    acceptance: float

    def tables(self) -> dict[Name, NDArray]:
        """The desired tables of posterior means by name."""
        return self.problem.desired.tables(self.desired)

    @takes_confidence_level
    def intervals(self, confidence_level: float = 0.95) -> tuple[Float, Float]:
        """Whole numbers between which each desired count lies with at least this posterior probability.

        Parameters
        ----------
        confidence_level : float
            Between 0 and 1.

        Returns
        -------
        lower, upper : ndarray, (m,)
            With at most (1 - confidence_level) / 2 of the draws below, and above.
        """
        tail = (1 - read_level(confidence_level)) / 2
        lower, upper = np.empty((2, self.desired.size))
        for rows, values in self._desired_draws:
            flat = np.sort(values.reshape(-1, values.shape[2]), axis=0)
            skipped = int(np.floor(tail * flat.shape[0] + _WHOLE))
            lower[rows], upper[rows] = flat[skipped], flat[flat.shape[0] - 1 - skipped]
        return lower, upper

    def to_arviz(self) -> xarray.Dataset:
        """The draws of every desired table, as ArviZ takes them; needs the extra ``arrays``.

        Returns
        -------
        xarray.Dataset
            Arrays ``"sex * age count"``, say, of the dimensions ``chain`` and ``draw`` and the table's factors, with
            their labels: what ``arviz.summary``, ``arviz.plot_trace`` and ``arviz.convert_to_inference_data`` read.

        Raises
        ------
        ValueError
            If the problem has no tables.
        ImportError
            Without the extra ``arrays``.
        """
        from constraint_builders.files.labelled_arrays import dataset

        size = self.desired.size
        require_memory(8.0 * self.draws.shape[0] * self.draws.shape[1] * size, "the draws", "keep fewer tables")
        draws = np.concatenate([values for _, values in self._desired_draws], axis=2)
        numbered = dataset(self.problem, np.arange(size), np.zeros(size))
        tables = {
            f"{str(name).removesuffix(' estimate')} count": (
                ("chain", "draw", *own.dims),
                draws[:, :, own.to_numpy().astype(np.intp)],
            )
            for name, own in numbered.items()
            if str(name).endswith(" estimate")
        }
        return type(numbered)(tables, coords=numbered.coords)

    @property
    def _desired_draws(self) -> Iterator[tuple[slice, Float]]:
        return _in_parts(FittingModel.of(self.problem).cells.to_desired(), self.draws)


def counts_posterior(
    problem: Problem,
    y: ArrayLike,
    concentration: float | None = None,
    effective: int = 200,
    most_draws: int = 4000,
    rng: Seed = None,
) -> CountsPosterior:
    """Draw from the posterior of non-negative whole counts, by Metropolis chains along lattice moves.

    Parameters
    ----------
    problem : Problem
        With independent noise of one of the four laws, or another of their families; or with figures that were rounded
        or perturbed, of which the law says P(y | n).
    y : array_like, (n,)
        Measurements over ``problem.observed``, in counts.
    concentration : float, optional
        Of what is assumed beforehand: all sums are equally likely, and given the sum the counts are
        Dirichlet-multinomial. 1: every table of a sum is as likely as any other; less: a few large counts among empty
        cells; ``inf``: everybody is in any cell with the same chance. By default it is drawn along with the counts,
        from 0.02 to 100 with a level logarithm.
    effective : int
        Effective draws that every desired cell must reach.
    most_draws : int
        Of each of the four chains, before they are given up.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness.

    Returns
    -------
    CountsPosterior

    Raises
    ------
    ValueError
        If y does not fit the problem; a count may be 2^31 or more; the noise is correlated, or of a law without a
        family, or several sources measured a cell with other noise than Gaussian; noise of whole numbers left a
        measurement that is not whole, or is added to areas of other than whole weights; a cell is in no measured sum of
        weights of one sign, so that its count has no bound; what is known exactly is met by no whole counts.
    NotConvergedError
        If the chains, started from dispersed fits, still disagree by more than 5 % in some desired cell, or are worth
        fewer than `effective` draws of it, after `most_draws`.

    Notes
    -----
    The weight of counts x is the product over the measured rows of the noise's probability of y_i - (M x)_i, among x >=
    0 of whole numbers that meet all exact values, times the weight that they have beforehand, see `metropolis_steps`. A
    move adds a whole number of steps along one of the moves of `count_moves`, the number being drawn from a symmetric
    law, and is accepted with probability min(1, weight after / weight before), so that the posterior is the chain's
    law. Where cells may change alone somebody comes to any cell too, or goes from an occupied one, which few are where
    most are empty; that is accepted by the ratio that makes up for how often it is proposed. The moves reach all counts
    where nothing, nested sums or both margins of a two-way table are known exactly; beyond, exact margins may cut the
    non-negative counts into parts that no listed move joins, which the diagnostic shows only if chains start in
    different parts.
    """
    values = read_measurements(problem, y)
    if values.ndim != 1:
        raise ValueError(f"y must be one vector of {problem.observed.size} measurements: got shape {values.shape}")
    effective, most_draws = whole_number(effective, "effective", 1), whole_number(most_draws, "most_draws", 4)
    model, generator = FittingModel.of(problem), random_generator(rng)
    model.refuse_impossible_exact(values)
    chains = _Chains(model, values, _concentrations(concentration), generator)
    kept: list[NDArray[np.int32]] = []
    wanted = min(_FIRST_DRAWS, most_draws)
    while True:
        require_memory(4.0 * _CHAINS * wanted * model.possible.size, "the draws", "give fewer `most_draws`")
        kept.append(chains.run(wanted - sum(part.shape[1] for part in kept)))
        draws = np.concatenate(kept, axis=1)
        result = _summary(problem, model, draws[:, draws.shape[1] // 2 :], chains.acceptance)
        few, apart = result.effective_sizes.min(initial=np.inf), result.scale_reduction.max(initial=1.0)
        if few >= effective and apart <= _AGREEMENT and chains.are_possible:
            return result
        if wanted == most_draws:
            reason = _disagreement(result, effective, most_draws) if chains.are_possible else _IMPOSSIBLE
            raise NotConvergedError(reason)
        wanted = min(2 * wanted, most_draws)


def _disagreement(result: CountsPosterior, effective: int, most_draws: int) -> str:
    layout = result.problem.desired
    apart, few = int(result.scale_reduction.argmax()), int(result.effective_sizes.argmin())
    return (
        f"after {most_draws:,} draws of each of {_CHAINS} chains they disagree by a factor of "
        f"{result.scale_reduction[apart]:.3g} about {layout.describe(apart)} ({_AGREEMENT} is allowed), and are worth "
        f"{result.effective_sizes[few]:.0f} draws of {layout.describe(few)} ({effective} are wanted): give more "
        "`most_draws`, or fewer `effective`"
    )


class _Chains:
    """Metropolis chains from dispersed starts."""

    def __init__(self, model: FittingModel, y: Float, grid: Float, rng: np.random.Generator) -> None:
        problem, self._rng, self._grid = model.problem, rng, grid
        rows = np.flatnonzero(model.measured & ~problem.exact & (np.diff(model.M.indptr) > 0))
        _refuse_unbounded(model, rows)
        self._misfit = misfit_of(model, y, rows)
        self._moves = count_moves(model, rows)
        weights = self._misfit.weights
        information = weights if self._misfit.squared else np.square(weights) / 2
        states = whole_starts(model, y, _CHAINS, rng)
        largest = 1.0 + states.max(initial=0)  # what moves that nothing measures may at most be
        self._scales = np.minimum(step_sizes(self._moves, information), largest)
        residuals = np.ascontiguousarray(states @ model.M[rows].T - y[rows], dtype=np.float64)
        accepted, self._proposed = np.zeros(_CHAINS, dtype=np.int64), 0
        self._chains = Chains(states, residuals, states.sum(axis=1), accepted, np.full(_CHAINS, grid[grid.size // 2]))
        cells, sums = self._moves.cells, self._moves.sums
        starts, numbers, steps, row_starts, places, growths = (
            np.asarray(own).ravel().astype(np.int64)
            for own in (cells.indptr, cells.indices, cells.data, sums.indptr, sums.indices, cells.sum(axis=0))
        )
        self._lists = MoveLists(starts, numbers, steps, row_starts, places, sums.data.astype(np.float64), growths)

    @property
    def acceptance(self) -> float:
        """Share of the proposals that were accepted; 1 before any."""
        return float(self._chains.accepted.sum() / self._proposed) if self._proposed else 1.0

    @property
    def are_possible(self) -> bool:
        """Whether all figures may be published of the counts that the chains are at."""
        listed = range(self._misfit.first.size)
        return all(self._misfit.of(row, own[row]) < OUTSIDE for own in self._chains.residuals for row in listed)

    def run(self, draws: int) -> NDArray[np.int32]:
        """Advance all chains, and keep so many states of each: (chains, draws, d)."""
        kept = np.empty((_CHAINS, draws, self._chains.states.shape[1]), dtype=np.int32)
        for i in range(draws):
            size = self._chains.states.shape[1]
            times = _TURNS_A_CELL if size > _MANY_CELLS else 1  # that concentrations are redrawn
            for _ in range(times if self._moves.cells.shape[1] else 0):
                self._advance(_TURNS_A_CELL * size // times)
                self._draw_concentrations()
            if self._chains.states.max(initial=0) > _MOST:
                raise ValueError(f"counts above {_MOST:,} are not drawn: give the measurements of parts of the table")
            kept[:, i] = self._chains.states
        return kept

    def _draw_concentrations(self) -> None:
        """Redraw each chain's concentration from its law given the counts."""
        if self._grid.size == 1:
            return
        states, totals, a = self._chains.states, self._chains.totals[:, None], self._grid[:, None]
        values, places = np.unique(states, return_inverse=True)
        places = places.reshape(_CHAINS, -1) + np.arange(_CHAINS)[:, None] * values.size
        times = np.bincount(places.ravel(), minlength=_CHAINS * values.size).reshape(_CHAINS, -1)
        whole = states.shape[1] * self._grid
        logs = times @ (gammaln(values + a) - gammaln(a)).T + gammaln(whole) - gammaln(totals + whole)
        upto = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
        drawn = self._rng.random((_CHAINS, 1))
        self._chains.concentrations[:] = self._grid[(upto / upto[:, -1:] <= drawn).sum(axis=1)]

    def _advance(self, turns: int) -> None:
        for start in range(0, turns, _TURNS_AT_ONCE):
            shape = (_CHAINS, min(_TURNS_AT_ONCE, turns - start))
            choices = self._moves.draw(shape, self._rng)
            if self._moves.has_all_cells:
                single = self._rng.random(shape) < _SINGLE
                choices[single] = self._rng.integers(0, self._chains.states.shape[1], np.count_nonzero(single))
            lengths = 1 + np.floor(self._rng.standard_exponential(shape) * (self._scales[choices] - 1)).astype(np.int64)
            sizes = np.where(self._rng.random(shape) < 0.5, -lengths, lengths)
            if self._moves.has_all_cells:
                one = self._rng.random(shape) < _COMING_AND_GOING
                choices[one] = -1 - self._rng.integers(0, 1 << 40, np.count_nonzero(one))
            costs = self._rng.standard_exponential(shape)
            metropolis_steps(self._chains, self._lists, self._misfit, choices, sizes, costs)
            self._proposed += choices.size


def _concentrations(value: float | None) -> Float:
    """The one that was given, or those between which the chains choose."""
    if value is None:
        return _GRID
    return np.array([math.inf if value == math.inf else positive_number(value, "concentration")])


def _refuse_unbounded(model: FittingModel, rows: Integers) -> None:
    """Refuse cells that no measured row, of (rows,), with entries of one sign holds: nothing bounds their counts."""
    matrix = sparse.csr_array(sparse.vstack([model.M[rows], model.exact_rows]))
    one_sign = abs(matrix.sum(axis=1)) == abs(matrix).sum(axis=1)
    free = np.flatnonzero(np.diff(sparse.csc_array(matrix[np.flatnonzero(one_sign)]).indptr) == 0)
    if free.size:
        raise ValueError(
            f"detailed cell {int(model.possible[free[0]])} is in no sum of weights of one sign that was measured or is "
            "known exactly: nothing bounds its count from above"
        )


def _summary(problem: Problem, model: FittingModel, draws: NDArray[np.int32], acceptance: float) -> CountsPosterior:
    """Means, errors and diagnostics of draws, (chains, draws, cells)."""
    mean = draws.mean(axis=(0, 1), dtype=np.float64)
    means, deviations, sizes, factors = np.empty((4, problem.desired.size))
    for rows, values in _in_parts(model.cells.to_desired(), draws):
        means[rows], deviations[rows] = values.mean(axis=(0, 1)), values.std(axis=(0, 1))
        sizes[rows], factors[rows] = effective_sizes(values), split_scale_reduction(values)
    detail = np.zeros(prod(model.cells.shape))
    detail[model.possible] = mean
    return CountsPosterior(
        problem, draws, means, model.M @ mean, detail.reshape(model.cells.shape), deviations, sizes, factors, acceptance
    )


def _in_parts(matrix: sparse.csr_array, draws: NDArray[np.int32]) -> Iterator[tuple[slice, Float]]:
    """Sums of the draws, (chains, draws, rows), a few rows at a time."""
    flat = draws.reshape(-1, draws.shape[2]).T.astype(np.float64)
    rows = max(1, _VALUES_AT_ONCE // max(1, flat.shape[1]))
    for start in range(0, matrix.shape[0], rows):
        part = slice(start, min(start + rows, matrix.shape[0]))
        yield part, (matrix[part] @ flat).T.reshape(*draws.shape[:2], -1)
