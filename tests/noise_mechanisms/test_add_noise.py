"""Noisy measurements of a problem."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import blue, counts_posterior, intervals, inverted_intervals
from constraint_builders import Problem, Schema, gallery
from constraint_builders.description.noise import NOISE_LAWS
from noise_mechanisms import add_noise, draw_noise
from noise_mechanisms.laws import Gaussian, draw
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

SCHEMA = Schema({"a": 3, "b": 2})
OBSERVED = {"total": 0.0, "a": [1.0, 4.0, 100.0], "b": np.inf, "detailed": 9.0}
DRAWS = 20_000


@every("law", NOISE_LAWS)
def test_moments_of_every_law(law: str) -> None:
    problem = Problem(SCHEMA, OBSERVED, ["detailed"], noise=law)
    noise = draw_noise(problem, DRAWS, rng=0)
    finite = np.isfinite(problem.variances)
    assert noise.shape == (problem.observed.size, DRAWS)
    assert not noise[~finite].any()
    assert not noise[problem.exact].any()
    sizes = np.sqrt(problem.variances[finite])
    assert (abs(noise[finite].mean(axis=1)) <= 5 * sizes / np.sqrt(DRAWS)).all()
    # the relative deviation of a sample variance is sqrt((kurtosis - 1) / draws): 0.016 for Laplace
    assert np.allclose(noise[finite].var(axis=1), problem.variances[finite], rtol=6 * np.sqrt(5 / DRAWS))
    assert ("discrete" in law) == np.array_equal(noise, np.round(noise))
    correlations = np.corrcoef(noise[finite & ~problem.exact])
    assert abs(correlations - np.eye(len(correlations))).max() < 5 / np.sqrt(DRAWS)


def test_seeds() -> None:
    problem = gallery.berkeley()
    first, again = (add_noise(problem, problem.truth, rng=3) for _ in range(2))
    assert np.array_equal(first, again)
    assert np.array_equal(first, add_noise(problem, problem.truth, np.random.default_rng(3)))
    assert not np.array_equal(first, add_noise(problem, problem.truth, rng=4))
    assert not np.array_equal(add_noise(problem, problem.truth), add_noise(problem, problem.truth))


def test_exact_and_unmeasured_cells() -> None:
    problem = Problem(SCHEMA, OBSERVED, ["detailed"])
    truth = problem.marginal_matrix() @ np.arange(6.0)
    y = add_noise(problem, truth, rng=0)
    tables = problem.observed.tables(y)
    assert tables["total"] == 15
    assert np.isnan(tables["b"]).all()
    assert np.isfinite(tables["detailed"]).all()
    problem.check_vector(y)
    assert np.array_equal(problem.observed.vector(tables), y, equal_nan=True)


def test_a_truth_that_does_not_add_up_is_refused() -> None:
    """Cells that were not measured may hold anything."""
    problem = Problem(SCHEMA, OBSERVED, ["detailed"])
    truth = problem.marginal_matrix() @ np.arange(6.0)
    truth[problem.unmeasured] = np.inf
    add_noise(problem, truth, rng=0)
    truth[0] += 1e-3
    refuses(r"truth does not add up by 0\.001 between 'total' and 'a'", add_noise, problem, truth, rng=0)
    equal = Problem(SCHEMA, {"a": 1.0}, equalities=([[1, 1, 0]], [5.0]))
    refuses("truth does not add up by 3", add_noise, equal, np.ones(3), rng=0)


def test_correlated_noise_has_its_covariance() -> None:
    B = np.eye(4) + 0.5 * np.diag(np.ones(3), 1)
    B[3, 3] = 7
    B[2, 3] = 0
    problem = Problem(Schema({"a": 3}), {"a": None, "total": None}, covariance=B @ B.T)
    noise = draw_noise(problem, DRAWS, rng=0)
    sizes = np.sqrt(np.diag(B @ B.T))
    assert (abs(np.cov(noise) - B @ B.T) <= 5 * np.sqrt(2 / DRAWS) * np.outer(sizes, sizes)).all()


@refused(
    (np.zeros(3), "truth must have shape"),
    (np.zeros((4, 1)), "truth must have shape"),
    (np.full(4, np.nan), r"table 'B', cell \(B=0\) is nan: .* is added to finite numbers"),
    ([1, 2, 3, np.inf], "is inf: .* is added to finite numbers"),
)
def test_truth_refused(truth: np.ndarray) -> None:
    add_noise(gallery.toy(), truth)


def test_correlated_noise_refused() -> None:
    schema, observed = Schema({"a": 3}), {"a": None, "total": None}
    refuses("'gaussian' only", draw_noise, Problem(schema, observed, covariance=np.eye(4), noise="laplace"), 1)
    with pytest.raises(ValueError, match="cannot be drawn from an operator"):
        draw_noise(Problem(schema, observed, covariance=aslinearoperator(np.eye(4))), 1)


@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace"])
def test_counts_beyond_exact_whole_numbers_are_refused(law: str) -> None:
    problem = Problem(Schema({"a": 3}), {"a": [1.0, 2.0, np.inf], "total": 0.0}, noise=law)
    with pytest.raises(ValueError, match=r"truth: table 'a', cell \(a=1\) is 1e\+300: .* at most 2\^53, beyond"):
        add_noise(problem, [1.0, 1e300, 2.0, 3.0], rng=0)
    noisy = add_noise(problem, [2.0**53 - 100, -(2.0**53) + 100, 1e300, 0.0], rng=0)
    assert np.array_equal(noisy[:2], np.round(noisy[:2]))
    assert abs(noisy[:2]).max() < 2.0**53


@every("rng", [-1, 1.5, float("nan"), "seed", True, object()])
def test_a_seed_that_is_none_is_refused_at_every_door(rng: object) -> None:
    """In the words of this package, and a truth value too, which would be the seed 1."""
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "a": 2.0})
    y = np.array([5.0, 2, 3])
    doors: list[Callable[[Any], object]] = [
        lambda own: add_noise(problem, y, rng=own),
        lambda own: draw("gaussian", np.ones(2), rng=own),
        lambda own: intervals(blue(problem), y, 0.9, "t", draws=19, rng=own),
        lambda own: counts_posterior(problem, y, rng=own),
        lambda own: inverted_intervals(problem, y, [1], draws=40, rng=own),
        lambda own: Gaussian(1.0).sample(3, own),
    ]
    for door in doors:
        refuses(r"rng is .*: give a", door, rng)
