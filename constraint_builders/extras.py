"""Libraries that only some parts need, and the one way to say that one of them is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE, ROOT = "blue-solvers", Path(__file__).resolve().parents[1]
EXTRA_OF = {
    "polars": "frames",
    "msgspec": "frames",
    "pyarrow": "frames",
    "fastexcel": "excel",
    "matplotlib": "plots",
    "opendp": "release",
    "pyamg": "multigrid",
    "numba": "fast",
    "xarray": "arrays",
    "distributed": "cluster",
}


@contextmanager
def needing(need: str, extra: str, otherwise: str = "") -> Iterator[None]:
    """Import libraries of an extra within it: where one is not installed the error is that of `missing_extra`."""
    try:
        yield
    except ImportError as error:
        raise missing_extra(need, extra, otherwise) from error


def missing_extra(need: str, extra: str, otherwise: str = "") -> ImportError:
    """The error of a library that is not installed, which says how to install it.

    Parameters
    ----------
    need : str
        What needs which library: ``"pictures need matplotlib"``.
    extra : str
        The extra of this package that brings it.
    otherwise : str
        What to do instead, if anything.

    Examples
    --------
    >>> print(missing_extra("pictures need matplotlib", "plots"))
    pictures need matplotlib: pip install 'blue-solvers[plots]'
    """
    ways = [way for way in (how_to_install(extra), otherwise) if way]
    return ImportError(f"{need}: {', or '.join(ways)}" if ways else f"{need}, which cannot be had here")


def how_to_install(extra: str) -> str:
    """The words of pip for an extra of this package, installed or a folder of sources; empty where they do not work."""
    if sys.platform == "emscripten":  # a browser: the libraries of extras have no wheels there
        return ""
    from importlib.metadata import PackageNotFoundError, distribution  # which takes as long as all of `--help`

    try:
        distribution(PACKAGE)  # pip takes what is installed for the package itself
    except PackageNotFoundError:
        return f"pip install '{ROOT}[{extra}]'" if (ROOT / "pyproject.toml").exists() else ""
    return f"pip install '{PACKAGE}[{extra}]'"
