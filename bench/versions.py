"""What description, preparation, estimates and memory take in this version, in units of another.

    python -m bench versions OTHER              all cases; OTHER is a checkout of another version of this project
    python -m bench versions OTHER --only dhc   cases whose name holds a text; may be repeated
    python -m bench versions OTHER --quick      without the cases of more than a second

A process for each version measures one step after another, interleaved; figures are the least of several rounds, CPU
seconds on one thread (of child processes for imports) or bytes that Python and NumPy hold at most, so that
memory of LAPACK, SuperLU and threads is not in them. Memory that is freed stays at hand: whether the C library gives it
back between two estimates is chance, and page faults then cost up to half as much again. What looks more than 5 % worse
is measured again first.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measuring import parser_of, print_table, verdict
from bench.version_cases import CASES

HERE = Path(__file__).resolve().parents[1]
KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_MAX_": "0"}  # of glibc
WORSE = 1.05
ROUNDS, MORE_ROUNDS = 3, 8
SLOW = ("adult", "dhc persons", "2,016 cells", "cg 16 cells", "nnls pl94")


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


def compare(step: str, versions: dict[str, Version]) -> dict[str, float | str]:
    """Least figure of each version, taking turns, more of them where it looks worse; or why there is none."""
    least: dict[str, float | str] = {}
    for turn in range(1 if step == "memory" else ROUNDS + MORE_ROUNDS):
        if turn >= ROUNDS and least["now"] / least["before"] <= WORSE:
            break
        for name, version in versions.items():
            figure = version.figure(step)
            if isinstance(figure, str):
                return {name: figure}
            least[name] = min(figure, least.get(name, figure))
    return least


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
    steps = {name: [step for step in CASES[name].steps if not options.step or step in options.step] for name in names}
    header = ["case", "step", "before", "now", "now / before", ""]
    print_table(header, (row for name in names if steps[name] for row in _rows(other, name, steps[name])))


def _rows(other: Path, name: str, steps: list[str]) -> Iterator[list[str]]:
    versions = {"before": Version(other, name), "now": Version(HERE, name)}
    for step in steps:
        yield [name, step, *_cells(step, compare(step, versions))]
    for version in versions.values():
        version.close()


def _cells(step: str, least: dict[str, float | str]) -> list[str]:
    refused = [f"{which}: {why[:80]}" for which, why in least.items() if isinstance(why, str)]
    if refused:
        return ["", "", "", *refused]
    scale, unit = (1e-6, "MB") if step == "memory" else (1e3, "ms")
    ratio, shown = least["now"] / least["before"], [f"{own * scale:,.2f} {unit}" for own in least.values()]
    return [*shown, f"{ratio:.2f}", verdict(ratio, WORSE)]
