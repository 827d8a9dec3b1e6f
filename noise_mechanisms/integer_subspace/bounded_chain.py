"""The heat bath among the tables that are not negative, or 0 and 1: moves within what bounds leave."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from constraint_builders.arrays import Float, Integers
from noise_mechanisms.integer_subspace.heat_bath import ENDLESS, HeatBathKernel, draw_steps, kinks
from noise_mechanisms.integer_subspace.invariants import Invariants, two_way_shape
from noise_mechanisms.integer_subspace.lattice import Lattice


class BoundedKernel(HeatBathKernel):
    """Exact redraws along basic moves among the tables that are not negative, or 0 and 1.

    States are differences y - x from the confidential table x, with probabilities proportional to
    exp(-epsilon |y - x|_1 / 2).

    Parameters
    ----------
    invariants : Invariants
        Nested sets, or both margins of a two-way table: the moves are known to connect their bounded tables.
    epsilon : float
        Loss per unit of L1 distance.
    table : ndarray of int64, (d,)
        x.
    binary : bool

    Raises
    ------
    ValueError
        If the invariants are others, or the table is not allowed itself.
    """

    name: ClassVar[str] = "bounded_heat_bath"

    def __init__(self, invariants: Invariants, epsilon: float, table: Integers, binary: bool = False) -> None:
        if invariants.blocks is None and two_way_shape(invariants) is None:
            raise ValueError(
                f"{invariants}: basic moves are known to connect bounded tables under nested sets and both margins of "
                "a two-way table only, and a chain that is not connected has another law"
            )
        super().__init__(Lattice(invariants), epsilon)
        self._table, self._ceiling = table, 1 if binary else ENDLESS
        self._redraw = self._reference = self._redraw_between_walls

    def _redraw_between_walls(
        self, states: Integers, cells: Integers, steps: Integers, choices: Integers, uniforms: Float, epsilon: float
    ) -> None:
        """As `redraw_in_numpy`, between the bounds."""
        chains, unit = np.arange(states.shape[0])[:, None], self._moves.unit
        for choice, uniform in zip(choices.T, uniforms.T, strict=True):
            changed, by = cells[choice], steps[choice]
            noise = states[chains, changed]
            values = noise + self._table[changed]
            down, up = np.where(by > 0, (values, self._ceiling - values), (self._ceiling - values, values))
            low, high = (np.where(by == 0, ENDLESS, room).min(axis=1, keepdims=True) for room in (down, up))
            places, weights = kinks(noise, by, unit)
            t = draw_steps(np.clip(places, -low, high), weights, epsilon / 2, uniform, (-low, high))
            np.add.at(states, (chains, changed), t[:, None] * by)
