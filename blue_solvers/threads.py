"""The threads that one estimate may use: one setting for the process, and work shared among them.

Work is cut in the same parts whatever the number of threads, none of which needs another: answers do not depend on the
setting, to the last bit.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Any, TypeVar

from constraint_builders.compiled import load_at_once

Item = TypeVar("Item")

VARIABLE = "OMP_NUM_THREADS"  # which whoever shares a machine sets
WORTH_BYTES = 25e6  # that are moved, from which on threads pay
_limits: list[int] = []


class thread_limit:  # noqa: N801  as `threadpoolctl.threadpool_limits`
    """Let estimates use so many threads from now on, or inside a ``with`` block.

    By default they use ``OMP_NUM_THREADS`` if that is set, else every processor that the process may use. Only what
    moves 25 MB or more is shared among threads; results are the same for every number.

    Parameters
    ----------
    count : int
        1 or more.

    Raises
    ------
    ValueError
        If it is none of these.

    Examples
    --------
    >>> with thread_limit(1):
    ...     threads()
    1
    """

    def __init__(self, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"the number of threads is {count!r}: give a whole number of 1 or more")
        self._before = list(_limits)
        _limits[:] = [count]

    def __enter__(self) -> None:
        """It holds already."""

    def __exit__(self, *exception: object) -> None:
        _limits[:] = self._before


def threads() -> int:
    """How many threads an estimate may use."""
    if sys.platform == "emscripten":  # a browser: no thread can be started
        return 1
    if _limits:
        return _limits[0]
    said = os.environ.get(VARIABLE, "").partition(",")[0].strip()
    if said.isdecimal() and int(said):
        return int(said)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Workers:
    """Threads for the parts of one piece of work; the thread that asks only, where there is little.

    Parameters
    ----------
    nbytes : float
        That it moves.
    """

    def __init__(self, nbytes: float) -> None:
        self._count = threads() if nbytes >= WORTH_BYTES else 1
        if self._count > 1:
            load_at_once()  # whichever thread comes first
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def in_phases(self, work: Callable[[Item], Any], phases: Iterable[Iterable[Item]]) -> None:
        """Do one phase after the other, none of whose parts needs another of the phase."""
        for phase in phases:
            self.for_each(work, phase)

    def for_each(self, work: Callable[[Item], Any], items: Iterable[Item]) -> None:
        """Do the parts of some work, none of which needs another: each thread takes the next that is left."""
        if self._count < 2:
            for item in items:
                work(item)
            return
        left = deque(items)

        def next_part() -> list[Item]:
            try:
                return [left.popleft()]
            except IndexError:  # another thread has taken the last one
                return []

        def take_parts() -> None:
            try:
                while part := next_part():
                    work(*part)
            finally:
                left.clear()

        try:
            others = [self._submit(take_parts) for _ in range(min(self._count, len(left)) - 1)]
            take_parts()
        finally:
            left.clear()
        for other in others:
            if not other.cancel():  # what has not started has nothing left to do, and in work within work never would
                other.result()

    def _submit(self, task: Callable[[], None]) -> Future[None]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="blue_solvers")
        return self._pool.submit(copy_context().run, task)
