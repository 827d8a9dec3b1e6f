"""Where the row groups of a Parquet file begin, which whoever reads a file in slices decodes anew for every slice.

A file ends in its description, its length and ``PAR1``. The description is a structure of Thrift's compact protocol: of
every field its number, as a difference to the one before, and its type in one byte, then its value; zero at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

MAGIC = b"PAR1"
TAIL = 8  # bytes: the length of the description, and the magic
ROW_GROUPS, ROWS = 4, 3  # numbers of fields: of the description, and of what it says of a row group
TRUE, FALSE, BYTE, DOUBLE, BINARY, LISTS, MAP, STRUCT = 1, 2, 3, 7, 8, (9, 10), 11, 12
LONGEST_NUMBER, DEEPEST = 10, 32  # bytes, and structures within one another


def row_group_heights(path: str | os.PathLike[str]) -> list[int]:
    """The number of rows of every row group.

    Raises
    ------
    ValueError
        If the file does not end as a Parquet file does.
    OSError
        If it cannot be opened.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - TAIL, 0))
        tail = file.read(TAIL)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length + TAIL > size:
            raise ValueError("it does not end as a Parquet file does: is it cut short?")
        file.seek(size - TAIL - length)
        description = file.read(length)
    try:
        groups = dict(_Compact(description).structure(keep=ROW_GROUPS)).get(ROW_GROUPS, [])
        return [int(group[ROWS]) for group in groups]
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"its description cannot be understood ({error}): is it damaged?") from None


class _Compact:
    """Reads values of Thrift's compact protocol one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def structure(self, keep: int | None = None, depth: int = 0) -> Iterator[tuple[int, Any]]:
        """The fields of a structure by number; with `keep`, those after one of that number are not read."""
        if depth > DEEPEST:
            raise IndexError("too deep")
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            yield number, self._value(head & 15, depth)
            if number == keep:
                return

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind in (BYTE, DOUBLE):
            return self._skip(1 if kind == BYTE else 8)
        if kind < DOUBLE:
            return self._signed()
        if kind == BINARY:
            return self._skip(self._number())
        if kind in LISTS:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._number()
            return [self._element(head & 15, depth) for _ in range(self._possible(count))]
        if kind == MAP:
            count = self._possible(self._number())
            kinds = self._byte() if count else 0
            return [self._element(kinds >> 4, depth) or self._element(kinds & 15, depth) for _ in range(count)]
        if kind == STRUCT:
            return dict(self.structure(depth=depth + 1))
        raise TypeError(f"type {kind}")

    def _element(self, kind: int, depth: int) -> Any:
        return self._byte() == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth)

    def _possible(self, count: int) -> int:
        if count > len(self._data):
            raise IndexError("a list is longer than the file")
        return count

    def _skip(self, length: int) -> None:
        self._at += length
        if self._at > len(self._data):
            raise IndexError("it ends too early")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        found = 0
        for place in range(LONGEST_NUMBER):
            byte = self._byte()
            found |= (byte & 127) << 7 * place
            if byte < 128:
                return found
        raise IndexError("a number is too long")

    def _signed(self) -> int:
        found = self._number()
        return (found >> 1) ^ -(found & 1)
