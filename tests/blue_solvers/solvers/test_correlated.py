"""Correlated noise, with the nearest structured problem as preconditioner: matrices, and operators with a solve."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers import ConjugateGradient, ConvergenceError, blue
from blue_solvers.testing import check_solver
from constraint_builders import Problem, gallery
from constraint_builders.arrays import Float

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
