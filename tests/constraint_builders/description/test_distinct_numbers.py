"""Distinct numbers are found as by sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from constraint_builders.arrays import distinct_numbers
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
