"""Refuse, before allocating, what would not fit in memory."""

import psutil


def require_memory(needed: float, what: str, instead: str) -> None:
    """Raise `MemoryError` if `needed` bytes exceed what the machine has free.

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
    free = psutil.virtual_memory().available
    if needed > free:
        raise MemoryError(f"{what} needs {format_bytes(needed)} and {format_bytes(free)} are free: {instead}")


def format_bytes(count: float) -> str:
    """Write a number of bytes for a person, for instance ``"1.5 GiB"``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"
