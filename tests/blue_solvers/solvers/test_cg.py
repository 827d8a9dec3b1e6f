"""Conjugate gradients: when they stop, and what they say when they cannot."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import ConjugateGradient, ConvergenceError, Multigrid, UnsupportedProblemError, blue
from constraint_builders import Problem, Schema
from noise_mechanisms import add_noise
from tests.helpers.every import every
from tests.helpers.refused import refused

LEAVES = 2_000
RECONCILED = Problem(
    Schema({"leaf": LEAVES}), {"leaf": 9.0, "total": 9.0}, truth=np.append(np.full(LEAVES, 2e3), LEAVES * 2e3)
)


@every("solver", [ConjugateGradient(), Multigrid(), "auto"])
def test_reconciling_a_large_total_does_not_spoil_the_leaves(solver) -> None:
    """Stopping at 1e-5 of the total would leave 40 units of disagreement: 13 deviations of the leaves' noise."""
    y = add_noise(RECONCILED, RECONCILED.truth, rng=0)
    P = blue(RECONCILED, solver)
    estimate, exact = P @ y, blue(RECONCILED, "cholesky") @ y
    truth = RECONCILED.truth
    noisy_error, error = (np.linalg.norm((x - truth)[:LEAVES]) for x in (y, estimate))
    assert error <= noisy_error
    assert abs(estimate - exact).max() < 1e-8 * 3
    assert abs(RECONCILED.constraint_matrix() @ estimate).max() < 1e-6


@every("population", [1.0, 1e4, 1e8])
def test_tolerance_is_relative_to_the_adjustment_not_to_the_counts(population: float) -> None:
    rng = np.random.default_rng(0)
    problem = Problem(
        Schema({"a": 5, "b": 6}), {"detailed": rng.uniform(1, 3, (5, 6)), "a": 1.0, "b": 1.0, "total": 1.0}
    )
    noise = rng.normal(size=problem.observed.size)
    truth = problem.marginal_matrix() @ np.full(30, np.round(population))
    P = blue(problem, ConjugateGradient(rtol=1e-8))
    adjustment = P @ (truth + noise) - truth
    alone, info = P.apply(noise)
    assert np.allclose(adjustment, alone, rtol=0, atol=1e-6 + 1e-13 * population)
    assert info.residual <= 1e-8 * 2 + 1e-15 * population


def test_consistent_input_needs_no_iterations() -> None:
    P = blue(RECONCILED, ConjugateGradient())
    x, info = P.apply(RECONCILED.truth)
    assert np.array_equal(x, RECONCILED.truth)
    assert info.iterations == 0


def test_not_converged_names_the_next_step() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(Schema({"a": 5, "b": 6}), {"detailed": rng.uniform(1, 9, (5, 6)), "a": 1.0, "b": 1.0})
    with pytest.raises(ConvergenceError, match="another preconditioner, more iterations, or solver='cholesky'"):
        blue(problem, ConjugateGradient(max_iterations=1)) @ rng.normal(size=41)


@refused(
    ({"rtol": 0.0}, "rtol must lie between 0 and 1"),
    ({"rtol": 2.0}, "rtol"),
    ({"rtol": np.nan}, "rtol"),
    ({"preconditioner": "ilu"}, "preconditioner must be one of"),
    ({"rows": "some"}, "rows must be"),
    ({"rows": "all", "preconditioner": "multigrid"}, "rows='independent'"),
)
def test_options_refused(options: dict) -> None:
    ConjugateGradient(**options)


def test_multigrid_leaves_the_global_random_state_alone(capfd: pytest.CaptureFixture[str]) -> None:
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    blue(RECONCILED, Multigrid()) @ RECONCILED.truth
    assert np.random.random() == expected  # noqa: NPY002
    assert capfd.readouterr() == ("", "")


def test_operators_that_leave_a_sum_without_noise_are_refused() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    covariance = aslinearoperator(rows @ rows.T)  # the total less its parts has none
    problem = Problem(Schema({"a": 2}), {"total": None, "a": None}, covariance=covariance)
    with pytest.raises(UnsupportedProblemError, match="its covariance operator is singular or not positive definite"):
        blue(problem, "cg")
    np.testing.assert_allclose(blue(problem) @ [5.0, 2.0, 3.0], [5, 2, 3], atol=1e-12)
