"""Correlated noise, with the nearest structured problem as preconditioner: matrices, and operators with a solve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers import ConjugateGradient, ConvergenceError, blue
from blue_solvers.testing import check_solver, dot_test
from constraint_builders import LowRankPlusDiagonal, Problem, Spine, gallery
from constraint_builders.arrays import Float
from tests.helpers.correlated import dense_operator
from tests.helpers.effort import examples
from tests.helpers.exact_reference import exact_blue
from tests.helpers.spines import SCHEMA, spine_problems
from tests.helpers.strategies import Case, cases

SOLVER = ConjugateGradient(preconditioner="two_pass")


class Inverted(LinearOperator):
    """A covariance that is known by its products and those of its inverse alone."""

    def __init__(self, matrix: Float, inverse: Float | None = None) -> None:
        super().__init__(np.dtype(np.float64), matrix.shape)
        self._matrix = matrix
        self._inverse = np.linalg.inv(matrix) if inverse is None else inverse

    def _matmat(self, X: Float) -> Float:
        return self._matrix @ X

    def solve(self, V: Float) -> Float:
        return self._inverse @ V


def blocks(sizes: list[int], variances: Float, rng: np.random.Generator) -> sparse.csr_array:
    """Dense random correlations within consecutive blocks of cells."""
    correlations = []
    for size in sizes:
        factor = rng.standard_normal((size, 2 * size))
        covariance = factor @ factor.T
        own = np.sqrt(covariance.diagonal())
        correlations.append(covariance / np.outer(own, own))
    scale = sparse.diags_array(np.sqrt(variances))
    return sparse.csr_array(scale @ sparse.block_diag(correlations) @ scale)


def within_tables(problem: Problem, seed: int = 0) -> Problem:
    """The same tables with correlated cells within every table."""
    covariance = blocks(problem.observed.sizes.tolist(), problem.variances, np.random.default_rng(seed))
    return Problem(problem.schema, dict.fromkeys(problem.observed.names), covariance=covariance)


@examples(25)
@given(case=cases("covariance"))
def test_against_exact_rationals_within_its_own_bound(case: Case) -> None:
    P = blue(case.problem(), SOLVER)
    deviations = np.sqrt(case.covariance.diagonal())
    X, info = P.apply(np.diag(deviations))
    exact = exact_blue(case.schema, list(case.observed), deviations**2, case.desired, case.covariance)
    errors = np.sqrt(exact.variances)[:, None]
    assert (abs(X - exact.operator * deviations) <= info.error_bound * errors + 1e-13 * deviations.max()).all()
    assert info.error_bound < 1e-8
    np.testing.assert_allclose(P.variances(), exact.variances, rtol=1e-8)


@examples(10)
@given(invented=spine_problems(special=False), seed=st.integers(0, 99))
def test_dense_blocks_of_the_geounits_of_any_spine(invented: Problem, seed: int) -> None:
    """All tables of a geounit are correlated, those of different geounits are not."""
    rng = np.random.default_rng(seed)
    owner = np.concatenate(
        [
            np.repeat(invented.spine.members[level], table.size)
            for level, table in zip(invented.observed_levels, invented.observed_tables, strict=True)
        ]
    )
    order = np.argsort(owner, kind="stable")
    sorted_blocks = blocks(np.unique(owner, return_counts=True)[1].tolist(), invented.variances[order], rng)
    back = np.argsort(order)
    problem = correlated_on_spine(invented, sparse.csr_array(sorted_blocks[back][:, back]))
    expected, _, variances = dense_operator(problem)
    deviations = np.sqrt(problem.variances)
    P = blue(problem, SOLVER)
    difference = abs(P @ np.diag(deviations) - expected * deviations)
    assert (difference <= 1e-7 * np.sqrt(variances)[:, None] + 1e-11 * deviations.max()).all()
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-6)
    dot_test(P)


def correlated_on_spine(problem: Problem, covariance: object, **described) -> Problem:
    observed: dict[str, dict[str, None]] = {}
    for level, table in problem.observed.names:
        observed.setdefault(level, {})[table] = None
    return Problem(problem.schema, observed, spine=problem.spine, covariance=covariance, **described)


def test_structural_zeros_and_equalities_with_a_right_hand_side() -> None:
    spine = Spine([-1, 0, 0, 1, 1, 2], ["S", "C", "C", "T", "T", "T"])
    observed = {"S": {"total": 1.0, "detailed": 3.0}, "C": {"a": 1.0, "g": 2.0}, "T": {"detailed": 2.0}}
    plain = Problem(SCHEMA, observed, spine=spine)
    covariance = blocks(plain.observed.sizes.tolist(), plain.variances, np.random.default_rng(0))
    zeros = {("S", "a"): np.array([[False, True]]), ("C", "h"): np.array([[True, False, False], [False, False, False]])}
    E = np.zeros((2, plain.observed.size))
    E[0, :3], E[1, -24] = 1, 1
    for described in ({"zeros": zeros}, {"equalities": (E, [31.0, 4.0])}):
        problem = correlated_on_spine(plain, covariance, **described)
        expected, offset, variances = dense_operator(problem)
        P = blue(problem, SOLVER)
        np.testing.assert_allclose(P @ np.eye(problem.observed.size), expected, atol=1e-8)
        np.testing.assert_allclose(P.offset, offset, atol=1e-8)
        np.testing.assert_allclose(P.variances(), variances, atol=1e-8)
        dot_test(P)


def test_an_operator_needs_no_entries_and_has_no_bound() -> None:
    matrix = within_tables(gallery.cube(3, 3)).covariance.toarray()
    names = gallery.cube(3, 3).observed.names
    problem = Problem(gallery.cube(3, 3).schema, dict.fromkeys(names), covariance=Inverted(matrix))
    P, reference = blue(problem, SOLVER), blue(within_tables(gallery.cube(3, 3)), "dense")
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 2))
    X, info = P.apply(y)
    np.testing.assert_allclose(X, reference @ y, atol=1e-8)
    assert info.error_bound is None
    np.testing.assert_allclose(P.variances(), reference.variances(), rtol=1e-8)
    check_solver(SOLVER, problem)
    check_solver(SOLVER, within_tables(gallery.cube(3, 3)))


def test_agrees_with_the_closed_form_for_shared_noise() -> None:
    """The low rank by its operator's `solve` alone, not taken apart."""
    plain = gallery.cube(3, 3)
    U = np.random.default_rng(0).standard_normal((plain.observed.size, 2))
    shared = LowRankPlusDiagonal(plain.variances, U)
    bare = Inverted(shared @ np.eye(plain.observed.size), shared.solve(np.eye(plain.observed.size)))
    y = np.random.default_rng(1).standard_normal(plain.observed.size)
    estimates = [
        blue(Problem(plain.schema, dict.fromkeys(plain.observed.names), covariance=covariance), solver) @ y
        for covariance, solver in ((shared, "sea_blue"), (bare, SOLVER))
    ]
    np.testing.assert_allclose(*estimates, atol=1e-9)


def test_a_wrong_solve_is_refused() -> None:
    matrix = within_tables(gallery.cube(2, 2)).covariance.toarray()
    with pytest.raises(ValueError, match="method solve does not give its inverse"):
        Problem(
            gallery.cube(2, 2).schema,
            dict.fromkeys(gallery.cube(2, 2).observed.names),
            covariance=Inverted(matrix, matrix),
        )


def test_the_bound_holds_when_stopped_early() -> None:
    problem = within_tables(gallery.cube(3, 4))
    y = blue(problem, "dense").problem.noise_covariance @ np.random.default_rng(0).standard_normal(
        problem.observed.size
    )
    loose = blue(problem, ConjugateGradient(rtol=1e-3, preconditioner="two_pass"))
    x, info = loose.apply(y)
    missing = x - blue(problem, "dense") @ y
    size = np.sqrt(missing @ np.linalg.solve(problem.covariance.toarray(), missing))
    assert 0.001 * info.error_bound <= size <= info.error_bound
    assert info.residual > 1e-6


def test_iterations_do_not_grow_with_the_tables() -> None:
    """Autoregressive noise in every table: four times the cells, as many iterations but for a few."""
    counts = []
    for problem in (gallery.cube(3, 4), gallery.cube(4, 4)):
        distances = [abs(np.subtract.outer(np.arange(size), np.arange(size))) for size in problem.observed.sizes]
        covariance = sparse.csr_array(sparse.block_diag([0.5**distance for distance in distances]))
        P = blue(Problem(problem.schema, dict.fromkeys(problem.observed.names), covariance=covariance), SOLVER)
        counts.append(P.apply(np.random.default_rng(0).standard_normal(problem.observed.size))[1].iterations)
    assert counts[1] <= counts[0] + 5
    assert counts[1] <= 30


def test_not_converged_names_the_correlation() -> None:
    P = blue(within_tables(gallery.cube(3, 3)), ConjugateGradient(preconditioner="two_pass", max_iterations=2))
    with pytest.raises(ConvergenceError, match=r"the noise being correlated.*solver='cholesky'"):
        P @ np.random.default_rng(0).standard_normal(P.shape[1])
