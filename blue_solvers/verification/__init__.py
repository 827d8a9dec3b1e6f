"""Proofs of answers and tests of measurements, in which no solver takes part."""

from blue_solvers.verification.certificate import Certificate, certify
from blue_solvers.verification.goodness_of_fit import Fit, FitOfParts, Outlier, fit_of_geography, fit_test
from blue_solvers.verification.variance_bounds import VarianceBounds, certify_variances

__all__ = [
    "Certificate",
    "Fit",
    "FitOfParts",
    "Outlier",
    "VarianceBounds",
    "certify",
    "certify_variances",
    "fit_of_geography",
    "fit_test",
]
