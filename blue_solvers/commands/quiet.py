"""Keeping what compiled libraries print away from the one line that refuses a damaged file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STDERR = 2


@contextmanager
def reading() -> Iterator[None]:
    """Read files: what libraries print to the standard error meanwhile is dropped if the files are refused.

    The library that reads Parquet files prints a page about some damaged ones before it says that they are.
    """
    try:
        terminal = os.dup(STDERR)
    except OSError:  # there is no standard error
        yield
        return
    python, refused = sys.stderr, False
    with os.fdopen(terminal, "w", buffering=1, errors="backslashreplace") as ours, tempfile.TemporaryFile() as said:
        with suppress(OSError):
            python.flush()
        if python is sys.__stderr__:
            sys.stderr = ours
        os.dup2(said.fileno(), STDERR)
        try:
            yield
        except (ValueError, OSError, MemoryError):
            refused = True
            raise
        finally:
            sys.stderr = python
            os.dup2(terminal, STDERR)
            if not refused:
                said.seek(0)
                with suppress(OSError):  # nobody reads it any more
                    os.write(STDERR, said.read())
