"""The command run again and again in a process of its own, with little memory, which may die of what it reads."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.helpers.places import ROOT

MOST_ADDRESSES = 6 << 30  # bytes of the process, of which libraries reserve some that they never use
MOST_SECONDS = 300  # of one run, each of which takes one: a process that hangs is ended
PROGRAM = f"""
import json, os, resource, sys, tempfile
from pathlib import Path
from blue_solvers.cli import main
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({MOST_ADDRESSES}, {MOST_ADDRESSES}))
def memory(name):
    return 1024 * int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])
ours = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for line in sys.stdin:
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS")
        try:
            code = main(json.loads(line))
        except SystemExit as end:
            code = end.code
        sys.stderr.flush()
        sys.stdout.flush()
        said.seek(0)
        ours.write(json.dumps([code, said.read().decode(), memory("VmHWM") - before]) + chr(10))
"""


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes
    ----------
    code : int
        Exit code; that of the process, negative for a signal, if it died.
    said : str
        On stderr.
    bytes : int
        Of memory at its peak, beyond what it had.
    """

    code: int
    said: str
    bytes: int


class LimitedCommand:
    """Runs the command in a folder; a new process for the next run wherever one died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LimitedCommand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.communicate()
        return process.returncode

    def run(self, arguments: list[str]) -> Ended:
        """Run the command, to its end or that of its process."""
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "2", "RUST_BACKTRACE": "0"}
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], MOST_SECONDS)[0]:
            self._process.kill()
        line = self._process.stdout.readline()
        return Ended(*json.loads(line)) if line else Ended(self._stop(), "", 0)
