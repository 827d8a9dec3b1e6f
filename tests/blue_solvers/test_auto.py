"""What `auto` chooses where equal variances fail, and why."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import Auto, Cholesky, ConjugateGradient, blue
from blue_solvers.nearest_structured import variance_ratio
from blue_solvers.solvers import auto
from constraint_builders import Problem, Schema, gallery

AROUND = ConjugateGradient(preconditioner="two_pass")


def cellwise(problem: Problem, ratio: float) -> Problem:
    """Variances between 1 and `ratio` in every cell, both ends taken in every table of two cells."""
    variances = np.random.default_rng(0).uniform(1, ratio, problem.observed.size)
    starts = problem.observed.offsets[:-1][problem.observed.sizes > 1]
    variances[starts], variances[starts + 1] = 1, ratio
    return problem.with_variances(variances)


@pytest.fixture
def few_constraints_to_factorise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "CHOLESKY_RANK", 4)


def test_few_constraints_are_factorised() -> None:
    solver, reason = Auto().choose(cellwise(gallery.cube(3, 3), 3.0))
    assert solver == Cholesky()
    assert "few enough to factorise" in reason


@pytest.mark.usefixtures("few_constraints_to_factorise")
@pytest.mark.parametrize(("ratio", "expected"), [(3.0, AROUND), (100.0, AROUND), (101.0, ConjugateGradient())])
def test_the_ratio_of_variances_decides_between_iterations(ratio: float, expected: ConjugateGradient) -> None:
    problem = cellwise(gallery.cube(3, 3), ratio)
    solver, reason = Auto().choose(problem)
    assert solver == expected
    assert f"{ratio:.3g}" in reason
    P = blue(problem)
    y = np.random.default_rng(1).standard_normal(problem.observed.size)
    np.testing.assert_allclose(P @ y, blue(problem, "dense") @ y, atol=1e-7)
    assert P.info.exact
    assert reason in P.info.reason


@pytest.mark.usefixtures("few_constraints_to_factorise")
def test_what_has_no_equal_variances_nearby_iterates_on_the_constraints() -> None:
    schema = Schema({"a": 5, "b": 5})
    exact_in_part = Problem(schema, {"detailed": np.arange(25.0).reshape(5, 5), "a": 2.0, "b": 1.0}, ["a"])
    band = sparse.diags_array([np.full(29, 0.4), np.ones(30), np.full(29, 0.4)], offsets=[-1, 0, 1])
    correlated = Problem(schema, {"detailed": None, "a": None}, covariance=sparse.csr_array(band))
    for problem, word in ((exact_in_part, "known exactly in some cells and not in others"), (correlated, "A2")):
        solver, reason = Auto().choose(problem)
        assert solver == ConjugateGradient()
        assert word in reason
        assert ": use " not in reason


def test_ratio_is_within_a_table_of_a_geounit_not_between_them() -> None:
    schema = Schema({"a": 2, "b": 3})
    assert variance_ratio(Problem(schema, {"a": 1.0, "b": 1e6, "total": 0.0})) == 1
    assert variance_ratio(Problem(schema, {"a": [1.0, 7.0], "b": [2.0, 1.0, 4.0], "total": np.inf})) == 7
    assert variance_ratio(Problem(schema, {"a": [1.0, np.inf], "b": 2.0}, ["b"])) == np.inf
