"""What goes wrong by itself in files of tables is refused by name, named in what is printed, or read rightly."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
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
    exact, noisy = errors == 0, (errors > 0) & np.isfinite(errors)
    W, C = M[noisy].T / errors[noisy] ** 2, M[exact]
    system = np.block([[W @ M[noisy], C.T], [C, np.zeros((len(C), len(C)))]])
    inverse = np.linalg.pinv(system, rcond=1e-13)
    n = len(leaves)
    x = (inverse @ np.concatenate([W @ values[noisy], values[exact]]))[:n]
    variances = np.einsum("ri,ij,rj->r", M, inverse[:n, :n], M)
    return np.column_stack([M @ x, np.sqrt(np.where(exact, 0, variances))])


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
