"""What solvers are called, for those who only ask for one by name."""

from typing import Literal, TypeAlias

SolverName: TypeAlias = Literal["auto", "sea_blue", "two_pass", "areas", "cholesky", "cg", "multigrid", "dense"]
