"""Relations between rows: as many as there are, each true in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.verification.rational_elimination import relations
from tests.helpers.effort import examples


@pytest.mark.parametrize("missing", [0, 1, 2])
@examples(40)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_beside_single_counts(missing: int, seed: int) -> None:
    """Counts of which all but some are measured by themselves, some of them twice, among sums with any weights."""
    rng = np.random.default_rng(seed)
    counts = int(rng.integers(missing + 1, 9))
    single = np.eye(counts)[rng.permutation(counts)[missing:]]
    sums = rng.integers(-2, 3, (int(rng.integers(0, 6)), counts)) * rng.choice([1, 0.5], (1, counts))
    again = single[: int(rng.integers(0, 2))]
    M = rng.permutation(np.concatenate([single, sums, again, np.zeros((1, counts))]), axis=0)
    H = relations(sparse.csr_array(M), sparse.csr_array((0, counts))).toarray().astype(float)
    assert abs(H @ M).max(initial=0) <= 1e-15 * abs(H).max(initial=1)
    assert np.linalg.matrix_rank(H) == len(H) == len(M) - np.linalg.matrix_rank(M)
