"""With the extra ``frames``: files and data frames of polars."""

from pathlib import Path

import polars as pl
import pytest

from blue_solvers import estimate, read_tables
from blue_solvers.cli import main

LONG = "table,sex,value,variance\ntotal,*,20,1\nsex,f,9,4\nsex,m,12,4\n"


def test_a_frame_in_three_lines() -> None:
    frame = pl.DataFrame({"sex": ["total", "f", "m"], "value": [20.0, 9, 12], "variance": [1.0, 4, 4]})
    problem, y = read_tables(frame)
    out = estimate(problem, y).to_frame(like=frame)
    assert isinstance(out, pl.DataFrame)
    assert out["estimate"].to_list() == pytest.approx([20 + 1 / 9, 9 - 4 / 9, 12 - 4 / 9])


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_the_command_reads_and_writes(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "in.csv").write_text(LONG)
    out = tmp_path / f"out{suffix}"
    assert main(["estimate", str(tmp_path / "in.csv"), "--out", str(out)]) == 0
    again = {".csv": pl.read_csv, ".parquet": pl.read_parquet, ".arrow": pl.read_ipc}[suffix](out)
    assert again["estimate"][0] == pytest.approx(20 + 1 / 9)
