"""A full disk is told in one line with the name of what was written; a streamed run goes on when there is space."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from blue_solvers import examples
from blue_solvers.cli import main
from tests.blue_solvers.streaming.small_release import TIGHT, write_release
from tests.helpers.disturbances import ONE_LINE, digests

SIZES = (4, 12, 20, 40, 80, 120, 160, 200, 240, 280, 320)  # KiB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if not shutil.which("mount") or not mount(place, SIZES[0]):
        pytest.skip("a disk in memory needs the right to mount one")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def mount(place: Path, size: int, again: str = "") -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"{again}size={size}k", "none", str(place)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write_release(folder / "release", 0)
    assert main(["estimate", str(folder / "release"), "--out", str(folder / "whole"), "--memory", str(TIGHT)]) == 0
    return folder / "release"


def refused(said: str, place: Path) -> bool:
    """Whether a run complained of a full disk, as it should; a slow one says how far it is before."""
    said = "".join(line for line in said.splitlines(keepends=True) if not line.endswith(" s so far\n"))
    return ONE_LINE.fullmatch(said) is not None and str(place) in said and said.endswith("No space left on device\n")


def test_a_streamed_run_goes_on_when_there_is_space(release: Path, disk: Path, capsys: pytest.CaptureFixture) -> None:
    codes = []
    for size in SIZES:
        assert mount(disk, size, "remount,")
        capsys.readouterr()
        codes.append(main(["estimate", str(release), "--out", str(disk / "out"), "--memory", str(TIGHT)]))
        said = capsys.readouterr().err
        if codes[-1] == 0:
            break
        assert codes[-1] == 1
        assert refused(said, disk), said
    assert codes[-1] == 0
    assert len(codes) > 3
    assert digests(disk / "out") == digests(release.parent / "whole")
    assert os.listdir(disk) == ["out"]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["folder", "csv", "parquet"])
def test_others_leave_nothing(kind: str, release: Path, disk: Path, capsys: pytest.CaptureFixture) -> None:
    source = str(release if kind == "folder" else examples.BERKELEY)
    out = disk / ("out" if kind == "folder" else f"out.{kind}")
    ends = []
    for size in SIZES[:4]:
        assert mount(disk, size, "remount,")
        capsys.readouterr()
        ends.append(main(["estimate", source, "--out", str(out)]))
        said = capsys.readouterr().err
        if ends[-1] == 0:
            break
        assert ends[-1] == 1
        assert refused(said, disk), said
        assert os.listdir(disk) == []
    assert ends[0] == 1
