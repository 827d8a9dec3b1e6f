"""Table 3 of the SEA BLUE paper, by its text and as its authors computed it: what unequal variances cost.

By the text: variances are 1, 2 or 3 at random, mean squared errors are over all 625 cells, and wherever variances are
unequal the down pass is oblique, Algorithm 2's second branch, which `SeaBlue` is. As computed: variances are 1, 2 and 3
in turn by the cell's place among the 625 (the total first, a variable's sum before its levels), errors are over the 369
cells up to three-way, and only one-way tables are fitted obliquely; two- and three-way tables keep their collected
interactions, as though variances were equal. That is what reproduces the printed figures.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from bench.papers.printed_figures import TABLE_3, Comparison
from blue_solvers import SeaBlue, blue
from constraint_builders import Problem, gallery
from constraint_builders.arrays import Float
from noise_mechanisms import draw_noise

LEVELS = VARIABLES = 4
PAPER_REPLICATES = 100
FIGURES = ("SEA BLUE", "BLUE", "SEA BLUE to BLUE")
MOST_WAYS = 3  # of the tables that the authors average over
UNEQUAL: dict[str, Callable[[str, int], bool]] = {
    "One Marginal": lambda name, ways: name == "v0",
    "All Marginals": lambda name, ways: ways == 1,
    "All 2 Way": lambda name, ways: ways == 2,
    "All 3 Way": lambda name, ways: ways == 3,
    "Detailed": lambda name, ways: ways == 4,
    "All Counts 1 Var": lambda name, ways: "v0" in name,
}

Ways = tuple[int, ...]
_ALL: list[Ways] = [ways for k in range(VARIABLES + 1) for ways in combinations(range(VARIABLES), k)]
TABLES = {ways: " * ".join(f"v{i}" for i in ways) or "total" for ways in _ALL}
AVERAGED = {ways: name for ways, name in TABLES.items() if len(ways) <= MOST_WAYS}
PLACES = np.arange((LEVELS + 1) ** VARIABLES).reshape((LEVELS + 1,) * VARIABLES)  # a variable's sum before its levels


def by_the_text(replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """The table with variances at random, over all cells, every table fitted obliquely."""
    for row, printed in TABLE_3.items():
        errors = np.array([_squared_errors(row, rng) for _ in range(replicates)])
        for figure, ours, paper in zip(FIGURES, errors.T, printed, strict=True):
            yield Comparison("3, by the text", row, figure, ours, paper, PAPER_REPLICATES, digits=4)


def random_variances(row: str, rng: np.random.Generator) -> Problem:
    """The 4 x 4 cube with variances of 1, 2 or 3 at random in the row's tables, of 2 in the others."""
    return _cube(row, rng.choice([1.0, 2.0, 3.0], PLACES.shape))


def cyclic_variances(row: str) -> Problem:
    """The 4 x 4 cube with variances of 1, 2 and 3 in turn in the row's tables, of 2 in the others."""
    return _cube(row, 1.0 + PLACES % 3)


def _cube(row: str, unequal: Float) -> Problem:
    cells = {ways: tuple(slice(1, None) if i in ways else 0 for i in range(VARIABLES)) for ways in TABLES}
    is_unequal = {ways: UNEQUAL[row](name, len(ways)) for ways, name in TABLES.items()}
    variances = {name: unequal[cells[ways]] if is_unequal[ways] else 2.0 for ways, name in TABLES.items()}
    return Problem(gallery.cube(VARIABLES, LEVELS).schema, variances)


def _squared_errors(row: str, rng: np.random.Generator) -> tuple[float, float, float]:
    problem = random_variances(row, rng)
    noise = draw_noise(problem, 1, rng)
    heuristic, best = blue(problem, SeaBlue()) @ noise, blue(problem, "cholesky") @ noise
    return float((heuristic**2).mean()), float((best**2).mean()), float(((heuristic - best) ** 2).mean())


def as_computed(replicates: int, rng: np.random.Generator) -> Iterator[Comparison]:
    """The table as the authors computed it."""
    for row, printed in TABLE_3.items():
        problem = cyclic_variances(row)
        noise = draw_noise(problem, replicates, rng)
        heuristic, best = authors_estimate(problem, noise), averaged(problem, blue(problem, "cholesky") @ noise)
        for figure, ours, paper in zip(FIGURES, (heuristic, best, heuristic - best), printed, strict=True):
            squared = (ours**2).mean(axis=0)
            yield Comparison("3, as computed", row, figure, squared, paper, PAPER_REPLICATES, digits=4)


def averaged(problem: Problem, X: Float) -> Float:
    """Those of all 625 cells that the authors average over, table by table: (369, K)."""
    tables = problem.observed.tables(X)
    return np.concatenate([tables[name].reshape(-1, X.shape[1]) for name in AVERAGED.values()])


def authors_estimate(problem: Problem, Y: Float) -> Float:
    """What the authors' program makes of measurements of the cube, (625, K), for the cells of `averaged`.

    Every table is collected from the tables that contain it by inverse variances. One-way tables are then fitted to the
    total by their variances. Two- and three-way tables keep the interaction of all their variables, and take all else
    from the tables below, evenly.
    """
    values, variances = problem.observed.tables(Y), problem.observed.tables(problem.variances)
    estimates: dict[Ways, Float] = {}
    for ways in AVERAGED:
        own, variance = _collected(ways, values, variances)
        if len(ways) == 0:
            estimates[ways] = own
        elif len(ways) == 1:
            short = estimates[()] - own.sum(axis=0)
            estimates[ways] = own + (variance / variance.sum())[:, None] * short
        else:
            below = (lower for k in range(len(ways)) for lower in combinations(ways, k))
            estimates[ways] = sum((_spread(estimates[lower], lower, ways) for lower in below), start=_interaction(own))
    return np.concatenate([estimate.reshape(-1, Y.shape[1]) for estimate in estimates.values()])


def _collected(ways: Ways, values: dict[str, Float], variances: dict[str, Float]) -> tuple[Float, Float]:
    """Counts of a table from all tables that contain it, weighted by inverse variance, and their variances."""
    weighted, precision = np.zeros(()), np.zeros(())
    for finer, name in TABLES.items():
        if set(ways) <= set(finer):
            summed = tuple(axis for axis, i in enumerate(finer) if i not in ways)
            own = 1 / np.asarray(variances[name]).sum(axis=summed)
            precision = precision + own
            weighted = weighted + own[..., None] * np.asarray(values[name]).sum(axis=summed)
    return weighted / precision[..., None], 1 / precision


def _interaction(table: Float) -> Float:
    """What is left of a table when its means over every variable are taken away; the last axis is of columns."""
    for axis in range(table.ndim - 1):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _spread(table: Float, lower: Ways, ways: Ways) -> Float:
    """The interaction of all of a table's variables, spread evenly over the other variables of a larger one."""
    shape = (*(LEVELS if i in lower else 1 for i in ways), table.shape[-1])
    return _interaction(table).reshape(shape) / LEVELS ** (len(ways) - len(lower))
