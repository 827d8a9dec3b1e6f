"""Every solver, enrolled here and nowhere else: what names, exports and lists solvers reads this file."""

from blue_solvers.contract import Solver
from blue_solvers.solver_names import SolverName
from blue_solvers.solvers.auto import Auto
from blue_solvers.solvers.closed_forms import AreaSolver, SeaBlue, TwoPass
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient, Multigrid
from blue_solvers.solvers.direct import Cholesky, Dense

__all__ = [
    "SOLVERS",
    "AreaSolver",
    "Auto",
    "Cholesky",
    "ConjugateGradient",
    "Dense",
    "Multigrid",
    "SeaBlue",
    "SolverName",
    "TwoPass",
]

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver
    for solver in (Auto, SeaBlue, TwoPass, AreaSolver, Cholesky, ConjugateGradient, Multigrid, Dense)
}
