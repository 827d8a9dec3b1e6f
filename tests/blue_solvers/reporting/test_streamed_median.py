"""The median by passes over pieces is numpy's of all of them, to the last bit."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.reporting import streamed_median
from blue_solvers.reporting.streamed_median import median_and_largest
from tests.helpers.every import every

numbers = st.floats(0, 1e300) | st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1.5, 1.5000000000000002])


@every("most", [1, 1 << 20])
@given(values=st.lists(numbers, min_size=1, max_size=60), length=st.integers(1, 9))
def test_it_is_that_of_all_numbers(most: int, values: list[float], length: int) -> None:
    whole = np.array(values)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streamed_median, "MOST_DIFFERENT", most)
        median, largest, count = median_and_largest(
            lambda: (whole[i : i + length] for i in range(0, whole.size, length))
        )
    low, high = np.sort(abs(whole))[[(whole.size - 1) // 2, whole.size // 2]]
    assert low <= median <= high
    if low == high:
        assert median == low
    else:
        assert np.isclose(median, np.median(whole), rtol=1e-15)
    assert (largest, count) == (whole.max(), whole.size)


def test_many_numbers_that_are_alike_are_read_once() -> None:
    piece, read = np.full(1 << 16, 2.5), []

    def pieces() -> Iterator[np.ndarray]:
        read.append(1)
        yield from (piece for _ in range(20))

    assert median_and_largest(pieces) == (2.5, 2.5, 20 << 16)
    assert len(read) == 1


@every("most", [1, 1 << 20])
@given(
    rows=st.lists(st.tuples(st.sampled_from(range(3)), st.integers(1, 4)), min_size=1, max_size=20),
    height=st.integers(1, 5),
)
def test_rows_alike_are_counted_as_often_as_they_are_there(most: int, rows: list[tuple[int, int]], height: int) -> None:
    """Rows of three numbers, some of them repeated."""
    kinds = np.array([[1.0, 2.0, 0.0], [2.0, 2.0, 3.0], [0.5, 7.0, -0.0]])
    whole = kinds[np.repeat(*np.array(rows).T)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streamed_median, "MOST_DIFFERENT", most)
        found = median_and_largest(lambda: (whole[i : i + height] for i in range(0, len(whole), height)))
    assert found == (np.median(abs(whole)), whole.max(), whole.size)
