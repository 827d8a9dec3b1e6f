"""Runs of the command that are killed, and files that are damaged or replaced between them."""

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.places import ROOT

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SAID = {signal.SIGTERM: "blue-solvers: terminated\n", signal.SIGINT: "blue-solvers: interrupted\n"}
ONE_LINE = re.compile(r"blue-solvers: [^\n]+\n")


@dataclass(frozen=True)
class End:
    """How a run ended.

    Attributes
    ----------
    code : int
        Exit code; negative for a signal that nobody handled.
    said : str
        On stderr.
    killed : signal.Signals or None
        The signal that was sent to it, if it was still at work.
    """

    code: int
    said: str
    killed: signal.Signals | None

    def require_ordinary(self) -> None:
        """Fail unless it was done, refused its input in one line, or was ended by the signal in at most one line."""
        if self.killed == signal.SIGKILL and self.code == -signal.SIGKILL:
            assert self.said == "", self
        elif self.killed is not None and self.code == 128 + self.killed:
            assert self.said == SAID[self.killed], self
        elif self.code == 0:
            assert self.said == "", self
        else:
            assert self.code == 2, self
            assert ONE_LINE.fullmatch(self.said), self
            assert "internal error" not in self.said, self


def begin(arguments: list[str]) -> subprocess.Popen[str]:
    """Start the command."""
    command = [sys.executable, "-m", "blue_solvers.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def end(run: subprocess.Popen[str], after: float | None = None, number: signal.Signals | None = None) -> End:
    """Wait for a run; if it is at work for longer than `after` seconds, send it a signal."""
    killed = None
    if number is not None and after is not None:
        wait_for_handlers(run)
        try:
            run.wait(after)
        except subprocess.TimeoutExpired:
            killed = number
            run.send_signal(number)
    _, said = run.communicate(timeout=120)
    return End(run.returncode, said, killed)


def wait_for_handlers(run: subprocess.Popen[str]) -> None:
    """Wait until a run has started so far that its own lines are executed: before, Python answers signals."""
    while run.poll() is None:
        caught = re.search(r"SigCgt:\t(\w+)", Path(f"/proc/{run.pid}/status").read_text())
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)


def seconds(arguments: list[str]) -> float:
    """How long an undisturbed run takes."""
    start = time.monotonic()
    assert end(begin(arguments)).code == 0
    return time.monotonic() - start


def files_of(folder: Path) -> list[Path]:
    """All files of a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file by its path."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files_of(folder)}


def damage(folder: Path, rng: random.Random) -> str:
    """Damage a random file of a folder, if there is one; tells how."""
    files = [path for path in files_of(folder) if path.name != "lock"]
    if not files:
        return "nothing to damage"
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "flip", "flip", "shorten", "lengthen", "remove", "swap"])
    if kind == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif kind == "shorten":
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
    elif kind == "lengthen":
        path.write_bytes(data + rng.randbytes(rng.randrange(1, 20)))
    elif kind == "remove":
        path.unlink()
    elif kind == "swap":
        other = rng.choice(files)
        theirs = other.read_bytes()
        other.write_bytes(data)
        path.write_bytes(theirs)
    return f"{kind} {path.relative_to(folder)}"


def replace_unseen(path: Path, other: Path) -> None:
    """Put another file of the same size in the place of a file, and give it the same time."""
    before = path.stat()
    assert before.st_size == other.stat().st_size
    shutil.copyfile(other, path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
