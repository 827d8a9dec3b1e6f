"""Choosing a solver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import sparse

from blue_solvers.components.size import holds_many_times_its_tables
from blue_solvers.contract import Info, Prepared, Refusal, Solver, TableVariances
from blue_solvers.solvers.area_solver import AreaSolver
from blue_solvers.solvers.cholesky import Cholesky
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from blue_solvers.solvers.dense import Dense
from blue_solvers.solvers.sea_blue import SeaBlue
from blue_solvers.solvers.trial import operations_of_factor, predicted_seconds, products_of_equations
from blue_solvers.solvers.two_pass import TwoPass
from blue_solvers.structured.nearest import tables_left_out, variance_ratio
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.elimination import DearError, relations_between_rows

(SEA_BLUE,) = SeaBlue.capabilities()
(TWO_PASS,) = TwoPass.capabilities()
(AREAS,) = AreaSolver.capabilities()
(CHOLESKY,) = Cholesky.capabilities()
AROUND_EQUAL_VARIANCES, ON_CONSTRAINTS = ConjugateGradient.capabilities()
(DENSE,) = Dense.capabilities()

CHOLESKY_OPERATIONS = 5e10  # of a factorisation, seconds of one processor; what costs more had better be iterated
CHOLESKY_RANK = 100_000  # above it the equations are not even formed to count operations, if iterations will be few
MOST_RANK = 1_000_000  # above it they are never formed to that end
FEW_PRODUCTS, FEW_OPERATIONS = 20, 10_000  # of forming and factorising, for every observed cell: a second a million
MOST_PRODUCTS = 200_000_000  # of forming equations to look for an order of elimination: seconds and a gigabyte
PRODUCTS_A_SECOND, OPERATIONS_A_SECOND = 1e8, 6e9  # of one processor, measured from half to twice that
WORTH = 2.0  # of the time to iterate, which every estimate, adjoint and variance would take again
FEW_ENTRIES = 80_000  # detailed cells times tables, from which equations between crossing recodes need not be cheap
MANY_ENTRIES = 10_000_000  # from which they are not even tried: gigabytes
FILL = 5.0  # what their elimination may leave, all rounds together, beside that: seconds at most
SAFE_RATIO = 10.0  # variances within a table in this ratio take about 30 estimates, whatever their law
CELL_SECONDS = 2e-6  # of forming equations, for every observed cell of a large problem


@dataclass(frozen=True)
class Auto(Solver):
    """The cheapest solver that gives the BLUE, by their `capabilities`; `info` says which and why. Never a heuristic.

    Where two ways of iterating are open and the variances within a table differ much, a short trial of both decides:
    how many iterations each takes depends on the law of the variances, not on their ratio alone. A near tie may fall
    differently in another run; name the solver to have the same one always.
    """

    name: ClassVar[str] = "auto"

    def refusal(self, problem: Problem) -> str | None:
        """Nothing."""
        return ON_CONSTRAINTS.refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Choose, and prepare that solver."""
        solver, reason = self.choose(problem)
        prepared = solver.plan(problem)
        return _Chosen(prepared, reason)

    def choose(self, problem: Problem) -> tuple[Solver, str]:
        """The solver for a plain problem (see `Solver`), and why."""
        if SEA_BLUE.refusal(problem) is None:
            return SEA_BLUE.solver, "noise is uncorrelated and of equal variance within tables (A1-A3): closed form"
        if _is_wide(problem) and AREAS.refusal(problem) is None:
            return AREAS.solver, "all variables together have many times the cells of the tables: by components, exact"
        if problem.tree is not None and TWO_PASS.refusal(problem) is None:
            what = "nodes" if problem.areas is None else "areas"
            return TWO_PASS.solver, f"its {what} form a tree: two passes, exact"
        if _is_special(problem) and TWO_PASS.refusal(problem) is None:
            return (
                TWO_PASS.solver,
                "noise is uncorrelated and of equal variance within every table of a geounit: two passes, exact",
            )
        if problem.areas is not None and AREAS.refusal(problem) is None:
            return AREAS.solver, "noise is uncorrelated and of equal variance within every table of an area: exact"
        why = _why_not_closed_form(problem)
        unsupported = CHOLESKY.refusal(problem)
        if unsupported is not None and DENSE.refusal(problem) is None and AROUND_EQUAL_VARIANCES.refusal(problem):
            return DENSE.solver, f"{why}, and {_first(unsupported)}: small enough to find them"
        if unsupported is not None:
            return _iterations(problem, f"{why}, and {_first(unsupported)}: iterations")
        if _equations_are_dear(problem):
            return _iterations(problem, f"{why}: crossing recodes have too many cells to find equations, so iterations")
        rank = problem.rank
        operations = _operations(problem, rank)
        if operations <= CHOLESKY_OPERATIONS:
            return CHOLESKY.solver, f"{why}: {rank:,} constraints are cheap to factorise"
        return _iterations(problem, f"{why}: {rank:,} constraints are dear to factorise, so iterations")


def _is_special(problem: Problem) -> bool:
    """Whether the two passes take what the closed form without a spine does not."""
    return problem.places is not None or problem.zeros is not None or problem.equalities is not None


def _is_wide(problem: Problem) -> bool:
    """Whether the two passes would hold many times the cells that are given and wanted."""
    if problem.places is None:
        return False
    return holds_many_times_its_tables(problem, problem.places.size)


def _equations_are_dear(problem: Problem) -> bool:
    """Whether equations between crossing recodes would take long to find: a trial tells, where there are many cells."""
    if not problem.recodes_cross:
        return False
    entries = problem.domain.size * len(problem.observed_tables)
    if entries <= FEW_ENTRIES:
        return False
    if entries > MANY_ENTRIES:
        return True
    try:
        relations_between_rows(problem.marginal_matrix(), FILL * entries)
    except DearError:
        return True
    return False


def _operations(problem: Problem, rank: int) -> float:
    """Of a factorisation of A Sigma A', as if its entries filled a dense matrix of their number."""
    if rank > CHOLESKY_RANK:
        return np.inf
    dense = rank**3 / 3
    if dense <= CHOLESKY_OPERATIONS:
        return dense
    return min(dense, products_of_equations(problem) ** 1.5 / 3)


def _iterations(problem: Problem, why: str) -> tuple[Solver, str]:
    """Around the nearest structured problem or on all rows of the constraints, whichever is faster.

    Where they would be long, and a factorisation turns out to be cheap after all, that.
    """
    around, on_constraints = AROUND_EQUAL_VARIANCES.solver, ON_CONSTRAINTS.solver
    assert isinstance(around, ConjugateGradient)
    assert isinstance(on_constraints, ConjugateGradient)
    unsupported = AROUND_EQUAL_VARIANCES.refusal(problem)
    if unsupported is not None:
        return on_constraints, f"{why} on the constraints; not around equal variances, since {_first(unsupported)}"
    left_out = tables_left_out(problem)
    if left_out and problem.recodes_cross:
        return around, f"{why} around equal variances; equations between crossing recodes would have to be found first"
    ratio = variance_ratio(problem)
    if ratio <= SAFE_RATIO and problem.covariance is None and not left_out:
        return around, f"{why} around equal variances: the ratio within a table is at most {ratio:.3g}"
    products = _products_to_form(problem)
    if products <= FEW_PRODUCTS * problem.observed.size:
        operations = operations_of_factor(problem)
        if operations <= FEW_OPERATIONS * problem.observed.size:
            return CHOLESKY.solver, _in_order(problem, operations)
        products = np.inf  # it need not be counted again
    expected = predicted_seconds(problem, around)
    if expected <= CELL_SECONDS * problem.observed.size:
        return around, f"{why} around equal variances: it takes less than forming equations"
    forming = CELL_SECONDS * problem.observed.size + products / PRODUCTS_A_SECOND
    if 2 * forming <= WORTH * expected and products <= MOST_PRODUCTS:  # to look for an order, and to factorise
        operations = operations_of_factor(problem)
        seconds = forming + operations / OPERATIONS_A_SECOND
        if seconds <= WORTH * expected and np.isfinite(seconds):
            foretold = f"foretold {seconds:.2g} s, iterations {expected:.2g} s"
            return CHOLESKY.solver, f"{_in_order(problem, operations)}, {foretold}"
    other = predicted_seconds(problem, on_constraints)
    if expected <= other < np.inf or (np.isfinite(expected) and np.isinf(other)):
        return around, f"{why} around equal variances: foretold {expected:.2g} s, on the constraints {other:.2g} s"
    return on_constraints, f"{why} on the constraints: foretold {other:.2g} s, around equal variances {expected:.2g} s"


def _products_to_form(problem: Problem) -> float:
    """Of the equations that a factorisation would take; infinite where they are not to be formed."""
    if CHOLESKY.refusal(problem) is not None or problem.recodes_cross or problem.rank > MOST_RANK:
        return np.inf
    return products_of_equations(problem)


def _in_order(problem: Problem, operations: float) -> str:
    why = _why_not_closed_form(problem)
    return f"{why}: {problem.rank:,} constraints in a good order take {operations:.2g} operations to factorise"


def _first(reason: str) -> str:
    """What is the matter, without the advice after it."""
    return reason.reason if isinstance(reason, Refusal) else reason


def _why_not_closed_form(problem: Problem) -> str:
    if not problem.is_tabular:
        return "equations without tables"
    if problem.covariance is not None:
        return "noise is correlated (A2 fails)"
    if problem.geounit_variances is not None:
        closed = AREAS if problem.areas is not None else TWO_PASS if _is_special(problem) else SEA_BLUE
        return _first(closed.refusal(problem) or "")
    return "variances differ within tables (A3 fails)"


class _Chosen(Prepared):
    """Another solver's preparation that also says why it was chosen."""

    def __init__(self, prepared: Prepared, reason: str) -> None:
        self.problem = prepared.problem
        self.offset = prepared.offset
        self._prepared = prepared
        self._reason = reason
        self.info = self._told(prepared.info)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._prepared.apply(Y)
        return X, self._with_reason(info)

    def violation(self, Y: Float) -> float | None:
        return self._prepared.violation(Y)

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._prepared.apply_checked(Y)
        return X, self._with_reason(info)

    def adjoint(self, V: Float) -> Float:
        return self._prepared.adjoint(V)

    def variances(self) -> Float:
        return self._prepared.variances()

    def variances_by_table(self) -> TableVariances:
        return self._prepared.variances_by_table()

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        return self._prepared.functional_covariance(W)

    def _with_reason(self, info: Info) -> Info:
        return self.info if info is self._prepared.info else self._told(info)

    def _told(self, info: Info) -> Info:
        return replace(info, reason=f"auto chose {info.solver}: {self._reason}")
