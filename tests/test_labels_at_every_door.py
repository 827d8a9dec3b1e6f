"""One rule for what has labels: it is read by them, or refused by name; no order of labelled entries changes an answer.

Entries are named by text, by whole numbers that look like positions, by codes with leading zeros, by pairs and by
categories; they come in series, frames, mappings and arrays of xarray, in any order, with names missing, repeated or
unknown. The reference is what plain arrays give, whose positions are written down here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue, estimate, fit_test, intervals
from blue_solvers.adapters import answer_from
from blue_solvers.nonnegative import controlled_rounding, inverted_intervals, movements, nnls, refine_intervals
from blue_solvers.uncertainty import (
    cell_weights,
    confidence_ellipsoid,
    distribution_free_band,
    functionals,
    proved_variances,
    simultaneous_band,
)
from blue_solvers.verification import certify
from constraint_builders import Areas, Entities, Problem, Schema, Spine, joint
from constraint_builders.arrays import Float
from constraint_builders.geography import from_partitions
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise, release_counts
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses

xarray = pytest.importorskip("xarray")

NAMES: dict[str, Sequence[Any]] = {
    "text": ["all", "north", "n1", "n2", "south"],
    "positions out of order": [2, 0, 3, 1, 4],
    "numbers from 1": [1, 2, 3, 4, 5],
    "codes": ["01", "1", "001", "10", "011"],
    "pairs": [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)],
    "categories": ["small", "large", "middle", "none", "huge"],
}
S = np.array([[1.0, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
Y = np.array([21.0, 9, 4, 6, 10])
SPREAD = np.array([1.0, 2, 3, 4, 5])
CORRELATED = np.diag(SPREAD) + 0.3


def index_of(kind: str, names: Sequence[Any]) -> pd.Index:
    if kind == "pairs":
        return pd.MultiIndex.from_tuples(names)
    return pd.CategoricalIndex(names) if kind == "categories" else pd.Index(names)


def series(kind: str, names: Sequence[Any], values: Float) -> Any:
    return pd.Series(values, index_of(kind, names))


CONTAINERS: dict[str, Callable[[str, Sequence[Any], Float], Any]] = {
    "series": series,
    "frame": lambda kind, names, values: pd.DataFrame({"v": values}, index_of(kind, names)),
    "mapping": lambda kind, names, values: pd.Series(values, pd.Index(names, tupleize_cols=False)).to_dict(),
    "data array": lambda kind, names, values: xarray.DataArray(values, {"own": [str(n) for n in names]}, ["own"]),
    "frame of polars": lambda kind, names, values: pl.DataFrame({"n": [str(n) for n in names], "v": values}),
    "frame of polars, numbered": lambda kind, names, values: pl.DataFrame({"n": range(len(names)), "v": values}),
}


def nodes(kind: str, sums: Any = S, **noise: Any) -> Problem:
    frame = pd.DataFrame(sums, index_of(kind, NAMES[kind]))
    return Problem.from_summing_matrix(frame, **(noise or {"variances": SPREAD}))


def table(kind: str, variances: Any = SPREAD, **more: Any) -> Problem:
    return Problem(Schema({"own": list(NAMES[kind])}), {"total": 1.0, "own": variances}, **more)


def table_alone(kind: str, **more: Any) -> Problem:
    return Problem(Schema({"own": list(NAMES[kind])}), {"own": SPREAD}, **more)


def counted(kind: str) -> Problem:
    """Blocks of a county, each with a count of one kind."""
    spine = Spine([-1, *[0] * 5], ["County", *["Block"] * 5], ["c", *map(str, NAMES[kind])])
    return Problem(Schema({"sex": 1}), {"County": {"total": 1.0}, "Block": {"total": 1.0}}, spine=spine)


def areas(kind: str, layer: Any) -> Float:
    found = Areas(list(NAMES[kind]), {"Region": _numbered(layer)})
    return found.leaves_of(0).toarray()[np.argsort(found.names("Region"))]


# what takes labelled values of five entries that have names: over nodes, along a table, of leaves
DOORS: dict[str, Callable[[str, Any], Any]] = {
    "P @ y": lambda kind, v: blue(nodes(kind)) @ v,
    "P.matvec": lambda kind, v: blue(nodes(kind)).matvec(v),
    "P.apply": lambda kind, v: blue(nodes(kind)).apply(v)[0],
    "P.estimate": lambda kind, v: blue(nodes(kind)).estimate(v).values,
    "estimate": lambda kind, v: estimate(nodes(kind), v).values,
    "P.T @ v": lambda kind, v: blue(nodes(kind)).T @ v,
    "P.rmatvec": lambda kind, v: blue(nodes(kind)).rmatvec(v),
    "P.covariance @ v": lambda kind, v: blue(nodes(kind)).covariance @ v,
    "problem.vector": lambda kind, v: nodes(kind).vector({"x": v}),
    "observed.tables": lambda kind, v: nodes(kind).observed.tables(v)["x"],
    "intervals": lambda kind, v: intervals(nodes(kind), v)[0],
    "functionals, y": lambda kind, v: functionals(nodes(kind), v, np.eye(5)).estimate,
    "functionals, W": lambda kind, v: functionals(nodes(kind), Y, v).estimate,
    "functional_covariance": lambda kind, v: blue(nodes(kind)).functional_covariance(v),
    "confidence_ellipsoid, y": lambda kind, v: confidence_ellipsoid(nodes(kind), v, np.eye(5)[:, :2]).centre,
    "confidence_ellipsoid, W": lambda kind, v: confidence_ellipsoid(nodes(kind), Y, v).centre,
    "simultaneous_band": lambda kind, v: simultaneous_band(nodes(kind), v, np.eye(5), simulations=99, rng=1)[0],
    "distribution_free_band": lambda kind, v: distribution_free_band(nodes(kind), Y, v, 0.5, draws=9, rng=1)[0],
    "fit_test": lambda kind, v: fit_test(nodes(kind), v).residuals,
    "certify, y": lambda kind, v: certify(nodes(kind), v, blue(nodes(kind)) @ Y).bound,
    "certify, x": lambda kind, v: certify(nodes(kind), Y, v).violation,
    "add_noise": lambda kind, v: add_noise(nodes(kind, np.eye(5)), v, rng=1),
    "variances": lambda kind, v: nodes(kind, variances=v).variances,
    "with_variances": lambda kind, v: nodes(kind).with_variances(v).variances,
    "values of a table": lambda kind, v: table(kind).vector({"total": 0.0, "own": v}),
    "variances of a table": lambda kind, v: table(kind, v).variances,
    "zeros of a table": lambda kind, v: table(kind, zeros={"own": _flags(v)}).zeros.empty,
    "truth by table": lambda kind, v: table_alone(kind, truth={"own": v}).truth,
    "controlled_rounding": lambda kind, v: controlled_rounding(table(kind), v, ["total"]),
    "true_vector": lambda kind, v: true_vector(counted(kind), v.reshape(5, 1) if isinstance(v, np.ndarray) else v),
    "a table of places": lambda kind, v: counted(kind).vector({"County": {"total": [0.0]}, "Block": {"total": v}}),
    "a layer of areas": areas,
    "a recode": lambda kind, v: Schema({"own": list(NAMES[kind])}, {"own": {"r": _numbered(v)}}).groups_of("r"),
}
TAKE_FRAMES = ("true_vector",)  # of two axes at least


def _flags(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: value > 9 for name, value in values.items()}
    return values > 9 if not isinstance(values, pl.DataFrame) else values


def _numbered(values: Any) -> Any:
    """Groups 0, 1, 2 of the values, whole numbers."""
    if isinstance(values, dict):
        return {name: int(value % 3) for name, value in values.items()}
    return values if isinstance(values, pl.DataFrame) else (values % 3).astype(int)


def answer(door: str, kind: str, values: Any) -> Any:
    return np.ravel(np.asarray(DOORS[door](kind, values), dtype=float))


def tried(door: str, kind: str, values: Any) -> tuple[Float | None, str]:
    """The answer, or why there is none."""
    try:
        return answer(door, kind, values), ""
    except (ValueError, TypeError) as refusal:
        return None, str(refusal)


@pytest.mark.parametrize("door", DOORS)
@examples(20, 3)
@given(
    kind=st.sampled_from(["positions out of order", *NAMES]),
    container=st.sampled_from(["series", *CONTAINERS]),
    order=st.none() | st.permutations(range(5)),
)
def test_no_order_of_labelled_values_changes_an_answer(
    door: str, kind: str, container: str, order: list[int] | None
) -> None:
    if order is None:  # sorted: numbers may then be what positions are
        order = sorted(range(5), key=lambda i: NAMES[kind][i])
    values = Y[order]
    labelled = CONTAINERS[container](kind, [NAMES[kind][i] for i in order], values)
    expected = answer(door, kind, Y)
    found, refusal = tried(door, kind, labelled)
    assert found is None or np.array_equal(found, expected)
    assert refusal.count("\n") == 0
    assert not refusal or container != "series" or door in TAKE_FRAMES, refusal


def without(names: list[Any], values: Float) -> tuple[list[Any], Float]:
    return names[:-1], values[:-1]


def surplus(names: list[Any], values: Float) -> tuple[list[Any], Float]:
    unknown = ("z", 9) if isinstance(names[0], tuple) else "zz" if isinstance(names[0], str) else 99
    return [*names, unknown], np.append(values, 1.0)


def repeated(names: list[Any], values: Float) -> tuple[list[Any], Float]:
    return [*names[:-1], names[0]], values


def renamed(names: list[Any], values: Float) -> tuple[list[Any], Float]:
    return [*names[:-1], surplus(names, values)[0][-1]], values


@pytest.mark.parametrize("door", DOORS)
@examples(12, 3)
@given(
    kind=st.sampled_from(list(NAMES)),
    container=st.sampled_from(["series", "frame", "mapping", "data array"]),
    order=st.permutations(range(5)),
    spoil=st.sampled_from([without, surplus, repeated, renamed]),
)
def test_other_labels_than_those_that_are_known_are_refused(
    door: str, kind: str, container: str, order: list[int], spoil: Callable
) -> None:
    names, values = spoil([NAMES[kind][i] for i in order], Y[order])
    if spoil is repeated and container == "mapping":
        names, values = names[:-1], values[:-1]  # a mapping cannot repeat a key: the other name is missing
    with pytest.raises((ValueError, TypeError)) as refusal:
        answer(door, kind, CONTAINERS[container](kind, names, values))
    assert "\n" not in str(refusal.value)


@given(kind=st.sampled_from(list(NAMES)), order=st.permutations(range(5)), columns=st.permutations(range(5)))
def test_covariances_are_read_by_both_labels(kind: str, order: list[int], columns: list[int]) -> None:
    names = NAMES[kind]
    frame = pd.DataFrame(
        CORRELATED[np.ix_(order, columns)],
        index_of(kind, [names[i] for i in order]),
        index_of(kind, [names[i] for i in columns]),
    )
    for problem in (nodes(kind, covariance=frame), nodes(kind).with_covariance(frame)):
        np.testing.assert_array_equal(problem.covariance.toarray(), CORRELATED)
    refuses("covariance", nodes, kind, covariance=frame.iloc[:, [0, 0, 2, 3, 4]])


@given(kind=st.sampled_from(list(NAMES)), order=st.permutations(range(5)))
def test_matrices_of_weights_are_read_by_their_leaves(kind: str, order: list[int]) -> None:
    names, weights = NAMES[kind], np.array([[1.0, 0, 2, 0, 0], [0, 1, 0, -1, 0.5]])
    frame = pd.DataFrame(weights[:, order], ["x", "y"], index_of(kind, [names[i] for i in order]))
    np.testing.assert_array_equal(Areas(list(names), {"Own": frame}).leaves_of(0).toarray(), weights)
    refuses("'Own'", Areas, list(names), {"Own": frame.iloc[:, :4]})
    refuses("'Own'", Areas, list(names), {"Own": pl.DataFrame(dict(zip("abcde", weights.T, strict=True)))})


# ---- where nothing has names, labels other than the positions are refused


def _positions(values: Any) -> Any:
    return values.astype(int) % 5 if hasattr(values, "astype") else values


FLAT = Problem(Schema({"a": 4}), {"total": 1.0, "a": 2.0})
UNTIED = Problem(Schema({"a": 5}), {"a": 2.0})  # of which anything may be true
FLAT_DOORS: dict[str, Callable[[Any], Any]] = {
    "tabulate": FLAT.tabulate,
    "tabulate_transpose": FLAT.tabulate_transpose,
    "P @ y": lambda v: blue(FLAT) @ v,
    "P.matvec": lambda v: blue(FLAT).matvec(v),
    "P.T @ v": lambda v: blue(FLAT).T @ v,
    "P.apply": lambda v: blue(FLAT).apply(v)[0],
    "P.estimate": lambda v: blue(FLAT).estimate(v).values,
    "estimate": lambda v: estimate(FLAT, v).values,
    "fit_test": lambda v: fit_test(FLAT, v).residuals,
    "certify": lambda v: certify(FLAT, v, blue(FLAT) @ Y).bound,
    "intervals": lambda v: intervals(FLAT, v)[0],
    "functionals": lambda v: functionals(FLAT, v, np.eye(5)).estimate,
    "functionals, W": lambda v: functionals(FLAT, Y, v).estimate,
    "nnls": lambda v: nnls(FLAT, v).detail,
    "movements": lambda v: [own.total for own in movements(nnls(FLAT, Y), v)],
    "refine_intervals": lambda v: refine_intervals(FLAT, Y, v, Y + 9)[0],
    "cell_weights": lambda v: cell_weights(FLAT, _positions(v)).toarray(),
    "proved_variances": lambda v: proved_variances(FLAT, _positions(v)).lower,
    "inverted_intervals": lambda v: inverted_intervals(FLAT, Y, _positions(v), draws=1, rng=1).estimate,
    "check_vector": FLAT.check_vector,
    "observed.tables": lambda v: FLAT.observed.tables(v)["a"],
    "with_variances": lambda v: FLAT.with_variances(v).variances,
    "truth": lambda v: Problem(UNTIED.schema, {"a": 2.0}, truth=v).truth,
    "add_noise": lambda v: add_noise(UNTIED, v, rng=1),
    "release_counts": lambda v: release_counts(UNTIED.replace(noise="discrete_gaussian"), v).shape,
}


@pytest.mark.few(5)
@pytest.mark.parametrize("door", FLAT_DOORS)
@examples(12, 3)
@given(order=st.permutations(range(5)))
def test_labels_of_what_has_no_names_are_refused_but_the_positions(door: str, order: list[int]) -> None:
    take = FLAT_DOORS[door]
    plain = take(Y)
    positions = take(pd.Series(Y))
    if plain is not None:
        np.testing.assert_array_equal(positions, plain)
    if order != sorted(order):
        refuses("labels", take, pd.Series(Y[order], index=order))
    refuses("labels", take, pd.Series(Y, index=list("abcde")))


ROWS = np.arange(1.0, 11).reshape(5, 2)
PLACES = Problem(
    Schema({"a": 2}),
    {"County": {"a": 1.0}, "Block": {"a": 1.0}},
    spine=Spine([-1, *[0] * 5], ["County", *["Block"] * 5], list("cvwxyz")),
)
ROW_DOORS: dict[str, Callable[[Any], Any]] = {
    "a table of places": lambda rows: PLACES.vector({"County": {"a": [[9.0, 9]]}, "Block": {"a": rows}})[2:],
    "variances": lambda rows: Problem(Schema({"own": 5, "a": 2}), {"own * a": rows}).variances,
    "weights": lambda rows: functionals(FLAT, Y, rows).estimate,
    "columns of measurements": lambda rows: blue(FLAT) @ rows,
    "equalities": lambda rows: Problem.from_matrix(rows, np.ones(2)).constraint_matrix(rows="all").toarray(),
}


@pytest.mark.parametrize("door", ROW_DOORS)
@given(
    orders=st.lists(st.permutations(range(2)), min_size=5, max_size=5),
    names=st.sampled_from([[0, 1], [1, 0], ["x", "y"]]),
    kind=st.sampled_from(["series", "data array"]),
    whole=st.sampled_from([list, tuple]),
)
def test_arrays_in_a_list_have_no_labels_of_their_own(
    door: str, orders: list[list[int]], names: list, kind: str, whole: type
) -> None:
    rows = [pd.Series(row[order], [names[i] for i in order]) for row, order in zip(ROWS, orders, strict=True)]
    if kind == "data array":
        rows = [row.rename_axis("a").to_xarray() for row in rows]
    take = ROW_DOORS[door]
    if kind == "series" and all(row.index.tolist() == [0, 1] for row in rows):
        np.testing.assert_array_equal(take(whole(rows)), take(np.stack(rows)))
        return
    refuses("labels", take, whole(rows))


@every("door", FLAT_DOORS)
def test_frames_without_an_index_are_refused(door: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for frame in (pl.DataFrame({"v": Y}), pyarrow.table({"v": Y})):
        refuses("labels", FLAT_DOORS[door], frame)


def test_arrays_of_arrow_are_arrays() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    assert FLAT.vector({"total": 21.0, "a": pyarrow.array(Y[1:])}).tolist() == Y.tolist()


# ---- names have an order

SETS: dict[str, Callable[[Any], Any]] = {
    "levels": lambda names: Schema({"a": names}),
    "leaves": lambda names: Areas(names, {}),
    "a layer": lambda names: Areas(3, {"Region": names}),
    "names of areas": lambda names: Areas(3, {}).with_layer("Own", np.eye(3), names=names),
    "groups of a recode": lambda names: Schema({"a": 3}, {"a": {"r": names}}),
    "geocodes": lambda names: Spine([-1, 0, 0], geocode=names),
    "geoids": lambda names: Spine.from_geoids(names, {"State": 1, "County": 2}, root="US"),
    "geocodes by level": lambda names: Spine.from_geocodes({"US": [""], "State": names}),
    "desired tables": lambda names: Problem(Schema({"n1": 2, "n2": 2, "s1": 2}), {"detailed": 1.0}, names),
}


@every("door", SETS)
@every("kind", [set, frozenset])
def test_sets_are_refused_where_order_counts(door: str, kind: type) -> None:
    SETS[door](["n1", "n2", "s1"] if door != "groups of a recode" else ["n", "n", "s"])
    refuses("are a set, whose order is no order: give a list", SETS[door], kind({"n1", "n2", "s1"}), error=TypeError)


@every("door", [name for name in SETS if name not in ("a layer", "groups of a recode")])
def test_names_with_labels_of_their_own_are_refused(door: str) -> None:
    """As counts by their values are, whose names are the labels."""
    SETS[door](pd.Series(["n1", "n2", "s1"]))
    if door != "desired tables":
        refuses("labels", SETS[door], pd.Series(["n1", "n2", "s1"], [7, 5, 6]))
        refuses("must be a list: got", SETS[door], dict.fromkeys(["n1", "n2", "s1"], 1), error=TypeError)


@given(order=st.permutations(range(5)))
def test_others_answers_are_read_by_label(order: list[int]) -> None:
    problem, names = table("positions out of order"), [NAMES["positions out of order"][i] for i in order]
    answer = {"total": 50.0, "own": pd.Series(Y[order], names)}
    assert answer_from(problem, answer).tolist() == [50, *Y]
    assert answer_from(nodes("positions out of order"), answer["own"]).tolist() == Y.tolist()
    refuses("own", answer_from, table("text"), answer)


def test_columns_of_frames_are_the_same_in_all_tables() -> None:
    names = list(NAMES["text"])
    own = pd.DataFrame(np.stack([Y, 2 * Y], axis=1), names, ["one", "two"])
    total = pd.DataFrame([[50.0, 100.0]], ["c"], ["one", "two"])
    problem = counted("text")
    assert problem.vector({"County": {"total": total}, "Block": {"total": own}}).tolist()[:2] == [[50, 100], [21, 42]]
    for other in (own[["two", "one"]], own.to_numpy(), own.set_axis([1, 0], axis=1)):
        refuses("columns", problem.vector, {"County": {"total": total}, "Block": {"total": other}})


NAMING: dict[str, Callable[[Sequence[Any]], Any]] = {
    "levels": lambda names: Schema({"a": names}),
    "geolevels": lambda names: Spine([-1, 0, 1], names),
    "geocodes": lambda names: Spine([-1, 0, 0], None, names),
    "geocodes by level": lambda names: Spine.from_geocodes({"all": names[:1], "part": names[1:]}),
    "geoids": lambda names: Spine.from_geoids(names, {"all": 1}),
    "partitions": lambda names: from_partitions({"all": names, "part": ["x", "y", "z"]}),
    "entities": lambda names: Entities(names, np.eye(3)),
    "leaves": lambda names: Areas(names, {}),
    "products": lambda names: joint(*[Problem(Schema({"a": 2}), {"a": 1.0})] * 3, names=names),
}


@every("door", list(NAMING))
@every("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_a_name_that_is_missing_is_refused(door: str, missing: Any) -> None:
    """It is not called 'None' or 'nan', which would be one thing wherever it stands."""
    refuses(r"is missing: name it|has no label for leaf 2", NAMING[door], ["1", "11", missing])


def test_blocks_without_an_entity_lie_outside_whatever_says_so() -> None:
    for missing in ("", None, float("nan"), pd.NA):
        entities = Entities.from_labels({"place": ["a", missing, 0]})
        assert entities.names == ("place outside", "place 0", "place a")
        assert entities.contains.toarray().tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match="labels of 'town' are 3: give one for each of 2 blocks"):
        Entities.from_labels({"place": ["a", "b"], "town": ["x", "y", "z"]})
    with pytest.raises(ValueError, match="geocodes of 'part' are 3: give one for each of 2 leaves"):
        from_partitions({"all": ["a", "a"], "part": ["x", "y", "z"]})
