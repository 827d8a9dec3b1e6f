"""Work that is counted instead of timed: the same on any machine, however busy."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def lines_run(module: ModuleType, work: Callable[[], object]) -> int:
    """How many lines of a module's Python run while something works, each as often as it does."""
    count, before = 0, sys.gettrace()

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return traced

    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
