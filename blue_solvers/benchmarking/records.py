"""What a benchmark has measured so far, in a file that a later run goes on with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from blue_solvers.benchmarking.one_pair import DONE, Figures
from constraint_builders import Problem

Key = tuple[str, str, str]


def fingerprint(problem: Problem, columns: int, seed: int) -> str:
    """What tells whether figures are of this very benchmark: layouts, precisions, columns and seed."""
    said = hashlib.sha256(repr((problem.observed.names, problem.desired.names, columns, seed)).encode())
    for layout in (problem.observed, problem.desired):
        said.update(repr([layout.shape(name) for name in layout.names]).encode())
    said.update(np.ascontiguousarray(problem.variances).tobytes())
    return said.hexdigest()[:16]


def read_records(path: str | os.PathLike[str]) -> dict[Key, Figures]:
    """The figures of a file, by problem, solver and fingerprint; a last line that was cut short is left out.

    Pairs that failed are measured again, those that a solver refused are not.

    Raises
    ------
    ValueError
        If the file holds something else.
    """
    if not Path(path).exists():
        return {}
    found: dict[Key, Figures] = {}
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    names = {field.name for field in fields(Figures)}
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
            key = record["problem"], record["solver"], record["fingerprint"]
            own = Figures(**{name: record[name] for name in names})
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(
                f"{os.fspath(path)}: line {number} is no record of a benchmark: name another file"
            ) from None
        if own.status == DONE or own.status.startswith("UnsupportedProblemError"):
            found[key] = own
    return found


def append_record(path: str | os.PathLike[str], key: Key, own: Figures) -> None:
    """Add a pair's figures to a file, on the disk when this returns."""
    named: Mapping[str, object] = dict(zip(("problem", "solver", "fingerprint"), key, strict=True))
    end = _whole_lines(path)
    with open(path, "r+b" if end else "wb") as file:
        file.seek(end)
        file.truncate()
        file.write(json.dumps({**named, **asdict(own)}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _whole_lines(path: str | os.PathLike[str]) -> int:
    """Where the last whole line of a file ends."""
    return Path(path).read_bytes().rfind(b"\n") + 1 if Path(path).exists() else 0
