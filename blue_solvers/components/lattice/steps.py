"""Rows of operations between tables, as the sweeps take them, and whose work each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from blue_solvers.components.lattice.operations import WRITE
from constraint_builders.arrays import Flags, Float, Index, Integers

Row = tuple[int, ...]
TABLE, TARGET, KEEPS_FIRST = 7, 8, 9  # places of a row


@dataclass(eq=False)
class StepList:
    """Rows of a list of operations.

    Attributes
    ----------
    steps : ndarray of int, (rows, 10)
        As the sweeps take them; then whose work each is, which table it leads to, as the plan numbers them, and whether
        that has the same first axis.
    factors : ndarray, (rows,)
    beside : slice
        What is cleared before.
    """

    steps: Integers
    factors: Float
    beside: slice = field(default_factory=lambda: slice(0))

    @classmethod
    def of(cls, steps: Integers, factors: Float | float = 1.0) -> StepList:
        """Rows, (rows, 10), and factors, () or (rows,), without what is cleared."""
        return cls(steps, np.ones(len(steps)) * factors)

    def of_several(self, count: int) -> Integers:
        """Steps between the tables of so many places, which lie together, before the first of a table's axes."""
        return self.steps * np.array([1, *[count] * 3, *[1] * (self.steps.shape[1] - 4)])

    @property
    def table(self) -> Integers:
        """Whose work each row is."""
        return self.steps[:, TABLE]

    def at(self, rows: Index | slice | Flags) -> StepList:
        """Some rows, a slice, (k,) or flags (rows,)."""
        return StepList(self.steps[rows], self.factors[rows])

    def followed_by(self, other: StepList) -> StepList:
        """Both, one after the other, after what is cleared before the first."""
        return StepList(np.concatenate([self.steps, other.steps]), np.append(self.factors, other.factors), self.beside)

    def turned(self) -> StepList:
        """With the two places of every row exchanged, what is read being written instead of added."""
        steps = self.steps[:, [0, 2, 1, *range(3, 10)]]
        steps[:, 0] = WRITE
        return replace(self, steps=steps)


def rows_of_columns(*columns: Sequence[int] | Integers | int) -> Integers:
    """Rows by their columns, the second of numbers, the others of such or of one number."""
    rows = np.empty((np.size(columns[1]), len(columns)), dtype=np.intp)
    for place, own in enumerate(columns):
        rows[:, place] = own
    return rows


def in_order_of_tables(rows: Integers, others: Integers, sign: int) -> Integers:
    """Both, (rows, 10) that are and (others, 10), in order of tables or, if `sign` is -1, of the last one first."""
    both = np.concatenate([rows, others])
    return both[np.argsort(sign * both[:, TABLE], kind="stable")]


def as_rows(rows: Sequence[Row]) -> Integers:
    """Rows of ten numbers each."""
    return np.fromiter(chain.from_iterable(rows), np.intp, 10 * len(rows)).reshape(-1, 10)
