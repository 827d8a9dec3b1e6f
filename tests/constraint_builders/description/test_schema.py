"""Schemas: what they hold, and every description that they refuse."""

import pickle

import pytest

from constraint_builders import Schema
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses


def test_levels_by_number_or_label() -> None:
    schema = Schema({"sex": ["f", "m"], "age": 3}, recodes={"age": {"adult": ["child", "adult", "adult"]}})
    assert schema.names == ("sex", "age")
    assert schema.shape == (2, 3)
    assert schema.labels_of("age") == ("0", "1", "2")
    assert schema.labels_of("adult") == ("child", "adult")
    assert schema.groups_of("adult") == (0, 1, 1)
    assert schema.groups_of("sex") == (0, 1)
    assert schema.axis_of("adult") == 1
    assert schema.size_of("adult") == 2


def test_equality_hash_pickle_repr() -> None:
    schema = Schema({"a": 2, "b": 3}, recodes={"b": {"r": [0, 1, 1]}})
    same = Schema({"a": 2, "b": 3}, recodes={"b": {"r": [0, 1, 1]}})
    assert schema == same == pickle.loads(pickle.dumps(schema))
    assert hash(schema) == hash(same)
    assert schema != Schema({"b": 3, "a": 2})
    assert schema != "a"
    assert "r 2 groups of b" in repr(schema)


@refused(
    ({}, "at least one variable"),
    ({"a": 0}, "no levels"),
    ({"a": []}, "no levels"),
    ({"a": -1}, "no levels"),
    ({"a": ["x", "x"]}, "'x' twice"),
    ({"a": ["m\u00e9tis", "other", "me\u0301tis"]}, "'m\u00e9tis' twice"),
    ({"a*b": 2}, "not usable"),
    ({" a": 2}, "not usable"),
    ({"": 2}, "not usable"),
    ({3: 2}, "not usable"),
    ({"total": 2}, "reserved"),
    ({"detailed": 2}, "reserved"),
    ({"geolevel": 2}, "reserved"),
)
def test_variables_refused(variables: dict) -> None:
    Schema(variables)


@every("levels", [10**6 + 1, 10**9, 10**30])
def test_more_levels_than_memory_has_room_for_are_refused_at_once(levels: int) -> None:
    refuses(f"variable 'a' has {levels:,} levels: the most are 1,000,000", Schema, {"a": levels})


@every("variables", [["sex"], "sex", 3, None, {"sex"}])
def test_variables_are_a_mapping(variables: object) -> None:
    with pytest.raises(TypeError, match=r'variables must be a mapping that gives .*\{"sex": \["female", "male"\]'):
        Schema(variables)  # type: ignore[arg-type]


@refused(
    ([0, 1, 1], "recodes must be a mapping that gives recodes of each variable"),
    ({"a": [0, 1, 1]}, "recodes of 'a' must be a mapping"),
    ({"a": {"r": "aab"}}, "recode 'r' must be a list: got 'aab'"),
    ({"a": {"r": 3}}, "recode 'r' must be a list: got 3"),
    ({"a": {"r": [0, 1.5, 1]}}, "groups of recode 'r' must be all labels or all whole numbers: got 1.5"),
    ({"a": {"r": [0, "x", 1]}}, "groups of recode 'r' must be all labels or all whole numbers: got 'x'"),
    error=TypeError,
)
def test_recodes_of_wrong_type_are_refused(recodes: object) -> None:
    Schema({"a": 3, "b": 3}, recodes)  # type: ignore[arg-type]


def test_a_group_number_far_too_large_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="must use the groups 0 to 99999999999 without a gap: 1 is missing"):
        Schema({"a": 3}, {"a": {"r": [0, 99999999999, 0]}})


@every("levels", ["xy", b"xy", True, 2.5, None])
def test_levels_of_wrong_type_refused(levels: object) -> None:
    with pytest.raises(TypeError, match="number or a list of labels"):
        Schema({"a": levels})  # type: ignore[dict-item]


@refused(
    ({"z": {"r": [0, 0, 1]}}, "not a variable"),
    ({"a": {"b": [0, 0, 1]}}, "already taken"),
    ({"a": {"r": [0, 1]}}, "2 groups for the 3 levels of 'a': give one for every level"),
    ({"a": {"r": [0, 2, 2]}}, "without a gap"),
    ({"a": {"r": [-1, 0, 1]}}, "without a gap"),
    ({"a": {"r": ["m\u00e9tis", "me\u0301tis", "other"]}}, "'m\u00e9tis' twice"),
    ({"a": {"r": [0, 0, 0]}}, "'total': leave it out"),
    ({"a": {"r": [2, 1, 0]}}, "itself: leave it out"),
    ({"a": {"r": [0, 0, 1]}, "b": {"r": [0, 1, 1]}}, "already taken"),
    ({"a": {"total": [0, 0, 1]}}, "reserved"),
)
def test_recodes_refused(recodes: dict) -> None:
    Schema({"a": 3, "b": 3}, recodes)


def test_unknown_factor_is_named_with_those_there_are() -> None:
    refuses(r"'zip' is not a variable or recode of the schema: it has 'a'", Schema({"a": 2}).axis_of, "zip")
