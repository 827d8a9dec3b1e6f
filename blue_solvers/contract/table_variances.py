"""Exact variances of desired tables, worked out for the rows that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout

NOTHING = 1e-18  # of the least that a figure may vary by: less is rounding, of a figure that is known exactly


class TableVariances(Protocol):
    """Variances of the cells of desired tables, some geounits at a time."""

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table, by its number among the desired ones, at some of its geounits, (rows, cells), a new array."""


class WithoutRounding:
    """Variances of which those below `nothing` are 0, of figures that are known exactly."""

    def __init__(self, variances: TableVariances, nothing: float) -> None:
        self._variances, self._nothing = variances, nothing

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table at some of its geounits, (rows, cells)."""
        return without_rounding(self._variances.of(table, rows), self._nothing)


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


class LaidOutVariances:
    """Those of a vector over the desired layout.

    Parameters
    ----------
    desired : Layout
    sizes : sequence of int
        Number of cells of every table in one geounit.
    variances : ndarray, (m,)
    """

    def __init__(self, desired: Layout, sizes: Sequence[int], variances: Float) -> None:
        self._desired, self._sizes, self._variances = desired, sizes, variances

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table at some of its geounits, (rows, cells)."""
        cells = self._variances[self._desired.block(table)].reshape(-1, self._sizes[table])
        return np.array(cells[rows])
