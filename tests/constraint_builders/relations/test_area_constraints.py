"""Equations between tables of areas: all that hold, none twice, and what the measurements determine."""

from __future__ import annotations

from constraint_builders import Areas, Problem, Schema

SCHEMA = Schema({"a": 2, "b": 3}, recodes={"b": {"g": [0, 1, 1]}})


def test_all_is_what_the_measurements_determine_in_every_area_of_a_layer() -> None:
    areas = Areas(4, {"Region": [0, 0, 1, 1], "Part": [[1, 1, 0, 0]], "None": [[0, 0, 0, 0]]})
    problem = Problem(SCHEMA, {"Region": {"a": 1.0}, "Part": {"b": 2.0}}, areas=areas, desired="all")
    assert set(problem.desired.names) == {
        ("Region", "total"), ("Region", "a"), ("Part", "total"), ("Part", "a"), ("Part", "b"),
        ("None", "total"), ("None", "a"), ("None", "b"),
    }  # fmt: skip
