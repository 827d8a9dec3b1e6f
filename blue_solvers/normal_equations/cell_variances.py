"""Exact variances of desired cells by entries of the inverse of A Sigma A'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import variances_from_weights
from blue_solvers.normal_equations.factorisation import FactorSolver, Solving, factorise, norms_of_inverse
from blue_solvers.normal_equations.inverses import factor_and_squares
from blue_solvers.normal_equations.noisy_equations import (
    EPSILON,
    Equations,
    equations_of,
    side_by_side,
)
from blue_solvers.normal_equations.stage import Stage
from constraint_builders import Problem
from constraint_builders.arrays import Float

CANCELLED = 1e-3  # of a cell's noise: a smaller variance, a difference of nearly equal numbers, would lose digits
DIGITS = 1e-8  # relative error of a variance that rounding may leave
DETERMINED = 1e-22  # of a cell's noise: variances below it are 0 but for rounding
NOTHING = 1e-12  # of what a cell sums: weights that together are less say nothing of it


@dataclass(frozen=True)
class SumsOfCells:
    """Independent equations with their noise, and what is summed from the cells that satisfy them.

    Attributes
    ----------
    equations : Equations
    T : csr_array, (m, n)
    all_noisy : bool
        Whether nothing is known exactly, so that no sum has variance 0.
    """

    equations: Equations
    T: sparse.csr_array
    all_noisy: bool

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The desired cells of a problem without cells that nothing determines."""
        equations = equations_of(problem, "independent")[-1]
        return cls(equations, desired_sums(problem), not problem.has_exact_knowledge)

    @property
    def least_share(self) -> float:
        """Share of a sum's noise below which a variance is 0 but for rounding.

        None where weights are worked out in extended precision, which are 0 themselves.
        """
        return 0.0 if self.all_noisy or self.equations.uneven else DETERMINED


def variances_by_selected_inversion(problem: Problem) -> Float:
    """Exact variance of every desired cell of the BLUE by one selected inversion of A Sigma A'.

    Where the variance is less than a thousandth of the noise, or the equations are so nearly dependent that the
    difference above would lose its digits, it is worked out from the estimate's own weights instead.

    Parameters
    ----------
    problem : Problem
        Any whose covariance is known entry by entry.

    Returns
    -------
    ndarray, (m,)
        In squared units of the counts; NaN where nothing determines the cell.

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
    variances = variances_of_several([SumsOfCells.of(problem.determined)])[0]
    variances[problem.lost] = np.nan
    return variances


def variances_of_several(parts: Sequence[SumsOfCells]) -> list[Float]:
    """Of the sums of cells that share nothing, (m,) for each; what is small for every one is done for all together."""
    with one_blas_thread():
        equations, T = side_by_side([own.equations for own in parts]), _blocks([own.T for own in parts])
        Sigma = equations.entries()
        noise = np.asarray((T @ Sigma).multiply(T).sum(axis=1)).ravel()
        stops = np.cumsum([own.T.shape[0] for own in parts])[:-1]
        if not equations.A.shape[0]:
            return np.split(noise, stops)
        N = equations.normal_matrix()
        factor, taken = factor_and_squares(N, _reached(equations, T))
        found, noises = np.split(noise - taken, stops), np.split(noise, stops)
        conditions = _conditions(factor, N, [own.equations.A.shape[0] for own in parts])
        for own, variances, of_noise, condition in zip(parts, found, noises, conditions.tolist(), strict=True):
            solving = factor if len(parts) == 1 else None
            _mend_cancelled(own.equations, own.T, EPSILON * condition, of_noise, variances, solving)
            variances[variances <= own.least_share * of_noise] = 0.0
    return found


def desired_sums(problem: Problem) -> sparse.csr_array:
    """The sparse matrix T, (m, n), that makes the desired cells from a consistent estimate of the observed ones."""
    n = problem.observed.size
    T = sparse.csr_array(sparse.eye_array(n, format="csr"))
    if problem.desired is not problem.observed and problem.tabulation is not None:
        T = sparse.csr_array(problem.tabulation)
    elif problem.desired.names != problem.observed.names or not problem.measured_tables.all():
        parts = [
            _sums_of_table(problem, table.start, table.stop)
            for table in map(problem.desired.slice, problem.desired.names)
        ]
        T = sparse.csr_array(sparse.vstack(parts, format="csr"))
    return sparse.csr_array(problem.completed_transpose(T.T).T)


def _sums_of_table(problem: Problem, start: int, stop: int) -> sparse.csr_array:
    """Rows start to stop of T: spread over the observed cells, the numbers of a table's cells name the cell of each."""
    numbers = np.zeros((problem.desired.size, 1))
    numbers[start:stop, 0] = np.arange(1, stop - start + 1)
    member = problem.tabulate_transpose(numbers)[:, 0].astype(np.int64)
    cells = np.flatnonzero(member)
    return sparse.csr_array(
        (np.ones(cells.size), (member[cells] - 1, cells)), shape=(stop - start, problem.observed.size)
    )


def _reached(equations: Equations, T: sparse.csr_array) -> sparse.csc_array:
    """A Sigma T', each equation in units of its noise."""
    scaled = sparse.diags_array(1 / equations.deviations) @ equations.A
    U = sparse.csc_array(scaled @ equations.entries() @ T.T)
    U.eliminate_zeros()
    return U


def _mend_cancelled(
    equations: Equations, T: sparse.csr_array, rounding: float, noise: Float, variances: Float, solving: Solving | None
) -> None:
    """Work out anew, in place, variances that are differences of nearly equal numbers.

    They are w' Sigma w with the weights w = t - A' (A Sigma A')^-1 A Sigma t of every row t of T, and least there: an
    error of the weights counts by its square. They are refined as far as rounding permits, and 0 where they are
    rounding, as of an area without leaves.
    """
    cancelled = np.flatnonzero(variances < max(CANCELLED, rounding / DIGITS) * noise)
    if not (cancelled.size and equations.A.shape[0]):
        return
    solver = FactorSolver(equations, factorise(equations.normal_matrix()) if solving is None else solving)
    stage, nothing = Stage(equations, lambda _: solver), 0.0 if equations.uneven else NOTHING

    def weights(units: Float) -> Float:
        sums = T.T @ units
        found = stage.adjoint(sums)
        found[:, abs(found).sum(axis=0) < nothing * abs(sums).sum(axis=0)] = 0
        return found

    variances[cancelled] = variances_from_weights(equations.Sigma, cancelled, T.shape[0], weights)


def _blocks(matrices: list[sparse.csr_array]) -> sparse.csr_array:
    return matrices[0] if len(matrices) == 1 else sparse.csr_array(sparse.block_diag(matrices, format="csr"))


def _conditions(factor: Solving, N: sparse.csr_array, sizes: list[int]) -> Float:
    """About the condition number of every diagonal block of N."""
    largest = np.zeros(len(sizes))
    np.maximum.at(largest, np.repeat(np.arange(len(sizes)), sizes), np.asarray(abs(N).sum(axis=0)).ravel())
    return norms_of_inverse(factor, sizes) * largest
