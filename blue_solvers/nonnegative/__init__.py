"""Non-negative tables and microdata from noisy tables, and what they cost."""

from blue_solvers.nonnegative.anchored_fit import anchored_fit
from blue_solvers.nonnegative.fit import NonnegativeFit
from blue_solvers.nonnegative.inverted_tests import InvertedIntervals, inverted_intervals
from blue_solvers.nonnegative.least_squares import nnls, ols
from blue_solvers.nonnegative.max_fit import max_fit
from blue_solvers.nonnegative.microdata_rows import controlled_rounding, unit_records, weighted_rows
from blue_solvers.nonnegative.moved_counts import METHODS, Movement, movements
from blue_solvers.nonnegative.posterior.counts_posterior import CountsPosterior, counts_posterior
from blue_solvers.nonnegative.quadratic_program import NotConvergedError
from blue_solvers.nonnegative.refined_intervals import Coverage, coverage, refine_intervals
from blue_solvers.nonnegative.reweighted_fit import reweighted_fit
from blue_solvers.nonnegative.sequential_fit import sequential_fit
from constraint_builders.lazy_names import former_names

__getattr__ = former_names(__name__, {"Fit": "blue_solvers.NonnegativeFit"})

__all__ = [
    "METHODS",
    "CountsPosterior",
    "Coverage",
    "InvertedIntervals",
    "Movement",
    "NonnegativeFit",
    "NotConvergedError",
    "anchored_fit",
    "controlled_rounding",
    "counts_posterior",
    "coverage",
    "inverted_intervals",
    "max_fit",
    "movements",
    "nnls",
    "ols",
    "refine_intervals",
    "reweighted_fit",
    "sequential_fit",
    "unit_records",
    "weighted_rows",
]
