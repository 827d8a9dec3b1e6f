"""Closed forms beside a copy of input and output into memory at hand, on named problems and on invented ones.

    python -m bench closed_forms            twelve problems and 20 invented schemas, about two minutes
    python -m bench closed_forms --quick    small ones, and 5 invented schemas

"first" is processor time from the description to the first answer, compiled loops being at hand: `Problem`, `blue` and
one apply; beside it, in later applies. "x copy" is the time of an apply, of its adjoint, and of 64 columns together,
each over the time to copy what goes in and comes out. The last line is the worst of the invented schemas.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from bench.measuring import best_seconds, copy_seconds, print_table
from blue_solvers import blue
from constraint_builders import Problem, Schema, gallery

COLUMNS = 64
MOST_NUMBERS = 5e6  # that 64 columns may have
HEADER = ["problem", "cells in", "out", "first s", "x apply", "apply ms", "x copy", "adjoint x copy",
          "64 columns x copy"]  # fmt: skip
Figures = list[str]


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench closed_forms", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small problems, and few invented schemas")
    quick = parser.parse_args(argv).quick
    for warm in (gallery.cube(6, 6), gallery.pl94()):
        blue(warm) @ np.zeros(warm.observed.size)  # loads compiled loops
    print_table(HEADER, [_measured(name, make)[0] for name, make in _problems(quick).items()])
    print()
    rows = [_measured(name, make) for name, make in _invented(5 if quick else 20)]
    worst = max(rows, key=lambda row: row[1])
    print_table(HEADER, [*(row for row, _ in rows), ["worst", *worst[0][1:]]])


def up_to(levels: list[int], ways: int) -> Problem:
    """All tables of up to so many of some variables, in three precisions."""
    names = [f"v{i}" for i in range(len(levels))]
    tables = [" * ".join(chosen) or "total" for size in range(ways + 1) for chosen in combinations(names, size)]
    precisions = {table: 1.0 + number % 3 for number, table in enumerate(tables)}
    return Problem(Schema(dict(zip(names, levels, strict=True))), precisions)


def _problems(quick: bool) -> dict[str, Callable[[], Problem]]:
    found: dict[str, Callable[[], Problem]] = {
        "PL94, one recode": gallery.pl94,
        "5^5": lambda: gallery.cube(5, 5),
        "6^6": lambda: gallery.cube(6, 6),
        "Adult up to two-way": lambda: gallery.adult(2),
        "2 to 15 levels, three-way": lambda: up_to([*range(2, 16)], 3),
    }
    if quick:
        return found
    return found | {
        "2 to 11 levels, four-way": lambda: up_to([*range(2, 12)], 4),
        "2^12": lambda: gallery.cube(12, 2),
        "7^7": lambda: gallery.cube(7, 7),
        "DHC": gallery.dhc,
        "PL94 x 55 counties": lambda: gallery.pl94_counties(55),
        "Adult up to three-way": gallery.adult,
        "50 x 10 up to three-way": gallery.wide,
    }


def _invented(count: int) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Schemas of 2 to 12 variables and some of their tables: a share of those of up to three variables, or of all."""
    rng = np.random.default_rng(2026)
    for number in range(count):
        size = int(rng.integers(2, 13))
        levels = [int(n) for n in np.exp(rng.uniform(np.log(2), np.log(40), size))]
        names = [f"v{i}" for i in range(size)]
        ways = min(size, int(rng.integers(2, 5)))
        every = [chosen for way in range(ways + 1) for chosen in combinations(names, way)]
        share = rng.uniform(0.2, 1)
        kept = [
            chosen
            for chosen in every
            if rng.random() < share and np.prod([levels[names.index(v)] for v in chosen]) < 1e5
        ]
        kept += [(name,) for name in names if (name,) not in kept]
        tables = {" * ".join(chosen) or "total": float(rng.integers(1, 9)) for chosen in kept}
        recodes = {}
        if number % 3 == 0:
            recodes["v0"] = {"coarse": [min(level, 1 + level // 3) for level in range(levels[0])]}
            tables["coarse"] = 2.0
        schema = Schema(dict(zip(names, levels, strict=True)), recodes=recodes)
        described = f"{size} variables up to {ways}-way, {len(tables)} tables" + (", a recode" if recodes else "")
        yield described, lambda schema=schema, tables=tables: Problem(schema, tables)


def _measured(name: str, make: Callable[[], Problem]) -> tuple[Figures, float]:
    """A row, and the time of an apply over that of a copy."""
    y = np.random.default_rng(0).standard_normal(make().observed.size)
    start = time.process_time()
    P = blue(make())
    x = P @ y
    first = time.process_time() - start
    apply, adjoint, copy = best_seconds(lambda: P @ y), best_seconds(lambda: P.T @ x), copy_seconds(y, x)
    many = ""
    if COLUMNS * max(y.size, x.size) <= MOST_NUMBERS:
        Y = np.repeat(y[:, None], COLUMNS, axis=1)
        X = P @ Y
        many = f"{best_seconds(lambda: P @ Y) / copy_seconds(Y, X):.1f}"
    ratio = apply / copy
    figures = [f"{first:.4f}", f"{first / apply:.0f}", f"{1e3 * apply:.4f}", f"{ratio:.1f}", f"{adjoint / copy:.1f}"]
    return [name, f"{y.size:,}", f"{x.size:,}", *figures, many], ratio
