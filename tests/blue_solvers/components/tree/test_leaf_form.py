"""Leaves in cells: equal to dense least squares, compiled and in numpy, and the transpose of the adjoint."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue, thread_limit
from blue_solvers.components.tree import level_tables, tree_form
from blue_solvers.operator import BlueOperator
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, Spine
from constraint_builders.compiled import CompiledLoop
from tests.helpers.exact_reference import marginal_rows
from tests.helpers.spines import SCHEMA, TABLES

SPINE = Spine([-1, 0, 0, 1, 1, 2, 2, 2, 1, 2], ["State"] + ["County"] * 2 + ["Block"] * 7)
COUNTIES = np.array([1, 1, 2, 2, 2, 1, 2])  # of the blocks
INSIDE = {"State": np.ones((1, 7)), "County": (COUNTIES == [[1], [2]]) * 1.0, "Block": np.eye(7)}
RECODES = {"b": {"g": [1, 0, 1, 0, 1], "h": [0, 0, 1, 1, 2]}, "a": {"q": [1, 0, 1]}}
DISORDERED = Schema({"a": 3, "b": 5, "c": 2}, recodes=RECODES)


def in_blocks(problem: Problem, few: int = 3, levels: tuple[bool, ...] = (False, False, True)) -> BlueOperator:
    """The two passes, with all leaves that measured their finest table in blocks of so many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_tables, "LEAST_NUMBERS", 0)
        patch.setattr(tree_form, "BLOCK_BYTES", few * 8 * 24)
        P = blue(problem, "two_pass")
        assert [len(own.rows) > 1 for own in P._prepared._method._measured] == list(levels)
        P @ np.zeros(P.shape[1])  # blocks are made here
        return P


@contextmanager
def without_numba() -> Iterator[None]:
    """Loops in numpy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledLoop, "fastest", lambda own: own.reference)
        yield


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


@given(problems(), st.sampled_from([1, 3]))
def test_they_equal_the_numpy_passes(problem: Problem, columns: int) -> None:
    P = in_blocks(problem)
    Y = np.random.default_rng(0).standard_normal((problem.observed.size, columns))
    V = np.random.default_rng(1).standard_normal((problem.desired.size, columns))
    with without_numba():
        X, W = P @ Y, P.T @ V
    assert (abs(P @ Y - X) <= 2 * rounding(problem, Y)).all()
    np.testing.assert_allclose(P.T @ V, W, rtol=0, atol=1e-11)
    dot_test(P, rng=0)
    assert P._prepared.violation(Y) <= 1e-11


@given(problems())
def test_they_equal_geounits_in_slots(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_tables, "LEAST_NUMBERS", 10**6)
        slots = blue(problem, "two_pass")
        assert not any(own.rows[:-1] for own in slots._prepared._method._measured)
    P, (n, m) = in_blocks(problem), (problem.observed.size, problem.desired.size)
    Y, V = (np.random.default_rng(0).standard_normal((size, 2)) for size in (n, m))
    assert (abs(P @ Y - slots @ Y) <= 2 * rounding(problem, Y)).all()
    deviations = np.sqrt(problem.variances)[:, None]  # weights count in units of the noise that they multiply
    lengths = np.linalg.norm(V * np.sqrt(slots.variances())[:, None], axis=0)
    assert (abs(P.T @ V - slots.T @ V) * deviations <= 1e-13 * lengths).all()


def rounding(problem: Problem, Y: np.ndarray) -> np.ndarray:
    """How far sums that round may bring an estimate off, (m, K).

    In units of the noise P is an orthogonal projection: no sum on the way to a cell exceeds the deviation of what the
    blocks measured of it times the length of Y in such units, and every addition rounds that once.
    """
    schema = SCHEMA if problem.schema == SCHEMA else DISORDERED
    M = np.concatenate([np.kron(INSIDE[level], marginal_rows(schema, table)) for level, table in problem.desired.names])
    cells = int(np.prod(schema.shape))
    deviations = np.sqrt(M**2 @ problem.variances[problem.observed.slice(("Block", "detailed"))])
    lengths = np.linalg.norm(Y / np.sqrt(problem.variances)[:, None], axis=0)
    additions = 2 * (len(problem.observed_tables) + sum(schema.shape) + M.shape[1] // cells)  # up, and down again
    return np.finfo(float).eps * additions * np.outer(deviations, lengths)


@given(problems(), st.sampled_from([2, 8]))
def test_they_equal_dense_least_squares(problem: Problem, few: int) -> None:
    schema = SCHEMA if problem.schema == SCHEMA else DISORDERED
    M = np.concatenate(
        [np.kron(INSIDE[level], marginal_rows(schema, table)) for level, table in problem.observed.names]
    )
    root = 1 / np.sqrt(problem.variances)[:, None]
    Y = np.random.default_rng(1).standard_normal((problem.observed.size, 2))
    expected = M @ np.linalg.lstsq(root * M, root * Y, rcond=None)[0]
    found = in_blocks(problem, few) @ Y
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
        found = []
        for count in (1, 2, 3):
            with thread_limit(count):
                found.append(in_blocks(problem) @ Y)
        found.append(in_blocks(problem, few=100) @ Y)
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
    M = np.vstack([np.kron(inside[level], marginal_rows(SCHEMA, table)) for level, table in problem.observed.names])
    root = 1 / np.sqrt(problem.variances)[:, None]
    Y = np.random.default_rng(1).standard_normal((problem.observed.size, 2))
    expected = M @ np.linalg.lstsq(root * M, root * Y, rcond=None)[0]
    found = in_blocks(problem, levels=(False, bool(is_leaf.any()), True)) @ Y
    for name in problem.observed.names:
        own = found[problem.desired.slice(name)]
        np.testing.assert_allclose(own, expected[problem.observed.slice(name)], rtol=0, atol=1e-9)


def test_the_violation_is_of_all_cells_whatever_is_desired() -> None:
    """Also where leaves' finest table is not, and room for it is taken that held something else."""
    spine = Spine([-1] + [0] * 200, ["State"] + ["Block"] * 200)
    observed = {"State": {"detailed": 1.0}, "Block": {"detailed": 1.0, "a": 2.0}}
    problem = Problem(SCHEMA, observed, spine=spine, desired={"State": ["detailed"], "Block": ["total"]})
    P, y = blue(problem, "two_pass"), np.random.default_rng(0).standard_normal(problem.observed.size)
    np.full((200, *SCHEMA.shape), 1e9)  # and given back
    assert P.estimate(y).info.violation <= 1e-11
    np.testing.assert_allclose(P.estimate(y).values, P @ y, rtol=0, atol=1e-11)


def test_what_is_prepared_goes_with_what_holds_it() -> None:
    P = in_blocks(Problem(SCHEMA, {"Block": {"detailed": 1.0}, "State": {"total": 1.0}}, spine=SPINE))
    form = weakref.ref(P._prepared._method)
    gc.disable()
    try:
        del P
        assert form() is None
    finally:
        gc.enable()
