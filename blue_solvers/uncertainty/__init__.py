"""How sure the estimate is: covariances, intervals and joint regions, for every solver through its operator.

References
----------
SEA BLUE, section 5, whose propositions are cited by their numbers.
"""

from blue_solvers.uncertainty.functionals import functionals as functionals  # at once: its module has its name
from blue_solvers.uncertainty.intervals import intervals as intervals  # at once: its module has its name
from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)
