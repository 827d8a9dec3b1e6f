"""The estimate is linear whatever the size of the values and the units that cells are counted in."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blue_solvers import SOLVERS, ConjugateGradient, UnsupportedProblemError, blue, certify, estimate, fit_test
from blue_solvers.contract import Solver
from blue_solvers.uncertainty import functionals
from constraint_builders import Areas, LowRankPlusDiagonal, Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.invent import Invented, Kind, taken

ALL: list[str | Solver] = [*SOLVERS, ConjugateGradient(preconditioner="two_pass")]
SMALLEST = 5e-324


def an_invented(seed: int) -> Invented:
    """The first that can be estimated, from a seed on."""
    kinds = (
        (own, Kind(decades=4.0, cellwise=bool(own % 2), covariance="sparse" if own % 4 == 3 else ""))
        for own in itertools.count(seed)
    )
    return next(found for own, kind in kinds for found, _ in taken([own], kind))


@examples(8)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-300, 1e-200, 1e-120, 1e-90, 1e-20, 1e20, 1e90, 1e120, 1e200, 1e300]),
)
def test_a_multiple_of_the_values_gives_that_multiple(seed: int, scale: float) -> None:
    """Of the estimate and of the adjoint, in every solver that takes the problem."""
    invented = an_invented(seed)
    problem, y = invented.description.problem(), invented.y
    v = np.random.default_rng(seed).normal(size=problem.desired.size)
    taken = 0
    for solver in ALL:
        try:
            P = blue(problem, solver)
        except UnsupportedProblemError:
            continue
        taken += 1
        x, pulled = P @ y, P.T @ v
        for found, expected in ((P @ (scale * y), x), (P.T @ (scale * v), pulled)):
            assert abs(found / scale - expected).max(initial=0) <= 1e-8 * max(1.0, abs(expected).max(initial=0))
    assert taken >= 3


@every("solver", ALL)
def test_columns_of_any_size_side_by_side_and_denormal_ones(solver: str | Solver) -> None:
    problem = Problem(Schema({"a": 2, "b": 3}), {"total": 1.0, "a": 2.0, "a * b": 4.0})
    y = np.random.default_rng(0).normal(50, 9, problem.observed.size)
    scales = np.array([1e-310, 1e-200, 0.0, 1.0, 1e200, 1e300])
    P = blue(problem, solver)
    found, x = P @ (y[:, None] * scales), P @ y
    assert not found[:, 2].any()
    for k in (1, 3, 4, 5):
        np.testing.assert_allclose(found[:, k] / scales[k], x, rtol=1e-9)
    np.testing.assert_allclose(found[:, 0], 1e-310 * x, atol=1e-9 * 5e-309)
    assert abs(P @ np.full(y.size, SMALLEST)).max() <= 12 * SMALLEST


@every("solver", ALL)
def test_an_estimate_beyond_float64_is_refused(solver: str | Solver) -> None:
    problem = Problem(Schema({"a": 4}), {"a": 1.0}, ["total"])
    with pytest.raises(OverflowError, match="beyond what float64 holds"):
        blue(problem, solver) @ np.full(4, 1e308)


@examples(20)
@given(
    variance=st.floats(-100.0, 100.0).map(lambda power: max(10.0**power, 1e-100)),
    value=st.floats(-100.0, 100.0).map(lambda power: 10.0**power),
)
@example(variance=1e-100, value=1.0)
def test_estimates_are_finite_whatever_is_read(variance: float, value: float) -> None:
    """Values of any size beside any variance: what is refused at the door is all that gave NaN."""
    problem = Problem(Schema({"a": 2, "b": 3}), {"total": variance, "a": variance, "a * b": 2 * variance})
    y = value * np.arange(1.0, problem.observed.size + 1)
    taken = 0
    for solver in SOLVERS:
        try:
            P = blue(problem, solver)
        except UnsupportedProblemError:
            continue
        x, variances = P @ y, P.variances()
        assert np.isfinite(x).all()
        assert (variances > 0).all()
        assert (variances <= 2 * variance).all()
        taken += 1
    assert taken >= 3


POWERS = st.floats(-323.0, 308.0).map(lambda power: float(f"1e{power:.0f}"))
SCHEMA = Schema({"a": 2, "b": 3})


@examples(300, 40)
@given(variance=POWERS, value=POWERS, number=POWERS, kind=st.integers(0, 5))
@example(variance=1e-91, value=1.0, number=1e16, kind=4)
@example(variance=1e-100, value=1e90, number=1.0, kind=4)
@example(variance=1e-100, value=1e90, number=1.0, kind=0)
@example(variance=1.0, value=1.0, number=1e-309, kind=3)
def test_numbers_of_any_size_give_finite_answers_or_are_refused(
    variance: float, value: float, number: float, kind: int
) -> None:
    """At every door, without a warning."""
    measured = {"total": variance, "a": variance, "a * b": 2 * variance if variance < 1e300 else variance}
    try:
        if kind == 0:
            problem = Problem(SCHEMA, measured)
        elif kind == 1:
            problem = Problem(SCHEMA, measured, equalities=(np.eye(1, 9, 1) * number, [value]))
        elif kind == 2:
            problem = Problem(SCHEMA, {"R": measured, "Leaf": measured}, areas=Areas(2, {"R": [[number, 1.0]]}))
        elif kind == 3:
            problem = Problem.from_matrix([[number, 1.0, -1.0]], np.full(3, variance))
        elif kind == 4:
            noise = LowRankPlusDiagonal(np.full(9, variance), np.full((9, 1), number))
            problem = Problem(SCHEMA, {"total": 1.0, "a": 1.0, "a * b": 1.0}).with_covariance(noise)
        else:
            problem = Problem.from_summing_matrix([[1.0, number], [1.0, 0.0], [0.0, 1.0]], np.full(3, variance))
        y = np.full(problem.observed.size, value)
        found = estimate(problem, y)
    except ValueError:  # that of a solver, too
        return
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.std_errors).all()
    if kind == 0:
        fit, certificate = fit_test(problem, y, draws=0), certify(problem, y, found.observed)
        assert np.isfinite(fit.statistic)
        assert certificate.bound is not None
        combined = functionals(found.operator, y, np.full((problem.desired.size, 1), min(number, 1e50)))
        assert np.isfinite(combined.estimate).all()
        assert np.isfinite(combined.covariance).all()


def test_usual_numbers_are_not_refused() -> None:
    for power in (-90, -50, 0, 50, 90):
        assert estimate(Problem(SCHEMA, {"total": 1.0, "a": 2.0}), np.full(3, 10.0**power)).values.shape == (3,)
        assert estimate(Problem(SCHEMA, {"total": 10.0**power, "a": 2.0}), np.ones(3)).values.shape == (3,)


@st.composite
def equations_in_other_units(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Whole equations, variances, data, and powers of two."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(2, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    A = rng.integers(-2, 3, (rows, columns)) * (rng.random((rows, columns)) < 0.7)
    units = 2.0 ** rng.integers(-20, 21, columns)
    return A.astype(float), rng.uniform(0.5, 2, columns), rng.normal(0, 10, columns), units


@pytest.mark.few(2)
@pytest.mark.parametrize("solver", ["dense", "cholesky", "cg", "multigrid", "auto"])
@given(equations_in_other_units())
def test_estimates_and_variances_follow_the_units(solver: str, given_: tuple) -> None:
    A, variances, y, units = given_
    plain = blue(Problem.from_matrix(A, variances), solver)
    other = blue(Problem.from_matrix(A * units, variances / units**2), solver)
    np.testing.assert_allclose(units * (other @ (y / units)), plain @ y, atol=1e-9)
    np.testing.assert_allclose(units**2 * other.variances(), plain.variances(), atol=1e-9)
    adjustment = variances * (A.T @ np.linalg.pinv(A * variances @ A.T, rcond=1e-11) @ (A @ y))
    np.testing.assert_allclose(plain @ y, y - adjustment, atol=1e-8)
