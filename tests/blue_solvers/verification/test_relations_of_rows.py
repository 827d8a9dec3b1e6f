"""Relations between rows: as many as there are, each true in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.verification.rational_elimination import relations
from tests.helpers.effort import examples
from tests.helpers.oracles.exact import rational


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


@examples(40)
@given(seed=st.integers(0, 2**32 - 1), tiny=st.booleans())
def test_of_many_counts_some_tell_as_much(seed: int, tiny: bool) -> None:
    """More counts than rows, some rows sums of others; a count of tiny weights may be all that tells rows apart."""
    rng = np.random.default_rng(seed)
    own = rng.integers(-1, 2, (int(rng.integers(2, 6)), 40)).astype(float)
    if tiny:
        own[:, rng.integers(40)] *= 2.0**-60
        own[0, :] = own[-1, :]
        own[0, 3] += 2.0**-60
    M = np.concatenate([own, rng.integers(-2, 3, (3, len(own))) @ own])
    free = int(rng.integers(0, 3))
    noisy, known = sparse.csr_array(M[free:]), sparse.csr_array(M[:free])
    H = relations(noisy, known).toarray().astype(float)
    of_known = rational(M[:free]).rank() if free else 0
    assert np.linalg.matrix_rank(H) == len(M) - free - (rational(M).rank() - of_known)
    left = H @ M[free:]
    left -= (left @ np.linalg.pinv(M[:free])) @ M[:free] if free else 0.0
    assert abs(left).max(initial=0) <= 1e-12 * abs(H).max(initial=1)
