"""Exact variances of desired tables, worked out for the rows that are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index

NOTHING = 1e-18  # of the least that a figure may vary by: less is rounding, of a figure that is known exactly


class TableVariances(Protocol):
    """Variances of the cells of desired tables, some geounits at a time."""

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table, by its number among the desired ones, at some of its geounits, (rows, cells), a new array."""


@dataclass(frozen=True)
class WithoutRounding:
    """Variances of which those below `nothing` are 0, of figures that are known exactly."""

    variances: TableVariances
    nothing: float

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table at some of its geounits, (rows, cells)."""
        return without_rounding(self.variances.of(table, rows), self.nothing)


def without_rounding(variances: Float, nothing: float) -> Float:
    """Variances, used up, of which those below `nothing` are 0."""
    variances[variances < nothing] = 0.0
    return variances


def with_exact_zeros(covariance: Float, W: sparse.csc_array, nothing: float) -> Float:
    """Covariance of functionals, used up, with 0 for those that are known exactly.

    Parameters
    ----------
    covariance : ndarray, (K, K)
    W : csc_array, (m, K)
        Their weights over the desired layout: their variance is judged in units of the least of them, squared.
    nothing : float
        What a variance of a desired cell is at least that is not rounding.

    Returns
    -------
    ndarray, (K, K)
    """
    sizes, least = abs(W.data), np.full(W.shape[1], np.inf)
    np.minimum.at(least, np.repeat(np.arange(W.shape[1]), np.diff(W.indptr)), np.where(sizes > 0, sizes, np.inf))
    known = covariance.diagonal() < nothing * np.where(np.isfinite(least), least, 0.0) ** 2
    covariance[known] = covariance[:, known] = 0.0
    return covariance


@dataclass(frozen=True)
class LaidOutVariances:
    """Those of a vector over the desired layout, (m,)."""

    problem: Problem
    variances: Float

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table at some of its geounits, (rows, cells)."""
        cells = self.variances[self.problem.desired.block(table)]
        return np.array(cells.reshape(-1, self.problem.desired_tables[table].size)[rows])
