"""Parsers of the subcommands by the tables of their options, what texts of arguments are read as, and what paths are.

An argument says by its type what its path is for: ``parser.add_argument("--out", type=WrittenPath)``. No output lies in
an input, and no two are the same.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

from blue_solvers.commands.listed import Command, table
from blue_solvers.solver_names import SolverName

NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"\d{1,40}", re.ASCII)
AMOUNT = re.compile(r"(\d+\.?\d*(?:[eE]\+?\d{1,2})?)\s*([kKMGT]?)(i?)[bB]?", re.ASCII)
PREFIXES = ("", "K", "M", "G", "T")
ALL = "all"


def add_command(subparsers: argparse._SubParsersAction, name: str, command: Command) -> None:
    """Declare a subcommand with its options, whose help ends in examples."""
    purpose, examples = command.purpose, "\n".join(f"  blue-solvers {own}" for own in command.examples)
    parser = subparsers.add_parser(
        name,
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}.",
        epilog=f"example:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sets, alone = table("options"), dict[str, Any]()
    for called in command.options:
        title = sets["titles"].get(called)
        place = parser.add_argument_group(title) if title else parser
        for flag in sets[called]:
            fields = _fields(sets, called, flag)
            if shared := fields.pop("alone", None):
                if shared not in alone:
                    alone[shared] = place.add_mutually_exclusive_group(required=shared in command.required)
                alone[shared].add_argument(flag, **fields)
            else:
                place.add_argument(flag, **fields)
    parser.set_defaults(module=command.module, now=command.now, **command.defaults)


def _fields(sets: dict[str, Any], called: str, flag: str) -> dict[str, Any]:
    """What is said of an option of a set."""
    found = dict(sets[called][flag])
    if "like" in found:
        found = {**_fields(sets, *found.pop("like").split(".")), **found}
    found["help"] = found.pop("first", "") + found["help"] + found.pop("last", "")
    for field, known in NAMED.items():
        if isinstance(found.get(field), str):
            found[field] = known.get(found[field], found[field])
    return found


def flags_of(called: str) -> tuple[str, ...]:
    """The options of a set."""
    return tuple(table("options")[called])


def refusal(what: str, text: str) -> argparse.ArgumentTypeError:
    """Of an argument, which must be something else."""
    return argparse.ArgumentTypeError(f"must be {what}: got {text}")


def plain_number(text: str) -> float:
    """A number of 0 or more in plain digits."""
    if not NUMBER.fullmatch(text):
        raise refusal("a number", text)
    return float(text)


def coverage(text: str) -> float:
    """A probability of 0.5 or more and below 1."""
    level = float(text) if NUMBER.fullmatch(text) else math.nan
    if not 0 < level < 1:
        raise refusal("a number between 0 and 1, 0.95 for instance", text)
    if level < 0.5:
        raise refusal(f"how often intervals hold, 0.5 or more, {1 - level:g} perhaps", text)
    return level


def whole_from(least: int) -> Callable[[str], int]:
    """What reads a whole number that is not below another."""

    def read(text: str) -> int:
        if WHOLE.fullmatch(text) and int(text) >= least:
            return int(text)
        raise refusal(f"a whole number of {least} or more", text)

    return read


def listed_names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",")]


def number_of_digits(text: str) -> int | str:
    """So many significant digits, or all."""
    if text.strip() == ALL:
        return ALL
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 17):
        raise refusal(f"a number of digits from 1 to 17, or {ALL}", text)
    return int(text)


def number_of_bytes(text: str) -> float:
    """A number of bytes, also in kB, MB, GB, GiB and so on."""
    amount = AMOUNT.fullmatch(text.strip())
    count = float(amount[1]) * (1024 if amount[3] else 1000) ** PREFIXES.index(amount[2].upper()) if amount else 0.0
    if not 0 < count < math.inf:
        raise refusal("a number of bytes, 4e9 for instance", text)
    return count


def variable_and_recode(text: str) -> tuple[str, str]:
    """What a variable of one input is in another."""
    name, _, recode = (piece.strip() for piece in text.partition("="))
    if not (name and recode):
        raise refusal("a variable and what it is, hhgq=hhgq8lev", text)
    return name, recode


def column_and_role(text: str) -> tuple[str, str]:
    """What a column is."""
    name, _, role = text.rpartition("=")
    if not (name and role):
        raise refusal("the name of a column and what it is, moe=moe_90", text)
    return name, role


def counted_part(text: str) -> tuple[str, str, list[str]]:
    """An input, a factor, and the labels of it that the input counts alone."""
    name, _, rest = text.partition(":")
    factor, _, labels = (piece.strip() for piece in rest.partition("="))
    if not (name.strip() and factor and labels):
        raise refusal("an input, a factor and its labels, households:relgq=0|1", repr(text))
    return name.strip(), factor, [label.strip() for label in labels.split("|")]


def rounding(text: str) -> tuple[bool, int]:
    """Whether rounding is to the nearest multiple, and its base."""
    kind, colon, base = text.rpartition(":")
    whole = base.strip()
    if (colon and kind.strip() != "nearest") or not whole.isdecimal() or len(whole) > 20 or int(whole) < 2:
        raise refusal("a base, 3, or nearest:5 for conventional rounding", text)
    return bool(colon), int(base)


def positive_variance(text: str) -> float:
    """A finite number above 0."""
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    if not 0 < value < math.inf:
        raise refusal("a number above 0", text)
    return value


def level_widths(text: str) -> dict[str, int]:
    """How many characters name the geounits of every level."""
    width_of = whole_from(0)
    try:
        return {level: width_of(width) for level, width in (part.split("=") for part in text.split(","))}
    except (ValueError, argparse.ArgumentTypeError):
        raise refusal("as in State=2,County=5,Block=15", text) from None


class ReadPath(str):
    """A path that is read, if there is anything at it."""

    __slots__ = ()


class WrittenPath(str):
    """A path that is written."""

    __slots__ = ()


def settings_path(text: str) -> str:
    """Settings, which are the name of shipped ones or a file, as an argument's type."""
    return ReadPath(text) if text.endswith(".toml") else text


def stored_result(text: str) -> str:
    """A result that is read; where there is nothing at it this is said before anything is loaded."""
    if not os.path.exists(text):
        os.stat(Path(text) / RESULT)
    return ReadPath(text)


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
    from blue_solvers.commands.common import require_picture
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


RESULT, UNFINISHED, LEVEL_SUFFIX = "result.json", ".work", ".parquet"
MEASURED = ("DPQuery", "Constraint")


def is_release(path: Path) -> bool:
    """Whether a folder holds noisy measurement files."""
    levels = (own for own in path.iterdir() if own.name.endswith(LEVEL_SUFFIX) and own.is_dir())
    return any((own / kind).exists() for own in levels for kind in MEASURED)


def what_is(path: str) -> str:
    """What is there, and what can be done with it, as the end of a message."""
    from constraint_builders.files.source import suffixes

    place = Path(path)
    if place.is_dir():
        if (place / RESULT).exists():
            return f"is a result of estimate: ask it with  blue-solvers query {path} --geounits CODE"
        if (place / UNFINISHED).exists():
            return "is the work of estimate --memory that was not finished: run the same command again"
        if is_release(place):
            return f"is a folder of measurement files: estimate it with  blue-solvers estimate {path} --out result"
        return "is a folder of nothing that this command made: measurement files lie in <Geolevel>.parquet/DPQuery"
    if place.name.lower().endswith(suffixes()):
        return f"is a file of tables: see it with  blue-solvers info {path}, or estimate it"
    return "is a file of no kind that this command made"


def require_file(path: str, what: str) -> None:
    """Refuse a folder where a file of a kind is read, and say what the folder is."""
    if Path(path).is_dir():
        raise ValueError(f"{path} {what_is(path)}; {what} is a file")


class _Solvers:
    """Names of solvers, and of those that somebody enrolled; for others than their own solvers are loaded."""

    def __iter__(self) -> Iterator[str]:
        return iter(get_args(SolverName))

    def __contains__(self, name: object) -> bool:
        if name in get_args(SolverName):
            return True
        from blue_solvers.solvers import SOLVERS

        return name in SOLVERS


NAMED: dict[str, dict[str, Any]] = {  # what fields of options are called in `options.toml`
    "action": {"yes or no": argparse.BooleanOptionalAction},
    "choices": {"solvers": _Solvers()},
    "type": {
        "read path": ReadPath,
        "result": stored_result,
        "written path": WrittenPath,
        "settings": settings_path,
        "number": plain_number,
        "coverage": coverage,
        "whole from 0": whole_from(0),
        "whole from 1": whole_from(1),
        "names": listed_names,
        "digits": number_of_digits,
        "bytes": number_of_bytes,
        "variable and recode": variable_and_recode,
        "column and role": column_and_role,
        "part": counted_part,
        "rounding": rounding,
        "variance": positive_variance,
        "widths": level_widths,
    },
}
