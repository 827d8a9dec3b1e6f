"""Ratios that were measured for a release, as JSON in `bench/history/`."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.contests import Result
from constraint_builders import __version__

FOLDER = Path(__file__).with_name("history")
PACKAGES = ("numpy", "scipy", "numba", "hierarchicalforecast", "clarabel", "mbi")
Key = tuple[str, str]


def write(path: Path, results: list[Result], absent: dict[str, str], note: str) -> None:
    """Keep what a run found.

    Parameters
    ----------
    path : Path
        A file, or a folder, in which it is named by the day and the version.
    note : str
        What one has to know of the machine.
    """
    today = date.today().isoformat()
    if path.suffix != ".json":
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"{today}_{__version__}.json"
    machine = {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count(), "note": note}
    record = {
        "date": today,
        "machine": machine,
        "versions": _versions(),
        "results": [asdict(own) for own in results],
        "absent": absent,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"kept in {path}", file=sys.stderr)


def read(path: Path) -> dict[str, Any]:
    """What was kept in a file.

    Raises
    ------
    ValueError
        If the file is not one that `write` made.
    """
    try:
        record = json.loads(path.read_text())
        record["results"] = {(own["problem"], own["peer"]): own for own in record["results"]}
        _ = record["machine"], record["versions"], [float(own["ratio"]) for own in record["results"].values()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no results of python -m bench peers --keep: {error}") from None
    return dict(record)


def _versions() -> dict[str, str]:
    found = {"blue-solvers": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    source = Path("/proc/cpuinfo")
    lines = source.read_text().splitlines() if source.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
