"""Least squares for anybody: leaves with exact errors, what to measure or drop next, outliers one by one."""

from blue_solvers.least_squares.leaf_estimates import LeafEstimate as LeafEstimate
from blue_solvers.least_squares.leaf_estimates import least_squares as least_squares
