"""Two releases' ratios to others side by side; says what became worse, and ends with 1 if anything did.

    python -m bench compare bench/history/A.json bench/history/B.json

Files are those of `python -m bench peers --keep`. Compared is by how many times a peer is slower than ours, which
other machines and days change less than times; a ratio that fell by more than 10 % is worse, and so is an answer that
moved away from ours by 10 % and more than 1e-6 standard errors. Where both versions can be run here and now,
`python -m bench versions` tells more, in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.contests import Result
from bench.measuring import print_table, verdict
from constraint_builders import __version__

WORSE = 1.10
NEAR = 1e-6  # standard errors that no distance is told apart below
HEADER = ["problem", "peer", "peer / ours before", "now", "ours slower by", ""]
FOLDER = Path(__file__).with_name("history")
PACKAGES = ("numpy", "scipy", "numba", "hierarchicalforecast", "clarabel", "mbi")


def main(argv: list[str]) -> None:
    """Print the table, then what is in one file alone."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="kept before")
    parser.add_argument("now", type=Path, help="kept now")
    options = parser.parse_args(argv)
    before, now = read(options.before), read(options.now)
    common = [key for key in before["results"] if key in now["results"]]
    rows = [_row(before["results"][key], now["results"][key]) for key in common]
    print_table(HEADER, rows)
    for part in ("machine", "versions"):
        for name in sorted({*before[part], *now[part]}):
            was, is_now = (record[part].get(name) for record in (before, now))
            if was != is_now:
                print(f"{part}: {name} was {was}, is {is_now}")
    for name, one, other in (("before", before, now), ("now", now, before)):
        for problem, peer in one["results"].keys() - other["results"].keys():
            print(f"{name} only: {problem}, {peer}")
    if not common:
        sys.exit("nothing is in both files")
    if any(row[-1] for row in rows):
        sys.exit(1)


def _row(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    slower, apart = before["ratio"] / now["ratio"], [before["distance"], now["distance"]]
    said = verdict(slower, WORSE)
    if None not in apart and max(apart[1], NEAR) / max(apart[0], NEAR) > WORSE:
        said = ", ".join(filter(None, (said, "further away")))
    return [before["problem"], before["peer"], f"{before['ratio']:.3g}", f"{now['ratio']:.3g}", f"{slower:.2f}", said]


def write(path: Path, results: list[Result], absent: dict[str, str], note: str) -> None:
    """Keep what a run found, in a file, or in a folder under the day and the version; `note` is of the machine."""
    today = date.today().isoformat()
    if path.suffix != ".json":
        path.mkdir(parents=True, exist_ok=True)
        path = path / f"{today}_{__version__}.json"
    record = {
        "date": today,
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count(), "note": note},
        "versions": _versions(),
        "results": [asdict(own) for own in results],
        "absent": absent,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"kept in {path}", file=sys.stderr)


def read(path: Path) -> dict[str, Any]:
    """What was kept in a file; ends the program if the file is not one that `write` made."""
    try:
        record = json.loads(path.read_text())
        record["results"] = {(own["problem"], own["peer"]): own for own in record["results"]}
        _ = record["machine"], record["versions"], [float(own["ratio"]) for own in record["results"].values()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path} holds no results of python -m bench peers --keep: {error}")
    return dict(record)


def _versions() -> dict[str, str]:
    found = {"blue-solvers": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _processor() -> str:
    source = Path("/proc/cpuinfo")
    lines = source.read_text().splitlines() if source.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
