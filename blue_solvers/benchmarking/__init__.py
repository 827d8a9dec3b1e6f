"""Solvers on problems, measured side by side."""

from blue_solvers.benchmarking.comparison import COLUMNS_OF_A_ROW, benchmark

__all__ = ["COLUMNS_OF_A_ROW", "benchmark"]
