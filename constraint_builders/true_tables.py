"""The tables that a problem observes, computed from true counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.labelled import Dimension, aligned
from constraint_builders.description.reals import real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, TableNames
from constraint_builders.problem import Problem


def true_vector(problem: Problem, counts: ArrayLike) -> Float:
    """True values over the observed layout, from the detailed counts of the geounits that have no children.

    Parameters
    ----------
    problem : Problem
        On a spine, or of areas.
    counts : array_like, (leaves, *schema.shape)
        Leaves in the order of the spine, or of the areas.

    Returns
    -------
    ndarray, (n,)

    Raises
    ------
    ValueError
        If the problem has no geography, or counts have another shape.
    """
    if problem.places is None:
        raise ValueError("true tables are summed up a spine: this problem has none")
    schema, leaves = problem.domain.schema, problem.domain.leaves
    codes = tuple(problem.domain.places.geocodes[i] for i in leaves.tolist())
    axes = Dimension("geocode", codes), *TableNames.of(schema, None).dimensions("detailed")
    given = real_array(aligned(counts, lambda: axes, "counts"), "counts")
    if given.shape != (leaves.size, *schema.shape):
        raise ValueError(f"counts must have shape {(leaves.size, *schema.shape)}, one row a leaf: got {given.shape}")
    truth = np.empty(problem.observed.size)
    for level in set(problem.observed_levels):
        detailed = _summed(problem.domain.places.leaves_of(level), given)
        for index, table in enumerate(problem.observed_tables):
            if problem.observed_levels[index] == level:
                truth[problem.observed.block(index)] = tabulate(schema, table, detailed).ravel()
    return truth


def _summed(members: sparse.csr_array, counts: Float) -> Float:
    """Detailed counts of leaves, (leaves, *shape), summed to those of a level: themselves where it is the leaves."""
    if members.shape[0] == members.shape[1] == members.nnz and not (members - sparse.eye_array(len(counts))).nnz:
        return counts
    sums: Float = members @ counts.reshape(len(counts), -1)
    return sums.reshape(-1, *counts.shape[1:])


def known_truth(problem: Problem) -> Float:
    """True values over the observed layout that a test problem comes with, (n,).

    Raises
    ------
    ValueError
        If it has none.
    """
    if problem.truth is None:
        raise ValueError("this problem comes without true values: give truth= to the Problem")
    return problem.truth


def tabulate(schema: Schema, table: Table, detailed: Float) -> Float:
    """Sum detailed counts, (geounits, *schema.shape), to a table, (geounits, *table.shape)."""
    summed = tuple(1 + axis for axis in range(len(schema.shape)) if axis not in table.axes)
    cells = detailed.sum(axis=summed) if summed else detailed
    for axis, factor in enumerate(table.in_schema_order().factors, start=1):
        if factor not in schema.names:
            groups = np.eye(schema.size_of(factor))[list(schema.groups_of(factor))]
            cells = np.moveaxis(np.tensordot(cells, groups, axes=(axis, 0)), -1, axis)
    return cells.transpose(0, *(1 + np.argsort(table.schema_order)))
