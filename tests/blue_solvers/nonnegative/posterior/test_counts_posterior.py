"""The posterior of whole counts against every table of whole counts, weighed one by one."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.special import gammaln

from blue_solvers import blue
from blue_solvers.nonnegative import NotConvergedError, counts_posterior
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.posterior.count_moves import count_moves
from blue_solvers.nonnegative.posterior.counts_posterior import _Chains, _concentrations
from blue_solvers.nonnegative.posterior.whole_starts import whole_starts
from constraint_builders import Areas, Problem, Schema, read_tables
from noise_mechanisms import add_noise, draw_noise
from noise_mechanisms.chain_diagnostics import effective_sizes, split_scale_reduction
from noise_mechanisms.laws import CellKey, PublishedCount, RandomRounding, Rounding
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

SCHEMA = Schema({"a": 2, "b": 3})


def every_table(cells: int, top: int) -> np.ndarray:
    return np.array(list(product(range(top + 1), repeat=cells)))


def gaussian(x: np.ndarray, y: float, sigma2: float) -> np.ndarray:
    return -np.square(x - y) / (2 * sigma2)


def sums(tables: np.ndarray, axis: int) -> np.ndarray:
    """Margins of 2 x 3 tables, by hand."""
    return tables.reshape(-1, 2, 3).sum(axis=axis)


def assert_agrees(
    problem: Problem, y: np.ndarray, tables: np.ndarray, logs: np.ndarray, concentration: float | None = 1.0
) -> None:
    """Means, deviations and interval ends of the cells are those of the listed tables, within drawing error."""
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    edge = (tables == tables.max()).any(axis=1) & (tables.sum(axis=1) > 5)
    assert weight[edge].sum() < 1e-4, "the list is cut off too early"
    found = counts_posterior(problem, y, effective=4000, most_draws=64_000, concentration=concentration, rng=1)
    mean = weight @ tables
    deviation = np.sqrt(weight @ np.square(tables - mean))
    assert (abs(found.detail.ravel() - mean) <= 6 * deviation / np.sqrt(4000) + 1e-4).all()
    slice_ = problem.desired.slice("detailed") if problem.is_tabular else slice(None)
    np.testing.assert_allclose(found.std_errors[slice_], deviation, rtol=0.1, atol=2e-3)
    low, high = (bound[slice_] for bound in found.intervals(0.9))
    for cell in range(tables.shape[1]):
        inside = (tables[:, cell] >= low[cell]) & (tables[:, cell] <= high[cell])
        assert weight[inside].sum() >= 0.89
        narrower = (tables[:, cell] > low[cell]) & (tables[:, cell] <= high[cell])
        assert weight[narrower].sum() <= 0.96 or low[cell] == 0


NOISY = {"total": 2.0, "a": 3.0, "detailed": 1.5}
Y = np.array([5.0, 3.0, 1.0, 1.0, 0.0, 2.0, -2.0, 1.0, 1.0])


def noisy_weight(tables: np.ndarray) -> np.ndarray:
    weight = gaussian(tables.sum(axis=1), Y[0], 2.0)
    for i in range(2):
        weight = weight + gaussian(sums(tables, 2)[:, i], Y[1 + i], 3.0)
    return weight + sum(gaussian(tables[:, j], Y[3 + j], 1.5) for j in range(6))


def prior(tables: np.ndarray, a: float) -> np.ndarray:
    """Of the Dirichlet-multinomial law given the total, all totals being equally likely."""
    total, d = tables.sum(axis=1), tables.shape[1]
    multinomial = gammaln(total + 1.0) - gammaln(tables + 1.0).sum(axis=1)
    if a == math.inf:
        return multinomial - total * math.log(d)
    parts = gammaln(tables + a).sum(axis=1) - d * gammaln(a)
    return multinomial + parts + gammaln(d * a) - gammaln(total + d * a)


@pytest.mark.few(1)
@pytest.mark.parametrize("concentration", [1.0, 0.3, math.inf, None])
def test_agrees_with_every_table_under_gaussian_noise(concentration: float | None) -> None:
    tables = every_table(6, 7)
    if concentration is None:
        logs = np.logaddexp.reduce([prior(tables, a) for a in np.geomspace(0.02, 100, 38)])
    else:
        logs = prior(tables, concentration)
    problem = Problem(SCHEMA, NOISY, desired="all")
    assert_agrees(problem, Y, tables, noisy_weight(tables) + logs, concentration=concentration)


def test_agrees_with_every_table_under_noise_of_whole_numbers() -> None:
    """Small variances, at which the parameter of a discrete Gaussian is far from its variance."""
    tables = every_table(4, 8)
    problem = Problem(Schema({"a": 4}), {"total": 0.3, "detailed": 0.25}, noise="discrete_gaussian")
    y = np.array([4.0, 1.0, 0.0, 3.0, -1.0])
    k = np.arange(-30, 31)

    def parameter(variance: float) -> float:
        low, high = 0.01, 5.0
        for _ in range(80):
            middle = (low + high) / 2
            weight = np.exp(-np.square(k) / (2 * middle))
            low, high = (middle, high) if (weight @ np.square(k)) / weight.sum() < variance else (low, middle)
        return middle

    weight = gaussian(tables.sum(axis=1), y[0], parameter(0.3))
    weight = weight + sum(gaussian(tables[:, j], y[1 + j], parameter(0.25)) for j in range(4))
    assert_agrees(problem, y, tables, weight + prior(tables, 1.0))


def test_agrees_with_every_table_under_laplace_noise() -> None:
    tables = every_table(4, 12)
    problem = Problem(Schema({"a": 4}), {"total": 2.0, "detailed": 1.0}, noise="laplace")
    y = np.array([4.5, 1.2, -0.7, 3.1, 0.2])
    weight = -abs(tables.sum(axis=1) - y[0]) / 1.0  # variance 2 b^2
    weight = weight - sum(abs(tables[:, j] - y[1 + j]) for j in range(4)) / math.sqrt(0.5)
    assert_agrees(problem, y, tables, weight + prior(tables, 1.0))


def _key() -> CellKey:
    small = [{0: 1.0}, {-1: 0.3, 0: 0.4, 1: 0.3}]
    return CellKey([*small, {-2: 0.1, -1: 0.2, 0: 0.4, 1: 0.2, 2: 0.1}, {-2: 0.2, -1: 0.2, 0: 0.2, 1: 0.2, 2: 0.2}])


@pytest.mark.few(2)
@pytest.mark.parametrize("law", [RandomRounding(3), RandomRounding(2), Rounding(4), Rounding(5), _key()], ids=repr)
def test_agrees_with_every_table_of_rounded_and_perturbed_counts(law: PublishedCount) -> None:
    """Listed by P(y | n); an exact total holds some."""
    tables = every_table(4, 12)
    for truth, known in (([1, 5, 0, 2], False), ([2, 2, 3, 1], True)):
        M = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
        schema = Schema({"a": 2, "b": 2})
        problem = Problem(schema, {"total": 0.0 if known else law, "a": law, "detailed": law})
        y = add_noise(problem, M @ np.array(truth, dtype=float), rng=5)
        logs = prior(tables, 1.0)
        for row, figure in zip(M, y, strict=True):
            exact = known and row.all()
            sums_of = tables @ row
            own = np.where(sums_of == figure, 0.0, -np.inf) if exact else law.log_probability(figure, sums_of * 1.0)
            logs = logs + own
        assert_agrees(problem, y, tables, logs)


def test_figures_that_no_whole_counts_lead_to_are_said() -> None:
    problem = Problem(Schema({"a": 2}), {"total": RandomRounding(3), "a": RandomRounding(3)})
    with pytest.raises(NotConvergedError, match="no whole counts that all figures may be published of"):
        counts_posterior(problem, [30.0, 3.0, 3.0], effective=5, most_draws=500, rng=1)


def test_agrees_where_totals_and_zeros_are_known() -> None:
    problem = Problem(
        SCHEMA,
        {**NOISY, "total": 0.0},
        zeros={"detailed": np.array([[False, True, False], [False, False, False]])},
        desired="all",
    )
    tables = every_table(6, 6)
    tables = tables[(tables.sum(axis=1) == 5) & (tables[:, 1] == 0)]
    assert_agrees(problem, Y, tables, noisy_weight(tables))


def test_agrees_where_both_margins_are_known() -> None:
    problem = Problem(SCHEMA, {"a": 0.0, "b": 0.0, "detailed": 2.0}, desired="all")
    y = np.array([5.0, 4.0, 2.0, 3.0, 4.0, 3.2, -1.0, 2.0, 1.0, 2.0, 0.4])
    tables = every_table(6, 5)
    kept = (sums(tables, 2) == [5, 4]).all(axis=1) & (sums(tables, 1) == [2, 3, 4]).all(axis=1)
    tables = tables[kept]
    weight = sum(gaussian(tables[:, j], y[5 + j], 2.0) for j in range(6))
    found = counts_posterior(problem, y, 1.0, effective=4000, most_draws=64_000, rng=2)
    probability = np.exp(weight - weight.max()) / np.exp(weight - weight.max()).sum()
    mean = probability @ tables
    assert (abs(found.detail.ravel() - mean) <= 6 * np.sqrt(probability @ np.square(tables - mean) / 4000)).all()
    reached = {tuple(row) for row in found.draws.reshape(-1, 6).tolist()}
    assert reached <= {tuple(row) for row in tables.tolist()}


def test_agrees_where_equalities_hold() -> None:
    """x_0 = x_4 and x_1 + x_2 = 3, which no table says."""
    E = np.zeros((2, 6))
    E[0, 0], E[0, 4], E[1, 1], E[1, 2] = 1, -1, 1, 1
    problem = Problem(SCHEMA, {"detailed": 1.5}, equalities=(E, np.array([0.0, 3.0])))
    y = Y[3:] + 0.5
    tables = every_table(6, 7)
    tables = tables[(tables[:, 0] == tables[:, 4]) & (tables[:, 1] + tables[:, 2] == 3)]
    assert_agrees(problem, y, tables, prior(tables, 1.0) + sum(gaussian(tables[:, j], y[j], 1.5) for j in range(6)))


HARD = [  # sums between whose whole counts no move of one basis leads
    ([[-1, 3, -1, 3], [2, 2, 0, 1]], [3, 4, 3, 0]),
    ([[-1, 2, 1]], [1, 3, 3]),
    ([[3, 1]], [7, 10]),
    ([[1, -1]], [7, 10]),
    ([[2, 3, -1, 0], [-1, -1, 2, 1]], [2, 2, 0, 2]),
    ([[1, 1, 0], [0, 1, 1]], [3, 1, 2]),
]


@every(("known", "truth"), HARD)
def test_agrees_where_areas_of_any_weights_are_known(known: list[list[int]], truth: list[int]) -> None:
    leaves, rng = len(truth), np.random.default_rng(len(truth))
    other = rng.choice([0.5, 2.0, -1.0], leaves)  # measured with noise
    layers = {"Known": np.array(known, dtype=float), "Other": [other]}
    observed = {"Known": {"total": 0.0}, "Other": {"total": 1.5}, "Leaf": {"total": 2.0}}
    problem = Problem(Schema({"unit": 1}), observed, areas=Areas(leaves, layers))
    y = np.concatenate([np.array(known) @ truth, [other @ truth + 0.7], np.array(truth) + rng.normal(0, 1.4, leaves)])
    top = 18 if leaves < 4 else 12
    tables = every_table(leaves, top)
    tables = tables[(tables @ np.array(known).T == np.array(known) @ truth).all(axis=1)]
    logs = gaussian(tables @ other, y[len(known)], 1.5) + prior(tables, 1.0)
    logs = logs + sum(gaussian(tables[:, j], y[len(known) + 1 + j], 2.0) for j in range(leaves))
    weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    assert weight[tables.max(axis=1) == top].sum() < 1e-3, "the list is cut off too early"
    found = counts_posterior(problem, y, 1.0, effective=1000, most_draws=32_000, rng=1)
    mean = weight @ tables
    deviation = np.sqrt(weight @ np.square(tables - mean))
    assert len(tables) > 1
    assert (abs(found.detail.ravel() - mean) <= 6 * deviation / np.sqrt(1000) + 2e-3).all()


def test_sums_that_are_not_whole_are_refused_where_noise_is() -> None:
    def halves(variance: float, noise: str) -> Problem:
        observed = {"Half": {"total": variance}, "Leaf": {"total": 2.0}}
        return Problem(Schema({"unit": 1}), observed, areas=Areas(2, {"Half": [[0.5, 0.5]]}), noise=noise)

    y = np.array([5.5, 4.0, 7.0])
    assert counts_posterior(halves(1.0, "gaussian"), y, rng=1).desired.size == 3
    with pytest.raises(ValueError, match="weights that are not whole"):
        counts_posterior(halves(1.0, "discrete_gaussian"), np.array([5.0, 4.0, 7.0]), rng=1)
    refuses("areas known exactly, of whole weights", counts_posterior, halves(0.0, "gaussian"), y, rng=1)
    odd = Problem(Schema({"a": 2}), {"a": 1.0, "total": 1.0}, equalities=([[2, 2, 0]], [3.0]))
    refuses("no non-negative whole counts meet what is known exactly", counts_posterior, odd, np.ones(3), rng=1)


def test_cells_that_differences_alone_hold_are_refused() -> None:
    def problem(layer: list[float]) -> Problem:
        observed = {"R": {"total": 1.0}, "Leaf": {"total": [2.0, np.inf]}}
        return Problem(Schema({"unit": 1}), observed, {"R": ["total"]}, areas=Areas(2, {"R": [layer]}))

    y = np.array([-5.0, 4.0, np.nan])
    refuses("detailed cell 1 is in no sum of weights of one sign", counts_posterior, problem([1.0, -1.0]), y, rng=1)
    assert 3 < counts_posterior(problem([-1.0, -1.0]), y, rng=1).detail.sum() < 7


def test_agrees_with_equations_of_a_matrix() -> None:
    """Nodes 0 = 1 + 2, all measured."""
    problem = Problem.from_matrix(np.array([[1.0, -1.0, -1.0]]), np.array([1.0, 2.0, 2.0]))
    y = np.array([3.3, 0.4, 1.7])
    tables = every_table(3, 16)
    tables = tables[tables[:, 0] == tables[:, 1] + tables[:, 2]]
    weight = gaussian(tables[:, 0], y[0], 1.0) + gaussian(tables[:, 1], y[1], 2.0) + gaussian(tables[:, 2], y[2], 2.0)
    assert_agrees(problem, y, tables, weight + prior(tables, 1.0))


@pytest.mark.few(0)
def test_intervals_cover_counts_drawn_as_assumed_beforehand() -> None:
    """Geometric counts have the law that concentration 1 assumes, given their sum."""
    problem = Problem(Schema({"a": 2, "b": 2, "c": 3}), {"a": 2.0, "b * c": 2.0, "detailed": 4.0}, desired="all")
    rng = np.random.default_rng(4)
    held = []
    for _ in range(40):
        cells = rng.geometric(1 / 1.5, 12) - 1
        truth = problem.marginal_matrix() @ cells
        y = truth + draw_noise(problem, 1, rng)[:, 0]
        found = counts_posterior(problem, y, 1.0, effective=150, rng=rng)
        low, high = found.intervals(0.8)
        true = problem.tabulate(truth[:, None])[:, 0]
        held.append(((low <= true + 1e-9) & (true <= high + 1e-9)).mean())
    # 40 tables of some 12 free cells: a standard error of about 0.02
    assert np.mean(held) >= 0.8 - 0.06


@pytest.mark.few(0)
def test_near_empty_tables_are_nearer_the_truth_than_the_fit() -> None:
    from blue_solvers import blue
    from blue_solvers.nonnegative import nnls
    from constraint_builders import gallery

    problem = gallery.cube(3, 4, 6.25)
    rng = np.random.default_rng(5)
    squares = np.zeros(3)
    for _ in range(6):
        truth = problem.marginal_matrix() @ rng.poisson(0.3, 64)
        y = truth + draw_noise(problem, 1, rng)[:, 0]
        posterior = counts_posterior(problem, y, effective=100, rng=rng)
        P = blue(problem)
        for i, x in enumerate((posterior.observed, nnls(problem, y).observed, P @ y + P.offset)):
            squares[i] += np.square(x - truth).mean()
    assert squares[0] < 0.97 * squares[1] < 0.5 * squares[2]


@every("state", [[12, 0, 0, 0], [3, 3, 3, 3], [7, 5, 0, 0]])
def test_concentrations_are_drawn_over_their_whole_range(state: list[int]) -> None:
    """Given counts, by their law over 0.02 to 100: low where all are in one cell, high where all cells have as many."""
    model = FittingModel.of(Problem(Schema({"a": 4}), {"total": 1.0, "detailed": 1.0}))
    chains = _Chains(
        model, np.array([sum(state), *state], dtype=float), _concentrations(None), np.random.default_rng(0)
    )
    chains._chains.states[:], chains._chains.totals[:] = state, sum(state)
    drawn = []
    for _ in range(1000):
        chains._draw_concentrations()
        drawn.append(np.log(chains._chains.concentrations))
    range_ = np.geomspace(0.02, 100, 38)
    logs = np.array([prior(np.array([state]), a)[0] for a in range_])
    weight = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = weight @ np.log(range_)
    deviation = np.sqrt(weight @ np.square(np.log(range_) - mean))
    assert abs(np.mean(drawn) - mean) <= 5 * deviation / np.sqrt(4000)


def test_chains_start_further_apart_than_the_posterior_is_wide() -> None:
    """So that chains which stay where they start are seen to disagree; what is known exactly is met all the same."""
    problem = Problem(SCHEMA, {"total": 0.0, "a": 400.0, "detailed": 900.0})
    truth = np.array([6000.0, 3000, 3000, 1000, 1000, 1000, 1000, 1000, 1000])
    model = FittingModel.of(problem)
    starts = whole_starts(model, truth, 60, np.random.default_rng(0))
    assert (starts.sum(axis=1) == 6000).all()
    widths = np.sqrt(blue(problem).variances()[3:])
    assert (starts.std(axis=0) >= 1.2 * widths).all()
    assert (starts.std(axis=0) <= 1.9 * widths).all()


def test_the_first_half_of_every_chain_is_left_out() -> None:
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "detailed": 1.0})
    found = counts_posterior(problem, np.array([9.0, 4.0, 5.0]), effective=1, rng=3)
    assert found.draws.shape[1] in {125, 250, 500}  # of 250, 500 or 1,000 that were drawn


@every("level", [0.5, 0.9, 0.95])
def test_ends_of_intervals_are_of_the_ranks_that_the_level_says(level: float) -> None:
    """No end leaves out more of the draws than its tail, nor could it be moved inwards by one draw."""
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "detailed": 1.0})
    drawn = counts_posterior(problem, np.array([9.0, 4.0, 5.0]), effective=1, rng=3)
    order = np.random.default_rng(0).permutation(100)
    draws = np.stack([order, np.zeros(100, dtype=int)], axis=1).reshape(2, 50, 2).astype(np.int32)
    low, high = replace(drawn, draws=draws).intervals(level)
    tail = int(50 * (1 - level) + 1e-9)
    assert (low[0], high[0]) == (low[1], high[1]) == (tail, 99 - tail)


def test_moves_that_memory_does_not_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FittingModel(Problem(SCHEMA, NOISY))
    listed = count_moves(model, np.arange(model.M.shape[0]))
    monkeypatch.setattr("constraint_builders.memory.free_memory", lambda: 8.0 * (listed.cells.nnz + listed.sums.nnz))
    refuses(r"the list of \d+ moves needs .*: give fewer", count_moves, model, np.arange(6), error=MemoryError)


def test_chains_that_have_not_mixed_are_refused_by_name() -> None:
    problem = Problem(SCHEMA, {"detailed": 100.0}, desired="all")
    with pytest.raises(
        NotConvergedError, match=r"after 8 draws of each of 4 chains they disagree.*give more `most_draws`"
    ):
        counts_posterior(problem, np.full(6, 30.0), most_draws=8, rng=1)


def test_the_diagnostics_fail_on_chains_that_disagree() -> None:
    rng = np.random.default_rng(6)
    same = rng.standard_normal((4, 400, 3))
    assert (split_scale_reduction(same) < 1.05).all()
    apart = same + np.arange(4)[:, None, None] * [0.0, 1.0, 5.0]
    assert (split_scale_reduction(apart) > 1.05).tolist() == [False, True, True]
    assert effective_sizes(apart)[2] < 20 < 800 < effective_sizes(apart)[0]
    trend = same + np.linspace(0, 4, 400)[None, :, None]
    assert (split_scale_reduction(trend) > 1.05).all()
    stuck = np.broadcast_to(np.array([0.0, 0.0, 0.0, 1.0])[:, None, None], (4, 10, 1))
    assert np.isinf(split_scale_reduction(stuck)).all()
    still = np.zeros((4, 10, 1))
    assert (split_scale_reduction(still) == 1).all()
    assert (effective_sizes(still) == 40).all()


@every("rho", [0.0, 0.5, 0.9])
def test_effective_sizes_are_those_of_autoregressive_chains(rho: float) -> None:
    rng, length = np.random.default_rng(7), 20_000
    x = np.zeros((4, length, 2))
    x[:, 0] = rng.standard_normal((4, 2))
    for t in range(1, length):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal((4, 2))
    np.testing.assert_allclose(effective_sizes(x), 4 * length * (1 - rho) / (1 + rho), rtol=0.15)


def test_the_same_seed_gives_the_same_draws() -> None:
    problem = Problem(SCHEMA, NOISY)
    first, second, third = (counts_posterior(problem, Y, rng=seed) for seed in (1, np.random.default_rng(1), 2))
    assert np.array_equal(first.draws, second.draws)
    assert first.draws.shape != third.draws.shape or not np.array_equal(first.draws, third.draws)
    assert set(first.tables()) == {str(name) for name in problem.desired.names}


def _of_two_sources(law: str) -> tuple[Problem, np.ndarray]:
    """Whose means are whole, and no noise of the law."""
    one = pl.DataFrame({"a": ["x", "y"], "value": [10.0, 20], "variance": [2.0, 2.0], "source": ["A", "A"]})
    other = one.with_columns(value=pl.Series([12.0, 18]), source=pl.lit("B"))
    return read_tables(pl.concat([one, other]), noise=law)


@refused(
    (lambda: counts_posterior(Problem(SCHEMA, NOISY), Y[:3]), r"y must have shape \(9,\)"),
    (lambda: counts_posterior(Problem(SCHEMA, NOISY), np.stack([Y, Y], 1)), "y must be one vector of 9"),
    (
        lambda: counts_posterior(Problem(SCHEMA, NOISY, noise="discrete_laplace"), Y + 0.5),
        "noise of the law 'discrete_laplace' leaves whole numbers whole",
    ),
    (lambda: counts_posterior(*_of_two_sources("laplace")), "cell .* was measured by several sources, and means of"),
    (lambda: counts_posterior(*_of_two_sources("discrete_gaussian")), "of the law 'discrete_gaussian' have another"),
    (lambda: counts_posterior(Problem(SCHEMA, {**NOISY, "total": 0.0}), Y + 0.5), "value known exactly is 5.5"),
    (lambda: counts_posterior(Problem(SCHEMA, NOISY), Y, concentration=0.0), "concentration"),
    (lambda: counts_posterior(Problem(SCHEMA, NOISY), Y + 1e10), "counts above 2,147,483,647 are not drawn"),
    (
        lambda: counts_posterior(
            Problem(SCHEMA, {"total": 0.0, "detailed": 1.0}, zeros={"a": np.array([True, False])}),
            np.array([-1.0, *np.zeros(6)]),
        ),
        "known exactly and negative",
    ),
)
def test_what_has_no_posterior_is_refused(make: Callable[[], object]) -> None:
    make()


def test_draws_are_what_arviz_takes() -> None:
    """Chains and draws first, then the factors of each table with their labels; sums agree, means are kept."""
    xarray = pytest.importorskip("xarray")
    schema = Schema({"a": ["x", "y"], "b": 3})
    problem = Problem(schema, {"total": 2.0, "b * a": 3.0}, desired=["total", "b * a", "a"])
    found = counts_posterior(problem, np.array([7.0, 1, 2, 0, 3, 1, 2]), effective=20, rng=1)
    out = found.to_arviz()
    assert isinstance(out, xarray.Dataset)
    assert list(out) == ["total count", "b * a count", "a count"]
    assert out["b * a count"].dims == ("chain", "draw", "b", "a")
    assert list(out["a"].values) == ["x", "y"]
    assert out.sizes["chain"] == 4
    assert out.sizes["draw"] == found.draws.shape[1]
    np.testing.assert_array_equal(out["b * a count"].sum("b"), out["a count"])
    np.testing.assert_array_equal(out["a count"].sum("a"), out["total count"])
    for name, mean in found.tables().items():
        np.testing.assert_allclose(out[f"{name} count"].mean(("chain", "draw")), mean)
    with pytest.raises(ValueError, match="has no tables"):
        counts_posterior(Problem.from_summing_matrix([[1, 1], [1, 0], [0, 1]], 1.0), [3.0, 1, 2], 1.0, 20).to_arviz()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_arviz_says_the_same_of_the_chains() -> None:
    arviz = pytest.importorskip("arviz")
    found = counts_posterior(Problem(SCHEMA, NOISY), Y, effective=400, most_draws=16_000, rng=1)
    summary = arviz.summary(found.to_arviz(), round_to="none")
    np.testing.assert_allclose(summary["mean"], found.desired, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(summary["r_hat"], found.scale_reduction, atol=0.02)
