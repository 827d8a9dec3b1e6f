"""How large the noise is, by the tables' own disagreement: a factor for the variances of every group of figures.

Of residuals v = y - x and redundancies r = 1 - Var(x) / Var(y) the expected weighted squares of a group are the sum of
its redundancies. Where its variances are s times what is declared they are not: s is multiplied by their ratio until
they are (Foerstner's equations, those of REML for Gaussian noise).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from blue_solvers.contract import Solver
from blue_solvers.estimates import Estimate
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.quantiles import read_level, t_multiple, takes_confidence_level
from blue_solvers.solvers import SolverName
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.reals import random_generator, real_number, whole_number
from noise_mechanisms import draw_noise
from noise_mechanisms.laws.base_law import Seed

STANDS = 1e-7  # of the logarithms of factors
SMALL_STEP = 1e-8  # squared, of the same: what slopes are told by
BALANCED = 1e-5  # of what is expected: what squares may be off by
FIRST_ROUNDS = 3  # that multiply by ratios
MOST_LOG = 30.0
GROUPS = ("table", "geolevel", "all")


@dataclass(frozen=True)
class EstimatedNoise:
    """Factors of the declared variances, group by group.

    Attributes
    ----------
    names : tuple
        Of the groups.
    factors : ndarray, (K,)
        What the declared variances are to be multiplied by; 1 where too little checks a group.
    std_errors : ndarray, (K,)
        Of the factors; NaN where they were not estimated.
    redundancy : ndarray, (K,)
        How many degrees of freedom check every group.
    estimated : ndarray of bool, (K,)
        Of which groups there is a factor.
    group : ndarray of int, (n,)
        Of every observed cell.
    estimate : Estimate
        With the variances that were found.
    """

    names: tuple[Hashable, ...]
    factors: Float
    std_errors: Float
    redundancy: Float
    estimated: Flags
    group: Index
    estimate: Estimate

    @property
    def problem(self) -> Problem:
        """With these variances."""
        return self.estimate.problem

    @takes_confidence_level
    def interval(self, confidence_level: float = 0.95) -> tuple[Float, Float]:
        """Intervals of the desired cells, by Student's t of the least redundancy of a group that was estimated.

        Parameters
        ----------
        confidence_level : float

        Returns
        -------
        lower, upper : ndarray, (m,)
        """
        degrees = self.redundancy[self.estimated].min(initial=np.inf)
        t = t_multiple(degrees, read_level(confidence_level))
        return self.estimate.values - t * self.estimate.std_errors, self.estimate.values + t * self.estimate.std_errors

    def __str__(self) -> str:
        lines = []
        for name, factor, error, r, known in zip(
            self.names, self.factors, self.std_errors, self.redundancy, self.estimated, strict=True
        ):
            label = name if isinstance(name, str) else " ".join(map(str, name if isinstance(name, tuple) else (name,)))
            found = f"{factor:.3g} +- {error:.2g} times what is declared" if known else "too little checks it"
            lines.append(f"{label}: {found}, by {r:.1f} degrees of freedom")
        return "\n".join(lines)


def estimated_noise(
    problem: Problem,
    y: ArrayLike,
    groups: str | ArrayLike = "table",
    solver: SolverName | Solver = "auto",
    least: float = 10.0,
    draws: int = 200,
    rng: Seed = None,
) -> EstimatedNoise:
    """Estimate how large the noise of groups of figures is, by what they disagree.

    Parameters
    ----------
    problem : Problem
        Its variances say how the noise of figures of one group compares; noise must be uncorrelated.
    y : array_like, (n,)
    groups : {"table", "geolevel", "all"} or array_like of int, (n,)
        Whose variances have one factor: every observed table, all tables of a geolevel, all; or a number for each cell.
    solver : str or Solver
    least : float
        Degrees of freedom below which a group keeps its variances.
    draws : int
        Of noise of the problem's law, and of Gaussian noise, that the standard errors are worked out from.
    rng : Generator, SeedSequence, int or None

    Returns
    -------
    EstimatedNoise

    Raises
    ------
    ValueError
        If groups do not fit the problem, noise is correlated, several sources measured a cell, no group is checked by
        `least` degrees of freedom, or factors do not settle.

    References
    ----------
    Foerstner, "Ein Verfahren zur Schaetzung von Varianz- und Kovarianzkomponenten", 1979.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> problem = Problem(Schema({"a": 20, "b": 20}), {"a": 1.0, "b": 1.0, "a * b": 1.0})
    >>> y = np.random.default_rng(0).normal(0, 2, problem.observed.size)
    >>> found = estimated_noise(problem, y, groups="all", rng=0)
    >>> found.names, found.factors.round(1), found.redundancy.round(), found.std_errors.round(1)
    (('all',), array([3.8]), array([40.]), array([0.8]))
    """
    if problem.noise.covariance is not None:
        raise ValueError("factors are estimated of variances: this problem has noise that is correlated")
    if problem.sources is not None:
        raise ValueError("this problem has figures of several sources, whose mean is one measurement: give one of them")
    least, draws = real_number(least, "least"), whole_number(draws, "draws", 20)
    names, group = _groups(problem, groups)
    noise = _Groups(problem, y, group, len(names), solver)
    factors = np.ones(len(names))
    redundancy = noise.at(factors)[2]
    estimated = redundancy >= least
    while estimated.any():
        factors = noise.balanced(estimated)
        redundancy = noise.at(factors)[2]
        if (redundancy[estimated] >= least).all():
            break
        estimated &= redundancy >= least
    else:
        raise ValueError(
            f"too little checks the noise: a group needs {least:g} degrees of freedom, and the best checked, "
            f"{names[int(redundancy.argmax())]!r}, has {redundancy.max():.2g}"
        )
    P, generator, errors = noise.at(factors)[0], random_generator(rng), np.full(len(names), np.nan)
    errors[estimated] = factors[estimated] * _relative_errors(P, group, noise.noisy, estimated, draws, generator)
    return EstimatedNoise(names, factors, errors, redundancy, estimated, group, P.estimate(y))


class _Groups:
    """What is left of the figures of every group, beside what its noise lets expect."""

    def __init__(self, problem: Problem, y: ArrayLike, group: Index, count: int, solver: SolverName | Solver) -> None:
        self.problem, self.group, self.count = problem, group, count
        self.noisy = ~(problem.exact | problem.unmeasured)
        self._y, self._solver = y, solver

    def at(self, factors: Float) -> tuple[BlueOperator, Float, Float]:
        """The operator, weighted squares of every group's residuals, and the sum of its redundancies, (K,) each."""
        declared = self.problem.variances
        variances = np.where(self.noisy, declared * factors[self.group], declared)
        P = blue(self.problem.with_variances(variances), self._solver)
        fit = P.estimate(self._y, certify=False).goodness_of_fit(draws=0)
        sums = (np.bincount(self.group, own, self.count).astype(float) for own in (fit.squares, fit.redundancy))
        squares, redundancy = sums
        return P, squares, redundancy

    def balanced(self, estimated: Flags) -> Float:
        """Factors, (K,), at which all groups' squares are what is expected, but for those that keep theirs.

        Raises
        ------
        ValueError
            If there are none.
        """
        factors = np.ones(self.count)
        for _ in range(FIRST_ROUNDS):
            _, squares, redundancy = self.at(factors)
            if not (squares[estimated] > 0).all():
                raise ValueError("all figures of a group agree exactly: their noise is none")
            ratio = squares[estimated] / redundancy[estimated]
            factors[estimated] *= ratio
            if (abs(np.log(ratio)) <= STANDS).all():
                return factors

        def off(logs: Float) -> Float:
            """Of groups with such logarithms of factors, (k,), what their squares are above what is expected."""
            factors[estimated] = np.exp(np.clip(logs, -MOST_LOG, MOST_LOG))
            _, squares, redundancy = self.at(factors)
            return (squares - redundancy)[estimated]

        start = np.log(factors[estimated])
        solved = scipy.optimize.root(off, start, method="hybr", options={"xtol": STANDS, "eps": SMALL_STEP})
        left = abs(off(solved.x)) / np.maximum(self.at(factors)[2][estimated], 1.0)
        if (left > BALANCED).any():
            raise ValueError("no factors balance all groups, which are told apart too badly: give fewer groups")
        return factors


def _groups(problem: Problem, groups: str | ArrayLike) -> tuple[tuple[Hashable, ...], Index]:
    """Their names, and the group of every observed cell, (n,)."""
    layout, numbers = problem.observed, np.arange(len(problem.observed.names))
    if isinstance(groups, str):
        if groups == "table":
            return tuple(layout.names), np.repeat(numbers, layout.sizes)
        if groups == "all":
            return ("all",), np.zeros(layout.size, dtype=np.intp)
        if groups == "geolevel" and problem.is_tabular:
            levels, own = problem.domain.places.levels, np.repeat(problem.observed_levels, layout.sizes)
            present, group = np.unique(own, return_inverse=True)
            return tuple(levels[level] for level in present), group
        raise ValueError(
            f"groups must be one of {', '.join(GROUPS)}, or a number for each observed cell: got {groups!r}"
        )
    given = np.asarray(groups)
    if given.shape != (layout.size,) or given.dtype.kind not in "iu":
        raise ValueError(f"groups must be whole numbers of shape ({layout.size},): got {given.dtype} {given.shape}")
    labels, group = np.unique(given, return_inverse=True)
    return tuple(labels.tolist()), group


def _slopes(
    P: BlueOperator, group: Index, noisy: Flags, estimated: Flags, draws: int, rng: np.random.Generator
) -> Float:
    """By how much logarithms of factors are to change for every group's squares that are too many, (K, K)."""
    normal = _covariance_of_squares(P, P.problem.noise.gaussian(draws, rng), group, noisy, estimated)
    return np.asarray(np.linalg.pinv(normal / 2, hermitian=True))


def _relative_errors(
    P: BlueOperator, group: Index, noisy: Flags, estimated: Flags, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Standard errors, (K,), of the logarithms of the estimated factors, by simulation at these."""
    problem, slopes = P.problem, _slopes(P, group, noisy, estimated, draws, rng)
    if problem.noise.law == "gaussian":
        return np.sqrt(2 * np.diag(slopes))
    own = _covariance_of_squares(P, draw_noise(problem, draws, rng), group, noisy, estimated)
    return np.sqrt(np.diag(slopes @ own @ slopes))


def _covariance_of_squares(P: BlueOperator, noise: Float, group: Index, noisy: Flags, estimated: Flags) -> Float:
    """Covariance of the groups' weighted squares, (K, K) of those estimated, over columns of noise, (n, draws)."""
    noise = np.where(noisy[:, None], noise, 0.0)
    left = noise - np.where(noisy[:, None], P.over_observed @ noise, 0.0)
    squares = left**2 * np.divide(1.0, P.problem.variances, out=np.zeros(noisy.size), where=noisy)[:, None]
    sums = np.stack([np.bincount(group, column, estimated.size) for column in squares.T])[:, estimated]
    return np.atleast_2d(np.cov(sums, rowvar=False))
