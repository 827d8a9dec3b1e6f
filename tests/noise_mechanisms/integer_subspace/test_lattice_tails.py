"""Bounds on how far lattice noise reaches, against all its points, found by trying every vector."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noise_mechanisms.integer_subspace import (
    GeneralizedGaussian,
    GeneralizedLaplace,
    Invariants,
    Lattice,
    log_points_within,
    tail_bound,
)
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses
from tests.noise_mechanisms.integer_subspace.enumeration import margins

CASES = {
    "total": (margins((3,), "total"), 25),
    "two-way": (margins((2, 3), "a", "b"), 4),
    "overlapping": (Invariants.from_subsets([[0, 1, 2], [2, 3]], 4), 12),
    "nothing held": (margins((2,)), 40),
    "one move": (Invariants.from_subsets([[0, 1], [1, 2], [2, 3]], 4), 14),
}


def points_by_force(invariants: Invariants, reach: int) -> np.ndarray:
    """Every vector of entries up to `reach` that leaves the sums at zero."""
    every = np.indices([2 * reach + 1] * invariants.records, dtype=np.int8).reshape(invariants.records, -1).T - reach
    return every[~(every @ invariants.matrix.toarray().T).any(axis=1)].astype(np.int64)


@pytest.fixture(scope="module")
def points() -> dict[str, np.ndarray]:
    return {name: points_by_force(invariants, reach) for name, (invariants, reach) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["L1", "L2", "Gaussian"])
@pytest.mark.parametrize("scale", [0.6, 1.5, 3.0])
def test_no_tail_is_heavier_than_its_bound(points: dict[str, np.ndarray], name: str, kind: str, scale: float) -> None:
    invariants, reach = CASES[name]
    norms = abs(points[name]).sum(axis=1) if kind == "L1" else np.sqrt(np.square(points[name]).sum(axis=1))
    if kind == "Gaussian":
        mechanism, cost = GeneralizedGaussian(invariants, scale), np.square(norms / scale) / 2
    else:
        mechanism, cost = GeneralizedLaplace(invariants, 1 / scale, 1 if kind == "L1" else 2), norms / scale
    weight = np.exp(-cost)
    bounds = []
    for t in np.linspace(0, reach, 40):
        # Points that are left out of both sums would only lower the quotient here, the true probability is not less.
        exact = weight[norms >= t].sum() / weight.sum()
        bounds.append(tail_bound(mechanism, float(t)))
        assert exact <= bounds[-1] * (1 + 1e-12)
    assert bounds[0] == 1.0
    assert (np.diff(bounds) <= 1e-12).all()
    assert bounds[-1] < 0.05 or scale > 1 or name == "two-way"  # not the trivial one


def test_the_bounds_are_those_of_the_formulas() -> None:
    mechanism = GeneralizedLaplace(margins((2, 3), "a", "b"), 0.5)
    # Squared Gram-Schmidt lengths 4 and 3; the tail of a gamma variable of shape 2 beyond x is (1 + x) exp(-x).
    beyond = 0.5 * (60 - math.sqrt(6 * 7) / 2)
    by_volume = (1 + beyond) * math.exp(0.5 * math.sqrt(6 * 7 / 12) - beyond)
    assert tail_bound(mechanism, 60.0) == pytest.approx(by_volume, rel=1e-12)
    narrow = GeneralizedLaplace(margins((2, 3), "a", "b"), 2.0)
    assert tail_bound(narrow, 15.0) == pytest.approx((math.e * 30 / 2) ** 2 * math.exp(-30), rel=1e-12)
    gaussian = GeneralizedGaussian(margins((3,), "total"), 2.0)
    by_volume = math.exp((2 + 1.5) / 12 / 8) * math.exp(-((12 - math.sqrt(3.5) / 2) ** 2) / 8)
    assert tail_bound(gaussian, 12.0) == pytest.approx(min(by_volume, 18 * math.e * math.exp(-18)), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_points_in_a_ball_are_between_the_bounds(points: dict[str, np.ndarray], name: str) -> None:
    invariants, reach = CASES[name]
    norms = np.sqrt(np.square(points[name]).sum(axis=1))
    for radius in np.linspace(0, reach, 25):
        low, high = log_points_within(Lattice(invariants), float(radius))
        count = np.count_nonzero(norms <= radius)
        assert low <= math.log(count) + 1e-12
        assert math.log(count) <= high + 1e-12


@given(st.integers(2, 40), st.integers(2, 40), st.floats(0.05, 2.0), st.floats(0.0, 1e6))
@examples(50)
def test_bounds_are_probabilities_at_any_size(rows: int, columns: int, epsilon: float, t: float) -> None:
    for norm in (1, 2):
        mechanism = GeneralizedLaplace(margins((rows, columns), "a", "b"), epsilon, norm)
        assert 0 <= tail_bound(mechanism, t) <= 1
    low, high = log_points_within(mechanism.lattice, t)
    assert 0 <= low <= high < math.inf


def test_nothing_to_draw_reaches_nowhere() -> None:
    held = GeneralizedLaplace(margins((2, 2), "a * b"), 1.0)
    assert (tail_bound(held, 0.0), tail_bound(held, 1.0)) == (1.0, 0.0)
    assert log_points_within(held.lattice, 5.0) == (0.0, 0.0)


@every("wrong", [-1.0, math.nan, math.inf])
def test_distances_out_of_range_are_refused(wrong: float) -> None:
    mechanism = GeneralizedLaplace(margins((3,), "total"), 1.0)
    refuses(r"t is|t holds", tail_bound, mechanism, wrong)
    refuses(r"radius", log_points_within, mechanism.lattice, wrong)
    refuses("generalized Laplace or Gaussian", tail_bound, object(), 1.0, error=TypeError)
