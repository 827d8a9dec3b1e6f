"""Two releases' ratios to others side by side; says what became worse, and ends with 1 if anything did.

    python -m bench compare bench/history/A.json bench/history/B.json

Files are those of `python -m bench peers --keep`. Compared is by how many times a peer is slower than ours, or a copy
is faster, which other machines and days change less than times; a ratio that fell by more than 10 % is worse, and so is
an answer that moved away from ours by 10 % and more than 1e-6 standard errors. Where both versions can be run here and
now, `python -m bench versions` tells more, in one run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.measuring import print_table, verdict
from bench.release_history import read

WORSE = 1.10
NEAR = 1e-6  # standard errors that no distance is told apart below
HEADER = ["problem", "peer", "peer / ours before", "now", "ours slower by", ""]


def main(argv: list[str]) -> None:
    """Print the table, then what is in one file alone."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="kept before")
    parser.add_argument("now", type=Path, help="kept now")
    options = parser.parse_args(argv)
    try:
        before, now = read(options.before), read(options.now)
    except ValueError as error:
        sys.exit(str(error))
    common = [key for key in before["results"] if key in now["results"]]
    rows = [_row(before["results"][key], now["results"][key]) for key in common]
    print_table(HEADER, rows)
    for part in ("machine", "versions"):
        _tell_changes(part, before[part], now[part])
    for name, one, other in (("before", before, now), ("now", now, before)):
        for problem, peer in one["results"]:
            if (problem, peer) not in other["results"]:
                print(f"{name} only: {problem}, {peer}")
    if not common:
        sys.exit("nothing is in both files")
    if any(row[-1] for row in rows):
        sys.exit(1)


def _row(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    slower = before["ratio"] / now["ratio"]
    flags = [verdict(slower, WORSE)]
    if before["distance"] is not None and now["distance"] is not None:
        further = max(now["distance"], NEAR) / max(before["distance"], NEAR)
        flags.append("further away" if further > WORSE else "")
    said = ", ".join(flag for flag in flags if flag)
    return [before["problem"], before["peer"], f"{before['ratio']:.3g}", f"{now['ratio']:.3g}", f"{slower:.2f}", said]


def _tell_changes(part: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            print(f"{part}: {name} was {before.get(name)}, is {now.get(name)}")
