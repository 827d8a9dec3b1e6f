"""Conjugate gradients: the columns that they solve, and those that no number solves."""

import numpy as np

from blue_solvers.normal_equations.krylov import conjugate_gradients
from constraint_builders.arrays import Float


def norms(R: Float, _: object = None) -> Float:
    with np.errstate(over="ignore"):
        return np.sqrt(np.square(R).sum(axis=0))


def test_columns_are_solved_each_on_its_own() -> None:
    half = np.random.default_rng(0).normal(size=(6, 6))
    N, R = half @ half.T + np.eye(6), np.random.default_rng(1).normal(size=(6, 3)) * [1.0, 1e6, 0.0]
    Z, iterations, converged = conjugate_gradients(
        lambda Y: N @ Y, R, lambda Y: Y, norms, 1e-12 * np.maximum(norms(R), 1e-300), 100
    )
    assert converged
    assert 1 <= iterations <= 20
    np.testing.assert_allclose(Z, np.linalg.solve(N, R), rtol=1e-9)


def test_a_solution_beyond_all_numbers_is_not_called_one() -> None:
    """Without a warning: the answer says so."""
    N = np.array([[1.0], [1e-200]])
    R = np.full((2, 1), 1e140)
    _, iterations, converged = conjugate_gradients(lambda Y: N * Y, R, lambda Y: Y, norms, np.array([1e-6]), 50)
    assert not converged
    assert iterations < 50
