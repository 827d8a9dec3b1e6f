"""A progress bar by geolevel, on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

WIDTH = 24


class LevelBar:
    """Shows on a terminal, and nowhere else, which geolevel is at work: call it as each begins.

    Parameters
    ----------
    step : str
        What is done to every level, for instance ``"reading"``.
    """

    def __init__(self, step: str) -> None:
        self._step = step
        self._shown = 0

    def __call__(self, geolevel: str, number: int, levels: int) -> None:
        """Show that `number` of `levels` geolevels are done and `geolevel` is next."""
        self._show(f"{self._step} [{'#' * (WIDTH * number // levels):<{WIDTH}}] {number + 1}/{levels} {geolevel}")

    def __enter__(self) -> LevelBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._shown:
            self._show("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:<{self._shown}}", end="", file=sys.stderr, flush=True)
            self._shown = len(text)
