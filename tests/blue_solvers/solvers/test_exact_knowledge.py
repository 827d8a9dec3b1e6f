"""Structural zeros and linear equalities, with a spine and without, in every solver that takes them."""

import numpy as np
import pytest

from blue_solvers import ConjugateGradient, Solver, UnsupportedProblemError, blue
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import every
from tests.helpers.spines import SCHEMA

IN_TWO_PASSES = ["two_pass", ConjugateGradient(preconditioner="two_pass")]
SPINE = Spine([-1, 0, 0, 1, 1, 2], ["S", "C", "C", "T", "T", "T"])


@pytest.mark.parametrize("solver", ["cholesky", ConjugateGradient(preconditioner="two_pass")])
def test_empty_cells_need_no_measurement(solver: str | Solver) -> None:
    unmeasured = np.array([[[np.inf, 2.0], [1.0, 1.0]]])
    observed = {"depth 0": {"a * b": unmeasured}, "depth 1": {"b": 1.0}}
    zeros = {("depth 0", "a * b"): np.array([[[True, False], [False, False]]])}
    spine = Spine([-1, 0, 0])
    with pytest.raises(ValueError, match="is not estimable: nothing measured determines it"):
        Problem(Schema({"a": 2, "b": 2}), {"depth 0": observed["depth 0"]}, {"depth 0": ["a"]}, spine=spine)
    problem = Problem(Schema({"a": 2, "b": 2}), observed, {"depth 0": ["a", "total"]}, spine=spine, zeros=zeros)
    y = np.array([np.nan, 9.0, 4.0, 5.0, 3.0, 6.0, 2.0, 7.0])
    # the sums over both children, of variance 2, join the columns of b at the root: 4 alone, 9 + 5
    apart = np.array([(5.0 - 4.0) / 3, (13.0 - 14.0) / 5])
    first, second = 9.0 + 2 * apart[1], 4.0 + apart[0] + 5.0 + apart[1]
    P = blue(problem, solver)
    assert np.allclose(P @ y, [first, second, first + second])


@every("solver", [*IN_TWO_PASSES, "cholesky", "dense"])
@every("spine", [None, SPINE])
def test_equalities_that_contradict_one_another_or_zeros_are_refused(spine: Spine | None, solver: str | Solver) -> None:
    observed, zeros = {"detailed": 2.0, "a": 1.0}, {"a": np.array([False, True])}
    if spine is not None:
        observed, zeros = {"S": {"a": 1.0}, "T": observed}, {("S", "a"): zeros["a"][None]}
    size = Problem(SCHEMA, observed, spine=spine).observed.size
    row = np.zeros((1, size))
    row[0, -1] = 1  # the table "a" of the last geounit, of empty cells where there are zeros
    twice = np.concatenate([row, 2 * row])
    for known in ({"equalities": (twice, [1.0, 3.0])}, {"equalities": (row, [1.0]), "zeros": zeros}):
        with pytest.raises(ValueError, match="contradict one another"):
            blue(Problem(SCHEMA, observed, spine=spine, **known), solver)
    implied = Problem(SCHEMA, observed, spine=spine, equalities=(twice, [1.0, 2.0]))
    P = blue(implied, solver)
    assert np.allclose(row @ (P @ np.arange(float(size)) + P.offset), 1.0)


@every("solver", [*IN_TWO_PASSES, "cholesky", "dense", "cg", "multigrid", "auto"])
@every("spine", [None, SPINE])
def test_equalities_of_exact_cells_that_are_known_to_be_empty_are_refused(
    spine: Spine | None, solver: str | Solver
) -> None:
    """No noise is left for a residual to show it."""
    observed, zeros = {"detailed": 2.0, "a": 0.0}, {"a": np.array([False, True])}
    if spine is not None:
        observed, zeros = {"S": {"a": 1.0}, "T": observed}, {("S", "a"): zeros["a"][None]}
    size = Problem(SCHEMA, observed, spine=spine).observed.size
    row = np.zeros((1, size))
    row[0, -1] = 1
    with pytest.raises(ValueError, match="contradict one another"):
        blue(Problem(SCHEMA, observed, spine=spine, zeros=zeros, equalities=(row, [1.0])), solver)


def test_bad_knowledge_is_refused() -> None:
    schema = Schema({"a": 2})
    with pytest.raises(ValueError, match=r"zeros of 'a' must be truth values of shape \(2,\)"):
        Problem(schema, {"a": 1.0}, zeros={"a": [0.0, 1.0]})
    with pytest.raises(ValueError, match="not a variable"):
        Problem(schema, {"a": 1.0}, zeros={"b": [True, False]})
    with pytest.raises(ValueError, match="with a spine, tables are named"):
        Problem(SCHEMA, {"S": {"a": 1.0}}, spine=SPINE, zeros={"a": np.array([[True, False]])})
    with pytest.raises(ValueError, match="equalities must have 2 columns"):
        Problem(schema, {"a": 1.0}, equalities=(np.ones((1, 3)), [1.0]))
    with pytest.raises(ValueError, match="right-hand side of the equalities must have shape"):
        Problem(schema, {"a": 1.0}, equalities=(np.ones((1, 2)), [1.0, 2.0]))
    with pytest.raises(UnsupportedProblemError, match="structural zeros or equalities"):
        blue(Problem(schema, {"a": 1.0}, zeros={"a": np.array([True, False])}), "sea_blue")
    contradictory = Problem(schema, {"a": 1.0}, equalities=(np.ones((2, 2)), [1.0, 2.0]))
    with pytest.raises(ValueError, match="contradict one another"):
        blue(contradictory, "cholesky")


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
