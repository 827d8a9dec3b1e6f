"""The fit of a spine by pieces of tables, against all cells at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.results.proof import StoredProof
from blue_solvers.verification import FitOfParts, fit_of_geography, fit_of_parts
from blue_solvers.verification.fit_of_parts import Verdict
from blue_solvers.verification.fitted_lots import GeounitFit, Residual, TableFit
from blue_solvers.verification.probabilities import LEAST_CHECKED, log_tail
from constraint_builders import Problem, Schema, Spine
from noise_mechanisms import add_noise
from noise_mechanisms.laws import draw
from noise_mechanisms.laws.named_laws import tails_in, tails_of
from tests.helpers.refused import refuses
from tests.helpers.spines import consistent_measurements, spine_problems


@given(spine_problems(), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_pieces_of_tables_add_up_to_all_cells(problem: Problem, seed: int, piece: int) -> None:
    rng = np.random.default_rng(seed)
    exact = consistent_measurements(problem, seed)
    noise = np.where(
        problem.unmeasured | problem.exact, 0.0, np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    )
    y = np.where(problem.unmeasured, 0.0, exact) + noise * rng.standard_normal(exact.size)
    P = blue(problem.observing())
    x, spread = P @ y, P.variances()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_of_parts, "PIECE", piece)
        found = fit_of_geography(problem, y, x, P.variances_by_table().of)
    noisy = noise > 0
    weight = np.divide(1.0, problem.variances, out=np.zeros_like(y), where=noisy)
    redundancy = np.where(noisy, np.clip(1 - spread * weight, 0, 1), 0.0)
    squares = np.where(noisy, (y - x) ** 2 * weight, 0.0)
    checked = redundancy > LEAST_CHECKED
    assert found.statistic == pytest.approx(squares.sum(), rel=1e-9, abs=1e-12)
    assert found.degrees_of_freedom == round(float(redundancy.sum()))
    assert sum(own.checked for own in found.tables.values()) == checked.sum()
    assert sum(own.noisy for own in found.tables.values()) == noisy.sum()
    assert sum(own for own, _ in found.unchecked.values()) == (noisy & ~checked).sum()
    sizes = np.sort(np.sqrt(squares[checked] / redundancy[checked]))[::-1][: fit_of_parts.KEPT]
    np.testing.assert_allclose([abs(own.residual) for own in found.largest], sizes, rtol=1e-9, atol=1e-12)
    for own in found.largest:
        table = problem.observed.slice((own.geolevel, own.table))
        row = int(problem.spine.rank_in_level[problem.spine.position(own.geolevel, own.geocode)])
        size = next(t.size for t in problem.observed_tables if t.name == own.table)
        position = table.start + row * size + own.cell
        assert own.value == y[position]
        assert abs(own.residual) == pytest.approx(np.sqrt(squares[position] / redundancy[position]))
        assert np.sign(own.residual) == np.sign(y[position] - x[position])


def test_many_small_tables_of_right_noise_fit() -> None:
    """The squares of few residuals have longer tails than the normal law."""
    rng, share, wrong = np.random.default_rng(0), 0.8, 0
    for _ in range(1_000):
        tables = {("US", str(i)): TableFit(share * rng.chisquare(1), share, 1, 1) for i in range(100)}
        wrong += not FitOfParts(tables).fits
    assert wrong <= 3  # one in ten thousand, twice
    assert not FitOfParts({("US", str(i)): TableFit(40.0 if i == 7 else 0.8, share, 1, 1) for i in range(100)}).fits


@pytest.mark.parametrize("variance", [1.0, 25.0])
def test_whole_noise_that_happens_to_cancel_fits(variance: float) -> None:
    """A total that is the sum of its parts, as a tenth of right data say it; many cells that leave nothing do not."""
    spine = Spine([-1, 0, 0, 0], ["State", "County", "County", "County"])
    tables = {level: {"total": variance} for level in spine.levels}
    problem = Problem(Schema({"a": 1}), tables, spine=spine, noise="discrete_gaussian")
    P, y = blue(problem), np.array([60.0, 10.0, 20.0, 30.0])
    found = fit_of_geography(problem, y, P @ y, P.variances_by_table().of, tails_in(problem))
    assert found.statistic < 1e-20
    assert found.fits
    assert not (found + FitOfParts({("County", "total"): TableFit(60.0 * 0.2, 60.0, 60, 60)})).fits
    assert not FitOfParts({("US", "total"): TableFit(0.0, 30.0, 30, 30)}).fits


TRACTS = 1_000


def test_laplace_noise_of_many_cells_fits_and_planted_errors_do_not() -> None:
    """Ages are known far better by their cells, so that residuals have the tail of one noise."""
    spine = Spine([-1, *[0] * TRACTS], ["State", *["Tract"] * TRACTS])
    tables = {level: {"age": 100.0, "sex * age": 1.0} for level in spine.levels}
    for law, off in (("laplace", 60), ("discrete_laplace", 60), ("discrete_gaussian", 20)):
        problem = Problem(Schema({"sex": 2, "age": 5}), tables, spine=spine, noise=law)
        P, tails = blue(problem), tails_in(problem)
        spread, ages = P.variances_by_table().of, problem.observed.slice(("Tract", "age"))
        for seed in range(10):
            y = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
            half, twice, one = y.copy(), y.copy(), y.copy()
            half[ages] /= 2
            twice[ages] *= np.sqrt(2)
            one[ages.start + 7] += 10 * off
            for own, is_right in ((y, True), (half, False), (twice, False), (np.sqrt(2) * y, False), (one, False)):
                fit = fit_of_geography(problem, own, P @ own, spread, tails)
                assert fit.fits == is_right, (law, seed)
            assert (fit.largest[0].geocode, fit.largest[0].cell) == (problem.spine.geocodes[2], 2)


@pytest.mark.parametrize(("degrees", "draws"), [(1, 200_000), (5, 200_000), (60, 200_000), (200, 50_000)])
@pytest.mark.parametrize("law", ["laplace", "discrete_laplace", "discrete_gaussian"])
def test_probabilities_of_squares_are_not_too_small(law: str, degrees: int, draws: int) -> None:
    """Whatever their number and the variance of whole noise: little more than one in ten thousand, twice."""
    for variance in (0.25, 4.0):
        squares = np.zeros(draws)
        for i in range(degrees):
            squares += draw(law, np.full(draws, variance), i) ** 2 / variance
        tails = tails_of(law, [np.array([variance])])
        by_steps = degrees * tails.step**2 / (12 * variance)
        far = 5 + draws // 2_500  # of whole Gaussian noise of variance .25 three in ten thousand are too close
        for own in np.sort(squares)[[far, -far]].tolist():
            lot = TableFit(own, float(degrees), degrees, degrees, degrees * tails.excess[0], 0.0, by_steps)
            assert FitOfParts({("US", "a"): lot}).fits


def test_stored_fits_that_say_no_kurtosis_are_of_gaussian_noise() -> None:
    fit = FitOfParts({("US", "a"): TableFit(170.0, 100.0, 100, 100, 300.0)})
    assert fit.fits
    assert fit.tables["US", "a"].z == pytest.approx(70 / np.sqrt(500))
    said = StoredProof(fit=fit).to_json()
    assert StoredProof.from_json(said).fit == fit
    said["fit"]["tables"] = [own[:6] for own in said["fit"]["tables"]]
    former = StoredProof.from_json(said).fit
    assert former.tables["US", "a"].excess == 0
    assert not former.fits
    said["fit"]["excess"] = 3.0  # of all tables
    assert StoredProof.from_json(said).fit == fit


def test_residuals_of_nought_are_as_likely_as_any() -> None:
    fit = FitOfParts({("US", "total"): TableFit(0.0, 1.0, 1, 1)}, [Residual("US", "", "total", 0, 9.0, 9.0, 0.0)])
    assert fit.probability == 1
    assert FitOfParts.from_json(fit.to_json()) == fit


def test_parts_have_the_face_of_a_whole_fit() -> None:
    """The property was a method, which for one release still answers."""
    fit = FitOfParts({("US", "total"): TableFit(2.0, 1.0, 1, 1), ("US", "sex"): TableFit(3.0, 2.0, 2, 2)})
    assert fit.by_table["US", "sex"].expectation == 2
    assert fit.by_geolevel == {"US": TableFit(5.0, 3.0, 3, 3)}
    with pytest.warns(DeprecationWarning, match="property"):
        assert fit.by_geolevel() == fit.by_geolevel


@pytest.mark.parametrize("excess", [1e300, np.nan, -2.5, np.inf])
@pytest.mark.parametrize("where", ["table", "geounit", "largest"])
def test_stored_kurtoses_that_no_noise_has_are_refused(excess: float, where: str) -> None:
    """All would fit."""
    residual, geounit = Residual("US", "", "a", 0, 9.0, 1.0, 2.0), GeounitFit(8.0, 4.0, "US", "")
    said = StoredProof(fit=FitOfParts({("US", "a"): TableFit(8.0, 4.0, 4, 4, 12.0)}, [residual], geounit)).to_json()
    assert StoredProof.from_json(said).fit.to_json() == said["fit"]
    if where == "table":
        said["fit"]["tables"][0][6] = excess
    elif where == "geounit":
        said["fit"]["geounit"]["heavy"] = excess
    else:
        said["fit"]["largest"][0]["excess"] = excess
    refuses("its proof is of another version of this package", StoredProof.from_json, said)


@pytest.mark.parametrize("law", ["gaussian", "laplace", "discrete_laplace", "discrete_gaussian"])
def test_a_table_of_hardly_any_noise_hides_no_errors_in_others(law: str) -> None:
    """Of whole numbers of variance .001 nearly all are 0: its kurtosis is no reason for another table to be far off."""
    spine = Spine([-1, *[0] * 200], ["State", *["Tract"] * 200])
    tables = {"State": {"total": 100.0, "age": 0.001}, "Tract": {"total": 100.0, "age": 100.0}}
    problem = Problem(Schema({"age": 5}), tables, spine=spine, noise=law)
    P, totals = blue(problem), problem.observed.slice(("Tract", "total"))
    for seed in range(10):
        y = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
        many, one = y.copy(), y.copy()
        many[totals] *= 4
        one[totals.start + 7] += 600
        for own, word in ((y, Verdict.FITS), (many, Verdict.CONTRADICTORY), (one, Verdict.CONTRADICTORY)):
            est = P.estimate(own, certify=False)
            fit = fit_of_geography(problem, own, est.values, P.variances_by_table().of, tails_in(problem))
            in_memory = est.goodness_of_fit(draws=0)
            assert fit.verdict == in_memory.parts.verdict == word, seed
            assert StoredProof.from_json(StoredProof(fit=fit).to_json()).fit.verdict == word
            assert fit.p_value == pytest.approx(in_memory.parts.p_value, rel=1e-6, abs=1e-300)
        assert fit.largest[0].geocode == problem.spine.geocodes[8]
        assert in_memory.outliers(1)[0].cell[0] == 7


@pytest.mark.parametrize("variance", [1e-5, 1e-7, 1e-9])
def test_tables_that_others_hardly_check_fit(variance: float) -> None:
    """Of a hundred-thousandth of a degree of freedom a chi-square is nearly always less than what is expected."""
    spine = Spine([-1, *[0] * 200], ["State", *["Tract"] * 200])
    tables = {"State": {"total": 100.0, "age": variance}, "Tract": {"total": 100.0, "age": 100.0}}
    problem = Problem(Schema({"age": 5}), tables, spine=spine)
    P = blue(problem)
    for seed in range(10):
        y = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
        fit = fit_of_geography(problem, y, P @ y, P.variances_by_table().of)
        assert 0 < fit.tables["State", "detailed"].expectation < 1e-4
        assert fit.fits


@pytest.mark.parametrize(("variance", "off"), [(0.01, 6.0), (0.05, 8.0), (0.1, 10.0)])
def test_errors_in_whole_noise_of_small_variance_are_found(variance: float, off: float) -> None:
    """By its kurtosis alone, one by the variance, such noise would have been as large; in memory and stored."""
    spine = Spine([-1, *[0] * 3], ["State", *["County"] * 3])
    tables = {level: {"total": variance, "a": 2 * variance} for level in spine.levels}
    problem = Problem(Schema({"a": 3}), tables, spine=spine, noise="discrete_gaussian")
    P, tails = blue(problem), tails_in(problem)
    for seed in range(30):
        right = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
        wrong = right.copy()
        wrong[seed % wrong.size] += off
        for y, word in ((right, Verdict.FITS), (wrong, Verdict.CONTRADICTORY)):
            est = P.estimate(y, certify=False)
            fit = fit_of_geography(problem, y, est.values, P.variances_by_table().of, tails)
            in_memory = est.goodness_of_fit(draws=0)
            assert fit.verdict == in_memory.parts.verdict == word, seed
            assert in_memory.outliers(1)[0].probability == pytest.approx(fit.probability, rel=1e-6)
            said = StoredProof(fit=fit).to_json()
            assert StoredProof.from_json(said).fit == fit
    said["fit"]["tables"] = [own[:9] for own in said["fit"]["tables"]]  # as they were stored before
    assert StoredProof.from_json(said).fit.probability > fit.probability


@pytest.mark.parametrize(("law", "variance", "off"), [("laplace", 1.0, 12.0), ("discrete_laplace", 0.1, 5.0)])
@pytest.mark.parametrize("tables", [("total", "s"), ("s", "t", "detailed")])
def test_errors_beside_few_degrees_are_found(law: str, variance: float, off: float, tables: tuple[str, ...]) -> None:
    """No residual rests on one noise: three of the same variance have a third of its kurtosis."""
    schema = Schema({"s": 2, "t": 2} if "t" in tables else {"s": 2})
    problem = Problem(schema, dict.fromkeys(tables, variance), noise=law)
    P, found = blue(problem), 0
    for seed in range(200):
        y = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
        assert P.estimate(y, certify=False).goodness_of_fit(draws=0).parts.fits, seed
        if seed < 40:
            y[seed % y.size] += off
            found += P.estimate(y, certify=False).goodness_of_fit(draws=0).parts.verdict == Verdict.CONTRADICTORY
    assert found >= 30


def test_tails_of_laplace_noise_and_its_sums_are_never_too_small() -> None:
    """Against closed forms of one and of three; of whole numbers, of a variance of 10, hardly."""
    x = np.linspace(6, 40, 60)
    one, three = np.exp(-x) / 2, np.exp(-x) * (x**2 + 5 * x + 8) / 16
    a = 1 + 0.1 - np.sqrt(0.1**2 + 0.2)  # cosh of its logarithm is 1 + 1 / 10
    k = np.arange(12.0, 80)
    for size, excess, exact, least in (
        (x / np.sqrt(2), 3.0, one, 1.0),
        (x / np.sqrt(6), 1.0, three, 1.0),
        (k / np.sqrt(10), 3.1, a**k / (1 + a), 0.9),
    ):
        found = np.exp(log_tail(size, excess))
        assert (found >= least * exact).all()
        assert (found <= 1.4 * exact).all()
    assert (log_tail([1e200, np.inf], 3.0) < -1e100).all()  # as stored fits may say


def test_the_worst_table_is_the_least_probable() -> None:
    """One degree is off by more standard deviations than a hundred in as many right data."""
    fit = FitOfParts({("US", "total"): TableFit(12.0, 1.0, 1, 1), ("US", "age"): TableFit(170.0, 100.0, 100, 100)})
    assert fit.tables["US", "total"].z > fit.tables["US", "age"].z
    assert fit.worst_table == (("US", "age"), fit.tables["US", "age"])


def test_no_residual_of_any_part_has_a_larger_weight_than_the_largest_redundancy() -> None:
    small, large = (TableFit(8.0, 1.0, 3, 3, 3.0, most=most) for most in (0.25, 0.75))
    one, two = FitOfParts({("US", "a"): small}), FitOfParts({("US", "a"): large, ("US", "b"): small})
    for fit in (one + two, two + one, FitOfParts() + one + two):
        assert fit.total.most == 0.75
    assert one.probability_of(6.0, 3.0) < two.probability_of(6.0, 3.0) < FitOfParts().probability_of(6.0, 3.0)
