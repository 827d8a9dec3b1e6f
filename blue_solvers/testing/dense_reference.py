"""An independent dense estimate, to compare with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from blue_solvers.testing.possible_truths import PossibleTruths
from constraint_builders import Problem
from constraint_builders.arrays import Float


@dataclass(frozen=True)
class DenseReference:
    """The BLUE by a basis of the possible truths and least squares: no constraint matrix of tables, no elimination.

    Attributes
    ----------
    operator : ndarray, (m, n)
    offset, variances : ndarray, (m,)
        The estimate is ``operator @ y + offset``.
    """

    operator: Float
    offset: Float
    variances: Float

    @classmethod
    def of(cls, problem: Problem) -> DenseReference:
        """Estimate coordinates of consistent vectors from measured cells, those that are exact first."""
        truths = PossibleTruths.of(problem)
        observed, desired = truths.observed @ truths.directions, truths.desired @ truths.directions
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
        offset = truths.desired @ truths.start - operator @ (truths.observed @ truths.start)
        return cls(operator, offset, np.einsum("ij,ij->i", half, half) if half.size else np.zeros(D.shape[0]))


def _row_space(matrix: Float) -> Float:
    """Orthonormal basis of the rows, (k, q), as columns, (q, r)."""
    return linalg.orth(matrix.T) if matrix.size else np.zeros((matrix.shape[1], 0))


def _whitening(problem: Problem, cells: np.ndarray) -> Float:
    """W, (k, k), with W Sigma W' = I for some cells, flagged in (n,)."""
    if problem.covariance is None:
        return np.diag(1 / np.sqrt(problem.variances[cells]))
    Sigma = problem.noise_covariance @ np.eye(problem.observed.size)
    return linalg.inv(linalg.cholesky(Sigma[np.ix_(cells, cells)], lower=True))


def _least_squares(design: Float) -> Float:
    """Pseudoinverse of (k, r), of full column rank, rows apart by decades: sorted, columns pivoted, refined once."""
    order = np.argsort(-abs(design).max(axis=1), kind="stable")
    Q, R, pivots = linalg.qr(design[order], mode="economic", pivoting=True)
    inverse = np.empty((design.shape[1], design.shape[0]))
    inverse[np.ix_(pivots, order)] = linalg.solve_triangular(R, Q.T)
    return inverse + inverse @ (np.eye(len(design)) - design @ inverse)
