"""Every solver, enrolled here and nowhere else: what names, exports and lists solvers reads this file."""

from typing import Literal, TypeAlias

from blue_solvers.contract import Solver
from blue_solvers.solvers.area_solver import AreaSolver
from blue_solvers.solvers.auto import Auto
from blue_solvers.solvers.cholesky import Cholesky
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from blue_solvers.solvers.dense import Dense
from blue_solvers.solvers.multigrid import Multigrid
from blue_solvers.solvers.sea_blue import SeaBlue
from blue_solvers.solvers.two_pass import TwoPass

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

SolverName: TypeAlias = Literal["auto", "sea_blue", "two_pass", "areas", "cholesky", "cg", "multigrid", "dense"]
SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver
    for solver in (Auto, SeaBlue, TwoPass, AreaSolver, Cholesky, ConjugateGradient, Multigrid, Dense)
}
