"""Opening what somebody gave: a file that has an end, and that fits in memory where it is read whole."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from constraint_builders.memory import require_memory

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
