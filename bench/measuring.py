"""Times, copies and peak memory, taken side by side."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from numpy.typing import NDArray


def best_seconds(run: Callable[[], object], repeats: int = 5, least: float = 0.2) -> float:
    """Shortest time of several runs, more of them when they are short."""
    times: list[float] = []
    gc.collect()
    while len(times) < repeats or (sum(times) < least and len(times) < 200):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        if sum(times) > 30:
            break
    return min(times)


def copy_seconds(*arrays: NDArray) -> float:
    """Time to copy some arrays once, to new memory as any result needs it."""
    return best_seconds(lambda: [array.copy() for array in arrays])


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_own_process(module: str, *arguments: str, timeout: float) -> str:
    """Run ``python -m MODULE ARGUMENTS`` and give back what it printed; what it printed on failure too."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:g} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"
    return done.stdout


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print rows under a header, columns aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)
