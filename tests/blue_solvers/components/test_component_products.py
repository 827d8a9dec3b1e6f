"""Products of every component with its own matrices, against the matrix of the whole block."""

import numpy as np
import pytest
from scipy import sparse

from blue_solvers.components.component_products import Component, Composed, Coordinates, Ragged, TableAccess
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders import Problem, Schema
from constraint_builders.description.table import parse_table
from tests.helpers.every import every

SIZES = ((2, 3), (1, 2))  # along each of two variables, contrasts and groups


def components() -> list[Component]:
    """All four of two variables."""
    axes = [Grouping(i, np.arange(contrasts + groups) % groups) for i, (contrasts, groups) in enumerate(SIZES)]
    return [Component(axes, (one, other)) for one in (False, True) for other in (False, True)]


@every("geounits", [1, 4])
@every("transpose", [False, True])
def test_every_component_is_multiplied_by_its_own_matrices(geounits: int, transpose: bool) -> None:
    rng = np.random.default_rng(0)
    block = rng.standard_normal((4, 5, 3, 2))
    matrices = [(own, rng.standard_normal((geounits, own.size, own.size))) for own in components()]
    expected = np.zeros_like(block)
    for g, k in np.ndindex(4, 2):
        for component, M in matrices:
            part = block[g, *component.slots, k]
            matrix = M[g % geounits].T if transpose else M[g % geounits]
            along = [axis for axis, contrast in enumerate(component.contrasts) if not contrast]
            flat = np.moveaxis(part, along, range(len(along))).reshape(component.size, -1)
            lengths = [part.shape[axis] for axis in along] + [n for i, n in enumerate(part.shape) if i not in along]
            expected[g, *component.slots, k] = np.moveaxis((matrix @ flat).reshape(lengths), range(len(along)), along)
    found = np.zeros_like(block)
    for component, M in matrices:
        own = M.swapaxes(1, 2) if transpose else M
        component.multiply(own, block[component.place], found[component.place])
    assert found == pytest.approx(expected, rel=1e-12)


def test_products_may_be_of_other_lengths() -> None:
    """Four numbers of a table to the six sums of the component."""
    rng = np.random.default_rng(1)
    part, M, found = rng.standard_normal((3, 2, 2, 5)), rng.standard_normal((1, 6, 4)), np.zeros((3, 3, 2, 5))
    components()[0].multiply(M, part, found)
    assert found == pytest.approx((M @ part.reshape(3, 4, 5)).reshape(3, 3, 2, 5))


TABLES = {"total": 1.0, "a": 2.0, "g": 3.0, "g * b": 1.5, "detailed": 0.5}


@every("name", ["detailed", "a", "g * b", "b", "total"])
@every("recodes", [{}, {"a": {"g": [0, 1, 1, 2, 0]}}])
@every("entries", [[0, 2, 1], [1, 1, 1]])
def test_tables_to_slots_and_back(name: str, recodes: dict[str, dict[str, list[int]]], entries: list[int]) -> None:
    """With components of one number, and of several, each component by itself; and the transpose."""
    schema = Schema({"a": 5, "b": 2}, recodes=recodes)
    table = parse_table(schema, name if recodes or "g" not in name else "a * b")
    plan = TreePlan(StructuredProblem.of(Problem(schema, {t: v for t, v in TABLES.items() if recodes or "g" not in t})))
    rng, seen = np.random.default_rng(len(name)), plan.map_of(table)
    lengths = [own.levels for own in seen.axes]
    coordinates, expected = rng.standard_normal((3, *lengths, 2)), np.zeros((3, 5, 2, 2))
    given = []
    for component in (plan.components[i] for i in seen.seen):
        pairs = zip(component.slots, seen.axes, strict=True)
        along = [slots if own.has_contrasts else slice(None) for slots, own in pairs]
        part = coordinates[(slice(None), *along)]
        own = [n for n, contrast in zip(part.shape[1:-1], component.contrasts, strict=True) if not contrast]
        M = rng.standard_normal((3, component.size, int(np.prod(own))))
        whole = Ragged([(M, np.arange(M.shape[1]), np.arange(M.shape[2]))], M.shape[1:], np.zeros(3, int), np.arange(3))
        rows, columns = (Coordinates(n, {0: (sparse.eye_array(n, format="csc"), n)}, True) for n in M.shape[1:])
        given.append((component, Composed(rows, columns, {0: whole}, 3)))
        component.multiply(M[entries], part, expected[component.place])
    access = TableAccess(seen, given)
    assert access.to_slots(coordinates.copy(), np.array(entries)) == pytest.approx(expected)
    slots = rng.standard_normal(expected.shape)
    back = access.from_slots(slots, np.array(entries))
    assert back.shape == coordinates.shape
    assert (back * coordinates).sum() == pytest.approx((slots * expected).sum())
    assert access.to_slots(coordinates[:0], np.zeros(0, int)).shape == (0, 5, 2, 2)
