"""Names of tables."""

import re

from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Schema
from constraint_builders.description.table import parse_table
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses

SCHEMA = Schema({"a": 2, "b": 3, "c": 4}, recodes={"c": {"halves": [0, 0, 1, 1]}})


@every("name", ["zip", "a * zip", "a * a", "c * halves", "a *", "", "a * total", "a b", 3, None])
def test_what_names_no_table_is_refused(name: object) -> None:
    refuses(f"^table (name )?{re.escape(repr(name))}", parse_table, SCHEMA, name)


@examples(100)
@given(data=st.data())
def test_every_spelling_names_the_same_table(data: st.DataObject) -> None:
    """Any order and any spaces; the cells follow the order, the canonical name does not."""
    sizes = {"sex": 2, "v_w": 3, "age": 4, "one": 1}
    schema = Schema(sizes, recodes={"age": {"adult": [0, 0, 1, 1], "old": [0, 0, 0, 1]}})
    variables = data.draw(st.lists(st.sampled_from(list(sizes)), unique=True, min_size=1))
    factors = [data.draw(st.sampled_from(["age", "adult", "old"])) if own == "age" else own for own in variables]
    gaps = data.draw(st.lists(st.sampled_from([" * ", "*", "* ", "  *  "]), min_size=3, max_size=3))
    name = "".join(part for pair in zip(factors, [*gaps, ""], strict=False) for part in pair)
    name = name[: len(name) - len(gaps[len(factors) - 1])] if len(factors) < 4 else name
    found = parse_table(schema, name)
    axis_of = {"sex": 0, "v_w": 1, "age": 2, "adult": 2, "old": 2, "one": 3}
    cells = sizes | {"adult": 2, "old": 2}
    assert found.factors == tuple(factors)
    assert found.axes == tuple(axis_of[own] for own in factors)
    assert found.shape == tuple(cells[own] for own in factors)
    ordered = sorted(factors, key=axis_of.__getitem__)
    assert found.name == ("detailed" if ordered == list(sizes) else " * ".join(ordered))
    assert found.is_turned == (ordered != factors)
    turned = found.in_schema_order()
    assert (turned.factors, turned.shape) == (tuple(ordered), tuple(cells[own] for own in ordered))
    assert parse_table(Schema({"age": 4}), "age").name == "detailed"
    total = parse_table(schema, " total ")
    assert (total.name, total.shape, parse_table(schema, "detailed").factors) == ("total", (), tuple(sizes))
