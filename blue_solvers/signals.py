"""Signals that end the command ``blue-solvers``: one line, whenever they come.

This module is the first that the package loads, and installs `end_at_once` if the process is the command: while
packages are loaded there is nothing to clean up, and an exception from amid their loading would be shown at length.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any

SIGNALS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
STDERR = 2
COMMAND, MODULE = "blue-solvers", "blue_solvers.cli"


def numbers() -> list[signal.Signals]:
    """Those that the system has, and that nobody asked this process to ignore."""
    known = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


def end_at_once(number: int, frame: FrameType | None) -> None:
    """Say what came and end the process, with nothing else said."""
    with suppress(OSError):
        os.write(STDERR, f"{COMMAND}: {SIGNALS[signal.Signals(number).name]}\n".encode())
    os._exit(128 + number)


class Signalled(KeyboardInterrupt):
    """A signal came. Not a plain `KeyboardInterrupt`: a process in which one left `exec` loses its exit code."""


class Unwinding:
    """Turns these signals into `Signalled`, so that temporary files are removed.

    Parameters
    ----------
    forever : bool
        Whether they are ignored afterwards, since the process is to end; otherwise they do what they did.

    Attributes
    ----------
    received : signal.Signals or None
    """

    def __init__(self, forever: bool) -> None:
        self.received: signal.Signals | None = None
        self._forever = forever
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook

    def __enter__(self) -> Unwinding:
        try:
            for number in numbers():
                self._before[number] = signal.signal(number, self._raise)
        except ValueError:  # not the main thread: signals are not ours
            return self
        sys.unraisablehook = self._raise_again
        return self

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        raise Signalled

    def _raise_again(self, error: Any) -> None:
        """An exception in a destructor is dropped: raise it anew, a moment later."""
        if self.received is None or error.exc_type is not Signalled:
            self._hook(error)
            return
        number = int(self.received)
        signal.signal(signal.SIGALRM, lambda *_: self._raise(number, None))
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    def message(self) -> tuple[str, int]:
        """What came, in a word, and the exit code."""
        number = self.received or signal.SIGINT
        return SIGNALS[number.name], 128 + number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._forever else before)
        sys.unraisablehook = self._hook
        if error is not None and isinstance(error.__cause__, Signalled):  # in a class that was being made
            raise error.__cause__


def _is_command() -> bool:
    started = ("-m", MODULE) in pairwise(sys.orig_argv) or f"-m{MODULE}" in sys.orig_argv
    return os.path.splitext(os.path.basename(sys.argv[0]))[0] == COMMAND or started


if _is_command():
    for _number in numbers():
        signal.signal(_number, end_at_once)
