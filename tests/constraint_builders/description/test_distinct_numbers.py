"""Distinct numbers are found as by sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse

from constraint_builders.arrays import distinct_numbers, kinds_of_rows
from tests.helpers.effort import examples

KINDS = st.sampled_from([np.bool_, np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])


@st.composite
def numbers(draw: st.DrawFn) -> np.ndarray:
    kind = np.dtype(draw(KINDS))
    if kind == np.bool_:
        return draw(arrays.arrays(kind, st.integers(0, 9)))
    limits = np.iinfo(kind)
    least = draw(st.sampled_from([int(limits.min), 0, int(limits.max) - 5]) | st.integers(limits.min, limits.max))
    most = min(int(limits.max), least + draw(st.sampled_from([0, 5, 40, 10**9, 2**63])))
    return draw(arrays.arrays(kind, st.integers(0, 9), elements=st.integers(least, most)))


@examples(300, 100)
@given(numbers())
def test_the_same_as_by_sorting(own: np.ndarray) -> None:
    found, places = distinct_numbers(own)
    expected, inverse = np.unique(own, return_inverse=True)
    assert found.dtype == own.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(places, inverse)


@examples(100, 10)
@given(seed=st.integers(0, 10_000))
def test_kinds_of_rows_are_told_by_all_that_they_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.choice([0.0, 1.0, -2.0], (int(rng.integers(1, 30)), int(rng.integers(1, 4))))
    first = [next(i for i in range(len(dense)) if (dense[i] == row).all()) for row in dense]
    expected = np.argsort(np.argsort(np.unique(first)))[np.unique(first, return_inverse=True)[1]]
    for matrix in (sparse.csr_array(dense), sparse.csc_array(dense.T)):
        np.testing.assert_array_equal(kinds_of_rows(matrix), expected)


def test_rows_of_one_key_that_differ_are_told_apart() -> None:
    """Rows are sorted by sums of what they hold, each entry times a number; such may be equal by chance."""
    numbers = np.random.default_rng(0).standard_normal(2)
    shares = [*np.nextafter(numbers[0] / numbers[1], [-np.inf, np.inf]).tolist(), numbers[0] / numbers[1]]
    share = next(own for own in shares if own * numbers[1] == numbers[0])
    matrix = sparse.csr_array([[1.0, 0.0], [0.0, share], [1.0, 0.0]])
    assert len(set((matrix @ numbers).tolist())) == 1
    assert kinds_of_rows(matrix).tolist() == [0, 1, 0]
