"""Problems on a spine: constraints, rank, layout and refusals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema, Spine
from constraint_builders.description.table import TableNames
from tests.helpers.every import every
from tests.helpers.exact_reference import rational_rank
from tests.helpers.refused import refused, refuses


@every("names", [("a * b", "a * b"), ("b * a", "a * b"), ("b * a", "b * a")])
@every("counties", [1, 2, 3])
def test_children_add_up_in_tables_of_some_of_several_variables(counties: int, names: tuple[str, str]) -> None:
    """Nothing but the sums over children relates two levels: 6 independent rows a county, and these again among all."""
    schema = Schema({"a": 2, "b": 3, "c": 2})
    parent = [-1, *[0] * counties, *np.repeat(np.arange(counties) + 1, 2)]
    spine = Spine(parent, ["S", *["C"] * counties, *["T"] * (2 * counties)])
    problem = Problem(schema, {"C": {names[0]: 1.0}, "T": {names[1]: 2.0}}, spine=spine)
    A, M = problem.constraint_matrix("all"), problem.marginal_matrix()
    assert problem.constraint_matrix().shape[0] == problem.rank == 6 * counties
    assert A.shape[0] == 12 * counties
    assert rational_rank((A.T @ A).toarray()) == 6 * counties
    assert not (A @ M).nnz or abs(A @ M).max() == 0


SPINE = Spine([-1, 0, 0], ["State", "County", "County"], ["44", "44001", "44003"])
SMALL = Schema({"sex": 2, "age": 3})


def test_variances_per_geounit_and_per_cell() -> None:
    variances = np.arange(1.0, 5.0).reshape(2, 2)
    problem = Problem(SMALL, {"County": {"age": [1.0, 2.0], "sex": variances, "total": 3.0}}, spine=SPINE)
    assert problem.variances.tolist() == [1, 1, 1, 2, 2, 2, 1, 2, 3, 4, 3, 3]
    assert problem.observed.shape(("County", "age")) == (2, 3)
    assert problem.geounit_variances is None
    assert not problem.assumptions.A3


def test_names_shapes_and_all() -> None:
    problem = Problem(SMALL, {"County": {"detailed": 1.0}}, spine=SPINE, desired={"State": "all", "County": ["sex"]})
    assert problem.desired.names == (
        ("State", "total"), ("State", "sex"), ("State", "age"), ("State", "detailed"), ("County", "sex"),
    )  # fmt: skip
    assert problem.desired.shape(("State", "sex * age")) == (1, 2, 3)
    assert problem.desired.shape(("State", "age * sex")) == (1, 3, 2)


@refused(
    ({"Town": {"total": 1.0}}, None, "no geolevel 'Town'"),
    ({"State": {"race": 1.0}}, None, "'race' is not a variable"),
    ({"County": {"age": [1.0, 2.0, 3.0]}}, None, r"must have shape \(\), \(2,\) or \(2, 3\)"),
    ({"County": {"age": -1.0}}, None, "is negative"),
    ({"County": {"age": np.nan}}, None, "is NaN"),
    ({"State": {"total": 1.0}}, {"County": ["total"]}, "'total' is not estimable at County '44001'"),
    ({"County": {"sex": [1.0, np.inf]}}, {"State": ["sex"]}, "'sex' is not estimable at State '44'"),
    ({"State": {}}, None, "at least one observed table"),
    ({"State": 1.0}, None, "must be given as {table: variance}"),
    ({"State": {"total": 1.0}}, {"State": "some"}, "must be a list, or 'all'"),
)
def test_bad_descriptions_are_refused(observed: dict, desired: dict | None) -> None:
    Problem(SMALL, observed, spine=SPINE, desired=desired)


@every("name", ["ab", "a * b", ("a",), ("a", "a", "b"), ["a", "a"]])
def test_names_that_are_no_pairs_are_refused(name: object) -> None:
    names = TableNames.of(Schema({"a": 2}), Spine([-1, 0], ["a", "b"]))
    assert names.canonical(("b", "a")) == ("b", "detailed")
    refuses(r"tables are named \(geolevel, table\)", names.canonical, name)


@given(seed=st.integers(0, 10**6))
def test_a_truth_in_cells_that_are_empty_is_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema, spine = Schema({"a": 2, "b": 3}), Spine([-1, 0, 0], ["State", "Block", "Block"])
    empty = rng.random((2, 2, 3)) < 0.3
    counts = np.where(empty, 0, rng.integers(1, 9, (2, 2, 3)))
    observed, zeros = {"State": {"a": 1.0}, "Block": {"b": 1.0, "a * b": 2.0}}, {"Block": {"a * b": empty}}

    def truth() -> dict:
        return {"State": {"a": counts.sum((0, 2))[None]}, "Block": {"b": counts.sum(1), "a * b": counts}}

    assert Problem(schema, observed, spine=spine, zeros=zeros, truth=truth()).truth is not None
    if empty.any():
        counts[tuple(np.argwhere(empty)[0])] = 1
        refuses("structural zeros say is empty", Problem, schema, observed, spine=spine, zeros=zeros, truth=truth())
