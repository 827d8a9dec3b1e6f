"""What was measured stands beside what was estimated, with the adjustment judged by a dense least squares."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import estimate
from blue_solvers.cli import main
from constraint_builders import Problem, Schema
from constraint_builders.files import read_long_table, rounded
from tests.helpers.dense_algebra import least_squares
from tests.helpers.refused_commands import refusal

TABLE = """table,sex,age,value,variance
total,*,*,21,0
age * sex,female,young,1,2
age * sex,male,young,4,3
age * sex,female,old,3,2
age * sex,male,old,,inf
sex,female,*,9.5,1
sex,male,*,11,1
"""
# x = (female old, male old, female young, male young); rows are the cells of the total, of sex, and of age * sex
ROWS = np.array([[1, 1, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
VALUES = np.array([21, 9.5, 11, 3, np.nan, 1, 4])
VARIANCES = np.array([0, 1, 1, 2, np.inf, 2, 3])


def dense() -> tuple[np.ndarray, np.ndarray]:
    """Estimates of the cells, and their variances, by generalised least squares under the exact total."""
    return least_squares(ROWS, VARIANCES, VALUES, ROWS)


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    path = tmp_path / "noisy.csv"
    path.write_text(TABLE)
    return path


def check(frame: pl.DataFrame) -> None:
    estimates, variances = dense()
    assert np.allclose(frame["estimate"], estimates)
    assert frame["value"].to_list() == [21, 9.5, 11, 3, None, 1, 4]
    assert frame["variance"].to_list() == VARIANCES.tolist()
    assert np.allclose(frame["adjustment"].to_numpy(), estimates - VALUES, equal_nan=True)
    checked = [1, 2, 3, 5]  # young males are known from their own measurement alone: old ones were not measured
    left = (VARIANCES - variances)[checked]
    assert np.allclose(frame["adjustment_z"].to_numpy()[checked], (estimates - VALUES)[checked] / np.sqrt(left))
    assert frame["adjustment_z"].is_null().to_list() == [i not in checked for i in range(7)]


def test_the_command_and_the_library_show_what_was_measured(noisy: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out.parquet")
    assert main(["estimate", str(noisy), "--out", out]) == 0
    check(pl.read_parquet(out))
    check(estimate(*read_long_table(noisy)).to_frame())


def test_tables_that_are_not_wanted_or_not_measured_leave_it_empty(noisy: Path) -> None:
    problem, y = read_long_table(noisy, desired=["age", "sex * age"])
    frame = estimate(problem, y).to_frame()
    assert frame["value"].to_list() == [None, None, 3, 1, None, 4]  # turned with the name that was asked for
    assert frame["variance"].to_list() == [np.inf, np.inf, 2, 2, np.inf, 3]


def test_what_is_kept_of_adjustments_nobody_writes_to(noisy: Path) -> None:
    assert not any(own.flags.writeable for own in vars(estimate(*read_long_table(noisy)).adjustments).values())


def test_answers_that_are_not_the_best_have_no_z() -> None:
    problem = Problem(Schema({"a": 2, "b": 2}), {"a * b": [[1, 2.0], [3, 4]], "a": 1.0})
    assert estimate(problem, np.arange(6.0)).to_frame()["adjustment_z"].null_count() == 0
    heuristic = estimate(problem, np.arange(6.0), "sea_blue", certify=False).to_frame()
    assert heuristic["adjustment_z"].null_count() == 6
    assert heuristic["adjustment"].null_count() == 0


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.Table])
def test_frames_come_out_in_the_kind_that_came_in(kind: Any, noisy: Path) -> None:
    came = pl.read_csv(noisy)
    source = pd.read_csv(noisy) if kind is pd.DataFrame else came.to_arrow() if kind is pa.Table else came
    problem, y = read_long_table(source)
    frame = estimate(problem, y).to_frame(like=source)
    assert type(frame) is kind
    assert np.array_equal(np.asarray(frame["value"], dtype=float), VALUES, equal_nan=True)
    if kind is pd.DataFrame:
        assert (frame.dtypes.iloc[3:] == "float64").all()


def test_results_are_not_read_as_measurements(noisy: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = str(tmp_path / "out.csv")
    assert main(["estimate", str(noisy), "--out", out]) == 0
    assert "it holds estimates, whose errors are correlated" in refusal(
        capsys, "estimate", out, "--out", str(tmp_path / "again.csv")
    )


@pytest.mark.parametrize(("digits", "unit"), [("2", 2), ("5", 5), (None, 13)])
def test_csv_has_the_digits_of_the_standard_error(digits: str | None, unit: int, noisy: Path, tmp_path: Path) -> None:
    out, whole = str(tmp_path / "out.csv"), estimate(*read_long_table(noisy)).to_frame()
    assert main(["estimate", str(noisy), "--out", out, *(["--digits", digits] if digits else [])]) == 0
    text = pl.read_csv(out, infer_schema=False)
    for row, error in zip(text.iter_rows(named=True), whole["std_error"], strict=True):
        if error > 1e-9:
            assert len(row["std_error"].replace(".", "").strip("0")) <= unit
            assert len(row["estimate"].partition(".")[2]) <= unit
    numbers = pl.read_csv(out)
    for name in ("estimate", "std_error", "lower", "upper"):
        assert np.all(
            abs(numbers[name] - whole[name]).to_numpy() <= 5 * 10.0**-unit * whole["std_error"].to_numpy() + 1e-12
        )
    for name in ("value", "variance"):
        assert numbers[name].to_list() == whole[name].to_list()


@given(
    rows=st.lists(st.tuples(st.floats(-1e12, 1e12), st.floats(1e-12, 1e12) | st.just(0.0)), min_size=1, max_size=5),
    digits=st.integers(1, 17),
)
def test_rounding_moves_nothing_by_more_than_its_last_digit(rows: list[tuple[float, float]], digits: int) -> None:
    frame = pl.DataFrame(rows, schema=["estimate", "std_error"], orient="row")
    once = rounded(frame, digits)
    for (value, error), (new, new_error) in zip(rows, once.rows(), strict=True):
        bound = 5 * 10.0**-digits * error
        assert abs(new_error - error) <= bound * (1 + 1e-9)
        assert abs(new - value) <= max(bound * 1.001, 1e-14 * abs(value))
        if error and abs(value) < 2**53 * 10.0 ** -(digits + 1) * error:
            shown = f"{new:.{max(0, digits - 1 - int(np.floor(np.log10(error))))}f}"
            assert float(shown) == new


def test_what_is_empty_stays_empty() -> None:
    frame = pl.DataFrame({"estimate": [1.26, None, np.nan], "std_error": [0.1, None, np.nan], "value": [1.2345, 2, 3]})
    assert rounded(frame, 1).rows()[0] == (1.3, 0.1, 1.2345)
    assert rounded(frame, 1)["estimate"][1] is None
    assert np.isnan(rounded(frame, 1)["estimate"][2])
