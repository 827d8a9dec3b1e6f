"""What a solver is: the contract that every one of them keeps, and that `blue_solvers.testing` checks."""

from blue_solvers.contract.prepared import VARIANCE_BLOCK as VARIANCE_BLOCK
from blue_solvers.contract.prepared import Info as Info
from blue_solvers.contract.prepared import Prepared as Prepared
from blue_solvers.contract.prepared import TableVariances as TableVariances
from blue_solvers.contract.prepared import variances_from_weights as variances_from_weights
from blue_solvers.contract.solver import Capability as Capability
from blue_solvers.contract.solver import Solver as Solver
from blue_solvers.contract.solver import plain_problem as plain_problem
from blue_solvers.errors import ConvergenceError as ConvergenceError
from blue_solvers.errors import Refusal as Refusal
from blue_solvers.errors import UnsupportedProblemError as UnsupportedProblemError
