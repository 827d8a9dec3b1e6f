"""The BLAS of the process is limited while solvers work, by any number of threads, and given back afterwards."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController, threadpool_limits

from blue_solvers import blas_threads, blue, certify
from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.verification import matrices
from constraint_builders import Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.every import every

CONTROLLER = ThreadpoolController().select(user_api="blas")


def counts() -> list[int]:
    """Threads of every BLAS library."""
    return [library.num_threads for library in CONTROLLER.lib_controllers]


@pytest.fixture(autouse=True)
def _two_threads():
    before = counts()
    threadpool_limits(2, user_api="blas")  # nobody holds it: any thread may change it
    if 2 not in counts():
        pytest.skip("this BLAS has one thread only")
    yield
    for library, count in zip(CONTROLLER.lib_controllers, before, strict=True):
        library.set_num_threads(count)


def unequal() -> tuple[Problem, np.ndarray]:
    rng = np.random.default_rng(0)
    observed = {"total": 1.0, "a": rng.uniform(1, 2, 30), "a * b": rng.uniform(1, 2, (30, 20))}
    problem = Problem(Schema({"a": 30, "b": 20}), observed)
    return problem, rng.normal(50, 5, (problem.observed.size, 8))


@every("solver", ["cholesky", "cg", "dense"])
def test_eight_threads_on_one_operator(solver: str) -> None:
    problem, Y = unequal()
    P = blue(problem, solver)
    with one_blas_thread():
        expected = [P @ y for y in Y.T]
    before = counts()
    barrier = threading.Barrier(8)

    def work(k: int) -> bool:
        barrier.wait()
        return all(np.array_equal(P @ Y[:, k], expected[k]) for _ in range(25))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert counts() == before


def test_variances_from_eight_threads_give_the_threads_back() -> None:
    problem, _ = unequal()
    P = blue(problem, "cholesky")
    expected, before = P.variances(), counts()
    with ThreadPoolExecutor(8) as pool:
        assert all(np.array_equal(own, expected) for own in pool.map(lambda _: P.variances(), range(16)))
    assert counts() == before


def elsewhere(work) -> None:
    """Do it in another thread."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@examples(30)
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 2))
def test_whoever_leaves_last(order: list[int], threads: int) -> None:
    """Threads come in and leave in any order; while one is inside there is one thread, and then what there was."""
    with threadpool_limits(threads, user_api="blas"):
        before, inside = counts(), {}
        for k in order:
            if k in inside:
                leaving = inside.pop(k)
                elsewhere(lambda leaving=leaving: leaving.__exit__(None, None, None))
            else:
                inside[k] = one_blas_thread()
                elsewhere(inside[k].__enter__)
            assert counts() == ([1] * len(before) if inside else before)
        for own in inside.values():
            own.__exit__(None, None, None)
        assert counts() == before


def test_an_error_inside_gives_the_threads_back() -> None:
    before = counts()

    @one_blas_thread()
    def fail() -> None:
        assert set(counts()) == {1}
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert counts() == before


@pytest.mark.parametrize("moment", [1, 2])
def test_an_interrupt_on_the_way_is_made_good_by_the_next_visitor(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While threads are limited, or given back."""
    with threadpool_limits(2, user_api="blas"):
        before, real, calls = counts(), blas_threads._set_threads, [0]

        def set_threads(library: object, count: int) -> None:
            calls[0] += 1
            if calls[0] == (1 if moment == 1 else len(before) + 1):
                raise KeyboardInterrupt
            real(library, count)

        with monkeypatch.context() as patch:
            patch.setattr(blas_threads, "_set_threads", set_threads)
            with pytest.raises(KeyboardInterrupt):
                one_blas_thread()(dict)()
        with one_blas_thread():
            assert set(counts()) == {1}
        assert counts() == before


def test_proofs_by_lists_take_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.zeros((1, 19))
    row[0, :4] = 1
    observed = {"a": 1.0, "b": [1.0, 2.0, 3.0], "a * b": np.arange(1.0, 13.0).reshape(4, 3)}
    problem = Problem(Schema({"a": 4, "b": 3}), observed, equalities=(row, [30.0]))
    y, before, seen = np.full(19, 2.0), counts(), []
    P, svd = blue(problem), np.linalg.svd
    monkeypatch.setattr(matrices.np.linalg, "svd", lambda *given, **how: (seen.append(counts()), svd(*given, **how))[1])
    certify(problem, y, P @ y + P.offset)
    assert {count for own in seen for count in own} == {1}
    assert counts() == before
