"""What the command says: the one place that writes to the standard output and the standard error."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
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
                nowhere = os.open(os.devnull, os.O_RDWR)
                setattr(sys, name, os.fdopen(nowhere, "w" if number else "r"))
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
