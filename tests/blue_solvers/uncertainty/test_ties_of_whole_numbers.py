"""Noise of whole numbers that is nearly always 0: simulated errors are exactly 0, those of an estimate are rounded."""

import numpy as np
import pytest
from scipy import stats

from blue_solvers import blue, fit_test, intervals
from blue_solvers.uncertainty import distribution_free_band, distribution_free_ellipsoid
from constraint_builders import Problem, Schema
from noise_mechanisms import draw_noise
from tests.blue_solvers.uncertainty.checks import check_coverage
from tests.helpers.every import every

LAWS = ["discrete_gaussian", "discrete_laplace"]
VARIANCES = [2e-4, 5e-3, 0.05]
SIZES = [0.0, 12_345.0, 1e9]
FALSE_ALARM = 1e-4


def invented(law: str, variance: float, size: float, seed: int = 0) -> tuple[Problem, np.ndarray]:
    """Tables of a few variables, and their true counts about a size."""
    rng = np.random.default_rng(seed)
    schema = Schema({"a": int(rng.integers(2, 4)), "b": 3, "c": 2}, {"b": {"g": [0, 0, 1]}})
    names = ["total", *rng.choice(["a", "b", "g", "a * c", "b * c", "g * c"], 2, replace=False).tolist(), "detailed"]
    problem = Problem(schema, {name: variance * own for name, own in zip(names, (1, 2, 2, 3), strict=True)}, noise=law)
    M = problem.marginal_matrix()
    return problem, M @ (size + rng.poisson(4.0, M.shape[1]))


def noisy(problem: Problem, truth: np.ndarray, replicates: int) -> np.ndarray:
    return (truth[:, None] + draw_noise(problem, replicates, rng=7)).T


@pytest.mark.few(0)
@every("size", SIZES)
@every("variance", VARIANCES)
@every("law", LAWS)
def test_distribution_free_statements_cover(law: str, variance: float, size: float) -> None:
    problem, truth = invented(law, variance, size)
    P, W = blue(problem), np.eye(truth.size)
    held = []
    for i, y in enumerate(noisy(problem, truth, 60)):
        lower, upper = intervals(P, y, 0.9, "distribution_free", draws=19, rng=i)
        first, last = distribution_free_band(P, y, W, 0.9, draws=19, rng=i)
        ellipsoid = distribution_free_ellipsoid(P, y, W, 0.9, draws=19, rng=i)
        held.append(
            [
                *((lower <= truth) & (truth <= upper)),
                ((first <= truth) & (truth <= last)).all(),
                ellipsoid.contains(truth),
            ]
        )
        assert (upper - lower <= 1e-12 * max(1.0, truth.max()) + 2 * (1 + abs(P @ (y - truth)).max()) * 30).all()
    check_coverage(np.array(held).T, 0.9, most=1.0)


@pytest.mark.few(3)
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("law", LAWS)
def test_the_fit_of_right_data_is_seldom_unlikely(law: str, variance: float) -> None:
    ps = []
    for i in range(16):
        problem, truth = invented(law, variance, 12_345.0, i % 4)
        fit = fit_test(problem, truth + draw_noise(problem, 1, rng=i)[:, 0], draws=39, rng=100 + i)
        ps.append([fit.p_value, fit.outliers(1)[0].probability])
    often = (np.array(ps) <= 0.1).sum(axis=0)
    assert (often <= stats.binom.isf(FALSE_ALARM, len(ps), 0.1)).all(), np.sort(ps, axis=0)


@every("law", LAWS)
@every("seed", range(6))
def test_the_fit_does_not_depend_on_how_large_counts_are(law: str, seed: int) -> None:
    """The same noise on counts of any size leaves the same residuals, ties with simulated ones among them."""
    found = []
    for size in (*SIZES[:2], 1e7):
        problem, truth = invented(law, 0.05, size, seed)
        fit = fit_test(problem, truth + draw_noise(problem, 1, rng=seed)[:, 0], draws=59, rng=seed)
        found.append([fit.p_value, fit.outliers(1)[0].probability])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_a_wrong_count_is_unlikely_even_where_all_simulated_noise_is_0() -> None:
    problem, truth = invented("discrete_gaussian", 1e-6, 12_345.0)
    wrong = truth.copy()
    wrong[0] += 1
    fit = fit_test(problem, wrong, draws=59, rng=1)
    assert fit.p_value == 2 / 60
    assert fit.outliers(1)[0].probability == 1 / 60
    assert fit.by_table["total"].z > 100
    assert fit_test(problem, truth, draws=59, rng=1).by_table["total"].z == pytest.approx(0.0, abs=1)
