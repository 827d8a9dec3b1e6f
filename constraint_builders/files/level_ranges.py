"""Partitions of a variable's levels, and parts of these, as schema and settings files write them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def parse_partition(text: str, size: int) -> list[str] | list[int]:
    """Read a partition of the levels 0 to size - 1, such as ``"0-17 | 18-64 | 65-99,110"``.

    Returns
    -------
    list, (size,)
        For every level the part that it falls in: as written, or, where parts are not in the order of their first
        levels, by number, since a `Schema` numbers labelled groups in order of first appearance.

    Raises
    ------
    ValueError
        If a part is not made of ranges of existing levels, or a level is in no part, or in two.
    """
    parts = ["".join(part.split()) for part in text.split("|")]
    groups = [-1] * size
    for number, part in enumerate(parts):
        for level in levels_in(part, size):
            if groups[level] >= 0:
                raise ValueError(f"level {level} is in both {parts[groups[level]]!r} and {part!r}")
            groups[level] = number
    if -1 in groups:
        raise ValueError(f"level {groups.index(-1)} is in no part")
    in_order = list(dict.fromkeys(groups)) == list(range(len(parts)))
    return [parts[group] for group in groups] if in_order else groups


def levels_in(part: str, size: int) -> Iterator[int]:
    """The levels of one part of a partition."""
    for piece in part.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise ValueError(f"{piece!r} is not a level nor a range such as 18-64")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < size:
            raise ValueError(f"{piece!r} is not a range within the levels 0 to {size - 1}")
        yield from range(first, last + 1)
