"""Long work is interrupted at any moment, at once, and leaves nothing behind that another run would stumble over."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import psutil
import pytest

from blue_solvers import benchmark, blue, certify, fit_test
from blue_solvers.nonnegative import nnls
from blue_solvers.streaming import partition
from constraint_builders import Problem, Schema, gallery
from noise_mechanisms import add_noise
from tests.helpers.effort import lengths
from tests.helpers.partitioned import assert_same, invented_problem
from tests.helpers.places import ROOT
from tests.helpers.spines import consistent_measurements

PROMPT = 5.0  # seconds of our processors at most; it takes a twentieth of one
AGAIN = 2.0  # seconds
Work = Callable[[Problem, Any], Any]


def unequal() -> Problem:
    shape = (6, 6, 6, 6)
    rng = np.random.default_rng(0)
    variances = {"detailed": rng.uniform(1, 50, shape), "a * b": rng.uniform(1, 5, shape[:2])}
    return Problem(Schema(dict.fromkeys("abcd", 6)), variances)


def hierarchy() -> Problem:
    groups = [np.repeat(np.arange(3000) // size, 1) for size in (3000, 100, 7)] + [np.arange(3000) % 10]
    rows = [(group[:, None] == np.unique(group)).T.astype(float) for group in groups]
    return Problem.from_summing_matrix(np.vstack([*rows, np.eye(3000)]), np.linspace(1, 3, sum(map(len, rows)) + 3000))


WORKS: dict[str, tuple[Callable[[], Problem], Work]] = {
    "closed form": (lambda: gallery.cube(8, 3), lambda p, y: blue(p) @ y),
    "describing": (unequal, lambda p, y: (unequal().rank, blue(p) @ y)[1]),
    "cg": (unequal, lambda p, y: blue(p, "cg") @ y),
    "multigrid": (unequal, lambda p, y: blue(p, "multigrid") @ y),
    "cholesky and variances": (hierarchy, lambda p, y: blue(p, "cholesky").variances()),
    "certificate": (hierarchy, lambda p, y: np.array(certify(p, y, blue(p) @ y).bound)),
    "fit": (unequal, lambda p, y: fit_test(p, y, draws=0).residuals),
    "non-negative": (unequal, lambda p, y: nnls(p, abs(y)).desired),
}


class Interrupt:
    """Raises `KeyboardInterrupt` in this thread after a while, as Ctrl-C does, and knows when.

    Python drops what is raised in a destructor, or in a callback of a weak reference: then a user presses once more.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.at = np.inf

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGALRM, self._raise)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, AGAIN)
        return self

    def _raise(self, *_: object) -> None:
        self.at = min(self.at, time.process_time())
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def interrupted(seconds: float, work: Callable[[], object]) -> float:
    """Interrupt work that would go on for ever; seconds until it ended."""
    with Interrupt(seconds) as own:
        try:
            while True:
                work()
        except KeyboardInterrupt:
            return time.process_time() - own.at


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.few(3)
@pytest.mark.parametrize("name", WORKS)
@lengths("times", 2, 40)
def test_the_library_at_any_moment(name: str, times: int) -> None:
    """And the same objects give the same to the last bit afterwards."""
    make, work = WORKS[name]
    problem = make()
    y = np.random.default_rng(1).normal(30, 5, problem.observed.size)
    start = time.perf_counter()
    before = work(problem, y)
    took = time.perf_counter() - start
    rng = random.Random(1)
    for _ in range(times):
        fresh = make()
        assert interrupted(rng.uniform(0.001, max(took, 0.05)), lambda own=fresh: work(own, y)) < PROMPT
        np.testing.assert_array_equal(work(fresh, y), before)


@pytest.mark.slow
def test_a_benchmark_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    problems, file = {"cube": gallery.cube(3, 3)}, tmp_path / "figures.jsonl"
    mine = psutil.Process()
    there = {child.pid for child in mine.children(recursive=True)}

    def work() -> None:
        benchmark(problems, ["two_pass", "dense", "cg"], resume=file)
        file.unlink()

    assert interrupted(1.0, work) < PROMPT
    left = [child for child in mine.children(recursive=True) if child.pid not in there]
    assert not psutil.wait_procs(left, timeout=PROMPT)[1]
    assert benchmark(problems, ["two_pass", "dense", "cg"], resume=file)["apply"].is_not_null().all()


@pytest.mark.few(0)
def test_a_run_on_dask_goes_on(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    from blue_solvers.streaming.cluster import estimate

    problem = invented_problem(3, 30)
    y = consistent_measurements(problem, 1)
    partition(tmp_path / "in", problem, y, at=problem.spine.levels[1])
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        for number, seconds in enumerate((0.02, 0.1, 0.3)):
            out = tmp_path / f"out{number}"
            with Interrupt(seconds) as own:
                try:
                    estimate(client, tmp_path / "in", out)
                except KeyboardInterrupt:
                    assert time.process_time() - own.at < PROMPT
            if own.at < np.inf:
                estimate(client, tmp_path / "in", out)
            assert_same(problem, y, blue(problem, "two_pass"), out)


@pytest.mark.few(0)
def test_workers_of_joblib_end_with_their_parent(tmp_path: Path) -> None:
    """Ctrl-C in a terminal goes to all of them."""
    (tmp_path / "mine.py").write_text(
        "import joblib, numpy as np\n"
        "from blue_solvers import blue\n"
        "from constraint_builders import gallery\n"
        "def work(seed):\n"
        "    problem = gallery.cube(4, 4)\n"
        "    for _ in range(100_000):\n"
        "        blue(problem) @ np.ones(problem.observed.size)\n"
        "if __name__ == '__main__':\n"
        "    print('begun', flush=True)\n"
        "    joblib.Parallel(2, backend='loky')(joblib.delayed(work)(seed) for seed in range(2))\n"
    )
    run = subprocess.Popen(
        [sys.executable, str(tmp_path / "mine.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with run:
        assert run.stdout.readline() == "begun\n"
        time.sleep(3)
        workers = psutil.Process(run.pid).children(recursive=True)
        os.killpg(run.pid, signal.SIGINT)
        assert run.wait(timeout=60) in (1, 130, -signal.SIGINT)
    assert not psutil.wait_procs(workers, timeout=60)[1]


def test_threads_are_told_to_stop_and_their_last_answers_are_right() -> None:
    """Python interrupts its main thread alone, amid the work of others; these end with the call that they are at."""
    problem, stop = unequal(), Event()
    y = np.random.default_rng(1).normal(30, 5, problem.observed.size)
    expected = blue(problem, "cg") @ y

    def work() -> tuple[int, np.ndarray]:
        calls = 0
        while True:
            answer, calls = blue(problem, "cg") @ y, calls + 1
            if stop.is_set():
                return calls, answer

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(work) for _ in range(2)]
        try:
            with Interrupt(0.3), pytest.raises(KeyboardInterrupt):
                wait(waiting)
            assert not any(own.done() for own in waiting)
        finally:
            stop.set()
    for calls, answer in (own.result() for own in waiting):
        assert calls > 0
        np.testing.assert_array_equal(answer, expected)


def test_numba_is_imported_whole(tmp_path: Path) -> None:
    """An interrupt amid the import of a library is no reason for every later call to fail."""
    numba = pytest.importorskip("numba")
    script = (
        "import signal, numpy as np\n"
        "from blue_solvers import blue\n"
        "from constraint_builders import gallery\n"
        "from constraint_builders.compiled import KERNELS\n"
        "def interrupt(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGALRM, interrupt)\n"
        "problem = gallery.berkeley()\n"
        "blue(problem, 'dense')\n"
        "for kernel in KERNELS.values():\n"
        "    while True:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "        try:\n"
        "            kernel.compiled()\n"
        "            signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "            break\n"
        "        except KeyboardInterrupt:\n"
        "            pass\n"
        "assert blue(problem, 'cholesky').variances().min() > 0\n"
        "print(len(KERNELS))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert numba


def test_add_noise_and_chains() -> None:
    problem = gallery.cube(6, 4)
    truth = np.zeros(problem.observed.size)
    assert interrupted(0.3, lambda: add_noise(problem, truth, 1)) < PROMPT
