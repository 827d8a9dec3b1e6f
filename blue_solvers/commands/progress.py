"""What is being done: at once on a terminal, and a line now and then where the standard error goes elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from blue_solvers.commands.screen import tell

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
        so_far = duration(self.spoke - self.began)
        tell(f"blue-solvers: {text}, {so_far} so far")


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
