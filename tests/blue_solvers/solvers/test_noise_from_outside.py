"""A kind of noise is one class: solvers take one that they have never heard of."""

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from blue_solvers import ConjugateGradient, blue
from blue_solvers.contract import Solver
from constraint_builders import Problem, Schema
from constraint_builders.description.noise import Noise
from tests.helpers.every import every

SCHEMA = Schema({"a": 2, "b": 3})
CELLS = 11


class DriftingNoise(Noise):
    """What every cell inherits from the one before: covariance rho^|i - j|, its inverse tridiagonal."""

    def __init__(self, size: int, rho: float, has_entries: bool) -> None:
        super().__init__("gaussian", np.ones(size))
        self.matrix = rho ** abs(np.subtract.outer(np.arange(size), np.arange(size)))
        self.rho = rho
        self.has_entries = has_entries  # type: ignore[misc]

    @property
    def covariance(self) -> LinearOperator:
        return aslinearoperator(self.matrix)

    def __matmul__(self, X: np.ndarray) -> np.ndarray:
        return self.matrix @ X

    @property
    def solve(self) -> Callable[[np.ndarray], np.ndarray]:
        return lambda V: np.linalg.solve(self.matrix, V)

    def entries(self) -> sparse.csr_array | None:
        return sparse.csr_array(self.matrix) if self.has_entries else None

    def at(self, cells: np.ndarray) -> Noise:
        raise NotImplementedError

    def gaussian(self, columns: int, rng: np.random.Generator) -> np.ndarray:
        return np.linalg.cholesky(self.matrix) @ rng.standard_normal((len(self.matrix), columns))


SOLVERS: list[str | Solver] = ["auto", "dense", "cg", ConjugateGradient(preconditioner="two_pass")]


@every(
    ("solver", "has_entries"),
    [*((solver, False) for solver in SOLVERS), *((solver, True) for solver in [*SOLVERS, "cholesky", "multigrid"])],
)
def test_every_solver_takes_it(solver: str | Solver, has_entries: bool) -> None:
    noise = DriftingNoise(CELLS, 0.6, has_entries)
    problem = Problem(SCHEMA, {"a": 1.0, "b": 1.0, "detailed": 1.0}).replace(noise=noise)
    P = blue(problem, solver)
    M = np.vstack([np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3)), np.eye(6)])
    inverse = np.linalg.inv(noise.matrix)
    covariance = M @ np.linalg.inv(M.T @ inverse @ M) @ M.T
    y = np.random.default_rng(0).normal(size=CELLS)
    np.testing.assert_allclose(P @ y, covariance @ inverse @ y, atol=1e-7)
    np.testing.assert_allclose(P.variances(), covariance.diagonal(), atol=1e-7)
