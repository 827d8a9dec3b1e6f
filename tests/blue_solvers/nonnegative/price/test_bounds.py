"""Theorems 3 and 4: the bounds against one another, against simulation, and against privacy checked by integration."""

import numpy as np
import pytest
from scipy.integrate import quad

from blue_solvers.nonnegative.price.bounds import (
    ApproximateDP,
    PureDP,
    ZeroConcentratedDP,
    conflicts,
    is_possible,
    least_point_error,
    least_sum_error,
    truncation,
    upper_bounds_accurate_points,
    upper_bounds_accurate_sum,
)
from blue_solvers.nonnegative.price.private_cells import (
    accurate_points,
    accurate_sum,
    project_to_simplex,
    truncated_laplace,
)
from constraint_builders import Problem, Schema
from tests.helpers.every import every
from tests.helpers.refused import refused

PRIVACIES = [PureDP(0.1), PureDP(1.0), ApproximateDP(0.5, 1e-6), ZeroConcentratedDP(0.005), ZeroConcentratedDP(0.5)]


@every("privacy", [PureDP(0.3), ApproximateDP(0.3, 1e-5)])
@every("C", [0.5, 2.0])
def test_the_papers_inequality_is_tight_at_its_bound(privacy, C):
    """Theorem 3 as printed holds with equality for some k at the least D, and fails for it just below."""
    d = 100_000
    least = least_sum_error(C, d, privacy, form="paper")
    delta = getattr(privacy, "delta", 0.0)
    k = np.linspace(1e-3, 10, 200_001)

    def room(D):
        exponential = np.exp(2 * privacy.epsilon * (2 * C + k))
        return (exponential * (delta / privacy.epsilon + (4 * C + 2 * D + k) / (k * (d - 1))) - 0.25).min()

    assert room(least) == pytest.approx(0, abs=1e-6)
    assert room(0.99 * least) < 0


def test_pure_privacy_reads_as_in_theorem_3():
    """e^(2 epsilon (2C+k)) >= k(d-1) / (16C + 8D + 4k) at the least D, with equality for the worst k."""
    epsilon, C, d = 0.2, 1.0, 50_000
    D = least_sum_error(C, d, PureDP(epsilon), form="paper")
    k = np.linspace(1e-3, 15, 100_001)
    ratio = np.exp(2 * epsilon * (2 * C + k)) / (k * (d - 1) / (16 * C + 8 * D + 4 * k))
    assert ratio.min() == pytest.approx(1, abs=1e-6)


@every("privacy", PRIVACIES)
@every("d", [100, 100_000])
def test_lower_bounds_do_not_contradict_the_mechanisms(privacy, d):
    for point, total in (upper_bounds_accurate_points(d, privacy), upper_bounds_accurate_sum(d, privacy)):
        assert is_possible(np.sqrt(point), np.sqrt(total), d, privacy)


@every("privacy", PRIVACIES[:3])
def test_the_sharp_bound_is_no_weaker_than_the_papers(privacy):
    for C in (0.3, 1.0, 4.0):
        assert least_sum_error(C, 10_000, privacy) >= least_sum_error(C, 10_000, privacy, form="paper")


@every("privacy", PRIVACIES)
def test_the_two_bounds_are_inverse(privacy):
    D = 5.0
    C = least_point_error(D, 10_000, privacy)
    assert least_sum_error(C, 10_000, privacy) == pytest.approx(D, rel=1e-3)
    assert is_possible(1.01 * C, D, 10_000, privacy)
    assert not is_possible(0.9 * C, D, 10_000, privacy)


def test_the_bound_grows_as_the_theorem_says():
    """C grows with log d under pure privacy and with its root under zCDP, D with d in both."""
    pure = [least_point_error(10.0, d, PureDP(0.1)) for d in (10**4, 10**8, 10**12)]
    assert pure[2] - pure[1] == pytest.approx(pure[1] - pure[0], rel=0.1)
    squares = [least_point_error(10.0, d, ZeroConcentratedDP(0.005)) ** 2 for d in (10**8, 10**16, 10**24)]
    assert squares[2] - squares[1] == pytest.approx(squares[1] - squares[0], rel=0.15)
    for privacy in (PureDP(0.1), ZeroConcentratedDP(0.005)):
        least = [least_sum_error(10.0, d, privacy) for d in (10**4, 10**6)]
        assert least[1] == pytest.approx(100 * least[0], rel=1e-6)


@pytest.mark.parametrize("probability", [0.3, 0.9])
def test_reach_under_zcdp_holds_for_the_gaussian_mechanism(probability):
    """The likeliest events of a Gaussian mechanism of sensitivity 1, n records away, are above the bound."""
    from scipy.special import ndtr, ndtri

    rho = 0.1
    records = np.array([1.0, 3.0, 10.0])
    away = ndtr(ndtri(probability) - records * np.sqrt(2 * rho))
    assert (away >= ZeroConcentratedDP(rho).reach(records, np.array(probability))).all()


def test_reach_under_approximate_privacy_is_the_chain_of_single_steps():
    epsilon, delta, p = 0.4, 1e-3, 0.75
    chain = [p]
    for _ in range(5):
        chain.append(max(0.0, (chain[-1] - delta) * np.exp(-epsilon)))
    reached = ApproximateDP(epsilon, delta).reach(np.arange(6.0), np.array(p))
    np.testing.assert_allclose(reached, chain, rtol=1e-12)


def test_truncated_laplace_noise_is_private():
    """The mass that exceeds e^(epsilon/2) times the neighbour's, integrated, is at most delta."""
    privacy = ApproximateDP(0.8, 1e-3)
    scale, limit = 2 / privacy.epsilon, truncation(privacy)
    mass = 2 * scale * -np.expm1(-limit / scale)

    def density(x):
        return np.exp(-abs(x) / scale) / mass * (abs(x) <= limit)

    factor = np.exp(privacy.epsilon / 2)
    pieces = [-limit, -limit + 1, 0, 1, limit]
    excess = quad(lambda x: max(0, density(x) - factor * density(x - 1)), -limit, limit, points=pieces, limit=200)[0]
    assert excess <= privacy.delta * (1 + 1e-6)
    assert excess > 0.9 * privacy.delta


def test_truncated_laplace_draws():
    draws = truncated_laplace(2.0, 5.0, 200_000, np.random.default_rng(0))
    assert abs(draws).max() <= 5
    weight = quad(lambda x: np.exp(-x / 2), 0, 5)[0]
    variance = quad(lambda x: x**2 * np.exp(-x / 2), 0, 5)[0] / weight
    assert draws.var() == pytest.approx(variance, rel=0.02)


@every("privacy", PRIVACIES)
@every("counts", [np.eye(1, 60)[0] * 50, np.ones(60), np.arange(60.0)])
def test_mechanisms_keep_their_upper_bounds(privacy, counts):
    rng = np.random.default_rng(5)
    for mechanism, bounds in (
        (accurate_points, upper_bounds_accurate_points),
        (accurate_sum, upper_bounds_accurate_sum),
    ):
        output = np.array([mechanism(counts, privacy, rng) for _ in range(300)])
        assert output.min() >= 0
        point, total = bounds(counts.size, privacy)
        assert ((output - counts) ** 2).mean(axis=0).max() <= point * 1.4
        assert ((output.sum(axis=1) - counts.sum()) ** 2).mean() <= total * 1.4


def test_projection_is_nearest():
    rng = np.random.default_rng(0)
    values = rng.normal(size=30)
    projected = project_to_simplex(values, 4.0)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(4)
    shift = values[projected > 0] - projected[projected > 0]
    np.testing.assert_allclose(shift, shift[0])
    assert (values[projected == 0] <= shift[0] + 1e-12).all()
    assert not project_to_simplex(values, 0.0).any()


def test_conflicts_of_guarantees():
    problem = Problem(Schema({"state": 5, "block": 2000}), {"total": 1.0, "state": 1.0, "detailed": 1.0})
    found = conflicts(problem, {"total": 3.0, "detailed": 2.0}, PureDP(0.5))
    assert [(c.sum_table, c.point_table, c.d) for c in found] == [("total", "detailed", 10_000)]
    assert found[0].promised < found[0].least == pytest.approx(least_sum_error(2.0, 10_000, PureDP(0.5)))
    assert not conflicts(problem, {"total": 3.0, "state": 2.0, "detailed": 60.0}, PureDP(0.5))
    tight = conflicts(problem, dict.fromkeys(problem.observed.names, 0.5), PureDP(0.5))
    pairs = {(c.sum_table, c.point_table) for c in tight}
    assert {("total", "detailed"), ("state", "detailed")} <= pairs


@refused(
    (lambda: PureDP(0.0), "epsilon is 0.0: give a positive"),
    (lambda: ApproximateDP(1.0, 1.0), "delta is 1.0: give a number between 0 and 1"),
    (lambda: ZeroConcentratedDP(np.inf), "rho is inf: give a positive"),
    (lambda: least_sum_error(1.0, 1, PureDP(1.0)), "d is 1: give a whole number of 2 or more"),
    (lambda: least_sum_error(-1.0, 5, PureDP(1.0)), "point_error"),
    (lambda: least_point_error(0.0, 5, PureDP(1.0)), "sum_error"),
    (lambda: least_sum_error(1.0, 5, ZeroConcentratedDP(1.0), form="paper"), "paper omits"),
    (lambda: least_sum_error(1.0, 5, PureDP(1.0), form="best"), "form must be"),
    (lambda: accurate_sum([-1.0], PureDP(1.0), np.random.default_rng(0)), "counts must be"),
    (lambda: project_to_simplex([1.0], -1.0), "cannot sum"),
)
def test_bad_input_is_refused(call) -> None:
    call()


@every(
    ("privacy", "size"),
    [(PureDP(0.25), 8.0), (ApproximateDP(0.25, 1e-6), 8.0), (ZeroConcentratedDP(0.02), np.sqrt(100 / np.pi))],
)
def test_noise_of_accurate_sums_has_the_size_that_the_privacy_takes(privacy, size):
    """One count is its own sum: its error is the noise of the sum, on average 2 / epsilon or sqrt(2 / (pi rho))."""
    rng = np.random.default_rng(1)
    errors = [abs(accurate_sum([1e6], privacy, rng)[0] - 1e6) for _ in range(4000)]
    assert np.mean(errors) == pytest.approx(size, rel=5 / np.sqrt(4000))
