"""What the command says: lines, progress at work, doubt as an exit code; what libraries print is kept from it.

The one place that writes to the standard output and the standard error. What is being done is said at once on a
terminal, and in a line now and then where the standard error goes elsewhere.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TextIO

from constraint_builders.printable import printable


class Screen:
    """The standard streams, which may be closed, full, or read by nobody any more: the work goes on.

    Attributes
    ----------
    lost : OSError or None
        Why not all that was said to the standard output is there.
    """

    def __init__(self) -> None:
        self.lost: OSError | None = None

    def open(self) -> None:
        """Begin; streams that were closed lead nowhere, or a file that is opened next would take their place."""
        self.lost = None
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            try:
                os.fstat(number)
            except OSError:
                _lead_nowhere(number)
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))
        if isinstance(sys.stdout, io.TextIOWrapper):  # labels that a terminal has no letters for are no reason to stop
            sys.stdout.reconfigure(errors="backslashreplace")

    def say(self, *lines: str) -> None:
        """Write lines to the standard output; an empty one if there is none."""
        try:
            print(*map(printable, lines), sep="\n")
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        """Make sure that all is written."""
        try:
            sys.stdout.flush()
        except OSError as error:
            self._lose(error)

    def tell(self, line: str, start: str = "", end: str = "\n") -> None:
        """Write a line to the standard error, or, with another start and end, over the line before."""
        try:
            print(f"{start}{printable(line)}", end=end, file=sys.stderr, flush=True)
        except OSError:
            _silence(sys.stderr)

    def _lose(self, error: OSError) -> None:
        self.lost = self.lost or error
        _silence(sys.stdout)


def _silence(stream: TextIO) -> None:
    """Let what a stream still holds, and all that comes, go nowhere: Python would complain when it ends."""
    with suppress(OSError):
        _lead_nowhere(stream.fileno())


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


SCREEN = Screen()
say, tell = SCREEN.say, SCREEN.tell


WIDTH = 24
EVERY = 15.0  # seconds between lines outside a terminal: a log is to show that work goes on, no more
LEAST = 5.0  # seconds of work from which the rest of it is projected


class Clock:
    """When the command began, and when it last said something."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A command begins."""
        self.began = self.spoke = time.monotonic()

    def is_due(self) -> bool:
        """Whether a line is due outside a terminal."""
        return time.monotonic() - self.spoke >= EVERY

    def say(self, text: str) -> None:
        """Print a line that ends in how long the command has been at work."""
        self.spoke = time.monotonic()
        tell(f"blue-solvers: {text}, {duration(self.spoke - self.began)} so far")


CLOCK = Clock()


def progress(step: str) -> None:
    """Say what is being done."""
    if sys.stderr.isatty():
        tell(f"blue-solvers: {step} ...")
    elif CLOCK.is_due():
        CLOCK.say(step)


def duration(seconds: float) -> str:
    """Seconds in words.

    Examples
    --------
    >>> [duration(s) for s in (0.2, 59, 61, 3601, 90_000)]
    ['0 s', '59 s', '1 min 1 s', '1 h 0 min', '25 h 0 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


class LevelBar:
    """Shows which geolevel, or which of many parts, is at work: call it as each begins.

    Parameters
    ----------
    step : str
        What is done to every one, for instance ``"reading"``.
    alike : bool
        Whether each takes as long as every other, so that the time left follows from the time taken.
    """

    def __init__(self, step: str, alike: bool = False) -> None:
        self._step, self._alike = step, alike
        self._shown = 0
        self._begun: tuple[float, int, int] | None = None
        CLOCK.spoke = max(CLOCK.spoke, time.monotonic() - EVERY / 2)  # what has just begun has nothing to say yet

    def __call__(self, part: str, number: int, parts: int) -> None:
        """Show that `number` of `parts` are done and `part` is next."""
        number_now = min(number + 1, parts)
        left = self._left(number, parts)
        if sys.stderr.isatty():
            done = f"[{'#' * (WIDTH * number // max(parts, 1)):<{WIDTH}}]"
            self._show(f"{self._step} {done} {number_now}/{parts} {part}{left}")
        elif CLOCK.is_due():
            CLOCK.say(f"{self._step} {part}, {number_now} of {parts}{left}")

    def _left(self, number: int, parts: int) -> str:
        """How much longer it takes, once enough is known for that."""
        now = time.monotonic()
        if self._begun is None or self._begun[2] != parts:
            self._begun = now, number, parts
        start, first, _ = self._begun
        if not self._alike or number <= first or now - start < LEAST:
            return ""
        return f", about {duration((now - start) * (parts - number) / (number - first))} left"

    def __enter__(self) -> LevelBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._shown:
            self._show("")
            tell("", start="\r", end="")

    def _show(self, text: str) -> None:
        tell(text.ljust(self._shown), start="\r", end="")
        self._shown = len(text)


STDERR = 2


@contextmanager
def reading() -> Iterator[None]:
    """Read files: what libraries print to the standard error meanwhile is dropped if the files are refused.

    The library that reads Parquet files prints a page about some damaged ones before it says that they are.
    """
    import tempfile  # which loads much, for those who read

    try:
        terminal = os.dup(STDERR)
    except OSError:  # there is no standard error
        yield
        return
    python, refused = sys.stderr, False
    with os.fdopen(terminal, "w", buffering=1, errors="backslashreplace") as ours, tempfile.TemporaryFile() as said:
        with suppress(OSError):
            python.flush()
        if python is sys.__stderr__:
            sys.stderr = ours
        os.dup2(said.fileno(), STDERR)
        try:
            yield
        except (ValueError, OSError, MemoryError):
            refused = True
            raise
        finally:
            sys.stderr = python
            os.dup2(terminal, STDERR)
            if not refused:
                said.seek(0)
                with suppress(OSError):  # nobody reads it any more
                    os.write(STDERR, said.read())


class DoubtfulError(Exception):
    """All was done that was asked for, and there is doubt about what was measured."""


def refuse_doubt(args: argparse.Namespace, *doubts: str) -> None:
    """End with doubt, if there is some and it is asked about; empty ones are none.

    Raises
    ------
    DoubtfulError
    """
    if args.strict and any(doubts):
        raise DoubtfulError(f"--strict: {'; '.join(filter(None, doubts))}")
