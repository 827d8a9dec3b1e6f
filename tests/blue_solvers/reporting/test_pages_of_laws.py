"""Pages of tables that were rounded, in areas that cross: the law, the fit, what is refused."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import Estimate, estimate, read_tables
from blue_solvers.cli import main
from blue_solvers.commands.fit_line import fit_report
from blue_solvers.goodness import Verdict, explained
from blue_solvers.reporting.of_tables import page_of_measurements
from blue_solvers.verification import Fit
from constraint_builders import Problem, Schema
from constraint_builders.description.noise import NoiseLaw
from noise_mechanisms import add_noise
from noise_mechanisms.laws import CellKey, RandomRounding, Rounding
from tests.helpers.refused_commands import refusal

LAW = RandomRounding(3)
FEW_DEGREES = 50
AREAS = pl.DataFrame({"shop": ["a", "b", "c", "d"], "Region": ["N", "N", "S", "S"], "Chain": ["x", "y", "x", "y"]})


def shown_fit(est: Estimate) -> Fit:
    """The fit that commands and pages show."""
    return est.goodness_of_fit(draws=0)


def verdict(fit: Fit) -> Verdict:
    """What it comes to."""
    return fit.parts.verdict


def _files(folder: Path, figures: dict[str, int]) -> tuple[str, list[str]]:
    """A table of shops with a region and a chain each, and the flags that say so."""
    rows = [("shop", own, figures.get(own, 12)) for own in "abcd"]
    rows += [
        (level, own, figures.get(own, 24)) for level, codes in (("Region", "NS"), ("Chain", "xy")) for own in codes
    ]
    frame = pl.DataFrame(rows, ["level", "code", "value"], orient="row")
    frame.with_columns(kind=pl.lit("total")).write_csv(folder / "counts.csv")
    AREAS.write_csv(folder / "areas.csv")
    (folder / "schema.toml").write_text('[variables]\nkind = ["food", "other"]\n')
    flags = ["--areas", str(folder / "areas.csv"), "--rounded", "3", "--schema", str(folder / "schema.toml")]
    return str(folder / "counts.csv"), flags


def test_the_page_says_the_law_and_the_fit(tmp_path: Path) -> None:
    """Of the tables, and of the estimates that were made of them, which hold the figures."""
    counts, flags = _files(tmp_path, {"N": 21, "x": 27})
    out, page = str(tmp_path / "out.csv"), tmp_path / "page.html"
    assert main(["estimate", counts, *flags, "--out", out]) == 0
    for read in (counts, out):
        assert main(["report", read, *flags, "--out", str(page)]) == 0
        text = page.read_text()
        assert "by the law RandomRounding(base=3), of variance 1.333" in text
        assert "(two-sided, the noise taken for Gaussian). The values agree" in text
        assert "2 Chain, 2 Region, 4 shop" in text
    assert "differ from that estimate by at most" in text


def test_what_no_count_leads_to_is_refused_as_by_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts, flags = _files(tmp_path, {"N": 22})
    said = [
        refusal(capsys, command, counts, *flags, "--out", str(tmp_path / f"out.{ending}"))
        for command, ending in (("estimate", "csv"), ("report", "html"))
    ]
    assert said[0] == said[1]
    assert "is 22, which no count is published as by RandomRounding(base=3)" in said[0]


def test_flags_of_noisy_tables_are_refused_beside_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that a file of estimates does not need; of areas without them it is said what to give."""
    counts, flags = _files(tmp_path, {})
    out, page = str(tmp_path / "out.csv"), str(tmp_path / "page.html")
    assert main(["estimate", counts, *flags, "--out", out]) == 0
    refused = refusal(capsys, "report", out, "--columns", "value=note", "--out", page)
    assert "--columns is of noisy tables" in refused
    assert "give --areas if they cross" in refusal(capsys, "report", out, *flags[2:], "--out", page)


def test_figures_that_add_up_are_in_no_doubt_where_they_are_few_or_small_counts() -> None:
    table = pl.DataFrame({"sex": ["total", "f", "m"], "value": [12, 6, 6]})
    fit = shown_fit(estimate(*read_tables(table, noise=LAW)))
    assert fit.degrees_of_freedom <= FEW_DEGREES
    assert fit.p_value < 1e-4
    assert verdict(fit) == Verdict.FITS
    problem = Problem(Schema({"a": 400, "b": 2}), {"a": LAW, "a * b": LAW})
    small = problem.marginal_matrix() @ (np.arange(problem.domain.size) % 9 == 0).astype(float)
    fit = shown_fit(estimate(problem, add_noise(problem, small, 1)))
    assert fit.p_value < 1e-4
    assert verdict(fit) == Verdict.FITS  # zeros without noise leave as much
    assert "0 is published as it is by RandomRounding(base=3)" in explained(fit)
    added = problem.marginal_matrix() @ (3.0 * (np.arange(problem.domain.size) % 7))
    assert verdict(shown_fit(estimate(problem, added))) == Verdict.TOO_CLOSE  # sums that nobody rounded
    usual = problem.marginal_matrix() @ np.random.default_rng(2).poisson(30, problem.domain.size).astype(float)
    fits = shown_fit(estimate(problem, add_noise(problem, usual, 3)))
    assert explained(fits) == verdict(fits).explained == Verdict.FITS.explained


@pytest.mark.parametrize("law", ["discrete_gaussian", "discrete_laplace", "laplace", "gaussian"])
def test_whole_numbers_that_happen_to_add_up_are_not_too_close(law: str) -> None:
    """A quarter of right data of variance 1 leaves nothing at all; of noise that is real none does."""
    problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0}, noise=law)
    est = estimate(problem, [110.0, 50, 60])
    fit = shown_fit(est)
    whole = "discrete" in law
    assert whole == (est.goodness_of_fit(rng=0).p_value > 0.1)
    assert verdict(fit) == (Verdict.TOO_CLOSE if law == "gaussian" else Verdict.FITS)


def test_few_whole_numbers_of_large_noise_may_be_too_close_or_hold_an_outlier() -> None:
    problem = Problem(Schema({"a": 40, "b": 2}), {"a": 1e4, "a * b": 1e4}, noise="discrete_gaussian")
    y = problem.marginal_matrix() @ np.full(80, 1000.0)
    noise = np.rint(np.random.default_rng(1).normal(0, 100, y.size))
    said = {Verdict.TOO_CLOSE: y, Verdict.FITS: y + noise, Verdict.CONTRADICTORY: y + noise}
    said[Verdict.CONTRADICTORY][7] += 1150
    for word, values in said.items():
        fit = shown_fit(estimate(problem, values))
        assert fit.degrees_of_freedom == 40 <= FEW_DEGREES
        assert verdict(fit) == word
    assert fit.p_value > 1e-4  # all together are not improbable
    assert verdict(shown_fit(estimate(problem, y + np.rint(noise / 10)))) == Verdict.TOO_CLOSE


@pytest.mark.parametrize("law", ["discrete_laplace", RandomRounding(3)])
def test_what_nothing_checks_is_not_tested(law: str | NoiseLaw) -> None:
    variance, noise = (2.0, law) if isinstance(law, str) else (law, "gaussian")
    fit = shown_fit(estimate(Problem(Schema({"a": 3}), {"a": variance}, noise=noise), [3.0, 6.0, 9.0]))
    assert verdict(fit) == Verdict.UNTESTED


def test_few_figures_that_were_rounded_may_agree_more_often_than_drawn_ones() -> None:
    """Residuals of figures that are all whole multiples of 3 are such multiples too."""
    names = ["total", "a", "b", "a * b"]
    problem = Problem(Schema({"a": 6, "b": 3}), dict.fromkeys(names, Rounding(3)))
    for seed in range(12):
        counts = np.random.default_rng(seed).poisson(30, 18).astype(float)
        fit = shown_fit(estimate(problem, add_noise(problem, problem.marginal_matrix() @ counts, seed)))
        assert verdict(fit) == Verdict.FITS


@pytest.mark.parametrize("law", [LAW, Rounding(3)])
def test_few_figures_that_contradict_one_another_are_said_to(law: NoiseLaw, tmp_path: Path) -> None:
    """Which 200 replicates do not tell, of which p is .01 at least."""
    table = pl.DataFrame({"sex": ["total", "f", "m"], "value": [90, 6, 6]})
    fit = shown_fit(estimate(*read_tables(table, noise=law)))
    by_replicates = estimate(*read_tables(table, noise=law)).goodness_of_fit(rng=0)
    assert by_replicates.p_value > 0.001
    assert by_replicates.parts == fit.parts
    assert verdict(fit) == Verdict.CONTRADICTORY
    assert fit.parts.p_value < 1e-4
    assert "does not fit" in str(fit)
    assert f"p = {fit.parts.p_value:.2g}" in str(fit)
    near = shown_fit(estimate(*read_tables(table.with_columns(value=pl.Series([15, 6, 6])), noise=law)))
    assert verdict(near) == Verdict.FITS
    table.write_csv(tmp_path / "table.csv")
    flag = "3" if law == LAW else "nearest:3"
    strict = ["--rounded", flag, "--strict", "--out", str(tmp_path / "out.csv")]
    assert main(["estimate", str(tmp_path / "table.csv"), *strict]) == 3
    table.with_columns(value=pl.Series([0, 0, 0])).write_csv(tmp_path / "table.csv")
    assert main(["estimate", str(tmp_path / "table.csv"), *strict]) == 0  # small counts, and no column to be swapped


@pytest.mark.parametrize("law", [Rounding(10), CellKey([{0: 1.0}, {-1: 0.25, 1: 0.75}, {0: 0.5, 2: 0.5}])])
def test_figures_are_shown_as_they_were_published(law: NoiseLaw, tmp_path: Path) -> None:
    """What the law adds on average is taken off before they are estimated, and is in the figures that are shown."""
    problem = Problem(Schema({"sex": 2, "age": 3}), {"total": law, "sex": law, "sex * age": law})
    y = add_noise(problem, problem.marginal_matrix() @ np.random.default_rng(0).integers(50, 90, 6), 1)
    est, figures = estimate(problem, y), {}
    fit = est.goodness_of_fit(draws=0)
    for position, outlier in zip(fit.furthest(99), fit.outliers(99), strict=True):
        assert outlier.value == y[position]
        rest = problem.variances.copy()
        rest[position] *= 1e9
        others = estimate(problem.with_variances(rest), y).values[position]
        assert outlier.expected == pytest.approx(others + law.mean, rel=1e-5)
        figures[outlier.table, outlier.labels[1:-1]] = y[position]
    page = page_of_measurements(est, "figures", 0.95)
    tables = {own.name: own.frame for section in page.sections for own in section.tables}
    for name in ("worst residuals", "largest adjustments"):
        shown = tables[name].rows_by_key(["table", "cell"], named=True, unique=True)
        assert {key: row["measured"] for key, row in shown.items()} == figures
    moved = tables["largest adjustments"]
    np.testing.assert_allclose(moved["estimate"] - moved["measured"] + law.mean, moved["adjustment"])
    assert any(f"on average, {law.mean:.4g}, is taken off" in own.sentences[-1] for own in page.sections)


@pytest.mark.parametrize("seed", [102, 425, 860, *range(5)])
def test_laplace_noise_of_many_figures_is_judged_by_its_kurtosis(seed: int) -> None:
    """The first three are off as one of ten thousand Gaussian ones is."""
    problem = Problem(Schema({"a": 60, "b": 2}), {"a": 100.0, "a * b": 1.0}, noise="laplace")
    y = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
    for factor, word in ((1.0, Verdict.FITS), (3.0, Verdict.CONTRADICTORY), (0.3, Verdict.TOO_CLOSE)):
        est = estimate(problem, factor * y)
        fit = shown_fit(est)
        assert fit.degrees_of_freedom > FEW_DEGREES
        assert verdict(fit) == word
        assert explained(fit) == word.explained
        page = page_of_measurements(est, "figures", 0.95)
        said = f"p = {fit.parts.p_value:.2g}"
        assert (fit.parts.p_value < 1e-4) == (word != Verdict.FITS)
        assert said in fit_report(est).line
        assert any(f"{said} (two-sided, by the kurtosis of the noise)" in own for own in page.sections[1].sentences)


@pytest.mark.parametrize("seed", range(3))
def test_single_ones_among_many_zeros_are_no_outliers(seed: int) -> None:
    """Small noise of whole numbers is mostly 0, and ten standard deviations otherwise."""
    problem = Problem(Schema({"a": 100, "b": 2}), {"a": 0.01, "a * b": 0.01}, noise="discrete_gaussian")
    noise = add_noise(problem, np.zeros(problem.observed.size), rng=seed)
    assert abs(noise).max() == 1
    assert verdict(shown_fit(estimate(problem, noise))) == Verdict.FITS
    noise[7] = 20.0
    assert verdict(shown_fit(estimate(problem, noise))) == Verdict.CONTRADICTORY


def test_figures_of_which_hardly_any_is_perturbed_are_judged_by_the_kurtosis_of_their_table() -> None:
    """Of 300 figures three are changed, or some more or none."""
    rare = {-1: 0.005, 0: 0.99, 1: 0.005}
    law = CellKey([{0: 1.0}, rare])
    problem = Problem(Schema({"a": 100, "b": 2}), {"a": law, "a * b": law})
    counts = problem.marginal_matrix() @ np.full(200, 30.0)
    for seed in range(10):
        figures = add_noise(problem, counts, seed)
        assert verdict(shown_fit(estimate(problem, figures))) == Verdict.FITS
    assert verdict(shown_fit(estimate(problem, figures + 2.0 * (np.arange(figures.size) % 7 == 0)))) == (
        Verdict.CONTRADICTORY
    )


def test_a_table_that_alone_does_not_fit_is_named() -> None:
    """Its errors are too few for the chi-square of all, and each too small to be an outlier."""
    problem = Problem(Schema({"a": 20, "b": 50, "c": 2}), {"a": 400.0, "b": 1.0, "a * b": 1.0, "detailed": 1.0})
    for seed in range(5):
        y = add_noise(problem, np.zeros(problem.observed.size), seed)
        y[problem.observed.slice("a")] += np.resize([50.0, -50.0], 20)
        fit = shown_fit(est := estimate(problem, y))
        assert min(fit.parts.p_value, fit.outliers(1)[0].probability) > 1e-4
        assert verdict(fit) == Verdict.CONTRADICTORY
        assert "; worst table 'a', z = +" in fit_report(est).doubt + fit_report(est).line


@pytest.mark.parametrize("seed", [370, 625, 659])
def test_figures_that_were_rounded_to_the_nearest_are_never_too_close(seed: int) -> None:
    """Three of 1,200 such tables agree as one of ten thousand with independent noise does."""
    problem = Problem(Schema({"a": 40, "b": 2}), {"a": Rounding(3), "a * b": Rounding(3)})
    counts = np.random.default_rng(seed).poisson(30, 80).astype(float)
    y = add_noise(problem, problem.marginal_matrix() @ counts, seed)
    assert verdict(shown_fit(estimate(problem, y))) == Verdict.FITS


def test_small_counts_that_were_rounded_to_the_nearest_are_named_as_the_cause() -> None:
    """Of counts of mean 1 nearly all are published as 0: sums of cells are far below rounded totals."""
    law = Rounding(5)
    problem = Problem(Schema({"a": 20, "b": 10}), {"a * b": law, "total": law})
    M = problem.marginal_matrix()
    for mean, cause in ((1.0, ", as many small counts do: Rounding(base=5) makes most of them smaller"), (100.0, "")):
        y = law.publish(M @ np.random.default_rng(0).poisson(mean, 200).astype(float))
        y[problem.observed.slice("total")] += 200 * (not cause)
        fit = shown_fit(estimate(problem, y))
        assert verdict(fit) == Verdict.CONTRADICTORY
        assert explained(fit) == Verdict.CONTRADICTORY.explained + cause
