"""Inputs of which one is a copy of another, in any order of tables and with cells missing, and some that are not."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema
from constraint_builders.files.doubts import copied_inputs
from tests.helpers.effort import examples

SHAPES = {"total": (), "a": (3,), "b": (4,), "a * b": (3, 4)}


@examples(60)
@given(seed=st.integers(0, 10**6), copied=st.booleans(), decimals=st.booleans())
def test_a_copy_is_named_and_nothing_else_is(seed: int, copied: bool, decimals: bool) -> None:
    rng, digits = np.random.default_rng(seed), 2 * decimals
    values = {name: rng.normal(50, 9, shape).round(digits) for name, shape in SHAPES.items()}
    inputs = {}
    for source in ("first", "second", "third"):
        problem = Problem(Schema({"a": 3, "b": 4}), dict.fromkeys(rng.permutation([*SHAPES]).tolist(), 81.0))
        y = problem.observed.vector(values)
        if source == "third" or (source == "second" and not copied):
            y = y + rng.normal(0, 9, y.size).round(digits) + 0.25
        inputs[source] = problem.observed, y, np.where(rng.random(y.size) < 0.3, np.inf, problem.variances)
    found = copied_inputs(inputs)
    assert len(found) == copied
    assert all("'first' and 'second'" in line or "'second' and 'first'" in line for line in found)
