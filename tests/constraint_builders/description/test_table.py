"""Names of tables."""

from __future__ import annotations

import pytest

from constraint_builders import Schema
from constraint_builders.description.table import parse_table

SCHEMA = Schema({"a": 2, "b": 3, "c": 4}, recodes={"c": {"halves": [0, 0, 1, 1]}})


@pytest.mark.parametrize(
    ("name", "canonical", "shape"),
    [
        ("total", "total", ()),
        (" total ", "total", ()),
        ("detailed", "detailed", (2, 3, 4)),
        ("c * a * b", "detailed", (4, 2, 3)),
        ("b*a", "a * b", (3, 2)),
        ("  c  *a ", "a * c", (4, 2)),
        ("halves * b", "b * halves", (2, 3)),
        ("b * a * halves", "a * b * halves", (3, 2, 2)),
    ],
)
def test_any_order_is_read(name: str, canonical: str, shape: tuple[int, ...]) -> None:
    table = parse_table(SCHEMA, name)
    assert table.name == canonical
    assert table.shape == shape
    assert table.in_schema_order().shape == tuple(shape[i] for i in table.schema_order)
    assert list(table.in_schema_order().axes) == sorted(table.axes)


@pytest.mark.parametrize("name", ["zip", "a * zip", "a * a", "c * halves", "a *", "", "a * total", "a b", 3, None])
def test_what_names_no_table_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match=r"table"):
        parse_table(SCHEMA, name)  # type: ignore[arg-type]


def test_one_variable_alone_is_the_detailed_table() -> None:
    assert parse_table(Schema({"a": 2}), "a").name == "detailed"
