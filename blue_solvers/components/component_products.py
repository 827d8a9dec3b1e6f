"""Products of every component's small matrices with arrays of slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from blue_solvers.solver import Float


@dataclass(frozen=True)
class Component:
    """Contrasts along some variables, group sums along the others.

    Attributes
    ----------
    contrasts : tuple of bool
        For every variable in use whether it is contrasts.
    slots : tuple of slice
        Its part of an array of slots.
    size : int
        Number of group sums, m.
    """

    contrasts: tuple[bool, ...]
    slots: tuple[slice, ...]
    size: int


def multiply(block: Float, products: Iterable[tuple[Component, Float]], transpose: bool = False) -> None:
    """Multiply every component of a block of geounits (G, ..., K) by its matrices (G, m, m), in place."""
    if not len(block):
        return
    for component, matrices in products:
        place = (slice(None), *component.slots)
        if component.size == 1:
            block[place] *= matrices.reshape(-1, *[1] * (block.ndim - 1))
        else:
            block[place] = product(component, matrices.swapaxes(-1, -2) if transpose else matrices, block[place])


def product(component: Component, matrices: Float, slots: Float) -> Float:
    """Matrices (G, m, m) times the slots of one component, (G, ..., K)."""
    axes = [i + 1 for i, contrast in enumerate(component.contrasts) if not contrast]
    front = np.moveaxis(slots, axes, range(1, len(axes) + 1))
    products = matrices @ front.reshape(len(front), component.size, -1)
    return np.moveaxis(products.reshape(front.shape), range(1, len(axes) + 1), axes)
