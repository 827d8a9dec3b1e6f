"""The median by passes over pieces is numpy's of all of them, to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.reporting.streamed_median import median_and_largest

numbers = st.floats(0, 1e300) | st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1.5, 1.5000000000000002])


@given(st.lists(numbers, min_size=1, max_size=60), st.integers(1, 9))
def test_it_is_that_of_all_numbers(values: list[float], length: int) -> None:
    whole = np.array(values)
    median, largest, count = median_and_largest(lambda: (whole[i : i + length] for i in range(0, whole.size, length)))
    low, high = np.sort(abs(whole))[[(whole.size - 1) // 2, whole.size // 2]]
    assert low <= median <= high
    if low == high:
        assert median == low
    else:
        assert np.isclose(median, np.median(whole), rtol=1e-15)
    assert (largest, count) == (whole.max(), whole.size)


def test_many_numbers_that_are_alike_take_no_more_memory() -> None:
    piece = np.full(1 << 16, 2.5)
    assert median_and_largest(lambda: (piece for _ in range(20))) == (2.5, 2.5, 20 << 16)
