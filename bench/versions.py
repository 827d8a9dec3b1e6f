"""What description, preparation, estimates and memory take in this version, in units of another.

    python -m bench versions OTHER              all cases; OTHER is a checkout of another version of this project
    python -m bench versions OTHER --only dhc   cases whose name holds a text; may be repeated
    python -m bench versions OTHER --quick      without the cases of more than a second

A process for each version measures one step after another, in turns; figures are the least of several rounds, seconds
of processor on one thread (of child processes for the command) or bytes that Python and NumPy hold at most, so that
memory of LAPACK, SuperLU and threads is not in them. Memory that is freed stays at hand: whether the C library gives it
back between two estimates is chance, and page faults then cost up to half as much again. What looks more than 5 % worse
is measured again first. Ratios that were kept of releases are compared by `python -m bench compare`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.measuring import parser_of, print_table, verdict
from bench.version_cases import CASES

HERE = Path(__file__).resolve().parents[1]
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_MAX_": "0"}  # of glibc
WORSE = 1.05
ROUNDS, MORE_ROUNDS = 3, 8
SLOW = ("adult three-way", "dhc query groups", "Rhode Island x 2016", "cg Rhode Island x 16", "nnls pl94")


class Version:
    """A process that measures a case with the packages of one checkout."""

    def __init__(self, root: Path, case: str) -> None:
        script = Path(__file__).with_name("version_cases.py")
        environment = os.environ | KEEP_FREED_MEMORY | {"PYTHONPATH": str(root)}
        command, pipe = [sys.executable, "-P", str(script), case], subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True)
        found = self._line()
        if Path(found) != root:
            raise RuntimeError(f"{root} is not a checkout of this project: its packages come from {found}")

    def figure(self, step: str) -> float | str:
        """A figure, or what went wrong."""
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        answer = self._line()
        try:
            return float(answer)
        except ValueError:
            return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _line(self) -> str:
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the measuring process ended with exit code {self._process.wait()}")
        return line


@dataclass
class Comparison:
    """Least figures of one step before and now, or why there are none."""

    before: float = float("inf")
    now: float = float("inf")
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Now in units of before."""
        return self.now / self.before

    def take_turn(self, step: str, before: Version, now: Version) -> None:
        """Measure once with each."""
        for name, version in (("before", before), ("now", now)):
            figure = version.figure(step)
            if isinstance(figure, str):
                self.refused[name] = figure
            else:
                setattr(self, name, min(getattr(self, name), figure))


def compare(step: str, before: Version, now: Version) -> Comparison:
    """Take turns, more of them where it looks worse."""
    found = Comparison()
    rounds = 1 if step == "memory" else ROUNDS
    for turn in range(rounds + MORE_ROUNDS):
        if found.refused or (turn >= rounds and (found.ratio <= WORSE or step == "memory")):
            break
        found.take_turn(step, before, now)
    return found


def main(argv: list[str]) -> None:
    """Print the table, one row a step."""
    parser = parser_of("versions", __doc__, "without the slow cases")
    parser.add_argument("other", type=Path, help="root of a checkout of the version to compare with")
    parser.add_argument("--only", action="append", default=[], help="cases whose name holds this text")
    parser.add_argument("--step", action="append", default=[], help="these steps only")
    options = parser.parse_args(argv)
    other = options.other.resolve()
    if not (other / "blue_solvers/__init__.py").exists():
        sys.exit(f"{options.other} has no package blue_solvers: give the root of a checkout of this project")
    names = [name for name in CASES if not options.only or any(text in name for text in options.only)]
    names = [name for name in names if not options.quick or name not in SLOW]
    header = ["case", "step", "before", "now", "now / before", ""]
    print_table(header, (row for name in names for row in _rows(other, name, options.step)))


def _rows(other: Path, name: str, wanted: list[str]) -> Iterator[list[str]]:
    before, now = Version(other, name), Version(HERE, name)
    for step in CASES[name].steps:
        if not wanted or step in wanted:
            yield _row(name, step, compare(step, before, now))
    before.close()
    now.close()


def _row(name: str, step: str, found: Comparison) -> list[str]:
    if found.refused:
        return [name, step, "", "", "", "; ".join(f"{which}: {why[:80]}" for which, why in found.refused.items())]
    shown = [
        f"{own / 1e6:,.2f} MB" if step == "memory" else f"{own * 1e3:,.2f} ms" for own in (found.before, found.now)
    ]
    return [name, step, *shown, f"{found.ratio:.2f}", verdict(found.ratio, WORSE)]
