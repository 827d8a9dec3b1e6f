"""Whether non-negative cells are what a method asks for: the conditions of the optimum, left to scipy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog, lsq_linear
from scipy.optimize import nnls as scipy_nnls
from scipy.stats import laplace, norm

from tests.feature_support.instances import Instance

Matrix = np.ndarray
SLACK = 0.01  # of max_fit, in standard deviations
GAMMA = 0.99  # of reweighted_fit


@dataclass(frozen=True)
class LeastSquares:
    """Half the sum of squares of ``(A x - b) / deviations`` subject to ``known x = values`` and ``x >= 0``."""

    A: Matrix
    b: Matrix
    deviations: Matrix
    known: Matrix
    values: Matrix

    @classmethod
    def of(cls, instance: Instance) -> LeastSquares:
        rows = instance.noisy
        deviations = np.sqrt(instance.Sigma.diagonal()[rows])
        return cls(instance.M[rows], instance.y[rows], deviations, instance.known, instance.values)

    def holding(self, rows: Matrix, values: Matrix) -> LeastSquares:
        """The same with more known."""
        return LeastSquares(
            self.A, self.b, self.deviations, np.vstack([self.known, rows]), np.append(self.values, values)
        )

    def cells(self) -> Matrix:
        """Optimal non-negative cells to about 1e-5: what is known weighs heavily."""
        heavy = 1e5 / self.deviations.min(initial=1.0)
        A = np.vstack([self.A / self.deviations[:, None], heavy * self.known])
        return scipy_nnls(A, np.append(self.b / self.deviations, heavy * self.values), maxiter=100_000)[0]

    def require_optimal(self, x: Matrix, signed: bool = False, radius: Matrix | None = None) -> None:
        """Fail unless x is feasible and some multipliers balance the gradient, with the signs that bounds allow."""
        scale = max(1.0, abs(self.b).max(), abs(self.values).max(initial=0.0))
        np.testing.assert_allclose(self.known @ x, self.values, atol=1e-8 * scale)
        assert signed or x.min() >= 0
        gradient = self.A.T @ ((self.A @ x - self.b) / self.deviations**2)
        size = abs(self.A).T @ (abs(self.A @ x - self.b) / self.deviations**2) + 1
        columns, low = [self.known.T], [np.full(len(self.known), -np.inf)]
        if not signed:
            columns.append(-np.eye(x.size)[:, x <= 1e-9 * scale])
            low.append(np.zeros(columns[-1].shape[1]))
        if radius is not None:
            miss = self.A @ x - self.b
            assert (abs(miss) <= radius + 1e-8 * scale).all()
            at = np.flatnonzero(abs(miss) >= radius - 1e-7 * scale)
            columns.append((np.sign(miss[at])[:, None] * self.A[at]).T)
            low.append(np.zeros(at.size))
        matrix, bounds = np.hstack(columns), np.concatenate(low)
        balanced = gradient
        if matrix.shape[1]:
            balanced = gradient + matrix @ lsq_linear(matrix, -gradient, (bounds, np.inf), tol=1e-14).x
        assert (abs(balanced) <= 1e-5 * size).all(), balanced


def require_nnls(instance: Instance, cells: Matrix) -> None:
    LeastSquares.of(instance).require_optimal(cells)


def require_ols(instance: Instance, cells: Matrix) -> None:
    LeastSquares.of(instance).require_optimal(cells, signed=True)


def require_max(instance: Instance, cells: Matrix) -> None:
    """The least largest deviation, by a linear program; least squares with no deviation above it and the slack."""
    q = LeastSquares.of(instance)
    deviations = q.deviations[:, None]
    above = np.vstack([np.hstack([q.A, -deviations]), np.hstack([-q.A, -deviations])])
    known = np.hstack([q.known, np.zeros((len(q.known), 1))]) if len(q.known) else None
    cost = np.append(np.zeros(cells.size), 1.0)
    least = linprog(cost, above, np.append(q.b, -q.b), known, q.values if known is not None else None).fun
    q.require_optimal(cells, radius=(least + SLACK) * q.deviations)


def require_anchored(instance: Instance, cells: Matrix) -> None:
    """Weights lowered for small cells that were measured by themselves, the sum held at the BLUE's."""
    q = LeastSquares.of(instance)
    free = np.linalg.lstsq
    heavy = 1e5 / q.deviations.min()
    A = np.vstack([q.A / q.deviations[:, None], heavy * q.known])
    unbiased = free(A, np.append(q.b / q.deviations, heavy * q.values), rcond=None)[0]
    first = q.cells()
    total = max(0.0, unbiased.sum())
    excess = max(0.0, first.sum() - total)
    deviations = q.deviations.copy()
    single = [int(np.flatnonzero(row)[0]) if np.count_nonzero(row) == 1 else -1 for row in q.A]
    for cell in range(cells.size):
        rows = [i for i, own in enumerate(single) if own == cell]
        known = any(np.count_nonzero(row) == 1 and row[cell] for row in q.known)
        if rows and not known:
            best = min(rows, key=lambda i: deviations[i])
            spread = deviations[best]
            lenient = 1 + min(9.0, excess / spread) / (1 + (first[cell] / (2 * spread)) ** 2)
            deviations[best] *= np.sqrt(lenient)
    anchored = LeastSquares(q.A, q.b, deviations, q.known, q.values).holding(np.ones((1, cells.size)), [total])
    near = anchored.cells()
    np.testing.assert_allclose(q.A @ cells, q.A @ near, atol=1e-3 * max(1.0, abs(q.b).max()))
    np.testing.assert_allclose(cells.sum(), total, atol=1e-6 * max(1.0, total))


def require_reweighted(instance: Instance, cells: Matrix) -> None:
    """Algorithm 2, row by row: low answers weigh less, and their sum is a row of its own."""
    q, problem = LeastSquares.of(instance), instance.problem
    rows, answers, deviations = [], [], []
    for name in problem.observed.names:
        place = problem.observed.slice(name)
        own = [i for i in instance.noisy if place.start <= i < place.stop and instance.M[i].any()]
        own = [i for i in own if not _is_empty(instance, i)]
        if not own:
            continue
        values, spread = instance.y[own], float(np.sqrt(instance.Sigma[own[0], own[0]]))
        law = norm(scale=spread) if problem.noise.law.endswith("gaussian") else laplace(scale=spread / np.sqrt(2))
        reached = [a for j, a in enumerate(np.sort(values), 1) if 1 - law.cdf(a) ** j <= 1 - GAMMA]
        low = values < (reached[0] if reached else np.inf)
        wide = max(1.0, law.ppf(0.5 ** (1 / low.sum()))) if low.any() else 1.0
        for i, is_low in zip(own, low, strict=True):
            rows.append(instance.M[i])
            answers.append(instance.y[i])
            deviations.append(spread * (np.sqrt(2) * wide if is_low else 1.0))
        if low.any():
            rows.append(instance.M[own][low].sum(axis=0))
            answers.append(values[low].sum())
            deviations.append(spread * np.sqrt(2 * low.sum()))
    weighed = LeastSquares(np.array(rows), np.array(answers), np.array(deviations), q.known, q.values)
    weighed.require_optimal(cells)


def _is_empty(instance: Instance, row: int) -> bool:
    """Whether all cells of a row are structural zeros."""
    zero = [int(np.flatnonzero(k)[0]) for k, v in zip(instance.known, instance.values, strict=True)
            if np.count_nonzero(k) == 1 and v == 0]  # fmt: skip
    return set(np.flatnonzero(instance.M[row])) <= set(zero)


def require_sequential(
    instance: Instance, cells: Matrix, order: Sequence | None = None, close: float | None = None
) -> None:
    """Every table's answers are those of its own stage, solved over all cells with the earlier answers held."""
    held = LeastSquares(np.zeros((0, cells.size)), np.zeros(0), np.ones(0), instance.known, instance.values)
    layout = instance.problem.observed
    for name in order or layout.names:
        place = range(layout.slice(name).start, layout.slice(name).stop)
        rows = [i for i in place if i in set(instance.noisy)]
        if not rows:
            continue
        deviations = np.sqrt(instance.Sigma.diagonal()[rows])
        stage = LeastSquares(instance.M[rows], instance.y[rows], deviations, held.known, held.values)
        answers = instance.M[rows] @ cells
        best = instance.M[rows] @ stage.cells()
        np.testing.assert_allclose(answers, best, atol=close or 1e-3 * max(1.0, abs(instance.y[rows]).max()))
        held = held.holding(instance.M[rows], answers)
    np.testing.assert_allclose(instance.known @ cells, instance.values, atol=1e-7 * max(1.0, cells.max()))
