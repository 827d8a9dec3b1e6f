"""Every solver on every kind of problem, against exact rationals in units of each cell's standard error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given

from blue_solvers import SOLVERS, ConjugateGradient, Multigrid, SeaBlue, Solver, UnsupportedProblemError, blue
from blue_solvers.contract import Info, Prepared
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING, equations_of, variance_spread
from blue_solvers.solvers.conjugate_gradient import WIDEST_SPREAD
from blue_solvers.testing import check_solver, dot_test, problems
from constraint_builders import Problem, gallery
from constraint_builders.arrays import Float
from tests.helpers.effort import examples, first_of
from tests.helpers.every import every
from tests.helpers.exact_reference import ExactEstimate, estimable, exact_blue
from tests.helpers.strategies import Case, cases

TOLERANCE = 1e-9  # standard errors
PROBLEMS = problems()
PLAIN: list[Solver] = [solver() for solver in SOLVERS.values()]
CONFIGURED = [
    *PLAIN,
    ConjugateGradient(preconditioner=None),
    ConjugateGradient(preconditioner="multigrid"),
    ConjugateGradient(preconditioner="two_pass"),
    ConjugateGradient(rows="independent"),
]
CROSSING = {name for name in PROBLEMS if "areas that cross" in name}
each_solver = pytest.mark.parametrize("solver", CONFIGURED, ids=repr)
each_name = pytest.mark.parametrize("name", SOLVERS)


def _keeps_the_contract(name: str, solver: Solver) -> None:
    problem = PROBLEMS[name]
    with suppress(UnsupportedProblemError):
        check_solver(solver, problem)  # its first law is that `supports` says what `blue` does
        return
    with pytest.raises(UnsupportedProblemError, match=solver.name):
        blue(problem, solver)
    assert len(str(solver.supports(problem))) > 20


@pytest.mark.few(1)
@each_solver
@every("name", [name for name in PROBLEMS if name not in CROSSING])
def test_contract(name: str, solver: Solver) -> None:
    _keeps_the_contract(name, solver)


@pytest.mark.few(1)
@pytest.mark.parametrize("solver", first_of(CONFIGURED, len(PLAIN)), ids=repr)
@every("name", sorted(CROSSING))
def test_contract_over_areas_that_cross(name: str, solver: Solver) -> None:
    _keeps_the_contract(name, solver)


@each_name
@examples(20)
@given(case=cases("equal"))
def test_equal_variances(name: str, case: Case) -> None:
    compare(SOLVERS[name](), case)


@each_name
@examples(15)
@given(case=cases("unequal"))
def test_unequal_variances_and_cells(name: str, case: Case) -> None:
    compare(SOLVERS[name](), case)


@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "sea_blue"])
@examples(10)
@given(case=cases("covariance"))
def test_correlated_noise(name: str, case: Case) -> None:
    compare(SOLVERS[name](), case)


def compare(solver: Solver, case: Case) -> None:
    """One unit of noise in one measured cell after another, and noisy counts, against the exact operator."""
    measured = np.isfinite(case.variances)
    if not estimable(case.schema, list(case.observed), measured, case.desired):
        with pytest.raises(ValueError, match="not estimable"):
            case.problem()
        return
    problem = case.problem()
    if solver.supports(problem) is not None:
        return
    P = blue(problem, solver)
    deviations = np.sqrt(np.where(measured, case.variances, 0))
    X, info = P.apply(np.diag(deviations))
    if not P.info.exact:
        assert problem.table_variances is None or variance_spread(problem) > WIDEST_SPREAD
        dot_test(P)
        return
    if not info.exact:  # it says that it did not come as near as it wanted
        assert hasattr(solver, "rtol")
        dot_test(P, rtol=1e-6)
        return
    exact = exact_blue(case.schema, list(case.observed), case.variances, case.desired, case.covariance)
    errors = np.sqrt(exact.variances)[:, None]
    tolerance, largest = TOLERANCE, float(deviations.max(initial=0))
    stored = (EPSILON * deviations.size) * largest  # matters to cells whose own standard error is zero or tiny
    bound = tolerance * errors + iteration_bound(solver, problem, np.diag(deviations)) + stored
    assert (abs(X - exact.operator * deviations) <= bound).all()
    assert_variances(P.variances(), exact, bound.max(axis=1), tolerance)
    if problem.desired.names == problem.observed.names:
        assert np.allclose(abs(problem.constraint_matrix() @ X), 0, atol=bound.max() * problem.observed.size)


def assert_variances(variances: Float, exact: ExactEstimate, bound: Float, tolerance: float) -> None:
    """An operator in error by `bound` has variances in error by its square and by twice its product with the errors."""
    n = exact.operator.shape[1]
    slack = n * bound * (bound + 2 * np.sqrt(exact.variances)) + tolerance * exact.variances
    assert (abs(variances - exact.variances) <= slack).all()


def iteration_bound(solver: Solver, problem: Problem, Y: Float) -> Float | float:
    """Largest error that an iterative solver's stopping rule permits, (m, columns).

    A standardised residual r leaves Sigma A' N^+ r, whose squared size in the metric of the noise is at most
    |r|^2 / smallest eigenvalue of the standardised N = A Sigma A'; a desired cell sees it times its unadjusted
    deviation.
    """
    if isinstance(solver, Multigrid):
        rows = "independent"
    elif isinstance(solver, ConjugateGradient):
        rows = solver.rows
    else:
        return 0.0
    equations = equations_of(problem, rows)[-1]
    if not equations.A.shape[0]:
        return 0.0
    rank = equations_of(problem, "independent")[-1].A.shape[0]
    eigenvalues = np.linalg.eigvalsh(equations.normal_matrix().toarray())
    smallest = eigenvalues[len(eigenvalues) - rank]
    first = np.linalg.norm((equations.A @ Y) / equations.deviations[:, None], axis=0)
    floor = np.linalg.norm((abs(equations.A) @ abs(Y)) / equations.deviations[:, None], axis=0)
    residual = 2 * np.maximum((solver.rtol or 1e-15) * first, ROUNDING * EPSILON * floor)
    tabulated = np.eye(problem.observed.size)
    if problem.completion is not None:
        tabulated = problem.completion[0] @ tabulated
    D = problem.tabulate(tabulated)
    unadjusted = np.sqrt(np.einsum("ij,ij->i", D, (problem.noise_covariance @ D.T).T))
    return np.outer(unadjusted, residual) / np.sqrt(smallest)


@pytest.mark.few(0)
@every("make", [lambda: gallery.cube(4, 4), lambda: gallery.cube(2, 20), lambda: gallery.cube(7, 2)])
@every("name", [name for name in SOLVERS if name != "sea_blue"])
def test_larger_tables_agree_with_closed_form(make, name: str) -> None:
    problem = make()
    reference = blue(problem, "sea_blue")
    y = 100 + np.random.default_rng(0).normal(size=(problem.observed.size, 2))
    solver = SOLVERS[name]()
    if hasattr(solver, "rtol"):  # 1e-13 of an adjustment of 50 deviations, over the root of eigenvalues down to 1e-6
        solver = replace(solver, rtol=1e-13)
    tolerance = 1e-8 if hasattr(solver, "rtol") else TOLERANCE
    errors = np.sqrt(reference.variances())
    assert (abs(blue(problem, solver) @ y - reference @ y) / errors[:, None]).max() < tolerance


def test_redistricting_tables_closed_form_against_factorisation() -> None:
    problem = gallery.pl94()
    y = np.random.default_rng(0).normal(size=problem.observed.size) * np.sqrt(problem.variances)
    P = blue(problem, "sea_blue")
    errors = np.sqrt(P.variances())
    assert (abs(P @ y - blue(problem, "cg") @ y) / errors).max() < 1e-6  # the iterations' tolerance, as above
    assert (abs(P @ y - blue(problem, "cholesky") @ y) / errors).max() < TOLERANCE


class Broken(Prepared):
    """A good solver's preparation, spoilt."""

    def __init__(self, problem: Problem, flaw: str) -> None:
        self.problem, self.flaw = problem, flaw
        self._good = SeaBlue().prepare(problem)
        self.offset = self._good.offset + (flaw == "offset")
        self.info = Info("" if flaw == "info.solver" else "broken", exact=True, reason="to be found out")
        self._calls = 0

    def apply(self, Y: Float) -> tuple[Float, Info]:
        self._calls += 1
        X, _ = self._good.apply(Y)
        if self.flaw == "P is the BLUE":
            return self.problem.tabulate(Y), self.info
        return X + {"linear": 1e-3, "deterministic": 1e-12 * self._calls}.get(self.flaw, 0.0), self.info

    def adjoint(self, V: Float) -> Float:
        return self._good.adjoint(V) * (1.001 if self.flaw == "adjoint" else 1)

    def variances(self) -> Float:
        return self._good.variances() * (1.01 if self.flaw == "variances" else 1)


@dataclass(frozen=True)
class BrokenSolver(Solver):
    name: ClassVar[str] = "broken"
    flaw: str = ""

    def refusal(self, problem: Problem) -> str | None:
        return SeaBlue().refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        return Broken(problem, self.flaw)


FLAWS = ["linear", "deterministic", "adjoint", "variances", "info.solver", "offset", "P is the BLUE"]


@every("flaw", FLAWS)
def test_check_solver_finds_the_broken_law(flaw: str) -> None:
    check_solver(BrokenSolver(), PROBLEMS["berkeley"])
    # an operator that is no BLUE also breaks the laws of a projection and its adjoint
    law = "one of: .*|A P = 0|adjoint" if flaw == "P is the BLUE" else flaw
    with pytest.raises(AssertionError, match=rf"solver 'broken' on .*({law})"):
        check_solver(BrokenSolver(flaw=flaw), PROBLEMS["berkeley"])


@pytest.mark.few(0)
def test_check_solver_on_its_own_problems() -> None:
    check_solver(SOLVERS["dense"]())
