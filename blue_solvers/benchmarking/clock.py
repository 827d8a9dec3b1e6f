"""Times, copies and peak memory, taken side by side."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.compiled import compile_at_once

MOST_SECONDS = 30.0  # for all repeats of one thing
MOST_REPEATS = 200


def best_seconds(run: Callable[[], object], repeats: int = 5, least: float = 0.2) -> float:
    """Shortest time of several runs, more of them when they are short.

    Parameters
    ----------
    run : callable
    repeats : int
        At least so many, unless they take more than half a minute.
    least : float
        Seconds that all of them take together at least.
    """
    times: list[float] = []
    compile_at_once()
    gc.collect()
    while len(times) < repeats or (sum(times) < least and len(times) < MOST_REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        if sum(times) > MOST_SECONDS:
            break
    return min(times)


def copy_seconds(*arrays: NDArray[Any]) -> float:
    """Time to copy some arrays once, into memory at hand."""
    places = [np.empty_like(array) for array in arrays]

    def copy() -> None:
        for place, array in zip(places, arrays, strict=True):
            np.copyto(place, array)

    return best_seconds(copy)


def peak_bytes() -> int:
    """Largest resident memory of this process since it began, or since `forget_peak`."""
    status = Path("/proc/self/status")  # what getrusage tells on Linux counts the process that made this one
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> int:
    """Let the peak be what is held now, where the system can, and return it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()
