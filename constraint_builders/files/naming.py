"""Errors that begin with the file that they are about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl


@contextmanager
def naming(what: str | os.PathLike[str]) -> Iterator[None]:
    """Make every complaint of a block of code a `ValueError` that begins with a file's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{os.fspath(what)}: {error}") from None
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{os.fspath(what)}: not readable as a table: {reason}") from None
