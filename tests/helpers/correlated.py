"""The estimate under any covariance by dense least squares over the detailed cells; shares no numerics with solvers."""

from __future__ import annotations

import numpy as np

from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.marginals import marginal_matrix
from tests.helpers.spines import measurement_matrices


def dense_operator(problem: Problem) -> tuple[Float, Float, Float]:
    """P, (m, n), and its offset and variances, (m,): exact cells, zeros and equalities hold as constraints."""
    M, wanted = _measurement_matrices(problem)
    constraints, data, values = _constraints(problem, M)
    pseudo = np.linalg.pinv(constraints, rcond=1e-10)
    free = _null_space(constraints)
    noisy = ~problem.exact & ~problem.unmeasured
    seen = free @ _null_space(_null_space(M[noisy] @ free).T)  # of the unweighted rows: precisions differ by decades
    Sigma = problem.noise_covariance @ np.eye(problem.observed.size)
    white = np.linalg.inv(np.linalg.cholesky(Sigma[np.ix_(noisy, noisy)]))
    fit = seen @ np.linalg.pinv(white @ M[noisy] @ seen, rcond=1e-14) @ white
    select = np.eye(problem.observed.size)[noisy]
    fixed = pseudo @ data
    P = wanted @ (fixed + fit @ (select - M[noisy] @ fixed))
    start = pseudo @ values
    offset = wanted @ (start - fit @ M[noisy] @ start)
    return P, offset, np.einsum("ij,jk,ik->i", P, Sigma, P)


def _null_space(matrix: Float) -> Float:
    """Orthonormal columns that the rows, whole numbers or combinations of unit columns, do not see."""
    _, singular, right = np.linalg.svd(matrix)
    return right[int((singular > 1e-9).sum()) :].T


def _measurement_matrices(problem: Problem) -> tuple[Float, Float]:
    if problem.spine is not None:
        return measurement_matrices(problem)
    assert problem.schema is not None
    return problem.marginal_matrix().toarray(), marginal_matrix(problem.schema, problem.desired_tables).toarray()


def _constraints(problem: Problem, M: Float) -> tuple[Float, Float, Float]:
    """C c = F y + f for the detailed cells c."""
    n = problem.observed.size
    rows, data, values = [M[problem.exact]], [np.eye(n)[problem.exact]], [np.zeros(problem.exact.sum())]
    if problem.zeros is not None:
        leaves = np.zeros(1, np.intp) if problem.spine is None else np.flatnonzero(problem.spine.child_counts == 0)
        empty = np.eye(M.shape[1])[problem.zeros.detailed(leaves)]
        rows, data, values = [*rows, empty], [*data, np.zeros((len(empty), n))], [*values, np.zeros(len(empty))]
    if problem.equalities is not None:
        E, b = problem.equalities
        rows, data, values = [*rows, E.toarray() @ M], [*data, np.zeros((len(b), n))], [*values, b]
    return np.vstack(rows), np.vstack(data), np.concatenate(values)
