"""Members of a level that are worked on together, and what is known of them before any measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blue_solvers.components.batches import chunks
from blue_solvers.components.tree.level_plan import LevelPlan
from constraint_builders.arrays import Float, Index, as_slice


@dataclass(frozen=True)
class UsedTable:
    """A table that was measured at some members of a block.

    Attributes
    ----------
    place : int
        Among the tables of the level.
    weights : ndarray, (G,)
        Its precisions.
    exact : ndarray, (G,), or None
        1 where it is known exactly; None where it never is.
    """

    place: int
    weights: Float
    exact: Float | None


@dataclass(frozen=True)
class LevelBlock:
    """Some members of a level.

    Attributes
    ----------
    rows : slice or ndarray of int
    inner : slice or ndarray of int
        Which of them have children.
    numbers : ndarray of int
        Places of these among all geounits with children.
    classes : ndarray of int, (G,)
    used : list of UsedTable
    """

    rows: slice | Index
    inner: slice | Index
    numbers: Index
    classes: Index
    used: list[UsedTable]


def blocks_of(level: LevelPlan, parent_number: Index, rows: Index, count: int) -> list[LevelBlock]:
    """Some members of a level, so many at a time; `parent_number` is a geounit's place among those with children."""
    found = []
    for some in chunks(rows.size, count):
        own = as_slice(rows[some])
        numbers = parent_number[level.members[rows[some]]]
        inner = np.flatnonzero(numbers >= 0)
        used = [
            UsedTable(place, weights[own], exact[own].astype(float) if exact[own].any() else None)
            for place, (weights, exact) in enumerate(zip(level.weights, level.exact, strict=True))
            if weights[own].any() or exact[own].any()
        ]
        found.append(LevelBlock(own, as_slice(inner), numbers[inner], level.class_of[own], used))
    return found
