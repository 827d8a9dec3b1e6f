"""Equations some of which nearly follow from others: right, or refused by name."""

from fractions import Fraction

import flint
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue
from constraint_builders import Areas, Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses
from tests.soak.problems import posed

SOLVERS = ("dense", "cholesky", "cg", "multigrid", "auto")


def rational(value: float) -> flint.fmpq:
    return flint.fmpq(*Fraction(value).as_integer_ratio())


def as_float(value: flint.fmpq) -> float:
    return float(Fraction(int(value.p), int(value.q)))


def exactly(A: np.ndarray, variances: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The estimate y - S A' (A S A')^-1 A y, in rational numbers; rows must be independent."""
    m, n = A.shape
    Q = flint.fmpq_mat(m, n, [rational(a) for a in A.ravel()])
    Y = flint.fmpq_mat(n, 1, [rational(own) for own in y])
    S = flint.fmpq_mat(n, n, [rational(own) for own in np.diag(variances).ravel()])
    reach = S * Q.transpose()
    x = Y - reach * ((Q * reach).inv() * (Q * Y))
    return np.array([as_float(x[i, 0]) for i in range(n)])


@examples(30)
@given(seed=st.integers(0, 10**6), decade=st.integers(-12, -1))
@example(seed=314, decade=-10)
def test_rows_at_any_distance_from_dependence(seed: int, decade: int) -> None:
    rng = np.random.default_rng(seed)
    A = np.eye(3, 7) + rng.integers(-1, 2, (3, 7)) * (np.arange(7) >= 3)
    A = np.vstack([A, A[0] + A[1] + 10.0**decade * np.array([0, 0, 0, 1, 0, -1, 1])])
    variances, y = 10.0 ** rng.uniform(-1, 1, 7), rng.normal(0, 5, 7)
    expected = exactly(A, variances, y)
    problem = Problem.from_matrix(sparse.csr_array(A), sparse.csr_array(np.diag(variances)))
    for solver in SOLVERS:
        try:
            P = blue(problem, solver)
        except ValueError as error:
            assert decade <= -4
            assert "nearly a combination of others" in str(error)  # noqa: PT017
            continue
        assert (abs(P @ y - expected) <= 1e-6 * np.sqrt(variances)).all()
        assert P.variances().min() >= 0


@every("solver", SOLVERS)
def test_rows_that_say_nothing_and_repeated_rows(solver: str) -> None:
    A = np.array([[1.0, 1, -1], [0, 0, 0], [3, 3, -3]])
    P = blue(Problem.from_matrix(sparse.csr_array(A), sparse.eye_array(3, format="csr")), solver)
    np.testing.assert_allclose(P @ [1.0, 2, 6], [2, 3, 5])
    np.testing.assert_allclose(P.variances(), 2 / 3)
    E = np.array([[1.0, 1, 0], [0, 0, 0]])
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "a": np.array([1.0, 2])}, equalities=(E, [0.0, 0.0]))
    P = blue(problem, solver)
    np.testing.assert_allclose(P @ [1.0, 2, 6], [1.25, -1.25, 2.5])
    np.testing.assert_allclose(P.variances(), [0.25, 0.25, 1])


def test_a_right_hand_side_for_a_row_that_says_nothing_is_refused() -> None:
    A = sparse.csr_array(np.array([[1.0, 1, -1], [0, 0, 0]]))
    refuses("contradict", blue, Problem.from_matrix(A, sparse.eye_array(3, format="csr"), [0.0, 5.0]), "cholesky")


@every("power", [18, 20, 22])
@every("solver", ["two_pass", "areas", "auto"])
def test_equalities_that_nearly_follow_determine_cells_without_a_trace_of_noise(power: int, solver: str) -> None:
    """Of what they are differences of they magnify rounding, which passed for standard errors of 1e-9."""
    rows = np.array([[0, 1.0, -1, 0, 0], [0, 1, -1, 2.0**-power, 0], [0, 3, 0, 1, -2]])
    problem = Problem(Schema({"a": 4}), {"total": 3.0, "a": 21.0}, equalities=(rows, np.zeros(3)))
    variances = blue(problem, solver).variances()
    assert variances[3] == 0
    np.testing.assert_allclose(variances[[0, 1, 2, 4]], [343 / 120, 7 / 30, 7 / 30, 21 / 40])


@every("share", [1e-9, 1e-11, 1e-12])
def test_exact_sums_that_nearly_follow_from_others_are_refused_by_dense_algebra_too(share: float) -> None:
    problem, _ = _two_sums_nearly_alike(share)
    refuses("nearly, and not quite, a combination of other such knowledge", blue, problem, "dense")


def test_exact_sums_that_are_told_apart_determine_their_cells_by_dense_algebra() -> None:
    problem, y = _two_sums_nearly_alike(1e-3)
    P = blue(problem, "dense")
    np.testing.assert_allclose((P @ y)[-3:], [10, 20, 30], rtol=1e-10)
    assert not P.variances().any()


def test_exact_cells_that_equations_weigh_very_differently_are_kept() -> None:
    """Their roundings contradict one another: no cell is off by thousands of them because others weigh little."""
    *_, own = posed(730_000_252)
    assert own.how == "equations"
    P, y, expected = blue(own.problem, "dense"), own.invented.y, own.invented.reference
    x, info = P.apply(y)
    assert info.exact
    assert abs(x + P.offset - expected.estimate)[expected.variances == 0].max() <= 1e-13 * abs(expected.estimate).max()


def test_a_large_cell_that_a_small_coefficient_determines_hides_no_other_coefficient_from_dense_algebra() -> None:
    """Beside 3e11 the other coefficients passed for cancelled: rows were 5e10 off, and called exact."""
    A = np.array([[1.0, -1, -1, 0, 0], [0, 1, -1, -1, 0], [0, 0, 1, -1, -1], [5e-12, 0, 0, 0, 0]])
    variances, y = np.array([1e-6, 1, 1e6, 1e-6, 1]), np.array([3.0, 4, 5, 6, 7])
    P = blue(Problem.from_matrix(sparse.csr_array(A), sparse.csr_array(np.diag(variances)), [0, 0, 0, 1.5]), "dense")
    x, info = P.apply(y)
    assert info.exact
    moved = A[:3] * np.sqrt(variances) * np.array([0.0, 1, 1, 1, 1])  # beside the first cell, which is 3e11
    y[0] = 1.5 / 5e-12
    expected = y - np.sqrt(variances) * (np.linalg.pinv(moved) @ (A[:3] @ y))
    np.testing.assert_allclose(x + P.offset, expected, rtol=1e-9)


@every("solver", SOLVERS)
def test_small_coefficients_of_large_cells_are_not_taken_for_what_cancelled(solver: str) -> None:
    """Elimination of a cell that was not measured left one of 1e-12 out: figures were a standard error off."""
    A = np.array([[1, 1, 1e-12, 0, 0], [1, 0, 0, -1, 0], [0, 0, 1, 0, 1]])
    P = blue(Problem.from_matrix(sparse.csr_array(A), np.array([np.inf, 1, 1, 1, 1])), solver)
    np.testing.assert_allclose(P @ [0, 3, 1e12, 5, -1e12], [0.5, -1.5, 1e12, 0.5, -1e12], rtol=1e-12)


def _two_sums_nearly_alike(share: float) -> tuple[Problem, np.ndarray]:
    """Three exact sums of leaves 10, 20, 30, which are noisy themselves: two differ by a share of the last."""
    layers = {"A": [[1, 1, 1]], "B": [[1, 1, 1 + share]], "C": [[1, 2, 1]]}
    exact = {layer: {"total": 0.0} for layer in layers}
    problem = Problem(Schema({"unit": 1}), {**exact, "Leaf": {"total": [1e-5, 1e4, 3.0]}}, areas=Areas(3, layers))
    return problem, problem.marginal_matrix() @ [10.0, 20, 30] + [0, 0, 0, 0.01, 20, 1]
