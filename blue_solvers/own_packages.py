"""Refuses packages of others that have the names of ours, before anything of theirs is run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

BESIDE = Path(__file__).resolve().parents[1]
OURS = ("constraint_builders", "noise_mechanisms")


def require_own(names: tuple[str, ...] = OURS) -> None:
    """Check that packages of these names are those that came with this one.

    Raises
    ------
    ImportError
        If one lies elsewhere, or is missing: its place is named.
    """
    for name in names:
        spec = find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if origin != BESIDE / name / "__init__.py":
            found = "none is found" if spec is None else f"{origin or 'a folder without __init__.py'} is found"
            raise ImportError(
                f"blue_solvers needs its own package {name!r}, {BESIDE / name}, and {found} in its place: rename what "
                "is found, or take it out of the path"
            )


require_own()
