"""What goes wrong by itself in files of tables is refused by name, named in what is printed, or read rightly."""

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from tests.helpers.dense_algebra import least_squares as by_dense_algebra
from tests.helpers.every import every
from tests.helpers.natural_mistakes import MISTAKES, Case, Named, Read, Refused


def least_squares(read: Read) -> np.ndarray:
    """Estimates and standard errors of the rows that are meant, in order, (rows, 2), by dense algebra."""
    labels = [row[:-2] for row in read.rows]
    values, errors = (np.array([row[i] or np.nan if i == -2 else row[i] for row in read.rows], float) for i in (-2, -1))
    if read.places:  # the code of a state begins those of its counties, in which people live
        labels = [(*row[1:], row[0]) for row in labels]
    columns = list(zip(*labels, strict=True))
    levels = [sorted(set(column) - {"*"}) for column in columns]
    if read.places:
        levels[-1] = [code for code in levels[-1] if len(code) == 5]
    leaves = list(product(*levels))

    def counts(row: tuple[str, ...], leaf: tuple[str, ...]) -> bool:
        inside = not read.places or leaf[-1].startswith(row[-1])
        named = len(row) - read.places
        return inside and all(a in ("*", b) for a, b in zip(row[:named], leaf[:named], strict=True))

    M = np.array([[counts(row, leaf) for leaf in leaves] for row in labels], float)
    x, variances = by_dense_algebra(M, errors**2, np.nan_to_num(values), M)
    return np.column_stack([x, np.sqrt(variances)])


@every("case", MISTAKES)
def test_none_is_silently_wrong(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out.csv").unlink(missing_ok=True)
    Path("in.csv").write_text(case.content)
    capsys.readouterr()
    code = main(["estimate", "in.csv", "--out", "out.csv", *case.flags])
    printed, complaint = capsys.readouterr()
    complaint = "".join(line for line in complaint.splitlines(keepends=True) if not line.endswith(" s so far\n"))
    if isinstance(case.end, Refused):
        assert (code, complaint.count("\n"), Path("out.csv").exists()) == (2, 1, False)
        assert complaint.startswith("blue-solvers: in.csv: ")
        assert case.end.words in complaint
        return
    assert (code, complaint) == (0, "")
    if isinstance(case.end, Named):
        assert case.end.words in printed
        return
    written = pl.read_csv("out.csv").select("estimate", "std_error").to_numpy()
    expected = least_squares(case.end)
    for found, meant in zip(*(sorted(own.tolist()) for own in (written, expected)), strict=True):
        assert found == pytest.approx(meant, rel=1e-9, abs=1e-8)


def test_there_are_many() -> None:
    assert len({case.what for case in MISTAKES}) == len(MISTAKES) >= 120
    assert {type(case.end) for case in MISTAKES} == {Refused, Named, Read}
