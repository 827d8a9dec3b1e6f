"""Tables 1 to 6 of the SEA BLUE paper, ours beside the paper's with Monte Carlo standard errors.

    python -m bench paper_tables                         all, a quarter of an hour
    python -m bench paper_tables --quick                 few replicates, small designs: a minute
    python -m bench paper_tables --table 2 --table 5

A figure is marked when it differs from the paper's by more than three standard errors: ours, that of the paper's as the
same spread over its number of replicates, and its rounding, together. Table 2, times, is printed beside ours without
being judged. Designs, and the seeds, are stated where they are: `unequal_variances` for Table 3, by the paper's text
and as its authors computed it, `interval_designs` for Tables 4 to 6.

The paper's times are means of 40 runs (of one for the DHC) on a laptop, in numpy. Ours are the least of several applies
of `sea_blue` to one vector of noise, on one thread, after preparing once, whose time is beside; and of preparing and
applying `dense` once, the projection with a matrix, where that has at most 10,000 counts.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import isfinite

import numpy as np

from bench.measuring import best_seconds, parser_of, print_table, timed
from bench.papers.interval_designs import LEVEL, METHODS, QUICK, REPLICATES, SEED, designs, tables_4_to_6
from bench.papers.printed_figures import TABLE_1, TABLE_2, Comparison
from bench.papers.unequal_variances import as_computed, by_the_text
from blue_solvers import Dense, SeaBlue, blue
from blue_solvers.uncertainty import half_widths
from constraint_builders import Problem, Schema, gallery

TABLES = "123456"
BY_THE_TEXT = "3, by the text"
PAPER_REPLICATES = 100_000  # of Table 1
PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{f"{k} x {k}": partial(gallery.cube, k, k) for k in (3, 4, 5, 6)},
    "PL94 Block": gallery.pl94_block,
    "PL94 Multi": partial(gallery.pl94_counties, 55, recoded=False),
    "DHC State": gallery.dhc,
}
QUICK_TIMES = ("3 x 3", "4 x 4", "PL94 Block")
MOST_DENSE = 10_000  # counts
OF_TIMES = ["table", "row", "counts", "prepare s", "apply s", "paper's SEA BLUE s", "dense s", "paper's projection s"]
HEADER = ["table", "row", "figure", "ours", "s.e.", "paper", "difference/s.e.", ""]


def table_1(replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """Mean widths of Monte Carlo intervals relative to z, each replicate a cell of a table without constraints."""
    P = blue(Problem(Schema({"cell": replicates}), {"cell": 1.0}))
    z = half_widths(P, LEVEL)
    for draws, printed in TABLE_1.items():
        seed = int(rng.integers(2**63))
        t, free = (half_widths(P, LEVEL, method, int(draws), seed) for method in METHODS[1:])
        ratios = {"t / z": t / z, "DF / z": free / z, "DF / t": free / t}
        for (figure, ratio), paper in zip(ratios.items(), printed, strict=True):
            yield Comparison("1", f"R = {draws}", figure, ratio, paper, PAPER_REPLICATES)


def comparisons(wanted: set[str], quick: bool) -> Iterator[Comparison]:
    """All figures of the tables, without the times of Table 2."""
    if "1" in wanted:
        yield from table_1(10_000 if quick else 100_000, np.random.default_rng([SEED, 1]))
    if "3" in wanted:
        yield from by_the_text(20 if quick else 400, np.random.default_rng([SEED, 3]))
        yield from as_computed(400 if quick else 4000, np.random.default_rng([SEED, 3, 1]))
    if {"4", "5", "6"} & wanted:
        replicates = QUICK if quick else REPLICATES
        for number, design in enumerate(designs(replicates)):
            found = tables_4_to_6(design, replicates[design.name], np.random.default_rng([SEED, 4, number]))
            yield from (c for c in found if set(c.table) & wanted)


def main(argv: list[str]) -> None:
    """Print the tables."""
    parser = parser_of("paper_tables", __doc__, "few replicates, small designs")
    parser.add_argument("--table", action="append", choices=TABLES, help="one table, may be repeated")
    options = parser.parse_args(argv)
    wanted = set(options.table or TABLES)
    if "2" in wanted:
        print_table(OF_TIMES, map(of_times, QUICK_TIMES if options.quick else PROBLEMS))
        print()
    found: list[Comparison] = []
    print_table(HEADER, (_noted(own, found) for own in comparisons(wanted, options.quick)))
    print()
    for what, is_meant in (("by the paper's text of Table 3", True), ("of the paper's own designs", False)):
        compared = [c for c in found if isfinite(c.scores) and (c.table == BY_THE_TEXT) == is_meant]
        differing = sum(c.differs for c in compared)
        print(f"{differing} of {len(compared)} figures {what} differ by more than three standard errors")


def _noted(own: Comparison, found: list[Comparison]) -> list[str]:
    found.append(own)
    return own.cells()


def of_times(name: str) -> list[object]:
    """A row of Table 2."""
    problem, (counts, paper, projection) = PROBLEMS[name](), TABLE_2[name]
    wall = partial(timed, clock=time.perf_counter)
    y = np.random.default_rng(SEED).standard_normal(problem.observed.size) * np.sqrt(problem.variances)
    P, preparing = wall(lambda: blue(problem, SeaBlue()))
    dense = wall(lambda: blue(problem, Dense()) @ y)[1] if counts <= MOST_DENSE else None
    theirs = projection if isfinite(projection) else "did not fit"
    return ["2", name, counts, preparing, best_seconds(lambda: P @ y), paper, dense, theirs]
