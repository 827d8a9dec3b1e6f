"""What a solver is: the contract that every one of them keeps, and that `blue_solvers.testing` checks."""

from blue_solvers.contract.errors import ConvergenceError, Refusal, UnsupportedProblemError
from blue_solvers.contract.prepared import VARIANCE_BLOCK, Info, Prepared, variances_from_weights
from blue_solvers.contract.solver import Capability, Solver, plain_problem
from blue_solvers.contract.table_variances import TableVariances

__all__ = [
    "VARIANCE_BLOCK",
    "Capability",
    "ConvergenceError",
    "Info",
    "Prepared",
    "Refusal",
    "Solver",
    "TableVariances",
    "UnsupportedProblemError",
    "plain_problem",
    "variances_from_weights",
]
