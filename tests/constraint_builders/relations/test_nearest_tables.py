"""Pairs of tables next above one another, and what the matrix of their equalities needs."""

from itertools import combinations

import numpy as np
import pytest

from constraint_builders import Schema
from constraint_builders.description.spine import ONE_PLACE
from constraint_builders.description.table import Table, parse_table
from constraint_builders.relations import constraints as module
from constraint_builders.relations.constraints import SelfConsistency, next_above
from constraint_builders.relations.placed import consistency_of
from tests.helpers.every import every


def neighbours(names: list[str]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Pairs that `next_above` finds, and those that sets of factors say."""
    schema = Schema(dict.fromkeys("abcdef", 2))
    tables = [(10 * i, parse_table(schema, name)) for i, name in enumerate(names)]
    found = {(names[fine // 10], names[coarse // 10]) for fine, coarse in next_above(schema, tables)}
    sets = {name: frozenset() if name == "total" else frozenset(name.split(" * ")) for name in names}
    below = {(f, c) for f in names for c in names if sets[c] < sets[f]}
    return found, {(f, c) for f, c in below if not any((f, o) in below and (o, c) in below for o in names)}


@every(
    "names",
    [
        ["total", "a", "b", "a * b"],
        ["a * b * c * d * e * f", "a * b * c", "a", "total"],  # few tables of many factors: all are looked through
        ["total", *"abcdef", *(" * ".join(pair) for pair in combinations("abcdef", 2)), "a * b * c * d * e * f"],
    ],
)
def test_nearest_coarser_tables(names: list[str]) -> None:
    found, expected = neighbours(names)
    assert found == expected
    assert expected


def consistency_of_place(schema: Schema, tables: list[Table]) -> SelfConsistency:
    return consistency_of(schema, ONE_PLACE, [0] * len(tables), tables, [np.ones(1)] * len(tables))


def test_a_constraint_matrix_is_refused_for_all_that_building_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": 3, "b": 5})
    tables = [parse_table(schema, name) for name in ("total", "a", "a * b")]
    asked: list[float] = []
    monkeypatch.setattr(module, "require_memory", lambda needed, *_: asked.append(needed))
    structure = consistency_of_place(schema, tables)
    independent = structure.matrix("independent")
    assert structure.matrix("all").shape[0] == independent.shape[0] + 1 + 3  # two pairs of nearest tables
    pair = consistency_of_place(schema, tables[:2])
    assert pair.matrix("all").shape[0] == pair.matrix("independent").shape[0] + 1  # and one
    del asked[2:]
    entries = structure._functionals.entries
    assert asked[0] == 4 * entries * module.INT8_CELL_BYTES + 2 * entries * module.FLOAT_CELL_BYTES
    assert asked[1] - asked[0] == 2 * module.FLOAT_CELL_BYTES * ((3 + 1) + (15 + 3))
