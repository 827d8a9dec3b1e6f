"""The noise of certificates, against dense algebra of its own."""

import numpy as np
import pytest
from scipy import sparse

from blue_solvers.verification import weighed_noise
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from constraint_builders import Problem


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
