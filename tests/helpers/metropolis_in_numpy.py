"""Metropolis steps among whole counts, written in numpy by what they mean: to compare with the loop."""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from blue_solvers.nonnegative.posterior.metropolis import Chains, Misfit, MoveLists
from constraint_builders.arrays import Float, Integers


def invented_steps(rng: np.random.Generator) -> tuple[Any, ...]:
    """Arguments of Metropolis steps: seven cells, five rows, measured or of lists, three chains."""
    d, n, moves = 7, 5, 16
    boxes = rng.integers(-1, 2, (d, moves - d)) * (rng.random((d, moves - d)) < 0.5)
    cells = sparse.csc_array(np.hstack([np.eye(d, dtype=np.int64), boxes]))
    matrix = sparse.csr_array(rng.integers(0, 2, (n, d)))
    changes = sparse.csc_array(matrix @ cells)
    states = rng.integers(0, 6, (3, d))
    measured = rng.integers(8, 13, n) if (of_figures := rng.random() < 0.5) else rng.normal(10, 3, n)
    residuals = np.ascontiguousarray(states @ matrix.T.toarray() - measured, dtype=np.float64)
    growths = np.asarray(cells.sum(axis=0)).ravel()
    lists = MoveLists(
        cells.indptr, cells.indices, cells.data, changes.indptr, changes.indices, changes.data * 1.0, growths
    )
    starts = np.append(0, np.cumsum(rng.integers(1, 6, n))) * of_figures
    of_residuals = starts, -np.floor(np.diff(starts) / 2), rng.uniform(0, 3, starts[-1])
    misfit = Misfit(rng.uniform(0.1, 1, n), bool(rng.integers(2)), *of_residuals)
    concentrations = rng.choice([0.4, 1.0, np.inf], 3)
    chains = Chains(states, residuals, states.sum(axis=1), np.zeros(3, np.int64), concentrations)
    single = -1 - rng.integers(0, 1 << 40, (3, 200))
    choices = np.where(rng.random((3, 200)) < 0.4, single, rng.integers(0, moves, (3, 200)))
    drawn = choices, rng.choice([-2, -1, 1, 2], (3, 200)), rng.standard_exponential((3, 200))
    return chains, lists, misfit, *drawn


def step_in_numpy(
    chains: Chains, moves: MoveLists, misfit: Misfit, choices: Integers, sizes: Integers, costs: Float
) -> None:
    """As `metropolis_steps`, whose arguments these are, one proposal after another: (chains, turns)."""
    states, residuals, totals, accepted, concentrations = chains
    cell_starts, cells, steps, row_starts, rows, changes, growths = moves
    weights, squared = misfit.weights, misfit.squared
    for chain in range(states.shape[0]):
        occupied, d = np.flatnonzero(states[chain]).tolist(), states.shape[1]
        for move, size, cost in zip(choices[chain], sizes[chain], costs[chain], strict=True):
            way_back = 0.0
            if move < 0:
                if size < 0 and not occupied:
                    continue
                comes, number = size > 0, -1 - move
                move, size = (number % d, 1) if comes else (occupied[number % len(occupied)], -1)
                then = len(occupied) + (states[chain, move] == 0)
                way_back = np.log(d / then) if comes else np.log(len(occupied) / d)
            cell = slice(cell_starts[move], cell_starts[move + 1])
            row = slice(row_starts[move], row_starts[move + 1])
            moved = states[chain, cells[cell]] + size * steps[cell]
            before = residuals[chain, rows[row]]
            after = before + size * changes[row]
            growth = weights[rows[row]] * (
                (after - before) * (after + before) / 2 if squared else abs(after) - abs(before)
            )
            if misfit.listed.size:
                growth = [
                    _listed(misfit, i, b) - _listed(misfit, i, a)
                    for i, a, b in zip(rows[row], before, after, strict=True)
                ]
            if (moved < 0).any():
                continue
            total = totals[chain] + size * growths[move]
            old, a = states[chain, cells[cell]], concentrations[chain]
            prior = log_prior(old, totals[chain], d, a) - log_prior(moved, total, d, a)
            if float(np.sum(growth)) + prior - way_back <= cost:
                totals[chain] = total
                states[chain, cells[cell]] = moved
                residuals[chain, rows[row]] = after
                accepted[chain] += 1
                _note_occupied(occupied, cells[cell], moved)


def _listed(misfit: Misfit, row: int, residual: float) -> float:
    """Of a residual of a row, by its list; of one beyond its ends 40 for each count."""
    own = misfit.listed[misfit.starts[row] : misfit.starts[row + 1]]
    place = residual - misfit.first[row]
    inside = min(max(place, 0.0), own.size - 1.0)
    return float(own[round(inside)] + 40.0 * abs(place - inside))


def _note_occupied(occupied: list[int], cells: Integers, counts: Integers) -> None:
    """Keep the list of occupied cells after some, (k,), have come to these counts: the last fills a gap."""
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        if count and cell not in occupied:
            occupied.append(cell)
        elif not count and cell in occupied:
            place, last = occupied.index(cell), occupied.pop()
            occupied[place : place + 1] = [last] if place < len(occupied) else []


def log_prior(counts: Integers, total: int, cells: int, concentration: float) -> float:
    """Logarithm of the Dirichlet-multinomial weight of counts, (k,), and their sum with all others, without constants.

    Given the total N over d cells, counts weigh N! gamma(d a) / gamma(N + d a) times the product of gamma(x + a) / (x!
    gamma(a)); for infinite a N! / d^N times the product of 1 / x!. All totals are equally likely.
    """
    if np.isinf(concentration):
        return float(gammaln(total + 1.0) - total * np.log(cells) - gammaln(counts + 1.0).sum())
    alone = (gammaln(counts + concentration) - gammaln(counts + 1.0)).sum() if concentration != 1 else 0.0
    return float(alone + gammaln(total + 1.0) - gammaln(total + cells * concentration))
