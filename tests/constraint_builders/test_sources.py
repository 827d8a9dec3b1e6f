"""Two measurements of the same cells: the combination is what all equations together say."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.sources import combine_sources

numbers = st.floats(-1e6, 1e6)
spreads = st.sampled_from([0.25, 1.0, 3.0, 1e-6, 1e9, np.inf])


@given(data=st.data(), sources=st.integers(1, 4), cells=st.integers(1, 4))
def test_the_combination_is_the_mean_weighted_by_inverse_variances(data: Any, sources: int, cells: int) -> None:
    values = np.array(data.draw(st.lists(numbers, min_size=sources * cells, max_size=sources * cells)))
    variances = np.array(data.draw(st.lists(spreads, min_size=sources * cells, max_size=sources * cells)))
    values, variances = values.reshape(sources, cells), variances.reshape(sources, cells)
    combined, spread = combine_sources(list(values), list(variances))
    for cell in range(cells):
        measured = [i for i in range(sources) if np.isfinite(variances[i, cell])]
        if not measured:
            assert np.isnan(combined[cell])
            assert np.isinf(spread[cell])
            continue
        weights = [1 / Fraction(variances[i, cell]) for i in measured]
        mean = sum(w * Fraction(values[i, cell]) for w, i in zip(weights, measured, strict=True)) / sum(weights)
        size = max(abs(values[measured, cell]))
        assert abs(float(mean) - combined[cell]) <= 1e-14 * size
        assert spread[cell] == pytest.approx(float(1 / sum(weights)), rel=1e-14)


def test_exact_values_win_and_unmeasured_ones_say_nothing() -> None:
    values, variances = combine_sources([[9.0, 5, np.nan], [10.0, 6, 7]], [[4.0, 0, np.inf], [0.0, 1, 2]])
    assert values.tolist() == [10, 5, 7]
    assert variances.tolist() == [0, 0, 2]


def test_a_variance_may_be_one_for_all_cells() -> None:
    values, variances = combine_sources([np.zeros((2, 3)), np.ones((2, 3))], [1.0, np.full((2, 3), 3.0)])
    assert np.allclose(values, 0.25)
    assert np.allclose(variances, 0.75)


@pytest.mark.parametrize(
    ("values", "variances", "message"),
    [
        ([[1.0], [2.0]], [0.0, 0.0], r"cell \(0,\): two sources know it exactly, as 1.0 and 2.0: correct one"),
        ([[1.0], [3.0], [2.0]], [1.0, 0.0, 0.0], r"cell \(0,\): two sources know it exactly, as 3.0 and 2.0"),
        ([[1.0], [2.0]], [1.0, -1.0], "variance of source 2 is negative"),
        ([[1.0], [2.0]], [1.0, np.nan], "variance of source 2 is NaN"),
        ([[1.0], [np.nan]], [1.0, 1.0], r"source 2, cell \(0,\): the value is nan: give a number"),
        ([[1.0], [np.inf]], [1.0, 1.0], r"source 2, cell \(0,\): the value is inf: give a number"),
        ([[1.0], [1.0, 2.0]], [1.0, 1.0], "same shape"),
        ([[1.0]], [1.0, 1.0], "give values and variances of the same sources: got 1 and 2"),
        ([], [], "give values and variances of the same sources"),
    ],
)
def test_what_cannot_be_combined_is_refused(values: Any, variances: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combine_sources(values, variances)


def test_exact_values_may_differ_by_rounding() -> None:
    values, variances = combine_sources([[0.1 + 0.2], [0.3]], [0.0, 0.0])
    assert values.tolist() == [0.1 + 0.2]
    assert variances.tolist() == [0]
