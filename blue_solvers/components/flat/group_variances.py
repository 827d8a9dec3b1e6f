"""Variances of cells where those of one table differ by the groups of its variables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blue_solvers.components.flat.group_mixing import GroupMixing
from blue_solvers.components.flat.grouped_axes import GroupedAxes
from constraint_builders.arrays import Float
from constraint_builders.relations.closed_tables import ClosedTables


def group_variances(
    axes: GroupedAxes, tables: ClosedTables, scale: Float, mixing: GroupMixing
) -> Callable[[int], Float]:
    """Variances of the cells of any of the tables, (cells,), by its number.

    Parameters
    ----------
    axes : GroupedAxes
    tables : ClosedTables
    scale : ndarray, (tables,)
        Variances of components that `mixing` does not have.
    mixing : GroupMixing
    """
    several = dict(axes.several)
    kept = [[axis for axis in own if axis < len(axes.shape)] for own in tables.kept.tolist()]
    found = []
    for number, own in enumerate(kept):
        lengths = [1 if axis not in axes.whitened else axes.shape[axis] for axis in own]  # alike for all contrasts
        component = mixing.variances[number] if mixing.mixed[number] else scale[number]
        shape = [several[axis].size if axis in several else n for axis, n in zip(own, lengths, strict=True)]
        found.append(np.array(np.broadcast_to(np.reshape(component, lengths), shape)))
    for number, without, axis, *_ in tables.up[np.argsort(tables.up[:, 2], kind="stable")].tolist():
        place, below = kept[number].index(axis), found[without]
        if axis in several:
            sizes = several[axis].reshape(-1, *[1] * (found[number].ndim - place - 1))
        else:
            sizes, below = np.array(axes.shape[axis]), np.expand_dims(below, place)
        found[number] = found[number] * (1 - 1 / sizes) + below / sizes**2

    def of_table(number: int) -> Float:
        variances = found[number]
        for place, axis in enumerate(kept[number]):
            if axis not in axes.whitened:
                variances = np.take(variances, axes.group_of(axis), axis=place)
        return variances.ravel()

    return of_table
