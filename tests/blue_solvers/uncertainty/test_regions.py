"""Coverage of joint regions by simulation.

Coverage is a binomial proportion over independent replicates: a right method fails with probability at most
`FALSE_ALARM` (when the seed was chosen; with fixed seeds the tests repeat exactly).
"""

import numpy as np
import pytest
from scipy import stats

from blue_solvers import SeaBlue, blue
from blue_solvers.uncertainty import (
    cell_weights,
    confidence_ellipsoid,
    distribution_free_band,
    distribution_free_ellipsoid,
    functionals,
    intervals,
    simultaneous_band,
)
from constraint_builders import Problem, Schema
from noise_mechanisms import draw_noise
from tests.blue_solvers.uncertainty.checks import check_coverage
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.refused import refuses

LEVEL = 0.9
REPLICATES = 2000
LENGTHS = lengths("replicates", 200, REPLICATES)
TRUTH = np.array([12.0, 5.0, 7.0, 4.0, 8.0, 1.0, 4.0, 3.0, 4.0])


def problem(noise: str = "gaussian", variances=(2.0, 2.0, 2.0, 2.0)) -> Problem:
    """A 2 x 2 table with its margins: 9 cells, of which 4 are free."""
    names = ["total", "a", "b", "detailed"]
    return Problem(Schema({"a": 2, "b": 2}), dict(zip(names, variances, strict=True)), noise=noise, truth=TRUTH)


def all_cells(given_problem: Problem):
    """Every cell as a functional: a covariance of rank 4."""
    return cell_weights(given_problem, np.arange(9))


def noisy(given_problem: Problem, replicates: int = REPLICATES) -> np.ndarray:
    """Replicates of the noisy counts, one in every row."""
    return (given_problem.truth[:, None] + draw_noise(given_problem, replicates, rng=21)).T


def inside(band: tuple[np.ndarray, np.ndarray]) -> bool:
    return bool(((band[0] <= TRUTH) & (band[1] >= TRUTH)).all())


@pytest.mark.parametrize("solver", ["auto", "heuristic"])
def test_exact_ellipsoid_covers(solver):
    uneven = (1.0, [1.0, 4.0], 1.0, [[1.0, 2.0], [3.0, 8.0]])
    P = blue(problem()) if solver == "auto" else blue(problem(variances=uneven), SeaBlue())
    W = all_cells(P.problem)
    region = confidence_ellipsoid(P, noisy(P.problem)[0], W, LEVEL)
    assert region.rank == 4
    # The region around another estimate holds the truth where this one holds the truth moved by the difference.
    check_coverage(region.contains(region.centre[:, None] + TRUTH[:, None] - P @ noisy(P.problem).T), LEVEL)


@LENGTHS
@pytest.mark.parametrize("draws", [4, 30])
def test_monte_carlo_ellipsoid_covers_whatever_the_draws(draws, replicates):
    P = blue(problem())
    W = all_cells(P.problem)
    Y = noisy(P.problem, replicates)
    hits = [confidence_ellipsoid(P, y, W, LEVEL, draws, i).contains(TRUTH) for i, y in enumerate(Y)]
    check_coverage(np.array(hits), LEVEL)


@LENGTHS
def test_simultaneous_band_covers_all_at_once(replicates):
    P = blue(problem())
    W = all_cells(P.problem)
    hits = [inside(simultaneous_band(P, y, W, LEVEL, 99, rng=i)) for i, y in enumerate(noisy(P.problem, replicates))]
    check_coverage(np.array(hits), LEVEL)


def test_simultaneous_band_lies_between_single_intervals_and_bonferroni():
    P = blue(problem())
    lower, upper = simultaneous_band(P, TRUTH, all_cells(P.problem), LEVEL, rng=0)
    multiple = (upper - lower) / 2 / np.sqrt(P.variances())
    np.testing.assert_allclose(multiple, multiple[0], rtol=1e-12)
    assert stats.norm.isf((1 - LEVEL) / 2) < multiple[0] < stats.norm.isf((1 - LEVEL) / 2 / 9)


@LENGTHS
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_distribution_free_regions_cover(noise, replicates):
    P = blue(problem(noise))
    W = all_cells(P.problem)
    in_band, in_ellipsoid = [], []
    for i, y in enumerate(noisy(P.problem, replicates)):
        in_band.append(inside(distribution_free_band(P, y, W, LEVEL, draws=9, rng=i)))
        in_ellipsoid.append(distribution_free_ellipsoid(P, y, W, LEVEL, draws=9, rng=i).contains(TRUTH))
    check_coverage(np.array([in_band, in_ellipsoid]), LEVEL)


def test_exact_counts_and_inconsistent_values():
    exact = Problem(Schema({"a": 3}), {"total": 0.0, "a": 1.0})
    region = confidence_ellipsoid(exact, [6.0, 1, 2, 3], np.eye(4))
    assert region.rank == 2
    assert region.half_widths[0] == 0
    answers = region.contains(np.array([[6.0, 1, 2, 3], [7.0, 1, 2, 3], [6.0, 1, 2, 4], [6.0, 1.5, 1.5, 3]]).T)
    assert answers.tolist() == [True, False, False, True]
    for draws in (None, 5):
        only_exact = confidence_ellipsoid(exact, [6.0, 1, 2, 3], [1, 0, 0, 0], draws=draws, rng=0)
        assert only_exact.rank == only_exact.squared_radius == 0
        assert only_exact.contains([6.0])
        assert not only_exact.contains([6.1])


@every("seed", range(4))
def test_functionals_in_units_of_their_own_have_the_same_region(seed):
    """A share beside a count in billions is no exact number."""
    rng = np.random.default_rng(seed)
    P, W, y = blue(problem()), rng.normal(size=(9, 3)), TRUTH
    units = 10.0 ** rng.integers(-12, 13, 3)
    own, scaled = confidence_ellipsoid(P, y, W), confidence_ellipsoid(P, y, W * units)
    assert own.rank == scaled.rank == 3
    np.testing.assert_allclose(scaled.half_widths, own.half_widths * units, rtol=1e-9)
    points = own.centre[:, None] + 2 * np.sqrt(own.shape.diagonal())[:, None] * rng.normal(size=(3, 50))
    np.testing.assert_array_equal(scaled.contains(units[:, None] * points), own.contains(points))
    bands = [np.subtract(*simultaneous_band(P, y, w, LEVEL, 9999, rng=1)) for w in (W, W * units)]
    np.testing.assert_allclose(bands[1], bands[0] * units, rtol=0.03)


@every("apart", [1e-4, 1e-5, 1e-6, 1e-7, 1e-9])
def test_functionals_that_hardly_differ_are_covered(apart):
    P, W = blue(Problem(Schema({"a": 3}), {"a": 1.0})), np.array([[1, 1], [1, 1 + apart], [0, 0]])
    errors = np.random.default_rng(0).normal(size=(3, REPLICATES))
    check_coverage(confidence_ellipsoid(P, np.zeros(3), W, LEVEL).contains(W.T @ errors), LEVEL)


@every("unit", [1e-9, 1.0, 1e9])
def test_what_is_known_exactly_is_held_in_any_unit(unit):
    """A sum less its parts is 0 whatever is measured, and an exact total what it is."""
    given = Problem(Schema({"a": 2, "b": 2}), {"total": 0.0, "a": unit**2 * np.array([1.0, 4.0]), "detailed": unit**2})
    P, y = blue(given), unit * np.array([24, 13, 12, 7, 5, 4.0, 8.0])
    total = cell_weights(given, [0])
    parts = total - cell_weights(given, [1, 2]).sum(axis=1)[:, None]
    for W in (np.hstack([total.toarray(), parts, np.eye(7)[:, 3:4]]), total):
        region = confidence_ellipsoid(P, y, W)
        steps = unit * np.array([[0.0, 1e-3]] + [[0.0, 0.0]] * (W.shape[1] - 1))
        assert region.contains(region.centre[:, None] + steps).tolist() == [True, False]


@pytest.mark.parametrize("size", [1.0, 1e6, 1e10, 1e13])
@lengths("replicates", 200, 400)
def test_regions_hold_the_truth_as_often_at_large_counts(size, replicates):
    """Consistent values at counts of 1e10 are off their affine space by 1e-6 deviations, for rounding alone."""
    rng = np.random.default_rng(3)
    base = problem()
    truth = base.marginal_matrix() @ np.round(size * rng.uniform(0.5, 2, 4))
    noise = draw_noise(base, replicates, rng=4)
    P, W = blue(base), all_cells(base)
    # differences of huge counts too: their rounding is that of the counts
    W = np.hstack([W.toarray(), W.toarray()[:, [0]] - W.toarray()[:, [5]]])
    values = W.T @ truth
    ellipsoids = [confidence_ellipsoid(P, truth + e, W, LEVEL).contains(values) for e in noise.T]
    # with 13 digits before the point the noise itself is rounded to 0.002 standard deviations
    check_coverage(np.array(ellipsoids), LEVEL)
    off = values.copy()
    off[0] += 20 * max(1.0, size * 1e-12)
    assert not confidence_ellipsoid(P, truth, W, LEVEL).contains(off)


@pytest.mark.parametrize("noise", ["discrete_gaussian", "discrete_laplace"])
def test_draws_that_do_not_span_the_counts_are_refused_by_name(noise):
    """At variance 0.05 most draws are 0: their second moments are singular."""
    small = problem(noise, (0.05,) * 4)
    with pytest.raises(ValueError, match=f"5 simulated errors of '{noise}' noise do not span the 4 dimensions"):
        confidence_ellipsoid(small, TRUTH, all_cells(small), draws=5, rng=1)
    assert confidence_ellipsoid(small, TRUTH, all_cells(small), draws=4000, rng=1).rank == 4
    assert confidence_ellipsoid(small, TRUTH, all_cells(small)).contains(TRUTH)


def test_values_that_are_none_are_refused():
    region = confidence_ellipsoid(problem(), TRUTH, all_cells(problem()))
    for bad in (TRUTH[:4], np.ones((3, 3)), np.ones((9, 1, 1)), 5.0):
        refuses("values must have shape", region.contains, bad)
    for bad in (np.nan, np.inf):
        refuses("values hold NaN or infinite", region.contains, np.where(np.arange(9) == 3, bad, TRUTH))
    with pytest.raises(ValueError, match="a region is around one estimate"):
        confidence_ellipsoid(problem(), np.column_stack([TRUTH, TRUTH]), all_cells(problem()))


def test_bad_requests_are_refused():
    given_problem = problem()
    W = all_cells(given_problem)
    with pytest.raises(ValueError, match="3 draws are too few for the covariance of 4 counts: give 4 or more"):
        confidence_ellipsoid(given_problem, TRUTH, W, draws=3)
    with pytest.raises(ValueError, match=r"8 draws are too few .* level 0.9: give 9 or more"):
        distribution_free_band(given_problem, TRUTH, W, 0.9, draws=8)
    known = Problem(Schema({"a": 2}), {"a": 0.0, "total": 0.0})
    for region in (functionals, confidence_ellipsoid, simultaneous_band):
        refuses("values known exactly contradict one another by 1 ", region, known, [1.0, 2.0, 4.0], np.eye(3))
    refuses("values known exactly contradict one another by 1 ", intervals, known, [1.0, 2.0, 4.0])
    refuses("draws is -1: give a whole number", distribution_free_ellipsoid, given_problem, TRUTH, W, draws=-1)
