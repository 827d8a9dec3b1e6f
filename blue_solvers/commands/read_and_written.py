"""Paths among the arguments of a command, and what holds of all: no output lies in an input, no two are the same.

An argument says by its type what its path is for: ``parser.add_argument("--out", type=WrittenPath)``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from itertools import combinations
from pathlib import Path


class ReadPath(str):
    """A path that is read, if there is anything at it."""

    __slots__ = ()


class WrittenPath(str):
    """A path that is written."""

    __slots__ = ()


def settings_path(text: str) -> str:
    """Settings, which are the name of shipped ones or a file, as an argument's type."""
    return ReadPath(text) if text.endswith(".toml") else text


def require_table(path: str) -> None:
    """Refuse a file that no table can be written to."""
    from constraint_builders.files.new_files import require_writable
    from constraint_builders.files.source import writer_of

    writer_of(path)
    require_writable(path)


def require_outputs(args: argparse.Namespace, place: Callable[[str], object] = require_table) -> None:
    """Refuse, before any work, outputs that could not be written after it, or not without losing something.

    Parameters
    ----------
    args : Namespace
    place : callable
        Refuses what ``--out``, if it is given, cannot be; by default what is no file of a table.

    Raises
    ------
    ValueError
        If an output has the name of another kind of file, is an input, lies in one, or is another output, by whatever
        names and links.
    ImportError
        If a library that draws is missing.
    OSError
        If one cannot be made.
    """
    from blue_solvers.commands.picture import require_picture
    from constraint_builders.files.new_files import require_writable

    for option, refuse in (
        ("out", place),
        ("plot", require_picture),
        ("write_schema", require_writable),
        ("resume", require_writable),
    ):
        if getattr(args, option, None) is not None:
            refuse(getattr(args, option))
    _require_apart(args)


def _require_apart(args: argparse.Namespace) -> None:
    given = [
        (f"--{name.replace('_', '-')}", path)
        for name, value in vars(args).items()
        for path in (value if isinstance(value, list) else [value])
    ]
    written = [(option, path) for option, path in given if isinstance(path, WrittenPath)]
    for option, path in written:
        for _, other in given:
            if isinstance(other, ReadPath) and os.path.exists(other) and _lies_in(path, other):
                if Path(other).is_dir():
                    raise ValueError(f"{option} {path} would be written inside {other}, which is read: choose another")
                raise ValueError(f"{option} {path} would overwrite what is read: choose another file")
    for (option, path), (another, other) in combinations(written, 2):
        if _lies_in(path, other) or _lies_in(other, path):
            raise ValueError(f"{option} {path} and {another} {other} would be written over one another: choose others")


def _lies_in(path: str, other: str) -> bool:
    """Whether a path is another, or lies in it."""
    real = Path(os.path.realpath(path))
    if not os.path.exists(other):
        return Path(os.path.normcase(real)).is_relative_to(os.path.normcase(os.path.realpath(other)))
    above = [own for place in (real, Path(os.path.abspath(path))) for own in (place, *place.parents)]
    return any(os.path.exists(own) and os.path.samefile(own, other) for own in above)
