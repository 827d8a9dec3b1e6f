"""The tables that a problem observes, computed from true counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.labelled import Dimension, aligned
from constraint_builders.description.reals import real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.description.table_names import TableNames
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
    if problem.spine is None:
        return _of_areas(problem, given)
    spine = problem.spine
    truth = np.empty(problem.observed.size)
    sums: dict[int, Float] = {}
    for level in reversed(range(len(spine.levels))):
        detailed = _of_level(spine, level, given, leaves, sums)
        for index, table in enumerate(problem.observed_tables):
            if problem.observed_levels[index] == level:
                truth[problem.observed.block(index)] = tabulate(schema, table, detailed).ravel()
        _add_to_parents(spine, level, detailed, sums)
    return truth


def _of_areas(problem: Problem, counts: Float) -> Float:
    places, found = problem.domain.places, []
    for level, table in zip(problem.observed_levels, problem.observed_tables, strict=True):
        cells = tabulate(problem.domain.schema, table, counts)
        found.append((places.leaves_of(level) @ cells.reshape(len(cells), -1)).ravel())
    return np.concatenate(found)


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


def _of_level(spine: Spine, level: int, counts: Float, leaves: np.ndarray, sums: dict[int, Float]) -> Float:
    """Detailed counts of a level's geounits: their own where they are leaves, sums of their children elsewhere."""
    members = spine.members[level]
    own = np.flatnonzero(spine.level_of[leaves] == level)
    if own.size == members.size:
        return counts[own]
    detailed = sums.pop(level)
    detailed[spine.rank_in_level[leaves[own]]] = counts[own]
    return detailed


def _add_to_parents(spine: Spine, level: int, detailed: Float, sums: dict[int, Float]) -> None:
    members = spine.members[level]
    parents = spine.parent[members]
    for above in np.unique(spine.level_of[parents[parents >= 0]]).tolist():
        inside = np.flatnonzero((parents >= 0) & (spine.level_of[parents] == above))
        shape = (spine.members[above].size, members.size)
        places = spine.rank_in_level[parents[inside]], inside
        children = sparse.csr_array((np.ones(inside.size), places), shape=shape)
        total = (children @ detailed.reshape(members.size, -1)).reshape(shape[0], *detailed.shape[1:])
        sums[above] = sums[above] + total if above in sums else total
