"""Products of every component's small matrices with arrays of slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.grouping import Grouping
from blue_solvers.components.tree.piecewise import Composed, sum_of_products
from constraint_builders.arrays import Float

Number = TypeVar("Number", bound=np.generic)
Matrices = Float | Composed


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
        """Axes of (G, ..., K) with those that are no contrasts first, and the inverse."""
        kept = [i for i, contrast in enumerate(self.contrasts, 1) if not contrast]
        return (0, *kept, *(i for i in range(1, len(self.contrasts) + 2) if i not in kept))

    @cached_property
    def _inverse(self) -> tuple[int, ...]:
        return tuple(self._order.index(i) for i in range(len(self._order)))

    def to_front(self, array: NDArray[Number], count: int) -> NDArray[Number]:
        """The axes that are no contrasts, of `count` numbers together, as one: (G, ..., K) to (G, count, -1)."""
        return array.transpose(self._order).reshape(len(array), count, -1)

    def from_front(self, array: Float, lengths: tuple[int, ...], like: tuple[int, ...]) -> Float:
        """The inverse, with `lengths` of these axes; all others as in the shape `like`."""
        shape = [like[i] for i in self._order]
        shape[1 : 1 + len(lengths)] = lengths
        return array.reshape(shape).transpose(self._inverse)


def multiply(block: Float, products: Iterable[tuple[Component, Matrices]], transpose: bool = False) -> None:
    """Multiply every component of a block of geounits (G, ..., K) by its matrices (G or 1, m, m), in place."""
    if not len(block):
        return
    for component, matrices in products:
        own = matrices.swapaxes(-1, -2) if transpose else matrices
        block[component.place] = sum_of(component, [own], [block[component.place]], component.groups)


def sum_of(
    component: Component, matrices: Sequence[Matrices], parts: Sequence[Float], lengths: tuple[int, ...]
) -> Float:
    """Sum of matrices (G or 1, r, q) times a component's parts of some coordinates, (G, ..., K) each.

    Of their axes that are no contrasts, which hold q numbers together; of the result they have `lengths`, r together.
    """
    kept = [
        prod(n for n, contrast in zip(part.shape[1:-1], component.contrasts, strict=True) if not contrast)
        for part in parts
    ]
    fronts = [component.to_front(part, count) for part, count in zip(parts, kept, strict=True)]
    arrays = [own for own in matrices if isinstance(own, np.ndarray)]
    if len(arrays) == len(matrices):
        stacked = fronts[0] if len(fronts) == 1 else np.concatenate(fronts, axis=1)
        found = np.concatenate(arrays, axis=2) @ stacked
    else:
        found = sum_of_products([own for own in matrices if isinstance(own, Composed)], fronts)
    return component.from_front(found, lengths, parts[0].shape)
