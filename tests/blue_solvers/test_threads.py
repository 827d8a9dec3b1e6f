"""One setting for threads, and the same answer, to the last bit, for every number of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from blue_solvers import TwoPass, blue, thread_limit
from blue_solvers.components.flat import shared_steps
from blue_solvers.threads import VARIABLE, WORTH_BYTES, Workers, threads
from constraint_builders import Problem, Schema, Spine, gallery

EXACT = {"v0 * v1": 0.0}


def up_to_three(levels: list[int], exact: dict[str, float] | None = None) -> Problem:
    names = [f"v{i}" for i in range(len(levels))]
    tables = {" * ".join(own): 1.0 + len(own) for way in (1, 2, 3) for own in combinations(names, way)}
    recodes = {"v0": {"coarse": [i // 2 for i in range(levels[0])]}}
    schema = Schema(dict(zip(names, levels, strict=True)), recodes=recodes)
    return Problem(schema, tables | {"coarse * v1": 2.0} | (exact or {}))


def spine_of_blocks() -> Problem:
    rng = np.random.default_rng(3)
    tract_of = np.sort(rng.integers(0, 40, 700))
    geoids = [f"{tract:03}{block:04}" for block, tract in enumerate(tract_of)]
    spine = Spine.from_geoids(geoids, {"Tract": 3, "Block": 7}, root="State")
    schema = gallery.pl94().schema
    assert schema is not None
    tables = {"total": 1.0, "hispanic * cenrace": 3.0, "detailed": 9.0}
    return Problem(schema, dict.fromkeys(("State", "Tract", "Block"), tables), spine=spine, desired="all")


CASES: dict[str, Callable[[], Problem]] = {
    "up to three-way": lambda: up_to_three([12] * 11),
    "with what is exact": lambda: up_to_three([12] * 11, EXACT),
    "one large table": lambda: gallery.cube(7, 7),
    "a spine": spine_of_blocks,
}


@pytest.mark.parametrize("name", CASES)
def test_answers_do_not_depend_on_the_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = CASES[name]()
    monkeypatch.setattr("blue_solvers.threads.WORTH_BYTES", 1e6)
    monkeypatch.setattr(shared_steps, "WORTH_BYTES", 1e6)
    submitted, submit = [], Workers._submit
    monkeypatch.setattr(Workers, "_submit", lambda own, *item: submitted.append(own) or submit(own, *item))
    P = blue(problem, TwoPass() if name == "a spine" else "sea_blue")
    rng = np.random.default_rng(0)
    y, v = rng.normal(size=problem.observed.size), rng.normal(size=problem.desired.size)
    found = []
    for count in (1, 2, 3):
        with thread_limit(count):
            before = threading.active_count()
            found.append((P @ y, P.T @ v))
            assert threading.active_count() == before
            assert bool(submitted) == (count > 1 and name != "one large table")  # whose steps threads cannot share
    for x, pulled in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        np.testing.assert_array_equal(pulled, found[0][1])
    assert abs(v @ found[0][0] - y @ found[0][1]) <= 1e-9 * np.linalg.norm(v) * np.linalg.norm(found[0][0])


def test_steps_cut_in_parts_are_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = up_to_three([5, 4, 3, 6, 5, 4, 3], EXACT)
    y = np.random.default_rng(0).normal(size=problem.observed.size)
    whole = blue(problem, "sea_blue")
    monkeypatch.setattr(shared_steps, "WORTH_BYTES", 0)
    monkeypatch.setattr(shared_steps, "MOST_BESIDE", 10.0)
    cut = blue(problem, "sea_blue")
    assert len(whole.variances()) == problem.desired.size
    np.testing.assert_allclose(cut @ y, whole @ y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cut.T @ y, whole.T @ y, rtol=0, atol=1e-12)


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    assert threads() == 3
    monkeypatch.setenv(VARIABLE, "nonsense")
    assert threads() >= 1
    monkeypatch.delenv(VARIABLE)
    assert threads() >= 1
    with thread_limit(2):
        assert threads() == 2
        with thread_limit(5):
            assert threads() == 5
        assert threads() == 2
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="give a whole number of 1 or more"):
            thread_limit(wrong)  # type: ignore[arg-type]
    assert threads() >= 1


def test_workers_keep_the_order_and_pass_on_what_goes_wrong() -> None:
    with thread_limit(3):
        with Workers(WORTH_BYTES) as workers:
            assert list(workers.in_order(lambda n: n * n, range(50))) == [n * n for n in range(50)]
        with Workers(WORTH_BYTES - 1) as workers:
            own = threading.get_ident()
            assert set(workers.in_order(lambda _: threading.get_ident(), range(5))) == {own}
        done = []

        def work(number: int) -> None:
            if number == 3:
                raise ArithmeticError("three")
            done.append(number)

        with pytest.raises(ArithmeticError, match="three"), Workers(WORTH_BYTES) as workers:
            workers.for_each(work, range(1000))
        assert len(done) < 100


def test_states_of_numpy_go_along() -> None:
    refused = pytest.raises(FloatingPointError)
    with thread_limit(2), np.errstate(divide="raise"), refused, Workers(WORTH_BYTES) as workers:
        workers.for_each(lambda n: np.ones(3) / n, [np.zeros(3)] * 4)
