"""Intervals of ratios and ranks: the inequality that defines them, and how often they hold the truth."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from blue_solvers.uncertainty.ranks import rank_intervals
from blue_solvers.uncertainty.ratios import ratio_intervals
from tests.helpers.effort import examples
from tests.helpers.refused import refused, refuses

numbers = st.floats(-1e4, 1e4)
roots = st.lists(st.floats(-30, 30), min_size=4, max_size=4)


def allowed(t: float, a: float, b: float, V: np.ndarray, z2: float) -> float:
    """Negative where a ratio t is no further from what was estimated than its error allows."""
    return (a - t * b) ** 2 - z2 * (V[0, 0] - 2 * t * V[0, 1] + t**2 * V[1, 1])


@examples(100)
@given(numbers, numbers, roots)
def test_bounds_are_where_the_inequality_begins_to_fail(a: float, b: float, root: list[float]) -> None:
    R = np.array(root).reshape(2, 2)
    V = R @ R.T
    z2 = 3.8414588206941245
    assume(abs(b**2 - z2 * V[1, 1]) > 1e-3 * b**2)
    assume(abs(b) > 1e-2)
    ratio, lower, upper = (float(x[0]) for x in ratio_intervals([a], [b], V[None]))
    assert ratio == pytest.approx(a / b)
    if b**2 < z2 * V[1, 1]:
        assert (lower, upper) == (-np.inf, np.inf)
        far = 1e9 * (1 + abs(a / b))  # as large as one likes, on both sides: it is no interval
        assert allowed(far, a, b, V, z2) < 0 or allowed(-far, a, b, V, z2) < 0
        return
    assert lower <= ratio <= upper
    width = max(upper - lower, 1e-6 * (1 + abs(ratio)))
    scale = z2 * (V[0, 0] + ratio**2 * V[1, 1]) + a**2
    for bound, outward in ((lower, -1), (upper, 1)):
        assert allowed(bound + outward * 0.01 * width, a, b, V, z2) >= -1e-9 * scale
    assert allowed((lower + upper) / 2, a, b, V, z2) <= 1e-9 * scale


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_of_ratios_cover_as_stated(level: float) -> None:
    """Far from 0, where they are intervals: a delta method would do, but for its error here."""
    rng = np.random.default_rng(3)
    truth, root, count = np.array([6.0, 12.0]), np.array([[1.5, 0.0], [1.0, 1.0]]), 40_000
    drawn = truth + rng.normal(size=(count, 2)) @ root.T
    _, lower, upper = ratio_intervals(drawn[:, 0], drawn[:, 1], np.broadcast_to(root @ root.T, (count, 2, 2)), level)
    covered = ((lower <= 0.5) & (upper >= 0.5)).mean()
    assert abs(covered - level) < 4 * np.sqrt(level * (1 - level) / count)


def test_ratios_to_0_are_nothing() -> None:
    ratio, lower, upper = ratio_intervals([3.0], [0.0], [np.zeros((2, 2))])
    assert np.isnan(ratio[0])
    assert (lower[0], upper[0]) == (-np.inf, np.inf)
    ratio, lower, upper = ratio_intervals([3.0], [4.0], [np.zeros((2, 2))])  # both exact
    assert ratio[0] == lower[0] == upper[0] == 0.75


@pytest.mark.parametrize("level", [0.6, 0.95])
def test_intervals_of_ranks_hold_the_true_rank(level: float) -> None:
    rng = np.random.default_rng(4)
    truth = np.array([10.0, 12.0, 12.5, 12.5, 14.0, 20.0])
    root = rng.normal(size=(6, 6))
    V = root @ root.T / 4
    true_rank = 1 + (truth[:, None] > truth[None]).sum(axis=0)
    count, held = 2_000, np.zeros(6)
    for _ in range(count):
        rank, first, last = rank_intervals(truth + root @ rng.normal(size=6) / 2, V, level)
        assert (first <= rank).all()
        assert (rank <= last).all()
        held += (first <= true_rank) & (true_rank <= last)
    assert (held / count > level - 4 * np.sqrt(level * (1 - level) / count)).all()


def test_sure_ranks_and_a_single_place() -> None:
    rank, first, last = rank_intervals([1.0, 3.0, 3.0], np.zeros((3, 3)))
    assert (rank.tolist(), first.tolist(), last.tolist()) == ([3, 1, 1], [3, 1, 1], [3, 2, 2])
    assert [x.tolist() for x in rank_intervals([5.0], [[2.0]])] == [[1], [1], [1]]
    far = [x.tolist() for x in rank_intervals(1e12 + np.array([0.0, 50, 100]), np.eye(3))]
    assert far == [[3, 2, 1]] * 3  # counts of any size


@refused(
    (([1.0], [2.0, 3.0], np.zeros((1, 2, 2))), "n numerators"),
    (([1.0], [np.nan], np.zeros((1, 2, 2))), "NaN or infinite"),
    (([1.0], [2.0], np.array([[[-1.0, 0], [0, 1]]])), "negative variances"),
    (([1.0], [2.0], np.array([[[1.0, 0.5], [0.4, 1]]])), "covariance is not symmetric"),
    (([1.0], [2.0], np.array([[[1.0, 1.1], [1.1, 1]]])), "correlations are 1 at most"),
    (([1.0], [2.0], np.zeros((1, 2, 2)), 1.5), "level is .*: give a number between 0 and 1"),
)
def test_what_is_no_ratio_is_refused(arguments: tuple) -> None:
    ratio_intervals(*arguments)


def test_what_has_no_rank_is_refused() -> None:
    refuses("n estimates and their", rank_intervals, [1.0, 2.0], [[1.0]])
    refuses("NaN or infinite", rank_intervals, [1.0, np.inf], np.eye(2))
    refuses("negative variances", rank_intervals, [1.0, 2.0], -np.eye(2))


@examples(50)
@given(st.lists(st.integers(-3, 400_000_000), min_size=2, max_size=8), st.integers(0, 2**32 - 1))
def test_rounding_ranks_nothing(counts: list[int], seed: int) -> None:
    """Counts known exactly, with what sums of floating-point numbers leave in them."""
    exact = np.array(counts, dtype=float)
    rounded = exact * (1 + 1e-15 * np.random.default_rng(seed).integers(-20, 20, exact.size))
    rank, first, last = rank_intervals(rounded, np.zeros((exact.size, exact.size)))
    assert rank.tolist() == [1 + int((exact > own).sum()) for own in exact]
    assert first.tolist() == rank.tolist()
    assert last.tolist() == [exact.size - int((exact < own).sum()) for own in exact]
