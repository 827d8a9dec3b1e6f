"""Variances some geounits at a time, and an estimate with its violation in one pass, are those of the whole."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import every
from tests.helpers.spines import consistent_measurements, spine_problems

SPINE = Spine([-1, 0, 0, 0, 1, 1])
SCHEMA = Schema({"a": 2, "b": 3})
PROBLEMS = {
    "of one place": (Problem(SCHEMA, {"a * b": 1.0, "total": 4.0}, desired=["b", "a"]), "auto"),
    "by factorisation": (Problem(SCHEMA, {"depth 0": {"b": 2.0}, "depth 1": {"a * b": 3.0}}, spine=SPINE), "cholesky"),
    "in the order of names": (
        Problem(SCHEMA, {"depth 0": {"b * a": 2.0}, "depth 1": {"b * a": 3.0}, "depth 2": {"a": 1.0}}, spine=SPINE),
        "auto",
    ),
    "with undetermined cells": (
        Problem(SCHEMA, {"depth 1": {"a * b": [1.0, np.inf, 1.0]}}, spine=SPINE, undetermined="nan"),
        "auto",
    ),
}


def require_rows_of_the_whole(problem: Problem, solver: str, seed: int = 0) -> None:
    P = blue(problem, solver)
    variances, by_table, rng = P.variances(), P.variances_by_table(), np.random.default_rng(seed)
    for i in rng.permutation(len(problem.desired_tables)).tolist():
        whole = variances[problem.desired.block(i)].reshape(-1, problem.desired_tables[i].size)
        rows = np.flatnonzero(rng.random(len(whole)) < 0.5)
        for chosen in (slice(None), slice(1, 3), rows):
            found = by_table.of(i, chosen)
            np.testing.assert_array_equal(found, whole[chosen])
            found[...] = -1  # a new array: what is kept stays as it is
        np.testing.assert_array_equal(by_table.of(i), whole)


@given(spine_problems(), st.integers(0, 2**32 - 1))
def test_rows_on_a_spine_are_those_of_the_whole(problem: Problem, seed: int) -> None:
    require_rows_of_the_whole(problem, "two_pass", seed)


@every("name", PROBLEMS)
def test_rows_of_any_problem_are_those_of_the_whole(name: str) -> None:
    require_rows_of_the_whole(*PROBLEMS[name])


@given(spine_problems(), st.integers(0, 2**32 - 1))
def test_violations_are_those_of_the_observed_layout(problem: Problem, seed: int) -> None:
    prepared = blue(problem, "two_pass")._prepared
    Y = np.where(problem.unmeasured, 0.0, consistent_measurements(problem, seed))[:, None]
    violation = prepared.violation(Y)
    over = blue(problem.observing(), "two_pass").estimate(Y[:, 0]).values
    if not problem.unmeasured.any():
        off = abs(problem.constraint_matrix() @ over).max(initial=0.0)
        assert violation <= 1e-9 * max(1.0, abs(Y).max())
        assert off <= 1e-9 * max(1.0, abs(Y).max())


def test_measurements_that_may_change_are_copied_and_others_are_not() -> None:
    problem = Problem(SCHEMA, {"a * b": 1.0, "total": 4.0})
    P, y = blue(problem), np.arange(7.0)
    kept = P.estimate(y).y
    assert not np.may_share_memory(kept, y)
    assert not kept.flags.writeable
    y.flags.writeable = False
    assert P.estimate(y).y is y
    view = np.arange(7.0)[:]
    view.flags.writeable = False  # of an array that others may write to
    assert not np.may_share_memory(P.estimate(view).y, view)


def test_values_are_no_view_of_the_measurements() -> None:
    problem = Problem(SCHEMA, {"a * b": 1.0})
    y = np.arange(6.0)
    y.flags.writeable = False
    est = blue(problem).estimate(y)
    assert not np.may_share_memory(est.values, est.y)
    assert not any(own.flags.writeable for own in (est.values, est.variances, est.std_errors))
