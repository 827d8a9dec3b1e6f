"""Times, copies and peak memory, taken side by side."""

from __future__ import annotations

import subprocess
import sys

from blue_solvers.benchmarking.clock import best_seconds, copy_seconds, peak_bytes

__all__ = ["best_seconds", "copy_seconds", "in_own_process", "peak_bytes", "print_table", "verdict"]


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


def verdict(slower: float, most: float) -> str:
    """What is said of a figure that is so many times what it was."""
    return "worse" if slower > most else ""
