"""Problems: what they tell about themselves, and every bad input by its message."""

import re
from typing import Any

import numpy as np
import pytest

from constraint_builders import Problem, Schema, gallery
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

SCHEMA = Schema({"sex": 2, "age": 3}, recodes={"age": {"adult": [0, 1, 1]}})
OBSERVED: dict[str, Any] = {"total": 4.0, "sex": 1.0, "detailed": 2.0}


def problem(**changes: Any) -> Problem:
    return Problem(SCHEMA, OBSERVED | changes)


def tables(**changes: Any) -> dict[str, Any]:
    return {"total": 9.0, "sex": np.ones(2), "detailed": np.ones((2, 3))} | changes


def test_desired_defaults_to_observed() -> None:
    assert problem().desired.names == ("total", "sex", "detailed")


@every("value", [2, 2.0, np.float64(2.0), np.full((2, 3), 2.0), np.array(2)])
def test_equal_variances_are_one_number_or_many(value: Any) -> None:
    """And say the same, also of what is exact, not measured, or asked for cell by cell."""
    others = {"total": 0, "sex": np.inf}
    found = Problem(SCHEMA, others | {"detailed": value}, desired=["total", "detailed"])
    assert found == Problem(SCHEMA, others | {"detailed": 2.0}, desired=["total", "detailed"])
    assert found.variances.tolist() == [0, np.inf, np.inf] + [2] * 6
    assert found.exact.tolist() == [True] + [False] * 8
    assert found.unmeasured.tolist() == [False, True, True] + [False] * 6
    assert found.has_unmeasured
    assert not problem().has_unmeasured
    assert found.table_variances.tolist() == [0, np.inf, 2]
    assert found.measured_tables.tolist() == [True, False, True]


def test_equal_variances_are_laid_out_where_somebody_asks() -> None:
    own = gallery.cube(3, 4)
    assert "variances" not in vars(own.noise)
    assert own.variances.shape == (125,)


@every("value", [True, -1, -1.0, np.nan, 1e-200, 10**400, "2", 2j])
def test_a_number_that_is_no_variance_is_refused_by_name(value: Any) -> None:
    refuses(r"^variance of table 'sex'", problem, sex=value)


def test_all_is_every_plain_marginal_and_the_observed_tables() -> None:
    everything = Problem(SCHEMA, {"sex * adult": 1.0, "sex * age": 1.0}, "all")
    assert set(everything.desired.names) == {"total", "sex", "age", "sex * adult", "detailed"}


def test_names_come_back_as_asked_for() -> None:
    asked = Problem(SCHEMA, {"age * sex": 1.0}, ["adult * sex", "age"])
    assert asked.observed.names == ("age * sex",)
    assert asked.desired.names == ("adult * sex", "age")
    assert asked.desired.shape("sex * adult") == (2, 2)


def test_assumptions() -> None:
    assert problem().assumptions.A3
    assert not problem(sex=[1.0, 2.0]).assumptions.A3
    assert problem(sex=[1.0, 1.0]).assumptions.A3
    assert problem().assumptions.A2


def test_what_the_caller_passes_stays_the_callers() -> None:
    variance = np.array([1.0, 2.0])
    kept = problem(sex=variance)
    variance[0] = 100
    assert kept.variances[1] == 1


@refused(
    ({}, "at least one observed table"),
    ({"zip": 1.0}, "'zip' is not a variable or recode"),
    ({"sex * zip": 1.0}, "'zip' is not a variable"),
    ({"age * adult": 1.0}, "uses a variable twice"),
    ({"sex": -1.0}, r"variance of table 'sex' is negative \(-1"),
    ({"sex": [1.0, -2.0]}, r"negative \(-2"),
    ({"sex": np.nan}, "variance of table 'sex' is NaN"),
    ({"sex": "x"}, "variance of table 'sex' is 'x': give a number, not text"),
    ({"sex": [1.0, 2.0, 3.0]}, r"must be a number or have shape \(2,\)"),
    ({"sex": [[1.0, 2.0]]}, r"must be a number or have shape \(2,\)"),
    ({"sex": 1j}, "give a number, not a complex"),
    ({"sex": None}, "no variance for table 'sex', cell"),
    ({"sex": np.inf}, "not estimable"),
    ({"sex": 1.0, "age": np.inf}, "table 'age' is not estimable: no observed table contains it"),
    ({"sex * age": 1.0, "age * sex": 1.0}, "names of one table"),
)
def test_bad_observed(observed: dict) -> None:
    Problem(SCHEMA, observed)


@refused(
    (["sex * age"], r"table 'sex \* age' is not estimable: no observed table contains it"),
    (["detailed"], "'detailed' is not estimable"),
    (["adult * sex"], "not estimable"),
    (["zip"], "'zip' is not a variable"),
    (["sex", "sex"], "names of one table"),
    ([], "no table is desired"),
    ("sex", "must be a list of tables, or 'all'"),
)
def test_bad_desired(desired: Any) -> None:
    Problem(SCHEMA, {"sex": 1.0, "age": 1.0}, desired)


def test_cells_that_nothing_determines_are_refused_by_name() -> None:
    refuses(r"table 'sex' is not estimable: its cell \(sex=0\) rests on cells", Problem, SCHEMA, {"sex": [np.inf, 1.0]})
    assert Problem(SCHEMA, {"sex": [np.inf, 1.0], "total": 1.0}).rank == 0


@every("truth", [np.zeros(8), np.full(9, np.nan), {"sex": [1, 2]}, np.arange(9.0)])
def test_bad_truth(truth: Any) -> None:
    refuses(r"truth|no values", Problem, SCHEMA, OBSERVED, truth=truth)


@refused(
    ({"sex": [1.0, np.nan]}, r"table 'sex', cell \(sex=1\) is NaN: give a finite number"),
    ({"total": np.inf}, "table 'total' is infinite"),
    ({"detailed": np.full((2, 3), -np.inf)}, r"table 'detailed', cell \(sex=0, age=0\) is infinite"),
)
def test_bad_vector(change: dict) -> None:
    problem().vector(tables(**change))


def test_nan_only_where_not_measured() -> None:
    partly = problem(sex=[np.inf, 1.0])
    assert np.isnan(partly.vector(tables(sex=[np.nan, 5.0]))[1])
    refuses(r"table 'sex', cell \(sex=1\) is NaN", partly.vector, tables(sex=[np.nan, np.nan]))
    refuses(r"table 'sex', cell \(sex=0\) is infinite", partly.vector, tables(sex=[np.inf, 5.0]))


@every("unit", [1e-12, 1e-6, 1.0, 1e9])
def test_exact_values_contradict_one_another_in_any_unit(unit: float) -> None:
    a = Schema({"a": 2})
    known = {"a": 0.0, "total": 0.0}
    for given, options in (
        (known, {}),
        ({"a": 0.0, "total": unit**2}, {"zeros": {"a": [True, False]}}),
        ({"a": [0.0, unit**2], "total": unit**2}, {"equalities": ([[1, 0, 0]], [2 * unit])}),
    ):
        with pytest.raises(ValueError, match=re.escape(f"contradict one another by {unit:.6g} between")):
            Problem(a, given, **options).check_vector(unit * np.array([1.0, 2, 4]))
    Problem(a, known).check_vector(unit * np.array([0.1, 0.2, 0.1 + 0.2]))
    Problem(a, {**known, "a": [0.0, unit**2]}, zeros={"a": [True, False]}).check_vector(
        unit * np.array([0.1 + 0.2 - 0.3, 5, 5])
    )


def test_a_value_too_large_to_be_squared_is_named() -> None:
    said = r"table 'sex', cell \(sex=1\) is -1e\+101, beyond 1e\+100: give values in larger units"
    refuses(said, problem().vector, tables(sex=[1e100, -1e101]))
    assert problem(sex=[np.inf, 1.0]).vector(tables(sex=[1e200, 5.0])).size == 9


def test_small_whole_counts_contradict_one_another_beside_large_ones() -> None:
    exact = Problem(Schema({"a": 3}), {"a": 0.0, "total": 0.0})
    exact.check_vector(np.array([1e13, 2, 1, 1e13 + 3]))
    y = np.array([1e13, 2, 1, 1e13 + 2])
    refuses("contradict one another by 1 between 'a' and 'total'", exact.check_vector, y)
    beside = Problem(Schema({"a": 3, "b": 2}), {"a": 0.0, "total": 0.0, "b": 1.0})  # what has noise need not be whole
    refuses("contradict one another by 1 between 'a' and 'total'", beside.check_vector, np.append(y, [0.5, 2.25]))


def test_large_exact_values_are_not_contradictions_by_rounding() -> None:
    assert problem(total=0.0, sex=0.0).vector(tables(sex=[1e9 / 3, 2e9 / 3], total=1e9)).size == 9


EQUALITIES = np.array([[1.0, 1.0, -1.0]])


@refused(
    ((np.ones((2, 3)) * np.nan, np.ones(3)), "A holds NaN"),
    ((np.ones((2, 0)), np.ones(0)), "at least one column"),
    (([["x"]], [1.0]), "A does not hold numbers but text"),
    ((EQUALITIES, np.ones(2)), r"covariance must be a number or have shape \(3,\) or \(3, 3\): got \(2,\)"),
    ((EQUALITIES, [1.0, -1.0, 1.0]), "covariance is negative"),
    ((EQUALITIES, [1.0, np.nan, 1.0]), "covariance is NaN"),
    ((EQUALITIES, 2 * np.ones((3, 3)) - np.eye(3)), "not positive semi-definite"),
    ((EQUALITIES, np.ones(3), np.ones(2)), r"b must have shape \(1,\)"),
    ((EQUALITIES, np.ones(3), [np.inf]), "b holds NaN or infinite"),
    ((EQUALITIES, [1.0, np.inf, np.inf]), "not estimable"),
)
def test_bad_matrix_problems(arguments: tuple) -> None:
    Problem.from_matrix(*arguments)


def test_matrix_problem() -> None:
    p = Problem.from_matrix(np.vstack([EQUALITIES, 2 * EQUALITIES]), 2.0, [1.0, 2.0])
    assert p.rank == 1
    assert p.constraint_matrix("all").shape == (2, 3)
    A, b = p.equations()
    assert A.shape == (1, 3)
    assert b[0] / A[0, 0] == 1
    assert p.vector({"x": [1, 2, 3]}).tolist() == [1, 2, 3]
    refuses("no detailed table", p.marginal_matrix)


def test_repr_counts() -> None:
    assert repr(gallery.toy()) == "Problem(2 observed tables, 4 cells; 2 desired tables, 4 cells)"


def test_empty_cells_determine_a_table_with_others() -> None:
    problem = Problem(Schema({"a": 2, "b": 2}), {"a": 1.0}, ["a * b"], zeros={"b": [True, False]})
    np.testing.assert_allclose(problem.tabulate(np.array([[3.0], [4.0]]))[:, 0], [0, 3, 0, 4])
