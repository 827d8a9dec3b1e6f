"""Sparse elimination against exact ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders.relations.elimination import eliminate, relations_between_rows
from tests.helpers.exact_reference import rational_rank


@st.composite
def systems(draw) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = draw(st.integers(0, 8)), draw(st.integers(1, 8))
    entries = draw(st.lists(st.integers(-2, 2), min_size=rows * columns, max_size=rows * columns))
    chosen = draw(st.sets(st.integers(0, columns - 1)))
    return np.array(entries, dtype=float).reshape(rows, columns), np.array(sorted(chosen), dtype=int)


@given(systems())
def test_what_remains_and_what_was_solved(system: tuple[np.ndarray, np.ndarray]) -> None:
    A, columns = system
    found = eliminate(sparse.csr_array(A), columns)
    others = np.setdiff1d(np.arange(A.shape[1]), columns)
    rank_of_columns = rational_rank(A[:, columns])
    assert found.pivot_rows.size == rank_of_columns == rational_rank(A[np.ix_(found.pivot_rows, columns)])
    assert sorted([*found.solved_columns, *found.free_columns]) == columns.tolist()
    assert not found.remaining[:, columns].toarray().any()
    solved = found.solved[:, found.solved_columns].toarray()
    assert np.allclose(solved, np.eye(rank_of_columns))
    both = np.vstack([found.remaining.toarray(), found.solved.toarray()])
    assert np.linalg.matrix_rank(both, tol=1e-8) == rational_rank(A) if both.size else rational_rank(A) == 0
    if A.size and both.size:  # same row space
        assert np.linalg.matrix_rank(np.vstack([A, both]), tol=1e-8) == rational_rank(A)
    assert found.remaining.shape[1] == A.shape[1]
    assert set(others) >= set(np.unique(found.remaining.nonzero()[1]))


@pytest.mark.parametrize("size", [8, 64])
def test_rounding_in_place_of_zeros_decides_no_unit(size: int) -> None:
    """Weights as a product of matrices leaves them, 1e-17 where it cancelled: rows that are independent stay so."""
    rng = np.random.default_rng(size)
    W = np.linalg.qr(rng.normal(size=(size, size)))[0] * (rng.random((size, size)) < 0.3) + np.eye(size)
    empty = (W == 0).nonzero()
    W[empty] = rng.normal(size=empty[0].size) * 10.0 ** rng.uniform(-34, -16, empty[0].size)
    assert np.linalg.cond(W) < 1e3
    assert relations_between_rows(sparse.csr_array(W)).shape == (0, size)
    twice = relations_between_rows(sparse.csr_array(np.vstack([W, W[:3] + W[3:6]]))).toarray()
    assert twice.shape == (3, size + 3)
    assert abs(twice @ np.vstack([W, W[:3] + W[3:6]])).max() < 1e-11 * abs(twice).max()
