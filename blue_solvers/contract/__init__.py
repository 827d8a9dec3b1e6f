"""What a solver is: the contract that every one of them keeps, and that `blue_solvers.testing` checks."""

from typing import TYPE_CHECKING

from blue_solvers.contract.errors import ConvergenceError as ConvergenceError
from blue_solvers.contract.errors import Refusal as Refusal
from blue_solvers.contract.errors import UnsupportedProblemError as UnsupportedProblemError
from constraint_builders.lazy_names import names_when_asked

if TYPE_CHECKING:
    from blue_solvers.contract.prepared import VARIANCE_BLOCK as VARIANCE_BLOCK
    from blue_solvers.contract.prepared import Info as Info
    from blue_solvers.contract.prepared import Prepared as Prepared
    from blue_solvers.contract.prepared import variances_from_weights as variances_from_weights
    from blue_solvers.contract.solver import Capability as Capability
    from blue_solvers.contract.solver import Solver as Solver
    from blue_solvers.contract.solver import plain_problem as plain_problem
    from blue_solvers.contract.table_variances import TableVariances as TableVariances
else:
    __getattr__, __dir__ = names_when_asked(
        __name__,
        {
            "blue_solvers.contract.errors": ("ConvergenceError", "Refusal", "UnsupportedProblemError"),
            "blue_solvers.contract.prepared": ("VARIANCE_BLOCK", "Info", "Prepared", "variances_from_weights"),
            "blue_solvers.contract.solver": ("Capability", "Solver", "plain_problem"),
            "blue_solvers.contract.table_variances": ("TableVariances",),
        },
    )
