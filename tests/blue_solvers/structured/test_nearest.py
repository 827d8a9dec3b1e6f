"""Conjugate gradients around the nearest structured problem: exact under any variances, in few steps of any size."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import ConjugateGradient, ConvergenceError, UnsupportedProblemError, blue
from blue_solvers.contract import Info
from blue_solvers.structured.nearest import nearest_structured, variance_ratio
from blue_solvers.testing import check_solver
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.arrays import Float
from tests.helpers.effort import examples
from tests.helpers.every import cases, every
from tests.helpers.oracles.compare import EPSILON, ROUNDING, largest
from tests.helpers.oracles.exact import solve
from tests.helpers.oracles.invent import Kind, invent, with_equalities
from tests.helpers.refused import refuses

SOLVER = ConjugateGradient(preconditioner="two_pass")
SPINE = Spine([-1, 0, 0, 1, 1, 2], ["S", "C", "C", "T", "T", "T"])


def cellwise(problem: Problem, ratio: float, law: str = "uniform", seed: int = 0) -> Problem:
    """The same problem with the noisy cells' variances between 1 and `ratio`, each its own."""
    rng = np.random.default_rng(seed)
    drawn = (
        rng.uniform(1, ratio, problem.observed.size) if law == "uniform" else ratio ** rng.random(problem.observed.size)
    )
    noisy = ~problem.exact & ~problem.unmeasured
    return problem.with_variances(np.where(noisy, drawn, problem.variances))


def noise(problem: Problem, columns: int = 1) -> Float:
    deviations = np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    return deviations[:, None] * np.random.default_rng(0).standard_normal((problem.observed.size, columns))


def test_the_bound_holds_and_is_not_idle() -> None:
    """Stopped early, so that the error shows: below the bound, and within a hundredth of it in some direction."""
    problem = cellwise(gallery.cube(3, 4), 50.0)
    y = noise(problem)
    reference = blue(problem, "cholesky")
    loose = blue(problem, ConjugateGradient(rtol=1e-3, preconditioner="two_pass"))
    x, info = loose.apply(y)
    missing = (x - reference @ y)[:, 0]
    errors = np.sqrt(reference.variances())
    bound = info.error_bound
    assert abs(missing / errors).max() <= bound
    assert np.sqrt((missing**2 / problem.variances).sum()) <= bound
    assert np.sqrt((missing**2 / problem.variances).sum()) >= 0.01 * bound
    assert info.residual > 1e-6


@examples(40)
@given(seed=st.integers(0, 100_000))
def test_the_bound_is_of_estimates_with_their_offset(seed: int) -> None:
    """Stopped early, of measurements that are 0, so that all of the estimate is offset."""
    kind = Kind(cellwise=True, zeros=False, exact=False, unmeasured=False, decades=2.0)
    found = next(own for s in range(seed, seed + 500) if (own := invent(s, kind, with_equalities)) is not None)
    problem, y = found.description.problem(), np.zeros(found.y.size)
    assume(SOLVER.supports(problem) is None)
    P = blue(problem, ConjugateGradient(rtol=1e-4, preconditioner="two_pass"))
    x, info = P.apply(y)
    reference = solve(found.description, y)
    rounding = ROUNDING * EPSILON * largest(found)
    assert (abs(x + P.offset - reference.estimate) <= info.error_bound * reference.std_errors + rounding).all()


@every("make", [lambda: gallery.cube(4, 4), lambda: gallery.cube(5, 5), gallery.pl94])
@every("law", ["uniform", "log-uniform"])
def test_at_most_twenty_iterations_at_ratio_three_whatever_the_size(make: Callable[[], Problem], law: str) -> None:
    P = blue(cellwise(make(), 3.0, law), SOLVER)
    _, info = P.apply(noise(P.problem, 2))
    assert 5 <= info.iterations <= 20
    assert info.error_bound < 1e-8


def test_equal_variances_take_no_iterations_to_speak_of() -> None:
    problem = gallery.pl94()
    P = blue(problem, SOLVER)
    y = noise(problem, 2)
    x, info = P.apply(y)
    np.testing.assert_allclose(x, blue(problem, "sea_blue") @ y, atol=1e-10)
    assert info.iterations <= 1


@pytest.mark.parametrize(("rtol", "exact"), [(1e-12, True), (0.1, False)])
def test_what_is_left_of_the_iterations_says_whether_the_estimate_is_exact(rtol: float, exact: bool) -> None:
    problem = cellwise(gallery.cube(3, 3), 1e3)
    _, info = blue(problem, ConjugateGradient(rtol=rtol, preconditioner="two_pass")).apply(noise(problem))
    assert info.exact is exact


def test_exact_totals_are_kept() -> None:
    problem = cellwise(
        Problem(Schema({"a": 3, "b": 4}), {"total": 0.0, "a": 0.0, "b": 2.0, "detailed": 1.0}, "all"), 8.0
    )
    check_solver(SOLVER, problem)


def test_tables_measured_in_part_have_no_bound() -> None:
    variances = np.random.default_rng(0).uniform(1, 3, (3, 4))
    variances[1, 2] = np.inf
    problem = Problem(Schema({"a": 3, "b": 4}), {"total": 1.0, "a": [1.0, 2.0, 1.5], "detailed": variances}, ["a", "b"])
    y = noise(problem)
    P = blue(problem, SOLVER)
    x, info = P.apply(y)
    np.testing.assert_allclose(x, blue(problem, "dense") @ y, atol=1e-8)
    assert info.error_bound is None
    check_solver(SOLVER, problem)


def test_no_matrix_is_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cellwise(gallery.cube(4, 3), 3.0)
    for name in ("equations", "constraint_matrix", "marginal_matrix"):
        monkeypatch.setattr(Problem, name, lambda *_: pytest.fail("a matrix was formed"))
    P = blue(problem, SOLVER)
    assert P.info == Info("cg (two_pass preconditioner)", True, P.info.reason)
    P.T @ (P @ noise(problem, 3))


@every("population", [1.0, 1e4, 1e8])
def test_large_counts_leave_the_answer_as_exact(population: float) -> None:
    problem = cellwise(gallery.cube(3, 3), 3.0)
    truth = (problem.marginal_matrix() @ np.full(27, population))[:, None]
    P = blue(problem, SOLVER)
    np.testing.assert_allclose(
        P @ (truth + noise(problem)) - truth, P @ noise(problem), rtol=0, atol=1e-9 + 1e-13 * truth.max()
    )
    assert P.apply(truth)[1].iterations == 0


@pytest.mark.parametrize("ratio", [1e6, 1e8])
def test_the_bound_includes_rounding(ratio: float) -> None:
    """A precise cell here and there among cells of many times its variance, far from the estimate that starts."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        plain = gallery.cube(4, 4)
        problem = plain.with_variances(np.where(rng.random(plain.observed.size) < 0.02, 1.0, ratio))
        y = noise(problem)
        reference = blue(problem, "cholesky")
        P = blue(problem, SOLVER)
        x, info = P.apply(y)
        errors = abs(x - reference @ y)[:, 0] / np.sqrt(reference.variances())
        assert errors.max() <= info.error_bound < 1e-4


def test_the_one_variance_is_an_average_of_the_noisy_cells_of_each_table() -> None:
    variances = np.array([2.0, 4.0, 16.0, 0.0, np.inf])
    problem = Problem(Schema({"a": 5, "b": 2}), {"a": variances, "b": 0.0, "total": 3.0, "detailed": 1.0})
    structured = problem.observed.tables(nearest_structured(problem).variances)
    np.testing.assert_allclose(structured["a"], 2 ** (7 / 3))
    assert np.array_equal(structured["b"], [0, 0])


def test_over_a_spine_it_is_the_geometric_mid_range_of_each_geounit() -> None:
    variances = np.array([[1.0, 4.0], [9.0, 9.0], [np.inf, np.inf]])
    problem = Problem(Schema({"a": 2}), {"T": {"a": variances}, "S": {"a": 0.0}}, spine=SPINE)
    structured = problem.observed.tables(nearest_structured(problem).variances)
    np.testing.assert_allclose(structured["T", "a"], [[2, 2], [9, 9], [np.inf, np.inf]])
    assert np.array_equal(structured["S", "a"], [[0, 0]])


@every("unit", [1e-12, 1.0, 1e9])
def test_the_ratio_of_variances_is_that_of_one_table_in_any_unit(unit: float) -> None:
    a, b = np.array([1.0, 4.0]) * unit, np.array([[100.0, 100.0], [300.0, 700.0]]) * unit
    schema = Schema({"a": 2, "b": 2})
    assert variance_ratio(Problem(schema, {"a": a, "detailed": b})) == pytest.approx(7)
    b[0, 0] = 0  # known exactly
    assert variance_ratio(Problem(schema, {"a": a, "detailed": b})) == pytest.approx(7)
    b[0, 1] = np.inf
    assert variance_ratio(Problem(schema, {"a": a, "detailed": b})) == np.inf
    for total in (9 * unit, 0.0):
        assert variance_ratio(Problem(schema, {"total": total, "detailed": unit})) == 1


def test_refusals_say_which_solver_instead() -> None:
    half_exact = Problem(Schema({"a": 1002}), {"a": np.arange(1002) % 2.0, "total": 1.0})
    operator = Problem(Schema({"a": 4}), {"a": None}, covariance=aslinearoperator(np.eye(4) + 0.1))
    matrix = Problem.from_matrix(np.ones((1, 3)), np.ones(3))
    for problem, message in (
        (half_exact, "'a' is known exactly in some cells and not in others; there are 501 such cells, more than 500"),
        (operator, r"operator without a method solve\(V\), its inverse times V: use preconditioner='jacobi'"),
        (matrix, "no tables"),
    ):
        refuses(message, blue, problem, SOLVER, error=UnsupportedProblemError)
    refuses("forms no equations", ConjugateGradient, preconditioner="two_pass", rows="all")


def test_not_converged_names_the_ratio_and_the_next_step() -> None:
    problem = cellwise(gallery.cube(3, 3), 100.0)
    P = blue(problem, ConjugateGradient(preconditioner="two_pass", max_iterations=2))
    with pytest.raises(ConvergenceError, match=r"ratio of up to \d+.*solver='cholesky'"):
        P @ noise(problem)


@cases(
    (lambda v: v[1:], r"shape \(28,\): got \(27,\)"),
    (lambda v: -v, "negative"),
    (lambda v: np.where(np.arange(v.size) == 3, np.inf, v), "was measured"),
)
def test_variances_that_do_not_fit(change: Callable[[Float], Float], message: str) -> None:
    problem = Problem(Schema({"a": 27}), {"a": 2.0, "total": 1.0})
    refuses(message, problem.with_variances, change(problem.variances))
