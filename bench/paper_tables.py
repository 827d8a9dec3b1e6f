"""Tables 1, 3, 4, 5 and 6 of the SEA BLUE paper, ours beside the paper's with Monte Carlo standard errors.

    python -m bench paper_tables                         all, some minutes
    python -m bench paper_tables --quick                 few replicates, small designs
    python -m bench paper_tables --table 3 --table 5
    python -m bench paper_tables --data ../shared/data   where the counts of Rhode Island lie

A figure is marked when it differs from the paper's by more than three standard errors: ours, that of the paper's as the
same spread over its number of replicates, and its rounding, together.

Designs. "k x k": k variables of k levels, all margins measured with variance 2. As in the authors' code half of the
detailed counts are 0 and half 1 plus a Poisson number of mean 4, 20 simulated errors serve each interval, and one
refined to nothing has width 0. The paper says that the noise is continuous, but the widths that it prints for refined
initial intervals are those of discrete Gaussian noise, which is taken here.

PL94: the query groups and variances of 2020 production, in place of the demonstration product's, whose budgets were
others; its widths stand beside the paper's without being compared. The coverage of single blocks is compared, that of
several counties not: the paper's is of other counties and, by its widths, of other numbers of draws. True counts are
those of Rhode Island in 2010, 40 blocks or 5 counties: by voting age, and the race of people of one race (people of two
or more in the first such category, Hispanics as some other race), all in households. Without the data file they are
drawn like those of the cubes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bench.measuring import print_table
from blue_solvers import BlueOperator, SeaBlue, blue
from blue_solvers.uncertainty import half_widths, normal_intervals, refine_to_integers
from constraint_builders import Problem, Schema, gallery
from constraint_builders.arrays import Float
from noise_mechanisms import draw_noise

SEED = 2025
LEVEL = 0.95
DRAWS = 20  # of every Monte Carlo interval of Tables 4 to 6
PAPER_REPLICATES = {"1": 100_000, "3": 100, "4": 40, "5": 40, "6": 40}
BLOCKS = 40
METHODS = ("exact", "t", "distribution_free")

TABLE_1 = {19: (1.055, 1.094, 1.038), 99: (1.010, 1.017, 1.007), 199: (1.005, 1.009, 1.005)}
TABLE_3 = {
    "One Marginal": (0.8132, 0.8131, 0.0000),
    "All Marginals": (0.8191, 0.8191, 0.0002),
    "All 2 Way": (0.7995, 0.7880, 0.0125),
    "All 3 Way": (0.7983, 0.7606, 0.0408),
    "Detailed": (0.8159, 0.8069, 0.0109),
    "All Counts 1 Var": (0.7932, 0.7456, 0.0451),
}
UNEQUAL: dict[str, Callable[[str, int], bool]] = {
    "One Marginal": lambda name, ways: name == "v0",
    "All Marginals": lambda name, ways: ways == 1,
    "All 2 Way": lambda name, ways: ways == 2,
    "All 3 Way": lambda name, ways: ways == 3,
    "Detailed": lambda name, ways: ways == 4,
    "All Counts 1 Var": lambda name, ways: "v0" in name,
}
TABLE_4 = {
    "3 x 3": (0.9531, 0.9480, 0.9582),
    "4 x 4": (0.9520, 0.9516, 0.9541),
    "5 x 5": (0.9510, 0.9500, 0.9520),
    "6 x 6": (0.9503, 0.9498, 0.9523),
    "PL94 Block": (0.9505, 0.9510, 0.9543),
    "PL94 Multi": (0.9482, 0.9490, 0.9733),
}
TABLE_5 = {
    "3 x 3": (5.544, 3.413, 3.601, 2.240, 3.772, 2.361, 3.963, 2.546),
    "4 x 4": (5.544, 3.506, 3.548, 2.254, 3.728, 2.407, 3.915, 2.574),
    "5 x 5": (5.544, 3.549, 3.514, 2.242, 3.694, 2.400, 3.884, 2.568),
    "6 x 6": (5.544, 3.568, 3.491, 2.233, 3.669, 2.392, 3.859, 2.5605),
    "PL94 Block": (43.802, 21.765, 19.342, 9.319, 20.300, 9.831, 21.349, 10.358),
    "PL94 Multi": (31.230, 16.062, 23.740, 11.997, 23.772, 12.013, 27.257, 13.832),
}
TABLE_6 = {
    "PL94 Block": (20.9643, 10.0505, 22.0136, 10.5767, 23.1337, 11.1392),
    "PL94 Multi": (25.0119, 12.8369, 25.04334, 12.8535, 28.7145, 14.7892),
}
DESIGN_REPLICATES = {"3 x 3": 4000, "4 x 4": 2000, "5 x 5": 400, "6 x 6": 100, "PL94 Block": 200, "PL94 Multi": 60}
QUICK_DESIGNS = ("3 x 3", "4 x 4", "PL94 Block")


@dataclass(frozen=True)
class Comparison:
    """One figure of a table: the mean of ours over replicates, beside the paper's where the two are of one design."""

    table: str
    row: str
    figure: str
    ours: Float
    paper: float
    comparable: bool = True
    digits: int = 3

    @property
    def mean(self) -> float:
        return float(self.ours.mean())

    @property
    def error(self) -> float:
        return float(self.ours.std(ddof=1) / sqrt(self.ours.size)) if self.ours.size > 1 else 0.0

    @property
    def paper_error(self) -> float:
        """Standard error of the paper's figure: our spread over its replicates, and its rounding."""
        rounding = 10.0**-self.digits / sqrt(12)
        return sqrt(self.error**2 * self.ours.size / PAPER_REPLICATES[self.table] + rounding**2)

    @property
    def scores(self) -> float:
        """Difference in standard errors, NaN where the designs differ."""
        if not self.comparable or not isfinite(self.paper):
            return nan
        return (self.mean - self.paper) / sqrt(self.error**2 + self.paper_error**2)

    def cells(self) -> list[str]:
        """The figure as a printed row."""
        score = "other design" if not isfinite(self.scores) else f"{self.scores:+.1f}"
        paper = f"{self.paper:.{self.digits}f}" if isfinite(self.paper) else ""
        mark = "DIFFERS" if abs(self.scores) > 3 else ""
        places = self.digits + 1
        printed = [f"{self.mean:.{places}f}", f"{self.error:.{places}f}", paper, score if paper else "", mark]
        return [self.table, self.row, self.figure, *printed]


def table_1(replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """Mean widths of Monte Carlo intervals relative to z, each replicate a cell of a table without constraints."""
    P = blue(Problem(Schema({"cell": replicates}), {"cell": 1.0}))
    z = half_widths(P, LEVEL)
    for draws, printed in TABLE_1.items():
        seed = int(rng.integers(2**63))
        t, free = (half_widths(P, LEVEL, method, draws, seed) for method in METHODS[1:])
        for figure, ratio, paper in zip(
            ("t / z", "DF / z", "DF / t"), (t / z, free / z, free / t), printed, strict=True
        ):
            yield Comparison("1", f"R = {draws}", figure, ratio, paper)


def table_3(replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """Mean squared errors where variances are 1, 2 or 3 at random in some tables, 2 in the others."""
    for row, printed in TABLE_3.items():
        errors = np.array([_squared_errors(row, rng) for _ in range(replicates)])
        for figure, ours, paper in zip(("SEA BLUE", "BLUE", "SEA BLUE to BLUE"), errors.T, printed, strict=True):
            yield Comparison("3", row, figure, ours, paper, digits=4)


def table_3_problem(row: str, rng: np.random.Generator) -> Problem:
    """The 4 x 4 cube with the row's variances."""
    base = gallery.cube(4, 4)
    variances: dict[str, object] = {}
    for name in base.observed.names:
        ways = 0 if name == "total" else str(name).count("*") + 1
        unequal = UNEQUAL[row](str(name), ways)
        variances[str(name)] = rng.choice([1.0, 2.0, 3.0], base.observed.shape(name)) if unequal else 2.0
    assert base.schema is not None
    return Problem(base.schema, variances)


def _squared_errors(row: str, rng: np.random.Generator) -> tuple[float, float, float]:
    problem = table_3_problem(row, rng)
    noise = draw_noise(problem, 1, rng)
    heuristic, best = blue(problem, SeaBlue()) @ noise, blue(problem, "cholesky") @ noise
    return float((heuristic**2).mean()), float((best**2).mean()), float(((heuristic - best) ** 2).mean())


@dataclass(frozen=True)
class Design:
    """A design of Tables 4 to 6: its operator, what draws true detailed counts, and the tables it compares in."""

    name: str
    P: BlueOperator
    truth: Callable[[np.random.Generator], Float]
    comparable: tuple[str, ...]


def designs(names: Iterable[str], data: Path) -> Iterator[Design]:
    """The designs of some rows."""
    for name in names:
        if name == "PL94 Block":
            yield _pl94_design(name, gallery.pl94(), _rhode_island(data, "block"), ("4",))
        elif name == "PL94 Multi":
            yield _pl94_design(name, gallery.pl94_counties(5), _rhode_island(data, "county"), ())
        else:
            k = int(name[0])
            yield Design(name, blue(_discrete(gallery.cube(k, k))), _simulated_counts(k**k), ("4", "5"))


def _pl94_design(name: str, base: Problem, counts: Float | None, comparable: tuple[str, ...]) -> Design:
    assert base.schema is not None
    discrete = _discrete(base)
    size = int(np.prod(base.schema.shape))
    if counts is None:
        return Design(name, blue(discrete), _simulated_counts(size), comparable)
    units = counts.reshape(-1, size)
    return Design(name, blue(discrete), lambda rng: units[rng.integers(len(units))], comparable)


def _discrete(base: Problem) -> Problem:
    """The same problem with discrete Gaussian noise."""
    assert base.schema is not None
    variances = {str(name): values for name, values in base.observed.tables(base.variances).items()}
    return Problem(
        base.schema, variances, desired=[str(name) for name in base.desired.names], noise="discrete_gaussian"
    )


def _simulated_counts(size: int) -> Callable[[np.random.Generator], Float]:
    def draw(rng: np.random.Generator) -> Float:
        counts = np.zeros(size)
        filled = rng.choice(size, size // 2, replace=False)
        counts[filled] = 1 + rng.poisson(4, filled.size)
        return counts

    return draw


RACES = {"white": 0, "black": 1, "aian": 2, "asian": 3, "nhpi": 4, "other": 5, "two": 6, "hisp": 5}


def _rhode_island(data: Path, geolevel: str) -> Float | None:
    """Counts (geounits, hhgq, voting age, hispanic, race) of 40 blocks or 5 counties; None without the file."""
    path = data / "ri_2010_blocks.csv.gz"
    if not path.exists():
        return None
    units: dict[str, Float] = {}
    with gzip.open(path, "rt", newline="") as file:
        for record in csv.DictReader(file):
            code = record.pop("geoid")[: 5 if geolevel == "county" else 15]
            counts = units.setdefault(code, np.zeros((8, 2, 2, 63)))
            for column, value in record.items():
                age, race = column.split("_")
                counts[0, int(age == "adult"), int(race == "hisp"), RACES[race]] += int(value)
    populated = [counts for counts in units.values() if counts.any()]
    if geolevel == "county":
        return np.array(populated)
    chosen = np.random.default_rng(SEED).choice(len(populated), BLOCKS, replace=False)
    return np.array([populated[i] for i in chosen])


def tables_4_to_6(design: Design, replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """Coverage and widths of one design."""
    P, problem = design.P, design.P.problem
    to_observed, to_desired = problem.marginal_matrix(), _desired_matrix(problem)
    given = np.isin(np.arange(problem.desired.size), _places_of_observed(problem))
    z = half_widths(P, LEVEL)
    covered: list[list[float]] = []
    widths: list[list[float]] = []
    other_widths: list[list[float]] = []
    for _ in range(replicates):
        counts = design.truth(rng)
        y = to_observed @ counts + draw_noise(problem, 1, rng)[:, 0]
        x, truth, seed = P @ y, to_desired @ counts, int(rng.integers(2**63))
        bounds = [_around(x, half) for half in (z, *(half_widths(P, LEVEL, m, DRAWS, seed) for m in METHODS[1:]))]
        initial = normal_intervals(y, np.sqrt(problem.variances), LEVEL)
        covered.append([float(((low <= truth) & (truth <= high)).mean()) for low, high in bounds])
        both = [_widths(*pair) for pair in bounds]
        widths.append([w.mean() for w in _widths(*initial)] + [w[given].mean() for pair in both for w in pair])
        if not given.all():
            other_widths.append([w[~given].mean() for pair in both for w in pair])
    yield from _compare("4", design.name, METHODS, covered, TABLE_4, "4" in design.comparable, 4)
    both_kinds = [f"{method} {kind}" for method in ("initial", *METHODS) for kind in ("raw", "clip")]
    yield from _compare("5", design.name, both_kinds, widths, TABLE_5, "5" in design.comparable, 3)
    yield from _compare("6", design.name, both_kinds[2:], other_widths, TABLE_6, "6" in design.comparable, 3)


def _compare(
    table: str,
    row: str,
    figures: Iterable[str],
    ours: list[list[float]],
    printed: Mapping[str, tuple[float, ...]],
    comparable: bool,
    digits: int,
) -> Iterator[Comparison]:
    if ours:
        for figure, values, paper in zip(figures, np.array(ours).T, printed[row], strict=True):
            yield Comparison(table, row, figure, values, paper, comparable, digits)


def _around(x: Float, half: Float) -> tuple[Float, Float]:
    return x - half, x + half


def _widths(lower: Float, upper: Float) -> tuple[Float, Float]:
    """Widths of intervals as they are, and refined to whole numbers."""
    low, high = refine_to_integers(lower, upper)
    return upper - lower, np.maximum(high - low, 0)


def _desired_matrix(problem: Problem) -> sparse.csr_array:
    assert problem.schema is not None
    return Problem(problem.schema, {str(name): 1.0 for name in problem.desired.names}).marginal_matrix()


def _places_of_observed(problem: Problem) -> NDArray[np.int64]:
    """Positions in the desired layout of tables that were measured."""
    found = []
    for name in problem.observed.names:
        try:
            place = problem.desired.slice(name)
        except ValueError:
            continue
        found.append(np.arange(place.start, place.stop))
    return np.concatenate(found)


def main(argv: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench paper_tables", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few replicates, small designs")
    parser.add_argument("--table", action="append", choices=PAPER_REPLICATES, help="one table, may be repeated")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real counts")
    options = parser.parse_args(argv)
    wanted = options.table or list(PAPER_REPLICATES)
    found: list[Comparison] = []
    if "1" in wanted:
        found += table_1(10_000 if options.quick else 100_000, np.random.default_rng([SEED, 1]))
    if "3" in wanted:
        found += table_3(20 if options.quick else 400, np.random.default_rng([SEED, 3]))
    if {"4", "5", "6"} & set(wanted):
        rows = QUICK_DESIGNS if options.quick else tuple(DESIGN_REPLICATES)
        for design in designs(rows, options.data):
            replicates = 40 if options.quick else DESIGN_REPLICATES[design.name]
            found += tables_4_to_6(design, replicates, np.random.default_rng([SEED, 4, len(found)]))
    shown = sorted((c for c in found if c.table in wanted), key=lambda c: c.table)
    header = ["table", "row", "figure", "ours", "s.e.", "paper", "difference/s.e.", ""]
    print_table(header, [comparison.cells() for comparison in shown])
    compared = [c for c in shown if isfinite(c.scores)]
    differing = sum(abs(c.scores) > 3 for c in compared)
    print(f"\n{differing} of {len(compared)} figures of the same design differ by more than three standard errors")
