"""Which tests run which lines, and how long each takes: measured once by coverage, in a process of its own."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import coverage
import pytest

PACKAGES = ["constraint_builders", "blue_solvers"]
ESTIMATES = [
    *(f"tests/blue_solvers/{name}" for name in ("components", "solvers", "structured", "verification")),
    *(f"tests/blue_solvers/test_{name}.py" for name in ("operator", "proved_estimates", "undetermined", "adjustments")),
    *(f"tests/blue_solvers/streaming/test_{name}.py" for name in ("streaming", "streamed_equalities")),
    "tests/test_compiled_kernels.py",
]
CONCERNED = {  # what tests a folder beside the tests of that name, and a file of a whole package
    "blue_solvers/components": ESTIMATES,
    "blue_solvers/structured": ESTIMATES,
    "constraint_builders/relations": ["tests/constraint_builders", "tests/test_order_of_axes.py"],
    "constraint_builders/files": [
        "tests/first_hour/test_natural_mistakes.py",
        *(f"tests/blue_solvers/commands/test_{name}.py" for name in ("malformed_files", "simulate_query")),
    ],
    "blue_solvers/quantiles.py": ["tests/blue_solvers/uncertainty"],
}
OPTIONS = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=line"]
MEMORY = 12 << 30  # bytes of address space, which a mutant may not exceed


def limit_memory() -> None:
    """Of this process: a mutant that asks for more fails there, and the machine goes on."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Recorder:
    """A pytest plugin that names the test in coverage's data while it runs, and remembers times of those that pass."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.measured.switch_context(item.nodeid)
        start = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - start
        self.measured.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


def measure(out: Path, tests: list[str]) -> None:
    """Run tests and write ``{"tests": {test: seconds}, "lines": {file: {line: [number of test, ...]}}}``."""
    limit_memory()
    measured = coverage.Coverage(data_file=None, source=PACKAGES, config_file=False)
    recorder = Recorder(measured)
    measured.start()
    status = pytest.main([*OPTIONS, *tests], plugins=[recorder])
    measured.stop()
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(int(status))
    data, root = measured.get_data(), Path.cwd()
    passed = {test: seconds for test, seconds in recorder.seconds.items() if test not in recorder.failed}
    number = {test: i for i, test in enumerate(passed)}
    lines = {
        str(Path(file).relative_to(root)): {
            line: [number[test] for test in contexts if test in number]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    out.write_text(json.dumps({"tests": passed, "lines": lines}))


def concerned(paths: Iterable[str]) -> list[str]:
    """Tests that may run some files: those of their folders, and what `CONCERNED` has."""
    found: set[str] = set()
    for path in set(paths):
        others = [test for folder, tests in CONCERNED.items() if path.startswith(folder) for test in tests]
        own = PurePosixPath("tests", PurePosixPath(path).parent)
        while not Path(own).is_dir():
            own = own.parent
        found.update(others if others and len(own.parts) == 2 else [*others, str(own)])
    return sorted(test for test in found if not any(str(above) in found for above in PurePosixPath(test).parents))


@dataclass(frozen=True)
class Tests:
    """What was measured."""

    __test__ = False

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]

    @classmethod
    def read(cls, path: Path) -> Tests:
        """Read what `measure` wrote."""
        found = json.loads(path.read_text())
        names = list(found["tests"])
        lines = {
            file: {int(line): [names[number] for number in numbers] for line, numbers in of_lines.items()}
            for file, of_lines in found["lines"].items()
        }
        return cls(found["tests"], lines)

    def concerning(self, path: str, line: int, limit: float) -> list[str]:
        """Tests that run a line, or any of its file where none does (what is compiled, and what importing runs).

        Those of the file's own folder come first, then the others, quick ones before slow ones, up to a sum of seconds.
        """
        of_file = self.lines.get(path, {})
        found = set(of_file.get(line, ())) or {test for tests in of_file.values() for test in tests}
        own = f"tests/{PurePosixPath(path).parent}/"
        chosen, total = [], 0.0
        for test in sorted(found, key=lambda test: (not test.startswith(own), self.seconds[test], test)):
            if total + self.seconds[test] <= limit:
                total += self.seconds[test]
                chosen.append(test)
        return chosen


if __name__ == "__main__":
    measure(Path(sys.argv[1]), sys.argv[2:])
