"""Exact variances of desired cells by entries of the inverse of A Sigma A'."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from scipy import sparse

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.normal_equations import kernels
from blue_solvers.normal_equations.factorisation import FactorSolver, Solving, factorise
from blue_solvers.normal_equations.inverses import factor_and_squares
from blue_solvers.normal_equations.kernels import Gather
from blue_solvers.normal_equations.noisy_equations import (
    EPSILON,
    Equations,
    equations_of,
    is_uneven,
    side_by_side,
)
from blue_solvers.normal_equations.stage import Stage
from constraint_builders import Problem
from constraint_builders.arrays import Float

CANCELLED = 1e-3  # of a cell's noise: a smaller variance, a difference of nearly equal numbers, would lose digits
WELL_KNOWN = 1e-9  # of a cell's noise: a smaller variance needs weights as near as rounding permits
DIGITS = 1e-8  # relative error of a variance that rounding may leave
POWER_STEPS = 6
DETERMINED = 1e-22  # of a cell's noise: variances below it are 0 but for rounding
REFINED_BLOCK = 64  # columns of the adjoint held at once
NOTHING = 1e-12  # of what a cell sums: weights that together are less say nothing of it


def variances_by_selected_inversion(
    problem: Problem, gather: Gather | None = None, equations: Equations | None = None
) -> Float:
    """Exact variance of every desired cell of the BLUE by one selected inversion of A Sigma A'.

    Where the variance is less than a thousandth of the noise, or the equations are so nearly dependent that the
    difference above would lose its digits, it is worked out from the estimate's own weights instead.

    Parameters
    ----------
    problem : Problem
        Any whose covariance is known entry by entry.
    gather : callable, optional
        As for `inverse_on_pattern`. By default the whole inverse is worked out where that takes less.
    equations : Equations, optional
        The last of `equations_of` its independent rows, where they are at hand.

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
    if problem.undetermined is not None:
        return np.where(problem.undetermined, np.nan, variances_by_selected_inversion(problem.determined, gather))
    with one_blas_thread():
        own = equations_of(problem, "independent")[-1] if equations is None else equations
        return _variances([(own, desired_sums(problem))], [least_share(problem)], gather)


def variances_of_several(given: Sequence[tuple[Problem, Equations]]) -> list[Float]:
    """The same of problems that share nothing, each with its independent equations, all at once.

    Work that is small for every problem is then done on all of them together.
    """
    with one_blas_thread():
        sums = _sums_of_several([problem for problem, _ in given])
        parts = [(own, T) for (_, own), T in zip(given, sums, strict=True)]
        found = _variances(parts, [least_share(problem) for problem, _ in given], None)
    return np.split(found, np.cumsum([T.shape[0] for T in sums])[:-1])


def _sums_of_several(problems: Sequence[Problem]) -> list[sparse.csr_array]:
    """`desired_sums`, once for those that differ in the sizes of their noise alone."""
    known: dict[Hashable, sparse.csr_array] = {}
    found = []
    for problem in problems:
        noise = np.sign(np.where(np.isinf(problem.variances), -1.0, problem.variances))
        key: Hashable = None
        if problem.is_tabular and problem.completion is None:
            schema = repr(problem.domain.schema)
            key = id(problem.places), problem.observed.names, problem.desired.names, schema, noise.tobytes()
        if key is None or key not in known:
            known[key] = desired_sums(problem)
        found.append(known[key])
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
    return T if problem.completion is None else sparse.csr_array(T @ problem.completion[0])


def _sums_of_table(problem: Problem, start: int, stop: int) -> sparse.csr_array:
    """Rows start to stop of T: spread over the observed cells, the numbers of a table's cells name the cell of each."""
    numbers = np.zeros((problem.desired.size, 1))
    numbers[start:stop, 0] = np.arange(1, stop - start + 1)
    member = problem.tabulate_transpose(numbers)[:, 0].astype(np.int64)
    cells = np.flatnonzero(member)
    return sparse.csr_array(
        (np.ones(cells.size), (member[cells] - 1, cells)), shape=(stop - start, problem.observed.size)
    )


def least_share(problem: Problem) -> float:
    """Share of a cell's noise below which a variance is 0 but for rounding: none where nothing is known exactly.

    Nor where weights are worked out in extended precision, which are 0 themselves.
    """
    noisy = problem.is_tabular and not problem.exact.any() and problem.zeros is None and problem.equalities is None
    return 0.0 if noisy or is_uneven(problem) else DETERMINED


def _variances(parts: list[tuple[Equations, sparse.csr_array]], least: list[float], gather: Gather | None) -> Float:
    """Of the desired cells of problems that share nothing, given the equations, T and `least_share` of each."""
    equations, T = side_by_side([own for own, _ in parts]), _blocks([own for _, own in parts])
    Sigma = equations.entries()
    noise = np.asarray((T @ Sigma).multiply(T).sum(axis=1)).ravel()
    if not equations.A.shape[0]:
        return noise
    U = _reached(equations, T)
    N = equations.normal_matrix()
    if len(parts) > 1:  # of one the whole inverse may take less
        gather = kernels.gather.fastest()
    factor, taken = factor_and_squares(N, U, gather)
    variances = noise - taken
    conditions = _conditions(factor, N, [own.A.shape[0] for own, _ in parts])
    start = 0
    for (own, sums), condition in zip(parts, conditions.tolist(), strict=True):
        cells = slice(start, start + sums.shape[0])
        solving = factor if len(parts) == 1 else None
        _mend_cancelled(own, sums, EPSILON * condition, noise[cells], variances[cells], solving)
        start = cells.stop
    shares = np.repeat(least, [sums.shape[0] for _, sums in parts])
    return np.where(variances > shares * noise, variances, 0.0)


def _reached(equations: Equations, T: sparse.csr_array) -> sparse.csc_array:
    """A Sigma T', each equation in units of its noise."""
    scaled = sparse.diags_array(1 / equations.deviations) @ equations.A
    U = sparse.csc_array(scaled @ equations.entries() @ T.T)
    U.eliminate_zeros()
    return U


def _mend_cancelled(
    equations: Equations, T: sparse.csr_array, rounding: float, noise: Float, variances: Float, solving: Solving | None
) -> None:
    """Work out anew, in place, variances that are differences of nearly equal numbers."""
    cancelled = np.flatnonzero(variances < max(CANCELLED, rounding / DIGITS) * noise)
    if not (cancelled.size and equations.A.shape[0]):
        return
    solver = FactorSolver(equations, factorise(equations.normal_matrix()) if solving is None else solving)
    variances[cancelled] = _variances_from_weights(equations, T[cancelled], _weights(equations, solver))
    known_well = cancelled[variances[cancelled] < max(WELL_KNOWN, rounding**2 / DIGITS) * noise[cancelled]]
    if known_well.size:
        refined = _refined_weights(equations, solver)
        variances[known_well] = _variances_from_weights(equations, T[known_well], refined)


def _blocks(matrices: list[sparse.csr_array]) -> sparse.csr_array:
    return matrices[0] if len(matrices) == 1 else sparse.csr_array(sparse.block_diag(matrices, format="csr"))


def _conditions(factor: Solving, N: sparse.csr_array, sizes: list[int]) -> Float:
    """About the condition number of every diagonal block of N.

    The largest eigenvalue of its inverse is from a few steps of the power method.
    """
    block = np.repeat(np.arange(len(sizes)), sizes)
    z = np.random.default_rng(0).standard_normal((N.shape[0], 1))

    def norms() -> Float:
        return np.sqrt(np.bincount(block, z[:, 0] ** 2, minlength=len(sizes)))

    for _ in range(POWER_STEPS):
        z = factor.solve(z / norms()[block, None])
    largest = np.zeros(len(sizes))
    np.maximum.at(largest, block, np.asarray(abs(N).sum(axis=0)).ravel())
    return norms() * largest


def _variances_from_weights(
    equations: Equations, T: sparse.csr_array, weights_of: Callable[[sparse.csc_array], Float]
) -> Float:
    """Variances w' Sigma w with the weights w = t - A' (A Sigma A')^-1 A Sigma t of every row t of T.

    They are least there: an error of the weights counts by its square.
    """
    variances = np.empty(T.shape[0])
    for start in range(0, T.shape[0], REFINED_BLOCK):
        weights = weights_of(sparse.csc_array(T[start : start + REFINED_BLOCK].T))
        variances[start : start + REFINED_BLOCK] = np.einsum("ij,ij->j", weights, equations.Sigma @ weights)
    return variances


def _weights(equations: Equations, solver: FactorSolver) -> Callable[[sparse.csc_array], Float]:
    reached, none = sparse.csr_array(equations.A @ equations.entries()), np.zeros(0)

    def weights(sums: sparse.csc_array) -> Float:
        found = equations.A_transposed @ solver.solve((reached @ sums).toarray(), none)[0]
        entries = sums.tocoo()
        found[entries.row, entries.col] -= entries.data
        return found

    return weights


def _refined_weights(equations: Equations, solver: FactorSolver) -> Callable[[sparse.csc_array], Float]:
    """As near as rounding permits; 0 where they are rounding, as of an area without leaves."""
    stage, nothing = Stage(equations, lambda _: solver), 0.0 if equations.uneven else NOTHING

    def weights(sums: sparse.csc_array) -> Float:
        found = stage.adjoint(sums.toarray())
        found[:, abs(found).sum(axis=0) < nothing * abs(sums).sum(axis=0)] = 0
        return found

    return weights
