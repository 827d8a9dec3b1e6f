"""Coverage of intervals by simulation, their refinement, and the replicates behind them."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from blue_solvers import SeaBlue, blue
from blue_solvers.least_squares import least_squares
from blue_solvers.uncertainty import (
    LargestErrors,
    Replicates,
    SecondMoments,
    half_widths,
    intervals,
    normal_intervals,
    order_statistic,
    refine_to_integers,
)
from blue_solvers.uncertainty.largest_errors import keep_largest, keep_largest_in_numpy
from constraint_builders import Areas, Problem, Schema, gallery
from constraint_builders.compiled import has_numba
from noise_mechanisms import draw_noise
from tests.blue_solvers.uncertainty.checks import check_coverage
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

LEVEL = 0.9
REPLICATES = 3000
LENGTHS = lengths("replicates", 400, REPLICATES)
SCHEMA = Schema({"a": 2, "b": 3})
COUNTS = np.array([0.0, 1.0, 2.0, 5.0, 0.0, 9.0])


def problem(noise: str = "gaussian", variance: float = 2.0) -> Problem:
    """A 2 x 3 table with its margins, small counts with zeros among them."""
    observed = dict.fromkeys(["total", "a", "b", "detailed"], variance)
    M = Problem(SCHEMA, observed).marginal_matrix()
    return Problem(SCHEMA, observed, noise=noise, truth=M @ COUNTS)


def coverage(P, replicates: int = REPLICATES, **options) -> np.ndarray:
    """Whether intervals cover, (cells, replicates), with new noise and new draws for every replicate."""
    truth = P.problem.truth
    Y = truth[:, None] + draw_noise(P.problem, replicates, rng=11)
    if options["method"] == "z":
        lower, upper = intervals(P, Y, LEVEL, **options)
    else:
        both = [intervals(P, y, LEVEL, rng=10_000 + i, **options) for i, y in enumerate(Y.T)]
        lower, upper = np.transpose(both, (1, 2, 0))
    return (lower <= truth[:, None]) & (truth[:, None] <= upper)


@pytest.mark.parametrize("integer", [False, True])
def test_z_intervals_cover(integer):
    check_coverage(coverage(blue(problem()), method="z", integer=integer), LEVEL)


def test_z_intervals_of_a_heuristic_cover():
    rng = np.random.default_rng(1)
    base = problem()
    uneven = Problem(SCHEMA, base.observed.tables(rng.choice([0.5, 8.0], 12)), truth=base.truth)
    P = blue(uneven, SeaBlue())
    assert not P.info.exact
    check_coverage(coverage(P, method="z"), LEVEL)


@LENGTHS
@pytest.mark.parametrize("draws", [1, 9])
def test_t_intervals_cover_whatever_the_draws(draws, replicates):
    check_coverage(coverage(blue(problem()), replicates, method="t", draws=draws), LEVEL)


@LENGTHS
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_distribution_free_intervals_cover_exactly_for_continuous_noise(noise, replicates):
    P = blue(problem(noise))
    check_coverage(coverage(P, replicates, method="distribution_free", draws=9), LEVEL)


@LENGTHS
def test_distribution_free_intervals_cover_at_least_for_discrete_noise(replicates):
    """With 12 draws the rank is 12 of 13: continuous noise would be covered with probability 12 / 13, and ties add."""
    P = blue(problem("discrete_laplace", 1.0))
    check_coverage(coverage(P, replicates, method="distribution_free", draws=12), 12 / 13, most=0.97)


@every(("method", "draws"), [("z", None), ("t", 19), ("distribution_free", 19)])
def test_columns_and_problems_are_taken(method, draws):
    given_problem = problem()
    Y = given_problem.truth[:, None] + draw_noise(given_problem, 3, rng=1)
    lower, upper = intervals(given_problem, Y, 0.95, method, draws, rng=4)
    assert lower.shape == upper.shape == Y.shape
    one = intervals(given_problem, Y[:, 1], 0.95, method, draws, rng=4)
    np.testing.assert_allclose(lower[:, 1], one[0], atol=1e-12)
    np.testing.assert_allclose(upper[:, 1], one[1], atol=1e-12)


def test_normal_intervals_of_standard_errors():
    lower, upper = normal_intervals([5.0, 7.0], [1.0, 0.0], 0.95)
    np.testing.assert_allclose(upper, [5 + 1.959963984540054, 7], rtol=1e-15)
    np.testing.assert_allclose(lower, [5 - 1.959963984540054, 7], rtol=1e-15)


def test_exact_cells_have_no_width():
    exact = Problem(Schema({"a": 3}), {"total": 0.0, "a": 1.0})
    for options in ({"method": "z"}, {"method": "t", "draws": 5, "rng": 0}):
        lower, upper = intervals(exact, [7, 1, 2, 3], integer=True, **options)
        assert lower[0] == upper[0] == 7


@pytest.mark.slow
def test_relative_widths_are_those_of_table_1():
    """One cell, 19 draws: t(19) E chi(19) / (z sqrt 19), and E X_(19) / z of half-normals by quadrature."""
    P = blue(Problem(Schema({"a": 1}), {"a": 1.0}))
    z, repetitions = stats.norm.ppf(0.975), 4000
    t = np.array([half_widths(P, method="t", draws=19, rng=i)[0] for i in range(repetitions)]) / z
    free = np.array([half_widths(P, method="distribution_free", draws=19, rng=i)[0] for i in range(repetitions)]) / z
    expected_t = stats.t.ppf(0.975, 19) * stats.chi(19).mean() / np.sqrt(19) / z
    grid = np.linspace(0, 8, 100_001)
    expected_free = np.trapezoid(1 - (2 * stats.norm.cdf(grid) - 1) ** 19, grid) / z
    for values, expected, printed in ((t, expected_t, 1.055), (free, expected_free, 1.094)):
        assert abs(expected - printed) < 2e-3
        assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(repetitions)


@every(
    ("level", "draws", "rank"),
    [(0.95, 19, 19), (0.95, 199, 190), (0.95, 20, 20), (0.9, 9, 9), (0.99, 99, 99), (0.7, 9, 7)],
)
def test_order_statistic(level, draws, rank):
    assert order_statistic(level, draws) == rank


@every(("level", "draws", "least"), [(0.95, 18, 19), (0.99, 98, 99), (0.999, 199, 999), (0.9, 8, 9)])
def test_too_few_draws_are_refused(level, draws, least):
    with pytest.raises(ValueError, match=f"{draws} draws are too few .* level {level:g}: give {least} or more"):
        intervals(gallery.toy(), [6, 9, 17, 29], level, "distribution_free", draws)
    intervals(gallery.toy(), [6, 9, 17, 29], level, "distribution_free", least)


@refused(
    ({"method": "bootstrap"}, "method must be one of 'z', 't', 'distribution_free': got 'bootstrap'"),
    ({"method": "t"}, "say how many, draws=199"),
    ({"method": "t", "draws": 0}, "draws is 0: give a whole number of 1 or more"),
    ({"method": "t", "draws": 1.5}, "draws is 1.5: give a whole number of 1 or more"),
    ({"method": "z", "draws": 9}, "method 'z' simulates nothing"),
    ({"method": "t", "draws": 9, "rng": 1.5}, "rng is 1.5: give a whole number of 0 or more"),
)
def test_bad_options_are_refused(options) -> None:
    intervals(gallery.toy(), [6, 9, 17, 29], **options)


def test_refinement_is_that_of_remark_28():
    lower, upper = refine_to_integers([-1.5, 2.0, 3.0 + 1e-12, 0.2, -5.0], [12.7, 2.0, 8.0 - 1e-12, 0.8, -1.0])
    np.testing.assert_array_equal(lower, [0, 2, 3, 1, 0])
    np.testing.assert_array_equal(upper, [12, 2, 8, 0, -1])


@given(st.integers(1, 200), st.lists(st.integers(1, 200), max_size=4))
def test_replicates_do_not_depend_on_how_they_are_cut(draws, stops):
    P = blue(gallery.toy())
    at_once = np.hstack(list(Replicates(P, rng=3).columns(0, draws)))
    assert at_once.shape == (4, draws)
    cuts = [0, *sorted({stop for stop in stops if stop < draws}), draws]
    replicates = Replicates(P, rng=3)
    pieces = [part for start, stop in pairwise(cuts) for part in replicates.columns(start, stop)]
    np.testing.assert_allclose(np.hstack(pieces), at_once, atol=1e-13)


def test_statistics_continue_after_an_interruption():
    P = blue(problem())

    def interrupt(done: int, total: int) -> None:
        if done > 100:
            raise KeyboardInterrupt

    for fresh in (SecondMoments(), LargestErrors(11)):
        whole = Replicates(P, rng=8).accumulate(pickle.loads(pickle.dumps(fresh)), 200)
        with pytest.raises(KeyboardInterrupt):
            Replicates(P, rng=8).accumulate(fresh, 200, interrupt)
        continued = Replicates(P, rng=8).accumulate(pickle.loads(pickle.dumps(fresh)), 200)
        assert fresh.count == 128
        assert continued.count == whole.count == 200
        name = "variances" if isinstance(fresh, SecondMoments) else "smallest"
        np.testing.assert_allclose(getattr(continued, name), getattr(whole, name), rtol=1e-13)


def test_statistics_are_those_of_all_replicates():
    P = blue(problem())
    errors = np.hstack(list(Replicates(P, rng=2).columns(0, 99)))
    t = half_widths(P, 0.9, "t", 99, rng=2)
    np.testing.assert_allclose(t, stats.t.ppf(0.95, 99) * np.sqrt((errors**2).mean(axis=1)), rtol=1e-12)
    free = half_widths(P, 0.9, "distribution_free", 99, rng=2)
    np.testing.assert_allclose(free, np.sort(abs(errors), axis=1)[:, 89], rtol=1e-12)


@pytest.mark.parametrize("method", ["t", "distribution_free"])
def test_half_widths_have_the_unit_of_the_counts(method):
    """Noise of a millionth of the size makes intervals of a millionth of the width, from the same draws."""
    wide, narrow = (half_widths(blue(problem(variance=own)), 0.9, method, 99, rng=2) for own in (4.0, 4e-12))
    np.testing.assert_allclose(narrow, 1e-6 * wide, rtol=1e-9)


def test_many_draws_take_several_passes(monkeypatch):
    P = blue(problem())
    expected = half_widths(P, 0.9, "distribution_free", 99, rng=2)
    monkeypatch.setattr("blue_solvers.uncertainty.monte_carlo.KEPT_ENTRIES", 50)  # 10 kept of 5 of the 12 cells
    seen = []
    found = half_widths(P, 0.9, "distribution_free", 99, rng=2, progress=lambda *done: seen.append(done))
    np.testing.assert_array_equal(found, expected)
    assert seen == [(64, 297), (99, 297), (163, 297), (198, 297), (262, 297), (297, 297)]


def test_more_draws_than_memory_holds_are_refused():
    with pytest.raises(MemoryError, match=r"keeping the .* largest errors of every cell needs .*: give fewer draws"):
        intervals(blue(problem()), COUNTS.sum() + np.zeros(12), LEVEL, "distribution_free", draws=10**13, rng=1)


def test_generator_gives_new_draws_each_time():
    P, rng = blue(problem()), np.random.default_rng(0)
    assert (half_widths(P, method="t", draws=5, rng=rng) != half_widths(P, method="t", draws=5, rng=rng)).all()


@pytest.mark.skipif(not has_numba(), reason="needs the extra 'fast'")
@pytest.mark.parametrize("widths", [(7,), (2, 5)])
def test_both_kernels_keep_errors_that_are_no_numbers(widths):
    """Of cells that nothing determines: compiled, the smallest was -1, which is no width of an interval."""
    for kernel in (keep_largest_in_numpy, keep_largest.compiled()):
        largest = np.full((2, 4), -1.0)
        for width in widths:
            kernel(largest, np.array([np.full(width, np.nan), np.arange(1.0, width + 1)]))
        assert np.isnan(largest[0, 0])
        assert largest[1, 0] == 4.0 if len(widths) == 1 else largest[1, 0] == 2.0


@every("size", [1.0, 1e9, 1e10, 1e13])
def test_integer_refinement_never_widens_by_more_than_rounding(size):
    """A bound of 1e10 is rounded in its seventeenth digit, not in its ninth."""
    rng = np.random.default_rng(5)
    lower = np.round(size) + rng.uniform(-50, 0, 200)
    upper = lower + rng.uniform(0, 100, 200)
    low, high = refine_to_integers(lower, upper)
    rounding = 1e-9 + 1e-14 * size
    assert (low >= np.maximum(lower - 2 * rounding, 0)).all()
    assert (high <= upper + 2 * rounding).all()
    assert (low <= np.maximum(np.ceil(lower), 0)).all()
    assert (high >= np.floor(upper)).all()


@every("size", [0.0, 1.0, 7.0, 1e6, 1e10])
@every("off", [-1, 1])
def test_bounds_within_rounding_of_a_whole_number_count_as_it(size, off):
    rounding = off * (0.5e-9 + 0.5e-14 * size)
    low, high = refine_to_integers([size + rounding], [size + rounding])
    assert low == high == size
    beyond = off * (2e-9 + 2e-14 * size)
    low, high = refine_to_integers([size + beyond], [size + beyond])
    if off > 0:
        assert (low, high) == (size + 1, size)
    else:
        assert (low, high) == (size, size - 1)


@every("weights", [[1, -1], [0.5, 0.5]])
def test_sums_that_are_no_counts_are_not_refined_to_whole_ones(weights):
    """A difference may be below 0, half a sum is broken: the interval of the first would come back empty."""
    given = Schema({"unit": 1}), {"R": {"total": 0.1}, "Leaf": {"total": 4.0}}
    areas = Problem(*given, areas=Areas(2, {"R": [weights]}))
    nodes = Problem.from_summing_matrix([weights, [1, 0], [0, 1]], [0.1, 4.0, 4.0])
    for problem in (areas, nodes):
        y = [np.dot(weights, [10.0, 25.0]), 10.0, 25.0]
        lower, upper = intervals(problem, y)
        assert (lower[0], upper[0]) != (np.ceil(lower[0]), np.floor(upper[0]))
        refuses(f"weighs counts by {weights[1]:g}", intervals, problem, y, integer=True)
    leaves = least_squares([weights, [1, 0], [0, 1]], y, [0.1, 4.0, 4.0])
    of_leaves = Problem(*given, {"Leaf": ["total"]}, areas=Areas(2, {"R": [weights]}))
    for P in (leaves.operator, of_leaves):
        low, high = intervals(P, y, integer=True)
        assert (low == np.rint(low)).all()
        assert (low <= [10, 25]).all()
        assert (high >= [10, 25]).all()


def test_bounds_and_errors_that_are_none_are_refused():
    refuses("lower or upper holds NaN", refine_to_integers, [np.nan], [1.0])
    refuses("must have one shape", refine_to_integers, [1.0, 2.0], [1.0])
    for bad in (-1.0, np.nan):
        refuses("std_errors holds NaN or negative", normal_intervals, [1.0], [bad])
    refuses("estimate and std_errors must have one shape", normal_intervals, [1.0, 2.0], [1.0])
    low, high = refine_to_integers([-np.inf], [np.inf])
    assert (low, high) == (0, np.inf)
