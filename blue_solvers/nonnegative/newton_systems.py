"""The linear systems of the Newton steps: dense, sparse, or by conjugate gradients.

The matrix is ``M_F diag(1 / weight_F) M_F' + diag(slope)`` for the free cells F. Rows that are
held exactly and repeat one another, if only at the free cells of the moment, make it singular. Their diagonal is raised
by a fraction of itself, the residual relative to the largest count: that bounds the step and vanishes with the residual
(Levenberg and Marquardt).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.linalg
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg, splu

from blue_solvers.nonnegative.dual_state import State
from blue_solvers.nonnegative.programme import Programme
from blue_solvers.nonnegative.tolerances import ACCEPTED, LARGEST_SHIFT, LEAST_SHIFT, RELAXED, TARGET
from constraint_builders.arrays import Float

DENSE_ROWS = 1500
SPARSE_ENTRIES_PER_ROW = 40  # above this the factors fill in
COUNTED_PAIRS = 1e8
CG_STEPS = 2000
CG_ACCURACY = 1e-3  # relative, of a step far from the solution; then it tightens, but not beyond need


class NewtonSystem(ABC):
    """Solves the Newton system of one programme at changing sets of free cells."""

    def __init__(self, programme: Programme) -> None:
        self.programme = programme
        movable = programme.upper > programme.lower
        self.guard = self._diagonal(movable)
        self.guard[self.guard == 0] = 1.0

    def _diagonal(self, free: np.ndarray) -> Float:
        return self.programme.M.power(2) @ np.where(free, 1 / self.programme.weight, 0.0)

    def added_diagonal(self, state: State) -> Float:
        """What is added to ``M_F diag(1 / weight_F) M_F'``.

        A row held exactly whose cells all sit on bounds would have nothing on its diagonal: it gets what it would have
        with all its cells free, and less every time that it is found so without being met.
        """
        diagonal = self._diagonal(state.free) + state.slope
        shift = min(LARGEST_SHIFT, max(LEAST_SHIFT, state.error / self.programme.scale))
        relative = np.where(state.slope > 0, LEAST_SHIFT, shift)
        added = state.slope + np.where(diagonal > 0, relative * diagonal, self.guard)
        self.guard[(diagonal == 0) & (abs(state.residual) > ACCEPTED * self.programme.scale)] *= RELAXED
        return added

    def free_rows(self, state: State) -> sparse.csc_array:
        """``M_F diag(weight_F)^(-1/2)``, (m, free cells)."""
        free = np.flatnonzero(state.free)
        scaling = sparse.diags_array(1 / np.sqrt(self.programme.weight[free]))
        return sparse.csc_array(sparse.csc_array(self.programme.M[:, free]) @ scaling)

    @abstractmethod
    def solve(self, state: State) -> Float:
        """The Newton direction, (m,): the matrix's inverse times the residual of `state`."""


class DenseSystem(NewtonSystem):
    """Cholesky factorisation of the dense matrix."""

    def solve(self, state: State) -> Float:
        """See `NewtonSystem.solve`."""
        rows = self.free_rows(state)
        matrix = (rows @ rows.T).toarray()
        matrix[np.diag_indices_from(matrix)] += self.added_diagonal(state)
        factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        return scipy.linalg.cho_solve(factor, state.residual, check_finite=False)


class SparseSystem(NewtonSystem):
    """Sparse factorisation, for rows that nest as those of a tree do."""

    def solve(self, state: State) -> Float:
        """See `NewtonSystem.solve`."""
        rows = self.free_rows(state)
        matrix = sparse.csc_array(rows @ rows.T + sparse.diags_array(self.added_diagonal(state)))
        factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options={"SymmetricMode": True})
        return factor.solve(state.residual)


class IterativeSystem(NewtonSystem):
    """Conjugate gradients; no matrix is formed.

    The preconditioner is the exact inverse for evenly spread free cells where the rows are plain margins, and the
    diagonal otherwise.
    """

    def solve(self, state: State) -> Float:
        """See `NewtonSystem.solve`."""
        rows = self.free_rows(state)
        columns, rows = sparse.csr_array(rows.T), sparse.csr_array(rows)
        added = self.added_diagonal(state)
        shape = (added.size, added.size)
        needed = 0.1 * TARGET * self.programme.scale / state.error
        accuracy = min(CG_ACCURACY, max(needed, state.error / self.programme.scale))
        direction, _ = cg(
            LinearOperator(shape, matvec=lambda v: rows @ (columns @ v) + added * v, dtype=float),
            state.residual,
            rtol=accuracy,
            maxiter=CG_STEPS,
            M=LinearOperator(shape, matvec=self._preconditioner(state, added), dtype=float),
        )
        return direction

    def _preconditioner(self, state: State, added: Float) -> Callable[[Float], Float]:
        margins, weight = self.programme.margins, self.programme.weight
        if margins is None:
            diagonal = self._diagonal(state.free) + added
            return lambda rows: rows / diagonal
        free = state.free if state.free.any() else np.ones_like(state.free)
        return margins.inverse(self.programme.variance, float(weight[free].mean() / free.mean())).apply


def newton_system(programme: Programme) -> NewtonSystem:
    """The system whose work is least for this programme, judged by its rows and how many pairs of them meet."""
    rows = programme.answer.size
    pairs = float((np.diff(programme.M.indptr).astype(float) ** 2).sum())
    meeting = (abs(programme.M) @ abs(programme.M).T).nnz if pairs <= COUNTED_PAIRS else np.inf
    if meeting <= SPARSE_ENTRIES_PER_ROW * rows and rows > SPARSE_ENTRIES_PER_ROW:
        return SparseSystem(programme)
    return DenseSystem(programme) if rows <= DENSE_ROWS else IterativeSystem(programme)
