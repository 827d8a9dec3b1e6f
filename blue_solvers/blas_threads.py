"""One BLAS thread inside iterations and factorisations, whose products are small: more would slow them down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = Lock()
_inside = 0  # how many are in `one_blas_thread` now, in whatever thread
_before: list[tuple[Any, int]] = []  # libraries that were limited, with the threads that they had


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the BLAS of the process to one thread, until the last that is inside leaves.

    The limit belongs to the process: the first to come in sets it and the last to leave takes it back, whichever
    threads these are.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside
    with _lock:
        if not _inside:
            _before[:] = [(library, count) for library in _libraries() if (count := library.num_threads) != 1]
            for library, _ in _before:
                library.set_num_threads(1)
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if not _inside:
            for library, count in _before:
                library.set_num_threads(count)


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of the process: finding them takes milliseconds."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
