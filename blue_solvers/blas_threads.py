"""One BLAS thread inside iterations and factorisations, whose products are small: more would slow them down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any
from weakref import WeakSet


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS libraries to one thread, until the last that is inside leaves.

    Most have one limit for the process: the first to come in sets it and the last to leave takes it back, whichever
    threads these are. Others have a limit for every thread that calls them.
    """
    own, visitor = _of_this_thread(), _Visitor()
    try:
        with _lock:
            _of_the_process.enter(visitor)
        own.enter(visitor)
        yield
    finally:
        try:
            own.leave(visitor)
        finally:
            with _lock:
                _of_the_process.leave(visitor)


class _Visitor:
    """Somebody inside; who was interrupted while leaving is forgotten."""


class _Limit:
    """A limit on some libraries, as long as somebody is inside."""

    def __init__(self, libraries: Callable[[], list[Any]]) -> None:
        self._libraries = libraries
        self._inside: WeakSet[_Visitor] = WeakSet()
        self._before: list[tuple[Any, int]] = []  # those limited, with the threads that they had

    def enter(self, visitor: _Visitor) -> None:
        if not self._inside:
            if not self._before:  # otherwise who left last was interrupted
                own = [(library, library.num_threads) for library in self._libraries()]
                self._before = [(library, count) for library, count in own if count != 1]
            for library, _ in self._before:
                _set_threads(library, 1)
        self._inside.add(visitor)

    def leave(self, visitor: _Visitor) -> None:
        self._inside.discard(visitor)
        if not self._inside:
            for library, count in self._before:
                _set_threads(library, count)
            self._before = []


def _set_threads(library: Any, count: int) -> None:
    """Whichever thread set it before: from version 3.8 on threadpoolctl would leave a limit to that thread alone."""
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of the process, none without threadpoolctl: finding them takes milliseconds."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:  # not everywhere to be had, in a browser for one
        return []
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _is_by_thread(library: Any) -> bool:
    """Whether the limit is that of the thread that sets it."""
    return bool(library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp")


def _of_this_thread() -> _Limit:
    if not hasattr(_threads, "limit"):
        _threads.limit = _Limit(lambda: [library for library in _libraries() if _is_by_thread(library)])
    limit: _Limit = _threads.limit
    return limit


_lock = Lock()
_of_the_process = _Limit(lambda: [library for library in _libraries() if not _is_by_thread(library)])
_threads = local()
