"""Solvers for the best linear unbiased estimate, behind one linear operator."""

import blue_solvers.signals  # noqa: F401  first: from then on signals find their handler
from blue_solvers.about import __version__
from blue_solvers.benchmarking import benchmark
from blue_solvers.components.tree.projected_work import ProjectedWork, projected_work
from blue_solvers.contract import ConvergenceError, Info, Prepared, Solver, UnsupportedProblemError
from blue_solvers.estimates import Estimate
from blue_solvers.goodness import fit_test
from blue_solvers.operator import BlueOperator, blue, estimate
from blue_solvers.solvers import registry
from blue_solvers.solvers.registry import *  # noqa: F403
from blue_solvers.uncertainty import functionals, intervals
from blue_solvers.verification import Certificate, Fit, certify
from constraint_builders import problem_from

__all__ = [
    "BlueOperator",
    "Certificate",
    "ConvergenceError",
    "Estimate",
    "Fit",
    "Info",
    "Prepared",
    "ProjectedWork",
    "Solver",
    "UnsupportedProblemError",
    "__version__",
    "benchmark",
    "blue",
    "certify",
    "estimate",
    "fit_test",
    "functionals",
    "intervals",
    "problem_from",
    "projected_work",
]
__all__ += registry.__all__
