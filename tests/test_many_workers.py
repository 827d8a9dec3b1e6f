"""Operators and estimates are the same, to the last bit, from many threads and many processes as from one."""

import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import pytest

from blue_solvers import BlueOperator, blue, estimate
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.arrays import Float
from noise_mechanisms import add_noise
from tests.helpers.every import every
from tests.helpers.places import ROOT

WORKERS, COLUMNS = 4, 12
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "flat": gallery.berkeley,
    "spine": lambda: Problem(
        Schema({"sex": 2, "age": 3}),
        {"State": {"total": 1.0, "sex": 2.0}, "County": {"detailed": 3.0}, "Tract": {"detailed": 9.0}},
        spine=Spine.from_geoids(
            [f"44{county:03}{tract:06}" for county in (1, 3) for tract in range(4)],
            {"State": 2, "County": 5, "Tract": 11},
        ),
    ),
    "unequal": lambda: gallery.berkeley().with_variances(
        np.random.default_rng(0).uniform(1, 9, gallery.berkeley().observed.size)
    ),
}
SOLVERS = [("flat", "auto"), ("flat", "dense"), ("spine", "two_pass"), ("unequal", "cholesky"), ("unequal", "cg")]


def measured(problem: Problem) -> Float:
    return np.random.default_rng(1).normal(50, 9, (problem.observed.size, COLUMNS))


def applied(P: BlueOperator, y: Float) -> tuple[Float, Float]:
    """What a worker does, with an operator that it was sent."""
    return P.estimate(y, certify=False).values, P.variances()


def described(name: str, solver: Any, y: Float) -> Float:
    """What a worker does that makes its own operator."""
    return estimate(PROBLEMS[name](), y, solver).values


@every(("name", "solver"), SOLVERS)
def test_threads_share_an_operator(name: str, solver: Any) -> None:
    problem = PROBLEMS[name]()
    Y = measured(problem)
    alone = blue(problem, solver)
    expected = [applied(alone, y) for y in Y.T]
    shared = blue(PROBLEMS[name](), solver)  # nothing that it keeps was worked out yet
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda y: applied(shared, y), Y.T))
    for (own_values, own_variances), (values, variances) in zip(expected, found, strict=True):
        np.testing.assert_array_equal(values, own_values)
        np.testing.assert_array_equal(variances, own_variances)


def test_threads_describe_and_simulate_each_for_itself() -> None:
    def work(seed: int) -> Float:
        problem = gallery.berkeley()
        assert problem.truth is not None
        return estimate(problem, add_noise(problem, problem.truth, seed)).values

    expected = [work(seed) for seed in range(2 * WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(work, range(2 * WORKERS)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_are_sent_an_operator(method: str) -> None:
    """Made before the workers are, also where they are copies of a process that has worked already."""
    problem = PROBLEMS["spine"]()
    P = blue(problem)
    Y = measured(problem)
    expected = [applied(P, y) for y in Y.T]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        found = list(pool.map(applied, [P] * COLUMNS, list(Y.T)))
    for (own_values, own_variances), (values, variances) in zip(expected, found, strict=True):
        np.testing.assert_array_equal(values, own_values)
        np.testing.assert_array_equal(variances, own_variances)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib(backend: str) -> None:
    problem = PROBLEMS["unequal"]()
    Y = measured(problem)
    expected = [described("unequal", "auto", y) for y in Y.T[:4]]
    with joblib.parallel_config(backend=backend, n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(described)("unequal", "auto", y) for y in Y.T[:4])
    np.testing.assert_array_equal(found, expected)


IN_A_THREAD = """
import threading
said = []
def work():
    import blue_solvers
    from constraint_builders import gallery
    said.append(blue_solvers.blue(gallery.toy()).shape)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(said)
"""


def test_the_first_import_may_be_in_a_thread() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", IN_A_THREAD], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[(")


def test_the_library_leaves_logging_and_global_randomness_as_they_were() -> None:
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    before = np.random.get_state()  # noqa: NPY002  what others may use
    problem = gallery.berkeley()
    for solver in ("auto", "cg", "multigrid"):
        estimate(problem, np.arange(float(problem.observed.size)), solver)  # type: ignore[arg-type]
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == (handlers, level)
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(own, other) for own, other in zip(before, after, strict=True))
