"""Sums and additions along axes, by whichever loop, against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from blue_solvers.components.axis_sums import SHORT, add_to_levels, sum_axes, sum_middle
from tests.helpers.every import every

LENGTHS = (1, 2, SHORT, SHORT + 1, 3 * SHORT)


@every("count", LENGTHS)
@every("after", LENGTHS)
@every("before", [1, 3])
def test_sums_and_additions(before: int, count: int, after: int) -> None:
    levels = np.arange(before * count * after, dtype=float).reshape(before, count, after)
    kept = levels.copy()
    assert np.array_equal(sum_middle(levels), levels.sum(axis=1))
    assert np.array_equal(levels, kept)
    values = np.arange(before * after, dtype=float).reshape(before, after) + 0.5
    assert add_to_levels(levels, values) is None
    assert np.array_equal(levels, kept + values[:, None])


@pytest.mark.parametrize("axes", [(), (0,), (3,), (1, 2), (0, 3), (0, 1, 2, 3)])
def test_sums_over_several_axes(axes: tuple[int, ...]) -> None:
    array = np.arange(2 * 20 * 3 * 17, dtype=float).reshape(2, 20, 3, 17)
    assert np.array_equal(sum_axes(array, axes), array.sum(axis=axes))
