"""Cells that are not estimable are NaN, and everything else is estimated, against dense least squares."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import estimate
from blue_solvers.cli import main
from blue_solvers.nonnegative import anchored_fit, coverage, inverted_intervals, max_fit, nnls, ols
from constraint_builders import Problem, Schema
from tests.helpers.refused_commands import refusal


def test_the_reason_names_the_cell_by_its_labels() -> None:
    schema = Schema({"sex": ["f", "m"], "age": ["young", "old"]})
    holes = {"sex * age": [[1.0, np.inf], [1.0, np.inf]], "age": [1.0, np.inf]}
    with pytest.raises(ValueError, match=r"cell \(sex=f, age=old\) rests on .* desired= or choose undetermined= 'nan'"):
        Problem(schema, holes)
    problem = Problem(schema, holes, ["age * sex", "sex"], undetermined="nan")
    assert problem.undetermined.tolist() == [False, False, True, True, True, True]
    assert problem.why_undetermined(3) == (
        "table 'age * sex', cell (age=old, sex=m): it was not measured, and no other measurements determine it"
    )
    assert problem.why_undetermined(4) == (
        "table 'sex', cell (sex=f): it rests on cells that were not measured, and no other measurements determine it"
    )
    with pytest.raises(ValueError, match="undetermined must be 'error' or 'nan'"):
        Problem(schema, holes, undetermined="raise")  # type: ignore[arg-type]


def test_what_nothing_determines_is_fitted_no_number() -> None:
    """As of the estimate; what is determined is fitted, covered and bounded as ever."""
    schema, spread = Schema({"sex": ["f", "m"], "age": ["a", "b", "c"]}), np.ones((2, 3))
    spread[0, :2] = np.inf
    tables = {"sex": 2.0, "sex * age": spread}
    problem = Problem(schema, tables, ["sex * age", "age", "total"], undetermined="nan")
    y = np.array([10.0, 20, np.nan, np.nan, 3, 4, 5, 6])
    best = estimate(problem, y).values
    for fit in (ols, nnls, max_fit, anchored_fit):
        assert np.array_equal(np.isnan(fit(problem, y).desired), np.isnan(best))
        assert np.array_equal(np.isnan(fit(problem, np.stack([y, y], 1)).desired[:, 1]), np.isnan(best))
    np.testing.assert_allclose(nnls(problem, y).desired, best)
    held = coverage(problem, problem.marginal_matrix() @ np.arange(6.0), nnls, 3, np.random.default_rng(0))
    assert np.array_equal(np.isnan(held.refined), np.isnan(best))
    with pytest.raises(ValueError, match=r"cell \(sex=f, age=a\): it was not measured, .*: leave it out of cells"):
        inverted_intervals(problem, y, [2, 0], draws=1)


def test_what_was_never_asked_of_anybody_is_still_refused() -> None:
    with pytest.raises(ValueError, match="no observed table contains it"):
        Problem(Schema({"a": 2, "b": 2}), {"a": [1.0, np.inf]}, ["b"], undetermined="nan")
    assert Problem(Schema({"a": 2}), {"a": [1.0, 2.0]}, undetermined="nan").undetermined is None


HOLES = """table,sex,age,value,variance
total,*,*,100,1
sex * age,f,young,20,1
sex * age,f,old,,inf
sex * age,m,young,17,1
sex * age,m,old,,inf
"""


def test_the_command_estimates_the_rest_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "in.csv").write_text(HOLES)
    arguments = ["estimate", str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")]
    assert main([*arguments, "--nonnegative", "nnls"]) == 0
    printed = capsys.readouterr().out
    assert "2 cells that cannot be estimated; --desired chooses other tables" in printed
    assert "cell (sex=f, age=old): it was not measured, and no other measurements determine it" in printed
    frame = pl.read_csv(tmp_path / "out.csv")
    lost = (frame["age"] == "old").to_list()
    for column in ("estimate", "std_error", "lower", "upper", "nonnegative"):
        assert frame[column].is_nan().to_list() == lost, column
    assert frame.filter(pl.col("age") != "old")["estimate"].to_list() == [100, 20, 17]
    assert frame["note"].is_null().to_list() == [not own for own in lost]
    assert main(["info", str(tmp_path / "in.csv")]) == 0
    assert "2 cells that cannot be estimated" in capsys.readouterr().out
    message = refusal(capsys, *arguments, "--undetermined", "error")
    assert "cell (sex=f, age=old) rests on cells" in message
    assert "--desired or choose --undetermined 'nan'" in message
