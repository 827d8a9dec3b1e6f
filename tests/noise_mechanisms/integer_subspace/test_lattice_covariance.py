"""Covariance of lattice noise, and the BLUE that uses it."""

import math
from typing import Literal

import numpy as np
import pytest
from scipy import stats

from blue_solvers import blue
from constraint_builders import Problem, Schema
from noise_mechanisms.integer_subspace import (
    GeneralizedGaussian,
    GeneralizedLaplace,
    Invariants,
    NoiseCovariance,
    noise_covariance,
)
from noise_mechanisms.integer_subspace.mechanisms import LatticeMechanism
from noise_mechanisms.integer_subspace.spread import gaussian_error
from tests.helpers.every import cases, every
from tests.noise_mechanisms.integer_subspace.enumeration import (
    INTERSECTING,
    TREE,
    TWO_BY_THREE,
    enumerate_law,
    gaussian_cost,
    l1_cost,
    l2_cost,
    margins,
)

FOUR_BY_FOUR = margins((4, 4), "a", "b")


def enumerated_covariance(mechanism: LatticeMechanism, reach: int) -> np.ndarray:
    if isinstance(mechanism, GeneralizedGaussian):
        cost = gaussian_cost(mechanism.sigma)
    else:
        assert isinstance(mechanism, GeneralizedLaplace)
        cost = l1_cost(mechanism.epsilon) if mechanism.norm == 1 else l2_cost(mechanism.epsilon)
    points, probability = enumerate_law(mechanism.lattice, cost, reach)
    return points.T @ (probability[:, None] * points)


def require_scale(found: NoiseCovariance) -> None:
    """There is one just where the covariance is so many times the projector onto noise that keeps what is invariant."""
    A = found.invariants.matrix.toarray()
    projector = np.eye(A.shape[1]) - np.linalg.pinv(A) @ A
    multiple = np.trace(found.matrix) / np.trace(projector)
    assert (found.scale is not None) == np.allclose(found.matrix, multiple * projector, atol=1e-6 * multiple)
    assert found.scale in (None, pytest.approx(multiple, rel=1e-6))


@cases(
    (GeneralizedLaplace(TREE, 1.5), 16),
    (GeneralizedGaussian(TREE, 0.4), 9),
    (GeneralizedGaussian(TREE, 1.1), 11),
    (GeneralizedGaussian(margins((4,), "total"), 2.0), 22),
    (GeneralizedLaplace(margins((4,), "total"), 1.0), 30),
    (GeneralizedGaussian(TWO_BY_THREE, 3.0), 30),
    (GeneralizedGaussian(INTERSECTING, 3.0), 25),
)
def test_exact_covariance_is_the_enumerated_one(mechanism: LatticeMechanism, reach: int) -> None:
    covariance = noise_covariance(mechanism)
    assert covariance.method == "exact"
    require_scale(covariance)
    # Points beyond the reach carry less than 1e-8 of the variance.
    np.testing.assert_allclose(covariance.matrix, enumerated_covariance(mechanism, reach), rtol=2e-7, atol=2e-8)


@every("sigma", [0.05, 0.1, 0.2])
def test_exact_covariance_of_noise_that_hardly_moves_is_right_to_rounding(sigma: float) -> None:
    mechanism = GeneralizedGaussian(margins((3,), "total"), sigma)
    np.testing.assert_allclose(noise_covariance(mechanism).matrix, enumerated_covariance(mechanism, 4), rtol=1e-12)


@cases(
    (GeneralizedGaussian(TWO_BY_THREE, 0.9), 8),
    (GeneralizedLaplace(TWO_BY_THREE, 0.6), 40),
    (GeneralizedLaplace(TWO_BY_THREE, 1.0, norm=2), 35),
    (GeneralizedLaplace(margins((2, 2, 2), "a * b", "c"), 1.0), 14),
    (GeneralizedLaplace(INTERSECTING, 1.0), 18),
)
def test_estimated_covariance_is_near_the_enumerated_one(mechanism: LatticeMechanism, reach: int) -> None:
    covariance = noise_covariance(mechanism, draws=40_000, rng=1)
    exact = enumerated_covariance(mechanism, reach)
    assert covariance.method == "estimated"
    require_scale(covariance)
    assert 0 < covariance.relative_error < 0.05
    # Five of the standard errors that it states.
    assert abs(covariance.matrix - exact).max() < 5 * covariance.relative_error * exact.max()


@every("sigma", [1.0, 1.3, 1.6])
def test_gaussian_error_bounds_the_shortfall_of_the_variance(sigma: float) -> None:
    mechanism = GeneralizedGaussian(TWO_BY_THREE, sigma)
    exact = enumerated_covariance(mechanism, 16)
    shortfall = 1 - np.trace(exact) / (2 * sigma**2)
    assert -1e-12 < shortfall <= gaussian_error(mechanism) < 1


def interval_coverage(problem: Problem, releases: np.ndarray, truth: np.ndarray, level: float) -> np.ndarray:
    """How often normal intervals of the BLUE's own variances cover the truth, cell by cell; (n, draws) releases."""
    P = blue(problem, solver="dense")
    estimate = P @ releases + P.offset[:, None]
    half = stats.norm.ppf((1 + level) / 2) * np.sqrt(np.maximum(P.variances(), 0))
    return (abs(estimate - truth[:, None]) <= half[:, None] + 1e-9).mean(axis=1)


DRAWS = 4000
# Four standard errors of a frequency in 4,000 draws, and what whole numbers do to a normal law of this width.
TOLERANCE = 4 * math.sqrt(0.9 * 0.1 / DRAWS) + 0.012


def test_the_blue_of_one_release_is_the_release_and_has_its_covariance() -> None:
    truth = np.arange(16) * 5
    mechanism = GeneralizedGaussian(FOUR_BY_FOUR, 3.0)
    covariance = noise_covariance(mechanism)
    P = blue(covariance.problem(truth), solver="dense")
    release = truth + mechanism.sample(1, rng=5)[0]
    np.testing.assert_allclose(P @ release.astype(float) + P.offset, release, atol=1e-8)
    np.testing.assert_allclose(P.variances(), np.diag(covariance.matrix), rtol=1e-9)
    assert np.linalg.eigvalsh(covariance.completed()).min() > 0


def test_a_schema_problem_takes_the_scale_and_combines_two_releases() -> None:
    """Margins exact, the detailed table from lattice noise, and a coarser table measured besides."""
    schema = Schema({"a": 4, "b": 4}, {"b": {"half": [0, 0, 1, 1]}})
    invariants = Invariants.from_margins(schema, ["a", "b"])
    mechanism = GeneralizedGaussian(invariants, 12.0)
    scale = noise_covariance(mechanism).scale
    assert scale == 144.0
    problem = Problem(schema, {"a": 0.0, "b": 0.0, "detailed": scale, "a * half": 60.0}, desired=["detailed"])
    counts = np.arange(16).reshape(4, 4) * 7
    truth = {
        "a": counts.sum(1),
        "b": counts.sum(0),
        "detailed": counts,
        "a * half": np.add.reduceat(counts, [0, 2], axis=1),
    }
    rng = np.random.default_rng(6)
    y = np.tile(problem.vector(truth)[:, None], DRAWS)
    tables = problem.observed.tables(y)
    tables["detailed"] = tables["detailed"] + mechanism.sample(DRAWS, rng).T.reshape(4, 4, DRAWS)
    tables["a * half"] = tables["a * half"] + math.sqrt(60) * rng.standard_normal((4, 2, DRAWS))
    coverage = interval_coverage(problem, problem.observed.vector(tables), counts.ravel(), 0.9)
    assert coverage == pytest.approx(np.full(16, 0.9), abs=TOLERANCE)
    variances = blue(problem, solver="dense").variances()
    assert (variances < np.diag(noise_covariance(mechanism).matrix)).all()


@every("scale", [1e-3, 0.02, 1e3, 1e6, 1e12])
@every("tables", [("total",), ("a", "b"), ("detailed",)])
@every("norm", [1, 2, None])
def test_covariances_of_any_scale_are_finite_and_say_how_sure_they_are(
    scale: float, tables: tuple[str, ...], norm: Literal[1, 2] | None
) -> None:
    invariants = margins((2, 3), *tables)
    mechanism = (
        GeneralizedGaussian(invariants, scale) if norm is None else GeneralizedLaplace(invariants, 1 / scale, norm)
    )
    with np.errstate(all="raise", under="ignore"):
        found = noise_covariance(mechanism, draws=200, rng=1)
    assert np.isfinite(found.matrix).all()
    assert not np.isnan(found.relative_error)
    if found.method == "estimated" and not found.matrix.any() and tables != ("detailed",):
        assert found.relative_error == np.inf
