"""Markov chains whose law tends to the generalized Laplace law, and the evidence that they come near it.

The paper's jumps (Algorithm 1), and the exact heat bath along basic moves, short vectors that together
generate it. Chains are approximate. Stopped at total variation eta from their law they cost delta = (1 + e^epsilon)
eta; use them where no exact sampler exists, or to judge convergence, by lagged couplings or scale reduction.

Along a move with cells c and steps a, the law of the whole number t is proportional to

    exp(-epsilon f(t)),   f(t) = sum over c of |z_c + a_c t| = sum over kinks of weight * |t - place| + constant,

the second form holding for whole t: with q = floor(-z / a) and r the remainder, |z + a t| has kinks of weight |a| - r
at q and r at q + 1. Between kinks the law is geometric, so that one uniform number and an inversion give t exactly (up
to float64). In numpy it is done for many chains at once, in the loop to be compiled one chain after the other.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb, prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled
from constraint_builders.description.reals import positive_number, share, whole_number
from constraint_builders.memory import require_memory
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.lattice import Lattice, Margins, block_members, free_axes
from noise_mechanisms.integer_subspace.samplers import Sampler, Seed
from noise_mechanisms.laws import DiscreteLaplace
from noise_mechanisms.unimodular import columns_of

# Measured on tables of 16 to 2,000 cells: autocorrelation takes 1.8 to 3.7 moves a cell, and the mean L1 norm of chains
# from zero is within 0.05 standard deviations after 16 moves a cell. Twice that.
HEAT_BATH_MOVES_PER_CELL = 32
# Measured on the 4 x 4 table: jumps are autocorrelated over about 112 iterations, heat-bath moves over 26.
JUMPS_PER_CELL = 128
NARROW = 0.2  # epsilon below which jumps of a step or two wander: they need the square of the noise's width
MOST_JUMPS = 10**9
_VALUES_AT_ONCE = 1 << 20
INSTEAD = "use compiled=False"
TABULATED = 4096  # values of exp(-epsilon k) that the loop looks up instead of computing: up to twice as fast
_LARGEST_INFORMATIVE = 25  # dimension of 6 x 6 tables, whose heat-bath chains take 37,000 moves to meet; 8 x 8: > 3e6


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

    @property
    def unit(self) -> bool:
        """Whether every move changes every one of its cells by 1 or -1."""
        return bool((abs(self.steps) == 1).all())


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
    if lattice.invariants.margins is not None:
        return _margin_moves(lattice.invariants.margins)
    if lattice.invariants.blocks is not None:
        blocks = lattice.invariants.blocks
        return _list_moves(_pairs(block_members(blocks)), [{int(cell): 1} for cell in np.flatnonzero(blocks < 0)])
    _, twins = np.unique(lattice.invariants.matrix.toarray(), axis=1, return_inverse=True)
    return _list_moves(_pairs(block_members(np.ravel(twins))), columns_of(lattice.basis))


def _margin_moves(margins: Margins) -> Moves:
    free = [set(axes) for axes in free_axes(margins)]
    smallest = [axes for axes in free if not any(other < axes for other in free)]
    counts = [_count_moves(margins.shape, axes) for axes in smallest]
    width = 2 ** max(len(axes) for axes in smallest)
    require_memory(
        32.0 * sum(counts) * width,
        f"the list of {sum(counts):,} basic moves",
        "use Gaussian noise or the L2 norm, whose samplers need no moves",
    )
    cells = np.zeros((sum(counts), width), dtype=np.int64)
    steps = np.zeros_like(cells)
    start = 0
    for axes, count in zip(smallest, counts, strict=True):
        block = slice(start, start + count)
        corners = 2 ** len(axes)
        cells[block, :corners] = _tensor_cells(margins.shape, axes)
        steps[block, :corners] = [(-1) ** sum(corner) for corner in product((0, 1), repeat=len(axes))]
        start += count
    return Moves(cells, steps)


def _count_moves(shape: tuple[int, ...], axes: set[int]) -> int:
    return prod(comb(length, 2) if axis in axes else length for axis, length in enumerate(shape))


def _tensor_cells(shape: tuple[int, ...], axes: set[int]) -> Integers:
    """Cells (moves, 2^|axes|) of all moves along these axes, the first axis' corner varying slowest."""
    cells = np.zeros((1, 1), dtype=np.int64)
    for axis, length in enumerate(shape):
        ends = np.column_stack(np.triu_indices(length, 1)) if axis in axes else np.arange(length)[:, None]
        joined = cells[:, None, :, None] * length + ends[None, :, None, :]
        cells = joined.reshape(cells.shape[0] * ends.shape[0], cells.shape[1] * ends.shape[1])
    return cells


def _pairs(groups: list[Integers]) -> Iterator[dict[int, int]]:
    for group in groups:
        for first, second in combinations(group.tolist(), 2):
            yield {first: 1, second: -1}


def _list_moves(*parts: Iterator[dict[int, int]] | list[dict[int, int]]) -> Moves:
    """Pad to one width, each move once: up to sign they are the keys of a dictionary."""
    distinct: dict[tuple[tuple[int, int], ...], None] = {}
    for part in parts:
        for move in part:
            items = sorted(move.items())
            sign = 1 if items[0][1] > 0 else -1
            distinct[tuple((cell, sign * step) for cell, step in items)] = None
    width = max(len(move) for move in distinct)
    padded = np.array([[*move, *[(0, 0)] * (width - len(move))] for move in distinct], dtype=np.int64)
    return Moves(np.ascontiguousarray(padded[:, :, 0]), np.ascontiguousarray(padded[:, :, 1]))


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


def draw_steps(places: Integers, weights: Integers, epsilon: float, uniform: Float) -> Integers:
    """Draw t with probabilities proportional to exp(-epsilon * sum of weight * |t - place|), by inversion.

    Parameters
    ----------
    places, weights : ndarray of int64, (chains, kinks)
        Places sorted, weights not negative, their sum positive.
    epsilon : float
        Positive.
    uniform : ndarray, (chains,)
        In [0, 1); t increases with it.

    Returns
    -------
    ndarray of int64, (chains,)
    """
    total = weights.sum(axis=1, keepdims=True)
    slopes = 2 * np.cumsum(weights, axis=1) - total
    lengths = np.diff(places, axis=1)
    energy = np.cumsum(np.concatenate([np.zeros_like(total), slopes[:, :-1] * lengths], axis=1), axis=1)
    # Segment 0 ends at the first kink, segment i runs from just beyond kink i - 1 to kink i, the last has no end.
    start = np.concatenate([places[:, :1], places + 1], axis=1)
    slope = np.concatenate([-total, slopes], axis=1)
    length = np.concatenate([np.full_like(total, -1), lengths, np.full_like(total, -1)], axis=1)
    falling = slope > 0
    least = np.concatenate([energy[:, :1], np.where(slopes > 0, energy + slopes, np.roll(energy, -1, axis=1))], axis=1)
    rate = epsilon * abs(slope)
    mass = _geometric_mass(rate, length) * np.exp(-epsilon * (least - least.min(axis=1, keepdims=True)))
    cumulative = np.cumsum(mass, axis=1)
    target = uniform * cumulative[:, -1]
    last = cumulative.shape[1] - 1
    segment = np.minimum((cumulative <= target[:, None]).sum(axis=1), last)[:, None]
    chosen = [np.take_along_axis(array, segment, 1)[:, 0] for array in (start, length, falling, rate, mass, cumulative)]
    return _within_segment(target, *chosen)


def _geometric_mass(rate: NDArray[Any], length: Integers) -> Float:
    """Sum of exp(-rate u) over u = 0, ..., length - 1; length -1 stands for no end."""
    flat = rate == 0
    per_step = np.where(flat, 1.0, -np.expm1(-rate))
    return np.asarray(np.where(flat, length, np.where(length < 0, 1.0, -np.expm1(-rate * abs(length))) / per_step))


def _within_segment(
    target: Float, start: Integers, length: Integers, falling: NDArray, rate: Float, mass: Float, cumulative: Float
) -> Integers:
    """Invert the geometric law inside the chosen segment, from the end of larger probability."""
    before = np.clip((target - (cumulative - mass)) / mass, 0.0, 1.0)
    share = np.where(falling | (rate == 0), before, 1 - before)
    share = np.minimum(share, 1 - 2.0**-53)
    ends = length >= 0
    kept = np.where(ends, -np.expm1(-rate * abs(length)), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(rate == 0, share * length, np.log1p(-share * kept) / -rate)
    steps = np.floor(steps).astype(np.int64)
    steps = np.where(ends, np.minimum(steps, length - 1), steps)
    rising = ~falling & (rate > 0)
    # Rising segments count down from their end; the unbounded one on the left ends where it starts.
    return np.where(rising, start + np.where(ends, length - 1, 0) - steps, start + steps)


def redraw_in_numpy(
    states: Integers, cells: Integers, steps: Integers, choices: Integers, uniforms: Float, epsilon: float
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
    """
    chains, unit = np.arange(states.shape[0])[:, None], bool((abs(steps) == 1).all())
    for choice, uniform in zip(choices.T, uniforms.T, strict=True):
        changed, by = cells[choice], steps[choice]
        t = draw_steps(*kinks(states[chains, changed], by, unit), epsilon, uniform)
        np.add.at(states, (chains, changed), t[:, None] * by)


@compiled(reference=redraw_in_numpy)
def redraw_chains(
    states: Integers, cells: Integers, steps: Integers, choices: Integers, uniforms: Float, epsilon: float
) -> None:
    """See `redraw_in_numpy`."""
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
    """Fill in the kinks of one move by insertion, and count them."""
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
    """The t at which the distribution function first exceeds the uniform number.

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
    if segment == 0:
        return place[0] - math.floor(math.log1p(-share) / -rate)
    if segment == count:
        return place[count - 1] + 1 + math.floor(math.log1p(-share) / -rate)
    length = place[segment] - place[segment - 1]
    if slope[segment] == 0:
        inside = math.floor(share * length)
    else:
        fall = abs(slope[segment]) * length
        kept = decay[fall] if fall < decay.size else math.exp(-epsilon * fall)
        inside = math.floor(math.log(1.0 - share * (1.0 - kept)) / -rate)
    inside = min(inside, length - 1)
    return place[segment] - inside if slope[segment] < 0 else place[segment - 1] + 1 + inside


def accept(states: Integers, proposals: Integers, costs: Float, epsilon: float, norm: Norm) -> None:
    """Put proposals in place of states where epsilon times the growth of the norm is at most the cost, (chains,)."""
    growth = np.linalg.norm(proposals, norm, axis=-1) - np.linalg.norm(states, norm, axis=-1)
    accepted = epsilon * growth <= costs
    states[accepted] = proposals[accepted]


def jump_in_numpy(states: Integers, basis: Integers, jumps: Integers, costs: Float, epsilon: float, norm: Norm) -> None:
    """Propose jumps to every chain, one after another, and accept them by their costs.

    Parameters
    ----------
    states : ndarray of int64, (chains, d)
        Changed in place.
    basis : ndarray of int64, (rank, d)
        A lattice vector in every row.
    jumps : ndarray of int64, (chains, n, rank)
        In lattice coordinates.
    costs : ndarray, (chains, n)
        Exponential variables.
    epsilon : float
    norm : {1, 2}
    """
    for turn in range(jumps.shape[1]):
        accept(states, states + jumps[:, turn] @ basis, costs[:, turn], epsilon, norm)


@compiled(reference=jump_in_numpy)
def jump_chains(states: Integers, basis: Integers, jumps: Integers, costs: Float, epsilon: float, norm: int) -> None:
    """See `jump_in_numpy`."""
    proposal = np.empty(states.shape[1], np.int64)
    for chain in range(states.shape[0]):
        size = own_norm(states[chain], norm)
        for turn in range(jumps.shape[1]):
            proposal[:] = states[chain]
            for i in range(basis.shape[0]):
                if jumps[chain, turn, i] != 0:
                    proposal += jumps[chain, turn, i] * basis[i]
            proposed = own_norm(proposal, norm)
            if epsilon * (proposed - size) <= costs[chain, turn]:
                states[chain] = proposal
                size = proposed


def own_norm(table: Integers, norm: int) -> float:
    """The L1 or L2 norm of one table."""
    total = 0.0
    for value in table:
        total += abs(value) if norm == 1 else float(value) * value
    return total if norm == 1 else math.sqrt(total)


class Kernel(ABC):
    """A Markov chain on a lattice with the generalized Laplace law as its only stationary law.

    Attributes
    ----------
    lattice : Lattice
    epsilon : float
    norm : {1, 2}
    compiled : bool
        Whether the loop runs in numba.
    """

    name: ClassVar[str]
    lattice: Lattice
    epsilon: float
    norm: Norm
    compiled: bool

    @property
    @abstractmethod
    def burn_in(self) -> int:
        """Iterations after which a chain from zero is taken to have its law: a measured rule, not a proof."""

    def with_epsilon(self, epsilon: float) -> Self:
        """The same chain for another epsilon."""
        other = copy(self)
        other.epsilon = positive_number(epsilon, "epsilon")
        return other

    @abstractmethod
    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """Advance the chains, (chains, d), in place, by this many iterations each."""

    @abstractmethod
    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """Advance pairs of chains, (pairs, d) each, in place, by one coupled iteration; equal chains stay equal."""

    def trace(self, states: Integers, length: int, thinning: int, rng: np.random.Generator) -> Integers:
        """Advance the chains in place and record them after every `thinning` iterations: (chains, length, d)."""
        record = np.empty((states.shape[0], length, states.shape[1]), dtype=np.int64)
        for i in range(length):
            self.advance(states, thinning, rng)
            record[:, i] = states
        return record


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

    def __init__(self, lattice: Lattice, epsilon: float, compiled: bool = False) -> None:
        self.lattice, self.epsilon, self.compiled = lattice, positive_number(epsilon, "epsilon"), compiled
        self._moves = basic_moves(lattice)
        self._reference = redraw_chains.reference
        self._redraw = redraw_chains.compiled(INSTEAD) if compiled else self._reference

    @property
    def burn_in(self) -> int:
        """32 moves a cell, see `HEAT_BATH_MOVES_PER_CELL`."""
        return HEAT_BATH_MOVES_PER_CELL * self.lattice.records

    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """See `Kernel.advance`."""
        chains = states.shape[0]
        for count in _portions(iterations, _VALUES_AT_ONCE // chains):
            self._redraw(states, *self._draw((chains, count), rng), self.epsilon)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """Both chains take the same move with the same uniform number."""
        drawn = self._draw((first.shape[0], 1), rng)
        for states in (first, second):
            self._reference(states, *drawn, self.epsilon)

    def _draw(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Integers, Integers, Integers, Float]:
        """The list of moves, which of them come, and with which uniform numbers."""
        return self._moves.cells, self._moves.steps, rng.integers(0, self._moves.count, shape), rng.random(shape)


class JumpKernel(Kernel):
    """The paper's Gibbs-within-Metropolis sampler (Algorithm 1).

    One iteration proposes a jump C e, where C is the lattice basis and the entries of e are independent with
    probabilities (1 - a) / (1 + a) a^|k| (equation 11), and accepts it with probability
    min(1, exp(-epsilon (norm after - norm before))).

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of distance.
    norm : {1, 2}
        Which distance.
    a : float
        Between 0 and 1, both excluded: how far proposals reach; to be tuned.
    compiled : bool
        Run in numba.

    Raises
    ------
    ImportError
        If `compiled` and numba is missing (extra ``fast``).
    ValueError
        If `a` is not between 0 and 1.
    """

    name: ClassVar[str] = "jumps"

    def __init__(
        self, lattice: Lattice, epsilon: float, norm: Norm = 1, a: float = math.exp(-1), compiled: bool = False
    ) -> None:
        self.lattice, self.norm, self.compiled = lattice, norm, compiled
        self.epsilon, self.a = positive_number(epsilon, "epsilon"), share(a, "a")
        self._law = DiscreteLaplace(-1 / math.log(self.a))
        self._basis = np.ascontiguousarray(lattice.basis.toarray().T)
        self._jump = jump_chains.compiled(INSTEAD) if compiled else jump_chains.reference

    @property
    def burn_in(self) -> int:
        """128 jumps a cell, see `JUMPS_PER_CELL`; of noise that is wider than jumps reach as many more as they need."""
        jumps = JUMPS_PER_CELL * self.lattice.records * max(1.0, (NARROW / self.epsilon) ** 2)
        if jumps > MOST_JUMPS:
            raise ValueError(f"at epsilon {self.epsilon:g} 'jumps' would take {jumps:.3g} of them: take 'auto'")
        return math.ceil(jumps)

    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """See `Kernel.advance`."""
        chains, rank = states.shape[0], self._basis.shape[0]
        for count in _portions(iterations, _VALUES_AT_ONCE // (chains * max(rank, 1))):
            jumps = self._law.sample(chains * count * rank, rng).reshape(chains, count, rank)
            costs: Float = rng.standard_exponential((chains, count))
            self._jump(states, self._basis, jumps, costs, self.epsilon, self.norm)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """The paper's Algorithm 2: proposals maximally coupled in every lattice coordinate, one cost for both."""
        pairs, rank = first.shape[0], self._basis.shape[0]
        gap = self.coordinates(second - first)
        jump = self._law.sample(pairs * rank, rng).reshape(pairs, rank)
        other = self._coupled_jump(jump, gap, rng)
        costs = rng.standard_exponential((pairs,))
        accept(first, first + jump @ self._basis, costs, self.epsilon, self.norm)
        accept(second, second + other @ self._basis, costs, self.epsilon, self.norm)

    def coordinates(self, states: Integers) -> Integers:
        """Lattice coordinates (chains, rank) of the states (chains, d)."""
        return np.rint(states @ self._left_inverse).astype(np.int64)

    @cached_property
    def _left_inverse(self) -> Float:
        return np.linalg.pinv(self._basis.astype(np.float64))

    def _coupled_jump(self, jump: Integers, gap: Integers, rng: np.random.Generator) -> Integers:
        """Jumps of a second chain that is `gap` ahead, which land where the first ones do as often as possible."""
        landing = jump - gap
        log_ratio = math.log(self.a) * (abs(landing) - abs(jump))
        apart = -rng.standard_exponential(jump.shape) > log_ratio
        waiting = np.nonzero(apart)
        while waiting[0].size:
            fresh = self._law.sample(waiting[0].size, rng)
            landing[waiting] = fresh
            log_ratio = math.log(self.a) * (abs(fresh + gap[waiting]) - abs(fresh))
            taken = -rng.standard_exponential(fresh.size) > log_ratio
            waiting = (waiting[0][~taken], waiting[1][~taken])
        return landing


class ChainSampler(Sampler):
    """Independent chains from zero, one for every draw, stopped after a burn-in.

    Parameters
    ----------
    kernel : Kernel
        The chain.
    burn_in : int, optional
        Iterations of each, by default `Kernel.burn_in`.
    """

    exact: ClassVar[bool] = False

    def __init__(self, kernel: Kernel, burn_in: int | None = None) -> None:
        self.kernel = kernel
        self.name = kernel.name  # type: ignore[misc]
        self.burn_in = kernel.burn_in if burn_in is None else whole_number(burn_in, "burn_in", 0)

    def sample(self, size: int, rng: Seed = None) -> Integers:
        """See `Sampler.sample`."""
        states = np.zeros((size, self.kernel.lattice.records), dtype=np.int64)
        self.kernel.advance(states, self.burn_in, np.random.default_rng(rng))
        return states


def _portions(total: int, largest: int) -> list[int]:
    """`total` as a sum of portions of at most `largest`, itself at least 1."""
    largest = max(largest, 1)
    return [min(largest, total - start) for start in range(0, total, largest)]


class CouplingWarning(UserWarning):
    """The coupled chains cannot bound the distance from the law, although the chain itself may be close to it."""


@dataclass(frozen=True)
class MeetingTimes:
    """When pairs of coupled chains met.

    Attributes
    ----------
    lag : int
        L, by how many iterations the first chain of every pair is ahead.
    times : ndarray of int64, (runs,)
        Iteration tau of the first chain at which it first equals the second, more than L; where `met` is False the
        iteration at which the run was given up.
    met : ndarray of bool, (runs,)
    """

    lag: int
    times: Integers
    met: NDArray[np.bool_]

    def bound(self, iteration: int) -> tuple[float, float]:
        """Estimated upper bound on the total variation distance from the law after this many iterations from zero.

        The mean over the runs of max(0, ceil((tau - L - t) / L)) (Biswas, Jacob and Vanetti, 2019, Theorem 2.5).

        Parameters
        ----------
        iteration : int
            t, counted for a single chain.

        Returns
        -------
        bound, standard_error : float
            The bound is at most 1. It is 1, with standard error 0, and a `CouplingWarning` says so, if some run did
            not meet: such runs would make the mean an underestimate.
        """
        if not self.met.all():
            warnings.warn(
                f"{np.count_nonzero(~self.met)} of {self.met.size} coupled runs did not meet within "
                f"{self.times.max():,} iterations: the bound is the trivial 1; give them more, or compare with an "
                "exact sampler",
                CouplingWarning,
                stacklevel=2,
            )
            return 1.0, 0.0
        excess = np.maximum(0, np.ceil((self.times - self.lag - iteration) / self.lag))
        return min(1.0, float(excess.mean())), float(excess.std(ddof=1) / np.sqrt(excess.size))

    def iterations_for(self, eta: float) -> int:
        """The first iteration at which the bound is at most eta.

        Raises
        ------
        ValueError
            If some run did not meet.
        """
        if not self.met.all():
            raise ValueError("some coupled runs did not meet: there is no iteration to name")
        low, high = 0, int(self.times.max())
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.bound(middle)[0] <= eta else (middle + 1, high)
        return low


def meeting_times(kernel: Kernel, lag: int, runs: int, max_iterations: int, rng: Seed = None) -> MeetingTimes:
    """Run pairs of coupled chains from zero until they meet (the paper's Algorithm 3).

    Parameters
    ----------
    kernel : Kernel
        The chain. `JumpKernel` is coupled by the paper's Algorithm 2, `HeatBathKernel` by common moves and common
        uniform numbers.
    lag : int
        L, at least 1. Larger lags give tighter bounds and cost more.
    runs : int
        Number of independent pairs, at least 2.
    max_iterations : int
        Give up on pairs that have not met by then.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness.

    Returns
    -------
    MeetingTimes

    Raises
    ------
    ValueError
        If an argument is too small.

    Warns
    -----
    CouplingWarning
        If the lattice has more than 25 dimensions, where coupled chains practically never meet.
    """
    lag, runs = whole_number(lag, "lag", 1), whole_number(runs, "runs", 2)
    max_iterations = whole_number(max_iterations, "max_iterations", lag + 1)
    if kernel.lattice.dimension > _LARGEST_INFORMATIVE:
        warnings.warn(
            f"coupled chains on a lattice of dimension {kernel.lattice.dimension} practically never meet (more than "
            f"{_LARGEST_INFORMATIVE}, a 6 x 6 table): judge convergence by scale reduction or an exact sampler",
            CouplingWarning,
            stacklevel=2,
        )
    generator = np.random.default_rng(rng)
    ahead = np.zeros((runs, kernel.lattice.records), dtype=np.int64)
    behind = ahead.copy()
    kernel.advance(ahead, lag, generator)
    times = np.full(runs, max_iterations, dtype=np.int64)
    apart = np.arange(runs)
    for iteration in range(lag + 1, max_iterations + 1):
        kernel.advance_together(ahead, behind, generator)
        together = (ahead == behind).all(axis=1)
        if together.any():
            times[apart[together]] = iteration
            apart, ahead, behind = apart[~together], ahead[~together], behind[~together]
        if not apart.size:
            break
    met = np.ones(runs, dtype=bool)
    met[apart] = False
    return MeetingTimes(lag, times, met)


def dispersed_starts(kernel: Kernel, chains: int, rng: Seed = None, widening: float = 4.0) -> Integers:
    """Starting states (chains, d) drawn from the law for epsilon / widening, itself run from zero for its burn-in."""
    chains, widening = whole_number(chains, "chains", 1), positive_number(widening, "widening")
    states = np.zeros((chains, kernel.lattice.records), dtype=np.int64)
    wide = kernel.with_epsilon(kernel.epsilon / widening)
    wide.advance(states, wide.burn_in, np.random.default_rng(rng))
    return states


def potential_scale_reduction(traces: NDArray) -> Float:
    """Gelman and Rubin's factor of every cell: near 1 when chains from dispersed starts have come to agree.

    Parameters
    ----------
    traces : ndarray, (chains, length, d)
        Without burn-in; at least 2 chains of length 2.

    Returns
    -------
    ndarray, (d,)
        1 for cells that never change.

    Raises
    ------
    ValueError
        If there are fewer.
    """
    if traces.ndim != 3 or min(traces.shape[:2]) < 2:
        raise ValueError(
            f"traces need the shape (chains, length, d) with 2 chains of length 2 or more: got {traces.shape}"
        )
    length = traces.shape[1]
    within = traces.var(axis=1, ddof=1).mean(axis=0)
    between = traces.mean(axis=1).var(axis=0, ddof=1)
    pooled = (length - 1) / length * within + between
    constant = pooled == 0
    with np.errstate(divide="ignore"):
        return np.sqrt(np.where(constant, 1.0, pooled / np.where(constant, 1.0, within)))
