"""How sure the estimate is: covariances, intervals and joint regions, for every solver through its operator.

References
----------
SEA BLUE, section 5, whose propositions are cited by their numbers.
"""

from blue_solvers.normal_equations.cell_variances import variances_by_selected_inversion
from blue_solvers.normal_equations.inverses import inverse_on_pattern
from blue_solvers.uncertainty.covariance import (
    covariance_block,
    covariance_columns,
    estimate_variances,
    proved_variances,
    variances,
)
from blue_solvers.uncertainty.functionals import Functionals, cell_weights, functionals
from blue_solvers.uncertainty.intervals import half_widths, intervals, normal_intervals, refine_to_integers
from blue_solvers.uncertainty.monte_carlo import LargestErrors, Replicates, SecondMoments, order_statistic
from blue_solvers.uncertainty.ranks import rank_intervals
from blue_solvers.uncertainty.ratios import ratio_intervals
from blue_solvers.uncertainty.regions import (
    Ellipsoid,
    confidence_ellipsoid,
    distribution_free_band,
    distribution_free_ellipsoid,
    simultaneous_band,
)

__all__ = [
    "Ellipsoid",
    "Functionals",
    "LargestErrors",
    "Replicates",
    "SecondMoments",
    "cell_weights",
    "confidence_ellipsoid",
    "covariance_block",
    "covariance_columns",
    "distribution_free_band",
    "distribution_free_ellipsoid",
    "estimate_variances",
    "functionals",
    "half_widths",
    "intervals",
    "inverse_on_pattern",
    "normal_intervals",
    "order_statistic",
    "proved_variances",
    "rank_intervals",
    "ratio_intervals",
    "refine_to_integers",
    "simultaneous_band",
    "variances",
    "variances_by_selected_inversion",
]
