"""Values follow the order of the variables in the name that they are given under; labels go before positions.

The reference is dense least squares over the detailed cells, with every array written down once, by its axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import SOLVERS, SeaBlue, blue, functionals
from blue_solvers.nonnegative import nnls
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from blue_solvers.spine_design.report import entity_workload
from blue_solvers.streaming import partition, partition_source, stream
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.files import measurements_frame, read_long_table, read_noisy_measurements
from constraint_builders.files.measurement_writer import write_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.geography import Entities
from tests.helpers.every import every
from tests.helpers.partitioned import assert_same

VARIABLES = "abc"
KINDS = ("equal", "unequal", "covariance", "shared", "operator", "zeros", "equalities")


@dataclass(frozen=True)
class World:
    """Tables as sets of axes, with values and variances in the order of the axes' letters."""

    sizes: tuple[int, ...]
    observed: list[str]
    desired: list[str]
    values: dict[str, Float]
    variances: dict[str, Float]

    def schema(self) -> Schema:
        return Schema(dict(zip(VARIABLES, self.sizes, strict=False)))

    def rows(self, axes: str) -> Float:
        """0/1 rows over the detailed cells of the table of these axes, in that order."""
        cells = np.indices(self.sizes).reshape(len(self.sizes), -1)
        lengths = [self.sizes[VARIABLES.index(axis)] for axis in axes]
        place = np.zeros(cells.shape[1], dtype=int)
        for axis, length in zip(axes, lengths, strict=True):
            place = place * length + cells[VARIABLES.index(axis)]
        rows = np.zeros((prod(lengths), cells.shape[1]))
        rows[place, np.arange(cells.shape[1])] = 1
        return rows


@st.composite
def worlds(draw) -> World:
    count = draw(st.integers(2, 3))
    sizes = tuple(draw(st.lists(st.integers(2, 3), min_size=count, max_size=count)))
    tables = ["".join(chosen) for k in range(count + 1) for chosen in combinations(VARIABLES[:count], k)]
    finest = tables[-1]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    observed = [table for table in tables[:-1] if rng.random() < 0.6]
    observed.insert(int(rng.integers(len(observed) + 1)), finest)
    desired = [table for table in tables if rng.random() < 0.6] or [finest]
    shapes = {table: tuple(sizes[VARIABLES.index(axis)] for axis in table) for table in tables}
    values = {table: rng.normal(10, 5, shapes[table]) for table in observed}
    variances = {table: rng.uniform(0.5, 3, shapes[table]) for table in observed}
    return World(sizes, observed, desired, values, variances)


def named(axes: str) -> str:
    return " * ".join(axes) or "total"


def turned(array: Float, axes: str, order: str) -> Float:
    """An array over `axes` with its axes in another order."""
    return np.asarray(array).transpose([axes.index(axis) for axis in order])


def shuffled(draw, tables: list[str]) -> dict[str, str]:
    return {table: "".join(draw(st.permutations(list(table)))) for table in tables}


@given(worlds(), st.sampled_from(KINDS), st.data())
def test_any_order_of_the_names_is_the_estimate_of_dense_least_squares(world: World, kind: str, data) -> None:
    own, wanted = shuffled(data.draw, world.observed), shuffled(data.draw, world.desired)
    spelled = shuffled(data.draw, world.observed)  # values may be given under other names than variances
    rng = np.random.default_rng(0)
    variances = {table: turned(world.variances[table], table, own[table]) for table in world.observed}
    if kind in ("equal", "shared"):
        variances = {table: np.full_like(cells, cells.mean()) for table, cells in variances.items()}
    y = np.concatenate([turned(world.values[table], table, own[table]).ravel() for table in world.observed])
    M = np.vstack([world.rows(own[table]) for table in world.observed])
    D = np.vstack([world.rows(wanted[table]) for table in world.desired])
    Sigma, arguments = np.diag(np.concatenate([variances[table].ravel() for table in world.observed])), {}
    if kind in ("covariance", "operator"):
        half = rng.normal(size=Sigma.shape)
        Sigma = half @ half.T + len(half) * np.eye(len(half))
        given_ = sparse.csr_array(Sigma) if kind == "covariance" else WithInverse(Sigma)
        arguments["covariance"] = given_
    if kind == "shared":
        U = rng.normal(size=(len(y), 2))
        arguments["covariance"] = LowRankPlusDiagonal(Sigma.diagonal().copy(), U)
        Sigma = Sigma + U @ U.T
    C, c = np.zeros((0, M.shape[1])), np.zeros(0)
    if kind == "zeros":
        table = data.draw(st.sampled_from(world.desired))
        empty = rng.random(turned(np.zeros(shape_of(world, table)), table, wanted[table]).shape) < 0.3
        arguments["zeros"] = {named(wanted[table]): empty}
        cells = world.rows(wanted[table])[empty.ravel()].any(axis=0)
        C, c = np.eye(M.shape[1])[cells], np.zeros(int(cells.sum()))
    if kind == "equalities":
        E = rng.normal(size=(1, len(y)))
        arguments["equalities"] = (E, [7.0])
        C, c = E @ M, np.array([7.0])
    exact_variances = {named(own[t]): None if "covariance" in arguments else variances[t] for t in world.observed}
    problem = Problem(world.schema(), exact_variances, [named(wanted[t]) for t in world.desired], **arguments)
    assert problem.desired.names == tuple(named(wanted[table]) for table in world.desired)
    laid_out = problem.vector(
        {named(spelled[table]): turned(world.values[table], table, spelled[table]) for table in world.observed}
    )
    assert np.array_equal(laid_out, y)
    expected, covariance = least_squares(M, Sigma, D, y, C, c)
    scale = abs(expected).max() + 1
    tried = 0
    for name in SOLVERS:
        try:
            P = blue(problem, name)
        except ValueError:
            continue
        if not P.info.exact:
            continue
        tried += 1
        assert np.allclose(P @ y + P.offset, expected, rtol=0, atol=1e-6 * scale), name
        assert np.allclose(P.variances(), covariance.diagonal(), rtol=1e-6, atol=1e-8), name
        weights = rng.normal(size=(len(D), 2))
        assert np.allclose(P.T @ weights, (P @ np.eye(len(y))).T @ weights, atol=1e-6 * scale), name
        found = functionals(P, y, weights)
        assert np.allclose(found.covariance, weights.T @ covariance @ weights, rtol=1e-6, atol=1e-7), name
    assert tried >= 2
    back = problem.desired.tables(expected)
    for table in world.desired:
        rows = world.rows(table)
        solution = least_squares(M, Sigma, rows, y, C, c)[0].reshape(shape_of(world, table))
        assert np.allclose(back[named(wanted[table])], turned(solution, table, wanted[table]), atol=1e-8 * scale)
        assert problem.desired.shape(named(table)) == shape_of(world, table)


class WithInverse(type(aslinearoperator(np.eye(1)))):
    """A covariance that solves itself."""

    def __init__(self, matrix: Float) -> None:
        super().__init__(matrix)
        self._matrix = matrix

    def solve(self, V: Float) -> Float:
        return np.linalg.solve(self._matrix, V)


def shape_of(world: World, axes: str) -> tuple[int, ...]:
    return tuple(world.sizes[VARIABLES.index(axis)] for axis in axes)


def least_squares(M: Float, Sigma: Float, D: Float, y: Float, C: Float, c: Float) -> tuple[Float, Float]:
    """D x for the x that minimises (y - M x)' Sigma^-1 (y - M x) with C x = c, and its covariance."""
    precision = np.linalg.inv(Sigma)
    k = len(C)
    system = np.block([[M.T @ precision @ M, C.T], [C, np.zeros((k, k))]])
    inverse = np.linalg.pinv(system, rcond=1e-12)
    x = (inverse @ np.concatenate([M.T @ precision @ y, c]))[: M.shape[1]]
    return D @ x, D @ inverse[: M.shape[1], : M.shape[1]] @ D.T


SPINE = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])


@every("orders", [("a * b", "b * a"), ("b * a", "a * b"), ("b * a", "b * a")])
@every("scalar", [True, False])
def test_geographies_follow_the_names(orders: tuple[str, str], scalar: bool) -> None:
    schema, (measured, wanted) = Schema({"a": 2, "b": 3}), orders
    rng = np.random.default_rng(1)
    letters, asked = measured.replace(" * ", ""), wanted.replace(" * ", "")
    values = {"State": rng.normal(9, 3, (1, 2, 3)), "County": rng.normal(5, 3, (2, 2, 3))}
    spread = {
        level: np.full(cells.shape, 2.0) if scalar else rng.uniform(1, 3, cells.shape)
        for level, cells in values.items()
    }
    along = [0, *(1 + "ab".index(axis) for axis in letters)]
    observed = {level: {measured: 2.0 if scalar else cells.transpose(along)} for level, cells in spread.items()}
    problem = Problem(schema, observed, {"State": [wanted], "County": [wanted, "b"]}, spine=SPINE)
    y = problem.vector({(level, measured): cells.transpose(along) for level, cells in values.items()})
    assert np.array_equal(y, np.concatenate([values[level].transpose(along).ravel() for level in observed]))
    M = np.vstack([np.hstack([np.eye(6), np.eye(6)]), np.eye(12)])
    Sigma = np.diag(np.concatenate([spread["State"].ravel(), spread["County"].ravel()]))
    flat = np.concatenate([values["State"].ravel(), values["County"].ravel()])
    none = np.zeros((0, 12)), np.zeros(0)
    cells, covariance = least_squares(M, Sigma, M, flat, *none)
    back = [0, *(1 + "ab".index(axis) for axis in asked)]
    for name in ("two_pass", "cholesky", "dense"):
        if name == "two_pass" and not scalar:
            continue
        P = blue(problem, name)
        tables, variances = problem.desired.tables(P @ y), problem.desired.tables(P.variances())
        for own, reference in ((tables, cells), (variances, covariance.diagonal())):
            assert np.allclose(own["State", wanted], reference[:6].reshape(1, 2, 3).transpose(back))
            assert np.allclose(own["County", wanted], reference[6:].reshape(2, 2, 3).transpose(back))
        assert np.allclose(tables["County", "b"], cells[6:].reshape(2, 2, 3).sum(axis=1))


def test_streaming_turns_tables_to_the_order_of_its_files(tmp_path: Path) -> None:
    schema = Schema({"a": 2, "b": 3})
    observed = {"State": {"b * a": 2.0}, "County": {"a * b": 3.0}}
    problem = Problem(schema, observed, {"State": ["a"], "County": ["b * a"]}, spine=SPINE)
    y = np.random.default_rng(2).normal(9, 3, problem.observed.size)
    partition(tmp_path / "in", problem, y, at="State")
    stream(tmp_path / "in", tmp_path / "out")
    assert_same(problem, y, blue(problem, "cholesky"), tmp_path / "out")
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
    laid_out = again.problem.observed.tables(again.y)
    assert np.array_equal(laid_out["County", "detailed"], cells)
    assert again.problem.zeros is not None
    flags = again.problem.zeros.empty[1:]
    assert np.argwhere(flags).tolist() == [[0, 0, 2]]


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


def test_files_follow_their_labels() -> None:
    schema = Schema({"a": ["x", "y"], "b": ["u", "v"]})
    problem = Problem(schema, {"b * a": [[1.0, 2.0], [3.0, 4.0]], "a": 1.0})
    y = problem.vector({"b * a": [[1.0, 2.0], [3.0, 4.0]], "a": [4.0, 6.0]})
    frame = measurements_frame(problem, y)
    rows = {(row[1], row[2]): row[3:] for row in frame.rows()}
    assert rows["y", "u"] == (2.0, 2.0)
    again, values = read_long_table(frame.sample(fraction=1.0, shuffle=True, seed=1), schema)
    own = again.observed.tables(values)["b * a"]
    assert own.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert again.observed.tables(again.variances)["b * a"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


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
    variances = Problem(SCHEMA, {name: given_}, ["vote * sex"]).observed
    assert variances.names == (name,)
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
    with pytest.raises(ValueError, match=message):
        PROBLEM.vector({"vote * sex": given_})
    with pytest.raises(ValueError, match=message):
        Problem(SCHEMA, {"vote * sex": given_})


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
    with pytest.raises(ValueError, match="S has a row twice"):
        Problem.from_summing_matrix(S.iloc[[0, 0, 1]], 1.0)


def test_a_flat_vector_with_labels_is_refused_where_they_say_nothing() -> None:
    y = pd.Series(CELLS.ravel(), index=list("pqrs"))
    with pytest.raises(ValueError, match="labels, which say nothing here"):
        blue(PROBLEM) @ y
    assert np.array_equal(blue(PROBLEM) @ y.reset_index(drop=True), CELLS.ravel())


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
