"""Outliers taken out one by one, each judged beside those that are left.

Without measurement m, of variance s, redundancy r and residual e, the residuals and variances of estimates become

    e + V m e_m / (s r),    v + (V m)^2 / (s r),    V m = Cov(x) of its column: a step costs one apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from blue_solvers.estimates import Estimate
from blue_solvers.least_squares.worth import operator_from, redundancies
from blue_solvers.operator import BlueOperator
from blue_solvers.verification.goodness_of_fit import LEAST_CHECKED
from blue_solvers.verification.probabilities import Outlier, of_largest
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.noise import IndependentNoise
from constraint_builders.description.reals import share

ALIKE = 1e-9  # relative: residuals that differ by less are one, so that nothing tells which of them is wrong
ROUNDING = 1e-12  # of a redundancy, which is 1 less shares


@dataclass(frozen=True)
class SerialElimination:
    """What `eliminate_outliers` took out, and the estimate without it.

    Attributes
    ----------
    outliers : tuple of Outlier
        In the order in which they were taken out, each with its residual, and the probability of one as large, beside
        those that were left then.
    positions : tuple of int
        Where they sit in the observed layout.
    not_told_apart : tuple of tuple of int
        For each the other measurements whose residual was as large, so that any of them may be the wrong one.
    estimate : Estimate
        Of the problem in which they were not measured.
    """

    outliers: tuple[Outlier, ...]
    positions: tuple[int, ...]
    not_told_apart: tuple[tuple[int, ...], ...]
    estimate: Estimate

    @property
    def problem(self) -> Problem:
        """The problem in which they were not measured."""
        return self.estimate.problem

    def __str__(self) -> str:
        def said(number: int) -> str:
            own, others = self.outliers[number], len(self.not_told_apart[number])
            where = self.problem.observed.describe(self.positions[number])
            doubt = f", or one of {others} others that nothing tells from it" * bool(others)
            return f"{where} is {own.value:.6g}, others say {own.expected:.6g} ({own.residual:+.1f}){doubt}"

        return "; ".join(map(said, range(len(self.outliers)))) or "no outliers"


def eliminate_outliers(problem: Problem | Estimate, y: Any = None, level: float = 0.01) -> SerialElimination:
    """Take out the measurement with the largest residual, as long as it is too large among those that are left.

    Parameters
    ----------
    problem : Problem or Estimate
        With uncorrelated noise. Of an estimate its own measurements are taken.
    y : array_like, (n,), or mapping
        What was measured.
    level : float
        Of each test, over all measurements that are left and that others check (Sidak's bound for the largest of so
        many normal residuals).

    Returns
    -------
    SerialElimination

    Raises
    ------
    ValueError
        If noise is correlated, several sources measured a cell, the level is no number between 0 and 1, or y is no
        vector of measurements.

    References
    ----------
    W. Baarda (1968), "A testing procedure for use in geodetic networks", and its iteration, "data snooping".

    Examples
    --------
    >>> from blue_solvers.least_squares import least_squares
    >>> found = least_squares([[1.0]] * 6, [10.1, 9.8, 10.2, 9.9, 17.0, 10.0], 0.04)
    >>> print(eliminate_outliers(found))
    table 'rows', cell (node=4) is 17, others say 10 (+32.0)
    """
    level = share(level, "level")
    operator = operator_from(problem)
    whole = operator.problem
    if whole.is_correlated or whole.sources is not None:
        why = "noise is correlated" if whole.is_correlated else "several sources measured a cell"
        raise ValueError(f"outliers are not taken out one by one where {why}: look at goodness_of_fit().outliers()")
    est = problem if isinstance(problem, Estimate) and y is None else operator.estimate(y, certify=False)
    taken = _Residuals(operator.over_observed, est.y)
    outliers, positions, others = list[Outlier](), list[int](), list[tuple[int, ...]]()
    while taken.checked.any():
        z = taken.studentised
        largest = int(z.argmax())
        probability = of_largest(float(z[largest]), int(taken.checked.sum()))
        if probability >= level:
            break
        alike = np.flatnonzero(z >= (1 - ALIKE - taken.doubt - taken.doubt[largest]) * z[largest])
        worst = int(alike[0])  # on every machine the same: what is largest among them is a matter of rounding
        positions.append(worst)
        others.append(tuple(alike[1:].tolist()))
        outliers.append(taken.outlier(worst, probability))
        taken.leave_out(worst)
    if positions:
        variances = np.array(whole.variances)
        variances[positions] = np.inf
        less = whole.replace(noise=IndependentNoise(whole.noise.law, variances), truth=None)
        if whole.is_placed and whole.desired is whole.observed:  # whose cells are no sums of others, if not measured
            desired, tables, levels = whole.names.tables(whole.observed.names)
            less = less.replace(desired=desired, desired_tables=tables, desired_levels=levels)
        est = operator_from(less).estimate(np.where(np.isinf(variances), np.nan, whole.noise.published(est.y)))
    return SerialElimination(tuple(outliers), tuple(positions), tuple(others), est)


class _Residuals:
    """Residuals, and variances of estimates, of the measurements that are left.

    Parameters
    ----------
    operator : BlueOperator
        Over the observed layout, (n, n).
    y : ndarray, (n,)
    """

    def __init__(self, operator: BlueOperator, y: Float) -> None:
        self._operator, self._y, self._problem = operator, y, operator.problem
        noisy = ~self._problem.exact & ~self._problem.unmeasured
        x = operator @ self._problem.noise.published(y) + operator.offset
        self._noise = np.where(noisy, self._problem.variances, 1.0)
        self._left, self._residuals = noisy, np.where(noisy, y - x, 0.0)
        self._redundancy = redundancies(operator, noisy)
        self._columns = list[Float]()  # what estimates changed by, in units: Cov(x) before less after is their squares

    @property
    def checked(self) -> Flags:
        """Which are left that others check, (n,)."""
        return self._left & (self._redundancy > LEAST_CHECKED)

    @property
    def studentised(self) -> Float:
        """Sizes of residuals, (n,), 0 where nothing checks them."""
        spread = np.where(self.checked, self._redundancy * self._noise, np.inf)
        return abs(self._residuals) / np.sqrt(spread)

    @property
    def doubt(self) -> Float:
        """By what share rounding of its redundancy may change the size of a residual, (n,)."""
        return np.divide(ROUNDING, self._redundancy, out=np.zeros_like(self._redundancy), where=self.checked)

    def outlier(self, worst: int, probability: float) -> Outlier:
        """What is said of one that is taken out."""
        name, cell = self._problem.observed.locate(worst)
        left = float(self._residuals[worst] / self._redundancy[worst])
        residual = float(self._residuals[worst] / np.sqrt(self._redundancy[worst] * self._noise[worst]))
        value = float(self._problem.noise.published(self._y)[worst])
        labels = self._problem.observed.labels(worst)
        return Outlier(name, cell, value, value - left, residual, probability, labels=labels)

    def leave_out(self, worst: int) -> None:
        """Estimates without one of them."""
        unit = np.zeros(self._y.size)
        unit[worst] = self._noise[worst]
        column = np.nan_to_num(self._operator @ unit)
        for earlier in self._columns:
            column = column + earlier * earlier[worst]
        column = column / np.sqrt(self._noise[worst] * self._redundancy[worst])
        moved = self._residuals[worst] / np.sqrt(self._noise[worst] * self._redundancy[worst])
        self._columns.append(column)
        self._left[worst] = False
        self._residuals = np.where(self._left, self._residuals + column * moved, 0.0)
        self._redundancy = np.where(self._left, self._redundancy - column**2 / self._noise, 0.0)
