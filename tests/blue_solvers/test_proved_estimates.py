"""What `estimate` calls exact is the best estimate, to 1e-8 standard errors; the rest is marked or refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from blue_solvers import blue, certify, estimate
from blue_solvers.verification import Certificate
from blue_solvers.verification.certificate import Certifier
from constraint_builders import Problem, Schema, gallery
from noise_mechanisms import add_noise
from tests.helpers.every import every

CASES = {
    "closed form": gallery.berkeley,
    "two passes": lambda: Problem(
        Schema({"a": 3, "b": 2}), {"a": 1.0, "b": 2.0, "total": 0.0}, zeros={"a": [True, False, False]}
    ),
    "iterations": lambda: Problem(Schema({"a": 3, "b": 2}), {"detailed": np.arange(1.0, 7).reshape(3, 2), "a": 1.0}),
}


@every("case", CASES)
def test_estimates_carry_what_belongs_to_them(case: str) -> None:
    problem = CASES[case]()
    P, y = blue(problem), np.random.default_rng(0).normal(20, 1, problem.observed.size)
    y[problem.exact] = 20
    est = P.estimate(y)
    np.testing.assert_allclose(est.values, P @ y + P.offset, rtol=1e-12)
    np.testing.assert_allclose(est.std_errors, np.sqrt(P.variances()))
    lower, upper = est.interval(0.9)
    np.testing.assert_allclose((upper - lower) / 2, 1.6448536269514722 * est.std_errors)
    assert est.certificate().bound < 1e-9
    assert est.info.exact
    assert est.to_frame().height == problem.desired.size
    for name, table in est.tables.items():
        np.testing.assert_array_equal(table.ravel(), est.values[problem.desired.slice(name)])
    with pytest.raises(ValueError, match="read-only"):
        est.values[0] = 1


def test_a_desired_table_is_proved_through_the_observed_ones() -> None:
    problem = Problem(Schema({"a": 4, "b": 3}), {"detailed": 2.0, "a": 1.0}, ["b", "total"])
    y = np.random.default_rng(0).normal(50, 1, problem.observed.size)
    est = estimate(problem, y)
    assert est.proof is not None
    np.testing.assert_allclose(est.values, blue(problem) @ y, rtol=1e-13)
    assert estimate(problem, y, certify=False).proof is None


def test_somebody_elses_answer_is_judged() -> None:
    problem = gallery.berkeley()
    y = add_noise(problem, problem.truth, 0)
    est = estimate(problem, y)
    moved = est.values.copy()
    moved[3] += 1e-5
    assert certify(problem, y, est.values).bound < 1e-11
    assert certify(problem, y, moved).bound > 1e-6


@every("case", CASES)
def test_threads_that_share_an_operator_get_the_bits_and_reports_of_one(case: str) -> None:
    problem = CASES[case]()
    P = blue(problem)
    ys = np.random.default_rng(0).normal(20, 1, (24, problem.observed.size))
    alone = [P.estimate(y) for y in ys]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(P.estimate, ys))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        assert one.proof == other.proof
        assert (one.info.iterations, one.info.residual) == (other.info.iterations, other.info.residual)


def test_an_estimate_is_its_own_witness_of_nothing() -> None:
    problem = gallery.berkeley()
    y = add_noise(problem, problem.truth, 0)
    est = estimate(problem, y, certify=False)
    assert certify(problem, y, est) == est.certificate()


def test_cells_that_were_not_measured_disprove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither is proved, the reason is what is lacking without them: they may come out as anything."""
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "a": [1.0, np.inf]})

    def refused(certifier: Certifier, y: np.ndarray, x: np.ndarray, desired: np.ndarray) -> Certificate:
        return Certificate(None, "too little is known" if np.isnan(x).any() else "x contradicts what is known exactly")

    monkeypatch.setattr(Certifier, "certify", refused)
    found = Certifier(problem).closest(np.ones(3), np.array([3.0, 1.0, 7.0]), np.array([3.0, 1.0, 2.0]))
    assert found.reason == "too little is known"
