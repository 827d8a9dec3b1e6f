"""Cutting geounits into batches."""


def chunks(stop: int, size: int, start: int = 0) -> list[slice]:
    """Consecutive slices of equal size from `start` to `stop`."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
