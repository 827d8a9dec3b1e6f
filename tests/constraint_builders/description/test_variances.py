"""Variances that are none, or too small for estimates in float64, are refused by name wherever they are given."""

from collections.abc import Callable

import numpy as np
import pytest

from constraint_builders import Problem, Schema, Spine, problem_of_sources
from tests.helpers.every import every

SCHEMA = Schema({"a": 2, "b": 3})
SPINE = Spine([-1, 0, 0], ["US", "State", "State"])
TOO_SMALL = "below 1e-100: give 0 for what is known exactly"

DOORS: dict[str, Callable[[float], object]] = {
    "of a table": lambda v: Problem(SCHEMA, {"total": 1.0, "a": v}),
    "of a cell": lambda v: Problem(SCHEMA, {"total": 1.0, "a": [1.0, v]}),
    "of a geounit": lambda v: Problem(SCHEMA, spine=SPINE, observed={"State": {"a": [v, 1.0]}}),
    "of an equation": lambda v: Problem.from_matrix(np.ones((1, 2)), [1.0, v]),
    "of a node": lambda v: Problem.from_summing_matrix([[1, 1], [1, 0], [0, 1]], variances=[1.0, v, 1.0]),
    "of other noise": lambda v: Problem(SCHEMA, {"a": 1.0}).with_variances([1.0, v]),
    "of a source": lambda v: problem_of_sources(SCHEMA, [({"a": v}, {"a": [1.0, 2.0]})]),
}


@every("door", DOORS)
@every("value", [5e-324, 1e-310, 1e-300, 9e-101])
def test_too_small_a_variance_is_refused(door: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"is {value:g}, {TOO_SMALL}"):
        DOORS[door](value)


@every("door", DOORS)
@every("value", [1e-100, 1.0, 0.0])
def test_others_are_read(door: str, value: float) -> None:
    DOORS[door](value)
