"""Conformance tests for any solver: the laws that `Prepared` states, on problems small enough to check densely.

A solver of your own passes `check_solver(MySolver())` before it is worth timing. Differences are measured in units of
each cell's standard error, the only scale on which an error of the arithmetic matters.
"""

from blue_solvers.testing.adjoints import dot_test
from blue_solvers.testing.check_report import CheckReport
from blue_solvers.testing.conformance import PROPERTIES, check_solver
from blue_solvers.testing.small_problems import problems
from constraint_builders.lazy_names import former_names

__getattr__ = former_names(__name__, {"LAWS": "blue_solvers.testing.PROPERTIES"})

__all__ = ["PROPERTIES", "CheckReport", "check_solver", "dot_test", "problems"]
