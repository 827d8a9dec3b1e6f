"""Tables without a geography are those of a spine of one geounit, under other names."""

import numpy as np
import pytest

from constraint_builders import Problem, Schema, Spine
from constraint_builders.description.table import TableNames
from tests.helpers.every import every

SCHEMA = Schema({"sex": 2, "age": 4, "race": 3}, recodes={"age": {"adult": [0, 0, 1, 1]}})
PLACE = Spine([-1], ["US"], ["us"])
OBSERVED = {
    "numbers": {"total": 0.0, "adult * sex": 2.0, "race * age": 3.0},
    "arrays": {"sex": np.array([1.0, 2.0]), "detailed": np.arange(1.0, 25.0).reshape(2, 4, 3), "age": 5},
    "not measured": {"sex * age": np.inf, "race": [1.0, np.inf, 2.0], "age * race": 4.0, "sex": 1.0},
}


@every("kind", OBSERVED)
def test_one_place_is_a_spine_of_one_geounit(kind: str) -> None:
    alone = Problem(SCHEMA, OBSERVED[kind], undetermined="nan")
    observed = {name: own if np.ndim(own) == 0 else np.asarray(own)[None] for name, own in OBSERVED[kind].items()}
    placed = Problem(SCHEMA, {"US": observed}, spine=PLACE, undetermined="nan")
    assert placed.observed.names == tuple(("US", name) for name in alone.observed.names)
    assert (alone.observed_tables, alone.observed_levels) == (placed.observed_tables, placed.observed_levels)
    np.testing.assert_array_equal(alone.variances, placed.variances)
    np.testing.assert_array_equal(alone.marginal_matrix().toarray(), placed.marginal_matrix().toarray())
    for rows in ("independent", "all"):
        own, other = alone.constraint_matrix(rows), placed.constraint_matrix(rows)
        np.testing.assert_array_equal(own.toarray(), other.toarray())


@pytest.mark.parametrize("places", [None, PLACE])
def test_names_are_read_in_any_spelling_and_called_by_one(places: Spine | None) -> None:
    names = TableNames.of(SCHEMA, places)
    name = names.called(0, "race*sex")
    level, table = names.read(name)
    assert (level, table.shape) == (0, (3, 2))
    assert names.canonical(name) == names.called(0, "sex * race")
    layout, tables, levels = names.tables([name])
    assert (layout.index(names.called(0, "sex * race")), tables, levels) == (0, (table,), (0,))
    assert layout.shape(names.canonical(name))[-2:] == (2, 3)
    assert [own.name for own in names.dimensions(name)][-2:] == ["race", "sex"]
