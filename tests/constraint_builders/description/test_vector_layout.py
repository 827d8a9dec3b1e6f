"""Where tables sit in a vector."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema
from constraint_builders.description.layout import Layout
from tests.helpers.every import cases, every
from tests.helpers.oracles.invent import Kind, some_with
from tests.helpers.refused import refuses

PROBLEM = Problem(Schema({"a": 2, "b": 3}), {"b * a": 1.0, "total": 1.0, "b": 2.0})
LAYOUT = PROBLEM.observed


@every("name", LAYOUT.names)
@every("columns", [(), (2,)])
@every("spoil", ["an axis before", "an axis behind", "other columns", "a cell more"])
def test_the_table_of_another_shape_is_the_one_that_is_named(name: str, columns: tuple[int, ...], spoil: str) -> None:
    tables = {own: np.ones(LAYOUT.shape(own) + columns) for own in LAYOUT.names}
    shape = {
        "an axis before": (1, *tables[name].shape),
        "an axis behind": (*tables[name].shape, 1),
        "other columns": (*LAYOUT.shape(name), 3),
        "a cell more": tuple(size + 1 for size in LAYOUT.shape(name)) + columns,
    }[spoil]
    tables[name] = np.ones(shape)
    if shape == LAYOUT.shape(name) + columns:
        assert spoil == "a cell more"  # of a total, which has one
        return
    refuses(rf"table '{re.escape(name)}' must have shape", LAYOUT.vector, tables)


def test_tables_are_views() -> None:
    y = np.zeros(10)
    LAYOUT.tables(y)["b"][1] = 5
    assert y[8] == 5


def test_any_spelling_finds_a_table() -> None:
    assert LAYOUT.shape("a*b") == LAYOUT.shape("detailed") == (2, 3)
    assert LAYOUT.shape("b *a") == (3, 2)
    assert LAYOUT.index("b") == 2
    tables = {"detailed": np.ones((2, 3)), "total": 6, "b": [2, 2, 2]}
    assert LAYOUT.vector(tables).sum() == 18


@cases(
    ({"zip": 1}, "no table 'zip'"),
    ({"a": [1, 2]}, "no table 'a' here"),
    ({"a * b": np.ones((2, 3))}, "given twice"),
    ({"b * a": np.ones((2, 3))}, r"table 'b \* a' must have shape \(3, 2\)"),
    ({"b": [1, 2]}, r"table 'b' must have shape \(3,\)"),
    ({"total": [6]}, r"table 'total' must have shape \(\): got \(1,\)"),
    ({"b": ["x", "y", "z"]}, "does not hold numbers"),
    ({"b": [[1, 2, 3]]}, r"must have shape \(3,\)"),
    ({"b": [1j, 2, 3]}, "does not hold numbers"),
)
def test_wrong_tables_are_refused(change: dict, message: str) -> None:
    tables = {"b * a": np.ones((3, 2)), "total": 6.0, "b": [2.0, 2, 2]} | change
    refuses(message, LAYOUT.vector, tables)


@every("places", [[9], [0], [8, 2], [6, 7]])
def test_the_first_of_some_cells_is_refused_by_flags_as_by_positions(places: list[int]) -> None:
    said, flags = np.arange(10.0), np.zeros(10, dtype=bool)
    flags[places] = True
    for cells, first in ((np.array(places), places[0]), (flags, min(places))):
        message = re.escape(f"{LAYOUT.describe(first)} is {first:g} of law")
        refuses(f"^{message}$", LAYOUT.refuse, cells, "{} is {:g} of {}", said, "law")
    LAYOUT.refuse(np.zeros(10, dtype=bool), "{}")
    LAYOUT.refuse(np.zeros(0, dtype=np.intp), "{}")


def test_missing_table_is_named() -> None:
    refuses("no values for 'total', 'b'", LAYOUT.vector, {"detailed": np.ones((2, 3))})
    many = Layout([f"t{i}" for i in range(12)], [(1,)] * 12)
    refuses(r"no values for 't1', .*, 't8' and 3 more: give every table", many.vector, {"t0": [1.0]})


@every("shape", [(9,), (11,), (2, 10), (10, 1, 1), ()])
def test_vector_of_wrong_length_is_refused(shape: tuple[int, ...]) -> None:
    refuses("this layout cuts vectors of shape", LAYOUT.tables, np.zeros(shape))


def test_two_names_of_one_table_are_refused() -> None:
    refuses("names of one table", Problem, Schema({"a": 2, "b": 3}), {"a * b": 1.0, "detailed": 1.0})
    refuses("names of one table", Layout, ["x", "x"], [(1,), (1,)])


@given(st.integers(0, 10**6), st.sampled_from([(), (2,)]))
def test_round_trip_of_any_layout(seed: int, columns: tuple[int, ...]) -> None:
    layout = some_with(seed, Kind(turned=True)).description.problem().desired
    x = np.random.default_rng(seed).normal(size=(layout.size, *columns))
    tables = layout.tables(x)
    assert tuple(tables) == layout.names
    assert np.array_equal(layout.vector(tables), x)
    for position in {0, layout.size // 2, layout.size - 1}:
        name, cell = layout.locate(position)
        assert np.array_equal(tables[name][cell], x[position])
    with pytest.raises((ValueError, IndexError)):
        layout.locate(layout.size)
