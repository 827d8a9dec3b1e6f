"""Every solver on every kind of problem, against exact rationals in units of each cell's standard error."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from blue_solvers import SOLVERS, ConjugateGradient, Solver, UnsupportedProblemError, blue
from blue_solvers.testing import check_solver, problems
from constraint_builders import gallery
from tests.helpers.broken_solvers import BrokenSolver
from tests.helpers.effort import first_of
from tests.helpers.every import every

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
