"""Covariances of functionals by one pass up their branches, against dense least squares and against adjoint applies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import SOLVERS, TwoPass, blue
from blue_solvers.components.tree.tree_form import TreeForm
from blue_solvers.contract import Prepared
from blue_solvers.spine_design.report import entity_workload
from blue_solvers.uncertainty import functionals
from constraint_builders import Problem, Schema, Spine, gallery, memory
from constraint_builders.geography import Entities, leaves
from tests.helpers.every import every
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


@given(spine_problems(special=False), st.integers(0, 2**32 - 1))
def test_covariances_with_structural_zeros_equal_adjoint_applies(problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    level = problem.spine.levels[-1]
    names = {name: rng.random((problem.spine.members[-1].size, *SCHEMA.shape[:2])) < 0.3 for name in ["a * b"]}
    zeros = {(level, name): cells for name, cells in names.items()}
    observed: dict = {}
    for own, (above, table) in zip(problem.geounit_variances, problem.observed.names, strict=True):
        observed.setdefault(above, {})[table] = own
    wanted: dict = {}
    for above, table in problem.desired.names:
        wanted.setdefault(above, []).append(table)
    P = blue(Problem(SCHEMA, observed, wanted, spine=problem.spine, zeros=zeros), TwoPass())
    W = invented_functionals(P.problem, seed)
    expected = Prepared.functional_covariance(P._prepared, W)
    assert_covariances_equal(P.functional_covariance(W), expected, spread(P.problem, W))


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
    by_block = entity_workload(county_problem({"Block": ["sex"]}), entities, "sex")
    assert by_block.nnz == 5 * 2
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


def test_nodes_of_a_summing_matrix_that_form_a_tree() -> None:
    S = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], *np.eye(5)[::-1]])
    problem = Problem.from_summing_matrix(S, np.arange(1.0, 9))
    W = invented_functionals(problem, 5)
    found = blue(problem, TwoPass()).functional_covariance(W)
    np.testing.assert_allclose(found, blue(problem, "dense").functional_covariance(W), rtol=1e-10, atol=1e-10)


def test_equalities_are_left_to_adjoint_applies() -> None:
    plain = county_problem({"Block": ["detailed"]})
    E = np.zeros((1, plain.observed.size))
    E[0, plain.observed.slice(("County", "sex"))] = 1
    observed = {"State": {"total": 1.0}, "County": {"sex": 2.0}, "Block": {"detailed": 8.0}}
    problem = Problem(plain.schema, observed, {"Block": ["detailed"]}, spine=plain.spine, equalities=(E, [20.0]))
    W = invented_functionals(problem, 3)
    found = blue(problem, TwoPass()).functional_covariance(W)
    np.testing.assert_allclose(found, blue(problem, "dense").functional_covariance(W), rtol=1e-9, atol=1e-9)
    assert found[-1, -1] < 1e-9  # the sum of all is known


@every("solver", SOLVERS)
def test_every_solver_gives_the_covariance_of_its_own_estimate(solver: str) -> None:
    problem = gallery.berkeley()
    P = blue(problem, solver)
    W = invented_functionals(problem, 1)
    matrix = P @ np.eye(P.shape[1])
    expected = W.T @ (matrix @ (problem.noise_covariance @ matrix.T) @ W)
    np.testing.assert_allclose(P.functional_covariance(W), expected, rtol=1e-7, atol=1e-9 * expected.max())
