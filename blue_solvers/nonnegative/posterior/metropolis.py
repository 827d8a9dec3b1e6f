"""Metropolis steps among non-negative whole counts: in the loop and, to compare, in numpy."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled


def step_in_numpy(
    states: Integers,
    residuals: Float,
    cell_starts: Integers,
    cells: Integers,
    steps: Integers,
    row_starts: Integers,
    rows: Integers,
    changes: Float,
    weights: Float,
    squared: bool,
    concentration: float,
    choices: Integers,
    sizes: Integers,
    costs: Float,
    accepted: Integers,
) -> None:
    """Propose moves to every chain, one after another; accept where the misfit grows by at most the cost.

    Parameters
    ----------
    states : ndarray of int64, (chains, d)
        Counts, changed in place; none becomes negative.
    residuals : ndarray, (chains, n)
        Sums less measurements, changed in place.
    cell_starts, cells, steps : ndarray
        What each move adds to which cells, as a compressed sparse matrix.
    row_starts, rows, changes : ndarray
        What it adds to which rows.
    weights : ndarray, (n,)
        The misfit of a row is its weight times half the squared residual, or times its size.
    squared : bool
        Which of them.
    concentration : float
        a: counts x weigh the product of gamma(x + a) / x! beforehand; infinite: the product of 1 / x!.
    choices, sizes : ndarray of int64, (chains, turns)
        The move, and how many steps of it.
    costs : ndarray, (chains, turns)
        Exponential variables.
    accepted : ndarray of int64, (chains,)
        Counts accepted proposals.
    """
    for chain in range(states.shape[0]):
        for move, size, cost in zip(choices[chain], sizes[chain], costs[chain], strict=True):
            cell = slice(cell_starts[move], cell_starts[move + 1])
            row = slice(row_starts[move], row_starts[move + 1])
            moved = states[chain, cells[cell]] + size * steps[cell]
            before = residuals[chain, rows[row]]
            after = before + size * changes[row]
            growth = (after - before) * (after + before) / 2 if squared else abs(after) - abs(before)
            if (moved < 0).any():
                continue
            prior = log_prior(states[chain, cells[cell]], concentration) - log_prior(moved, concentration)
            if float(weights[rows[row]] @ growth) + prior <= cost:
                states[chain, cells[cell]] = moved
                residuals[chain, rows[row]] = after
                accepted[chain] += 1


def log_prior(counts: Integers, concentration: float) -> float:
    """Logarithm of the product of gamma(x + a) / x!, or of 1 / x!."""
    if concentration == 1:
        return 0.0
    above = 0.0 if np.isinf(concentration) else gammaln(counts + concentration).sum()
    return float(above - gammaln(counts + 1.0).sum())


@compiled(reference=step_in_numpy)
def metropolis_steps(
    states: Integers,
    residuals: Float,
    cell_starts: Integers,
    cells: Integers,
    steps: Integers,
    row_starts: Integers,
    rows: Integers,
    changes: Float,
    weights: Float,
    squared: bool,
    concentration: float,
    choices: Integers,
    sizes: Integers,
    costs: Float,
    accepted: Integers,
) -> None:
    """See `step_in_numpy`."""
    for chain in range(states.shape[0]):
        for turn in range(choices.shape[1]):
            move, size = choices[chain, turn], sizes[chain, turn]
            possible = True
            for i in range(cell_starts[move], cell_starts[move + 1]):
                if states[chain, cells[i]] + size * steps[i] < 0:
                    possible = False
                    break
            if not possible:
                continue
            misfit = 0.0
            for i in range(row_starts[move], row_starts[move + 1]):
                before = residuals[chain, rows[i]]
                after = before + size * changes[i]
                if squared:
                    misfit += weights[rows[i]] * ((after - before) * (after + before) / 2)
                else:
                    misfit += weights[rows[i]] * (abs(after) - abs(before))
            if concentration != 1.0:
                for i in range(cell_starts[move], cell_starts[move + 1]):
                    count = states[chain, cells[i]]
                    misfit += _log_weight(count, concentration) - _log_weight(count + size * steps[i], concentration)
            if misfit > costs[chain, turn]:
                continue
            for i in range(cell_starts[move], cell_starts[move + 1]):
                states[chain, cells[i]] += size * steps[i]
            for i in range(row_starts[move], row_starts[move + 1]):
                residuals[chain, rows[i]] += size * changes[i]
            accepted[chain] += 1


def _log_weight(count: int, concentration: float) -> float:
    """Of one count, as `log_prior`."""
    if concentration == math.inf:
        return -math.lgamma(count + 1.0)
    return math.lgamma(count + concentration) - math.lgamma(count + 1.0)
