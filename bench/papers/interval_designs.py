"""Tables 4 to 6 of the SEA BLUE paper: coverage and widths of confidence intervals, design by design.

"k x k": k variables of k levels, all margins measured with variance 2. As in the authors' code half of the detailed
counts are 0 and half 1 plus a Poisson number of mean 4, 20 simulated errors serve each interval, and one refined to
nothing has width 0. The paper says that the noise is continuous, but the widths that it prints for refined initial
intervals are those of discrete Gaussian noise, which is taken here.

"PL94 Block": `gallery.pl94_block`, 2020 production's budget of a block without the recoded query group. True counts are
those of 40 blocks of Rhode Island in 2010: by voting age, and the race of people of one race (people of two or more in
the first such category, Hispanics as some other race), all in households. Without the data file they are drawn like
those of the cubes.

"PL94 Multi": `gallery.pl94_counties(55, recoded=False)`, 2020 production's budgets of a state and of its counties.
The figures are those of one set of measurements, 40 x 20 simulated errors taken together, and the distribution-free
interval at the order statistic of the released code, 97.5 % of the way up the absolute errors (the 781st of 800;
Proposition 26 takes the 761st). The mean width of all tables is compared. Its split into tables that were measured and
tables that were not is printed without being compared: it does not come out. Refined widths would need the true counts
of West Virginia.

Coverage of the redistricting rows is over the tables of Summary File 1, which the authors had for true counts: ten of
a block, twelve of a state and of each county (`SUMMARY_FILE`).

"DHC State": `gallery.dhc`, of one set of measurements too. Refined widths would need its true counts.

Noisy intervals are 1.96 standard deviations to each side, as the paper's 31.230 has it (the normal quantile gives
31.229); the others are at the exact quantile.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bench.papers.printed_figures import TABLE_4, TABLE_5, TABLE_6, Comparison
from bench.problems import BLOCKS as STATE
from bench.problems import block_counts
from blue_solvers import BlueOperator, blue
from blue_solvers.uncertainty import half_widths, refine_to_integers
from constraint_builders import Problem, gallery
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table
from noise_mechanisms import draw_noise

Booleans = NDArray[np.bool_]
Draw = Callable[[np.random.Generator], Float]  # of true counts
SEED = 2025
MULTI = "PL94 Multi"
LEVEL = 0.95
RELEASED_LEVEL = 0.975  # of the order statistic in the released code
NOISY_MULTIPLE = 1.96
DRAWS = 20  # of every Monte Carlo interval
PAPER_REPLICATES = 40
BLOCKS = 40
METHODS = ("exact", "t", "distribution_free")
KINDS = ("raw", "clip")
REPLICATES = {
    "3 x 3": 4000, "4 x 4": 2000, "5 x 5": 400, "6 x 6": 100, "PL94 Block": 200, "PL94 Multi": 10, "DHC State": 8,
}  # fmt: skip
QUICK = dict.fromkeys(("3 x 3", "4 x 4", "PL94 Block"), 40)
SUMMARY_FILE = (
    "total", "hhgq", "votingage", "hispanic", "cenrace", "hispanic * cenrace", "hhgq * votingage",
    "votingage * cenrace", "votingage * hispanic", "votingage * hispanic * cenrace",
)  # fmt: skip
ABOVE_BLOCKS = ("hhgq * hispanic", "hhgq * votingage * hispanic")  # in it too, of tracts and larger


@dataclass(frozen=True)
class Design:
    """A design: its operator, how many are drawn, and what draws true detailed counts, if they are at hand.

    Coverage is over the tables named, and these by county, or over all.
    """

    name: str
    P: BlueOperator
    truth: Draw | None = None
    draws: int = DRAWS
    free_level: float = LEVEL
    paper_replicates: int = PAPER_REPLICATES
    covered: tuple[str, ...] | None = None

    def half_widths(self, seed: int) -> list[Float]:
        """Exact, t and distribution-free, (m,) each."""
        levels = {"t": LEVEL, "distribution_free": self.free_level}
        drawn = [half_widths(self.P, level, method, self.draws, seed) for method, level in levels.items()]
        return [half_widths(self.P, LEVEL), *drawn]


def designs(names: Iterable[str]) -> Iterator[Design]:
    """The designs of some rows."""
    for name in names:
        if name == "PL94 Block":
            base = gallery.pl94_block()
            truth = _blocks_of_rhode_island() or _simulated_counts(int(np.prod(base.schema.shape)))
            yield Design(name, _prepared(base), truth, covered=SUMMARY_FILE)
        elif name == MULTI:
            P, draws = _prepared(gallery.pl94_counties(55, recoded=False)), PAPER_REPLICATES * DRAWS
            yield Design(name, P, None, draws, RELEASED_LEVEL, 1, SUMMARY_FILE + ABOVE_BLOCKS)
        elif name == "DHC State":
            yield Design(name, _prepared(gallery.dhc()), paper_replicates=1)
        else:
            k = int(name[0])
            yield Design(name, _prepared(gallery.cube(k, k)), _simulated_counts(k**k))


def _prepared(base: Problem) -> BlueOperator:
    """Of the same problem with discrete Gaussian noise."""
    return blue(base.replace(noise=base.noise.of_law("discrete_gaussian")))


def _simulated_counts(size: int) -> Draw:
    def draw(rng: np.random.Generator) -> Float:
        counts = np.zeros(size)
        filled = rng.choice(size, size // 2, replace=False)
        counts[filled] = 1 + rng.poisson(4, filled.size)
        return counts

    return draw


RACES = {"white": 0, "black": 1, "aian": 2, "asian": 3, "nhpi": 4, "other": 5, "two": 6, "hisp": 5}


def _blocks_of_rhode_island() -> Draw | None:
    """What draws one of 40 blocks, (hhgq, voting age, hispanic, race) in a row; None without the file."""
    if not STATE.exists():
        return None
    populated = []
    for _, people in block_counts():
        counts = np.zeros((8, 2, 2, 63))
        for column, number in people.items():
            age, race = column.split("_")
            counts[0, int(age == "adult"), int(race == "hisp"), RACES[race]] += number
        if counts.any():
            populated.append(counts.ravel())
    chosen = np.random.default_rng(SEED).choice(len(populated), BLOCKS, replace=False)
    return lambda rng: populated[chosen[rng.integers(BLOCKS)]]


def tables_4_to_6(design: Design, replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """Coverage and widths of one design; of a split that does not come out only noisy figures are compared."""
    row, problem = design.name, design.P.problem
    names = {table.name for table in problem.observed_tables}
    wanted = {frozenset(() if name == "total" else name.split(" * ")) for name in design.covered or ()}
    measured = _is_in(problem, lambda table: table.name in names)
    judged = _is_in(problem, lambda table: not wanted or frozenset(table.factors) - {"county"} in wanted)
    sums = None if design.truth is None else problem.marginal_matrix()
    found = [_replicate(design, sums, measured, judged, rng) for _ in range(replicates)]
    covered, given, others = map(np.array, zip(*found, strict=True))
    figures = [f"{method} {kind}" for method in ("noisy", *METHODS) for kind in KINDS]
    tables = [("4", METHODS, covered, TABLE_4.get(row)), ("5", figures, given, TABLE_5[row])]
    tables.append(("6", figures[2:], others, TABLE_6.get(row)))
    if row == MULTI:
        share = float(measured.mean())
        printed = share * np.array(TABLE_5[row][2:]) + (1 - share) * np.array(TABLE_6[row])
        tables.append(("5 and 6", figures[2:], share * given[:, 2:] + (1 - share) * others, printed))
    for table, named, ours, paper in tables:
        for figure, values, theirs in zip(named, ours.T, () if paper is None else paper, strict=paper is not None):
            if not np.isnan(values).any():
                comparable = row != MULTI or table not in "56" or figure.startswith("noisy")
                digits = 4 if table == "4" else 3
                yield Comparison(table, row, figure, values, theirs, design.paper_replicates, comparable, digits)


def _replicate(
    design: Design, sums: sparse.csr_array | None, measured: Booleans, judged: Booleans, rng: np.random.Generator
) -> tuple[list[float], list[float], list[float]]:
    """Coverage by method; widths of measured tables, noisy ones first, and of others, NaN without true counts."""
    problem, observed, desired = design.P.problem, None, None
    noise, noisy = draw_noise(problem, 1, rng)[:, 0], NOISY_MULTIPLE * np.sqrt(problem.variances)
    error, halves = design.P @ noise, design.half_widths(int(rng.integers(2**63)))
    if design.truth is not None:
        true = sums @ design.truth(rng)
        observed, desired = true + noise, problem.tabulate(true[:, None])[:, 0] + error
    both = [width for half in halves for width in _widths(half, desired)]
    given = [*_widths(noisy, observed), *(width[measured] for width in both)]
    others = [width[~measured] for width in both if not measured.all()]
    covered = [(abs(error) <= half)[judged] for half in halves]
    return tuple([float(own.mean()) for own in some] for some in (covered, given, others))


def _widths(half: Float, centre: Float | None) -> tuple[Float, Float]:
    """Widths of intervals as they are, and refined to whole numbers: NaN without what they are around."""
    if centre is None:
        return 2 * half, np.full(half.shape, np.nan)
    low, high = refine_to_integers(centre - half, centre + half)
    return 2 * half, np.maximum(high - low, 0)


def _is_in(problem: Problem, is_meant: Callable[[Table], bool]) -> Booleans:
    """Which cells of the desired layout are of tables that are meant."""
    return np.repeat([is_meant(table) for table in problem.desired_tables], [t.size for t in problem.desired_tables])
