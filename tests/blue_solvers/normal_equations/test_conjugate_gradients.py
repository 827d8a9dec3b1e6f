"""Conjugate gradients: the columns that they solve, and those that no number solves."""

import numpy as np
from scipy import sparse

from blue_solvers.normal_equations.krylov import conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import Equations, NormalSolver
from blue_solvers.normal_equations.stage import Stage
from constraint_builders.arrays import Float
from tests.helpers.every import every


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


class GrowingSolver(NormalSolver):
    """What solves, and for less than a share of what is given as much again of what weighs no row at all."""

    rtol, label = 1e-10, "growing"

    def __init__(self, equations: Equations, share: float) -> None:
        self._A, self._share = equations.A.toarray(), share
        self._N = self._A @ equations.entries().toarray() @ self._A.T

    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        nothing = np.linalg.svd(self._A)[0][:, -1:]
        is_asked_too_much = target < self._share * np.linalg.norm(R, axis=0)
        return np.linalg.pinv(self._N, rtol=1e-10) @ R + 1e16 * is_asked_too_much * nothing, 1


@every("share", [0.0, 1e-9, 1e-6])
@every("turned", [False, True])
def test_iterations_that_rounding_makes_grow_are_asked_for_less(share: float, turned: bool) -> None:
    """Along rows that follow from others: cells then move off the projection, though all rows hold again."""
    rng = np.random.default_rng(0)
    B, scale = rng.uniform(0.1, 1, (4, 9)), np.sqrt(rng.uniform(0.1, 10, (9, 1)))
    A, every_cell = sparse.csr_array(np.vstack([B, rng.uniform(-1, 1, (2, 4)) @ B])), np.ones(9, dtype=bool)
    equations = Equations(A, np.zeros(6), sparse.csr_array(np.diag(scale[:, 0] ** 2)), every_cell)
    stage = Stage(equations, GrowingSolver(equations, share))
    Y, basis = rng.standard_normal((9, 3)) * [1e-3, 1.0, 1e3], np.linalg.qr(scale * B.T)[0]
    P = np.eye(9) - scale * (basis @ basis.T) / scale.T
    found = stage.adjoint(Y) if turned else stage.project(Y)[0]
    np.testing.assert_allclose(found, (P.T if turned else P) @ Y, rtol=0, atol=1e-10 * abs(Y).max())
