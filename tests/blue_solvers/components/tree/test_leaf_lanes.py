"""Leaves side by side: equal to the numpy passes, and the transpose of the adjoint, which takes no such way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue, thread_limit
from blue_solvers.components.tree import leaf_form, leaf_lanes, leaf_order, tree_form
from blue_solvers.operator import BlueOperator
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, Spine
from tests.helpers.spines import SCHEMA, TABLES

SPINE = Spine([-1, 0, 0, 1, 1, 2, 2, 2, 1, 2], ["State"] + ["County"] * 2 + ["Block"] * 7)
RECODES = {"b": {"g": [1, 0, 1, 0, 1], "h": [0, 0, 1, 1, 2]}, "a": {"q": [1, 0, 1]}}
DISORDERED = Schema({"a": 3, "b": 5, "c": 2}, recodes=RECODES)
RECODES_IN_ORDER = {"b": {"g": [0, 1, 1, 1], "h": [0, 1, 1, 2]}, "c": {"q": [0, 0, 1]}}  # of SCHEMA


def in_lanes(
    problem: Problem, whole: int, run: int = 2, few: int = 3, levels: tuple[bool, ...] = (False, False, True)
) -> BlueOperator:
    """The two passes, with all leaves that measured their finest table side by side, in small lots."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaf_form, "has_numba", lambda: True)
        patch.setattr(leaf_form, "LEAVES_OF_A_CLASS", 0)
        patch.setattr(tree_form, "BLOCK_BYTES", few * 8 * 24)
        patch.setattr(leaf_order, "LEAVES", few)
        patch.setattr(leaf_lanes, "WHOLE", whole)
        patch.setattr(leaf_lanes, "RUN", run)
        P = blue(problem, "two_pass")
        assert [own._lanes is not None for own in P._prepared._method._leaves] == list(levels)
        P @ np.zeros(P.shape[1])  # lots are made here
        return P


def in_numpy(problem: Problem) -> BlueOperator:
    """The two passes where numba is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaf_form, "has_numba", lambda: False)
        return blue(problem, "two_pass")


def tables_of(schema: Schema) -> list[str]:
    if schema is SCHEMA:
        return [table for table in TABLES if table != "detailed"]
    return ["total", "a", "q", "g", "h", "c", "a * b", "q * g", "q * h * c", "g * c", "b * c", "q * c"]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Nested and crossing recodes, groups in order or not, one kind of leaf or several."""
    schema = draw(st.sampled_from([SCHEMA, DISORDERED]))
    tables = sorted(draw(st.sets(st.sampled_from(tables_of(schema)))))
    variances = np.array(draw(st.lists(st.sampled_from([0.3, 2.0, 5e3]), min_size=7, max_size=7)))
    kind = variances[np.arange(7) % draw(st.sampled_from([1, 3, 7]))]
    observed = {"Block": {"detailed": kind} | {table: kind[::-1] * (1 + len(table)) for table in tables}}
    return Problem(schema, observed | {"State": {"total": 1.0}}, spine=SPINE, desired="all")


def line_or(whole: int, problem: Problem) -> int:
    """The most cells through a tile: a finest table is no line where another table tells all variables apart."""
    assert problem.schema is not None
    variables = len(problem.schema.shape)
    others = (table for table in problem.observed_tables if table.name != "a * b * c")
    return 128 if any(len(table.axes) == variables for table in others) else whole


@given(problems(), st.sampled_from([0, 128]), st.sampled_from([2, 100]), st.sampled_from([1, 3, 70]))
def test_they_equal_the_numpy_passes(problem: Problem, whole: int, run: int, columns: int) -> None:
    """Through the tile or, where no other table tells all variables apart, as a line."""
    P, Q = in_lanes(problem, line_or(whole, problem), run), in_numpy(problem)
    Y = np.random.default_rng(0).standard_normal((problem.observed.size, columns))
    np.testing.assert_allclose(P @ Y, Q @ Y, rtol=1e-12, atol=1e-12)
    dot_test(P, rng=0)
    violation = P._prepared.violation(Y)
    assert violation is not None
    assert violation <= 1e-11


def sums_of(schema: Schema, table: str) -> np.ndarray:
    """Every cell of a table as a sum of detailed cells, from its name."""
    whole, recodes = np.ones((1, 1)), RECODES_IN_ORDER if schema is SCHEMA else RECODES
    for variable, size in zip(schema.names, schema.shape, strict=True):
        along = np.ones((1, size))
        for factor in table.split(" * "):
            if factor == variable or table == "detailed":
                along = np.eye(size)
            elif factor in recodes.get(variable, {}):
                groups = np.asarray(recodes[variable][factor])
                along = np.eye(groups.max() + 1)[:, groups]
        whole = np.kron(whole, along)
    return whole


@given(problems(), st.sampled_from([0, 128]))
def test_they_equal_dense_least_squares(problem: Problem, whole: int) -> None:
    schema = SCHEMA if problem.schema == SCHEMA else DISORDERED
    inside = {"State": np.ones((1, 7)), "Block": np.eye(7)}
    M = np.concatenate([np.kron(inside[level], sums_of(schema, table)) for level, table in problem.observed.names])
    root = 1 / np.sqrt(problem.variances)[:, None]
    Y = np.random.default_rng(1).standard_normal((problem.observed.size, 2))
    expected = M @ np.linalg.lstsq(root * M, root * Y, rcond=None)[0]
    found = in_lanes(problem, line_or(whole, problem)) @ Y
    for name in problem.observed.names:
        np.testing.assert_allclose(
            found[problem.desired.slice(name)], expected[problem.observed.slice(name)], rtol=0, atol=1e-9
        )


@given(st.integers(0, 100))
def test_bits_do_not_depend_on_threads_nor_on_who_is_beside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = Problem(SCHEMA, {"Block": {"detailed": 1.0, "a": 2.0, "g * c": 3.0}}, spine=SPINE, desired="all")
    Y = rng.standard_normal((problem.observed.size, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blue_solvers.threads.WORTH_BYTES", 0)
        patch.setattr(tree_form, "WIDE", 0)
        found = []
        for count in (1, 2, 3):
            with thread_limit(count):
                found.append(in_lanes(problem, 0) @ Y)
        found.append(in_lanes(problem, 0, few=100) @ Y)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@given(st.data())
def test_children_of_one_parent_may_lie_at_several_levels(data: st.DataObject) -> None:
    """Sums over children that are all in one lot are set, to those of others is added; whoever comes first."""
    counties, blocks = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 25))
    above = data.draw(st.lists(st.integers(0, counties), min_size=blocks, max_size=blocks))
    spine = Spine([-1] + [0] * counties + above, ["State"] + ["County"] * counties + ["Block"] * blocks)
    observed = {"County": {"detailed": 3.0, "total": 1.0}, "Block": {"detailed": 2.0, "a": 1.0, "g": 4.0}}
    problem = Problem(SCHEMA, observed | {"State": {"total": 1.0}}, spine=spine, desired="all")
    is_leaf = ~np.isin(np.arange(counties) + 1, above)
    leaves = np.concatenate([np.flatnonzero(is_leaf) + 1, counties + 1 + np.arange(blocks)])
    parent = np.concatenate([[-1], np.zeros(counties, int), above])
    county = (leaves == np.arange(1, counties + 1)[:, None]) | (parent[leaves] == np.arange(1, counties + 1)[:, None])
    inside = {"State": np.ones((1, leaves.size)), "County": county * 1.0, "Block": np.eye(leaves.size)[is_leaf.sum() :]}
    M = np.concatenate([np.kron(inside[level], sums_of(SCHEMA, table)) for level, table in problem.observed.names])
    root = 1 / np.sqrt(problem.variances)[:, None]
    Y = np.random.default_rng(1).standard_normal((problem.observed.size, 2))
    expected = M @ np.linalg.lstsq(root * M, root * Y, rcond=None)[0]
    found = in_lanes(problem, 0, levels=(False, bool(is_leaf.any()), True)) @ Y
    for name in problem.observed.names:
        own = found[problem.desired.slice(name)]
        np.testing.assert_allclose(own, expected[problem.observed.slice(name)], rtol=0, atol=1e-9)


def test_other_tables_that_tell_all_variables_apart_keep_a_large_table_off_the_line() -> None:
    schema = Schema({"a": 20, "b": 10}, recodes={"b": {"g": [0] * 4 + [1] * 6}})
    finest, recoded = (table for table in Problem(schema, {"detailed": 1.0, "a * g": 1.0}).observed_tables)
    assert not leaf_lanes.LeafLanes.can(schema, finest, [recoded])
