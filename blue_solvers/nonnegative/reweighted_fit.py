"""Reweighted fitting: one non-negative fit in which small answers count as a sum rather than one by one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.fit import NonnegativeFit, fit_columns, judged
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram
from blue_solvers.nonnegative.solving import solve
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.noise import LawOrName
from constraint_builders.description.reals import share
from noise_mechanisms.laws import kind_of


def reweighted_fit(problem: Problem, y: ArrayLike, gamma: float = 0.99) -> NonnegativeFit:
    """Fit non-negative cells after weighing down the answers that may well be noise around zero.

    In every table the answers are low below a cutoff that the largest of as many noises as are low exceeds with
    probability ``1 - gamma`` at most. Low answers keep a small weight each; their sum enters as a measurement of its
    own.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise of one variance in each table. Discrete noise is taken for its continuous cousin of the
        same variance.
    y : array_like, (n,) or (n, K)
        Measurements over ``problem.observed``, in counts.
    gamma : float
        Between 0 and 1; 0.99 in the paper.

    Returns
    -------
    NonnegativeFit
        Its KKT residual is that of the reweighted least squares.

    Raises
    ------
    ValueError
        If `y` does not fit the problem, variances differ within a table, a table leaves cells out or has areas that
        overlap or have weights, the noise has the tails neither of Gaussian nor of Laplace noise, an exact value is
        negative, or `gamma` is not between 0 and 1.
    NotConvergedError
        If no non-negative cells meet the values known exactly.

    References
    ----------
    "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, Algorithm 2; constants from the
    authors' code, which takes the median of the largest of n noises (n answers being low) and no less than 1.
    """
    gamma = share(gamma, "gamma")
    model = FittingModel.of(problem)  # refuses correlated noise
    if not all(model.has_one_variance(table) for table in problem.observed.names):
        raise ValueError(
            "reweighted fitting compares the answers of a table with one another: it needs tables with one variance "
            "each. Use nnls, max_fit or sequential_fit"
        )
    if kind_of(problem.noise.law).family is None:
        raise ValueError(
            f"reweighted fitting knows how large Gaussian and Laplace noise gets, and not {problem.noise.law!r} noise: "
            "use nnls, max_fit or sequential_fit"
        )
    for table in model.noisy_tables:
        model.labels(table)  # refuses what is no partition
    return fit_columns(problem, y, "reweighted", partial(_reweighted_fit, gamma=gamma))


def _reweighted_fit(model: FittingModel, y: Float, gamma: float) -> Certified:
    """The fit of one vector, (n,)."""
    program, inflation = _reweighted(model, y, gamma)
    return judged(model, y, program, solve(program), inflation)


def _reweighted(model: FittingModel, y: Float, gamma: float) -> tuple[QuadraticProgram, Float]:
    """The program with low answers weighed down and one more row, their sum, for every table that has any.

    Also what the variance of every measurement is multiplied by, (n,).
    """
    program = model.program(y)
    inflation = np.ones(y.size)
    groups, answers, variances = [], [], []
    for table in model.noisy_tables:
        cells = model.present_rows(table)
        variance = float(model.problem.variances[cells][0])
        low = low_answers(y[cells], variance, model.problem.noise.law, gamma)
        count = int(low.sum())
        if count:
            spread = max(1.0, _median_of_largest(count, variance, model.problem.noise.law))
            inflation[cells[low]] = 2 * spread**2
            groups.append(low[model.labels(table)])
            answers.append(y[cells][low].sum())
            variances.append(2 * count * variance)
    if not groups:
        return program, inflation
    sums = np.concatenate([inflation[model.sum_rows], np.ones(program.variance.size - model.sum_rows.size)])
    weighed = replace(
        program,
        weight=program.weight / np.where(model.cell_rows >= 0, inflation[model.cell_rows], 1.0),
        variance=program.variance * sums,
    )
    return weighed.with_rows(np.array(groups), answers, variances), inflation


def low_answers(answers: Float, variance: float, noise: LawOrName, gamma: float) -> NDArray[np.bool_]:
    """Which answers of a table, (cells,), are below its cutoff (Algorithm 2 of the paper of 2021, lines 4 to 6).

    The cutoff is the first of the sorted answers that is at least as large as the largest of as many noises would be
    with probability `gamma`; all answers are low if there is none.
    """
    ordered = np.sort(answers)
    numbers = np.arange(1, ordered.size + 1)
    reached = numbers * _log_probability_below(ordered, variance, noise) >= np.log(gamma)
    return answers < (ordered[reached.argmax()] if reached.any() else np.inf)


def _log_probability_below(values: Float, variance: float, noise: LawOrName) -> Float:
    """The log probability, (...), that noise is at most some values."""
    if kind_of(noise).family == "gaussian":
        return special.log_ndtr(values / np.sqrt(variance))
    exponent = -abs(values) / np.sqrt(variance / 2)
    return np.where(values < 0, exponent - np.log(2), np.log1p(-0.5 * np.exp(exponent)))


def _median_of_largest(count: int, variance: float, noise: LawOrName) -> float:
    """Median of the largest of `count` noises."""
    probability = 0.5 ** (1 / count)
    if kind_of(noise).family == "gaussian":
        return float(special.ndtri(probability)) * np.sqrt(variance)
    return float(-np.log(-2 * np.expm1(-np.log(2) / count))) * np.sqrt(variance / 2)
