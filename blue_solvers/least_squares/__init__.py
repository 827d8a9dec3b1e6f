"""Least squares for anybody: leaves with exact errors, what to measure or drop next, outliers one by one."""

from blue_solvers.least_squares.bounded_leaves import BoundedLeaves
from blue_solvers.least_squares.door import least_squares
from blue_solvers.least_squares.leaf_estimates import LeafEstimate
from blue_solvers.least_squares.serial_elimination import SerialElimination, eliminate_outliers
from blue_solvers.least_squares.worth import GreedySet, greedy_set, worth_dropping, worth_measuring

__all__ = [
    "BoundedLeaves",
    "GreedySet",
    "LeafEstimate",
    "SerialElimination",
    "eliminate_outliers",
    "greedy_set",
    "least_squares",
    "worth_dropping",
    "worth_measuring",
]
