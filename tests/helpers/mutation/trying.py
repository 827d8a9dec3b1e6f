"""Run the tests that concern a mutant against it, in a process of its own: it is killed where one of them fails.

Run this in a copy of the repository: files are changed where they lie. Libraries are imported once, before the
processes part.
"""

import importlib
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.mutation.lines_of_tests import OPTIONS, Tests, limit_memory
from tests.helpers.mutation.sampling import Mutant

LIBRARIES = [
    "numpy",
    "scipy.linalg",
    "scipy.sparse.linalg",
    "scipy.stats",
    "polars",
    "numba",
    "pandas",
    "flint",
    "hypothesis.extra.numpy",
    "xdist.plugin",
]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: whether it was killed, by what, how many tests were run and how long they took."""

    killed: bool
    by: str
    tests: int
    seconds: float


@contextmanager
def written(path: Path, text: str) -> Iterator[None]:
    """A file has another text for a while."""
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


def attempt(mutant: Mutant, tests: Tests, limit: float) -> Outcome:
    """Try one, with tests that take up to `limit` seconds where all is well; it may take them three times as long."""
    chosen = tests.concerning(mutant.path, mutant.line, limit)
    if not chosen:
        return Outcome(False, "no test runs it", 0, 0.0)
    allowed = 30.0 + 3.0 * sum(tests.seconds[test] for test in chosen)
    path, start = Path(mutant.path), time.perf_counter()
    with written(path, mutant.text(path.read_text())):
        by = failure(chosen, allowed)
    return Outcome(bool(by), by, len(chosen), time.perf_counter() - start)


def failure(chosen: list[str], allowed: float) -> str:
    """What fails of some tests in at most so many seconds, in a process of their own; nothing if all pass."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(chosen,))
    process.start()
    process.join(allowed)
    late = process.is_alive()
    if late:
        process.kill()
        process.join()
    shutil.rmtree(".hypothesis", ignore_errors=True)  # examples that another mutant failed
    if late:
        return f"more than {allowed:.0f} s"
    return _first_failure(Path("said.txt").read_text()) if process.exitcode else ""


def _run(chosen: list[str]) -> None:
    """The forked process: nothing of ours has been imported but these helpers."""
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    limit_memory()
    imported = "ignore:Module already imported so cannot be rewritten"
    status = pytest.main([*OPTIONS, "--exitfirst", "-W", imported, *chosen])
    sys.stdout.flush()
    os._exit(int(status))


def _first_failure(said: str) -> str:
    """The first line of pytest's summary."""
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0][:200] if lines else said[-200:].replace("\n", " ")


def import_libraries() -> None:
    """What every process would import again."""
    for name in LIBRARIES:
        importlib.import_module(name)
