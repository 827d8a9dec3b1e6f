"""A projection by one pass over equations in the order of their elimination, and one back.

With L L' = A Sigma A', D the diagonal of L, a_i the rows of D^-1 A and u_ij the entries of D^-1 L below its diagonal,

    forward    r_i = a_i x - sum over j of u_ij r_j
    back       r_j -= u_ij r_i,    x -= Sigma a_i' r_i

leave of x what solves the equations. The same with Sigma in the other place is the transpose.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse

from blue_solvers.contract import Info
from blue_solvers.normal_equations.noisy_equations import EPSILON, Equations, NormalSolver, Triangle
from blue_solvers.normal_equations.stage import DIRECT_SWEEPS, SETTLED, ExtendedStage, Stage
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import ONE_BY_ONE, compiled, has_numba
from constraint_builders.diagonals import scaled

STRIP = 16  # columns at once
LEAST_ENTRIES = 2**12  # of A: for fewer no loop is worth loading
MOST_FILLED = 2  # entries of L for each of A, up to which rows are swept over
FEW_COLUMNS, MANY_ENTRIES = 4, 2**14  # fewer of more take up to three times as long as by any stage


class TriangularStage(Stage):
    """A projection onto independent equations, Sigma being diagonal, by a factor of A Sigma A'.

    What does not hold to rounding after two of them is left to `Stage`, as are a few columns of many entries.

    Parameters
    ----------
    equations : Equations
    solver : NormalSolver
    triangle : tuple of csc_matrix, (m, m), and ndarray of int, (m,)
        L and the order of rows, these scaled to a unit diagonal; see `Factor`.
    """

    def __init__(self, equations: Equations, solver: NormalSolver, triangle: Triangle) -> None:
        super().__init__(equations, solver)
        L, order = triangle
        inverse = 1 / L.diagonal()
        below = scaled(sparse.csr_array(sparse.tril(L, -1)), -inverse)
        A = scaled(scaled(equations.A, 1 / equations.deviations)[order], inverse)
        rows = sparse.csr_array(sparse.hstack([A, below]))
        noise, ones = equations.entries().diagonal(), np.ones(order.size)
        factors = (np.concatenate([own, ones])[rows.indices] for own in (-noise, noise, -np.ones(noise.size)))
        against, along, back = (own * rows.data for own in factors)
        self._rows = rows.indptr.astype(np.intp), rows.indices.astype(np.intp)
        self._linear, self._transpose = (rows.data, against), (along, back)

    def project(self, Y: Float, affine: bool = False) -> tuple[Float, Info]:
        """As of any stage, (n, K)."""
        X, holds = self._projected(Y, *self._linear)
        if affine or not holds:
            return super().project(Y, affine)
        violation = float(abs(self.equations.A @ X).max(initial=0.0))
        return X, Info(self.solver.label, self._is_told(X, np.zeros((1, 1))), "", violation=violation)

    def adjoint(self, U: Float) -> Float:
        """The transpose of the linear part of `project`, (n, K)."""
        W, holds = self._projected(U, *self._transpose)
        return W if holds else super().adjoint(U)

    def _projected(self, X: Float, forward: Float, back: Float) -> tuple[Float, bool]:
        """What two projections leave of X, (n, K), by what multiplies entries, (k,) each; whether all rows hold."""
        if X.shape[1] < FEW_COLUMNS and self._rows[1].size > MANY_ENTRIES:
            return X, False
        off, state = np.zeros(1), np.empty((len(X) + self._rows[0].size - 1, X.shape[1]))
        state[: len(X)] = X
        sweep_over_rows(state, *self._rows, forward, back, off)
        return state[: len(X)], not off[0]


def stage_of(equations: Equations, solver: NormalSolver) -> Stage:
    """A projection by a solver of A Sigma A', in extended precision where a direct one would lose digits.

    For many entries the triangle of a solver that shows it takes .3 to .5 of the time.
    """
    if equations.uneven and not solver.rtol and equations.A.shape[0]:
        return ExtendedStage(equations, solver)
    if solver.triangle is None or equations.A.nnz < LEAST_ENTRIES or not has_numba():
        return Stage(equations, solver)
    triangle = solver.triangle()
    few = triangle[0].nnz <= MOST_FILLED * equations.A.nnz
    return TriangularStage(equations, solver, triangle) if few else Stage(equations, solver)


def sweep_over_rows_in_numpy(
    state: Float, pointers: Integers, indices: Integers, forward: Float, back: Float, off: Float
) -> None:
    """Sum up entries of every row in turn, and give each its part going back; `DIRECT_SWEEPS` times.

    Parameters
    ----------
    state : ndarray, (n + m, K)
        What entries are of, and then rows, changed in place.
    pointers, indices : ndarray of int, (m + 1,) and (k,)
        The entries of every row.
    forward, back : ndarray, (k,)
        What multiplies them.
    off : ndarray, (1,)
        The number of sums that are left, of n alone, and more than roundings of their terms, is added.
    """
    first = len(state) - pointers.size + 1
    rows = [(first + row, slice(*own)) for row, own in enumerate(pairwise(pointers.tolist()))]
    for _ in range(DIRECT_SWEEPS):
        for row, own in rows:
            state[row] = forward[own] @ state[indices[own]]
        for row, own in reversed(rows):
            state[indices[own]] += back[own, None] * state[row]
    alone = sparse.csr_array((forward, indices, pointers), shape=(pointers.size - 1, len(state)))[:, :first]
    terms = abs(alone) @ abs(state[:first])
    off += np.count_nonzero(~(SETTLED * EPSILON * terms >= abs(alone @ state[:first])))


@compiled(reference=sweep_over_rows_in_numpy, most=ONE_BY_ONE)
def sweep_over_rows(
    state: Float, pointers: Integers, indices: Integers, forward: Float, back: Float, off: Float
) -> None:
    """See `sweep_over_rows_in_numpy`: state is (n + m, K), entries (k,), off (1,)."""
    flat, width, rows, line, terms = state.ravel(), state.shape[1], pointers.size - 1, np.empty(STRIP), np.empty(STRIP)
    cells = len(state) - rows
    for start in range(0, width, STRIP):
        size, first = np.uint64(min(STRIP, width - start)), np.uint64(cells * width + start)
        for _ in range(DIRECT_SWEEPS):
            for row in range(rows):
                line[:] = 0.0
                for entry in range(pointers[row], pointers[row + 1]):
                    place, share = np.uint64(indices[entry] * width + start), forward[entry]
                    for i in range(size):
                        line[i] += share * flat[place + i]
                for i in range(size):
                    flat[first + np.uint64(row * width) + i] = line[i]
            for row in range(rows - 1, -1, -1):
                for i in range(size):
                    line[i] = flat[first + np.uint64(row * width) + i]
                for entry in range(pointers[row], pointers[row + 1]):
                    place, share = np.uint64(indices[entry] * width + start), back[entry]
                    for i in range(size):
                        flat[place + i] += share * line[i]
        for row in range(rows):
            line[:], terms[:] = 0.0, 0.0
            for entry in range(pointers[row], pointers[row + 1]):
                place, share = np.uint64(indices[entry] * width + start), forward[entry]
                for i in range(size if indices[entry] < cells else np.uint64(0)):
                    line[i] += share * flat[place + i]
                    terms[i] += abs(share * flat[place + i])
            for i in range(size):
                off[0] += not abs(line[i]) <= SETTLED * EPSILON * terms[i]
