"""Proofs of answers and tests of measurements, in which no solver takes part."""

from blue_solvers.verification.certificate import Certificate, certify
from blue_solvers.verification.fit_of_parts import FitOfParts, fit_of_geography
from blue_solvers.verification.goodness_of_fit import Fit, Outlier, fit_test
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
