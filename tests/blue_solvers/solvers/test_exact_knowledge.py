"""Structural zeros, linear equalities and cells known exactly, with a spine and without, in every solver."""

from itertools import product

import numpy as np
import pytest

from blue_solvers import ConjugateGradient, Solver, UnsupportedProblemError, blue
from blue_solvers.structured.nearest import variance_ratio
from blue_solvers.testing import check_solver
from constraint_builders import Problem, Schema, Spine, gallery
from tests.helpers.every import every
from tests.helpers.refused import refuses
from tests.helpers.spines import SCHEMA

DIRECT = ["two_pass", ConjugateGradient(preconditioner="two_pass"), "cholesky", "dense"]
SPINE = Spine([-1, 0, 0, 1, 1, 2], ["S", "C", "C", "T", "T", "T"])


@every("spine", [None, SPINE])
@every(
    ("solver", "variance"),
    [*product([*DIRECT, "cg", "multigrid", "auto"], [0.0]), *product(DIRECT, [1.0])],
)
def test_equalities_that_contradict_one_another_or_zeros_are_refused(
    solver: str | Solver, variance: float, spine: Spine | None
) -> None:
    """Of exact cells no noise is left for a residual to show it."""
    observed, zeros = {"detailed": 2.0, "a": variance}, {"a": np.array([False, True])}
    if spine is not None:
        observed, zeros = {"S": {"a": 1.0}, "T": observed}, {("S", "a"): zeros["a"][None]}
    size = Problem(SCHEMA, observed, spine=spine).observed.size
    row = np.zeros((1, size))
    row[0, -1] = 1  # the table "a" of the last geounit, of empty cells where there are zeros
    twice = np.concatenate([row, 2 * row])
    for known in ({"equalities": (twice, [1.0, 3.0])}, {"equalities": (row, [1.0]), "zeros": zeros}):
        with pytest.raises(ValueError, match="contradict one another"):
            blue(Problem(SCHEMA, observed, spine=spine, **known), solver)
    if variance:
        P = blue(Problem(SCHEMA, observed, spine=spine, equalities=(twice, [1.0, 2.0])), solver)
        assert np.allclose(row @ (P @ np.arange(float(size)) + P.offset), 1.0)


def test_bad_knowledge_is_refused() -> None:
    schema = Schema({"a": 2})
    refuses(r"zeros of 'a' must be truth values of shape \(2,\)", Problem, schema, {"a": 1.0}, zeros={"a": [0.0, 1.0]})
    refuses("not a variable", Problem, schema, {"a": 1.0}, zeros={"b": [True, False]})
    with pytest.raises(ValueError, match="with a spine, tables are named"):
        Problem(SCHEMA, {"S": {"a": 1.0}}, spine=SPINE, zeros={"a": np.array([[True, False]])})
    refuses("equalities must have 2 columns", Problem, schema, {"a": 1.0}, equalities=(np.ones((1, 3)), [1.0]))
    with pytest.raises(ValueError, match="right-hand side of the equalities must have shape"):
        Problem(schema, {"a": 1.0}, equalities=(np.ones((1, 2)), [1.0, 2.0]))
    with pytest.raises(UnsupportedProblemError, match="structural zeros or equalities"):
        blue(Problem(schema, {"a": 1.0}, zeros={"a": np.array([True, False])}), "sea_blue")
    contradictory = Problem(schema, {"a": 1.0}, equalities=(np.ones((2, 2)), [1.0, 2.0]))
    refuses("contradict one another", blue, contradictory, "cholesky")


@every("count", [20, 40_000])
@every("decades", [0, 8])
def test_the_known_sum_of_many_blocks_is_kept(count: int, decades: int) -> None:
    rng = np.random.default_rng(0)
    variances = 10.0 ** rng.uniform(-decades / 2, decades / 2, count)
    spine = Spine([-1] + [0] * count, ["State"] + ["Block"] * count)
    problem = Problem(
        Schema({"a": 1}), {"Block": {"total": variances}}, spine=spine, equalities=(np.ones((1, count)), [7.0])
    )
    P = blue(problem, "two_pass")
    y = np.sqrt(variances) * rng.normal(size=count)
    expected = y + variances / variances.sum() * (7.0 - y.sum())
    x = P @ y + P.offset
    assert (abs(x - expected) <= 1e-9 * np.sqrt(variances)).all()
    assert abs(x.sum() - 7.0) <= 1e-12 * abs(x).sum()
    np.testing.assert_allclose(P.variances(), variances * (1 - variances / variances.sum()), rtol=1e-7)


SOLVER = ConjugateGradient(preconditioner="two_pass")


def test_exact_or_not_measured_and_nothing_between() -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a": [0.0, np.inf, np.inf], "a * b": 2.0, "total": 1.0})
    check_solver(SOLVER, problem)


@pytest.mark.parametrize("count", [1, 40])
def test_iterations_are_those_without_exact_cells(count: int) -> None:
    plain = gallery.cube(4, 4)
    variances = np.random.default_rng(0).uniform(1, 3, plain.observed.size)
    some = variances.copy()
    some[np.random.default_rng(1).choice(plain.observed.size, count, replace=False)] = 0
    iterations = []
    for problem in (plain.with_variances(variances), plain.with_variances(some)):
        P = blue(problem, SOLVER)
        _, info = P.apply(np.sqrt(problem.variances) * np.random.default_rng(2).standard_normal(problem.observed.size))
        iterations.append(info.iterations)
        assert variance_ratio(problem) < 3
        assert info.error_bound < 1e-8
    assert abs(iterations[1] - iterations[0]) <= 2
