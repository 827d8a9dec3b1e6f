"""Exact variances of desired cells by entries of the inverse of A Sigma A'."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy import sparse

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import variances_from_weights
from blue_solvers.normal_equations.factorisation import FactorSolver, norm_of_inverse
from blue_solvers.normal_equations.inverses import factor_and_squares
from blue_solvers.normal_equations.noisy_equations import EPSILON, Equations, equations_of, least_variance
from blue_solvers.normal_equations.stage import Stage, stage_of
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.diagonals import scaled

CANCELLED = 1e-3  # of a cell's noise: a smaller variance, a difference of nearly equal numbers, would lose digits
DIGITS = 1e-8  # relative error of a variance that rounding may leave
NOTHING = 1e-12  # of what a cell sums: weights that together are less say nothing of it


def variances_by_selected_inversion(problem: Problem) -> Float:
    """Exact variance of every desired cell of the BLUE by one selected inversion of A Sigma A'.

    Parameters
    ----------
    problem : Problem
        Any whose covariance is known entry by entry.

    Returns
    -------
    ndarray, (m,)
        In squared units of the counts; NaN where a cell is not estimable.

    Raises
    ------
    ValueError
        If the covariance is an operator.
    MemoryError
        If it would not fit; `inverse_on_pattern` says what it takes, with a pair of equations for an entry of the
        matrix.
    """
    if not problem.noise.has_entries:
        raise ValueError(
            "selected inversion needs the entries of the covariance, which is an operator: use P.variances() with "
            "solver='cg', or estimate_variances"
        )
    determined = problem.determined
    variances = variances_given(equations_of(determined, "independent")[-1], determined)
    variances[problem.lost] = np.nan
    return variances


@one_blas_thread()
def variances_given(equations: Equations, problem: Problem, added: Float | float = 0.0) -> Float:
    """Those of the desired cells, (m,), all of which are determined, by independent equations that are the problem's.

    Where the variance is less than a thousandth of the noise, or the equations are so nearly dependent that the
    difference above would lose its digits, it is worked out from the estimate's own weights instead: it is w' Sigma w
    with the weights w = t - A' (A Sigma A')^-1 A Sigma t of what the cell sums, and least there, so that an error of
    the weights counts by its square. They are refined as far as rounding permits, and 0 where they are rounding, as of
    an area without leaves. A variance to which so much is `added`, (m,), needs no more digits than that leaves.
    """
    Sigma, rows, T = equations.entries(), equations.A.shape[0], desired_sums(problem)
    noise = np.asarray((T @ Sigma).multiply(T).sum(axis=1)).ravel()
    if not rows:
        return noise
    N = equations.normal_matrix()
    reached = scaled(T @ equations.cross_covariance, columns=1 / equations.deviations).T
    reached.eliminate_zeros()
    factor, taken = factor_and_squares(N, reached)
    variances = noise - taken
    condition = norm_of_inverse(factor.solve, rows) * float(abs(N).sum(axis=0).max())
    cancelled = np.flatnonzero(variances + added < max(CANCELLED, EPSILON * condition / DIGITS) * noise)
    if cancelled.size:
        stage = stage_of(equations, FactorSolver(equations, factor.solve, factor.label))
        weights = partial(_weights, stage, T, 0.0 if equations.uneven else NOTHING)
        variances[cancelled] = variances_from_weights(Sigma, cancelled, T.shape[0], weights)
    if problem.has_exact_knowledge and not equations.uneven:  # weights in extended precision are 0 themselves
        variances[variances <= least_variance(problem)] = 0.0
    return variances


def _weights(stage: Stage, T: sparse.csr_array, nothing: float, units: Float) -> Float:
    """Of cells in sums of T, (m, K) to (n, K); none where they are less than `nothing` of what is summed."""
    sums = T.T @ units
    found = stage.adjoint(sums)
    found[:, abs(found).sum(axis=0) < nothing * abs(sums).sum(axis=0)] = 0
    return found


def desired_sums(problem: Problem) -> sparse.csr_array:
    """The sparse matrix T, (m, n), that makes the desired cells from a consistent estimate of the observed ones."""
    sums = sparse.csr_array(problem.sums.entries())
    return sparse.csr_array(problem.completed_transpose(sums.T).T)
