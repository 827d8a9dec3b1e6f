"""Released counts end to end, through OpenDP as installed: chi-square, moments, tails and log-ratios of every law.

References sum the laws' weights themselves. OpenDP takes no seed: every test's false-alarm rate is 1e-6 in each run.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from constraint_builders import Problem, Schema
from noise_mechanisms import release_counts
from noise_mechanisms.laws import DiscreteGaussian, Gaussian, law, release
from tests.helpers.every import every
from tests.helpers.refused import refuses

pytest.importorskip("opendp", reason="release-grade draws need OpenDP (extra 'release')")

FALSE_ALARM = 1e-6
VARIANCES = [0.04, 0.3, 1.0, 2.5, 40.0, 900.0]
CELLS = 4000  # of each variance
FEWEST = 10.0


def weights_of(name: str, parameter: float, k: np.ndarray) -> np.ndarray:
    return np.exp(-np.square(k) / (2 * parameter) if name == "discrete_gaussian" else -abs(k) / parameter)


def exact_law(name: str, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers and their probabilities, the parameter found by bisection on the variance."""
    k = np.arange(-int(60 * math.sqrt(variance)) - 40, int(60 * math.sqrt(variance)) + 41)
    low, high = 1e-3, 10 * variance + 10
    for _ in range(200):
        middle = (low + high) / 2
        weight = weights_of(name, middle, k)
        low, high = (middle, high) if weight @ np.square(k) < variance * weight.sum() else (low, middle)
    weight = weights_of(name, low, k)
    return k, weight / weight.sum()


@pytest.fixture(scope="module")
def released() -> dict[str, np.ndarray]:
    """Noise of whole releases, (variances, cells): every cell of a table of four variances has its own."""
    found = {}
    for name in ("discrete_gaussian", "discrete_laplace", "gaussian", "laplace"):
        variances = np.repeat(VARIANCES, CELLS).reshape(len(VARIANCES), CELLS)
        problem = Problem(Schema({"a": len(VARIANCES), "b": CELLS}), {"total": 0.0, "detailed": variances}, noise=name)
        truth = np.arange(problem.observed.size) % 1000 * 1.0
        truth[0] = truth[1:].sum()
        table = release_counts(problem, truth)
        assert table[0] == truth[0]  # exact
        found[name] = (table - truth)[1:].reshape(len(VARIANCES), CELLS)
    return found


@pytest.mark.parametrize("place", range(len(VARIANCES)))
@pytest.mark.parametrize("name", ["discrete_gaussian", "discrete_laplace"])
class TestWholeNumbers:
    """Each law at each variance."""

    def test_frequencies(self, released: dict[str, np.ndarray], name: str, place: int) -> None:
        noise, (k, probability) = released[name][place], exact_law(name, VARIANCES[place])
        assert np.array_equal(noise, np.rint(noise))
        cumulative = np.cumsum(probability)
        ends = np.unique(np.searchsorted(cumulative, np.linspace(0, 1, 41)[1:-1]))
        observed = np.bincount(np.searchsorted(k[ends], noise), minlength=ends.size + 1)
        expected = np.diff(np.concatenate([[0.0], cumulative[ends], [1.0]])) * CELLS
        large = expected >= FEWEST
        pair = [np.append(x[large], x[~large].sum()) for x in (observed, expected)]
        pair = [x[: large.sum()] if pair[1][-1] == 0 else x for x in pair]
        assert stats.chisquare(pair[0], pair[1] * pair[0].sum() / pair[1].sum()).pvalue > FALSE_ALARM

    def test_moments(self, released: dict[str, np.ndarray], name: str, place: int) -> None:
        noise, (k, probability) = released[name][place], exact_law(name, VARIANCES[place])
        bound = stats.norm.isf(FALSE_ALARM / 2) * 1.15  # heavier than normal at 4,000 draws of a Laplace law
        for power in (1, 2):
            mean, square = probability @ k**power, probability @ (k.astype(float) ** (2 * power))
            error = math.sqrt((square - mean**2) / CELLS)
            assert (
                abs(np.mean(noise**power) - mean) < bound * error + 3 * abs(k[probability > 0.1 / CELLS]).max() / CELLS
            )

    def test_tails(self, released: dict[str, np.ndarray], name: str, place: int) -> None:
        noise, (k, probability) = released[name][place], exact_law(name, VARIANCES[place])
        for sizes in (1, 2, 3, 4):
            edge = math.ceil(sizes * math.sqrt(VARIANCES[place]))
            for beyond, p in (
                (noise >= edge, probability[k >= edge].sum()),
                (noise <= -edge, probability[k <= -edge].sum()),
            ):
                assert stats.binomtest(int(beyond.sum()), CELLS, float(p)).pvalue > FALSE_ALARM

    def test_log_ratios(self, released: dict[str, np.ndarray], name: str, place: int) -> None:
        """Of neighbours j and j + 1, what a privacy loss is made of: given the two, how often it is the first."""
        noise, (k, probability) = released[name][place], exact_law(name, VARIANCES[place])
        step = max(1, round(math.sqrt(VARIANCES[place]) / 2))
        group = np.floor_divide(noise.astype(int), step)
        chances = {int(j): probability[np.floor_divide(k, step) == j].sum() for j in range(-5, 6)}
        for j in range(-5, 5):
            first, second = np.count_nonzero(group == j), np.count_nonzero(group == j + 1)
            if first + second:
                share = chances[j] / (chances[j] + chances[j + 1])
                assert stats.binomtest(first, first + second, float(share)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("place", range(len(VARIANCES)))
@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_continuous_noise(released: dict[str, np.ndarray], name: str, place: int) -> None:
    scale = math.sqrt(VARIANCES[place])
    reference = stats.norm(scale=scale) if name == "gaussian" else stats.laplace(scale=scale / math.sqrt(2))
    assert stats.kstest(released[name][place], reference.cdf).pvalue > FALSE_ALARM


@every("name", ["discrete_gaussian", "discrete_laplace", "gaussian", "laplace"])
@every("variance", [1e-6, 1e-3, 1e6, 1e12, 1e24])
def test_every_variance_is_drawn(name: str, variance: float) -> None:
    noise = release(name, np.full(400, variance), np.zeros(400))
    assert np.isfinite(noise).all()
    if "discrete" in name and variance < 1:
        assert np.count_nonzero(noise) <= stats.binom.isf(FALSE_ALARM, 400, min(1.0, variance))
    else:  # the kurtosis of a Laplace law is 6: 400 squares have a relative deviation of 0.11
        assert 0.35 < np.mean(np.square(noise)) / variance < 2.2


def test_neighbouring_cells_are_independent(released: dict[str, np.ndarray]) -> None:
    for noise in released.values():
        for one in noise:
            correlation = np.corrcoef(one[:-1], one[1:])[0, 1]
            assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 48) / math.sqrt(CELLS) + 0.02


def test_no_two_releases_agree_and_what_is_not_measured_stays_unknown() -> None:
    problem = Problem(
        Schema({"a": 3, "b": 40}), {"a": [0.0, 4.0, np.inf], "detailed": 100.0}, noise="discrete_gaussian"
    )
    truth = problem.marginal_matrix() @ np.arange(120.0)
    truth[2] = np.nan
    first, second = release_counts(problem, truth), release_counts(problem, truth)
    assert first[0] == truth[0]
    assert np.isnan(first[2])
    assert np.count_nonzero(first[3:] == second[3:]) < 30


def test_large_counts_keep_every_unit() -> None:
    count = 2**60 + 1
    noise = DiscreteGaussian(4.0).release(np.full(300, count, dtype=np.int64)) - count
    assert abs(noise).max() < 30
    assert (noise % 2 == 1).any()
    refuses(r"above 2\^53 are not exact in float64", release, "discrete_gaussian", [4.0, 4.0], [1, count])
    assert (noise % 2 == 0).any()


def test_what_cannot_be_released_is_refused_by_name() -> None:
    schema = Schema({"a": 2})
    with pytest.raises(ValueError, match="the problem's noise is correlated"):
        release_counts(Problem(schema, {"a": None}, covariance=np.array([[2.0, 1.0], [1.0, 2.0]])), [1, 2])
    with pytest.raises(ValueError, match=r"is 1.5: noise of the law 'discrete_laplace' is added to whole numbers"):
        release_counts(Problem(schema, {"a": 1.0}, noise="discrete_laplace"), [1, 1.5])
    with pytest.raises(ValueError, match=r"is nan: noise of the law 'gaussian' is added to finite numbers"):
        release_counts(Problem(schema, {"a": 1.0}), [1, np.nan])
    refuses(r"truth must have shape \(2,\)", release_counts, Problem(schema, {"a": 1.0}), [1, 2, 3])
    with pytest.raises(ValueError, match="truth does not add up by 1 between 'total' and 'a'"):
        release_counts(Problem(schema, {"total": 1.0, "a": 1.0}), [4, 1, 2])
    refuses(r"values must have the shape \(2,\)", release, "gaussian", [1.0, 2.0], [1.0])
    refuses("variance of cell", release, "discrete_gaussian", [1.0, -2.0], [1.0, 1.0])
    refuses(r"values hold 0\.5", law("discrete_laplace", 2.0).release, [0.5])
    refuses("values hold inf", Gaussian(Fraction(1, 2)).release, [np.inf])
    refuses("released as a vector", Gaussian(1.0).release, [[1.0]])
