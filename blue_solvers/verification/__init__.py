"""Proofs of answers and tests of measurements, in which no solver takes part."""

from blue_solvers.verification.certificate import Certificate, certify
from blue_solvers.verification.goodness_of_fit import Fit, Outlier, fit_test

__all__ = ["Certificate", "Fit", "Outlier", "certify", "fit_test"]
