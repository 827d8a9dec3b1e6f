"""What a solver is: the contract that every one of them keeps, and that `blue_solvers.testing` checks."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)
