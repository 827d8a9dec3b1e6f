"""Estimates from figures whose noise depends on the counts: by variances that the figures themselves suggest."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.contract import Solver
from blue_solvers.estimates import Estimate
from blue_solvers.operator import blue
from blue_solvers.rounded.count_distributions import MOST, is_small, log_distribution
from blue_solvers.solvers import SolverName
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import whole_number
from noise_mechanisms.published_figures import PublishedFigures

LEAST = 0.05  # of the law's variance: what a figure's is taken for at least
MANY = 100  # figures of small counts in a table, that tell how its counts are spread
STANDS = 2e-3  # of variances: what they may still change by, root mean square
UNCHECKED = 1e-6  # redundancy of figures of which others say nothing
TOLD_APART = 20.0  # standard deviation of a count by others, from which its variance is taken for the law's
WITHIN = 5.0  # of these, that are looked at
LEAST_SPREAD = 1e-4  # of a count that others know
AT_ONCE = 1 << 20


def estimate_rounded(
    problem: Problem, y: ArrayLike, solver: SolverName | Solver = "auto", rounds: int = 1, certify: bool = True
) -> Estimate:
    """The best linear unbiased estimate from figures whose variances depend on their counts.

    First all figures have the law's variance. Then each has the mean of those of the counts that all *other* figures
    suggest, and that are usual in its table where that has many. What a figure itself says of its variance is left
    out: weights that hang on its own error are worse than the law's variance, for errors and for coverage
    (docs/rounded.md). Of what is not drawn, such as conventional rounding, all keep the law's.

    Parameters
    ----------
    problem : Problem
        With the law of the figures, and uncorrelated noise.
    y : array_like, (n,)
        The figures as they were published.
    solver : str or Solver
    rounds : int
        How often variances are taken from the estimate before, until they stand; 0 leaves all the law's. More than one
        gains nothing, and lets figures of nearly nothing confirm one another.
    certify : bool
        As `blue_solvers.estimate` takes it.

    Returns
    -------
    Estimate
        Of the problem with the last variances; figures of which only one count is possible are known exactly.

    Raises
    ------
    ValueError
        As `estimate`; or if the noise is of no such law, or correlated.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> from noise_mechanisms.laws import RandomRounding
    >>> law = RandomRounding(3)
    >>> problem = Problem(Schema({"sex": 2}), {"total": law, "sex": law})
    >>> est = estimate_rounded(problem, [12, 3, 6])
    >>> est.values.round(2), est.std_errors.round(2)
    (array([11.,  4.,  7.]), array([0.94, 0.94, 0.94]))
    """
    rounds = whole_number(rounds, "rounds", 0)
    values, figures = PublishedFigures.read(problem, y)
    law, times = figures.law, np.bincount(figures.cell, minlength=values.size)
    noisy, variances = times > 0, np.array(problem.variances)
    low, high = figures.limits(values.size)
    alone = law.variance / np.maximum(times, 1)
    known = noisy & (low == high)
    variances[noisy] = np.where(known, 0.0, alone)[noisy]
    values = np.where(known, low, values)
    own = problem.with_variances(variances)
    moving = np.flatnonzero(noisy & (variances > 0))
    filled = np.where(problem.unmeasured, 0.0, values)
    tables = _Tables(problem, figures, moving)
    for _ in range(rounds if law.is_random else 0):
        est = blue(own, solver).over_observed.estimate(filled, certify=False)
        found = np.maximum(tables.mean_variances(*_by_others(est, moving)), LEAST * law.variance) / times[moving]
        change = (found - variances[moving]) / alone[moving]
        variances[moving] = found
        own = problem.with_variances(variances)
        if change @ change <= STANDS**2 * change.size:
            break
    return blue(own, solver).estimate(values, certify=certify)


def _by_others(est: Estimate, moving: Index) -> tuple[Float, Float]:
    """What all other figures say of some counts, and its variance, (k,) each; infinite where they say nothing."""
    x, variance, own = est.values[moving], est.variances[moving], est.problem.variances[moving]
    redundancy = np.clip(1 - variance / own, 0.0, 1.0)
    checked = redundancy > UNCHECKED
    share = np.divide(1 - redundancy, redundancy, out=np.zeros_like(x), where=checked)
    spread = np.divide(variance, redundancy, out=np.full_like(x, np.inf), where=checked)
    return x - share * (est.y[moving] - x), spread


class _Tables:
    """Tables of figures, and how the counts of those are spread that have many small ones."""

    def __init__(self, problem: Problem, figures: PublishedFigures, moving: Index) -> None:
        self._law = figures.law
        number = np.zeros(problem.observed.size, dtype=int)
        for k in range(len(problem.observed.names)):
            number[problem.observed.block(k)] = k
        self._table, of_figure = number[moving], number[figures.cell]
        self._prior: list[Float | None] = []
        small = is_small(self._law, figures.values)
        for k in range(len(problem.observed.names)):
            own = small & (of_figure == k)
            told = int(own.sum()) >= MANY
            self._prior.append(log_distribution(self._law, figures.values[own]) if told else None)

    def mean_variances(self, others: Float, spread: Float) -> Float:
        """Of figures whose counts are normal by all others, (k,), the mean of the variances that they may have."""
        found = np.full(others.size, self._law.variance)
        told = np.flatnonzero(spread < TOLD_APART**2)
        steps = np.arange(-np.ceil(WITHIN * TOLD_APART), np.ceil(WITHIN * TOLD_APART) + 1)
        for k in np.unique(self._table[told]):
            own = told[self._table[told] == k]
            for part in np.array_split(own, max(1, own.size * steps.size // AT_ONCE)):
                counts = np.maximum(np.rint(others[part]), 0.0)[:, None] + steps
                logs = -((counts - others[part, None]) ** 2) / (2 * np.maximum(spread[part, None], LEAST_SPREAD))
                prior = self._prior[k]
                if prior is not None:
                    logs += prior[np.clip(counts, 0, MOST).astype(int)]
                logs[counts < 0] = -np.inf
                weights = np.exp(logs - logs.max(axis=1, keepdims=True))
                variances = self._law.variance_at(np.maximum(counts, 0.0))
                found[part] = (weights * variances).sum(axis=1) / weights.sum(axis=1)
        return found
