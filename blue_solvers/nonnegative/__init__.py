"""Non-negative tables and microdata from noisy tables, and what they cost."""

from blue_solvers.nonnegative.anchored_fit import anchored_fit as anchored_fit  # at once: its module has its name
from blue_solvers.nonnegative.max_fit import max_fit as max_fit  # at once: its module has its name
from blue_solvers.nonnegative.reweighted_fit import reweighted_fit as reweighted_fit  # at once: its module has its name
from blue_solvers.nonnegative.sequential_fit import sequential_fit as sequential_fit  # at once: its module has its name
from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__, {"Fit": "blue_solvers.NonnegativeFit"})
