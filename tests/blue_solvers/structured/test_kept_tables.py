"""Tables whose recodes would couple too many cells are left out of the preconditioner, not of the estimate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import ConjugateGradient, blue
from blue_solvers.components import assumptions
from blue_solvers.structured import nearest
from blue_solvers.structured.nearest import structure_of, tables_left_out, why_no_structure
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.oracles.compare import Tolerance, wrong_estimates, wrong_variances
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.invent import Kind, taken

SCHEMA = Schema(
    {"a": 5, "b": 4, "c": 2},
    recodes={"a": {"p": [0, 0, 1, 1, 1], "q": [0, 1, 1, 2, 2]}, "b": {"r": [0, 1, 1, 0], "s": [0, 0, 1, 1]}},
)
TABLES = ["total", "c", "p * s", "q * r * c", "p * b", "q", "a * c"]
AROUND = ConjugateGradient(rtol=1e-12, preconditioner="two_pass")


@pytest.fixture(autouse=True)
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assumptions, "MOST_GROUPS", 7)


KIND = Kind(unmeasured=False, equalities=False, cellwise=True, decades=1.0, nested=True)


def has_recodes(described: Description) -> bool:
    return len(described.groups) > 1


@examples(25, usual=3)
@given(seed=st.integers(0, 10**6))
def test_the_estimate_is_that_of_all_tables(seed: int) -> None:
    """With recodes, on a spine or not, with zeros and exact tables or without."""
    found = taken(range(seed, seed + 1000), KIND, has_recodes)
    own, problem = next(both for both in found if why_no_structure(both[1]) is None and tables_left_out(both[1]))
    P = blue(problem, AROUND)
    X, info = P.apply(own.y)
    tolerance = Tolerance(1e-8, 1e-7)
    assert wrong_estimates(info, X + P.offset, own, tolerance) == []
    assert wrong_variances(P, own, tolerance) == []
    dot_test(P)


def test_large_tables_with_recodes_go_first() -> None:
    problem = Problem(SCHEMA, dict.fromkeys([*TABLES, "detailed"], 1.0))
    assert tables_left_out(problem) == ("p * s", "q * r * c")
    kept = [0, 1, 4, 5, 6, 7]
    assert [problem.observed.names[i] for i in kept] == ["total", "c", "p * b", "q", "a * c", "detailed"]
    *_, cells = structure_of(problem)
    np.testing.assert_array_equal(cells, problem.observed.cells(kept))


def test_more_tables_are_kept_where_few_groups_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few groups as are cheap where that can be, else as few as can be solved at all."""
    problem = Problem(SCHEMA, dict.fromkeys([*TABLES, "detailed"], 1.0))
    usual = tables_left_out(problem)
    monkeypatch.setattr(nearest, "FEW_GROUPS", 3)
    assert set(tables_left_out(problem)) > set(usual)
    monkeypatch.setattr(nearest, "FEW_GROUPS", 0)
    assert why_no_structure(problem) is None
    assert tables_left_out(problem) == usual


def test_recodes_that_are_only_desired_are_no_hindrance() -> None:
    problem = Problem(SCHEMA, {"total": 1.0, "detailed": np.linspace(1, 2, 40).reshape(5, 4, 2)}, ["p * s", "q * r"])
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    np.testing.assert_allclose(blue(problem, AROUND) @ y, blue(problem, "dense") @ y, atol=1e-9)


def test_equalities_and_exact_cells_keep_their_tables() -> None:
    tables = {"p * s": 1.0, "q * r * c": 2.0, "q": 1.0, "detailed": np.linspace(1, 2, 40).reshape(5, 4, 2)}
    layout = Problem(SCHEMA, tables).observed
    row = np.zeros((1, layout.size))
    row[0, layout.slice("q")] = 1
    problem = Problem(SCHEMA, tables, equalities=(row, [300.0]))
    assert "q" not in tables_left_out(problem)
    y = np.random.default_rng(0).normal(10, 1, problem.observed.size)
    P, dense = blue(problem, AROUND), blue(problem, "dense")
    np.testing.assert_allclose(P @ y + P.offset, dense @ y + dense.offset, atol=1e-8)
    exact = Problem(SCHEMA, {**tables, "q": [0.0, 1.0, 1.0]})
    assert "q" not in tables_left_out(exact)
    np.testing.assert_allclose(blue(exact, AROUND) @ y, blue(exact, "dense") @ y, atol=1e-8)


def test_what_nothing_else_contains_cannot_be_left_out() -> None:
    problem = Problem(SCHEMA, {"p * s": 1.0, "q * r * c": np.linspace(1, 2, 12).reshape(3, 2, 2)})
    assert "groups, more than 7" in why_no_structure(problem)


def test_auto_says_so() -> None:
    problem = Problem(SCHEMA, dict.fromkeys([*TABLES, "detailed"], 1.0))
    P = blue(problem)
    assert P.info.exact
    assert "groups" in P.info.reason
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    np.testing.assert_allclose(P @ y, blue(problem, "dense") @ y, atol=1e-9)
