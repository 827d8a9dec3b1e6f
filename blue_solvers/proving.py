"""Estimates that are proved while they are made, and refined where the proof leaves much open."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blue_solvers.verification import Certificate, certify
from constraint_builders import Problem
from constraint_builders.arrays import Float

PROMISE = 1e-9  # standard errors
EXACT = 1e-8  # standard errors up to which an answer is called exact
REFINEMENTS = 2
Judge = Callable[[Float], Certificate]


def proved(y: Float, x: Float, linear: Callable[[Float], Float], judge: Judge) -> tuple[Float, Certificate]:
    """The estimate of the observed cells with its certificate, refined by the solver that made it.

    Parameters
    ----------
    y, x : ndarray, (n,)
        What was measured, 0 where nothing was, and its estimate.
    linear : callable
        The linear part of the estimate of the observed cells, (n,) to (n,).
    judge : callable
        The certificate of x.

    Returns
    -------
    x : ndarray, (n,)
    certificate : Certificate
        Of these values.
    """
    certificate = judge(x)
    for _ in range(REFINEMENTS):
        bound = bound_of(certificate)  # rounding may hide what is known exactly
        if bound <= PROMISE:
            break
        refined = x + linear(y - x)
        better = judge(refined)
        if bound_of(better) >= bound and np.isfinite(bound):
            break
        gained = bound_of(better) <= bound / 2 < np.inf  # otherwise what is left is rounding
        x, certificate = refined, better
        if not gained:
            break
    return x, certificate


def certified(problem: Problem, y: Float, x: Float, desired: Float) -> Certificate:
    """As `certify`, of what is wanted: cells of x that were not measured may stay unjudged."""
    certificate = certify(problem, y, x, desired)
    if is_exact(certificate) or not problem.has_unmeasured:
        return certificate
    measured = certify(problem, y, where_measured(problem, x), desired)
    return measured if bound_of(measured) < bound_of(certificate) else certificate


def is_exact(certificate: Certificate) -> bool:
    """Whether an answer is proved to be the best estimate, to 1e-8 standard errors."""
    return bound_of(certificate) <= EXACT


def bound_of(certificate: Certificate) -> float:
    """Of how far an answer is from the best estimate; infinite where nothing is proved."""
    return np.inf if certificate.bound is None else certificate.bound


def where_measured(problem: Problem, x: Float) -> Float:
    """Observed cells, NaN where nothing was measured: what is wanted of those is composed of the others."""
    return np.where(problem.unmeasured, np.nan, x) if problem.has_unmeasured else x
