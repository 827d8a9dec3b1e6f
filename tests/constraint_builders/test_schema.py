"""Schemas: what they hold, and every description that they refuse."""

from __future__ import annotations

import pickle

import pytest

from constraint_builders import Schema


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


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "at least one variable"),
        ({"a": 0}, "no levels"),
        ({"a": []}, "no levels"),
        ({"a": -1}, "no levels"),
        ({"a": ["x", "x"]}, "'x' twice"),
        ({"a*b": 2}, "not usable"),
        ({" a": 2}, "not usable"),
        ({"": 2}, "not usable"),
        ({3: 2}, "not usable"),
        ({"total": 2}, "reserved"),
        ({"detailed": 2}, "reserved"),
        ({"geolevel": 2}, "reserved"),
    ],
)
def test_variables_refused(variables: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schema(variables)


@pytest.mark.parametrize("levels", ["xy", b"xy", True, 2.5, None])
def test_levels_of_wrong_type_refused(levels: object) -> None:
    with pytest.raises(TypeError, match="number or a list of labels"):
        Schema({"a": levels})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("recodes", "message"),
    [
        ({"z": {"r": [0, 0, 1]}}, "not a variable"),
        ({"a": {"b": [0, 0, 1]}}, "already taken"),
        ({"a": {"r": [0, 1]}}, "2 groups for the 3 levels"),
        ({"a": {"r": [0, 2, 2]}}, "without a gap"),
        ({"a": {"r": [-1, 0, 1]}}, "without a gap"),
        ({"a": {"r": [0, 0, 0]}}, "'total': leave it out"),
        ({"a": {"r": [2, 1, 0]}}, "itself: leave it out"),
        ({"a": {"r": [0, 0, 1]}, "b": {"r": [0, 1, 1]}}, "already taken"),
        ({"a": {"total": [0, 0, 1]}}, "reserved"),
    ],
)
def test_recodes_refused(recodes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schema({"a": 3, "b": 3}, recodes)


def test_unknown_factor_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'zip' is not a variable or recode of the schema: it has 'a'"):
        Schema({"a": 2}).axis_of("zip")
