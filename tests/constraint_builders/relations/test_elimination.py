"""Sparse elimination against exact ranks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders.relations.elimination import eliminate
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
