"""Conversions of privacy loss against published values, brute-force minimisation, and one another."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from constraint_builders.budget import Budget
from noise_mechanisms.accounting import (
    compose,
    gaussian_delta,
    gaussian_epsilon,
    pure_to_zcdp,
    zcdp_delta,
    zcdp_epsilon,
)
from tests.helpers.every import every

rhos = st.floats(min_value=-4, max_value=3).map(lambda power: 10.0**power)
deltas = st.floats(min_value=-200, max_value=-0.01).map(lambda power: 10.0**power)


@pytest.mark.parametrize(
    ("rho", "published"),
    [(Fraction(293764, 114921), 17.14), (Fraction(11417641, 152349649), 2.47)],
    ids=["persons", "units"],
)
def test_redistricting_data_of_2020(rho: Fraction, published: float) -> None:
    assert round(zcdp_epsilon(rho, 1e-10), 2) == published


def test_simple_bound() -> None:
    assert zcdp_epsilon(1, math.exp(-4), "simple") == pytest.approx(5)
    assert zcdp_delta(1, 5, "simple") == pytest.approx(math.exp(-4))
    assert zcdp_delta(1, 0.5, "simple") == 1


@every("rho", [1e-40, 0.01, 1.0, 30.0])
@every("delta", [1e-30, 1e-10, 0.1])
def test_tight_epsilon_is_the_minimum_over_alpha(rho: float, delta: float) -> None:
    alpha = 1 + np.geomspace(1e-4, 1e4 / min(rho**0.5, 1), 200_001)
    epsilon = alpha * rho + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1)
    # The grid is 4e-4 fine in log(alpha - 1): it misses a minimum by the square of that times the curvature.
    assert zcdp_epsilon(rho, delta) == pytest.approx(max(0.0, epsilon.min()), rel=1e-6, abs=0)


@given(rhos, deltas)
def test_tight_conversions_invert_one_another_and_beat_the_simple_ones(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert epsilon <= zcdp_epsilon(rho, delta, "simple")
    assert zcdp_delta(rho, epsilon) <= zcdp_delta(rho, epsilon, "simple")
    if epsilon > 0:
        # log(delta) is a difference of terms of the order of epsilon alpha; 1e-9 leaves room for alpha of 1e3.
        assert math.log(zcdp_delta(rho, epsilon)) == pytest.approx(math.log(delta), rel=1e-9, abs=1e-9)


@given(rhos, deltas)
def test_gaussian_is_below_the_bound_for_all_mechanisms_and_inverts(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    assert epsilon <= zcdp_epsilon(rho, delta) * (1 + 1e-12)
    if epsilon > 0:
        assert gaussian_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    else:
        assert gaussian_delta(rho, 0.0) <= delta


@every("epsilon", [0.0, 0.5, 3.0])
def test_gaussian_delta_is_the_hockey_stick_divergence(epsilon: float) -> None:
    mu = 1.3

    def excess(x: float) -> float:
        return max(0.0, float(stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x)))

    integral, _ = integrate.quad(excess, -10, 12, points=[mu / 2 + epsilon / mu], limit=200)
    assert gaussian_delta(mu**2 / 2, epsilon) == pytest.approx(integral, rel=1e-7)


@every(("rho", "epsilon"), [(1e-8, 1e3), (1e-300, 1.0), (1e4, 0.0), (1e4, 1e3), (1e12, 0.0)])
def test_extremes_stay_probabilities(rho: float, epsilon: float) -> None:
    assert 0 <= gaussian_delta(rho, epsilon) <= zcdp_delta(rho, epsilon) <= 1


def test_no_loss_is_no_loss() -> None:
    assert zcdp_epsilon(0, 0.1) == zcdp_delta(0, 0.0) == gaussian_delta(0, 0.0) == gaussian_epsilon(0, 0.1) == 0
    assert compose([]) == compose({}) == 0


def test_composition_is_exact_over_tables_and_levels() -> None:
    losses = {"State": {"total": Fraction(1, 3)}, "Block": {"total": Fraction(1, 6), "detailed": Fraction(1, 2)}}
    assert compose(losses) == 1
    assert compose(Budget(losses).losses) == Budget(losses).total
    assert compose(losses["Block"]) == compose([Fraction(1, 6), Fraction(1, 2)]) == Fraction(2, 3)
    assert compose([0.25, 0.5]) == 0.75


def test_neighbours_of_the_budget_carry_over() -> None:
    variances = {"State": {"total": 1.0, "detailed": 2.0}}
    bounded = Budget.from_variances(variances, neighbours="bounded").total
    unbounded = Budget.from_variances(variances, neighbours="unbounded").total
    assert (bounded, unbounded) == (Fraction(3, 2), Fraction(3, 4))
    assert zcdp_epsilon(unbounded, 1e-10) < zcdp_epsilon(bounded, 1e-10)


def test_pure_to_zcdp() -> None:
    assert pure_to_zcdp(Fraction(1, 2)) == Fraction(1, 8)
    assert pure_to_zcdp(2.0) == 2.0


@every("bad", [0.0, 1.0, -0.1, math.nan])
def test_bad_deltas_are_refused(bad: float) -> None:
    for convert in (zcdp_epsilon, gaussian_epsilon):
        with pytest.raises(ValueError, match="delta is"):
            convert(1.0, bad)


def test_unknown_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="bound 'loose' is unknown"):
        zcdp_epsilon(1.0, 0.1, "loose")  # type: ignore[arg-type]
