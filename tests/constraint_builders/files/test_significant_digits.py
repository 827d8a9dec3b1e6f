"""Rounding leaves at most half a unit, and what was rounded is recognised."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.files import rounded
from constraint_builders.files.long_table import MOST_DIGITS, digits_of, half_units

errors = st.floats(1e-6, 1e6) | st.sampled_from([0.0, 1.0, 0.99996, 9.9996, 1000.0, 0.001])
figures = st.floats(-1e9, 1e9)


@given(st.lists(st.tuples(figures, errors), min_size=1, max_size=8), st.integers(1, 12))
def test_rounded_results_are_recognised(rows: list[tuple[float, float]], digits: int) -> None:
    estimate, std_error = (np.array(own) for own in zip(*rows, strict=True))
    frame = rounded(pl.DataFrame({"estimate": estimate, "std_error": std_error}), digits)
    written, spread = (frame[name].to_numpy() for name in ("estimate", "std_error"))
    found = digits_of(written, spread)
    assert found <= digits
    noisy = std_error > 0
    unit = half_units(spread, found)
    assert (abs(written - estimate)[noisy] <= unit[noisy] * (1 + 1e-6) + 1e-15 * abs(estimate[noisy])).all()
    assert (unit[noisy] <= 0.5 * 10.0 ** (1 - found) * spread[noisy] * (1 + 1e-12)).all()


@given(st.integers(0, 2**32 - 1))
def test_what_nobody_rounded_is_not_taken_for_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    std_error = 10.0 ** rng.uniform(-3, 3, 20)
    estimate = std_error * rng.normal(0, 100, 20)
    assert digits_of(estimate, std_error) >= MOST_DIGITS - 6


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_what_has_no_standard_error_keeps_fifteen_digits(seed: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([-1.0, 1.0], 20) * 10.0 ** rng.uniform(-9, 9, 20)
    values[:5] = np.round(values[:5], 3) + rng.choice([-4, 4], 5) * np.spacing(values[:5])  # off by rounding alone
    frame = rounded(pl.DataFrame({"estimate": values, "std_error": np.where(np.arange(20) % 2, 0.0, np.nan)}), digits)
    found = frame["estimate"].to_numpy()
    unit = 10.0 ** (np.floor(np.log10(abs(values))) - 14)
    assert (abs(found - values) <= 0.5 * unit + 4 * np.spacing(abs(values))).all()
    np.testing.assert_allclose(found, [float(f"{value:.14e}") for value in found], rtol=4e-16)
    assert (found != values).sum() > 10
