"""Columns whose squares would not be numbers, in units of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from constraint_builders.arrays import Float

LARGEST = 1e100  # of values whose squares, in units of any noise, are numbers
FIRST_ROWS = 64  # that mostly show whether a column is out of range


def in_range(linear: Callable[[Float], Float], X: Float) -> Float:
    """A linear map of columns so small or large that their squares would not be numbers: in units of their own."""
    if _moderate(X):
        return linear(X)
    sizes = abs(X).max(axis=0)
    if not ((sizes > LARGEST) | ((sizes < 1 / LARGEST) & (sizes > 0))).any():
        return linear(X)
    exponents = np.where((sizes > LARGEST) | (sizes < 1 / LARGEST), np.frexp(sizes)[1], 0)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(linear(np.ldexp(X, -exponents)), exponents)
    if not np.isfinite(result).all():
        raise OverflowError("the estimate is beyond what float64 holds: give values in larger units")
    return result


def _moderate(X: Float) -> bool:
    """Whether the extremes of all cells together, and the first ones of every column, show no column out of range."""
    largest = max(float(X.max()), -float(X.min()))
    return largest <= LARGEST and bool((abs(X[:FIRST_ROWS]).max(axis=0) >= 1 / LARGEST).all())
