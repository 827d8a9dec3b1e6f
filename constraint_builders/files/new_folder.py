"""Writing a folder whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from constraint_builders.files.replacing import naming_place, temporary_beside


def require_new(path: str | os.PathLike[str]) -> Path:
    """Check, before any work, that a folder can be made at `path`.

    Raises
    ------
    OSError
        If there is something at `path`, or the folder above does not exist or cannot be written to.
    """
    path = Path(path)
    with suppress(FileNotFoundError):
        path.lstat()
        raise FileExistsError(f"{path}: it is there already: remove it, or choose another name")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path}: cannot be made: there is no folder {str(path.parent)!r}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise PermissionError(f"{path}: cannot be made: the folder {str(path.parent)!r} is read-only")
    return path


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder beside `path`, which becomes `path` at the end, or vanishes if anything goes wrong."""
    path = require_new(path).absolute()
    temporary = temporary_beside(path)
    temporary.mkdir()
    try:
        with naming_place(path):
            yield temporary
        try:
            os.rename(temporary, path)
        except OSError:
            require_new(path)  # another run may have made it meanwhile
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
