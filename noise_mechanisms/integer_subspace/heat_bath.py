"""The heat bath: exact redraws along basic moves, from the law given everything else.

Basic moves are short lattice vectors, which together generate the lattice.

Along a move with cells c and steps a, the law of the whole number t is proportional to

    exp(-epsilon f(t)),   f(t) = sum over c of |z_c + a_c t| = sum over kinks of weight * |t - place| + constant,

the second form holding for whole t: with q = floor(-z / a) and r the remainder, |z + a t| has kinks of weight |a| - r
at q and r at q + 1. Between kinks the law is geometric, so that one uniform number and an inversion give t exactly (up
to float64). In numpy it is done for many chains at once, in the loop to be compiled one chain after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar, TypeAlias

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Integers, kinds_of_rows
from constraint_builders.compiled import ONE_BY_ONE, compiled
from constraint_builders.description.reals import positive_number
from constraint_builders.memory import require_memory
from noise_mechanisms.integer_subspace.chains import INSTEAD, Kernel
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.invariants import Invariants
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members, free_axes
from noise_mechanisms.table_moves import count_moves_along, moves_along

Table: TypeAlias = tuple[Integers, tuple[int, ...], frozenset[int]]  # its records, its shape, axes to move along


@dataclass(frozen=True)
class Moves:
    """A list of lattice vectors.

    Attributes
    ----------
    cells : ndarray of int64, (moves, width)
        The cells that a move changes; shorter moves are filled up with cell 0 and step 0.
    steps : ndarray of int64, (moves, width)
        By how much.
    """

    cells: Integers
    steps: Integers

    @property
    def count(self) -> int:
        """Number of moves."""
        return int(self.cells.shape[0])


def basic_moves(lattice: Lattice) -> Moves:
    """All basic moves, each in one of its two directions.

    Margins: for every smallest set of axes whose margin is free, every pair of levels on each of these axes and every
    combination of levels of the other axes; for both margins of a two-way table these are all 2 x 2 moves. Nested sets:
    every pair of records of a block, and every free record by itself. Other sets: every pair of records that are in the
    same sets, and the lattice basis.

    Raises
    ------
    ValueError
        If the lattice holds nothing but zero.
    MemoryError
        If the list would not fit.
    """
    if lattice.dimension == 0:
        raise ValueError(f"{lattice.invariants} determine every record: there is no noise to draw and no move")
    margins, basis = lattice.invariants.margins, lattice.basis
    if margins is not None:
        free = [frozenset(axes) for axes in free_axes(margins)]
        smallest = [axes for axes in free if not any(other < axes for other in free)]
        return _list_moves([(np.arange(lattice.records), margins.shape, axes) for axes in smallest], basis[:, :0])
    pairs: list[Table] = [
        (group, (group.size,), frozenset({0})) for group in _alike(lattice.invariants) if group.size > 1
    ]
    is_pair = (np.diff(basis.indptr) == 2) & (basis.sum(axis=0) == 0)
    return _list_moves(pairs, basis[:, ~is_pair])


def _alike(invariants: Invariants) -> list[Integers]:
    """The blocks of nested sets; under others the records that are in the same sets."""
    if invariants.blocks is not None:
        return block_members(invariants.blocks)
    return block_members(kinds_of_rows(invariants.matrix.tocsc()))


def _list_moves(tables: list[Table], others: sparse.csc_array) -> Moves:
    """The moves of tables, and other vectors, (d, k), filled up to one width; the first step of each is positive."""
    lengths, counts = np.diff(others.indptr), [count_moves_along(shape, axes) for _, shape, axes in tables]
    first = sum(counts)  # of the others
    size = (first + lengths.size, max([2 ** len(axes) for *_, axes in tables] + [int(lengths.max(initial=0))]))
    require_memory(
        32.0 * prod(size),
        f"the list of {size[0]:,} basic moves",
        "use Gaussian noise or the L2 norm, whose samplers need no moves",
    )
    cells, steps = np.zeros(size, dtype=np.intp), np.zeros(size, dtype=np.int64)
    along = {(shape, axes): moves_along(shape, axes) for shape, axes in {table[1:] for table in tables}}
    for (records, shape, axes), start, count in zip(tables, np.cumsum([0, *counts]), counts, strict=False):
        moved, by = along[shape, axes]
        block = slice(start, start + count), slice(by.size)
        np.take(records, moved, out=cells[block], mode="clip")
        steps[block] = by
    places = (
        np.repeat(first + np.arange(lengths.size), lengths),
        np.arange(others.nnz) - np.repeat(others.indptr[:-1], lengths),
    )
    cells[places], steps[places] = others.indices, others.data
    steps[first:] *= np.sign(steps[first:, :1])
    return Moves(cells, steps)


# Measured on tables of 16 to 2,000 cells: autocorrelation takes 1.8 to 3.7 moves a cell, and the mean L1 norm of chains
# from zero is within 0.05 standard deviations after 16 moves a cell. Twice that.
HEAT_BATH_MOVES_PER_CELL = 32
ENDLESS = 2**61  # steps, of which the last are never drawn
TABULATED = 4096  # values of exp(-epsilon k) that the loop looks up instead of computing: up to twice as fast


def kinks(values: Integers, steps: Integers, unit: bool) -> tuple[Integers, Integers]:
    """Places of the kinks, sorted, and their weights, (chains, kinks) each.

    Parameters
    ----------
    values, steps : ndarray of int64, (chains, width)
        z and a on the cells of each chain's move. A step of 0 makes no kink.
    unit : bool
        Whether all steps are 1 or -1, which makes half as many kinks.
    """
    if unit:
        places = np.sort(-steps * values, axis=1)
        return places, np.ones_like(places)
    size = abs(steps)
    offset = -np.sign(steps) * values
    below, rest = np.divmod(offset, np.maximum(size, 1))
    places = np.concatenate([below, below + 1], axis=1)
    weights = np.concatenate([size - rest * (size > 0), rest * (size > 0)], axis=1)
    order = np.argsort(places, axis=1, kind="stable")
    return np.take_along_axis(places, order, 1), np.take_along_axis(weights, order, 1)


def draw_steps(
    places: Integers, weights: Integers, epsilon: float, uniform: Float, bounds: tuple[Integers, Integers] | None = None
) -> Integers:
    """Draw t with probabilities proportional to exp(-epsilon * sum of weight * |t - place|), by inversion.

    Parameters
    ----------
    places, weights : ndarray of int64, (chains, kinks)
        Places sorted, weights not negative, their sum positive.
    epsilon : float
        Positive.
    uniform : ndarray, (chains,)
        In [0, 1); t increases with it.
    bounds : pair of ndarray of int64, (chains, 1), optional
        The least and the largest t that is drawn.

    Returns
    -------
    ndarray of int64, (chains,)
    """
    low, high = (places[:, :1] - ENDLESS, places[:, -1:] + ENDLESS) if bounds is None else bounds
    places = np.clip(places, low, high)  # beyond them the cost is linear
    # Segment i runs from just beyond kink i - 1 to kink i, the first from the least t, the last to the largest.
    ends = np.concatenate([low - 1, places, high], axis=1)
    length = np.diff(ends, axis=1)
    total = weights.sum(axis=1, keepdims=True)
    slope = np.concatenate([-total, 2 * np.cumsum(weights, axis=1) - total], axis=1)
    energy = np.cumsum(np.concatenate([np.zeros_like(total), slope[:, 1:-1] * length[:, 1:-1]], axis=1), axis=1)
    falling = np.concatenate([energy[:, :1], energy], axis=1) + slope
    least = np.where(slope > 0, falling, np.concatenate([energy, energy[:, -1:]], axis=1))
    rate = epsilon * abs(slope)
    flat, each = rate == 0, np.where(rate == 0, -1.0, np.expm1(-rate))
    kept = np.where(flat, -length, np.expm1(-rate * length))
    mass = kept / each * np.exp(-epsilon * (least - least.min(axis=1, keepdims=True)))
    cumulative = np.cumsum(mass, axis=1)
    target = uniform * cumulative[:, -1]
    segment = np.minimum((cumulative <= target[:, None]).sum(axis=1), slope.shape[1] - 1)[:, None]
    chosen = (ends[:, :-1], ends[:, 1:], slope, rate, kept, mass, cumulative)
    return _within_segment(target, *(np.take_along_axis(array, segment, 1)[:, 0] for array in chosen))


def _within_segment(
    target: Float, before: Integers, end: Integers, slope: Integers, rate: Float, kept: Float, mass: Float, upto: Float
) -> Integers:
    """Invert the geometric law inside the chosen segment, (chains,), from the end of larger probability."""
    share = np.clip((target - (upto - mass)) / mass, 0.0, 1.0)
    share = np.minimum(np.where(slope < 0, 1 - share, share), 1 - 2.0**-53)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(slope == 0, -share * kept, np.log1p(share * kept) / -rate)
    steps = np.minimum(np.floor(steps).astype(np.int64), end - before - 1)
    return np.where(slope < 0, end - steps, before + 1 + steps)


def redraw_in_numpy(
    states: Integers,
    cells: Integers,
    steps: Integers,
    choices: Integers,
    uniforms: Float,
    epsilon: float,
    bounds: Callable[[Integers, Integers, Integers], tuple[Integers, Integers]] | None = None,
) -> None:
    """Redraw every chain along its moves, one after another, from the law given everything else.

    Parameters
    ----------
    states : ndarray of int64, (chains, d)
        Changed in place.
    cells, steps : ndarray of int64, (moves, width)
        The list of moves.
    choices, uniforms : ndarray, (chains, n)
        Which moves come, and with which uniform numbers.
    epsilon : float
        Positive.
    bounds : callable, optional
        Of a move's cells, steps and values, (chains, width) each: how often it may be taken, as in `draw_steps`.
    """
    chains, unit = np.arange(states.shape[0])[:, None], bool((abs(steps) == 1).all())
    for choice, uniform in zip(choices.T, uniforms.T, strict=True):
        changed, by = cells[choice], steps[choice]
        values = states[chains, changed]
        t = draw_steps(*kinks(values, by, unit), epsilon, uniform, bounds and bounds(changed, by, values))
        np.add.at(states, (chains, changed), t[:, None] * by)


@compiled(reference=redraw_in_numpy, most=ONE_BY_ONE)
def redraw_chains(
    states: Integers, cells: Integers, steps: Integers, choices: Integers, uniforms: Float, epsilon: float
) -> None:
    """As in `redraw_in_numpy`: states (chains, d), moves (moves, width), choices and uniforms (chains, n)."""
    width = cells.shape[1]
    room, mass = np.empty((4, 2 * width + 1), np.int64), np.empty(2 * width + 1, np.float64)
    steepest = 0
    for move in range(steps.shape[0]):
        steepest = max(steepest, np.abs(steps[move]).sum())
    decay = np.exp(-epsilon * np.arange(max(steepest + 1, TABULATED)))
    for chain in range(choices.shape[0]):
        for turn in range(choices.shape[1]):
            move = choices[chain, turn]
            count = _sort_kinks(states, chain, cells, steps, move, room[0], room[1])
            t = _draw_step(room, mass, count, epsilon, decay, uniforms[chain, turn])
            for i in range(width):
                states[chain, cells[move, i]] += t * steps[move, i]


def _sort_kinks(
    states: Integers, chain: int, cells: Integers, steps: Integers, move: int, place: Integers, weight: Integers
) -> int:
    """Fill in the kinks of one move by insertion, places and weights, (2 * width + 1,) each, and count them."""
    count = 0
    for i in range(cells.shape[1]):
        step = steps[move, i]
        if step == 0:
            continue
        size = abs(step)
        below = -states[chain, cells[move, i]] if step > 0 else states[chain, cells[move, i]]
        rest = 0
        if size > 1:
            below, rest = below // size, below % size
        for shift in range(1 if rest == 0 else 2):
            at = count
            while at > 0 and place[at - 1] > below + shift:
                place[at], weight[at] = place[at - 1], weight[at - 1]
                at -= 1
            place[at] = below + shift
            weight[at] = size - rest if shift == 0 else rest
            count += 1
    return count


def _draw_step(room: Integers, mass: Float, count: int, epsilon: float, decay: Float, uniform: float) -> int:
    """The t at which the distribution function first exceeds the uniform number; `room` is (4, k), `mass` (k,).

    `room` holds the kinks' places and weights, and takes their energies and the slopes of the segments between them,
    the two endless ones included; `mass` takes these segments' probabilities, up to one factor.
    """
    place, weight, energies, slope = room[0], room[1], room[2], room[3]
    slope[0] = 0
    for i in range(count):
        slope[0] -= weight[i]
    energy, lowest = 0, 0
    for i in range(count):
        slope[i + 1] = slope[i] + 2 * weight[i]
        energies[i] = energy
        lowest = min(lowest, energy)
        if i < count - 1:
            energy += slope[i + 1] * (place[i + 1] - place[i])
    before, total = 0.0, 0.0
    for i in range(count + 1):
        after = 0.0
        if i < count:
            above = energies[i] - lowest
            after = decay[above] if above < decay.size else math.exp(-epsilon * above)
        if slope[i] > 0:
            mass[i] = (before - after) * decay[slope[i]] / (1.0 - decay[slope[i]])
        elif slope[i] < 0:
            mass[i] = (after - before) / (1.0 - decay[-slope[i]])
        else:
            mass[i] = before * (place[i] - place[i - 1])
        before = after
        total += mass[i]
    target, segment = uniform * total, 0
    while segment < count and mass[segment] <= target:
        target -= mass[segment]
        segment += 1
    share = min(max(target / mass[segment], 0.0), 1.0)
    if slope[segment] < 0:
        share = 1.0 - share
    share = min(share, 1.0 - 2.0**-53)
    rate = epsilon * abs(slope[segment])
    length = ENDLESS if segment == 0 or segment == count else place[segment] - place[segment - 1]
    if slope[segment] == 0:
        inside = math.floor(share * length)
    else:
        inside = math.floor(math.log1p(share * math.expm1(-rate * length)) / -rate)
    inside = min(inside, length - 1)
    return place[segment] - inside if slope[segment] < 0 else place[segment - 1] + 1 + inside


class HeatBathKernel(Kernel):
    """Exact redraws along basic moves, under the L1 norm.

    One iteration picks one of all `basic_moves` at random and redraws the state along it from the law given everything
    else. Nothing to tune.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of L1 distance.
    compiled : bool
        Run in numba.

    Raises
    ------
    ImportError
        If `compiled` and numba is missing (extra ``fast``).
    """

    name: ClassVar[str] = "heat_bath"
    norm: Norm = 1
    _numbers = 1

    def __init__(self, lattice: Lattice, epsilon: float, compiled: bool = False) -> None:
        self.lattice, self.epsilon, self.compiled = lattice, positive_number(epsilon, "epsilon"), compiled
        self._moves = basic_moves(lattice)
        self._reference = redraw_chains.reference
        self._redraw = redraw_chains.compiled(INSTEAD) if compiled else self._reference

    @property
    def burn_in(self) -> int:
        """32 moves a cell, see `HEAT_BATH_MOVES_PER_CELL`."""
        return HEAT_BATH_MOVES_PER_CELL * self.lattice.records

    def _advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """As `advance`, of states (chains, d), all random numbers drawn at once."""
        self._redraw(states, *self._draw((states.shape[0], iterations), rng), self.epsilon)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """Both chains, (pairs, d) each, take the same move with the same uniform number."""
        drawn = self._draw((first.shape[0], 1), rng)
        for states in (first, second):
            self._reference(states, *drawn, self.epsilon)

    def _draw(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Integers, Integers, Integers, Float]:
        """The list of moves, which of them come, and with which uniform numbers."""
        return self._moves.cells, self._moves.steps, rng.integers(0, self._moves.count, shape), rng.random(shape)
