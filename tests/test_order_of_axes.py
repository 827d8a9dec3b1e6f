"""Values follow the order of the variables in the name that they are given under; labels go before positions.

The reference is dense least squares over the detailed cells, with every array written down once, by its axes.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from blue_solvers import SeaBlue, blue
from blue_solvers.nonnegative import nnls
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from blue_solvers.spine_design.report import entity_workload
from blue_solvers.streaming import partition_source, stream
from constraint_builders import Problem, Schema, Spine
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.files import read_noisy_measurements
from constraint_builders.files.measurement_writer import write_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.geography import Entities
from tests.helpers.every import every
from tests.helpers.partitioned import assert_same, streamed
from tests.helpers.refused import refuses


def turned(array: Float, axes: str, order: str) -> Float:
    """An array over `axes` with its axes in another order."""
    return np.asarray(array).transpose([axes.index(axis) for axis in order])


SPINE = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])


def test_streaming_turns_tables_to_the_order_of_its_files(tmp_path: Path) -> None:
    schema = Schema({"a": 2, "b": 3})
    observed = {"State": {"b * a": 2.0}, "County": {"a * b": 3.0}}
    problem = Problem(schema, observed, {"State": ["a"], "County": ["b * a"]}, spine=SPINE)
    y = np.random.default_rng(2).normal(9, 3, problem.observed.size)
    assert_same(problem, y, blue(problem, "cholesky"), streamed(tmp_path, problem, y, at="State"))
    measured = problem.observed.tables(y)
    values = {
        ("State", "b * a"): measured["State", "b * a"],
        ("County", "b * a"): measured["County", "a * b"].transpose(0, 2, 1),
    }

    def read(level: str, table: str, ranks: Float) -> Float:
        return values[level, table][ranks]

    own = {"State": {"b * a": 2.0}, "County": {"b * a": 3.0}}
    partition_source(tmp_path / "read", schema, SPINE, own, {"State": ["a"], "County": ["b * a"]}, read, at="State")
    stream(tmp_path / "read", tmp_path / "other")
    assert_same(problem, y, blue(problem, "cholesky"), tmp_path / "other")


SETTINGS = """
geolevels = ["State", "County"]
[variables]
a = ["x", "y"]
b = ["u", "v", "w"]
[budget]
[budget.losses]
"a * b" = [1, 1]
"""


def test_stored_results_and_measurement_files_are_in_the_order_of_the_schema(tmp_path: Path) -> None:
    settings = parse_settings(SETTINGS, "settings")
    observed = {"State": {"b * a": 2.0}, "County": {"b * a": 3.0}}
    cells = np.arange(24.0, 36.0).reshape(2, 2, 3)  # county, a, b
    problem = Problem(settings.schema, observed, spine=SPINE)
    tables = {("State", "a * b"): cells.sum(axis=0, keepdims=True), ("County", "a * b"): cells}
    P, y = blue(problem), problem.vector(tables)
    write_result(tmp_path / "result", P, P @ y, np.sqrt(P.variances()), settings)
    stored = Result(tmp_path / "result")
    asked = stored.ask("County", stored.geounits("County", ["44003"]), [{"a": ["y"], "b": ["u"]}, {"a": ["x"]}])
    assert np.allclose(asked.estimate, [33.0, 93.0])
    empty = np.zeros((2, 3, 2), dtype=bool)
    empty[0, 2, 0] = True
    write_noisy_measurements(tmp_path / "files", problem, y, zeros={("County", "b * a"): empty}, partition="State")
    again = read_noisy_measurements(tmp_path / "files", settings)
    assert np.array_equal(again.problem.observed.tables(again.y)["County", "detailed"], cells)
    assert np.argwhere(again.problem.zeros.empty[1:]).tolist() == [[0, 0, 2]]


def test_entities_are_summed_in_the_order_that_is_asked_for() -> None:
    schema = Schema({"a": 2, "b": 3})
    problem = Problem(schema, {"County": {"b * a": 3.0}}, {"State": ["a * b"], "County": ["b * a"]}, spine=SPINE)
    y = np.random.default_rng(2).normal(9, 3, problem.observed.size)
    entities = Entities.from_labels({"place": ["p", "q"]}, outside=False)
    W = entity_workload(problem, entities, "b * a")
    found = (W.T @ (blue(problem) @ y)).reshape(2, 3, 2)
    assert np.allclose(found, problem.observed.tables(y)["County", "b * a"])
    W = entity_workload(problem, Entities.from_labels({"place": ["p", "p"]}, outside=False), "b * a")
    assert np.allclose((W.T @ (blue(problem) @ y)).reshape(3, 2), found.sum(axis=0))


def test_non_negative_fits_follow_the_names() -> None:
    schema = Schema({"a": 2, "b": 2})
    cells = np.array([[5.0, -3.0], [20.0, 7.0]])
    straight = Problem(schema, {"a * b": 1.0, "a": 1.0})
    turned_ = Problem(schema, {"b * a": 1.0, "a": 1.0})
    sums = cells.sum(axis=1)
    one = nnls(straight, straight.vector({"a * b": cells, "a": sums}))
    other = nnls(turned_, turned_.vector({"b * a": cells.T, "a": sums}))
    assert np.allclose(one.tables()["a * b"], other.tables()["b * a"].T)


# ---- labels


SCHEMA = Schema({"sex": ["f", "m"], "vote": ["n", "y"], "age": ["f", "m", "z"]})
PROBLEM = Problem(SCHEMA, {"vote * sex": 1.0})
CELLS = np.array([[1.0, 2], [30, 40]])  # vote, sex


def frames() -> dict[str, object]:
    by_sex = pd.DataFrame(CELLS.T, index=pd.Index(["f", "m"], name="sex"), columns=pd.Index(["n", "y"], name="vote"))
    records = by_sex.stack()
    return {
        "as named": by_sex.T,
        "turned": by_sex,
        "rows in another order": by_sex.iloc[::-1],
        "columns in another order": by_sex[["y", "n"]],
        "without names": by_sex.rename_axis(None).rename_axis(None, axis=1).iloc[::-1],
        "a series of two levels": records.sample(frac=1, random_state=3),
        "data array": data_array(CELLS.T, ("sex", "vote"), {"sex": ["f", "m"], "vote": ["n", "y"]}),
        "data array in another order": data_array(CELLS.T[::-1], ("sex", "vote"), {"sex": ["m", "f"]}),
    }


def data_array(values: Float, dims: tuple[str, ...], coords: dict[str, list[str]]) -> object:
    """What an array of xarray shows of itself."""
    found = {name: SimpleNamespace(values=np.array(labels)) for name, labels in coords.items()}
    return SimpleNamespace(values=values, dims=dims, coords=found, ndim=values.ndim)


@every("kind", frames())
@every("name", ["vote * sex", "sex * vote"])
def test_labels_are_followed(kind: str, name: str) -> None:
    given_ = frames()[kind]
    assert PROBLEM.vector({name: given_}).tolist() == CELLS.ravel().tolist()
    assert Problem(SCHEMA, {name: given_}, ["vote * sex"]).observed.names == (name,)
    own = Problem(SCHEMA, {name: given_})
    assert own.observed.tables(own.variances)[name].tolist() == (CELLS if name[0] == "v" else CELLS.T).tolist()


def bad_frames() -> list[tuple[object, str]]:
    by_sex = pd.DataFrame(CELLS.T, index=pd.Index(["f", "m"], name="sex"), columns=pd.Index(["n", "y"], name="vote"))
    return [
        (pd.DataFrame(CELLS), "do not tell which of"),
        (by_sex.rename(index={"m": "q"}), "'q' is no label of 'sex'"),
        (by_sex.iloc[:1], "sex=m is missing"),
        (by_sex.iloc[[0, 0, 1]], "sex=f is given twice"),
        (by_sex.rename_axis("age"), "has labels of 'age': the table has"),
        (by_sex.rename_axis("vote"), "along two axes"),
        (by_sex.stack().reset_index(), "labels"),
        (data_array(CELLS, ("sex", "age"), {}), r"must have the dimensions \['vote', 'sex'\]"),
        (data_array(CELLS, ("sex", "vote"), {"sex": ["f", "q"]}), "'q' is no label of 'sex'"),
        (data_array(np.ones((2, 3)), ("sex", "vote"), {}), "has 3 entries along 'vote'"),
    ]


@every(("given_", "message"), bad_frames())
def test_labels_that_do_not_fit_are_refused(given_: object, message: str) -> None:
    refuses(message, PROBLEM.vector, {"vote * sex": given_})
    refuses(message, Problem, SCHEMA, {"vote * sex": given_})


def test_zeros_and_geounits_are_labelled_too() -> None:
    empty = pd.DataFrame([[True, False], [False, False]], index=["m", "f"], columns=["n", "y"])
    problem = Problem(SCHEMA, {"vote * sex": 1.0}, zeros={"vote * sex": empty})
    x = blue(problem) @ problem.vector({"vote * sex": CELLS})
    assert x.tolist() == [1, 0, 30, 40]
    own = Problem(SCHEMA, {"County": {"sex": 1.0}}, spine=SPINE)
    frame = pd.DataFrame([[1.0, 2], [3, 4]], index=["44003", "44001"], columns=["f", "m"])
    assert own.vector({("County", "sex"): frame}).tolist() == [3, 4, 1, 2]


def test_forecasts_are_laid_out_by_the_rows_of_s() -> None:
    S = pd.DataFrame([[1, 1], [1, 0], [0, 1]], index=["all", "north", "south"])
    values = pd.DataFrame({"one": [1.0, 2, 4], "two": [5.0, 6, 7]}, index=["north", "south", "all"])
    spread = pd.Series([3.0, 1, 2], index=["all", "north", "south"])
    problem = Problem.from_summing_matrix(S, spread.iloc[::-1])
    assert problem.variances.tolist() == [3, 1, 2]
    P, ordered = blue(problem), values.loc[S.index].to_numpy()
    assert np.array_equal(P @ values, P @ ordered)
    assert np.array_equal(P @ values["two"], P @ ordered[:, 1])
    assert np.array_equal(problem.vector({"x": values.rename_axis("unique_id")}), ordered)
    plain = blue(Problem.from_summing_matrix(S.to_numpy(), [3.0, 1, 2]))
    with pytest.raises(ValueError, match="'north' is no label of 'node'"):
        plain @ values
    assert np.array_equal(plain @ values.loc[S.index].reset_index(drop=True), P @ ordered)
    assert np.array_equal(plain @ pd.Series([2.0, 4, 1], index=[1, 2, 0]), plain @ np.array([1.0, 2, 4]))
    refuses("S has a row twice", Problem.from_summing_matrix, S.iloc[[0, 0, 1]], 1.0)


def test_a_layout_without_dimensions_takes_no_labels() -> None:
    with pytest.raises(ValueError, match="labels, which say nothing here"):
        Layout(["x"], [(2,)]).vector({"x": pd.Series([1.0, 2.0], index=["p", "q"])})


def test_the_heuristic_follows_the_names_as_well() -> None:
    rng = np.random.default_rng(0)
    spread, cells = rng.uniform(1, 5, (2, 2, 3)), rng.normal(9, 3, (2, 2, 3))
    schema = Schema({"a": 2, "b": 2, "c": 3})
    straight = Problem(schema, {"a * b * c": spread, "c": 1.0}, ["a * b * c"])
    other = Problem(schema, {"c * a * b": spread.transpose(2, 0, 1), "c": 1.0}, ["b * c * a"])
    sums = cells.sum(axis=(0, 1))
    one = blue(straight, SeaBlue()) @ straight.vector({"a * b * c": cells, "c": sums + 1})
    two = blue(other, SeaBlue()) @ other.vector({"c * a * b": cells.transpose(2, 0, 1), "c": sums + 1})
    assert np.allclose(two.reshape(2, 3, 2).transpose(2, 0, 1), one.reshape(2, 2, 3))
