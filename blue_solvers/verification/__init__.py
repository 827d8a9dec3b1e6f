"""Proofs of answers and tests of measurements, in which no solver takes part."""

from blue_solvers.verification.certificate import Certificate, certify
from blue_solvers.verification.fit_of_parts import FitOfParts, fit_of_geography
from blue_solvers.verification.goodness_of_fit import Fit, Outlier, fit_of_estimate
from blue_solvers.verification.variance_bounds import VarianceBounds, certify_variances
from constraint_builders.lazy_names import former_names

__getattr__ = former_names(__name__, {"fit_test": "blue_solvers.verification.fit_of_estimate"})

__all__ = [
    "Certificate",
    "Fit",
    "FitOfParts",
    "Outlier",
    "VarianceBounds",
    "certify",
    "certify_variances",
    "fit_of_estimate",
    "fit_of_geography",
]
