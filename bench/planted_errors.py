"""Errors planted in the measurements of Rhode Island, 68 million cells, and whether the test of their noise finds them.

    python -m bench planted_errors             redistricting tables at 2,016 cells a geounit
    python -m bench planted_errors --quick     at 16 cells, and a variance misread by 3 %

Counts are invented: what is tested is noise. "z" is that of the worst table, "largest" the largest residual in standard
errors, with its probability under all cells. A cell that is 9 standard deviations off shows by itself; one table's
variance misread by 1 % shows in its z, two levels swapped in both.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np

from bench.measuring import is_quick, print_table, timed
from bench.problems import state
from blue_solvers import BlueOperator, blue
from blue_solvers.contract import TableVariances
from blue_solvers.verification import fit_of_geography
from constraint_builders import Problem
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise

Tables = dict[tuple[str, str], np.ndarray]
Plant = Callable[[Tables], str]  # changes tables in place; gives what should be named
BLOCK, GROUP = "Block", "Block_Group"
HEADER = ["planted", "verdict", "chi-square p", "worst table", "z", "largest residual", "at", "probability",
          "geounit", "named", "s"]  # fmt: skip
SWAPPED = {False: "cenrace", True: "race"}


def main(argv: list[str]) -> None:
    """Print a row for every planted error."""
    quick = is_quick(argv, "planted_errors", __doc__, "16 cells a geounit")
    problem = state("16" if quick else "2016").observing()
    fine, spread = _tables(problem)
    P = blue(problem)
    variances = P.variances_by_table()
    y = add_noise(problem, true_vector(problem, _counts(problem)), rng=0)
    rng = np.random.default_rng(1)
    row, cell, misreading = 12_345, 3, 0.03 if quick else 0.01  # fewer cells show less

    def one_cell(tables: Tables) -> str:
        tables[fine].reshape(len(tables[fine]), -1)[row, cell] += 9 * spread
        return f"{fine[1]} of {BLOCK} {problem.spine.geocodes[problem.spine.members[-1][row]]}, cell {cell}"

    def swapped(tables: Tables) -> str:
        own = tables["Tract", SWAPPED[quick]]
        own[..., [0, 1]] = own[..., [1, 0]]
        return f"{SWAPPED[quick]} at Tract"

    def misread(tables: Tables) -> str:
        tables[fine] += rng.standard_normal(tables[fine].shape) * spread * np.sqrt(misreading)
        return f"{fine[1]} at {BLOCK}"

    def missing(tables: Tables) -> str:
        for (level, _), own in tables.items():
            if level == GROUP:
                own[100] = 0
        return problem.spine.geocodes[problem.spine.members[-2][100]][:11]  # all that its tract alone checks is off

    planted: dict[str, Plant] = {
        "nothing": lambda tables: "",
        "one cell, 9 standard deviations": one_cell,
        "two levels swapped": swapped,
        f"a variance misread by {100 * misreading:g} %": misread,
        "a block group without counts": missing,
    }
    print(f"{problem.observed.size:,} cells")
    print_table(HEADER, ([what, *_row(problem, P, variances, y, plant)] for what, plant in planted.items()), planted)


def _tables(problem: Problem) -> tuple[tuple[str, str], float]:
    """The largest table of the blocks but the detailed one, which checks it well, and its standard deviation."""
    names = [name for name in problem.observed.names if name[0] == BLOCK and name[1] != "detailed"]
    fine = max(names, key=lambda name: np.prod(problem.observed.shape(name)))
    return fine, float(np.sqrt(problem.variances[problem.observed.slice(fine).start]))


def _counts(problem: Problem) -> np.ndarray:
    """Invented counts of the blocks' cells: levels differ."""
    means = reduce(np.multiply.outer, (2.0 ** -np.arange(n) for n in problem.schema.shape))
    size = problem.spine.members[-1].size
    return np.random.default_rng(0).poisson(30 * means / means.sum(), (size, *means.shape))


def _row(problem: Problem, P: BlueOperator, variances: TableVariances, y: np.ndarray, plant: Plant) -> list[object]:
    spoilt = y.copy()
    named = plant(problem.observed.tables(spoilt))
    fit, seconds = timed(lambda: fit_of_geography(problem, spoilt, P @ spoilt + P.offset, variances.of))
    (level, table), worst = fit.worst_table
    own, geounit = fit.largest[0], fit.geounit
    at = f"{own.table} of {own.geolevel} {own.geocode}, cell {own.cell}"
    told = [f"{table} at {level}", at, geounit.geocode]
    found = "" if not named else "yes" if any(given.startswith(named) for given in told) and not fit.fits else "NO"
    verdict, place = "fits" if fit.fits else "DOES NOT FIT", f"{geounit.geocode}, z {geounit.z:+.1f}"
    return [verdict, fit.p_value, told[0], worst.z, own.residual, at, fit.probability, place, found, seconds]
