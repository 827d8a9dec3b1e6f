"""Other systems' tables, forecasts and answers, in and out; none of those systems is imported."""

from blue_solvers.adapters.forecast_frames import reconcile
from blue_solvers.adapters.forecasts import ExactMinTrace

__all__ = ["ExactMinTrace", "reconcile"]
