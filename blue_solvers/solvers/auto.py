"""Choosing a solver.

Where no closed form holds, iterations around equal variances take some 5 steps times the root of the largest ratio of
variances within a table, each an estimate; a factorisation's work is counted in its own order of elimination. What the
choice buys, in seconds to prepare and to estimate once (CPU time on a loaded machine, log-uniform variances):

    =========================  =============  ==============  ============
    problem, ratio             around equal   on constraints  factorised
    =========================  =============  ==============  ============
    PL94, 10^4                 0.03 + 0.08    0.05 + 0.05     0.03 + 0.003
    Adult up to two-way, 10^4  0.07 + 1.5     0.31 + 1.6      0.95 + 0.05
    Adult up to two-way, 10^6  0.07 + 17.9    0.48 + 4.0      0.88 + 0.06
    5^5, 10^4                  0.01 + 0.05    0.10 + 0.46     0.47 + 0.012
    PL94 x 55 counties, 10^4   0.08 + 2.4     0.65 + 10.5     3.9 + 0.13
    2^10, 100                  0.53 + 0.20    5.8 + 6.1       -
    =========================  =============  ==============  ============
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf, sqrt
from typing import ClassVar

from blue_solvers.components.assumptions import holds_many_times_its_tables
from blue_solvers.contract import Prepared, Refusal, Solver
from blue_solvers.normal_equations.noisy_equations import equations_of
from blue_solvers.solvers.closed_forms import AreaSolver, SeaBlue, TwoPass
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from blue_solvers.solvers.direct import Cholesky, Dense
from constraint_builders import Problem

AROUND, ON_CONSTRAINTS = ConjugateGradient(preconditioner="two_pass"), ConjugateGradient()

CHOLESKY_OPERATIONS = 5e10  # of a factorisation, seconds of one processor; what costs more had better be iterated
CHOLESKY_RANK = 100_000  # above it the equations are not even formed to count operations, if iterations will be few
MOST_RANK, MOST_PRODUCTS = 1_000_000, 200_000_000  # beyond which they never are: seconds and a gigabyte
STEPS = 5.0  # of iterations around equal variances, beside the root of the ratio of variances within a table
PRODUCTS, OPERATIONS = 2.0, 1_000.0  # of forming and factorising, for every cell, likewise: what these steps take
WIDEST_RATIO = 1e8  # up to which it counts: beyond, iterations come to their limit
UNKNOWN_RATIO = 1e4  # of tables measured in part
FEW_ENTRIES = 80_000  # detailed cells times tables, up to which equations between crossing recodes are cheap
SAFE_RATIO = 10.0  # variances within a table in this ratio take about 30 estimates, whatever their law


@dataclass(frozen=True)
class Auto(Solver):
    """The cheapest solver that gives the BLUE, by their `capabilities`; `info` says which and why. Never a heuristic.

    What decides is the problem alone, so that it is the same solver in every run.
    """

    name: ClassVar[str] = "auto"
    takes_singular_noise: ClassVar[bool] = True

    def refusal(self, problem: Problem) -> str | None:
        """Nothing, but what the dense solver does of singular noise: iterations on constraints take all else."""
        return Dense().refusal(problem) if problem.noise.is_singular else None

    def plan(self, problem: Problem) -> Prepared:
        """Choose, and prepare that solver."""
        solver, reason = self.choose(problem)
        prepared = solver.plan(problem)
        prepared.info = replace(prepared.info, reason=f"{self.name} chose {prepared.info.solver}: {reason}")
        return prepared

    def choose(self, problem: Problem) -> tuple[Solver, str]:
        """The solver for a plain problem (see `Solver`), and why.

        Parameters
        ----------
        problem : Problem

        Returns
        -------
        solver : Solver
        reason : str
        """
        equal = "noise is uncorrelated and of equal variance within"
        is_wide = problem.is_placed and holds_many_times_its_tables(problem, problem.domain.places.size)
        for solver, suits, why in (
            (Dense(), problem.noise.is_singular, "its covariance is singular"),
            (SeaBlue(), True, f"{equal} tables (A1-A3): closed form"),
            (TwoPass(), not problem.is_tabular, "its nodes form a tree of sums: two sweeps, exact"),
            (AreaSolver(), is_wide, "all variables together have many times the cells of the tables, exact"),
            (TwoPass(), problem.has_areas and problem.nests, "its areas form a tree: two passes, exact"),
            (TwoPass(), not problem.has_only_tables, f"{equal} every table of a geounit: two passes, exact"),
            (AreaSolver(), problem.has_areas, f"{equal} every table of an area: exact"),
        ):
            if suits and solver.why_not_best(problem) is None:
                return solver, why
        why, dear = _why_not_closed_form(problem), _why_not_factorised(problem)
        if not dear:
            return Cholesky(), f"{why}: {problem.rank:,} constraints are cheap to factorise"
        if not problem.noise.has_entries and Dense().refusal(problem) is None and AROUND.refusal(problem):
            return Dense(), f"{why}{dear}: small enough to find them"
        return _iterations(problem, f"{why}{dear}, so iterations")


def _why_not_closed_form(problem: Problem) -> str:
    closed = AreaSolver() if problem.has_areas else SeaBlue() if problem.has_only_tables else TwoPass()
    return _first(closed.why_not_best(problem) or "")


def _why_not_factorised(problem: Problem) -> str:
    """What stands against a factorisation of A Sigma A', or nothing; its work is that of a full matrix, or less."""
    if (unsupported := Cholesky().refusal(problem)) is not None:
        return f", and {_first(unsupported)}"
    if problem.recodes_cross and problem.domain.size * len(problem.observed_tables) > FEW_ENTRIES:
        return ": crossing recodes have too many cells to find equations"
    rank, most = problem.rank, 3 * CHOLESKY_OPERATIONS
    is_cheap = rank <= CHOLESKY_RANK and (rank**3 <= most or _products(problem) ** 1.5 <= most)
    return "" if is_cheap else f": {rank:,} constraints are dear to factorise"


def _products(problem: Problem) -> float:
    from blue_solvers.normal_equations.factorisation import products_of

    return products_of(problem.noise.entries() @ problem.constraint_matrix().T)


def _iterations(problem: Problem, why: str) -> tuple[Solver, str]:
    """Around the nearest structured problem, or on all rows of the constraints where there is none.

    Where they would be long, a factorisation that takes less.
    """
    from blue_solvers.normal_equations.factorisation import operations_by_cholmod
    from blue_solvers.structured.nearest import tables_left_out, variance_ratio

    unsupported = AROUND.refusal(problem)
    if unsupported is not None:
        return ON_CONSTRAINTS, f"{why} on the constraints; not around equal variances, since {_first(unsupported)}"
    left_out = tables_left_out(problem)
    if left_out and problem.recodes_cross:
        return AROUND, f"{why} around equal variances; equations between crossing recodes would have to be found first"
    ratio = variance_ratio(problem)
    told = "tables are measured in part" if isinf(ratio) else f"the ratio within a table is at most {ratio:.3g}"
    chosen = f"{why} around equal variances: {told}"
    if ratio <= SAFE_RATIO and not problem.is_correlated and not left_out:
        return AROUND, chosen
    ratio = UNKNOWN_RATIO if isinf(ratio) else ratio
    work = sqrt(min(ratio, WIDEST_RATIO)) * problem.observed.size
    takes_factors = Cholesky().refusal(problem) is None and not problem.recodes_cross and problem.rank <= MOST_RANK
    if takes_factors and _products(problem) <= min(PRODUCTS * work, MOST_PRODUCTS):
        matrix = equations_of(problem, "independent")[-1].normal_matrix()
        if operations_by_cholmod(matrix) <= OPERATIONS * work:
            return Cholesky(), f"{_why_not_closed_form(problem)}: factorised, iterations would be long ({told})"
    if STEPS * sqrt(ratio) > AROUND.max_iterations:
        return ON_CONSTRAINTS, f"{why} on the constraints: the ratio within a table is up to {ratio:.3g}"
    return AROUND, chosen


def _first(reason: str) -> str:
    """What is the matter, without the advice after it."""
    return reason.reason if isinstance(reason, Refusal) else reason
