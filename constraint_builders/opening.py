"""Opening what somebody gave: a file that has an end, and that fits in memory where it is read whole.

How large a table is by its file's own words, and whether such a file may say so, is asked before the file is read. Few
bytes can declare much: a workbook of 5 kB a cell in the last row and column of its sheet, hence 17 billion cells; a
compressed text a gigabyte of commas; a Parquet file lists nested so deeply that the library that reads them ends the
process. Every format says what a file of it declares, and all are judged here.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from constraint_builders.memory import format_bytes, require_memory

PathLike = str | os.PathLike[str]
SHIPPED = Path(__file__).parent / "files"  # where the data are that come with this package
SURE = 1 << 20  # bytes: so few are not worth a look at the free memory


def open_file(path: PathLike) -> BufferedReader:
    """Open a file to read its bytes.

    Raises
    ------
    ValueError
        If it, or what it links to, is a device, a pipe or a socket, which may have no end.
    OSError
        If it cannot be opened.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{os.fspath(path)}: it is a device, a pipe or a socket: give a file")
    return open(path, "rb")


def read_whole(file: BinaryIO) -> bytes:
    """All bytes of an open file; `MemoryError` if they are more than is free."""
    size = os.fstat(file.fileno()).st_size
    if size > SURE:
        require_memory(size, f"{file.name}: reading it", "give a smaller file")
    return file.read()


def read_bytes(path: PathLike) -> bytes:
    """All bytes of a file; raises as `open_file` and `read_whole`."""
    with open_file(path) as file:
        return read_whole(file)


def read_text(path: PathLike) -> str:
    """The text of a file in UTF-8, with line feeds; raises as `read_bytes`, and `ValueError` where it is none."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{os.fspath(path)}: it is not UTF-8 text ({error.reason}): save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


MOST_COLUMNS = 1 << 14  # as many as a sheet has
DEEPEST = 8  # fields within one another: a list is one within two
SMALL = 256 << 20  # bytes of memory that any file may fill
MOST_PLAIN, MOST_CELLS = 500, 250  # for each byte of the file: counts that are almost all 0 have 150 and 75 as .csv.gz
TEXT_BYTES, NUMBER_BYTES = 32, 8  # of a cell in memory, an empty one too


@dataclass(frozen=True)
class DeclaredSize:
    """What a file says that it holds.

    Attributes
    ----------
    cells : int
        Texts, numbers and empty cells; in lists every number.
    columns : int
    plain : int
        Bytes once decompressed.
    cell_bytes : int
        Of memory that a cell takes at least.
    depth : int
        Of columns within columns, as lists and records have them.
    """

    cells: int
    columns: int
    plain: int
    cell_bytes: int
    depth: int = 1

    def require_shallow(self) -> None:
        """Raise `ValueError` if columns lie deeper within one another than the libraries that read them can go."""
        if self.depth > DEEPEST:
            raise ValueError(f"a column has {self.depth:,} others within one another: give text, numbers or lists")

    def require_moderate(self, size: int) -> None:
        """Refuse what is more than a table in a file of `size` bytes can be, or cannot be read whole.

        Raises
        ------
        ValueError
            As `require_shallow`; if there are too many columns, or far more cells or text than so many bytes can say.
        MemoryError
            If it takes more memory than is free.
        """
        self.require_shallow()
        if self.columns > MOST_COLUMNS:
            raise ValueError(f"it has {self.columns:,} columns, more than {MOST_COLUMNS:,}: give a row for each cell")
        memory = self.plain + self.cell_bytes * self.cells
        if memory <= SMALL:
            return
        if self.plain > MOST_PLAIN * size or self.cells > MOST_CELLS * size:
            held = f"{format_bytes(self.plain)} once unpacked" + (f", {self.cells:,} cells" if self.cells else "")
            raise ValueError(f"its {format_bytes(size)} hold {held}, as no table does: is it damaged? Write it anew")
        require_memory(memory, "reading it", "give a smaller table, or take a machine with more memory")
