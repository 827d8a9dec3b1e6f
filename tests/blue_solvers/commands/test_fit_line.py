"""The fit of measurements, and what the command says of it, against dense least squares and simulation."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from blue_solvers import blue
from blue_solvers.cli import main
from blue_solvers.commands.fit_line import fit_report
from constraint_builders import Problem, Schema

SCHEMA = Schema({"sex": ["f", "m"], "age": 3})
HOLES = np.array([[1.0, 2.0, np.inf], [0.5, 3.0, 1.0]])
MATRIX = np.vstack([np.ones((1, 6)), np.kron(np.eye(2), np.ones((1, 3))), np.tile(np.eye(3), (1, 2)), np.eye(6)])


def problem_of(**options: object) -> Problem:
    observed = {"total": 1.5, "sex": 2.0, "age": 4.0, "sex * age": HOLES}
    return Problem(SCHEMA, observed, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("desired", [None, ["sex"]])
def test_it_is_the_chi_square_of_weighted_least_squares(desired: list[str] | None) -> None:
    problem = problem_of(desired=desired)
    rng = np.random.default_rng(0)
    y = MATRIX @ rng.uniform(5, 20, 6) + rng.normal(0, 1, 12)
    measured = np.isfinite(problem.variances)
    W = MATRIX[measured] / np.sqrt(problem.variances[measured])[:, None]
    z = y[measured] / np.sqrt(problem.variances[measured])
    H = W @ np.linalg.pinv(W)
    residual = z - H @ z
    found = blue(problem).estimate(np.where(measured, y, np.nan)).goodness_of_fit()
    assert found.degrees_of_freedom == measured.sum() - np.linalg.matrix_rank(W)
    assert np.isclose(found.statistic, residual @ residual)
    studentised = residual / np.sqrt(1 - np.diag(H))
    worst = int(abs(studentised).argmax())
    assert np.isclose(found.outliers(1)[0].residual, studentised[worst])
    line = fit_report(blue(problem).estimate(np.where(measured, y, np.nan))).line
    assert line is not None
    assert line.endswith(problem.observed.describe(int(np.flatnonzero(measured)[worst])))
    law = stats.chi2(found.degrees_of_freedom)
    assert np.isclose(found.p_value, 2 * min(law.sf(found.statistic), law.cdf(found.statistic)))


def test_where_nothing_checks_anything_nothing_is_said() -> None:
    problem = Problem(SCHEMA, {"sex": 1.0})
    assert fit_report(blue(problem).estimate([3.0, 4.0])).line == ""
    holes = Problem(SCHEMA, {"sex": [1.0, np.inf], "total": 1.0}, ["total"])
    assert fit_report(blue(holes).estimate([3.0, np.nan, 9.0])).line == ""


def test_undetermined_cells_check_nothing() -> None:
    holes = np.where(np.isinf(HOLES), np.inf, 1.0)
    holes[1] = np.inf
    problem = Problem(SCHEMA, {"sex * age": holes, "total": 1.0, "sex": 1.0}, undetermined="nan")
    y = np.array([5.0, 6, 0, 0, 0, 0, 30, 12, 14])
    found = blue(problem).estimate(np.where(problem.unmeasured, np.nan, y)).goodness_of_fit()
    assert found.degrees_of_freedom == 1
    assert np.isclose(found.statistic, 4.0**2 / 3)


@pytest.mark.parametrize(("second", "flagged"), [(12, True), (-974, False)])
def test_contradictory_data_are_flagged(
    second: int, flagged: bool, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    rows = f"table,sex,value,variance\ntotal,*,25,0\nsex,f,1000,1\nsex,m,{second},1\n"
    (tmp_path / "in.csv").write_text(rows)
    assert main(["estimate", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]) == 0
    printed = capsys.readouterr().out
    assert ("CONTRADICTORY" in printed) == flagged
    assert "on 1 degree of freedom" in printed
    if flagged:
        assert "chi-square 487,084 on" in printed
        assert "standard errors: table 'sex', cell (sex=f)" in printed
