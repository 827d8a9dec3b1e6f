"""Covariances of sums over places, against dense least squares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.covariances import PlaceCovariances
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders import Problem, Schema, Spine
from tests.helpers.spines import SCHEMA, TABLES, dense_covariance, spines

CROSSING = Schema(
    {"x": 9, "y": 8},
    recodes={
        "x": {
            "thirds": [0, 0, 0, 1, 1, 1, 2, 2, 2],
            "turns": [0, 1, 2, 0, 1, 2, 0, 1, 2],
            "pair": [0, 0, 0, 0, 1, 1, 1, 1, 1],
        },
        "y": {"halves": [0, 0, 0, 0, 1, 1, 1, 1], "quarters": [0, 0, 1, 1, 2, 2, 3, 3]},
    },
)


def check(problem: Problem, table: str, seed: int) -> PlaceCovariances:
    """Sums of whole numbers of cells over places that add and subtract geounits, the first a geounit by itself."""
    rng, spine = np.random.default_rng(seed), problem.spine
    plan = TreePlan(StructuredProblem.of(problem))
    cells = next(own for own in problem.desired_tables if own.name == table)
    taken = rng.integers(-1, 3, (cells.size, 3)).astype(float)
    signs = rng.integers(-1, 2, (3, spine.size)) * (rng.random((3, spine.size)) < 0.5)
    geounit = int(rng.integers(spine.size))
    signs[0] = np.arange(spine.size) == geounit
    W = np.zeros((problem.desired.size, 9))
    for index, (own, level) in enumerate(zip(problem.desired_tables, problem.desired_levels, strict=True)):
        if own.name == table:
            W[problem.desired.block(index)] = np.kron(signs[:, spine.members[level]].T, taken)
    expected = W.T @ dense_covariance(problem) @ W
    sweep = PlaceCovariances(plan, cells, sparse.csr_array(taken))
    found = sweep.of(sparse.csr_array(signs))
    deviations = np.sqrt(np.maximum(expected.diagonal(), 0))
    rounding = problem.variances[np.isfinite(problem.variances)].max() * abs(W).sum(axis=0) ** 2
    allowed = 1e-8 * np.outer(deviations, deviations) + 1e-11 * np.sqrt(np.outer(rounding, rounding))
    assert (abs(found - expected) <= allowed).all()
    assert (found == found.T).all()
    assert (abs(sweep.of(sparse.csr_array(signs[:1])) - expected[:3, :3]) <= allowed[:3, :3]).all()
    return sweep


@given(spines(), st.sampled_from(TABLES), st.booleans(), st.integers(0, 2**32 - 1))
def test_sums_over_places_have_the_covariance_of_dense_least_squares(
    spine: Spine, table: str, exact: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    observed: dict[str, dict[str, np.ndarray]] = {}
    for level, own in zip(spine.levels, spine.members, strict=True):
        tables = {name: 10.0 ** rng.uniform(-1, 1, own.size) for name in dict.fromkeys(["detailed", table])}
        if exact and table != "detailed":
            tables[table][rng.random(own.size) < 0.3] = 0
        observed[level] = tables
    check(Problem(SCHEMA, observed, {level: [table] for level in spine.levels}, spine=spine), table, seed)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_components_in_pieces(seed: int) -> None:
    """Recodes that cross each other, so that a component is tied together in part and copies of one number else."""
    rng = np.random.default_rng(seed)
    spine = Spine([-1, 0, 0, 1, 1, 2], ["a", "b", "b", "c", "c", "c"])
    names = ["thirds * quarters", "turns", "pair * y", "halves", "detailed"]
    observed = {
        level: {name: rng.uniform(0.5, 3, own.size) for name in names}
        for level, own in zip(spine.levels, spine.members, strict=True)
    }
    wanted = ["detailed", "x * halves"]
    problem = Problem(CROSSING, observed, dict.fromkeys(spine.levels, wanted), spine=spine)
    plan = TreePlan(StructuredProblem.of(problem))
    assert not all(plan.division(key).coordinates.are_numbers for key in plan.design_keys)
    for table in wanted:
        check(problem, table, seed)


def test_a_place_of_nothing_is_known() -> None:
    spine = Spine([-1, 0], ["a", "b"])
    problem = Problem(SCHEMA, {level: {"detailed": 1.0} for level in spine.levels}, spine=spine)
    table = problem.desired_tables[0]
    sweep = PlaceCovariances(TreePlan(StructuredProblem.of(problem)), table, sparse.csr_array(np.ones((table.size, 2))))
    assert not sweep.of(sparse.csr_array((1, 2))).any()
