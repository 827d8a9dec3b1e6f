"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_KEPT = 50  # characters of a name, to which a temporary one adds some


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Check, before any work, that a file can be made at `path`.

    Raises
    ------
    OSError
        If its folder does not exist or cannot be written to, or if `path` is there and is not a plain file, or is no
        name of one: too long, or a link to itself.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: cannot be written: there is no folder {str(path.parent)!r}")
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(f"{path}: cannot be written: it is not a plain file")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path}: cannot be written: the folder {str(path.parent)!r} is read-only")
    return path


def temporary_beside(path: Path) -> Path:
    """A new name in the folder of a path that is about to be made, hidden, and not too long for a file system."""
    return path.with_name(f".{path.name[:MOST_KEPT]}.{secrets.token_hex(4)}.part")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`, which becomes `path` at the end, or vanishes if anything goes wrong.

    Who may read and write a file that is there already may do so afterwards, and nobody else, meanwhile neither.
    """
    path = Path(os.path.realpath(require_writable(path)))
    temporary = temporary_beside(path)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        with naming_place(path):
            if mode is not None:
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR))
            yield temporary
            if mode is not None:
                temporary.chmod(mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def naming_place(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the operating system that name no file, such as a full disk, name what was being written."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from None
