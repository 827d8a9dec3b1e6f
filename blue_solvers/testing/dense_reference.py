"""An independent dense estimate, to compare with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.relations.marginals import marginal_matrix, placed_marginal_matrix


@dataclass(frozen=True)
class DenseReference:
    """The BLUE by a basis of the consistent vectors and least squares: no constraint matrix, no elimination."""

    operator: Float
    offset: Float
    variances: Float

    @classmethod
    def of(cls, problem: Problem) -> DenseReference:
        """Estimate coordinates of consistent vectors from measured cells, those that are exact first."""
        observed, desired, start = _consistent_basis(problem)
        measured = ~problem.unmeasured
        rows = observed[measured]
        coordinates = _row_space(rows)
        B, D = rows @ coordinates, desired @ coordinates
        exact = problem.exact[measured]
        fixed = linalg.pinv(B[exact]) if exact.any() else np.zeros((B.shape[1], 0))
        free = linalg.null_space(B[exact]) if exact.any() else np.eye(B.shape[1])
        estimate = np.zeros((B.shape[1], rows.shape[0]))  # coordinates from measured cells
        estimate[:, exact] = fixed
        half = np.zeros((B.shape[1], 0))
        if free.size and not exact.all():
            whiten = _whitening(problem, measured & ~problem.exact)
            design = whiten @ B[~exact] @ free
            weights = free @ _least_squares(design)
            estimate[:, ~exact] = weights @ whiten
            estimate[:, exact] -= weights @ whiten @ B[~exact] @ fixed
            half = D @ weights
        operator = np.zeros((D.shape[0], measured.size))
        operator[:, measured] = D @ estimate
        offset = np.zeros(D.shape[0]) if start is None else start - operator @ start
        return cls(operator, offset, np.einsum("ij,ij->i", half, half) if half.size else np.zeros(D.shape[0]))


def _consistent_basis(problem: Problem) -> tuple[Float, Float, Float | None]:
    """Consistent observed and desired vectors as ranges of two matrices with common coordinates, and one solution."""
    if problem.is_tabular:
        schema, places = problem.domain.schema, problem.places
        if places is None:
            desired = marginal_matrix(schema, problem.desired_tables)
        else:
            desired = placed_marginal_matrix(schema, places, problem.desired_levels, problem.desired_tables)
        observed, possible = problem.marginal_matrix(), np.arange(problem.domain.size)
        if problem.zeros is not None:
            possible = np.flatnonzero(~problem.zeros.detailed(problem.domain.leaves))
        return observed[:, possible].toarray(), desired[:, possible].toarray(), None
    A, b = problem.equations("all")
    basis = linalg.null_space(A.toarray())
    return basis, basis, linalg.lstsq(A.toarray(), b)[0]


def _row_space(matrix: Float) -> Float:
    """Orthonormal basis of the rows, as columns."""
    return linalg.orth(matrix.T)


def _whitening(problem: Problem, cells: np.ndarray) -> Float:
    """W with W Sigma W' = I for some cells."""
    if problem.covariance is None:
        return np.diag(1 / np.sqrt(problem.variances[cells]))
    Sigma = problem.noise_covariance @ np.eye(problem.observed.size)
    return linalg.inv(linalg.cholesky(Sigma[np.ix_(cells, cells)], lower=True))


def _least_squares(design: Float) -> Float:
    """Pseudoinverse for full column rank and rows that differ by decades: sorted, columns pivoted, refined once."""
    order = np.argsort(-abs(design).max(axis=1), kind="stable")
    Q, R, pivots = linalg.qr(design[order], mode="economic", pivoting=True)
    inverse = np.empty((design.shape[1], design.shape[0]))
    inverse[np.ix_(pivots, order)] = linalg.solve_triangular(R, Q.T)
    return inverse + inverse @ (np.eye(len(design)) - design @ inverse)
