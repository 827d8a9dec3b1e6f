"""Estimates in folders, and questions to them."""

from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result

__all__ = ["Result", "write_result"]
