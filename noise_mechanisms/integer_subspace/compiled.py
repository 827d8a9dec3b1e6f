"""The sequential loops of the two chains, compiled by numba (extra ``fast``).

Each has a numpy reference with which the tests compare it: `heat_bath.draw_steps`, and `chains.JumpKernel.advance`.
The functions below are plain Python in the subset that numba compiles; nothing is compiled until it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.extras import missing_extra

Whole = NDArray[np.int64]

_TABLE = 4096  # values of exp(-epsilon k) that the heat bath looks up instead of computing


def load_numba() -> Any:
    """The module numba.

    Raises
    ------
    ImportError
        If it is not installed (extra ``fast``).
    """
    try:
        return importlib.import_module("numba")
    except ImportError as error:
        raise missing_extra("compiled chains need numba", "fast", "use compiled=False") from error


def has_numba() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


@cache
def heat_bath_loop() -> Callable[..., None]:
    """Compile ``loop(states, cells, steps, choices, uniforms, epsilon)``.

    It advances every chain in place by its moves: states (chains, d), the list of moves in cells and steps (moves,
    width), which of them come in choices and with which uniform numbers, both (chains, n).
    """
    njit = load_numba().njit(error_model="numpy", inline="always")
    sort_kinks, weigh_segments, invert = njit(_sort_kinks), njit(_weigh_segments), njit(_invert)

    table = _TABLE

    def loop(states: Whole, cells: Whole, steps: Whole, choices: Whole, uniforms: Float, epsilon: float) -> None:
        width = cells.shape[1]
        place, weight, energies = np.empty((3, 2 * width), np.int64)
        slope, mass = np.empty(2 * width + 1, np.int64), np.empty(2 * width + 1, np.float64)
        steepest = 0
        for move in range(steps.shape[0]):
            steepest = max(steepest, np.abs(steps[move]).sum())
        decay = np.exp(-epsilon * np.arange(max(steepest + 1, table)))
        for chain in range(choices.shape[0]):
            for turn in range(choices.shape[1]):
                move = choices[chain, turn]
                count = sort_kinks(states, chain, cells, steps, move, place, weight)
                total = weigh_segments(place, weight, count, epsilon, decay, energies, slope, mass)
                t = invert(place, count, slope, mass, total, epsilon, decay, uniforms[chain, turn])
                for i in range(width):
                    states[chain, cells[move, i]] += t * steps[move, i]

    return njit(loop)


def _sort_kinks(states: Whole, chain: int, cells: Whole, steps: Whole, move: int, place: Whole, weight: Whole) -> int:
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


def _weigh_segments(
    place: Whole, weight: Whole, count: int, epsilon: float, decay: Float, energies: Whole, slope: Whole, mass: Float
) -> float:
    """Slope and probability, up to one factor, of every segment between kinks, the two endless ones included."""
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
    return total


def _invert(
    place: Whole, count: int, slope: Whole, mass: Float, total: float, epsilon: float, decay: Float, uniform: float
) -> int:
    """The t at which the distribution function first exceeds the uniform number."""
    target = uniform * total
    segment = 0
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


@cache
def jump_loop() -> Callable[..., None]:
    """Compile ``loop(states, basis, jumps, costs, epsilon, norm)``: the paper's Algorithm 1.

    It advances every chain in place: states (chains, d), basis (rank, d) with a lattice vector in every row, jumps
    (chains, n, rank) in lattice coordinates, costs (chains, n): a jump is made when epsilon times the growth of the
    norm is at most its cost, an exponential variable.
    """
    njit = load_numba().njit
    measure = njit(_measure)

    def loop(states: Whole, basis: Whole, jumps: Whole, costs: Float, epsilon: float, norm: int) -> None:
        proposal = np.empty(states.shape[1], np.int64)
        for chain in range(states.shape[0]):
            size = measure(states[chain], norm)
            for turn in range(jumps.shape[1]):
                proposal[:] = states[chain]
                for i in range(basis.shape[0]):
                    if jumps[chain, turn, i] != 0:
                        proposal += jumps[chain, turn, i] * basis[i]
                proposed = measure(proposal, norm)
                if epsilon * (proposed - size) <= costs[chain, turn]:
                    states[chain] = proposal
                    size = proposed

    return njit(loop)


def _measure(table: Whole, norm: int) -> float:
    """The L1 or L2 norm of one table."""
    total = 0.0
    for value in table:
        total += abs(value) if norm == 1 else value * value
    return total if norm == 1 else math.sqrt(total)
