"""The noise of certificates, against dense algebra of its own."""

import numpy as np
import pytest
from scipy import sparse

from blue_solvers.verification import weighed_noise
from blue_solvers.verification.by_sums import ProblemToProve
from blue_solvers.verification.known_exactly import KnownExactly
from blue_solvers.verification.placed_tables import by_cells, taken_by
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema


def chains(sizes: list[int]) -> np.ndarray:
    """Covariance of some runs of cells, neighbours among which are correlated, in any order."""
    blocks = [np.eye(n) + 0.4 * (np.eye(n, k=1) + np.eye(n, k=-1)) for n in sizes]
    order = np.random.default_rng(1).permutation(sum(sizes))
    scales = np.random.default_rng(2).uniform(1e-3, 1e3, order.size)
    return np.asarray(sparse.block_diag(blocks).toarray()[np.ix_(order, order)] * np.outer(scales, scales))


def test_roots_of_the_inverse_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block; blocks that are too large are refused by their size."""
    Sigma = chains([1, 4, 2, 5, 1])
    noise = WeighedNoise.of(Problem.from_matrix(np.ones((1, 13)), covariance=sparse.csr_array(Sigma)))
    for cells in (np.arange(13), np.array([12, 3, 5, 0]), np.zeros(0, dtype=np.intp)):
        root, sizes = noise.inverse_root(cells)
        R, own = root(np.eye(cells.size)), Sigma[np.ix_(cells, cells)]
        deviations = np.sqrt(own.diagonal())
        np.testing.assert_allclose(
            (R.T @ R) * np.outer(deviations, deviations),
            np.linalg.inv(own / np.outer(deviations, deviations)),
            rtol=1e-12,
            atol=1e-12,
        )
        assert (sizes(np.eye(cells.size)) >= abs(R) * (1 - 1e-12)).all()
    monkeypatch.setattr(weighed_noise, "MOST_TIED", 4)
    with pytest.raises(NotCertifiedError, match="noise ties 5 of its cells together"):
        noise.inverse_root(np.arange(13))


def test_roundings_of_either_sign_are_bounded_in_noise_of_opposite_signs() -> None:
    Sigma, rho = np.array([[1.0, -0.999], [-0.999, 1.0]]), np.array([3.0, 1.0])
    problem = Problem(Schema({"a": 2}), {"a": 1.0}, covariance=Sigma, equalities=([[1.0, -1.0]], [0.0]))
    posed = ProblemToProve(problem)
    known = KnownExactly(problem, posed.noise, posed.places((), np.zeros(2)))
    _, far, _ = known.pulled(rho, problem.unmeasured)
    apart = taken_by(by_cells(known.rows), known._multipliers(rho))[1] * [1, -1]
    assert far >= np.sqrt(apart @ Sigma @ apart) > 0
