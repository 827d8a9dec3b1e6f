"""The fit of several sources: every measurement of theirs stands for itself, as in dense least squares of all rows."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from blue_solvers import estimate, fit_test
from blue_solvers.cli import main
from constraint_builders import Problem, Schema, joint, problem_of_sources
from constraint_builders.files import read_long_table
from noise_mechanisms.laws import draw
from tests.helpers.effort import lengths
from tests.helpers.surveys import COUNTS, SCHEMA, SPINE, Surveys, invented_surveys


def residuals_of(surveys: Surveys) -> tuple[np.ndarray, np.ndarray, int]:
    """What least squares leaves of every measurement, its variance, and degrees of freedom; NaN where not measured."""
    M, y, v = surveys.M, surveys.y, surveys.v
    noisy, known = np.isfinite(v) & (v > 0), v == 0
    if known.any():
        particular = np.linalg.lstsq(M[known], y[known], rcond=None)[0]
        _, s, V = np.linalg.svd(M[known])
        free = V[np.count_nonzero(s > 1e-9) :].T
    else:
        particular, free = np.zeros(M.shape[1]), np.eye(M.shape[1])
    W = M[noisy] @ free / np.sqrt(v[noisy])[:, None]
    z = (y[noisy] - M[noisy] @ particular) / np.sqrt(v[noisy])
    H = W @ np.linalg.pinv(W)
    left, share = np.full(y.size, np.nan), np.full(y.size, np.nan)
    left[noisy], share[noisy] = z - H @ z, 1 - np.diag(H)
    return left, share, int(noisy.sum() - np.linalg.matrix_rank(W))


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_it_is_that_of_all_measurements_stacked(seed: int, geography: bool, exact: bool) -> None:
    surveys = invented_surveys(seed, geography, exact)
    problem, y = problem_of_sources(SCHEMA, surveys.sources, spine=SPINE if geography else None)
    fit = estimate(problem, y).goodness_of_fit(draws=0)
    left, share, degrees = residuals_of(surveys)
    assert fit.degrees_of_freedom == degrees
    assert fit.statistic == pytest.approx(np.nansum(left**2), rel=1e-8, abs=1e-9)
    law = stats.chi2(degrees)
    assert fit.p_value == pytest.approx(2 * min(law.sf(fit.statistic), law.cdf(fit.statistic)), rel=1e-6)
    assert fit.sources.cell.size == np.isfinite(surveys.v).sum()
    places = {"": np.ones((1, 1)), "S": np.ones((1, 2)), "C": np.eye(2)}
    found = {}
    for i in range(fit.residuals.size):
        name, cell = problem.observed.locate(fit.cell(i))
        level, table = name if geography else ("", name)
        M = np.kron(places[level], COUNTS[table])
        row = M[np.ravel_multi_index(cell, problem.observed.shape(name)) if cell else 0]
        key = fit.source(i), (level, "a * b" if table == "b * a" else table), row.tobytes()
        found[key] = fit.residuals[i], fit.values[i], fit.variances[i]
    for key, e, r, value, variance in zip(surveys.keys, left, share, surveys.y, surveys.v, strict=True):
        if np.isinf(variance):
            assert key not in found
            continue
        assert found[key][1:] == (value, variance)
        if np.isnan(e) or r < 1e-9:
            assert np.isnan(found[key][0])
        else:
            assert found[key][0] == pytest.approx(e / np.sqrt(r), rel=1e-6, abs=1e-7)
    for number, own in enumerate(fit.by_source.values(), 1):
        mine = np.array([key[0] == str(number) for key in surveys.keys])
        assert own.statistic == pytest.approx(np.nansum(left[mine] ** 2), rel=1e-7, abs=1e-9)
        assert own.expectation == pytest.approx(np.nansum(share[mine]), rel=1e-7, abs=1e-9)
    assert sum(own.statistic for own in fit.by_table.values()) == pytest.approx(fit.statistic)
    assert sum(own.expectation for own in fit.by_table.values()) == pytest.approx(degrees)


@given(st.integers(0, 2**32 - 1))
def test_what_each_source_measured_stands_beside_the_estimates(seed: int) -> None:
    surveys = invented_surveys(seed, geography=False, exact=True)
    problem, y = problem_of_sources(SCHEMA, surveys.sources, ["a * b", "total"], undetermined="nan")
    frame = estimate(problem, y).to_frame()
    left, share, _ = residuals_of(surveys)
    rows = {row.tobytes(): i for i, row in enumerate([*COUNTS["a * b"], *COUNTS["total"]])}
    said = 0
    for (source, _, row), value, variance, e, r in zip(surveys.keys, surveys.y, surveys.v, left, share, strict=True):
        if row not in rows or np.isinf(variance):
            continue
        at, said = rows[row], said + 1
        assert frame[f"value ({source})"][at] == value
        assert frame[f"variance ({source})"][at] == variance
        z = frame[f"adjustment_z ({source})"][at]
        if np.isnan(e) or r < 1e-9:
            assert z is None
        else:
            assert z == pytest.approx(-e / np.sqrt(r), rel=1e-6, abs=1e-7)
    assert said
    assert sum(frame[name].is_not_null().sum() for name in frame.columns if name.startswith("value")) == said


def test_sources_that_contradict_each_other_are_called_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = "source,sex,value,std_error\nA,f,100,1\nA,m,100,1\nA,total,200,1\nB,f,200,1\nB,m,0,1\n"
    (tmp_path / "in.csv").write_text(text)
    assert main(["estimate", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    said = capsys.readouterr().out
    assert "CONTRADICTORY" in said
    assert "chi-square 10,000 on 3 degrees" in said
    assert "cell (sex=f), source 'A'" in said
    assert "worst source 'B'" in said
    written = pl.read_csv(tmp_path / "out.csv")
    rows = written.select("sex", "value (A)", "value (B)").rows()
    assert sorted(rows, key=str) == [("*", 200, None), ("f", 100, 200), ("m", 100, 0)]
    assert "value" not in written.columns
    written.drop("variance (B)").write_csv(tmp_path / "cut.csv")  # of B it is not said how precise it is
    assert main(["report", str(tmp_path / "cut.csv"), "--out", str(tmp_path / "page.html")]) == 0


def test_other_values_than_those_of_the_sources_are_a_measurement_of_their_own() -> None:
    surveys = invented_surveys(3, geography=False)
    problem, y = problem_of_sources(SCHEMA, surveys.sources)
    assert fit_test(problem, y).sources is not None
    for other, values in ((problem, y + 1.0), (problem.with_variances(2 * problem.variances), y)):
        fit = fit_test(other, values)
        assert fit.sources is None
        assert fit.residuals.shape == y.shape


def test_sources_within_a_product_are_told_apart_in_a_joint_estimate() -> None:
    """The second product measured alone what it did: it is in the fit as it is."""
    schema = Schema({"sex": ["f", "m"]})
    one, y_1 = problem_of_sources(schema, [({"sex": 1.0}, {"sex": [9.0, 12.0]}), ({"sex": 2.0}, {"sex": [4.0, 15.0]})])
    two = Problem(schema, {"total": 4.0, "sex": 3.0})
    both, y = joint(one, two, names=["one", "two"]), np.concatenate([y_1, [25.0, 11.0, 13.0]])
    fit = estimate(both, y).goodness_of_fit()
    M = np.vstack([np.eye(2), np.eye(2), np.ones((1, 2)), np.eye(2)])
    values, v = np.array([9, 12, 4, 15, 25, 11, 13.0]), np.array([1, 1, 2, 2, 4, 3, 3.0])
    W = M / np.sqrt(v)[:, None]
    left = values / np.sqrt(v) - W @ np.linalg.pinv(W) @ (values / np.sqrt(v))
    assert fit.degrees_of_freedom == 5
    assert fit.statistic == pytest.approx(left @ left)
    assert set(fit.by_source) == {"1 (one)", "2 (one)", ""}
    assert both.understood.sources == ("one", "two")


@lengths("draws", 20, 40)
def test_noise_of_other_laws_is_drawn_for_every_source(draws: int) -> None:
    schema, rng = Schema({"a": 4}), np.random.default_rng(7)
    p_values = []
    for _ in range(draws):
        said = [np.array([50.0, 30, 20, 9]) + rng.laplace(0, np.sqrt(v / 2), 4) for v in (1.0, 4.0, 9.0)]
        sources = [({"a": v}, {"a": own}) for v, own in zip((1.0, 4.0, 9.0), said, strict=True)]
        problem, y = problem_of_sources(schema, sources)
        p_values.append(fit_test(problem.replace(noise="laplace"), y, rng=rng).p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


def test_sources_of_a_file_that_share_no_cell_need_no_columns_of_their_own() -> None:
    frame = pl.DataFrame({"source": ["A", "A", "B"], "sex": ["f", "m", "total"], "value": [4.0, 5.0, 10.0]})
    table = pl.Series("table", ["sex", "sex", "total"])
    problem, y = read_long_table(frame.with_columns(table, variance=1.0))
    assert problem.sources is None
    assert sorted(problem.understood.sources) == ["A", "B"]
    assert sorted(estimate(problem, y).to_frame()["value"]) == [4.0, 5.0, 10.0]


def test_cells_that_nothing_determines_are_no_measurements() -> None:
    schema = Schema({"a": 2, "b": 2})
    holes = np.array([[1.0, 1.0], [np.inf, np.inf]])
    cells = np.array([[3.0, 4.0], [np.nan, np.nan]])
    sources = [({"a * b": holes}, {"a * b": cells}), ({"a * b": 2 * holes}, {"a * b": cells + 1})]
    problem, y = problem_of_sources(schema, sources, undetermined="nan")
    fit = estimate(problem, y).goodness_of_fit()
    assert fit.residuals.size == 4
    assert fit.degrees_of_freedom == 2
    assert fit.statistic == pytest.approx(2 / 3)


@pytest.mark.parametrize(("law", "off"), [("discrete_laplace", 7.0), ("discrete_gaussian", 4.0)])
def test_tails_are_those_of_what_each_source_measured(law: str, off: float) -> None:
    """Not of whole noise of the variance of their mean, a twelfth, most of which would be 0."""
    rng, truth, found = np.random.default_rng(0), np.array([50.0, 30, 20, 9]), 0
    for _ in range(20):
        said = truth + draw(law, np.full((12, 4), 0.1), rng)
        for wrong in (0.0, off):
            said[3, 1] += wrong
            problem, y = problem_of_sources(Schema({"a": 4}), [({"a": 0.1}, {"a": own}) for own in said])
            fit = estimate(problem.replace(noise=law), y).goodness_of_fit(draws=0)
            assert wrong or fit.parts.fits
            found += not fit.parts.fits
    assert found >= 16
