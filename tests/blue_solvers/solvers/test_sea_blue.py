"""SEA BLUE on the paper's own numbers, and its heuristic against a direct implementation of Algorithm 2."""

from itertools import combinations

import numpy as np
import pytest

import blue_solvers.solvers.oblique_down_pass as heuristic
from blue_solvers import ConjugateGradient, ConvergenceError, UnsupportedProblemError, blue
from blue_solvers.components import assumptions
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, compiled, gallery
from tests.helpers.every import every
from tests.helpers.exact_reference import marginal_rows
from tests.helpers.refused import refused

SQUARE = Schema({"A": 2, "B": 2})


def test_example_7() -> None:
    P = blue(gallery.toy(), "sea_blue")
    expected = np.array([[3, -1, -1, 1], [-1, 3, -1, 1], [-1, -1, 3, 1], [1, 1, 1, 3]]) / 4
    assert np.allclose(P @ np.eye(4), expected, rtol=0, atol=1e-15)
    assert np.allclose(P @ np.array([6.0, 9, 17, 29]), [5.25, 8.25, 16.25, 29.75], rtol=0, atol=1e-14)
    assert np.allclose(P.variances(), 0.75, rtol=0, atol=1e-15)
    assert P.info.exact


def algorithm_2(problem: Problem) -> np.ndarray:
    """P of the second branch, from the paper with dense projections, over all marginals of the desired tables."""
    schema = problem.schema
    observed = [frozenset(table.factors) for table in problem.observed_tables]
    cells = np.split(np.eye(problem.observed.size), problem.observed.offsets[1:-1])
    variances = np.split(problem.variances, problem.observed.offsets[1:-1])
    down = {
        frozenset(c)
        for t in problem.desired_tables
        for k in range(len(t.factors) + 1)
        for c in combinations(t.factors, k)
    }
    estimates: dict[frozenset, np.ndarray] = {}
    for table in sorted(down, key=len):
        numerator, denominator = 0.0, 0.0
        for other, rows, variance in zip(observed, cells, variances, strict=True):
            if table <= other:
                to_margin = between(schema, other, table)
                precision = 1 / (to_margin @ variance)
                numerator = numerator + precision[:, None] * (to_margin @ rows)
                denominator = denominator + precision
        collected = numerator / np.asarray(denominator)[:, None]
        smaller = [frozenset(c) for k in range(len(table)) for c in combinations(table, k)]
        if smaller:
            B = np.vstack([between(schema, table, below) for below in smaller])
            h = np.vstack([estimates[below] for below in smaller])
            D = np.diag(1 / np.asarray(denominator))
            collected = collected + D @ B.T @ np.linalg.pinv(B @ D @ B.T, rcond=1e-11) @ (h - B @ collected)
        estimates[table] = collected
    return np.vstack([estimates[frozenset(table.factors)] for table in problem.desired_tables])


def between(schema: Schema, fine: frozenset, coarse: frozenset) -> np.ndarray:
    """Sums of a fine table's cells to a coarse one's."""

    def name(factors: frozenset) -> str:
        return " * ".join(sorted(factors, key=schema.names.index)) or "total"

    rows = marginal_rows(schema, name(fine))
    return (marginal_rows(schema, name(coarse)) @ rows.T) / rows.sum(axis=1)


UNEQUAL = {
    "4 x 4": ({"a": 4, "b": 4}, ["detailed", "a", "b", "total"]),
    "4 x 4 without margins": ({"a": 4, "b": 4}, ["detailed"]),
    "unequal dimensions": ({"a": 2, "b": 5, "c": 3}, ["detailed", "a * b", "b * c", "c", "total"]),
    "not nested": ({"a": 2, "b": 5, "c": 3}, ["a * b", "b * c", "a * c"]),
    "four variables": ({"a": 2, "b": 3, "c": 2, "d": 4}, ["detailed", "a * d", "b * c * d", "a", "total"]),
    "five variables": ({"a": 2, "b": 2, "c": 2, "d": 3, "e": 1}, ["detailed", "a * b * c", "c * d * e"]),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", UNEQUAL)
def test_second_branch(name: str) -> None:
    levels, tables = UNEQUAL[name]
    schema, rng = Schema(levels), np.random.default_rng(0)
    shapes = Problem(schema, dict.fromkeys(tables, 1.0)).observed
    problem = Problem(schema, {table: rng.uniform(1, 30, shapes.shape(table)) for table in tables}, "all")
    P = blue(problem, "sea_blue")
    said = "heuristic, not the BLUE: variances differ within tables (A3 fails); cg and cholesky give the BLUE"
    assert (P.info.exact, P.info.reason) == (False, said)
    y = rng.normal(50, 5, (problem.observed.size, 3))
    assert np.allclose(P @ y, algorithm_2(problem) @ y, rtol=0, atol=1e-9)
    assert P.estimate(y[:, 0]).info.violation < 1e-9  # iterations stop at 1e-12 of sums of some hundreds
    dot_test(P)
    assert np.allclose(P @ problem.observed.vector(problem.observed.tables(y)), P @ y)
    blue_variances = blue(problem, "dense").variances()
    assert (P.variances() >= blue_variances * (1 - 1e-12)).all()


@every("rtol", [1e-1, 1e-4])
@every("levels", [{"a": 4, "b": 5}, {"a": 2, "b": 5, "c": 3}])
def test_the_violation_is_by_what_tables_miss_their_margins(
    levels: dict[str, int], rtol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of iterations that end early; an equation is of a table and its margins, or of several of these."""
    monkeypatch.setattr(heuristic, "ITERATIONS", ConjugateGradient(rtol))
    rng, schema = np.random.default_rng(0), Schema(levels)
    problem = Problem(schema, {"detailed": rng.uniform(1, 30, schema.shape), "a": 1.0, "total": 2.0}, "all")
    est = blue(problem, "sea_blue").estimate(rng.normal(50, 5, problem.observed.size))
    tables = {table.factors: est.tables[table.name] for table in problem.desired_tables}
    gaps = [
        abs(own.sum(axis=axis) - tables[factors[:axis] + factors[axis + 1 :]]).max()
        for factors, own in tables.items()
        for axis in range(len(factors))
    ]
    assert max(gaps) * (1 - 1e-9) <= est.info.violation <= 2 * max(gaps)


def test_consistent_tables_stay_as_they_are_to_rounding() -> None:
    """Rounding of consistent input is in the range of no singular system: iterating on it returned garbage."""
    rng = np.random.default_rng(1)
    problem = Problem(
        Schema({"a": 3, "b": 2, "c": 4}), {"a * b": rng.uniform(1, 30, (3, 2)), "b * c": rng.uniform(1, 3, (2, 4))}
    )
    P = blue(problem, "sea_blue")
    X = P @ rng.normal(1e6, 1e3, (problem.observed.size, 5))
    assert np.allclose(P @ X, X, rtol=1e-13, atol=0)


def test_iterations_that_do_not_converge_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristic, "ITERATIONS", ConjugateGradient(1e-12, max_iterations=2))
    rng = np.random.default_rng(0)
    problem = Problem(Schema({"a": 6, "b": 7}), {"detailed": rng.uniform(1, 9, (6, 7)), "a": 1.0, "b": 1.0})
    with pytest.raises(ConvergenceError, match="solver='cholesky'"):
        blue(problem, "sea_blue") @ rng.normal(size=problem.observed.size)


@refused(
    (Problem.from_matrix([[1.0, -1.0]], 1.0), "no tables"),
    (Problem(SQUARE, {"A": [1.0, np.inf], "total": 1.0}), "not measured"),
    (Problem(Schema({"a": 3}, {"a": {"r": [0, 1, 1]}}), {"a": [1.0, 2, 3], "r": 1.0}), "recodes"),
    error=UnsupportedProblemError,
)
def test_what_it_cannot_take(problem: Problem) -> None:
    blue(problem, "sea_blue")


@pytest.mark.parametrize(("count", "levels"), [(330, 10), (1_100, 2)])
def test_variables_whose_joint_table_no_number_counts(count: int, levels: int) -> None:
    schema = Schema({f"v{i}": levels for i in range(count)})
    P = blue(Problem(schema, dict.fromkeys(schema.names, 1.0)))
    y = np.random.default_rng(0).normal(size=(count, levels))
    totals = y.sum(axis=1)
    expected = y + (totals.mean() - totals)[:, None] / levels
    np.testing.assert_allclose((P @ y.ravel()).reshape(y.shape), expected, atol=1e-13)
    np.testing.assert_allclose(P.variances(), 1 - 1 / levels + 1 / (levels * count), rtol=1e-12)


def test_a_recode_among_many_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10^12 joint cells; the tables have 7,054, and are swept whether or not loops can be compiled."""
    names = [f"v{i}" for i in range(12)]
    schema = Schema(dict.fromkeys(names, 10), recodes={"v0": {"coarse": [0, 0, 0, 1, 1, 2, 2, 2, 2, 2]}})
    pairs = [*combinations(names, 2), *(("coarse", name) for name in names[1:])]
    tables = {"total": 1.0, "coarse": 2.0} | dict.fromkeys(names, 2.0) | {f"{a} * {b}": 3.0 for a, b in pairs}
    problem = Problem(schema, tables)
    y = np.random.default_rng(0).normal(100, 1, problem.observed.size)
    expected = blue(problem, "cholesky") @ y
    for numba in (True, False):
        monkeypatch.setattr(compiled, "has_numba", lambda found=numba: found)
        np.testing.assert_allclose(blue(problem) @ y, expected, atol=1e-8)
    monkeypatch.setattr(assumptions, "free_memory", lambda: 1e5)
    with pytest.raises(UnsupportedProblemError, match=r"7\.276 TiB of cells of all its variables together"):
        blue(problem, "sea_blue")
    assert "chose cholesky" in blue(problem).info.reason
