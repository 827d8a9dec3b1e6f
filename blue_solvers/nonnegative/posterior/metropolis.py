"""Metropolis steps among non-negative whole counts, and what counts are worth by the noise that they leave."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from blue_solvers.nonnegative.model import FittingModel
from constraint_builders import Problem
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import ONE_BY_ONE, compiled
from noise_mechanisms.laws import PublishedCount, kind_of
from noise_mechanisms.published_figures import PublishedFigures


class Chains(NamedTuple):
    """Where chains are; changed in place.

    Attributes
    ----------
    states : ndarray of int64, (chains, d)
        Counts; none becomes negative.
    residuals : ndarray, (chains, n)
        Sums less measurements.
    totals, accepted : ndarray of int64, (chains,)
        Sums of all counts, and how many proposals were accepted.
    concentrations : ndarray, (chains,)
        Of the prior of each chain, see `metropolis_steps`.
    """

    states: Integers
    residuals: Float
    totals: Integers
    accepted: Integers
    concentrations: Float


class MoveLists(NamedTuple):
    """What each move adds to which cells and rows, as compressed sparse matrices, and to the sum of all counts."""

    cell_starts: Integers
    cells: Integers
    steps: Integers
    row_starts: Integers
    rows: Integers
    changes: Float
    growths: Integers  # (moves,)


class Misfit(NamedTuple):
    """A row's is its weight times half the squared residual, or times its size; or what a list says of it.

    Attributes
    ----------
    weights : ndarray, (n,)
    squared : bool
    starts : ndarray of int64, (n + 1,), or (1,) without lists
        Where every row's list begins.
    first : ndarray, (n,) or (0,)
        The residual that it begins with.
    listed : ndarray
        Of every residual, one after the other, what it is; of residuals beyond `OUTSIDE` for each count.
    """

    weights: Float
    squared: bool
    starts: Integers
    first: Float
    listed: Float

    def of(self, row: int, residual: float) -> float:
        """Of a residual of a row, by its list."""
        return float(_listed(self.listed[self.starts[row] : self.starts[row + 1]], residual - self.first[row]))


_KNOWN = 1024  # counts whose weights are worked out once for all turns
OUTSIDE = 40.0  # of a residual that no noise leaves: chains come in from there, and are seldom seen to go back


@compiled(most=ONE_BY_ONE)
def metropolis_steps(
    chains: Chains, moves: MoveLists, misfit: Misfit, choices: Integers, sizes: Integers, costs: Float
) -> None:
    """Propose moves to every chain, and take each where what the misfit and the prior lose by it is within its cost.

    Parameters
    ----------
    chains : Chains
        Changed in place.
    moves : MoveLists
    misfit : Misfit
    choices, sizes : ndarray of int64, (chains, turns)
        The move, and how many steps of it. A choice below 0 is a number -1 - k: somebody comes, where the size is
        positive, to cell k modulo d, or goes from occupied cell k modulo their number; that is accepted as much more
        often as it is proposed less often than the way back. The first d moves must be those of single cells.
    costs : ndarray, (chains, turns)
        Exponential variables.

    Notes
    -----
    Given the total N over d cells, counts x weigh N! gamma(d a) / gamma(N + d a) times the product of gamma(x + a) /
    (x! gamma(a)), a being the concentration (the Dirichlet-multinomial law); for infinite a N! / d^N times the product
    of 1 / x!. All totals are equally likely.
    """
    states, residuals, totals, accepted, concentrations = chains
    cell_starts, cells, steps, row_starts, rows, changes, growths = moves
    weights, squared, starts, first, listed = misfit
    d = states.shape[1]
    known = np.empty(min(choices.shape[1], _KNOWN))
    for chain in range(states.shape[0]):
        for count in range(known.size):
            known[count] = _log_weight(count, concentrations[chain])
        occupied, places, filled = np.empty(d, dtype=np.int64), np.full(d, -1), 0
        for cell in range(d):
            if states[chain, cell]:
                occupied[filled], places[cell] = cell, filled
                filled += 1
        for turn in range(choices.shape[1]):
            move, size = choices[chain, turn], sizes[chain, turn]
            possible, way_back = True, 0.0
            if move < 0:
                number = -1 - move
                if size > 0:
                    move, size = number % d, 1
                    way_back = math.log(d / (filled + (states[chain, move] == 0)))
                elif filled:
                    move, size = occupied[number % filled], -1
                    way_back = math.log(filled / d)
                else:
                    continue
            for i in range(cell_starts[move], cell_starts[move + 1]):
                if states[chain, cells[i]] + size * steps[i] < 0:
                    possible = False
                    break
            if not possible:
                continue
            growth = -way_back
            for i in range(row_starts[move], row_starts[move + 1]):
                before = residuals[chain, rows[i]]
                after = before + size * changes[i]
                if listed.size:
                    begin, end, least = starts[rows[i]], starts[rows[i] + 1], first[rows[i]]
                    growth += _listed(listed[begin:end], after - least) - _listed(listed[begin:end], before - least)
                elif squared:
                    growth += weights[rows[i]] * ((after - before) * (after + before) / 2)
                else:
                    growth += weights[rows[i]] * (abs(after) - abs(before))
            concentration = concentrations[chain]
            if concentration != 1.0:
                for i in range(cell_starts[move], cell_starts[move + 1]):
                    count = states[chain, cells[i]]
                    after_it = count + size * steps[i]
                    growth += known[count] if count < known.size else _log_weight(count, concentration)
                    growth -= known[after_it] if after_it < known.size else _log_weight(after_it, concentration)
            total = totals[chain] + size * growths[move]
            if total != totals[chain]:
                growth += _log_total(totals[chain], d, concentration) - _log_total(total, d, concentration)
            if growth > costs[chain, turn]:
                continue
            for i in range(cell_starts[move], cell_starts[move + 1]):
                cell = cells[i]
                states[chain, cell] += size * steps[i]
                if states[chain, cell] and places[cell] < 0:
                    occupied[filled], places[cell] = cell, filled
                    filled += 1
                elif not states[chain, cell] and places[cell] >= 0:
                    filled -= 1
                    occupied[places[cell]] = occupied[filled]
                    places[occupied[filled]] = places[cell]
                    places[cell] = -1
            for i in range(row_starts[move], row_starts[move + 1]):
                residuals[chain, rows[i]] += size * changes[i]
            totals[chain] = total
            accepted[chain] += 1


def _listed(own: Float, place: float) -> float:
    """What a list, (k,), says of the residual at this place of it."""
    inside = min(max(place, 0.0), own.size - 1.0)
    return own[int(inside + 0.5)] + OUTSIDE * abs(place - inside)


def _log_weight(count: int, concentration: float) -> float:
    """Logarithm of what one count weighs beforehand, without constants."""
    if concentration == math.inf:
        return -math.lgamma(count + 1.0)
    return math.lgamma(count + concentration) - math.lgamma(count + 1.0)


def _log_total(total: int, cells: int, concentration: float) -> float:
    """Logarithm of what a total adds to that."""
    if concentration == math.inf:
        return math.lgamma(total + 1.0) - total * math.log(cells)
    return math.lgamma(total + 1.0) - math.lgamma(total + cells * concentration)


_WHOLE = 1e-9


def misfit_of(model: FittingModel, y: Float, rows: Integers) -> Misfit:
    """Of the noise at y, (n,): its log density is quadratic or piecewise linear, with a weight for each row, or listed.

    The lists are those of figures published of counts: of the counts that each may be of.
    """
    problem, law = model.problem, model.problem.noise.law
    kind, variances, published = kind_of(law), problem.variances[rows], isinstance(law, PublishedCount)
    if kind.family is None and not published:
        raise ValueError(f"noise of the law {kind.name!r} has no family: the posterior needs Gaussian or Laplace noise")
    if problem.sources is not None and kind.name != "gaussian" and not published:
        several = np.isin(rows, problem.sources.cell[problem.sources.repeated])
        why = "{} was measured by several sources, and means of noise of the law {!r} have another: give one of them"
        problem.observed.refuse(rows[several], why, kind.name)
    broken = np.flatnonzero(abs(y[rows] - np.rint(y[rows])) > _WHOLE * np.maximum(1.0, abs(y[rows])))
    if kind.discrete and not published:
        why = "{} is {:g}: noise of the law {!r} leaves whole numbers whole"
        problem.observed.refuse(rows[broken], why, y, kind.name)
    weights = model.M[rows].data
    if kind.discrete and (weights != np.rint(weights)).any():
        raise ValueError(
            f"areas have weights that are not whole, and noise of the law {kind.name!r} leaves their sums as broken as "
            "they are: multiply the weights and what was measured until they are whole"
        )
    if isinstance(law, PublishedCount):
        return _lists(problem, y, rows)
    distinct, place = np.unique(variances, return_inverse=True)
    parameters = np.array([_parameter(kind.from_variance(float(variance))) for variance in distinct])
    nothing = np.zeros(1, dtype=np.intp), np.zeros(0), np.zeros(0)
    return Misfit((1 / parameters)[place], kind.family == "gaussian", *nothing)


def _lists(problem: Problem, y: Float, rows: Integers) -> Misfit:
    """Of figures, centred in y, (n,), what every count that they may be of is worth."""
    figures = PublishedFigures.of(problem, problem.noise.published(y))
    low, high = figures.limits(y.size)
    why = "{}: there is no count that all of its figures may be published of"
    problem.observed.refuse(rows[(low > high)[rows]], why)
    sizes = np.zeros(y.size, dtype=np.intp)
    sizes[rows] = high[rows] - low[rows] + 1
    starts = np.append(0, np.cumsum(sizes))
    cell = np.repeat(np.arange(y.size), sizes)
    logs = figures.log_probabilities(starts, low[cell] + np.arange(cell.size) - starts[cell])
    listed = np.where(np.isfinite(logs), -logs, OUTSIDE)
    return Misfit(1 / problem.variances[rows], True, np.append(starts[rows], starts[-1]), (low - y)[rows], listed)


def _parameter(law: object) -> float:
    """sigma2 of a law of the Gaussian family, the scale of one of Laplace's."""
    return float(getattr(law, "sigma2", None) or law.scale)  # type: ignore[attr-defined]
