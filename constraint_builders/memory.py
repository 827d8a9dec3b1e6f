"""Refuse, before allocating, what would not fit in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from math import inf, log10
from pathlib import Path
from time import monotonic
from typing import Any

CELL_BYTES = 32  # a measurement and its variance, an estimate and its variance
SURE_CELLS = 1 << 20  # so few are not worth a look at the free memory
LARGEST_EXPONENT = 15  # of a number of cells that is written out
SYSTEM = Path("/")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def free_memory() -> float:
    """Bytes that this process can still take, as `free_now` said in this second."""
    return _free_in(int(monotonic()))


@lru_cache(maxsize=1)
def _free_in(second: int) -> float:
    return free_now()


def free_now() -> float:
    """Bytes that this process can still take: a dozen files are read.

    The least of what the machine has free, what control groups of Linux (containers; versions 1 and 2) leave of their
    limits, and what ``ulimit -v`` and ``ulimit -d`` leave. Without psutil what Linux says is free, or all addresses.
    """
    return max(0.0, float(min((_left_by_machine(SYSTEM), *_left_by_groups(SYSTEM), *_left_by_ulimit()))))


@cache
def _psutil() -> Any:
    try:
        import psutil
    except ImportError:  # not everywhere to be had, in a browser for one
        return None
    return psutil


def _left_by_machine(system: Path) -> float:
    if psutil := _psutil():
        return float(psutil.virtual_memory().available)
    with suppress(OSError, StopIteration):
        lines = (system / "proc/meminfo").read_text(encoding="utf-8").splitlines()
        return 1024.0 * float(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return float(sys.maxsize)


def _left_by_groups(system: Path) -> Iterator[float]:
    """What every control group that the process is in leaves of its limit, if it has one."""
    try:
        said = (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return
    for line in said:
        _, controllers, path = line.split(":", 2)
        limits: tuple[str, ...]
        if not controllers:
            root, taken, cache = system / "sys/fs/cgroup", "memory.current", "inactive_file"
            limits = ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            root, taken, cache = system / "sys/fs/cgroup/memory", "memory.usage_in_bytes", "total_inactive_file"
            limits = ("memory.limit_in_bytes",)
        else:
            continue
        own = root / path.lstrip("/")
        for group in (own, *own.parents):
            if group.is_relative_to(root):
                for limit in limits:
                    allowed = _number(group / limit)
                    used = None if allowed is None else _number(group / taken)
                    if allowed is not None and used is not None:
                        yield allowed - used + _statistic(group / "memory.stat", cache)


def _number(path: Path) -> float | None:
    """What a file says; None without one, or if it says ``max``."""
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _statistic(path: Path, name: str) -> float:
    """Bytes of cached files, which make way: they count as taken and are free."""
    try:
        rows = dict(line.split() for line in path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return 0.0
    return float(rows.get(name, 0))


def _left_by_ulimit() -> Iterator[float]:
    """What limits of the process leave: of its addresses, and of its data."""
    psutil = _psutil()
    if not hasattr(psutil, "RLIMIT_AS"):  # no Linux
        return
    process = psutil.Process()
    taken = process.memory_info()
    for limit, used in ((psutil.RLIMIT_AS, taken.vms), (psutil.RLIMIT_DATA, taken.data)):
        allowed, _ = process.rlimit(limit)
        if allowed != psutil.RLIM_INFINITY:
            yield allowed - used


def require_memory(needed: float, what: str, instead: str) -> None:
    """Raise `MemoryError` if `needed` bytes exceed what is free.

    Parameters
    ----------
    needed : float
        Bytes that are about to be allocated.
    what : str
        The thing that needs them, as the subject of the message.
    instead : str
        What the user can do about it.

    Raises
    ------
    MemoryError
        With the bytes needed and the bytes free.
    """
    free = free_memory()
    if needed > free:
        raise MemoryError(f"{what} needs {format_bytes(needed)} and {format_bytes(free)} are free: {instead}")


def require_cells(count: int, what: str) -> None:
    """Raise `MemoryError` if measurements and estimates of `count` cells, with variances, would not fit in memory.

    Parameters
    ----------
    count : int
        A whole number of Python, of any size.
    what : str
        Whose cells they are, as the subject of the message.
    """
    if count <= SURE_CELLS:
        return
    free = free_memory()
    if count > free / CELL_BYTES:
        raise MemoryError(
            f"{what} has {_format_count(count)} cells, which need {format_bytes(CELL_BYTES * count)}, and "
            f"{format_bytes(free)} are free: give coarser tables"
        )


def read_limit(memory: float) -> float:
    """A limit of memory; `ValueError` if it is no number of bytes."""
    if not memory > 0:
        raise ValueError(f"a limit of memory must be a number of bytes above 0: got {memory}")
    return memory


def require_limit(memory: float) -> None:
    """Raise `MemoryError` if a limit of memory is more than is free, and `ValueError` if it is no number of bytes."""
    read_limit(memory)
    free = free_memory()
    if memory > free:
        raise MemoryError(
            f"the limit of {format_bytes(memory)} is more than the {format_bytes(free)} that are free: give a lower one"
        )


def format_bytes(count: float) -> str:
    """Write a number of bytes for a person, for instance ``"1.5 GiB"``."""
    if count == inf:
        return "infinitely many bytes"
    if count >= 1024 ** len(UNITS):
        return f"{_format_count(int(count) >> 60)} EiB"
    number = float(count)
    for unit in UNITS[:-1]:
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} {UNITS[-1]}"


def _format_count(count: int) -> str:
    """A whole number of any size, which may be too large for a float or to be written out."""
    if count < 10**LARGEST_EXPONENT:
        return f"{count:,}"
    return f"10^{int((count.bit_length() - 1) * log10(2))}"
