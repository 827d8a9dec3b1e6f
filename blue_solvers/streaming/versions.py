"""What the bytes of a result depend on beside its input."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy
import polars
import scipy

import blue_solvers
import constraint_builders
from constraint_builders.compiled import has_numba


@cache
def versions() -> dict[str, str]:
    """Versions of Python and the packages at work, and a digest of our own source.

    Compiled loops add in another order than their references, so that sums with and without numba differ in rounding.
    """
    return {
        "Python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "polars": polars.__version__,
        "numba": metadata.version("numba") if has_numba() else "not installed",
        "blue_solvers": _source_digest(blue_solvers),
        "constraint_builders": _source_digest(constraint_builders),
    }


def difference(here: dict[str, str], there: dict[str, str]) -> str:
    """The first package whose versions differ, with both; empty if all agree."""
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            return f"{name} {there.get(name)} instead of {here.get(name)}"
    return ""


def _source_digest(package: ModuleType) -> str:
    folder = Path(package.__path__[0])
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return f"source {digest.hexdigest()[:12]}"
