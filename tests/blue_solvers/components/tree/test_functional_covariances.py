"""Covariances of functionals by one pass up their branches, against dense least squares and against adjoint applies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import TwoPass, blue
from blue_solvers.components.tree.tree_form import TreeForm
from blue_solvers.contract import Prepared
from blue_solvers.spine_design.report import entity_workload
from blue_solvers.uncertainty import functionals
from constraint_builders import Problem, Schema, Spine, memory
from constraint_builders.geography import Entities, leaves
from tests.helpers.spines import SCHEMA, TABLES, consistent_measurements, dense_covariance, spine_problems, spines


def invented_functionals(problem: Problem, seed: int, count: int = 4) -> sparse.csc_array:
    """Weighted sums of up to six cells, and the sum of all."""
    rng, size = np.random.default_rng(seed), problem.desired.size
    few = sparse.random_array((size, count), density=min(1.0, 6 / size), rng=rng, data_sampler=rng.standard_normal)
    return sparse.csc_array(sparse.hstack([few, np.ones((size, 1))]))


def assert_covariances_equal(found: np.ndarray, expected: np.ndarray, cells: np.ndarray) -> None:
    """To 1e-8 of the deviations, and to the rounding of the dense reference, which adds up the variances of `cells`."""
    deviations = np.sqrt(np.maximum(expected.diagonal(), 0))
    allowed = 1e-8 * np.outer(deviations, deviations) + 1e-11 * np.sqrt(np.outer(cells, cells))
    assert (abs(found - expected) <= allowed).all()
    assert (found == found.T).all()
    assert (found.diagonal() >= 0).all()


def spread(problem: Problem, W: sparse.csc_array) -> np.ndarray:
    """The square of what every functional could deviate by were all noise as large as the largest, (K,)."""
    largest = problem.variances[np.isfinite(problem.variances)].max()
    return largest * np.asarray(abs(W).sum(axis=0)) ** 2


@given(spine_problems(), st.integers(0, 2**32 - 1))
def test_covariances_equal_dense_least_squares(problem: Problem, seed: int) -> None:
    W = invented_functionals(problem, seed)
    found = blue(problem, TwoPass()).functional_covariance(W)
    assert_covariances_equal(found, W.T @ (dense_covariance(problem) @ W), spread(problem, W))


@given(spines(), st.sampled_from(TABLES), st.integers(0, 2**32 - 1))
def test_an_entity_is_the_same_by_its_blocks_and_by_the_fewest_geounits(spine: Spine, table: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed = {level: {name: 10.0 ** rng.uniform(-2, 2, own.size) for name in dict.fromkeys(["detailed", table])}
                for level, own in zip(spine.levels, spine.members, strict=True)}  # fmt: skip
    problem = Problem(SCHEMA, observed, {level: [table] for level in spine.levels}, spine=spine)
    blocks = leaves(spine)
    contains = rng.random((3, blocks.size)) < 0.7
    contains[:, rng.integers(blocks.size)] = True
    entities = Entities(["a", "b", "c"], contains)
    W = entity_workload(problem, entities, table)
    size = W.shape[1] // 3
    naive = np.zeros((problem.desired.size, W.shape[1]))
    for row, column in np.argwhere(contains):
        block = blocks[column]
        start = problem.desired.slice((spine.levels[spine.level_of[block]], table)).start
        cells = np.arange(size)
        naive[start + spine.rank_in_level[block] * size + cells, row * size + cells] = 1
    assert W.nnz <= np.count_nonzero(naive)
    y = consistent_measurements(problem, seed)
    P = blue(problem, TwoPass())
    fewest, all_blocks = functionals(P, y, W), functionals(P, y, naive)
    np.testing.assert_allclose(fewest.estimate, all_blocks.estimate, rtol=1e-9, atol=1e-10 * abs(y).max())
    expected = naive.T @ dense_covariance(problem) @ naive
    for found in (fewest, all_blocks):
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-8, atol=1e-9 * expected.max())


def county_problem(desired: dict[str, list[str]]) -> Problem:
    spine = Spine.from_geocodes(
        {"State": ["1"], "County": ["11", "12"], "Block": [f"1{county}{block}" for county in "12" for block in "abcd"]}
    )
    observed = {"State": {"total": 1.0}, "County": {"sex": 2.0}, "Block": {"detailed": 8.0}}
    return Problem(Schema({"sex": 2, "age": 3}), observed, desired, spine=spine)


def test_only_levels_where_the_table_is_desired_compose_an_entity():
    county_and_a_block = np.array([[1, 1, 1, 1, 1, 0, 0, 0]])
    entities = Entities(["district"], county_and_a_block)
    by_county = entity_workload(county_problem({"County": ["sex"], "Block": ["sex"]}), entities, "sex")
    assert by_county.nnz == 2 * 2
    assert entity_workload(county_problem({"Block": ["sex"]}), entities, "sex").nnz == 5 * 2
    with pytest.raises(ValueError, match=r"'district' cannot be .* 'sex' is desired at 'State', 'County'"):
        entity_workload(county_problem({"State": ["sex"], "County": ["sex"]}), entities, "sex")
    with pytest.raises(ValueError, match="table 'age' is desired at no geolevel"):
        entity_workload(county_problem({"Block": ["sex"]}), entities, "age")


def test_the_two_passes_touch_no_other_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass up a block and its ancestors needs slots for three geounits, and no apply."""
    problem = county_problem({"Block": ["detailed"]})
    P = blue(problem, TwoPass())
    W = sparse.csc_array(np.ones((1, 1))).copy()
    W.resize((problem.desired.size, 1))
    expected = Prepared.functional_covariance(P._prepared, W)
    monkeypatch.setattr(TreeForm, "adjoint", None)
    np.testing.assert_allclose(P.functional_covariance(W), expected, rtol=1e-12)
    needed = 8 * 3 * (4 * 6 + 1)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": needed - 1}))
    memory._free_in.cache_clear()
    with pytest.raises(MemoryError, match="1 functionals in 3 geounits needs 600 bytes"):
        P.functional_covariance(W)
