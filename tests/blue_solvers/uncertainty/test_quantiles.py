"""Quantiles against scipy's distribution functions, in the smaller tail, at levels from next to 0 to next to 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import erf

from blue_solvers.quantiles import chi_square_quantile, f_quantile, normal_multiple, t_multiple

TAILS = st.floats(-53, -1.0).map(lambda power: 1 - 2.0**power) | st.floats(-53, -1.1).map(lambda power: 2.0**power)
DEGREES = st.sampled_from([1, 2, 3, 7, 19, 199, 99_999])


def check(below: float, above: float, level: float) -> None:
    """The probability below or above the quantile, whichever is less, has its digits."""
    if level < 0.5:
        assert below == pytest.approx(level, rel=1e-9, abs=0)
    else:
        assert above == pytest.approx(1 - level, rel=1e-9, abs=0)


@given(TAILS)
def test_normal(level: float) -> None:
    z = normal_multiple(level)
    check(float(erf(z / np.sqrt(2))), 2 * stats.norm.sf(z), level)


@given(TAILS, DEGREES)
def test_t(level: float, degrees: int) -> None:
    t = t_multiple(degrees, level)
    check(float(stats.f.cdf(t**2, 1, degrees)), 2 * stats.t.sf(t, degrees), level)


@given(TAILS, DEGREES)
def test_chi_square(level: float, degrees: int) -> None:
    q = chi_square_quantile(degrees, level)
    check(float(stats.chi2.cdf(q, degrees)), float(stats.chi2.sf(q, degrees)), level)


@given(TAILS, DEGREES, DEGREES)
def test_f(level: float, above: int, below: int) -> None:
    q = f_quantile(above, below, level)
    check(float(stats.f.cdf(q, above, below)), float(stats.f.sf(q, above, below)), level)


def test_the_largest_level_below_one_has_finite_quantiles() -> None:
    level = 1 - 1e-16
    assert normal_multiple(level) == pytest.approx(8.2923611, rel=1e-6)
    for quantile in (t_multiple(1, level), chi_square_quantile(1, level), f_quantile(3, 1, level)):
        assert 8 < quantile < np.inf


def test_t_of_infinite_degrees_is_normal() -> None:
    assert t_multiple(np.inf, 0.9) == normal_multiple(0.9) == pytest.approx(t_multiple(1e9, 0.9), rel=1e-8)
