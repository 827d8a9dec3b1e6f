"""Tables as arrays of xarray, in and out."""

import sys

import numpy as np
import pytest

from blue_solvers import estimate, read_tables
from constraint_builders import Problem, Schema, Spine, gallery
from tests.helpers.refused import refused, refuses

xarray = pytest.importorskip("xarray")

SCHEMA = Schema({"sex": ["f", "m"], "age": ["young", "old", "older"]}, {"age": {"adult": ["minor", "grown", "grown"]}})


def dataset() -> xarray.Dataset:
    labels = {"age": ["young", "old", "older"], "sex": ["f", "m"]}
    both = xarray.DataArray([[1.0, 2], [3, np.nan], [5, 6]], labels, ["age", "sex"])
    spread = xarray.DataArray([[1.0, 1, 1], [2, 2, 2]], {"sex": ["f", "m"], "age": labels["age"]}, ["sex", "age"])
    total = {"n": xarray.DataArray(22.0), "n variance": xarray.DataArray(0.0)}
    return xarray.Dataset({"counts": both, "counts_std_error": spread, **total})


def test_in() -> None:
    problem, y = read_tables(dataset())
    assert problem.schema == Schema({"age": ["old", "older", "young"], "sex": ["f", "m"]})
    assert problem.observed.names == ("total", "age * sex")
    np.testing.assert_array_equal(y, [22, 3, np.nan, 5, 6, 1, 2])
    np.testing.assert_array_equal(problem.variances, [0, 1, np.inf, 1, 4, 1, 4])
    assert estimate(problem, y).tables["age * sex"][0, 1] == pytest.approx(22 - 17)


def test_labels_of_a_schema_in_another_order() -> None:
    schema = Schema({"sex": ["m", "f"], "age": ["older", "old", "young"]})
    problem, y = read_tables(dataset(), schema)
    np.testing.assert_array_equal(problem.observed.tables(y)["age * sex"], [[6, 5], [np.nan, 3], [2, 1]])
    variances = problem.observed.tables(problem.variances)["age * sex"]
    np.testing.assert_array_equal(variances, [[4, 1], [np.inf, 1], [4, 1]])


def measured(values: list[float], labels: list[str], error: float) -> xarray.Dataset:
    """One table by age, and its standard errors."""
    arrays = {"n": values, "n_se": np.full(len(values), error)}
    return xarray.Dataset({name: xarray.DataArray(own, {"age": labels}, ["age"]) for name, own in arrays.items()})


def test_labels_that_count_twice_and_what_is_doubtful_are_told_as_of_frames() -> None:
    overlapping = measured([130.0, 20, 90, 240], ["0-17", "0-4", "5-17", "18+"], 30.0)
    with pytest.raises(ValueError, match="'0-17' and '0-4' count some people twice"):
        read_tables(overlapping)
    beside = measured([31_007.0, 17_011, 48_018, 9_001], ["north", "east", "hills", "coast"], 0.1)  # the third, of two
    with pytest.raises(ValueError, match="'hills' counts as many as 'north' and 1 more together"):
        read_tables(beside)
    with pytest.raises(ValueError, match="is 'percent' a count"):
        read_tables(measured([7.0, 8, 53], ["a", "b", "percent"], 1.0))
    with pytest.raises(ValueError, match="dimension 'age' has both 'A' and 'a'"):
        read_tables(measured([7.0, 8, 53], ["a", "A", "b"], 1.0))
    swapped, _ = read_tables(measured([1.0, 2, 3], ["a", "b", "c"], 50.0))
    assert swapped.understood.notes == ("every value is smaller than its standard error: are the columns swapped?",)


def test_out_and_in_again() -> None:
    problem = Problem(
        SCHEMA, {"total": 2.0, "sex * adult": 3.0, "age * sex": 1.0}, desired=["total", "adult * sex", "sex"]
    )
    est = estimate(problem, np.arange(11.0))
    out = est.to_xarray()
    assert out["adult * sex estimate"].dims == ("adult", "sex")
    np.testing.assert_array_equal(
        out["adult * sex estimate"].sel(adult="grown", sex="m"), est.tables["adult * sex"][1, 1]
    )
    errors = problem.desired.tables(est.std_errors)
    np.testing.assert_array_equal(out["adult * sex std_error"], errors["adult * sex"])
    again, y = read_tables(out, SCHEMA)
    tables, variances = again.observed.tables(y), again.observed.tables(again.variances)
    assert tables.keys() == est.tables.keys()
    for name, cells in est.tables.items():
        np.testing.assert_array_equal(tables[name], cells)
        np.testing.assert_allclose(variances[name], errors[name] ** 2)


def test_geounits_are_the_first_dimension() -> None:
    spine = Spine.from_geoids(["440010301001000", "440010301001001", "440030201011000"])
    problem = Problem(SCHEMA, spine=spine, observed={"Block": {"sex": 1.0}}, desired={"County": ["sex", "total"]})
    out = estimate(problem, np.arange(6.0)).to_xarray()
    assert out["County: sex estimate"].sel(County="44003", sex="m") == 5
    assert out["County: total estimate"].dims == ("County",)
    with pytest.raises(ValueError, match=r"array 'County: sex estimate' is of a geography, .* long table"):
        read_tables(out)
    with_counties = Schema({"County": ["44001", "44003"], "sex": ["f", "m"]})
    _, y = read_tables(out[["County: sex estimate", "County: sex std_error"]], with_counties)
    np.testing.assert_allclose(y, [2, 4, 4, 5])


def test_what_a_person_calls_by_a_dimension_is_no_geography() -> None:
    called = measured([7.0, 8, 53], ["a", "b", "c"], 1.0).rename(
        {"n": "age: persons estimate", "n_se": "age: persons_se"}
    )
    np.testing.assert_array_equal(read_tables(called)[1], [7, 8, 53])


def test_where_labels_are_said_to_be_levels_none_is_asked_about() -> None:
    shares = measured([7.0, 8, 53], ["0-25%", "25-50%", "0-50%"], 1.0)
    refuses("say total= '[*]' or give a schema", read_tables, shares)
    for total in "*", ["*"]:
        np.testing.assert_array_equal(read_tables(shares, total=total)[1], [7, 53, 8])


@refused(
    (lambda own: own.drop_vars("n variance"), "array 'n' says nothing of its precision"),
    (lambda own: own.assign({"m": own["n"], "m_se": own["n variance"]}), "one table is given twice"),
    (lambda own: own.assign({"n_se": own["n"]}), "both say how precise 'n' is"),
    (lambda own: own.assign({"n variance": own["n"] - 23}), "has a negative entry"),
    (lambda own: own.rename({"counts_std_error": "counts std_error (%)"}), "is in percent: name it cv_percent"),
    (
        lambda own: own.rename({"counts_std_error": "counts_cv_percent"}).assign(counts=own["counts"] * 0),
        "array 'counts': counts_cv_percent says nothing about a value of 0",
    ),
    (lambda own: own.assign(counts_std_error=own["counts_std_error"] * 1e-200), "is too small for a variance"),
)
def test_what_is_wrong_is_named(change: object) -> None:
    read_tables(change(dataset()))  # type: ignore[operator]


def test_options_of_frames_are_refused() -> None:
    with pytest.raises(TypeError, match="a dataset says its tables by its dimensions"):
        read_tables(dataset(), names_to="sex")


def test_without_xarray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r"labelled arrays need xarray: pip install 'blue-solvers\[arrays\]'"):
        estimate(gallery.toy(), [1.0, 2, 3, 6]).to_xarray()
