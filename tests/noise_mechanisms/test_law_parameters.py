"""Every numeric parameter of every law: any kind of number gives the same law, and the law is the one enumerated."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import gallery
from constraint_builders.budget import Budget, gaussian_rho, gaussian_variance
from noise_mechanisms import draw_noise
from noise_mechanisms.accounting import (
    compose,
    gaussian_delta,
    gaussian_epsilon,
    pure_to_zcdp,
    zcdp_delta,
    zcdp_epsilon,
)
from noise_mechanisms.budgeted import noise_variances
from noise_mechanisms.integer_subspace import (
    BoundedMechanism,
    ChainSampler,
    GeneralizedGaussian,
    GeneralizedLaplace,
    HeatBathKernel,
    Invariants,
    JumpKernel,
    Lattice,
    gaussian_sigma,
    noise_covariance,
    projected_noise,
    stopping_delta,
)
from noise_mechanisms.laws import LAWS, DiscreteGaussian, DiscreteLaplace, DiscreteLaw, Law, draw, law
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.numbers_alike import NO_NUMBERS, NOT_POSITIVE, dyadic, kinds_of
from tests.helpers.refused import refuses

KINDS = list(LAWS.values())
# whole numbers, halves and quarters, and everything that float64 holds in between
PARAMETERS = st.one_of(dyadic(0, 4, 7), dyadic(-3, 3, 5), dyadic(-12, 10, 30))
TOTAL = Invariants.from_subsets([[0, 1, 2]], records=3)
BITS = 200


def enumerate_law(kind: type[DiscreteLaw], parameter: Fraction) -> tuple[arb, arb, Callable[[int], arb]]:
    """Normaliser, variance, and probability of k, summed term by term in 200 bits, from the definition alone."""
    exact = arb(fmpq(parameter.numerator, parameter.denominator))
    gaussian = kind is DiscreteGaussian

    def weight(k: int) -> arb:
        return (-(arb(k) ** 2) / (2 * exact)).exp() if gaussian else (-arb(abs(k)) / exact).exp()

    spread = math.sqrt(parameter) if gaussian else float(parameter)
    last = int(spread * (17 if gaussian else 150)) + 20  # what is left out is below 2^-200
    total, square = arb(1), arb(0)
    for k in range(1, last + 1):
        total += 2 * weight(k)
        square += 2 * k * k * weight(k)
    return total, square / total, lambda k: weight(k) / total


@pytest.fixture(autouse=True)
def many_bits() -> Any:
    before, ctx.prec = ctx.prec, BITS
    yield
    ctx.prec = before


@pytest.mark.parametrize("kind", KINDS)
@given(parameter=PARAMETERS)
def test_every_kind_of_number_gives_the_same_law(kind: type[Law], parameter: Fraction) -> None:
    wanted = kind(float(parameter))
    at = np.array([-2.0, 0.0, 0.5, 1.0, 3.0, 40.0])
    evaluate = "logpmf" if kind.discrete else "logpdf"
    for number in kinds_of(parameter):
        found = kind(number)
        assert found == wanted
        assert type(found._parameter) is float
        assert found.variance == wanted.variance
        assert np.array_equal(getattr(found, evaluate)(at), getattr(wanted, evaluate)(at))
        assert np.array_equal(found.sample(20, rng=1), wanted.sample(20, rng=1))


@pytest.mark.parametrize("name", list(LAWS))
@given(variance=PARAMETERS)
def test_every_kind_of_number_gives_the_same_variance(name: str, variance: Fraction) -> None:
    wanted, drawn = law(name, float(variance)), draw(name, float(variance), rng=2, columns=20)
    for number in kinds_of(variance):
        assert law(name, number) == wanted
        assert np.array_equal(draw(name, number, rng=2, columns=20), drawn)
        assert np.array_equal(draw(name, [number, number], rng=3), draw(name, [float(variance)] * 2, rng=3))


@pytest.mark.parametrize("kind", [DiscreteGaussian, DiscreteLaplace])
@given(parameter=st.one_of(dyadic(0, 0, 6), dyadic(-3, 1, 6), dyadic(-20, -14, 20)), whole=st.booleans())
@examples(60)
def test_laws_on_whole_numbers_are_those_enumerated(kind: type[DiscreteLaw], parameter: Fraction, whole: bool) -> None:
    parameter = Fraction(math.ceil(parameter)) if whole else parameter
    _, variance, probability = enumerate_law(kind, parameter)
    found = kind(int(parameter) if whole else parameter)  # type: ignore[arg-type]
    # exp(-a) has a relative error of a roundings, in every probability and in the variance where it is far below 1
    spread = 1 / float(parameter)
    assert found.variance == pytest.approx(float(variance), rel=1e-15 * (4 + spread), abs=0)
    k = [0, 1, -1, 2, 5]
    for value, p in zip(k, found.pmf(k), strict=True):
        exact = float(probability(value))
        assert p == pytest.approx(exact, rel=1e-15 * (4 + value * value * spread), abs=1e-320)


@every("parameter", [1, 2, 25, 100])
@every("kind", [DiscreteGaussian, DiscreteLaplace])
def test_probabilities_of_laws_with_whole_parameters_sum_to_one(kind: type[DiscreteLaw], parameter: int) -> None:
    k = np.arange(-20_000, 20_001)
    instance = kind(parameter)
    assert math.fsum(instance.pmf(k)) == pytest.approx(1, rel=1e-14)
    assert math.fsum(k**2 * instance.pmf(k)) == pytest.approx(instance.variance, rel=1e-13)


@every("name", list(LAWS))
@every("bad", NO_NUMBERS + NOT_POSITIVE)
def test_everything_else_is_refused_by_name(name: str, bad: Any) -> None:
    what = "sigma2" if "gaussian" in name else "scale"
    refuses(f"^{name}: {what} is ", LAWS[name], bad)
    refuses(f"^{name}: variance is ", law, name, bad)


@every("name", list(LAWS))
@every("bad", [True, "1", 1j, None, np.timedelta64(1), -1, np.nan, np.inf, 10**400])
def test_variances_that_are_none_are_refused_by_name(name: str, bad: Any) -> None:
    refuses(f"{name}: variance", draw, name, [1.0, bad])


@every("bad", [True, 2.0, "3", -1, None, [1], np.nan])
def test_counts_that_are_none_are_refused(bad: Any) -> None:
    for name, kind in LAWS.items():
        refuses(f"{name}: size is ", kind(1).sample, bad)
        if bad is not None:
            refuses(f"{name}: columns is ", draw, name, [1.0], columns=bad)
    refuses("columns is ", draw_noise, gallery.toy(), bad)
    mechanism = GeneralizedLaplace(TOTAL, 1)
    for call in (
        lambda: mechanism.sample(bad),
        lambda: projected_noise(TOTAL, 1, bad),
        lambda: noise_covariance(mechanism, bad),
        lambda: BoundedMechanism(TOTAL, 1, limit=bad),
        lambda: BoundedMechanism(TOTAL, 1).sample([1, 1, 1], bad),
    ):
        refuses(r"^(size|draws|limit) is .*: give a whole number of", call)


def test_draws_that_do_not_fit_are_refused_before_they_are_made() -> None:
    for name, kind in LAWS.items():
        refuses(r"draws needs .* are free", kind(1).sample, 10**15, error=MemoryError)
        refuses("are free: draw fewer", draw, name, [1.0], columns=10**15, error=MemoryError)


@every("name", list(LAWS))
def test_laws_that_spread_beyond_float64_are_refused_by_name(name: str) -> None:
    what, largest = ("sigma2", 2.0**94) if "gaussian" in name else ("scale", 2.0**47)
    if LAWS[name].discrete:
        assert LAWS[name](largest).sample(3, rng=1).dtype == np.int64
        refuses(f"{name}: {what} is .*whole numbers so large", LAWS[name], largest * (1 + 1e-9))
    elif what == "scale":
        refuses(f"{name}: scale is 1e\\+200: its variance is too large", LAWS[name], 1e200)


@every("parameter", [5e-324, 1e-310, 1e-160, 1e-5, 1.0, 1e13, 2.0**47, 1e150, 1e308])
@every("kind", KINDS)
def test_extremes_give_no_nan_and_no_warning(kind: type[Law], parameter: float) -> None:
    try:
        instance = kind(parameter)
    except ValueError:
        return
    with np.errstate(all="raise", under="ignore"):
        assert 0 <= instance.variance < math.inf
        evaluate = instance.logpmf if isinstance(instance, DiscreteLaw) else instance.logpdf  # type: ignore[attr-defined]
        values = evaluate([0.0, 0.5, 1.0, -1e10, 1e200, math.inf])
        assert not np.isnan(values).any()
        assert values[0] == values.max()
        assert values[-1] == -math.inf
        assert np.isfinite(instance.sample(100, rng=4)).all()


def test_points_of_evaluation_are_numbers() -> None:
    for bad in ([math.nan], ["1"], [True], [1j], np.ma.array([1.0], mask=True)):
        for kind in KINDS:
            evaluate = "pmf" if kind.discrete else "pdf"
            refuses("the points of evaluation", getattr(kind(1), evaluate), bad)


@given(dyadic(-6, 6, 6), st.sampled_from([Fraction(1, 2), Fraction(1, 1024), Fraction(3, 4)]))
@examples(30)
def test_accounting_takes_every_kind_alike(loss: Fraction, delta: Fraction) -> None:
    for number in kinds_of(loss):
        assert compose([number, number]) == 2 * loss
        assert pure_to_zcdp(number) == loss**2 / 2
        for other in kinds_of(delta):
            assert zcdp_epsilon(number, other) == zcdp_epsilon(float(loss), float(delta))
            assert gaussian_epsilon(number, other) == gaussian_epsilon(float(loss), float(delta))
        assert zcdp_delta(number, number) == zcdp_delta(float(loss), float(loss))
        assert gaussian_delta(number, number) == gaussian_delta(float(loss), float(loss))


@every("bad", [*NO_NUMBERS[:-2], -1, Fraction(-1), np.nan, np.inf, 10**400])
def test_accounting_refuses_what_is_no_loss(bad: Any) -> None:
    for call in (
        lambda: compose([bad]),
        lambda: compose({"US": {"total": bad}}),
        lambda: pure_to_zcdp(bad),
        lambda: zcdp_epsilon(bad, 0.1),
        lambda: zcdp_epsilon(1, bad),
        lambda: zcdp_delta(bad, 1),
        lambda: zcdp_delta(1, bad),
        lambda: gaussian_delta(bad, 1),
        lambda: gaussian_delta(1, bad),
        lambda: gaussian_epsilon(bad, 0.1),
        lambda: gaussian_epsilon(1, bad),
    ):
        refuses(r"^(a loss|rho|epsilon|delta) is ", call)


@every("loss", [1e-320, 1e13, 1e308, Fraction(1, 10**305)])
def test_accounting_refuses_losses_that_no_formula_reaches(loss: Any) -> None:
    for call in (
        lambda: zcdp_epsilon(loss, 0.1),
        lambda: zcdp_delta(1.0, loss),
        lambda: gaussian_delta(loss, 1.0),
        lambda: gaussian_epsilon(loss, 0.5),
    ):
        refuses(r"^(rho|epsilon) is .*: a loss is converted if 0, or from", call)
    assert float(pure_to_zcdp(loss) / Fraction(loss) ** 2) == pytest.approx(0.5, rel=1e-15)


@given(st.sampled_from([0.0, 1e-300, 1e-100, 1e-9, 1.0, 1e6, 1e12]), st.sampled_from([5e-324, 1e-30, 0.5, 1 - 2**-53]))
def test_accounting_is_finite_wherever_it_answers(rho: float, delta: float) -> None:
    with np.errstate(all="raise", under="ignore"):
        for convert in (zcdp_epsilon, gaussian_epsilon, lambda r, d: zcdp_epsilon(r, d, "simple")):
            assert 0 <= convert(rho, delta) < math.inf
        for epsilon in (0.0, 1e-300, 1.0, 1e12):
            for convert in (zcdp_delta, gaussian_delta, lambda r, e: zcdp_delta(r, e, "simple")):
                assert 0 <= convert(rho, epsilon) <= 1


@given(dyadic(0, 5, 6))
def test_budgets_take_every_kind_alike(loss: Fraction) -> None:
    for number in (number for number in kinds_of(loss) if not isinstance(number, np.ndarray)):
        assert gaussian_rho(number) == 1 / loss
        if not isinstance(number, (float, np.floating)):
            assert gaussian_variance(number) == 1 / loss
            budget, variance = Budget({"US": {"total": number}}), DiscreteGaussian(1 / loss).variance
            if variance:
                assert noise_variances(budget, "discrete_gaussian")["US"]["total"] == variance
            else:  # it underflows from a loss of some 1,490 on, which is no noise at all
                refuses("give a positive, finite number", noise_variances, budget, "discrete_gaussian")


@given(dyadic(-2, 2, 3))
@examples(10)
def test_mechanisms_on_lattices_take_every_kind_alike(value: Fraction) -> None:
    wanted = float(value)
    for number in kinds_of(value):
        for mechanism in (GeneralizedLaplace, GeneralizedGaussian):
            found, same = mechanism(TOTAL, number), mechanism(TOTAL, wanted)
            assert found.guarantee.loss == same.guarantee.loss
            assert np.array_equal(found.sample(3, rng=1), same.sample(3, rng=1))
            assert np.array_equal(noise_covariance(found).matrix, noise_covariance(same).matrix)
        assert BoundedMechanism(TOTAL, number).guarantee.loss == value
        assert gaussian_sigma(number, Fraction(1, 4)) == gaussian_sigma(wanted, 0.25)
        assert HeatBathKernel(Lattice(TOTAL), number).epsilon == wanted
        assert np.array_equal(projected_noise(TOTAL, number, 2, 1), projected_noise(TOTAL, wanted, 2, 1))
        assert stopping_delta(number, 0) == 0


@every("bad", NO_NUMBERS + NOT_POSITIVE)
def test_mechanisms_on_lattices_refuse_what_is_no_parameter(bad: Any) -> None:
    lattice = Lattice(TOTAL)
    calls: list[Callable[[], Any]] = [
        lambda: GeneralizedLaplace(TOTAL, bad),
        lambda: GeneralizedGaussian(TOTAL, bad),
        lambda: BoundedMechanism(TOTAL, bad),
        lambda: gaussian_sigma(bad, 0.5),
        lambda: gaussian_sigma(1, bad),
        lambda: stopping_delta(bad, 0.5),
        lambda: HeatBathKernel(lattice, bad),
        lambda: JumpKernel(lattice, 1, a=bad),
        lambda: projected_noise(TOTAL, bad, 1),
    ]
    for call in calls:
        refuses(r"^(epsilon|sigma|delta|a) is .*: (give|it is too)", call)
    refuses("norm is", GeneralizedLaplace, TOTAL, 1, norm=bad)


@every("bad", [*NO_NUMBERS, -1e-300, 1 + 1e-15, np.nan, 2])
def test_distances_of_chains_that_are_none_are_refused(bad: Any) -> None:
    refuses(r"^eta is ", stopping_delta, 1, bad)


@every("bad", [True, "1", 1.5, -1, np.nan])
def test_chains_refuse_what_is_no_burn_in(bad: Any) -> None:
    refuses("burn_in is", ChainSampler, HeatBathKernel(Lattice(TOTAL), 1), bad)


@every("bad", [[1e300, 0, 0], [2**63, 0, 0], ["1", "2", "3"], [1j, 0, 0], [True, False, True], [0.5, 0, 0]])
def test_tables_that_hold_no_whole_numbers_are_refused(bad: Any) -> None:
    for call in (GeneralizedLaplace(TOTAL, 1).add_noise, GeneralizedGaussian(TOTAL, 1).add_noise, TOTAL.apply):
        refuses(r"a table|64 bits", call, bad)
    refuses("a table is a masked array", TOTAL.apply, np.ma.array([1, 2, 3], mask=[0, 1, 0]))
