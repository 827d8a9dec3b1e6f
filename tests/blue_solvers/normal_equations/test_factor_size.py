"""How large a factor will be, known before it is made."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.normal_equations import factorisation
from blue_solvers.normal_equations.factorisation import entries_of_factor, factorise
from constraint_builders import memory
from tests.helpers.effort import examples

needs_order = pytest.mark.skipif(not factorisation.cholmod_gives_triangles(), reason="needs scikit-sparse 0.4")


@examples(60, 8)
@given(st.integers(0, 100_000))
def test_entries_are_those_that_elimination_leaves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 25))
    has = rng.random((size, size)) < rng.choice([0.02, 0.1, 0.3])
    has = has | has.T | np.eye(size, dtype=bool)
    order = rng.permutation(size)
    left = has[np.ix_(order, order)].copy()
    for k in range(size):  # elimination, as it is written
        below = np.flatnonzero(left[k + 1 :, k]) + k + 1
        left[np.ix_(below, below)] = True
    found = entries_of_factor(sparse.csc_matrix(has.astype(float)), order.astype(np.int64))
    assert found.tolist() == np.tril(left).sum(axis=0).tolist()


@needs_order
def test_a_factor_that_would_not_fit_is_refused_with_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is made; a diagonal matrix of as many rows fits."""
    full = sparse.csc_array(99 * np.eye(60) + 1)
    monkeypatch.setattr(factorisation, "SURE_BYTES", 0.0)
    for module in (factorisation, memory):
        monkeypatch.setattr(module, "free_memory", lambda: 2048.0)
    said = r"the Cholesky factor of 60 equations, 1,830 entries, needs 28.59 KiB and 2 KiB are free: use"
    with pytest.raises(MemoryError, match=said):
        factorise(full)
    factorise(sparse.csc_array(sparse.diags_array(np.full(60, 99.0))))
