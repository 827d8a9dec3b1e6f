"""Names that come from data, where they become names of files and folders."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

LONGEST = 200  # bytes: file systems take 255, and names get endings
FORBIDDEN = '/\\=:<>"|?*'  # separators, of folders, of Hive's partitions and of drives, and what Windows does not take
INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, lone surrogates, breaks of lines and paragraphs


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
