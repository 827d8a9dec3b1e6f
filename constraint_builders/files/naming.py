"""Errors that begin with the file that they are about, and quote in short what it holds."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice

import polars as pl

LONGEST_SHOWN = 60
MOST_LISTED = 8
PANIC = "PanicException"  # of libraries written in Rust, each its own, for a file that contradicts itself


@contextmanager
def naming(what: str | os.PathLike[str]) -> Iterator[None]:
    """Make every complaint of a block of code a `ValueError`, or `MemoryError`, that begins with a file's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(_named(what, str(error))) from None
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{os.fspath(what)}: not readable as a table: {reason}") from None
    except MemoryError as error:
        raise MemoryError(_named(what, str(error) or "reading it takes more memory than is free")) from None
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise ValueError(f"{os.fspath(what)}: not readable as a table: it is damaged, copy it again") from None


def _named(what: str | os.PathLike[str], reason: str) -> str:
    name = f"{os.fspath(what)}: "
    return reason if reason.startswith(name) else name + reason


def shown(value: object) -> str:
    """A value from a file, as messages quote it: not more of it than helps."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 10]}...{text[-7:]}"


def listed(names: Collection[object]) -> str:
    """Names as messages list them: the first few, and how many more there are.

    Examples
    --------
    >>> listed(["sex", "age"]), listed([]), listed(range(20))
    ("'sex', 'age'", 'none', '0, 1, 2, 3, 4, 5, 6, 7 and 12 more')
    """
    more = f" and {len(names) - MOST_LISTED:,} more" if len(names) > MOST_LISTED else ""
    return (", ".join(map(shown, islice(names, MOST_LISTED))) or "none") + more
