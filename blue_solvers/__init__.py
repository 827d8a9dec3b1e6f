"""Solvers for the best linear unbiased estimate, behind one linear operator."""

from typing import TYPE_CHECKING

import blue_solvers.signals  # noqa: F401  first: from then on signals find their handler
from blue_solvers.about import __version__ as __version__
from constraint_builders.lazy_names import names_when_asked

if TYPE_CHECKING:
    from blue_solvers.benchmarking import benchmark as benchmark
    from blue_solvers.components.tree.projected_work import ProjectedWork as ProjectedWork
    from blue_solvers.components.tree.projected_work import projected_work as projected_work
    from blue_solvers.contract import ConvergenceError as ConvergenceError
    from blue_solvers.contract import Info as Info
    from blue_solvers.contract import Prepared as Prepared
    from blue_solvers.contract import Solver as Solver
    from blue_solvers.contract import UnsupportedProblemError as UnsupportedProblemError
    from blue_solvers.estimates import Estimate as Estimate
    from blue_solvers.goodness import fit_test as fit_test
    from blue_solvers.operator import BlueOperator as BlueOperator
    from blue_solvers.operator import blue as blue
    from blue_solvers.operator import estimate as estimate
    from blue_solvers.solvers.registry import *  # noqa: F403
    from blue_solvers.threads import thread_limit as thread_limit
    from blue_solvers.uncertainty.functionals import functionals as functionals
    from blue_solvers.uncertainty.intervals import intervals as intervals
    from blue_solvers.verification import Certificate as Certificate
    from blue_solvers.verification import Fit as Fit
    from blue_solvers.verification import certify as certify
    from constraint_builders import problem_from as problem_from
else:
    __getattr__, __dir__ = names_when_asked(
        __name__,
        {
            "blue_solvers.benchmarking": ("benchmark",),
            "blue_solvers.components.tree.projected_work": ("ProjectedWork", "projected_work"),
            "blue_solvers.contract": ("ConvergenceError", "Info", "Prepared", "Solver", "UnsupportedProblemError"),
            "blue_solvers.estimates": ("Estimate",),
            "blue_solvers.goodness": ("fit_test",),
            "blue_solvers.operator": ("BlueOperator", "blue", "estimate"),
            "blue_solvers.threads": ("thread_limit",),
            "blue_solvers.uncertainty.functionals": ("functionals",),
            "blue_solvers.uncertainty.intervals": ("intervals",),
            "blue_solvers.verification": ("Certificate", "Fit", "certify"),
            "constraint_builders": ("problem_from",),
        },
        whole="blue_solvers.solvers.registry",
    )
