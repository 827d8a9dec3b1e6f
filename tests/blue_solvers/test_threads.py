"""One setting for threads, and the same answer, to the last bit, for every number of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from blue_solvers import TwoPass, blue, column_units, thread_limit
from blue_solvers.components.tree import tree_form
from blue_solvers.threads import VARIABLE, WORTH_BYTES, Workers, threads
from constraint_builders import Problem, Schema, Spine, gallery


def spine_of_blocks() -> Problem:
    rng = np.random.default_rng(3)
    tract_of = np.sort(rng.integers(0, 40, 700))
    geoids = [f"{tract:03}{block:04}" for block, tract in enumerate(tract_of)]
    spine = Spine.from_geoids(geoids, {"Tract": 3, "Block": 7}, root="State")
    schema = gallery.pl94().schema
    assert schema is not None
    tables = {"total": 1.0, "hispanic * cenrace": 3.0, "detailed": 9.0}
    return Problem(schema, dict.fromkeys(("State", "Tract", "Block"), tables), spine=spine, desired="all")


def spine_of_few_cells() -> Problem:
    geoids = [f"{tract:03}{block:04}" for tract in range(90) for block in range(60)]
    spine = Spine.from_geoids(geoids, {"Tract": 3, "Block": 7}, root="State")
    tables = {"total": 1.0, "race": 3.0, "adult * race": 9.0}
    schema = Schema({"adult": 2, "race": 8})
    return Problem(schema, dict.fromkeys(("State", "Tract", "Block"), tables), spine=spine, desired="all")


CASES: dict[str, Callable[[], Problem]] = {
    "a spine": spine_of_blocks,
    "a spine of few cells": spine_of_few_cells,
}


@pytest.mark.parametrize("name", CASES)
def test_answers_do_not_depend_on_the_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = CASES[name]()
    monkeypatch.setattr("blue_solvers.threads.WORTH_BYTES", 1e6)
    monkeypatch.setattr(tree_form, "BLOCK_BYTES", 1 << 18)
    monkeypatch.setattr(column_units, "WORTH_BYTES", np.inf)  # else the look at the values is shared anyway
    submitted, submit = [], Workers._submit
    monkeypatch.setattr(Workers, "_submit", lambda own, *item: submitted.append(own) or submit(own, *item))
    P = blue(problem, TwoPass())
    rng = np.random.default_rng(0)
    y, v = rng.normal(size=problem.observed.size), rng.normal(size=problem.desired.size)
    found = []
    for count in (1, 2, 3):
        with thread_limit(count):
            before = threading.active_count()
            found.append((P @ y, P.T @ v))
            assert threading.active_count() == before
            assert bool(submitted) == (count > 1)
    for x, pulled in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        np.testing.assert_array_equal(pulled, found[0][1])
    assert abs(v @ found[0][0] - y @ found[0][1]) <= 1e-9 * np.linalg.norm(v) * np.linalg.norm(found[0][0])


@pytest.mark.parametrize("row", [0, 70, 4095])
def test_values_are_looked_at_in_parts_alike(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finite ones in range, far ones, and what is no number, wherever it is."""
    problem = gallery.cube(4, 7)
    y = np.random.default_rng(0).normal(size=problem.observed.size) + 10
    far = np.full_like(y, 1e-120)
    far[0], far[row] = 1.0, 1e130
    P = blue(problem)
    expected = P @ far
    monkeypatch.setattr(column_units, "WORTH_BYTES", 0)
    monkeypatch.setattr("blue_solvers.threads.WORTH_BYTES", 0)
    looked, submit = [], Workers._submit
    monkeypatch.setattr(Workers, "_submit", lambda own, *item: looked.append(own) or submit(own, *item))
    for count in (1, 3):
        with thread_limit(count):
            np.testing.assert_array_equal(P @ far, expected)
            assert bool(looked) == (count > 1)
            for wrong in (np.nan, np.inf):
                values = y.copy()
                values[row] = wrong
                with pytest.raises(ValueError, match="give a finite number"):
                    P @ values


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
