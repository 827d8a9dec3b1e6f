"""Non-negative tables and microdata from noisy tables, and what they cost."""

from blue_solvers.nonnegative.fit import Fit
from blue_solvers.nonnegative.least_squares import nnls, ols
from blue_solvers.nonnegative.max_fit import max_fit
from blue_solvers.nonnegative.programme import NotConvergedError
from blue_solvers.nonnegative.reweighted_fit import reweighted_fit
from blue_solvers.nonnegative.sequential_fit import sequential_fit

__all__ = ["Fit", "NotConvergedError", "max_fit", "nnls", "ols", "reweighted_fit", "sequential_fit"]
