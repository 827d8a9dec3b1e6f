"""Closed forms beside a copy of input and output into memory at hand, on named problems and on invented ones.

    python -m bench closed_forms            twelve problems and 20 invented schemas, about two minutes
    python -m bench closed_forms --quick    small ones, and 5 invented schemas

"first" is CPU time from the description to the first answer, compiled loops being at hand: `Problem`, `blue` and
one apply; beside it, in later applies. "x copy" is the time of an apply, of its adjoint, and of 64 columns together,
each over the time to copy what goes in and comes out. The last line is the worst of the invented schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from bench.measuring import best_seconds, copy_seconds, is_quick, print_figures, timed
from bench.problems import PROBLEMS
from blue_solvers import blue
from constraint_builders import Problem, Schema, gallery

AT_ONCE = 64  # columns
MOST_NUMBERS = 5e6  # that these may have
SMALL = ("pl94", "5^5", "6^6", "adult two-way", "2 to 15 levels, three-way")
LARGE = ("2 to 11 levels, four-way", "2^12", "7^7", "dhc", "pl94 x 55", "adult", "50 x 10")


def main(argv: list[str]) -> None:
    """Print both tables."""
    quick = is_quick(argv, "closed_forms", __doc__, "small problems, and few invented schemas")
    for warm in (gallery.cube(6, 6), gallery.pl94()):
        blue(warm) @ np.zeros(warm.observed.size)  # loads compiled loops
    names = SMALL if quick else SMALL + LARGE
    print_figures((_measured(name, PROBLEMS[name]) for name in names), names)
    print()
    found = [_measured(name, make) for name, make in _invented(5 if quick else 20)]
    worst = max(found, key=lambda figures: figures["x copy"])
    print_figures([*found, {**worst, "problem": "worst"}], (figures["problem"] for figures in found))


def _invented(count: int) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Schemas of 2 to 12 variables and some of their tables: a share of those of up to three variables, or of all."""
    rng = np.random.default_rng(2026)
    for number in range(count):
        size = int(rng.integers(2, 13))
        levels = {f"v{i}": int(n) for i, n in enumerate(np.exp(rng.uniform(np.log(2), np.log(40), size)))}
        ways = min(size, int(rng.integers(2, 5)))
        every = [chosen for way in range(ways + 1) for chosen in combinations(levels, way)]
        share = rng.uniform(0.2, 1)
        kept = [own for own in every if rng.random() < share and np.prod([levels[v] for v in own]) < 1e5]
        kept += [(name,) for name in levels if (name,) not in kept]
        tables = {" * ".join(chosen) or "total": float(rng.integers(1, 9)) for chosen in kept}
        recodes = {}
        if number % 3 == 0:
            recodes["v0"] = {"coarse": [min(level, 1 + level // 3) for level in range(levels["v0"])]}
            tables["coarse"] = 2.0
        described = f"{size} variables up to {ways}-way, {len(tables)} tables" + (", a recode" if recodes else "")
        yield described, partial(Problem, Schema(levels, recodes=recodes), tables)


def _measured(name: str, make: Callable[[], Problem]) -> dict[str, Any]:
    """Figures of a problem, by the headings of columns."""
    y = np.random.default_rng(0).standard_normal(make().observed.size)
    (P, x), first = timed(lambda: ((P := blue(make())), P @ y))
    apply, adjoint, copy = best_seconds(lambda: P @ y), best_seconds(lambda: P.T @ x), copy_seconds(y, x)
    many = None
    if AT_ONCE * max(y.size, x.size) <= MOST_NUMBERS:
        Y = np.repeat(y[:, None], AT_ONCE, axis=1)
        many = best_seconds(lambda: P @ Y) / copy_seconds(Y, P @ Y)
    return {
        "problem": name,
        "cells in": y.size,
        "out": x.size,
        "first s": first,
        "x apply": first / apply,
        "apply ms": 1e3 * apply,
        "x copy": apply / copy,
        "adjoint x copy": adjoint / copy,
        "64 columns x copy": many,
    }
