"""Every exact sampler against the enumerated law of a small lattice.

Chi-square tests reject at 1e-6; see `enumeration.FALSE_ALARM` for what that means for seeded and unseeded draws.
"""

import math
import os
import pickle
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import signal, stats
from scipy.special import gammaln

from constraint_builders import Schema
from noise_mechanisms.integer_subspace import GeneralizedGaussian, GeneralizedLaplace, Invariants, Lattice
from noise_mechanisms.integer_subspace.exact_decisions import (
    LaplaceStream,
    ShiftedGaussian,
    _pi,
    bernoulli,
    bernoulli_exp,
    exact_scale,
    theta_at_zero,
)
from noise_mechanisms.integer_subspace.klein import GaussianSampler, L2LadderSampler, log_theta, shifted_gaussian
from noise_mechanisms.integer_subspace.l1_samplers import BlockSampler, FreeCellSampler, RowSampler, ZeroSumLaplace
from noise_mechanisms.integer_subspace.samplers import Sampler
from noise_mechanisms.integer_subspace.scale_mixture import ScaleMixtureSampler
from tests.helpers.effort import first_of
from tests.helpers.every import every
from tests.helpers.refused import refuses
from tests.noise_mechanisms.integer_subspace.enumeration import (
    FALSE_ALARM,
    INTERSECTING,
    LARGE_STEPS,
    TREE,
    TWO_BY_THREE,
    enumerate_law,
    gaussian_cost,
    l1_cost,
    l2_cost,
    margins,
    p_value,
    p_value_of_norms,
)

THREE_BY_THREE = margins((3, 3), "a", "b")
CUBE = margins((2, 2, 2), "a * b", "b * c", "a * c")
MIXED = margins((2, 2, 2), "a * b", "c")


def blocks(invariants: Invariants, epsilon: float) -> BlockSampler:
    return BlockSampler(invariants.blocks, epsilon)


L1_CASES: dict[str, tuple[Invariants, Callable[[Invariants, float], Sampler], float, int]] = {
    "block": (margins((4,), "total"), blocks, 0.6, 25),
    "tree with a free record": (TREE, blocks, 0.9, 16),
    "mirrored rows": (TWO_BY_THREE, RowSampler, 0.3, 30),
    "mirrored columns": (margins((3, 2), "a", "b"), RowSampler, 0.3, 30),
    "rows": (THREE_BY_THREE, RowSampler, 0.5, 11),
    "rows with an idle axis": (margins((3, 1, 3), "a", "c"), RowSampler, 0.5, 11),
    "free cells": (INTERSECTING, lambda i, epsilon: FreeCellSampler(Lattice(i), epsilon), 0.5, 25),
    "free cells, large steps": (LARGE_STEPS, lambda i, epsilon: FreeCellSampler(Lattice(i), epsilon), 0.05, 60),
}
ALWAYS = ["block", "tree with a free record", "mirrored rows", "free cells, large steps"]  # the others by -m slow
L1_SOME = first_of([*ALWAYS, *(name for name in L1_CASES if name not in ALWAYS)], len(ALWAYS))
KLEIN_CASES = {
    "margins": (THREE_BY_THREE, 1.3, 9),
    "narrow": (TWO_BY_THREE, 0.8, 9),
    "one dimension": (CUBE, 1.2, 12),
    "several sets of axes": (MIXED, 0.8, 7),
    "tree": (TREE, 0.7, 9),
    "elimination": (INTERSECTING, 1.1, 12),
}


def require_law(
    invariants: Invariants, draws: np.ndarray, cost: Callable, reach: int, judge: Callable = p_value
) -> None:
    """Draws keep what is invariant, and are so often on every point of the lattice as its law says."""
    assert draws.dtype == np.int64
    assert not (invariants.matrix @ draws.T).any()
    assert judge(draws, *enumerate_law(Lattice(invariants), cost, reach)) > FALSE_ALARM


def require_released(invariants: Invariants, sampler: Sampler, number: int, cost: Callable, reach: int) -> None:
    """The same of single draws of release grade, by their lengths."""
    pytest.importorskip("opendp", reason="release-grade draws need OpenDP (extra 'release')")
    draws = np.array([sampler.release_sample() for _ in range(number)])
    require_law(invariants, draws, cost, reach, p_value_of_norms)


@pytest.mark.few(0)
@every("name", L1_CASES)
def test_l1_noise_and_mixtures_of_scales_follow_the_enumerated_law(name: str) -> None:
    invariants, make, epsilon, reach = L1_CASES[name]
    require_law(invariants, make(invariants, epsilon).sample(60_000, rng=1), l1_cost(epsilon), reach)
    mixed = ScaleMixtureSampler(Lattice(invariants), epsilon).sample(40_000, rng=7)
    require_law(invariants, mixed, l1_cost(epsilon), reach)


def test_mixtures_of_scales_have_the_moments_of_rows_on_tables_where_rows_are_slow() -> None:
    invariants = margins((5, 5), "a", "b")
    mixed = GeneralizedLaplace(invariants, 0.25).choose("scale_mixture").sampler.sample(800, rng=8)
    rows = RowSampler(invariants, 0.25).sample(800, rng=8)
    assert stats.ks_2samp(abs(mixed).sum(axis=1), abs(rows).sum(axis=1)).pvalue > FALSE_ALARM
    assert np.square(mixed).mean() == pytest.approx(np.square(rows).mean(), rel=0.1)


def test_mixtures_of_scales_take_any_lattice_of_as_many_dimensions_as_they_say() -> None:
    schema = Schema({"a": 18, "b": 16}, {"a": {"pairs": [level // 2 for level in range(18)]}})
    lattice = Lattice(Invariants.from_margins(schema, ["pairs", "b"]))  # of 264, in no closed form
    log_acceptance, _ = ScaleMixtureSampler(lattice, 50.0)._scales(8, np.random.default_rng(1))
    assert -1 < log_acceptance.min() <= log_acceptance.max() <= 1e-9


def test_the_bound_that_mixtures_of_scales_are_accepted_by_holds() -> None:
    for invariants, epsilon in ((margins((5, 5), "a", "b"), 0.25), (CUBE, 2.0), (LARGE_STEPS, 0.05), (TREE, 6.0)):
        log_acceptance, _ = ScaleMixtureSampler(Lattice(invariants), epsilon)._scales(4000, np.random.default_rng(1))
        assert log_acceptance.max() <= 1e-9


@pytest.mark.parametrize("name", L1_SOME)
def test_release_grade_l1_noise_follows_the_enumerated_law(name: str) -> None:
    invariants, make, _, reach = L1_CASES[name]
    epsilon = 0.7 if name != "free cells, large steps" else 0.1
    require_released(invariants, make(invariants, epsilon), 300, l1_cost(epsilon), reach)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", KLEIN_CASES)
def test_gaussian_noise_follows_the_enumerated_law(name: str) -> None:
    invariants, sigma, reach = KLEIN_CASES[name]
    draws = GaussianSampler(Lattice(invariants), sigma).sample(60_000, rng=2)
    require_law(invariants, draws, gaussian_cost(sigma), reach)


def test_klein_without_rejection_would_fail_this_test() -> None:
    invariants, sigma, reach = KLEIN_CASES["several sets of axes"]
    sampler = GaussianSampler(Lattice(invariants), sigma)
    draws = sampler._attempt(60_000, np.random.default_rng(2))[0]
    assert sampler.acceptance < 0.9
    assert p_value(draws, *enumerate_law(Lattice(invariants), gaussian_cost(sigma), reach)) < FALSE_ALARM


@pytest.mark.few(1)
@pytest.mark.parametrize("name", first_of(KLEIN_CASES, 3))
def test_release_grade_gaussian_noise_follows_the_enumerated_law(name: str) -> None:
    invariants, sigma, reach = KLEIN_CASES[name]
    require_released(invariants, GaussianSampler(Lattice(invariants), sigma), 200, gaussian_cost(sigma), reach)


@every(
    ("invariants", "epsilon", "reach"),
    [(TWO_BY_THREE, 0.6, 40), (margins((4,), "total"), 1.2, 22), (CUBE, 1.0, 40), (INTERSECTING, 1.0, 16)],
)
def test_l2_laplace_noise_follows_the_enumerated_law(invariants: Invariants, epsilon: float, reach: int) -> None:
    draws = L2LadderSampler(Lattice(invariants), epsilon).sample(60_000, rng=3)
    require_law(invariants, draws, l2_cost(epsilon), reach)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("invariants", "epsilon", "reach"), [(TWO_BY_THREE, 0.6, 40), (margins((4,), "total"), 1.2, 22), (CUBE, 1.0, 40)]
)
def test_l2_laplace_noise_of_release_grade_follows_the_enumerated_law(
    invariants: Invariants, epsilon: float, reach: int
) -> None:
    sampler = GeneralizedLaplace(invariants, epsilon, norm=2).automatic.sampler
    require_released(invariants, sampler, 200, l2_cost(epsilon), reach)


def test_l2_lengths_whose_squares_leave_64_bits() -> None:
    mechanism = GeneralizedLaplace(margins((4,), "total"), 1e-10, norm=2)
    draws = mechanism.sample(4000, rng=1).astype(float)
    assert not draws.sum(axis=1).any()
    lengths = 1e-10 * np.sqrt(np.square(draws).sum(axis=1))  # of a gamma law of shape 3
    assert abs(lengths.mean() - 3) < 5 * np.sqrt(3 / 4000)


def test_l2_laplace_noise_of_release_grade_is_drawn_on_large_lattices() -> None:
    pytest.importorskip("opendp", reason="release-grade draws need OpenDP (extra 'release')")
    mechanism = GeneralizedLaplace(margins((9, 24), "a", "b"), 0.25, norm=2)
    released = [mechanism.release(np.zeros(216, dtype=int)) for _ in range(8)]
    assert {release.sampler for release in released} == {"l2_ladder"}
    lengths = np.array([np.sqrt(np.square(release.table).sum()) for release in released])
    # The norm is a gamma variable of shape 184 up to what the lattice adds: mean 736, standard deviation 54.
    assert abs(lengths.mean() - 184 / 0.25) < 6 * 54 / np.sqrt(8)
    assert all(release.guarantee is not None and not release.table.reshape(9, 24).sum(0).any() for release in released)


def test_the_ladder_never_lies_below_what_it_proposes_for() -> None:
    cost, k = np.concatenate([np.linspace(0, 50, 501), np.geomspace(50, 1e4, 60)]), np.arange(1, 2000) / 4
    log_terms = -np.square(k - cost[:, None] / k) / 2
    assert (np.logaddexp.reduce(log_terms, axis=1) >= math.log(4)).all()


def test_the_ladders_decimals_are_right() -> None:
    from decimal import Context, localcontext

    from flint import arb, ctx

    with localcontext(Context(prec=60)):
        assert abs(float(str(_pi(60))[:17]) - math.pi) < 1e-15
        for s2 in (Fraction(1, 40), Fraction(49, 100), Fraction(1, 2), Fraction(7, 3), Fraction(900)):
            k = np.arange(-700, 701)
            direct = np.exp(-np.square(k) / (2 * float(s2))).sum()
            assert float(theta_at_zero(s2, 60)) == pytest.approx(direct, rel=1e-14)
        ctx.prec = 220
        assert abs(arb(str(_pi(60))) - arb.pi()) < arb("1e-58")


def totals_of_a_block(length: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Totals m, and their probabilities, proportional to C(m + n - 1, m)^2 exp(-2 epsilon m), by the definition."""
    m = np.arange(int((4 * length + 60) / epsilon) + 60)
    log_weight = 2 * (gammaln(m + length) - gammaln(m + 1) - gammaln(length) - epsilon * m)
    weight = np.exp(log_weight - log_weight.max())
    return m, weight / weight.sum()


@pytest.mark.parametrize("epsilon", [1e-2, 0.1, 5.0, 40.0])
@pytest.mark.parametrize("length", first_of([1, 2, 3, 102, 3000], 4))
def test_block_law_and_its_variance_are_those_of_the_totals(length: int, epsilon: float) -> None:
    law = ZeroSumLaplace(length, epsilon)
    m, probability = totals_of_a_block(length, epsilon)
    shift = np.zeros(m.size)
    shift[: min(length, m.size)] = law.shift_law[: m.size]
    spread = stats.nbinom(2 * length - 1, -math.expm1(-2 * epsilon)).pmf(m)
    assert signal.fftconvolve(shift, spread)[: m.size] == pytest.approx(probability, abs=1e-12)
    within = m * (m + length) * (length - 1) / (length**2 * (length + 1))
    # gammaln of 3,000 to 240,000 has rounding errors of 1e-10
    assert law.variance == pytest.approx(2 * float(probability @ within), rel=1e-9)


@pytest.mark.parametrize("length", [2, 5])
def test_blocks_of_very_small_epsilon_take_no_memory(length: int) -> None:
    mechanism = GeneralizedLaplace(margins((length,), "total"), 1e-12)
    draws = mechanism.sample(4000, rng=1)
    assert not draws.sum(axis=1).any()
    # in units of 1 / epsilon the law is continuous: z of length 2 is a Laplace variable of scale 1 / 2
    variance = ZeroSumLaplace(length, 1e-12).variance
    assert variance * 1e-24 == pytest.approx({2: 0.5, 5: 1.2}[length], rel=1e-9)
    assert float(draws.var()) == pytest.approx(variance, rel=0.15)


def test_epsilon_that_leaves_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilon is 1e-18: noise of a scale of 1e\+18 is too large"):
        GeneralizedLaplace(margins((4,), "total"), 1e-18)
    with pytest.raises(ValueError, match=r"sigma is 1e\+18: noise of a scale of 1e\+18 is too large"):
        GeneralizedGaussian(margins((4,), "total"), 1e18)
    for make, value in ((GeneralizedLaplace, 1e300), (GeneralizedGaussian, 1e-300)):
        refuses("is 0 for all that can be drawn", make, margins((4,), "total"), value)
    refuses("leaves 64 bits", ZeroSumLaplace(10**6, 1e-13).sample, 1, np.random.default_rng(0))


def test_same_seed_same_noise() -> None:
    for mechanism in (GeneralizedLaplace(THREE_BY_THREE, 0.5), GeneralizedGaussian(THREE_BY_THREE, 2.0)):
        assert np.array_equal(mechanism.sample(5, rng=9), mechanism.sample(5, rng=9))
        assert not np.array_equal(mechanism.sample(5, rng=9), mechanism.sample(5, rng=8))


@pytest.mark.parametrize(
    ("center", "width"), [(0.4, 0.2), (0.5, 0.3), (0.5, 0.51), (-3.37, 0.8), (7.5, 1.0), (2.2, 6.0)]
)
def test_shifted_gaussian_follows_its_law(center: float, width: float) -> None:
    draws = shifted_gaussian(np.full(100_000, center), np.full(100_000, width), np.random.default_rng(5))
    points = np.arange(math.floor(center - 9 * width) - 2, math.ceil(center + 9 * width) + 3)
    weight = np.exp(-np.square(points - center) / (2 * width**2))
    assert p_value(draws[:, None].astype(int), points[:, None], weight / weight.sum()) > FALSE_ALARM


def test_log_theta_is_the_logarithm_of_the_sum() -> None:
    k = np.arange(-400, 401)
    for width in (0.05, 0.3, 0.99, 1.0, 1.01, 20.0):
        for center in (0.0, 0.5, -2.3):
            direct = np.logaddexp.reduce(-np.square(k - center) / (2 * width**2))
            assert log_theta(np.array([center]), np.array([width]))[0] == pytest.approx(direct, rel=1e-13, abs=1e-13)


def count_true(decide: Callable[[], bool], tries: int) -> int:
    return sum(decide() for _ in range(tries))


@every("cost", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(10**30 + 1, 10**30)])
def test_bernoulli_exp_has_its_probability(cost: Fraction) -> None:
    successes = count_true(lambda: bernoulli_exp(cost), 4000)
    assert stats.binomtest(successes, 4000, math.exp(-cost)).pvalue > FALSE_ALARM


def test_bernoulli_has_its_probability() -> None:
    assert stats.binomtest(count_true(lambda: bernoulli(Fraction(2, 7)), 4000), 4000, 2 / 7).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("sigma2", "center"), [(Fraction(1, 10), Fraction(1, 3)), (Fraction(1, 4), Fraction(-5, 2))])
def test_acceptance_of_klein_has_its_probability(sigma2: Fraction, center: Fraction) -> None:
    k = np.arange(-60, 61)
    law, twice = ShiftedGaussian(sigma2), 2 * float(sigma2)
    quotient = np.exp(-np.square(k - float(center)) / twice).sum() / np.exp(-np.square(k) / twice).sum()
    successes = count_true(lambda: law.accepts(center), 1000)
    assert stats.binomtest(successes, 1000, float(quotient)).pvalue > FALSE_ALARM


def test_acceptance_of_klein_takes_more_bits_when_the_first_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    from noise_mechanisms.integer_subspace import exact_decisions

    law, center = ShiftedGaussian(Fraction(1, 4)), Fraction(1, 2)
    quotient = law._theta(center, 60) / law._theta(Fraction(0), 60)
    tie = int(quotient * 2**64)
    words: list[int] = [tie, 0]
    monkeypatch.setattr(exact_decisions.secrets, "randbits", lambda bits: words.pop(0))
    assert law.accepts(center) is True
    assert not words


def test_release_grade_shifted_gaussian_follows_its_law() -> None:
    pytest.importorskip("opendp", reason="release-grade draws need OpenDP (extra 'release')")
    law, center = ShiftedGaussian(Fraction(9, 4)), Fraction(-17, 5)
    draws = np.array([[law.take(center)] for _ in range(3000)])
    points = np.arange(-20, 14)
    weight = np.exp(-np.square(points - float(center)) / (2 * 2.25))
    assert p_value(draws, points[:, None], weight / weight.sum()) > FALSE_ALARM


def test_exact_scale_never_exceeds_epsilon() -> None:
    for epsilon in np.random.default_rng(6).uniform(1e-6, 10, 200):
        assert 1 / Fraction(exact_scale(float(epsilon))) <= Fraction(float(epsilon))
        assert 1 / exact_scale(float(epsilon)) == pytest.approx(epsilon, rel=1e-15)


def test_misfits_are_refused_by_name() -> None:
    refuses("overlap without being nested", blocks, THREE_BY_THREE, 0.5)
    refuses("not the two margins of a two-way table", RowSampler, CUBE, 0.5)
    with pytest.raises(NotImplementedError, match=r"scale_mixture.*simulation only"):
        ScaleMixtureSampler(Lattice(THREE_BY_THREE), 0.5).release_sample()
    with pytest.raises(ValueError, match=r"at most 300 dimensions, and this one has 399.*heat_bath"):
        GeneralizedLaplace(margins((20, 22), "a", "b"), 0.5).choose("scale_mixture")


def test_names_that_went_mean_the_sampler_that_stayed() -> None:
    mechanism = GeneralizedLaplace(THREE_BY_THREE, 0.5, norm=2)
    for name in ("klein_mixture", "l1_proposals"):
        assert mechanism.choose(name).sampler.name == "l2_ladder"


def test_neither_copies_nor_forks_repeat_secure_values(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opendp", reason="release-grade draws need OpenDP (extra 'release')")
    stream = LaplaceStream(1000.0)
    stream.take(1)
    waiting = stream._waiting[:20].copy()
    assert not np.array_equal(pickle.loads(pickle.dumps(stream)).take(20), waiting)
    monkeypatch.setattr(os, "getpid", os.getppid)  # a process that there is: what it may take of memory is looked up
    assert not np.array_equal(stream.take(20), waiting)


def test_hopeless_rejection_is_refused() -> None:
    sampler = RowSampler(margins((12, 12), "a", "b"), 0.25)
    for draw in (lambda: sampler.sample(1, rng=1), sampler.release_sample):
        refuses(r"fewer than one try in 10,000,000.*heat_bath", draw)


def test_release_without_opendp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"needs OpenDP: pip install 'blue-solvers\[release\]'"):
        GeneralizedLaplace(THREE_BY_THREE, 0.5).release(np.zeros(9, dtype=int))
