"""Diagonal matrices, and products with them, beside dense ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from constraint_builders.diagonals import diagonal_matrix, scaled
from tests.helpers.effort import examples


@examples(50)
@given(seed=st.integers(0, 2**32 - 1))
def test_products_with_diagonals_are_dense_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, 6, 2)
    values = rng.integers(-1, 2, rows) * rng.random(rows)
    found = diagonal_matrix(values)
    np.testing.assert_array_equal(found.toarray(), np.diag(values))
    assert found.nnz == np.count_nonzero(values)
    assert found.indices.dtype == found.indptr.dtype == np.int32  # what old versions of pyamg take
    dense = rng.integers(-1, 2, (rows, columns)).astype(float)
    matrix, by_row, by_column = sparse.csr_array(dense), rng.uniform(1, 2, rows), rng.uniform(1, 2, columns)
    np.testing.assert_array_equal(scaled(matrix, by_row, by_column).toarray(), by_row[:, None] * dense * by_column)
    np.testing.assert_array_equal(scaled(matrix, columns=by_column).toarray(), dense * by_column)
    np.testing.assert_array_equal(matrix.toarray(), dense)
