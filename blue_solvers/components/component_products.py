"""The components that contrasts and group sums make of slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.grouping import Grouping
from blue_solvers.components.tree.piecewise import Composed
from constraint_builders.arrays import Float

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class Component:
    """Contrasts along some variables, group sums along the others.

    Attributes
    ----------
    contrasts : tuple of bool
        For every variable in use whether it is contrasts.
    slots : tuple of slice
        Its part of an array of slots.
    groups : tuple of int
        Number of groups along every other variable.
    """

    contrasts: tuple[bool, ...]
    slots: tuple[slice, ...]
    groups: tuple[int, ...]

    @classmethod
    def of(cls, axes: Sequence[Grouping], contrasts: Sequence[bool]) -> Component:
        """Of axes in slots, of which the contrasts come first, group sums last."""
        pairs = [(g.levels - g.sizes.size, g.sizes.size, own) for g, own in zip(axes, contrasts, strict=True)]
        slots = tuple(slice(0, first) if own else slice(first, None) for first, _, own in pairs)
        return cls(tuple(contrasts), slots, tuple(count for _, count, own in pairs if not own))

    @cached_property
    def size(self) -> int:
        """Number of group sums, m."""
        return prod(self.groups)

    @cached_property
    def place(self) -> tuple[slice, ...]:
        """Its part of slots of many geounits."""
        return (slice(None), *self.slots)

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """Axes of (G, ..., K) with those that are no contrasts first."""
        kept = [i for i, contrast in enumerate(self.contrasts, 1) if not contrast]
        return (0, *kept, *(i for i in range(1, len(self.contrasts) + 2) if i not in kept))

    def to_front(self, array: NDArray[Number], count: int) -> NDArray[Number]:
        """The axes that are no contrasts, of `count` numbers together, as one: (G, ..., K) to (G, count, -1)."""
        return array.transpose(self._order).reshape(len(array), count, -1)

    def put_front(self, target: Float, values: Float) -> None:
        """The inverse of `to_front`, into an array of its part."""
        target.transpose(self._order)[...] = values.reshape([target.shape[axis] for axis in self._order])

    def multiply(self, matrices: Float | Composed, source: Float, target: Float) -> None:
        """Set its part of some coordinates, (G, ..., K), to matrices (G or 1, r, q) times its part of others."""
        count = prod(n for n, contrast in zip(source.shape[1:-1], self.contrasts, strict=True) if not contrast)
        self.put_front(target, matrices @ self.to_front(source, count))
