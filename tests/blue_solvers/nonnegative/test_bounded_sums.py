"""Bounds of any sign on observed cells and sums of tables, of a geography and of equations."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from blue_solvers import Problem, Schema, Spine
from blue_solvers.nonnegative import NotConvergedError, nnls, ols

SCHEMA = Schema({"sex": 2, "age": 4})


def problems() -> dict[str, Problem]:
    rng = np.random.default_rng(0)
    spine = Spine([-1, 0, 0], geolevel=["State", "County", "County"])
    A = np.array([[1, -1, -1, 0, 0], [0, 0, 1, -1, -1.0]])
    return {
        "tables": Problem(SCHEMA, {"total": 2.0, "age": 1.0, "detailed": rng.uniform(1, 3, (2, 4))}),
        "no detail": Problem(SCHEMA, {"total": 2.0, "age": 1.0, "sex": 0.5}),
        "not measured": Problem(SCHEMA, {"total": np.inf, "sex": [1.0, np.inf], "detailed": 2.0}),
        "geography": Problem(SCHEMA, {"State": {"sex": 1.0}, "County": {"detailed": 2.0}}, spine=spine),
        "equations": Problem.from_matrix(A, rng.uniform(1, 2, 5)),
        "exact": Problem(SCHEMA, {"total": 0.0, "age": 1.0, "detailed": 1.0}),
    }


def measurements(problem: Problem, rng: np.random.Generator) -> np.ndarray:
    return np.where(problem.unmeasured, np.nan, rng.normal(0, 4, problem.observed.size))


def matrix_of(problem: Problem) -> np.ndarray:
    """From what is free to the observed cells, (n, d)."""
    if problem.is_tabular:
        return problem.marginal_matrix().toarray()
    return np.linalg.svd(problem.constraint_matrix().toarray())[2][problem.rank :].T


@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("seed", range(3))
def test_no_sums_within_bounds_fit_better(name: str, seed: int) -> None:
    problem, rng = problems()[name], np.random.default_rng(seed)
    y, M = measurements(problem, rng), matrix_of(problem)
    inside = M @ rng.normal(0, 1, M.shape[1])
    if problem.exact.any():
        inside = M @ np.linalg.lstsq(M[problem.exact], y[problem.exact], rcond=None)[0]
    lower, upper = inside - rng.exponential(1, inside.size), inside + rng.exponential(1, inside.size)
    lower[rng.random(inside.size) < 0.4], upper[rng.random(inside.size) < 0.4] = -np.inf, np.inf
    found = ols(problem, y, (lower, upper))
    x = found.observed
    assert ((x >= lower - 1e-7) & (x <= upper + 1e-7)).all()
    assert found.error_bound < 1e-3
    noisy = ~problem.exact & ~problem.unmeasured
    W = np.where(noisy, 1 / np.where(noisy, problem.variances, 1), 0)

    def objective(cells: np.ndarray) -> tuple[float, np.ndarray]:
        left = np.where(noisy, M @ cells - np.nan_to_num(y), 0)
        return float(left @ (W * left)) / 2, M.T @ (W * left)

    limited = np.isfinite(lower) | np.isfinite(upper)
    limits = [LinearConstraint(M[limited], lower[limited], upper[limited])]
    if problem.exact.any():
        limits.append(LinearConstraint(M[problem.exact], y[problem.exact], y[problem.exact]))
    start = np.linalg.lstsq(M, inside, rcond=None)[0]
    options = {"maxiter": 2000, "ftol": 1e-15}
    best = minimize(objective, start, jac=True, method="SLSQP", constraints=limits, options=options)
    np.testing.assert_allclose(found.objective, best.fun, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(x[noisy], (M @ best.x)[noisy], atol=2e-3)


def test_counts_that_are_not_negative_are_a_case_of_it() -> None:
    problem = problems()["tables"]
    y = measurements(problem, np.random.default_rng(3))
    np.testing.assert_allclose(ols(problem, y, (0.0, np.inf)).observed, nnls(problem, y).observed, atol=1e-7)
    np.testing.assert_allclose(ols(problem, -y, (-np.inf, 0.0)).observed, -nnls(problem, y).observed, atol=1e-7)
    assert ols(problem, y, (0.0, np.inf)).method == "bounded"


def test_bounds_are_laid_out_by_table_and_column() -> None:
    problem = problems()["tables"]
    y = measurements(problem, np.random.default_rng(4))
    lower = {"detailed": np.full((2, 4), -1.0), "age": np.zeros(4), "total": 7.0}
    flat = ols(problem, y, (problem.observed.vector(lower), np.inf))
    np.testing.assert_array_equal(ols(problem, y, (lower, np.inf)).observed, flat.observed)
    assert flat.observed[0] == pytest.approx(7.0)
    columns = ols(problem, np.stack([y, y + 1], axis=1), (lower, np.inf))
    np.testing.assert_allclose(columns.observed[:, 0], flat.observed, atol=1e-9)


def test_what_cannot_hold_is_refused() -> None:
    problem = problems()["exact"]
    y = problem.vector({"total": 5.0, "age": np.ones(4), "detailed": np.ones((2, 4))})
    with pytest.raises(ValueError, match="table 'total' is known exactly as 5, outside of its bounds 6 and inf"):
        ols(problem, y, ({"total": 6.0, "age": np.zeros(4), "detailed": np.zeros((2, 4))}, np.inf))
    with pytest.raises(NotConvergedError, match=r"no (non-negative )?cells meet"):
        ols(problem, y, (2.0, np.inf))
    crossed: Any = ({"total": 0.0, "age": np.ones(4), "detailed": 0 * np.ones((2, 4))}, 0.5)
    with pytest.raises(ValueError, match=r"is known exactly as 5|to be 1 at least and 0\.5 at most"):
        ols(problem, y, crossed)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_bounds_hold_in_any_unit(unit: float) -> None:
    problem = Problem(Schema({"age": 3}), {"total": unit**2, "age": unit**2})
    y = problem.vector({"total": 4.0 * unit, "age": [5.0 * unit, -unit, -3.0 * unit]})
    fit = ols(problem, y, bounds=(-2.0 * unit, {"total": 3.0 * unit, "age": [np.inf, np.inf, 0.0]}))
    np.testing.assert_allclose(fit.observed / unit, [3.0, 5.5, -0.5, -2.0], atol=1e-9)


def test_what_exact_values_determine_is_refused_outside_of_its_bounds() -> None:
    problem = Problem.from_summing_matrix([[-8.0], [1.0]], [np.inf, 0.0])
    with pytest.raises(NotConvergedError, match="exact values determine one outside of its own"):
        ols(problem, [0.0, 7.0], bounds=([0.0, -1.0], np.inf))
    nothing = Problem.from_summing_matrix([[1.0], [0.0]], 1.0)
    with pytest.raises(ValueError, match=r"cell \(node=1\) is a sum of no cells that may be other than 0"):
        ols(nothing, [1.0, 1.0], bounds=([0.0, 0.5], np.inf))


def test_fits_of_one_problem_share_what_bounds_and_measurements_leave_alone() -> None:
    """Whichever come before, each is to the last bit that of a new problem."""
    rng = np.random.default_rng(0)
    A = np.hstack([rng.integers(-1, 2, (4, 9)), -np.eye(4)]).astype(float)
    S = np.vstack([rng.integers(0, 2, (3, 5)), np.eye(5)[:4]]).astype(float)
    made = [lambda: Problem.from_matrix(A, np.arange(1.0, 14)), lambda: Problem.from_summing_matrix(S, np.ones(7))]
    for make in made:
        kept = make()
        size = kept.observed.size
        Y = rng.normal(0, 3, (size, 3))
        for bounds in ((-1.0, 2.0), (np.where(np.arange(size) % 2, -np.inf, 0.0), np.inf), (-9.0, 9.0), (-1.0, 2.0)):
            together = ols(kept, Y, bounds=bounds)
            alone = [ols(make(), y, bounds=bounds) for y in Y.T]
            np.testing.assert_array_equal(together.observed, np.stack([one.observed for one in alone], axis=1))
            assert together.gap == max(one.gap for one in alone)
