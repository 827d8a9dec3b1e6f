"""Conformance tests for any solver: the laws that `Prepared` states, on problems small enough to check densely.

A solver of your own passes `check_solver(MySolver())` before it is worth timing. Differences are measured in units of
each cell's standard error, the only scale on which an error of the arithmetic matters.
"""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__, {"LAWS": "blue_solvers.testing.PROPERTIES"})
