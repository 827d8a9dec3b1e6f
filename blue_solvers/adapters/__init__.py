"""Other systems' tables, forecasts and answers, in and out; none of those systems is imported."""

from blue_solvers.adapters.cross_temporal import reconcile_over_time
from blue_solvers.adapters.forecast_frames import reconcile
from blue_solvers.adapters.forecasts import ExactMinTrace
from blue_solvers.adapters.foreign_answers import answer_from, judge
from blue_solvers.adapters.opendp_releases import noise_of, problem_from_releases
from blue_solvers.adapters.released_marginals import ExactMarginals, measurements_of, problem_from_measurements

__all__ = [
    "ExactMarginals",
    "ExactMinTrace",
    "answer_from",
    "judge",
    "measurements_of",
    "noise_of",
    "problem_from_measurements",
    "problem_from_releases",
    "reconcile",
    "reconcile_over_time",
]
