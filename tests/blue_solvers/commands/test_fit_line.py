"""The fit of measurements, and what the command says of it, against dense least squares and simulation."""

from pathlib import Path

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.cli import main
from blue_solvers.commands.fit_line import fit_report
from constraint_builders import Problem, Schema

SCHEMA = Schema({"sex": ["f", "m"], "age": 3})


def test_where_nothing_checks_anything_nothing_is_said() -> None:
    assert fit_report(blue(Problem(SCHEMA, {"sex": 1.0})).estimate([3.0, 4.0])).line == ""
    holes = Problem(SCHEMA, {"sex": [1.0, np.inf], "total": 1.0}, ["total"])
    assert fit_report(blue(holes).estimate([3.0, np.nan, 9.0])).line == ""


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
