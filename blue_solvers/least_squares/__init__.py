"""Least squares for anybody: leaves with exact errors, what to measure or drop next, outliers one by one."""

from blue_solvers.least_squares.bounded_leaves import BoundedLeaves as BoundedLeaves
from blue_solvers.least_squares.door import least_squares as least_squares
from blue_solvers.least_squares.leaf_estimates import LeafEstimate as LeafEstimate
from blue_solvers.least_squares.serial_elimination import SerialElimination as SerialElimination
from blue_solvers.least_squares.serial_elimination import eliminate_outliers as eliminate_outliers
from blue_solvers.least_squares.worth import GreedySet as GreedySet
from blue_solvers.least_squares.worth import greedy_set as greedy_set
from blue_solvers.least_squares.worth import worth_dropping as worth_dropping
from blue_solvers.least_squares.worth import worth_measuring as worth_measuring
