"""What a folder or a file that was given to a command is, where it is not what the command takes."""

from __future__ import annotations

from pathlib import Path

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
