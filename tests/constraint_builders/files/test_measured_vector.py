"""Measured values come to their places in whatever order and pieces files hold them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Schema, Spine
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import parse_table
from constraint_builders.files.noisy_measurements import MeasuredVector
from tests.helpers.effort import examples

SPINE = Spine([-1, 0, 0, 1, 1, 2], ["State", "County", "County", "Block", "Block", "Block"], list("abcdef"))
SCHEMA = Schema({"sex": 2, "age": 3})
KEYS = [(level, table) for level in ("State", "County", "Block") for table in ("total", "sex", "sex * age")]


@given(st.data())
@examples(60)
def test_values_come_to_their_places(data: st.DataObject) -> None:
    laid_out = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True), "layout")
    met = laid_out if data.draw(st.booleans(), "in order") else data.draw(st.permutations(laid_out), "met")
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    vector, expected = MeasuredVector(), {}
    vector.begin(SPINE)
    for level, table in met:
        size = parse_table(SCHEMA, table).size
        count = SPINE.members[SPINE.level_index(level)].size
        cells = expected[level, table] = np.zeros((count, size))
        geounits = rng.permutation(count)[: rng.integers(0, count + 1)]
        for own in np.array_split(geounits, 2):
            values = rng.integers(-9, 9, (own.size, size)).astype(np.int32)
            vector.keep(level, table, own, values, None)
            cells[own] = values
        again, share = rng.integers(-9, 9, (geounits.size, size)), rng.choice([0.25, 1.0], geounits.size)
        vector.keep(level, table, geounits, again, share)
        cells[geounits] = share[:, None] * again + (1 - share[:, None]) * cells[geounits]
    layout = Layout(laid_out, [expected[key].shape for key in laid_out])
    found = vector.vector(layout)
    np.testing.assert_array_equal(found, np.concatenate([expected[key].ravel() for key in laid_out]))
    assert found.base is None
