"""How long a proof may take: what works for long asks now and then whether there is time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from blue_solvers.verification.weighed_noise import FinalError


class TooLongError(FinalError):
    """A proof took longer than it may."""


_LIMIT: ContextVar[tuple[float, float] | None] = ContextVar("seconds of a proof, and when they end", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End proofs once they took so many seconds of their thread's processor; within another limit that one holds."""
    if _LIMIT.get() is not None:
        yield
        return
    token = _LIMIT.set((seconds, time.thread_time() + seconds))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def require_time() -> None:
    """Raise `TooLongError` once a proof took longer than it may."""
    seconds, end = _LIMIT.get() or (0.0, np.inf)
    if end < np.inf and time.thread_time() > end:
        raise TooLongError(f"its proof was stopped after {seconds:.2g} s; certify(problem, y, x) goes on to the end")
