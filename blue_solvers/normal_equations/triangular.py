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
MOST_FILLED = 8  # entries of L for each of A, up to which rows are swept over


class TriangularStage(Stage):
    """A projection onto independent equations, Sigma being diagonal, by a factor of A Sigma A'.

    What does not hold to rounding after two of them is left to `Stage`.

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
        self._A = equations.A.indptr.astype(np.intp), equations.A.indices.astype(np.intp), equations.A.data

    def project(self, Y: Float, affine: bool = False) -> tuple[Float, Info]:
        """As of any stage, (n, K)."""
        X = self._projected(Y, *self._linear)
        violation, beyond = self._off(X)
        if affine or beyond:
            return super().project(Y, affine)
        return X, Info(self.solver.label, self._is_told(X, np.zeros((1, 1))), "", violation=violation)

    def adjoint(self, U: Float) -> Float:
        """The transpose of the linear part of `project`, (n, K)."""
        W = self._projected(U, *self._transpose)
        return super().adjoint(U) if self._off(self.equations.Sigma @ W)[1] else W

    def _projected(self, X: Float, forward: Float, back: Float) -> Float:
        """What two projections leave of X, (n, K), by what multiplies entries, (k,) each."""
        state = np.empty((len(X) + self._rows[0].size - 1, X.shape[1]))
        state[: len(X)] = X
        for _ in range(DIRECT_SWEEPS):
            sweep_over_rows(state, *self._rows, forward, back)
        return state[: len(X)]

    def _off(self, X: Float) -> tuple[float, float]:
        """The most that a row of A X is off by, X being (n, K), and how many are by more than rounding."""
        off = np.zeros(2)
        look_at_rows(X, *self._A, SETTLED * EPSILON, off)
        return float(off[0]), float(off[1])


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


def sweep_over_rows_in_numpy(state: Float, pointers: Integers, indices: Integers, forward: Float, back: Float) -> None:
    """Sum up entries of every row in turn, and give each its part going back.

    Parameters
    ----------
    state : ndarray, (n + m, K)
        What entries are of, and then rows, changed in place.
    pointers, indices : ndarray of int, (m + 1,) and (k,)
        The entries of every row.
    forward, back : ndarray, (k,)
        What multiplies them.
    """
    first = len(state) - pointers.size + 1
    rows = [(first + row, slice(*own)) for row, own in enumerate(pairwise(pointers.tolist()))]
    for row, own in rows:
        state[row] = forward[own] @ state[indices[own]]
    for row, own in reversed(rows):
        state[indices[own]] += back[own, None] * state[row]


@compiled(reference=sweep_over_rows_in_numpy, most=ONE_BY_ONE)
def sweep_over_rows(state: Float, pointers: Integers, indices: Integers, forward: Float, back: Float) -> None:
    """See `sweep_over_rows_in_numpy`: state is (n + m, K), entries (k,)."""
    flat, width, rows, line = state.ravel(), state.shape[1], pointers.size - 1, np.empty(STRIP)
    for first in range(0, width, STRIP):
        size, start = np.uint64(min(STRIP, width - first)), np.uint64((len(state) - rows) * width + first)
        for row in range(rows):
            for i in range(size):
                line[i] = 0.0
            for entry in range(pointers[row], pointers[row + 1]):
                place, share = np.uint64(indices[entry] * width + first), forward[entry]
                for i in range(size):
                    line[i] += share * flat[place + i]
            for i in range(size):
                flat[start + np.uint64(row * width) + i] = line[i]
        for row in range(rows - 1, -1, -1):
            for i in range(size):
                line[i] = flat[start + np.uint64(row * width) + i]
            for entry in range(pointers[row], pointers[row + 1]):
                place, share = np.uint64(indices[entry] * width + first), back[entry]
                for i in range(size):
                    flat[place + i] += share * line[i]


def look_at_rows_in_numpy(
    X: Float, pointers: Integers, indices: Integers, entries: Float, rounding: float, off: Float
) -> None:
    """Find the largest sum of every row, and how many are more than a share of their terms.

    Parameters
    ----------
    X : ndarray, (n, K)
    pointers, indices, entries : ndarray, (m + 1,), (k,) and (k,)
        What rows sum.
    rounding : float
        The share.
    off : ndarray, (2,)
        Where both are written.
    """
    A = sparse.csr_array((entries, indices, pointers), shape=(pointers.size - 1, len(X)))
    R, terms = abs(A @ X), abs(A) @ abs(X)
    off[:] = np.fmax.reduce(R, axis=None, initial=0.0), np.count_nonzero(~(rounding * terms >= R))


@compiled(reference=look_at_rows_in_numpy)
def look_at_rows(X: Float, pointers: Integers, indices: Integers, entries: Float, rounding: float, off: Float) -> None:
    """See `look_at_rows_in_numpy`: X is (n, K), entries (k,), off (2,)."""
    flat, width, sums, terms = X.ravel(), X.shape[1], np.empty(STRIP), np.empty(STRIP)
    for first in range(0, width, STRIP):
        size = np.uint64(min(STRIP, width - first))
        for row in range(pointers.size - 1):
            for i in range(size):
                sums[i], terms[i] = 0.0, 0.0
            for entry in range(pointers[row], pointers[row + 1]):
                place, share = np.uint64(indices[entry] * width + first), entries[entry]
                for i in range(size):
                    sums[i] += share * flat[place + i]
                    terms[i] += abs(share * flat[place + i])
            for i in range(size):
                off[0] = max(off[0], abs(sums[i]))
                off[1] += not abs(sums[i]) <= rounding * terms[i]
