"""Proofs of answers and tests of measurements, in which no solver takes part."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__, {"fit_test": "blue_solvers.verification.fit_of_estimate"})
