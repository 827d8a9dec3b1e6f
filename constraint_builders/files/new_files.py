"""Writing files and folders whole or not at all, also under names that come from data."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST_KEPT = 50  # characters of a name, to which a temporary one adds some
LONGEST = 200  # bytes: file systems take 255, and names get endings
FORBIDDEN = '/\\=:<>"|?*'  # separators, of folders, of Hive's partitions and of drives, and what Windows does not take
INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, lone surrogates, breaks of lines and paragraphs


def require_writable(path: str | os.PathLike[str]) -> Path:
    """Check, before any work, that a file can be made at `path`.

    Raises
    ------
    OSError
        If its folder does not exist or cannot be written to, or if `path` is there and is not a plain file, or is no
        name of one: too long, or a link to itself.
    """
    path = Path(path)
    _require_folder(path, "written")
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(f"{path}: cannot be written: it is not a plain file")
    return path


def _require_folder(path: Path, what: str) -> None:
    """Refuse a path whose folder is not there, or cannot be written to; `what` is what cannot be done."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: cannot be {what}: there is no folder {str(path.parent)!r}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{path}: cannot be {what}: the folder {str(path.parent)!r} is read-only")


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
    _require_folder(path, "made")
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


def path_component(name: str, what: str) -> str:
    """Check a name that comes from data and is to be one component of a path.

    Parameters
    ----------
    name : str
        For instance a geocode, or a geolevel.
    what : str
        What it names, for the message: ``"geocode"``.

    Returns
    -------
    str
        The name as it is.

    Raises
    ------
    ValueError
        If it is empty, begins or ends with a space or a dot, is longer than 200 bytes, or has a character that may
        not stand in a path: a slash, a backslash, ``=``, another of those that Windows forbids, or a control character.
    """
    reason = _objection(name)
    if reason:
        shown = name if len(name) <= 40 else f"{name[:40]}..."
        raise ValueError(f"{what} {shown!r} cannot name a file: {reason}; rename it")
    return name


def _objection(name: str) -> str:
    """Why a name is no component of a path; empty where it is one."""
    if not name:
        return "it is empty"
    if name[0] in " ." or name[-1] in " .":
        return "it begins or ends with a dot or a space"
    wrong = next((c for c in name if c in FORBIDDEN or unicodedata.category(c) in INVISIBLE), None)
    if wrong is not None:
        return f"it has the character {wrong!r}"
    if len(name.encode()) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    return ""


def inside(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Check that a path, with all its symbolic links followed, lies in a folder.

    Parameters
    ----------
    folder : path
    path : path
        May, but need not, exist; relative paths begin at `folder`.

    Returns
    -------
    Path
        `path` joined to `folder`, links not resolved.

    Raises
    ------
    ValueError
        If it leads out of the folder, or its links go round in a circle.
    """
    whole = Path(folder) / path
    try:
        within = whole.resolve().is_relative_to(Path(folder).resolve())
    except (OSError, RuntimeError):  # of a circle, by version of Python
        within = False
    if not within:
        raise ValueError(f"{whole}: leads out of the folder {os.fspath(folder)}: remove the symbolic link")
    return whole
