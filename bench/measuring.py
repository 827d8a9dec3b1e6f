"""What benchmarks share: options, times, memory at hand, a process for each case, tables printed as they go."""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any, TypeVar

from blue_solvers.benchmarking.clock import best_seconds, peak_bytes
from constraint_builders.compiled import compile_at_once

__all__ = [
    "best_seconds", "figures_apart", "is_quick", "keep_freed_memory", "parser_of", "peak_bytes",
    "print_apart", "print_figures", "print_table", "shortest", "shown", "timed", "verdict",
]  # fmt: skip

T = TypeVar("T")
TURN = 0.003  # seconds


def parser_of(name: str, doc: str | None, quick: str) -> argparse.ArgumentParser:
    """The command line of a benchmark: the first line of its module, and what ``--quick`` means."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def is_quick(argv: list[str], name: str, doc: str | None, quick: str) -> bool:
    """Whether the command line of a benchmark that has no other option asks for its short form."""
    return bool(parser_of(name, doc, quick).parse_args(argv).quick)


def timed(run: Callable[[], T], clock: Callable[[], float] = time.process_time) -> tuple[T, float]:
    """What a call gives, and its CPU seconds, since the machine is shared."""
    start = clock()
    return run(), clock() - start


def shortest(*runs: Callable[[], object], rounds: int = 5) -> list[float]:
    """Least CPU seconds of several calls of each, interleaved: in a turn as many as take `TURN` seconds together."""
    compile_at_once()
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        gc.collect()
        for i, run in enumerate(runs):
            left = TURN
            while left > 0:
                taken = timed(run)[1]
                best[i], left = min(best[i], taken), left - taken
    return best


def keep_freed_memory() -> None:
    """Have the C library keep memory that is freed, instead of giving it back to the system (glibc's mallopt)."""
    trim_threshold, most_mapped = -1, -4
    library = ctypes.CDLL(None)
    if not (library.mallopt(trim_threshold, 2**31 - 1) and library.mallopt(most_mapped, 0)):
        raise OSError("this C library gives freed memory back to the system: no time in memory at hand")


def figures_apart(module: str, *arguments: object, timeout: float = 900.0) -> Any:
    """What `measure` of a module of `bench` gives in a process of its own; in words why it gives nothing."""
    command = [sys.executable, "-m", "bench.measuring", module, json.dumps(arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][-110:]
    return json.loads(done.stdout.splitlines()[-1])


def print_apart(module: str, cases: Mapping[str, Sequence[object]]) -> None:
    """Print a row a case as soon as a process of its own has measured it, or why it could not be.

    Parameters
    ----------
    module : str
        Of `bench`, whose `measure` gives figures by the headings of columns.
    cases : mapping of str to sequence
        What `measure` is called with.
    """

    def row(name: str, arguments: Sequence[object]) -> dict[str, object]:
        found = figures_apart(module, *arguments)
        return {"case": name, **({"not measured": found} if isinstance(found, str) else found)}

    print_figures((row(name, arguments) for name, arguments in cases.items()), cases)


def print_figures(rows: Iterable[Mapping[str, object]], first: Iterable[str] = ()) -> None:
    """Print figures by their headings as they come, under a header again wherever these are others."""
    for header, own in groupby(rows, tuple):
        print_table(header, (list(row.values()) for row in own), first)


def shown(figure: object) -> str:
    """A figure to three digits, a count or more than 100 to the last whole one, and nothing where there is none."""
    if isinstance(figure, int) or (isinstance(figure, float) and abs(figure) >= 100):
        return f"{figure:,.0f}"
    return f"{figure:.3g}" if isinstance(figure, float) else "" if figure is None else str(figure)


def print_table(header: Iterable[str], rows: Iterable[Sequence[object]], first: Iterable[str] = ()) -> None:
    """Print rows under a header as they come, with what will be in the first column said beforehand.

    Columns are aligned as far as their widths are known by then.
    """
    names = list(header)
    known = list(rows) if isinstance(rows, Sequence) else [[name] for name in first]
    widths = [max(map(len, column)) for column in zip(names, *(_filled(row, len(names)) for row in known), strict=True)]
    for number, row in enumerate(rows):
        cells = _filled(row, len(names))
        widths = [max(width, len(cell)) for width, cell in zip(widths, cells, strict=True)]
        if not number:
            _print_row(names, widths)
            _print_row(["-" * width for width in widths], widths)
        _print_row(cells, widths)


def _filled(row: Sequence[object], size: int) -> list[str]:
    return [*map(shown, row), *[""] * (size - len(row))]


def _print_row(row: Sequence[str], widths: Sequence[int]) -> None:
    print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip(), flush=True)


def verdict(slower: float, most: float) -> str:
    """What is said of a figure that is so many times what it was."""
    return "worse" if slower > most else ""


if __name__ == "__main__":
    print(json.dumps(import_module(f"bench.{sys.argv[1]}").measure(*json.loads(sys.argv[2]))))
