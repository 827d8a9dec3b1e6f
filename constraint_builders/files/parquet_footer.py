"""What a Parquet file says of itself before its rows are read: where row groups begin, and how much is in them.

Whoever reads a file in slices decodes a row group anew for every slice. A file ends in its description, its length and
``PAR1``. The description is a structure of Thrift's compact protocol: of every field its number, as a difference to the
one before, and its type in one byte, then its value; zero at the end. Every page of values begins with another.

References
----------
Apache Parquet, "parquet.thrift".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

from constraint_builders.declared_size import NUMBER_BYTES, DeclaredSize
from constraint_builders.opening import open_file

MAGIC = b"PAR1"
TAIL = 8  # bytes: the length of the description, and the magic
TRUE, FALSE, BYTE, DOUBLE, BINARY, LISTS, MAP, STRUCT = 1, 2, 3, 7, 8, (9, 10), 11, 12
LONGEST_NUMBER, DEEPEST = 10, 32  # bytes, and structures within one another
PAGE_LENGTHS = (1 << 8, 1 << 14, 1 << 24)  # of its description, in bytes: most are short, but hold texts

# Numbers of fields: of the description, of a row group, of a column in it, of an element of the schema, of a page.
SCHEMA, ROW_GROUPS = 2, 4
COLUMNS, ROWS = 1, 3
CHUNK, VALUES, COMPRESSED, FIRST_PAGE, DICTIONARY = 3, 5, 7, 9, 11
CHILDREN = 5
PLAIN_BYTES, PAGE_BYTES, DATA, OF_DICTIONARY, DATA_2 = 2, 3, 5, 7, 8
PAGE_VALUES = 1


@dataclass(frozen=True)
class ParquetFooter:
    """What a file says of itself.

    Attributes
    ----------
    heights : tuple of int
        The number of rows of every row group.
    declared : DeclaredSize
    """

    heights: tuple[int, ...]
    declared: DeclaredSize


def read_footer(path: str | os.PathLike[str]) -> ParquetFooter:
    """What a Parquet file says of itself, its pages included; remembered while the file stays the same.

    Raises
    ------
    ValueError
        If the file does not end as a Parquet file does, or its description, or that of a page, cannot be understood.
    OSError
        If it cannot be opened.
    """
    with open_file(path) as file:
        own = os.fstat(file.fileno())
    return _read(os.path.abspath(path), own.st_dev, own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns)


@lru_cache(maxsize=16)
def _read(path: str, *stamp: int) -> ParquetFooter:
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - TAIL, 0))
        tail = file.read(TAIL)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length + TAIL > size:
            raise ValueError("not readable as a table: it does not end as a Parquet file does: is it cut short?")
        file.seek(size - TAIL - length)
        try:
            said = dict(_Compact(file.read(length)).structure(keep=ROW_GROUPS))
            groups = said.get(ROW_GROUPS, [])
            pages = [_pages(file, column[CHUNK]) for group in groups for column in group[COLUMNS]]
            cells, plain = (sum(own) for own in zip((0, 0), *pages, strict=True))
            columns, depth = _shape(said[SCHEMA])
            declared = DeclaredSize(cells, columns, plain, NUMBER_BYTES, depth)
            return ParquetFooter(tuple(int(group[ROWS]) for group in groups), declared)
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
            what = f"its description is damaged ({error}), copy it again"
            raise ValueError(f"not readable as a table: {what}") from None


def _shape(elements: Sequence[Mapping[int, int]]) -> tuple[int, int]:
    """How many columns a schema has, counting those within others, and how deep they are; it lists them depth first."""
    open_, deepest = [1], 0
    for element in elements:
        while not open_[-1]:
            open_.pop()
        open_[-1] -= 1
        deepest = max(deepest, len(open_) - 1)
        open_.append(element.get(CHILDREN, 0))
    return len(elements) - 1, deepest


def _pages(file: BinaryIO, chunk: Mapping[int, int]) -> tuple[int, int]:
    """How many values, those of dictionaries too, and bytes the pages of a column in a row group say that they hold."""
    at, values, plain = chunk[FIRST_PAGE], 0, 0
    if 0 < chunk.get(DICTIONARY, 0) < at:
        at = chunk[DICTIONARY]
    end = at + chunk[COMPRESSED]
    if end > file.seek(0, os.SEEK_END):
        raise IndexError("a page ends after the file")
    while 0 < at < end:
        page, at = _page(file, at)
        said = [page[kind][PAGE_VALUES] for kind in (DATA, DATA_2, OF_DICTIONARY) if kind in page]
        if min(page[PLAIN_BYTES], page[PAGE_BYTES], *said) < 0:
            raise IndexError("a page holds less than nothing")
        values, plain = values + sum(said), plain + page[PLAIN_BYTES]
        at += page[PAGE_BYTES]
    return max(values, chunk[VALUES]), plain


def _page(file: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """The description of a page, and where it ends."""
    for length in PAGE_LENGTHS:
        file.seek(at)
        reader = _Compact(file.read(length))
        try:
            return dict(reader.structure()), at + reader.at
        except IndexError:  # it goes on
            continue
    raise IndexError("the description of a page does not end")


class _Compact:
    """Reads values of Thrift's compact protocol one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def structure(self, keep: int | None = None, depth: int = 0) -> Iterator[tuple[int, Any]]:
        """The fields of a structure by number; with `keep`, those after one of that number are not read."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            yield number, self._value(head & 15, depth)
            if number == keep:
                return

    def _value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise IndexError("too deep")
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
            return [self._element(head & 15, depth + 1) for _ in range(self._possible(count))]
        if kind == MAP:
            count = self._possible(self._number())
            kinds = self._byte() if count else 0
            return [self._element(kinds >> 4, depth + 1) or self._element(kinds & 15, depth + 1) for _ in range(count)]
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
        self.at += length
        if self.at > len(self._data):
            raise IndexError("it ends too early")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

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
