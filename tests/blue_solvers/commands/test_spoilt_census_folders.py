"""Folders of measurement files that were spoilt on their way: refused by name, named, or answered rightly."""

import re
import shutil
from pathlib import Path

import pytest

from blue_solvers.cli import main
from tests.helpers.census_files import Written
from tests.helpers.effort import first_of
from tests.helpers.spoilt_census import CASES, NAMED, REFUSED, RIGHT

REMARKS = ("missing", "variances", "values", "facilities of", "bounds     US '", "averaged", "in part")


def estimated(folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    capsys.readouterr()
    return main(["estimate", str(folder), "--out", str(out), *options]), *capsys.readouterr()


def off_by(result: Path, written: Written, capsys: pytest.CaptureFixture[str]) -> list[float]:
    """How many standard errors every state's estimate is from the truth."""
    capsys.readouterr()
    assert main(["query", str(result), "--geolevel", "State", "--all"]) == 0
    rows = re.findall(r"^total +(\d+) +([\d.,]+) +([\d.,]+) ", capsys.readouterr().out, re.MULTILINE)
    truth = {code: sum(b.persons.size for b in written.within(1, code)) for code, *_ in rows}
    assert rows
    return [(float(x.replace(",", "")) - truth[code]) / float(error) for code, x, error in rows]


def test_a_whole_folder_is_answered_without_remarks(
    small_census: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = estimated(small_census[0], tmp_path / "out", capsys)
    assert code == 0
    assert not [line for line in out.splitlines() if line.startswith(REMARKS)]
    assert max(map(abs, off_by(tmp_path / "out", small_census[1], capsys))) < 4


def test_there_are_sixty_of_all_kinds() -> None:
    kinds = [case.becomes for case in CASES.values()]
    assert len(kinds) >= 60
    assert min(kinds.count(kind) for kind in (REFUSED, NAMED, RIGHT)) >= 6


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_a_spoilt_folder(
    name: str, small_census: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out, case = tmp_path / "census", tmp_path / "out", CASES[name]
    shutil.copytree(small_census[0], folder)
    case.spoil(folder)
    code, printed, complaint = estimated(folder, out, capsys, "--verbose")
    if case.becomes == REFUSED:
        assert code == 2, printed
        assert not out.exists()
        assert complaint.count("\n") == 1
        assert re.search(case.says, complaint), complaint
        return
    assert code == 0, complaint
    if case.becomes == NAMED:
        assert re.search(case.says, printed), printed
        line = next(line for line in printed.splitlines() if re.search(case.says, line))
        if line.startswith(REMARKS):
            for question in (["info"], ["tables"], ["query", "--all"]):
                assert main([question[0], str(out), *question[1:], "--strict"]) == 3
                said, doubt = capsys.readouterr()
                assert "read with remarks: " in doubt
                assert ("read with remarks: " in said) != (question == ["info"])
                assert line in said or question != ["info"]
        return
    assert not [line for line in printed.splitlines() if line.startswith((*REMARKS, "fit        DOES NOT"))], printed
    assert max(map(abs, off_by(out, small_census[1], capsys))) < 4


@pytest.mark.parametrize("name", first_of([name for name in CASES if CASES[name].becomes == REFUSED], 4))
def test_a_spoilt_folder_is_refused_where_it_is_streamed_too(
    name: str, small_census: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "census"
    shutil.copytree(small_census[0], folder)
    CASES[name].spoil(folder)
    code, _, complaint = estimated(folder, tmp_path / "out", capsys, "--memory", "1e9")
    assert code == 2
    assert re.search(CASES[name].says, complaint), complaint
    assert not (tmp_path / "out").exists()
