"""One run at a time in a folder, which is taken up by the same work only, and cleaned of nothing but ours."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blue_solvers.results.checksums import DamagedError, read_sealed_json, seal_bytes, seal_json, unseal_bytes
from blue_solvers.streaming import workplace
from blue_solvers.streaming.workplace import Workplace, locked
from tests.helpers.places import ROOT

CONTEND = """
import os, sys
from pathlib import Path
from blue_solvers.streaming.workplace import locked
folder, alone, held = Path(sys.argv[1]), Path(sys.argv[1] + ".alone"), 0
while held < 30:
    try:
        with locked(folder, folder):
            os.close(os.open(alone, os.O_CREAT | os.O_EXCL))  # fails if another is inside
            held += 1
            alone.unlink()
            if held % 3 == 0:
                try:
                    (folder / "lock").unlink()
                    folder.rmdir()
                except OSError:
                    pass
    except BlockingIOError:
        pass
print(held)
"""
HOLD = """
import sys, time
from pathlib import Path
from blue_solvers.streaming.workplace import locked
with locked(Path(sys.argv[1]), Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def place(folder: Path) -> Workplace:
    return Workplace(folder / "out", ("steps",), ("made",), "last")


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.few(0)
def test_only_one_process_at_a_time_is_inside(tmp_path: Path) -> None:
    runs = [python(CONTEND, str(tmp_path / "folder")) for _ in range(4)]
    for run in runs:
        said, complaint = run.communicate(timeout=120)
        assert (run.returncode, said, complaint) == (0, "30\n", "")


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    holder = python(HOLD, str(tmp_path / "folder"))
    assert holder.stdout.readline() == "held\n"
    message = rf"^here: process {holder.pid} on .+, since \d.*, is at work there: wait for its end, or choose another"
    with pytest.raises(BlockingIOError, match=message), locked(tmp_path / "folder", Path("here")):
        pass
    holder.kill()
    holder.communicate()
    assert (tmp_path / "folder" / "lock").exists()
    with locked(tmp_path / "folder", Path("here")):
        pass
    assert not (tmp_path / "folder" / "lock").exists()


def test_a_lock_that_says_nothing_is_anothers(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match=r"^here: another process is at"), locked(tmp_path, Path("here")):
            pass


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "folder" / "lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="lock"), locked(tmp_path / "folder", Path("here")):
        pass
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_work_is_taken_up_by_the_same_work_only(tmp_path: Path) -> None:
    files = {"a.parquet": "1", "b.parquet": "2"}
    with place(tmp_path).held({"files": files, "wish": None}):
        place(tmp_path).seal("steps/one", b"done")
    with place(tmp_path).held({"files": dict(files), "wish": None}):
        assert place(tmp_path).sealed("steps/one") == b"done"
    for other, difference in (
        ({"files": {**files, "b.parquet": "3"}, "wish": None}, "b.parquet differs"),
        ({"files": {"a.parquet": "1"}, "wish": None}, "b.parquet differs"),
        ({"files": files, "wish": ["x"]}, "wish differ"),
    ):
        with (
            pytest.raises(ValueError, match=rf"the work of another input, or of other wishes \({difference}\)"),
            place(tmp_path).held(other),
        ):
            pass
    assert place(tmp_path).sealed("steps/one") == b"done"


def test_work_is_not_taken_up_by_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place(tmp_path).held({}):
        pass
    now = workplace.versions()
    monkeypatch.setattr(workplace, "versions", lambda: {**now, "polars": "99"})
    with pytest.raises(ValueError, match=rf"\(polars {now['polars']} instead of 99\)"), place(tmp_path).held({}):
        pass
    monkeypatch.setattr(workplace, "versions", lambda: {**now, "numba": "0"})  # its loops add in another order
    with pytest.raises(ValueError, match=rf"\(numba {now['numba']} instead of 0\)"), place(tmp_path).held({}):
        pass


def test_nothing_is_left_by_what_is_discarded(tmp_path: Path) -> None:
    own = place(tmp_path)
    with own.held({}):
        own.seal("steps/one", b"done")
        (own.out / "made").mkdir()
        own.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["nothing", "lock", "temporary", "steps", "made"])
def test_what_is_nobodys_is_cleaned_and_begun_anew(left: str, tmp_path: Path) -> None:
    """A run was killed before it said whose work it is, or while it removed all that it had made."""
    own = place(tmp_path)
    own.work.mkdir(parents=True)
    if left == "lock":
        (own.work / "lock").write_text('{"pid": 1}')
    elif left == "made":
        (own.out / "made").write_text("of another input")
    elif left != "nothing":
        (own.work / left).mkdir()
        (own.work / left / "one").write_bytes(seal_bytes(f"{left}/one", b"of another input"))
    with own.held({"wish": "new"}):
        assert own.sealed("steps/one") is None
        assert not (own.out / "made").exists()
        assert read_sealed_json(own.work / "run.json")["wish"] == "new"


def test_work_that_was_done_but_for_cleaning_is_cleaned_and_stays(tmp_path: Path) -> None:
    own = place(tmp_path)
    own.work.mkdir(parents=True)
    (own.work / "steps").mkdir()
    (own.out / "last").write_text("done")
    with pytest.raises(FileExistsError, match="it is there already"), own.held({}):
        pass
    assert list(own.out.iterdir()) == [own.out / "last"]


@pytest.mark.parametrize("foreign", ["out", "out/x", "out/.work/x", "out/.made.0.part"])
def test_foreign_files_are_refused_and_stay(foreign: str, tmp_path: Path) -> None:
    path = tmp_path / foreign
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("theirs")
    with pytest.raises(FileExistsError, match="out: it is there already: remove it"), place(tmp_path).held({}):
        pass
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [path]


def test_nothing_is_left_where_not_even_a_beginning_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"), place(tmp_path).held({}):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["flip", "list", "unsealed", "empty"])
def test_whose_work_it_is_must_be_intact(change: str, tmp_path: Path) -> None:
    own = place(tmp_path)
    with own.held({"wish": "mine"}):
        pass
    path = own.work / "run.json"
    texts = {"flip": path.read_text().replace("mine", "nine"), "list": "[]", "unsealed": "{}", "empty": ""}
    path.write_text(texts[change])
    with (
        pytest.raises(DamagedError, match=rf"run\.json is .*; it says whose work this is: remove {own.out}"),
        own.held({}),
    ):
        pass


def test_bytes_and_json_notice_damage() -> None:
    sealed = seal_bytes("up/1", b"abc")
    assert unseal_bytes("up/1", sealed) == b"abc"
    assert unseal_bytes("up/2", sealed) is None
    for position in range(len(sealed)):
        flipped = bytearray(sealed)
        flipped[position] ^= 1
        assert unseal_bytes("up/1", bytes(flipped)) is None
    assert unseal_bytes("up/1", b"") is None
    said = {"b": [1.5, float("inf"), None], "a": {"é": "\udc00"}}
    assert json.loads(seal_json(said)) == {**said, "sha256": json.loads(seal_json(said))["sha256"]}
