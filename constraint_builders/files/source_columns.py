"""Names of columns that say what one of several sources measured, such as ``value (register)``."""

from __future__ import annotations

import re

MEASURED = ("value", "variance", "adjustment", "adjustment_z")
OF_SOURCE = re.compile(rf"({'|'.join(MEASURED)}) \((.*)\)", re.DOTALL)


def with_source(name: str, source: str) -> str:
    """The name of a column of `MEASURED` of one source, the plain one where it has no name.

    Examples
    --------
    >>> with_source("value", "register"), without_source("value (register)"), without_source("value")
    ('value (register)', ('value', 'register'), ('value', ''))
    """
    return f"{name} ({source})" if source else name


def without_source(name: str) -> tuple[str, str]:
    """What a column holds and of which source, empty where its name does not say one; see `with_source`."""
    found = OF_SOURCE.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")
