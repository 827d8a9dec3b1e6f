"""Every kind of noise does what its covariance says, and says what it cannot do."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers import blue
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import IndependentNoise, Noise
from constraint_builders.description.noise_covariance import LowRankNoise, OperatorNoise, SparseNoise
from tests.helpers.refused import refuses

RNG = np.random.default_rng(3)
ROOT = RNG.normal(size=(6, 6))
DENSE = ROOT @ ROOT.T + np.eye(6)
BLOCKS = sparse.csr_array(sparse.block_diag([DENSE[:3, :3], np.eye(1), DENSE[3:5, 3:5]]))
DIAGONAL, FACTOR = np.arange(1.0, 7), RNG.normal(size=(6, 2))


class Products(LinearOperator):
    """Products only."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__(np.dtype(float), matrix.shape)
        self.matrix = matrix

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        return self.matrix @ X


class Solved(Products):
    """Solutions too."""

    def solve(self, V: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.matrix, V)


KINDS: dict[str, tuple[Noise, np.ndarray]] = {
    "independent": (IndependentNoise("laplace", DIAGONAL.copy()), np.diag(DIAGONAL)),
    "sparse": (SparseNoise("gaussian", BLOCKS), BLOCKS.toarray()),
    "low rank": (
        LowRankNoise("gaussian", LowRankPlusDiagonal(DIAGONAL, FACTOR)),
        np.diag(DIAGONAL) + FACTOR @ FACTOR.T,
    ),
    "operator": (OperatorNoise("gaussian", Products(DENSE), DENSE.diagonal()), DENSE),
    "operator that solves": (OperatorNoise("gaussian", Solved(DENSE), DENSE.diagonal()), DENSE),
}
kinds = pytest.mark.parametrize("name", KINDS)


def require_covariance(noise: Noise, Sigma: np.ndarray) -> None:
    V = np.random.default_rng(1).normal(size=(len(Sigma), 3))
    np.testing.assert_allclose(noise.variances, Sigma.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(noise @ V, Sigma @ V, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(noise @ V[:, 0], Sigma @ V[:, 0], rtol=1e-12, atol=1e-12)
    if noise.solve is not None:
        np.testing.assert_allclose(noise.solve(V), np.linalg.solve(Sigma, V), rtol=1e-8, atol=1e-10)
    entries = noise.entries()
    assert noise.has_entries == (entries is not None)
    if entries is not None:
        np.testing.assert_allclose(entries.toarray(), Sigma, rtol=1e-12)
    if noise.is_shared:
        own, U = noise.own.variances, noise.sources
        np.testing.assert_allclose(np.diag(own) + U @ U.T, Sigma, rtol=1e-12)


@kinds
def test_it_is_its_covariance(name: str) -> None:
    require_covariance(*KINDS[name])


@kinds
def test_in_another_order_it_is_the_covariance_in_that_order(name: str) -> None:
    noise, Sigma = KINDS[name]
    order = np.array([3, 0, 5, 1, 4, 2])
    turned = noise.at(order)
    require_covariance(turned, Sigma[np.ix_(order, order)])
    assert (turned.solve is None) == (noise.solve is None)


@kinds
def test_it_equals_its_law_and_itself_pickled(name: str) -> None:
    noise, _ = KINDS[name]
    assert noise == noise.law != "discrete_laplace"
    assert [other for other in KINDS if KINDS[other][0] == noise] == [name]
    if noise.covariance is None or not name.startswith("operator"):
        assert pickle.loads(pickle.dumps(noise)) == noise


@kinds
def test_draws_have_its_covariance(name: str) -> None:
    noise, Sigma = KINDS[name]
    if name.startswith("operator"):
        refuses("cannot be drawn from an operator", noise.gaussian, 1, np.random.default_rng(0))
        return
    draws = noise.gaussian(40_000, np.random.default_rng(0))
    scale = np.sqrt(np.outer(Sigma.diagonal(), Sigma.diagonal()))
    assert abs(draws @ draws.T / draws.shape[1] - Sigma).max() < 0.05 * scale.max()


def test_cells_that_were_not_measured_count_as_nothing() -> None:
    noise = IndependentNoise("gaussian", np.array([1.0, np.inf, 4.0]))
    assert noise.entries().toarray().tolist() == np.diag([1.0, 0, 4]).tolist()
    assert (noise @ np.ones(3)).tolist() == noise.solve(np.array([1.0, 5.0, 16.0])).tolist() == [1.0, 0.0, 4.0]
    measured = noise.had_been_measured(np.array([1]), 9.0)
    assert (measured.variances.tolist(), measured.law) == ([1.0, 9.0, 4.0], "gaussian")


def test_what_is_known_exactly_has_no_inverse() -> None:
    refuses("cell 1 is known exactly", IndependentNoise("gaussian", np.array([1.0, 0.0])).solve, np.ones(2))


def test_variances_that_are_equal_within_tables() -> None:
    layout = Layout(["a", "b"], [(2, 2), (2,)])
    by_geounit = IndependentNoise("gaussian", np.array([1.0, 1, 2, 2, 3, 3]))
    assert [own.tolist() for own in by_geounit.by_geounit(layout, [2, 1]) or []] == [[1.0, 2.0], [3.0, 3.0]]
    assert by_geounit.by_table(layout) is None
    assert by_geounit.by_geounit(layout, [4, 2]) is None
    equal = IndependentNoise("gaussian", np.array([1.0, 1, 1, 1, 3, 3])).by_table(layout)
    assert equal.tolist() == [1.0, 3.0]
    assert SparseNoise("gaussian", sparse.csr_array(np.eye(6))).by_table(layout) is None


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 3.0, np.inf]), st.integers(1, 4)), min_size=1, max_size=8))
def test_runs_of_cells_of_one_variance_are_as_if_laid_out(runs: list[tuple[float, int]]) -> None:
    values, counts = np.array([value for value, _ in runs]), np.array([count for _, count in runs])
    short, long = IndependentNoise("laplace", values, counts), IndependentNoise("laplace", np.repeat(values, counts))
    assert short.exact.tolist() == long.exact.tolist() == (long.variances == 0).tolist()
    assert short.unmeasured.tolist() == long.unmeasured.tolist() == np.isinf(long.variances).tolist()
    layout = Layout([str(i) for i in range(len(runs))], [(1, count) for count in counts.tolist()])
    for cells in (counts.tolist(), [1] * len(runs)):
        found, expected = (noise.by_geounit(layout, cells) for noise in (short, long))
        assert [own.tolist() for own in found or []] == [own.tolist() for own in expected or []]
    assert short == long
    assert pickle.loads(pickle.dumps(short)) == long
    assert not short.variances.flags.writeable
    V = np.arange(2.0 * counts.sum()).reshape(-1, 2)
    np.testing.assert_array_equal(short @ V, long @ V)


def test_a_problem_on_a_spine_lays_variances_out_only_where_somebody_asks() -> None:
    spine = Spine([-1, 0, 0])
    problem = Problem(Schema({"sex": 3}), {"depth 0": {"total": 2.0}, "depth 1": {"sex": [1.0, 5.0]}}, spine=spine)
    P = blue(problem)
    P.estimate(problem.vector({("depth 0", "total"): [9.0], ("depth 1", "sex"): np.ones((2, 3))}), certify=False)
    P.variances()
    assert "variances" not in vars(problem.noise)
    assert problem.variances.tolist() == [2.0, 1, 1, 1, 5, 5, 5]


def test_a_law_that_is_none_is_refused() -> None:
    refuses("noise must be one of", IndependentNoise, "loud", np.ones(2))


def test_a_problem_holds_its_noise() -> None:
    problem = Problem.from_matrix([[1.0, -1.0]], sparse.csr_array([[2.0, 0.5], [0.5, 1.0]]))
    assert problem.noise == SparseNoise("gaussian", problem.covariance)
    assert problem.variances is problem.noise.variances
