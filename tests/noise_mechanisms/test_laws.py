"""The four laws against exact arithmetic, and their samplers against the four laws.

Every statistical test rejects at 1e-6. With a fixed seed that is the chance that a right sampler failed when the
test was written; OpenDP takes no seed, so for release-grade draws it is the false-alarm rate of every run.
"""

import math
import sys
import tomllib
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from constraint_builders import Problem, Schema
from constraint_builders.budget import Budget
from noise_mechanisms import discrete, laws, opendp_samplers
from noise_mechanisms.budgeted import noise_variances
from noise_mechanisms.laws import (
    LAWS,
    DiscreteGaussian,
    DiscreteLaplace,
    DiscreteLaw,
    Gaussian,
    Laplace,
    Law,
    draw,
    law,
    variance_of,
)
from noise_mechanisms.laws.named_laws import tails_of
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.places import ROOT
from tests.helpers.refused import refuses

FALSE_ALARM = 1e-6
SIGMAS = [0.3, 0.7, 0.999, 1.0, 1.7, 10.0, 300.0, 1e4]
PARAMETERS = {
    Gaussian: [0.09, 4.0],
    DiscreteGaussian: [sigma**2 for sigma in SIGMAS],
    Laplace: [0.3, 4.0],
    DiscreteLaplace: SIGMAS,
}
CASES = [(kind, parameter) for kind, parameters in PARAMETERS.items() for parameter in parameters]
DISCRETE = [(kind, parameter) for kind, parameter in CASES if kind.discrete]


def exact_variance(sigma2: float) -> float:
    """Variance of the discrete Gaussian by direct summation in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        log_x = -1 / (2 * Decimal(sigma2))
        weights = [(k * k, (log_x * k * k).exp()) for k in range(1, 20 + int(15 * math.sqrt(sigma2)))]
        return float(2 * sum(square * w for square, w in weights) / (1 + 2 * sum(w for _, w in weights)))


def bins(kind: DiscreteLaw) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers that cut the line into about 60 cells, and the law's exact probability of each cell."""
    half = math.ceil(40 * math.sqrt(kind.variance)) + 40
    k = np.arange(-half, half + 1)
    pmf = kind.pmf(k)
    cut = np.flatnonzero(np.diff(np.floor(np.cumsum(pmf) * 60)))
    return k[cut], np.diff(np.cumsum(pmf)[cut], prepend=0.0, append=1.0)


def chi_square(values: np.ndarray, kind: DiscreteLaw) -> float:
    """p-value of the draws against the exact law, cells of fewer than 5 expected draws merged."""
    upper, probability = bins(kind)
    observed = np.bincount(np.searchsorted(upper, values), minlength=probability.size)
    order = np.argsort(probability)
    expected = probability[order] * values.size
    first = min(int(np.searchsorted(np.cumsum(expected), 5.0)), expected.size - 2)
    starts = np.concatenate([[0], np.arange(first + 1, expected.size)])
    return float(stats.chisquare(np.add.reduceat(observed[order], starts), np.add.reduceat(expected, starts)).pvalue)


@every("sigma2", [0.01, 0.03, 0.09, 0.25, 0.5, 0.9999, 1.0, 1.0001, 1.5, 2.0, 3.0, 50.0, 1234.5])
def test_discrete_gaussian_variance_is_exact(sigma2: float) -> None:
    # exp(-1 / (2 sigma2)) alone has a condition number of 1 / (2 sigma2).
    tolerance = 1e-15 * max(1.0, 0.5 / sigma2)
    assert DiscreteGaussian(sigma2).variance == pytest.approx(exact_variance(sigma2), rel=tolerance)


def test_discrete_gaussian_variance_at_the_extremes() -> None:
    assert DiscreteGaussian(1e20).variance == 1e20
    assert DiscreteGaussian(1e-5).variance == 0
    assert DiscreteGaussian(1.0).variance == pytest.approx(1 - 2.1e-7, abs=1e-8)


@given(st.floats(min_value=-300, max_value=20))
@examples(200)
def test_variance_of_from_variance_is_the_variance(log10_variance: float) -> None:
    variance = 10.0**log10_variance
    for name in LAWS:
        # Where a discrete law's variance is tiny, it changes by -log(variance) times as much as the parameter.
        tolerance = 4e-15 * max(1.0, -math.log(variance))
        assert law(name, variance).variance == pytest.approx(variance, rel=tolerance, abs=0)


@every(("kind", "parameter"), [case for case in DISCRETE if case[1] < 1e5])
def test_pmf_sums_to_one_and_has_the_variance(kind: type[DiscreteLaw], parameter: float) -> None:
    instance = kind(parameter)
    half = math.ceil(60 * math.sqrt(instance.variance)) + 60
    k = np.arange(-half, half + 1)
    # Summation of up to 40,000 terms in float64.
    assert instance.pmf(k).sum() == pytest.approx(1, rel=1e-13)
    assert (k**2 * instance.pmf(k)).sum() == pytest.approx(instance.variance, rel=1e-12)


@pytest.mark.parametrize("sigma2", [0.02, 0.1, 0.3, 1.0, 4.0])
def test_whole_gaussian_noise_is_sub_gaussian_by_its_parameter(sigma2: float) -> None:
    instance, k, t = DiscreteGaussian(sigma2), np.arange(-80.0, 81.0), np.linspace(-6, 6, 121) / math.sqrt(sigma2)
    generating = np.log(np.exp(np.outer(t, k) - k**2 / (2 * sigma2)).sum(axis=1))
    assert (generating - generating[60] <= t**2 * instance.variance / instance.by_proxy / 2 + 1e-12).all()
    assert Laplace(1.0).by_proxy == DiscreteLaplace(1.0).by_proxy == 0
    assert tails_of(instance.name, [np.array([4.0, instance.variance]), np.array([9.0])]).by_proxy == pytest.approx(
        instance.variance / sigma2
    )


def test_pmf_is_zero_between_whole_numbers_and_keeps_the_shape() -> None:
    for kind in (DiscreteGaussian, DiscreteLaplace):
        assert kind(2.0).pmf(0.5) == 0
        assert kind(2.0).logpmf(np.zeros((2, 3))).shape == (2, 3)


def test_densities_agree_with_scipy() -> None:
    x = np.linspace(-9, 9, 7)
    np.testing.assert_allclose(Gaussian(2.5).logpdf(x), stats.norm.logpdf(x, scale=math.sqrt(2.5)), rtol=1e-14)
    np.testing.assert_allclose(Laplace(2.5).logpdf(x), stats.laplace.logpdf(x, scale=2.5), rtol=1e-14)
    np.testing.assert_allclose(Gaussian(2.5).pdf(x), stats.norm.pdf(x, scale=math.sqrt(2.5)), rtol=1e-13)
    np.testing.assert_allclose(Laplace(2.5).pdf(x), stats.laplace.pdf(x, scale=2.5), rtol=1e-13)


@every(("kind", "parameter"), DISCRETE)
def test_discrete_samples_follow_the_law(kind: type[DiscreteLaw], parameter: float) -> None:
    instance = kind(parameter)
    values = instance.sample(400_000, rng=20)
    assert values.dtype == np.int64
    assert chi_square(values, instance) > FALSE_ALARM


@every("sigma2", [0.5, 0.99, 1.0, 2.0])
def test_every_small_value_has_its_probability(sigma2: float) -> None:
    instance = DiscreteGaussian(sigma2)
    values = instance.sample(2_000_000, rng=21)
    k = np.arange(-3, 4)
    observed = np.array([np.count_nonzero(values == i) for i in k])
    expected = values.size * instance.pmf(k)
    p_values = [
        stats.binomtest(int(o), values.size, e / values.size).pvalue for o, e in zip(observed, expected, strict=True)
    ]
    assert min(p_values) > FALSE_ALARM / k.size


@pytest.mark.parametrize(("kind", "reference"), [(Gaussian, stats.norm), (Laplace, stats.laplace)])
def test_continuous_samples_follow_the_law(kind: type[Law], reference: stats.rv_continuous) -> None:
    values = kind(4.0).sample(200_000, rng=22)
    scale = 2.0 if kind is Gaussian else 4.0
    assert values.dtype == np.float64
    assert stats.kstest(values, reference(scale=scale).cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", ["discrete_gaussian", "discrete_laplace"])
def test_draw_gives_every_cell_its_own_law(name: str) -> None:
    variance = np.array([[0.05, 0.5, 1.0], [1.001, 30.0, 4e6]])
    noise = draw(name, variance, rng=23, columns=100_000)
    assert noise.shape == (2, 3, 100_000)
    for cell in np.ndindex(variance.shape):
        kind = law(name, float(variance[cell]))
        assert isinstance(kind, DiscreteLaw)
        assert chi_square(noise[cell], kind) > FALSE_ALARM / variance.size


@every("name", list(LAWS))
def test_draw_scales_with_distinct_variances(name: str) -> None:
    variance = np.geomspace(0.5, 1e8, 200_000)
    noise = draw(name, variance, rng=24)
    # The mean has standard error sqrt((kurtosis - 1) / n), and no law here has a kurtosis over 7.
    assert noise.shape == variance.shape
    assert abs(np.mean(noise**2 / variance) - 1) < stats.norm.isf(FALSE_ALARM / 2) * math.sqrt(6 / variance.size)
    if LAWS[name].discrete:
        np.testing.assert_array_equal(noise, np.round(noise))


@every("name", list(LAWS))
def test_cells_and_columns_are_uncorrelated(name: str) -> None:
    noise = draw(name, [0.7, 0.7, 40.0], rng=25, columns=200_000)
    later = np.roll(noise, 1, axis=1)
    correlation = np.corrcoef(np.concatenate([noise, later]))[np.triu_indices(6, 1)]
    assert np.max(np.abs(correlation)) < stats.norm.isf(FALSE_ALARM / 30) / math.sqrt(noise.shape[1])


@every("name", list(LAWS))
def test_variance_zero_gives_zero(name: str) -> None:
    noise = draw(name, [0.0, 5.0, 0.0], rng=26, columns=50)
    assert np.all(noise[[0, 2]] == 0)
    assert np.any(noise[1] != 0)
    assert np.all(draw(name, np.zeros((2, 2)), rng=26) == 0)


@every("name", list(LAWS))
def test_shapes(name: str) -> None:
    assert draw(name, 3.0, rng=27).shape == ()
    assert draw(name, 3.0, rng=27, columns=4).shape == (4,)
    assert draw(name, np.ones((2, 0)), rng=27).shape == (2, 0)
    assert draw(name, np.ones(3), rng=27, columns=0).shape == (3, 0)
    assert law(name, 3.0).sample(0, rng=27).shape == (0,)


@every("name", list(LAWS))
def test_draws_are_reproduced_by_rng(name: str) -> None:
    variance = [0.2, 3.0, 1e4]
    np.testing.assert_array_equal(draw(name, variance, 28, 100), draw(name, variance, np.random.default_rng(28), 100))
    np.testing.assert_array_equal(law(name, 9.0).sample(70_000, 28), law(name, 9.0).sample(70_000, 28))
    rng = np.random.default_rng(28)
    assert np.any(draw(name, variance, rng, 100) != draw(name, variance, rng, 100))


def test_numpys_global_state_is_untouched() -> None:
    before = repr(np.random.get_state())  # noqa: NPY002
    draw("discrete_gaussian", [3.0], columns=10)
    assert repr(np.random.get_state()) == before  # noqa: NPY002


@every(("kind", "parameter"), CASES)
def test_release_grade_draws_follow_the_law(kind: type[Law], parameter: float) -> None:
    pytest.importorskip("opendp")
    instance = kind(parameter)
    values = instance.release_sample(4000)
    if isinstance(instance, DiscreteLaw):
        assert values.dtype == np.int64
        assert chi_square(values, instance) > FALSE_ALARM
    else:
        cdf = stats.norm(scale=math.sqrt(parameter)).cdf if kind is Gaussian else stats.laplace(scale=parameter).cdf
        assert stats.kstest(values, cdf).pvalue > FALSE_ALARM


def test_release_grade_leaves_opendp_as_it_was() -> None:
    features = pytest.importorskip("opendp.mod").GLOBAL_FEATURES
    before = set(features)
    DiscreteGaussian(4.0).release_sample(1)
    assert features == before


def test_release_grade_without_opendp_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"needs OpenDP: pip install 'blue-solvers\[release\]'"):
        DiscreteGaussian(4.0).release_sample(3)


@pytest.mark.parametrize("found", ["0.14.1", "0.14.2a1", "0.14.2.dev3", "0.14.2rc1", "0.9.3", "0.14", "unknown"])
def test_release_grade_with_a_biased_opendp_is_refused(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    pytest.importorskip("opendp")
    monkeypatch.setattr(opendp_samplers, "version", lambda name: found)
    for kind, parameter in ((DiscreteGaussian, 4.0), (DiscreteLaplace, 2.0), (Gaussian, 1.0), (Laplace, 1.0)):
        with pytest.raises(ImportError, match=rf"needs OpenDP 0\.14\.2 or later.*biased: {found} is installed"):
            kind(parameter).release_sample(3)


@pytest.mark.parametrize("found", ["0.14.2", "0.14.2.post1", "0.14.3", "0.15.0a1", "0.16.0", "1.0.0", "0.14.10"])
def test_release_grade_with_an_unbiased_opendp_is_drawn(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    pytest.importorskip("opendp")
    monkeypatch.setattr(opendp_samplers, "version", lambda name: found)
    assert DiscreteGaussian(4.0).release_sample(3).shape == (3,)


def test_the_extra_asks_for_an_unbiased_opendp() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "opendp>=0.14.2" in extras["optional-dependencies"]["release"]


@every("name", list(LAWS))
@every("bad", [-1.0, math.nan, math.inf])
def test_bad_variances_are_refused(name: str, bad: float) -> None:
    refuses(name, law, name, bad)
    refuses(rf"{name}: variance of cell \(1, 0\) is {bad}", draw, name, [[1.0, 2.0], [bad, 0.0]])
    refuses(name, LAWS[name], bad)


def test_other_errors() -> None:
    refuses("law 'normal' is unknown: use one of 'gaussian'", law, "normal", 1.0)
    refuses("positive", law, "gaussian", 0.0)
    refuses("whole numbers so large", draw, "discrete_laplace", 1e40)
    assert math.isfinite(draw("laplace", 1e40))


def test_the_laws_are_found_by_the_name_that_their_module_had() -> None:
    assert discrete.__all__ == laws.__all__
    assert all(getattr(discrete, name) is getattr(laws, name) for name in laws.__all__)


@every("name", list(LAWS))
def test_noise_too_small_for_floats_is_never_taken_for_none(name: str) -> None:
    """A variance of 0 says that figures are exact: neither a scale, a law of a table nor a budget gives one."""
    refuses(r"too small for a float|variance of scale|square of scale", variance_of, name, 1e-200)
    with pytest.raises(ValueError, match=r"too small for a float|would be 0|is 1e-200, below"):
        Problem(Schema({"a": 2}), {"a": LAWS[name](1e-200)})


def test_a_budget_that_leaves_no_noise_is_refused() -> None:
    assert noise_variances(Budget({"State": {"total": 100}}), "discrete_gaussian")["State"]["total"] > 0
    with pytest.raises(ValueError, match=r"variance of 'total' at 'State' is 0\.0"):
        noise_variances(Budget({"State": {"total": 100_000}}), "discrete_gaussian")
