"""Rounding, rows, intervals, reports, and the data sets of the benchmark."""

import importlib

import numpy as np
import pytest

from bench.papers.microdata import SETTINGS, benchmark_problem, puma_datasets, synthetic_datasets
from blue_solvers import blue
from blue_solvers.nonnegative import (
    METHODS,
    controlled_rounding,
    coverage,
    movements,
    nnls,
    ols,
    refine_intervals,
    sequential_fit,
    unit_records,
    weighted_rows,
)
from blue_solvers.nonnegative.price.bounds import PureDP, ZeroConcentratedDP
from constraint_builders import Problem, Schema
from noise_mechanisms import draw_noise
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.places import PUMA
from tests.helpers.refused import refuses

needs_data = pytest.mark.skipif(not PUMA.is_dir(), reason=f"needs the folder {PUMA}")


def cross(rows=5, columns=6):
    schema = Schema({"rows": rows, "columns": columns}, {"rows": {"half": [0] * 2 + [1] * (rows - 2)}})
    return Problem(schema, {"total": 1.0, "rows": 1.0, "columns": 1.0, "detailed": 1.0})


@every("seed", range(5))
@every("keep", [["total"], ["rows", "total"], ["rows", "columns"], ["half", "rows", "columns", "total"]])
def test_controlled_rounding_rounds_everything_that_is_kept(seed, keep):
    problem = cross()
    detail = np.random.default_rng(seed).exponential(2, (5, 6)) * (np.random.default_rng(seed).random((5, 6)) < 0.7)
    rounded = controlled_rounding(problem, detail, keep)
    assert rounded.dtype == np.int64
    assert (np.floor(detail) <= rounded).all()
    assert (rounded <= np.ceil(detail)).all()
    sums = {"rows": (1,), "columns": (0,), "total": (0, 1)}
    for name in keep:
        before, after = (
            [array[:2].sum(), array[2:].sum()] if name == "half" else array.sum(axis=sums[name])
            for array in (detail, rounded)
        )
        assert (np.floor(np.array(before) - 1e-9) <= after).all()
        assert (after <= np.ceil(np.array(before) + 1e-9)).all()


def test_whole_margins_are_kept_as_they_are():
    problem = cross(3, 3)
    detail = np.full((3, 3), 1 / 3)
    rounded = controlled_rounding(problem, detail, ["rows", "columns"])
    np.testing.assert_array_equal(rounded.sum(axis=0), 1)
    np.testing.assert_array_equal(rounded.sum(axis=1), 1)


def test_rounding_changes_as_little_as_it_can():
    """All 2^6 roundings of a 2 x 3 table tried."""
    problem = Problem(Schema({"a": 2, "b": 3}), {"detailed": 1.0})
    rng = np.random.default_rng(2)
    for _ in range(5):
        detail = rng.random((2, 3)) * 3
        best = np.inf
        for bits in np.ndindex(*[2] * 6):
            candidate = np.floor(detail) + np.reshape(bits, (2, 3))
            changes = [candidate - detail, (candidate - detail).sum(axis=0), (candidate - detail).sum(axis=1)]
            if all(abs(change).max() < 1 for change in changes):
                best = min(best, sum((change**2).sum() for change in changes))
        rounded = controlled_rounding(problem, detail, ["a", "b"])
        changes = [rounded - detail, (rounded - detail).sum(axis=0), (rounded - detail).sum(axis=1)]
        assert sum((change**2).sum() for change in changes) == pytest.approx(best)


def test_rounding_is_refused_where_margins_are_no_flow():
    """The classical case: all three two-way margins of a 2 x 2 x 2 table of halves need not round together."""
    problem = Problem(Schema({"a": 2, "b": 2, "c": 2}), {"detailed": 1.0})
    with pytest.raises(ValueError, match=r"'a \* b', 'b \* c' and 'a \* c' none refines another.*unimodular"):
        controlled_rounding(problem, np.full((2, 2, 2), 0.5), ["a * b", "b * c", "a * c"])
    schema = Schema({"v": 8}, {"v": {f"r{i}": [int(j >= 1 + i) for j in range(8)] for i in range(3)}})
    refuses("unimodular", controlled_rounding, Problem(schema, {"v": 1.0}), np.full(8, 0.5), ["r0", "r1", "r2"])


def test_a_sequential_fit_becomes_unit_records():
    polars = pytest.importorskip("polars")
    problem = Problem(Schema({"sex": ["f", "m"], "age": ["young", "old"]}), {"total": 0.0, "sex": 1.0, "detailed": 1.0})
    y = problem.vector({"total": 7.0, "sex": [3.4, 3.6], "detailed": [[2.5, 0.7], [-1.0, 4.0]]})
    fit = sequential_fit(problem, y)
    weighted = weighted_rows(problem, fit.detail)
    assert weighted.columns == ["sex", "age", "weight"]
    assert weighted["weight"].sum() == pytest.approx(7)
    assert (weighted["weight"] > 0).all()
    counts = controlled_rounding(problem, fit.detail, ["total", "sex"])
    records = unit_records(problem, counts)
    assert records.height == 7
    assert records.filter((polars.col("sex") == "m") & (polars.col("age") == "old")).height == counts[1, 1]
    refuses("whole counts", unit_records, problem, fit.detail)


@every("call", [weighted_rows, unit_records, lambda p, x: controlled_rounding(p, x, [])])
def test_microdata_refuse_negative_and_misshapen_cells(call):
    problem = cross(3, 3)
    refuses("0 or more", call, problem, -np.ones((3, 3)))
    refuses("shape", call, problem, np.ones((3, 2)))


def test_refined_intervals_lose_no_truth_and_gain_width():
    problem = Problem(Schema({"a": 4}), {"total": 0.0, "a": 4.0}, desired=["a", "total"])
    y = np.array([6.0, -3.0, 9.0, 1.0, 2.0])
    lower, upper = refine_intervals(problem, y, [-7.0, 5.0, -3.0, -2.0, 6.0], [-1.0, 13.0, 5.0, 6.0, 6.0])
    np.testing.assert_array_equal(lower, [0, 5, 0, 0, 6])
    np.testing.assert_array_equal(upper, [0, 6, 5, 6, 6])
    refuses("lower and upper", refine_intervals, problem, y, np.zeros(3), np.zeros(3))


def test_coverage_of_unbiased_intervals_holds_and_of_fitted_ones_does_not():
    problem = benchmark_problem(synthetic_datasets()["Level00-2d"][:4, :4], ZeroConcentratedDP(0.1))
    result = coverage(problem, problem.truth, nnls, 400, np.random.default_rng(0))
    total = problem.desired.slice("total")
    empty = result.refined[problem.desired.slice("detailed")][1:]
    assert empty.mean() == pytest.approx(0.975, abs=0.01)  # the share that lies below 0 altogether holds it now
    assert result.refined[total][0] == pytest.approx(0.95, abs=0.035)
    assert result.bias[total][0] > 0
    assert result.fitted[total][0] < result.refined[total][0] - 0.05
    unbiased = coverage(problem, problem.truth, ols, 200, np.random.default_rng(1))
    np.testing.assert_allclose(unbiased.refined, unbiased.fitted)
    refuses("level", coverage, problem, problem.truth, nnls, 5, np.random.default_rng(0), confidence_level=95)


def test_movements_tell_how_far_tables_moved():
    values = {"total": 4.0, "rows": [3.0, 1.0], "columns": [2.0, 2.0], "detailed": [[5.0, -3.0], [0.0, 1.0]]}
    problem = Problem(Schema({"rows": 2, "columns": 2}), dict.fromkeys(values, 1.0))
    y = problem.vector(values)
    P = blue(problem)
    unbiased = P @ y + P.offset
    for method in METHODS.values():
        found = movements(method(problem, y), unbiased)
        assert [m.table for m in found] == list(problem.desired.names)
    fit = nnls(problem, y)
    np.testing.assert_allclose(ols(problem, y).desired, unbiased, atol=1e-9)
    detailed = movements(fit, unbiased)[-1]
    assert detailed.total == pytest.approx(fit.detail.sum())
    change = abs(fit.tables()["detailed"] - problem.desired.tables(unbiased)["detailed"])
    assert detailed.cell == np.unravel_index(change.argmax(), change.shape)
    assert f"{detailed.value:,.2f}" in str(detailed)
    refuses("unbiased estimates", movements, fit, unbiased[:-1])


def test_movements_are_told_of_tables_with_cells_that_are_not_estimable():
    schema, inf = Schema({"a": 2, "b": 2}), np.inf
    problem = Problem(schema, {"a": 1.0, "a * b": [[inf, inf], [1.0, 1.0]]}, undetermined="nan")
    y = problem.vector({"a": [3.0, 5.0], "a * b": [[np.nan, np.nan], [-4.0, 9.0]]})
    unbiased = blue(problem) @ y
    table = movements(nnls(problem, y), unbiased)[1]
    assert table.cell == (1, 0)
    assert table.value == 0 > table.unbiased_value == pytest.approx(-4.0)
    assert np.isnan(table.total)
    assert "nan" not in str(table)


def test_synthetic_datasets_are_those_of_the_paper():
    datasets = synthetic_datasets()
    expected = {
        "Level00": (10_000, 1), "Level01": (10_099, 100), "Level16": (11_584, 100), "Level32": (13_168, 100),
        "Stair": (15_049, 100), "Step16": (10_800, 51), "Step50": (12_500, 51), "SplitStairs": (11_224, 49),
    }  # fmt: skip
    assert len(datasets) == 16
    for name, (total, positive) in expected.items():
        for counts in (datasets[f"{name}-1d"], datasets[f"{name}-2d"]):
            assert (counts.sum(), np.count_nonzero(counts)) == (total, positive)
    assert datasets["Stair-2d"][1, 0] == 2
    assert datasets["Stair-2d"][0, 1] == 11


@needs_data
@pytest.mark.few(0)
def test_puma_datasets_are_those_of_the_paper():
    datasets = puma_datasets(PUMA)
    summary = {name: (c.sum(), np.count_nonzero(c), c.max()) for name, c in datasets.items()}
    assert len(summary) == 15
    assert summary["PUMA0101301"] == (812, 8, 720)
    assert summary["PUMA3603710"] == (1210, 51, 382)
    assert list(summary)[-1] == "PUMA5151255"


def test_missing_and_broken_data_are_refused(tmp_path):
    refuses("ST_01_PUMA_01301", puma_datasets, tmp_path, error=FileNotFoundError)
    (tmp_path / "ST_01_PUMA_01301.csv").write_text(",01,02\n1,3,4\n")
    refuses("9 rows of 24", puma_datasets, tmp_path)


def test_benchmark_problems_split_the_budget_evenly():
    assert set(benchmark_problem(synthetic_datasets()["Stair-2d"], PureDP(0.5)).variances) == {128.0}
    variances = [benchmark_problem(synthetic_datasets()["Stair-1d"], s).variances[0] for s in SETTINGS[3:]]
    np.testing.assert_allclose(variances, [2, 8, 200])


@lengths("draws", 1, 3)
@every("method", METHODS.values())
@every("setting", [SETTINGS[2], SETTINGS[5]])
def test_the_benchmark_is_solved_without_failure(method, setting, draws):
    for counts in synthetic_datasets().values():
        problem = benchmark_problem(counts, setting)
        y = problem.truth[:, None] + draw_noise(problem, draws, 7)
        fit = method(problem, y)
        assert fit.kkt_residual < 1e-8 * counts.max()
        assert fit.margin_residual < 1e-10 * counts.max()


def test_ols_errors_are_those_of_the_closed_forms():
    """V / ((1 + 1/a)(1 + 1/b)) for the sum, v (a - 1 + 1/(a+1)) (b - 1 + 1/(b+1)) for the cells; sequential sum: v."""
    a, b, v = 10, 10, 128.0
    problem = benchmark_problem(synthetic_datasets()["Level32-2d"], PureDP(0.5))
    variances = blue(problem).variances()
    assert variances[0] == pytest.approx(v / ((1 + 1 / a) * (1 + 1 / b)))
    cells = variances[problem.desired.slice("detailed")].sum()
    assert cells == pytest.approx(v * (a - 1 + 1 / (a + 1)) * (b - 1 + 1 / (b + 1)))
    y = problem.truth[:, None] + draw_noise(problem, 5, 0)
    np.testing.assert_allclose(sequential_fit(problem, y).observed[0], y[0], rtol=1e-12)


def test_the_benchmark_runs_and_reports(capsys):
    bench = importlib.import_module("bench.papers.microdata")
    datasets = {"Level00-2d": synthetic_datasets()["Level00-2d"]}
    bench.report(bench.run(datasets, [SETTINGS[1]], runs=5))
    printed = capsys.readouterr().out
    assert "Newton steps" in printed
    assert "Table 2: total squared error" in printed
