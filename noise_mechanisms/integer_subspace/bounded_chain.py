"""A Markov chain among non-negative (or binary) tables, where they are too many to list, and its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.chains import Kernel
from noise_mechanisms.integer_subspace.invariants import Invariants
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.moves import basic_moves
from noise_mechanisms.integer_subspace.rejection import two_way_shape

_MOVES_PER_CELL = 32
_VALUES_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class BoundedDraws:
    """Tables drawn by a chain that was stopped, and how far its law may be from the one wanted.

    Attributes
    ----------
    tables : ndarray of int64, (size, d)
    iterations : int
        Of every chain, each from the confidential table.
    bound, standard_error : float
        Estimated upper bound on the total variation distance after so many iterations, from coupled chains of this very
        table; see `MeetingTimes.bound`.
    """

    tables: Integers
    iterations: int
    bound: float
    standard_error: float


class BoundedKernel(Kernel):
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
    norm = 1
    compiled = False

    def __init__(self, invariants: Invariants, epsilon: float, table: Integers, binary: bool = False) -> None:
        if invariants.blocks is None and two_way_shape(invariants) is None:
            raise ValueError(
                f"{invariants}: basic moves are known to connect bounded tables under nested sets and both margins of "
                "a two-way table only, and a chain that is not connected has another law"
            )
        self.lattice, self.epsilon = Lattice(invariants), positive_number(epsilon, "epsilon")
        self._table, self._binary = table, binary
        self._moves = basic_moves(self.lattice)

    @property
    def burn_in(self) -> int:
        """32 moves a cell."""
        return _MOVES_PER_CELL * self.lattice.records

    def with_epsilon(self, epsilon: float) -> BoundedKernel:
        """See `Kernel.with_epsilon`."""
        return BoundedKernel(self.lattice.invariants, epsilon, self._table, self._binary)

    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """See `Kernel.advance`."""
        for _ in range(iterations):
            choices, uniforms = self._draw(states.shape[0], rng)
            self._redraw(states, choices, uniforms)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """Both chains take the same move with the same uniform number."""
        choices, uniforms = self._draw(first.shape[0], rng)
        for states in (first, second):
            self._redraw(states, choices, uniforms)

    def _draw(self, chains: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        """A move and a uniform number for every chain."""
        return rng.integers(0, self._moves.count, size=(chains,)), rng.random((chains,))

    def _redraw(self, states: Integers, choices: Integers, uniforms: Float) -> None:
        chains = np.arange(states.shape[0])[:, None]
        cells, steps = self._moves.cells[choices], self._moves.steps[choices]
        noise = states[chains, cells]
        values = noise + self._table[cells]
        room_up = np.where(steps > 0, _ceiling(self._binary) - values, values)
        room_down = np.where(steps > 0, values, _ceiling(self._binary) - values)
        unused = steps == 0
        low = -np.where(unused, _ceiling(False), room_down).min(axis=1)
        high = np.where(unused, _ceiling(False), room_up).min(axis=1)
        width = int((high - low).max(initial=0)) + 1
        if width * states.shape[0] > _VALUES_AT_ONCE:
            raise ValueError(f"moves of up to {width:,} counts: the chain lists them all; use fewer counts or chains")
        t = low[:, None] + np.arange(width)
        cost = abs(noise[:, :, None] + steps[:, :, None] * t[:, None, :]).sum(axis=1) * (self.epsilon / 2)
        weight = np.where(t <= high[:, None], np.exp(cost.min(axis=1, keepdims=True) - cost), 0.0)
        cumulative = np.cumsum(weight, axis=1)
        chosen = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(axis=1)
        moved = t[chains[:, 0], np.minimum(chosen, high - low)]
        np.add.at(states, (chains, cells), moved[:, None] * steps)


def _ceiling(binary: bool) -> int:
    return 1 if binary else 2**62
