"""What a benchmark has measured so far, in a file that a later run goes on with."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace

from blue_solvers.benchmarking.one_pair import DONE, Costs
from blue_solvers.contract import Solver
from blue_solvers.solvers import SolverName
from constraint_builders import Problem
from constraint_builders.opening import read_bytes

Key = tuple[str, str, str]
KEY = ("problem", "solver", "fingerprint")
BEGINNING = b'{"problem": '  # of a line, which may be cut short anywhere
KINDS = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float), "None": (type(None),)}
FIGURES = {own.name: sum((KINDS[kind] for kind in str(own.type).split(" | ")), ()) for own in fields(Costs)}


def fingerprint(problem: Problem, solver: SolverName | Solver, columns: int, seed: int, alone: bool) -> str:
    """What tells whether figures are of this very benchmark: all that the problem and the solver say, and how.

    Raises
    ------
    TypeError
        If one of them cannot be pickled.
    """
    said = hashlib.sha256()
    pickler = pickle.Pickler(SimpleNamespace(write=said.update))
    pickler.fast = True  # equal parts are said alike, be they one object or several
    try:
        pickler.dump((problem, solver, columns, seed, alone))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(f"what cannot be pickled is not known again: leave out resume ({error})") from None
    return said.hexdigest()[:16]


def read_records(path: str | os.PathLike[str]) -> dict[Key, Costs]:
    """The figures of a file, by problem, solver and fingerprint; a last line that was cut short is left out.

    Pairs that failed are measured again, those that a solver refused are not.

    Raises
    ------
    ValueError
        If the file holds something else.
    """
    if not Path(path).exists():
        return {}
    found: dict[Key, Costs] = {}
    *lines, last = read_bytes(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        key, own = _record(line, f"{os.fspath(path)}: line {number}")
        if own.status == DONE or own.status.startswith("UnsupportedProblemError"):
            found[key] = own
    if not BEGINNING.startswith(last[: len(BEGINNING)]):
        raise ValueError(f"{os.fspath(path)}: its last line is no record of a benchmark: name another file")
    return found


def _record(line: bytes, where: str) -> tuple[Key, Costs]:
    """A line of a file; `ValueError` if it is none that `append_record` wrote."""
    try:
        record = json.loads(line)
        problem, solver, own = (record[name] for name in KEY)
        figures = {name: record[name] for name in FIGURES}
        known = all(isinstance(figures[name], kinds) for name, kinds in FIGURES.items())
        if known and all(isinstance(name, str) for name in (problem, solver, own)):
            return (problem, solver, own), Costs(**figures)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise ValueError(f"{where} is no record of a benchmark: name another file")


def append_record(path: str | os.PathLike[str], key: Key, own: Costs) -> None:
    """Add a pair's figures to a file, on the disk when this returns."""
    named: Mapping[str, object] = dict(zip(KEY, key, strict=True))
    end = read_bytes(path).rfind(b"\n") + 1 if Path(path).exists() else 0  # of the last whole line
    with open(path, "r+b" if end else "wb") as file:
        file.seek(end)
        file.truncate()
        file.write(json.dumps({**named, **asdict(own)}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
