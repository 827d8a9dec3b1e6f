"""How long a proof may take: what works for long asks now and then whether there is time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from blue_solvers.verification.weighed_noise import FinalError


class TooLongError(FinalError):
    """A proof took longer than it may."""


class _TimeLimit:
    """So many seconds of this thread's processor, which go no faster than those of a clock, cheaper to ask."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._ends = seconds, time.thread_time() + seconds
        self._earliest = time.perf_counter() + seconds

    def require_time(self) -> None:
        if time.perf_counter() < self._earliest:
            return
        left = self._ends - time.thread_time()
        if left < 0:
            raise TooLongError(
                f"its proof was stopped after {self._seconds:.2g} s; certify(problem, y, x) goes on to the end"
            )
        self._earliest = time.perf_counter() + left


_LIMIT: ContextVar[_TimeLimit | None] = ContextVar("limit of a proof", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End proofs once they took so many seconds of their thread's processor; within another limit that one holds."""
    if _LIMIT.get() is not None:
        yield
        return
    token = _LIMIT.set(_TimeLimit(seconds))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def require_time() -> None:
    """Raise `TooLongError` once a proof took longer than it may."""
    limit = _LIMIT.get()
    if limit is not None:
        limit.require_time()
