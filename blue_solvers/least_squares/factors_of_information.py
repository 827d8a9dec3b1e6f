"""Factors of the information B'B about combinations of leaves, B having columns of length 1 and full rank.

Sparse ones are those that equations A x = b have too (A = B', Sigma = 1), with entries of the inverse on the pattern;
where these would lose digits, and the size allows, orthogonal transformations with pivoting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from blue_solvers.normal_equations.factorisation import Factor, factorise, norm_of_inverse
from blue_solvers.normal_equations.inverses import factor_and_squares
from blue_solvers.selected_inverse import SelectedInverse
from blue_solvers.verification.weighed_noise import reciprocal
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory

CLEAR = 1e4  # between singular values that count and others
WELL, FAIRLY, HARDLY = 1e-6, 1e-10, 1e-12  # least eigenvalues of an information matrix of unit diagonal
SOON, OPERATIONS = 1e8, 2e10  # of orthogonal transformations: what takes a twentieth of a second, and some seconds
NOTHING = 1e-9  # of the largest leaf in a free direction: less is rounding
ROUNDING = 16 * float(np.finfo(float).eps)
BLOCK, FILL, SHARPENED = 64, 10.0, 5e9  # solutions at once; entries of a factor for one of its matrix; operations
ALIKE = 1e-9  # relative: squares that lose the most and differ by less have kept their digits
SOME = 1_024  # squares that may have lost digits, up to which all of them are made anew
MANY, FEW_STEPS = 100_000, 2  # combinations from which an eigenvalue is told to its size alone


def keeps_digits(least: float, shape: tuple[int, ...]) -> bool:
    """Whether a factor of squares serves, by the least singular value of a matrix, (N, q), or nothing else can.

    Squares cost digits: what they leave of standard errors is far better than the worst case for networks, but not for
    columns that are nearly the same. So orthogonal transformations are made where these take little time.
    """
    if is_cheap_orthogonal(shape, SOON):
        return least**2 >= WELL
    return least**2 >= (FAIRLY if is_cheap_orthogonal(shape) else HARDLY)


def is_cheap_orthogonal(shape: tuple[int, ...], most: float | None = None) -> bool:
    """Whether orthogonal transformations of a matrix, (N, q), take so many operations at most."""
    rows, columns = shape
    return float(rows) * columns * min(rows, columns) <= (OPERATIONS if most is None else most)


class InformationFactor(ABC):
    """A factor of B'B, (r, r).

    Attributes
    ----------
    label : str
        The library that does the work.
    least : float
        About the least singular value of B.
    """

    label: str
    least: float

    @abstractmethod
    def solve(self, C: Float) -> Float:
        """(B'B)^-1 C, (r, K)."""

    @abstractmethod
    def squares(self, rows: sparse.csr_array) -> Float:
        """Of every row a' the square a' (B'B)^-1 a, (m,), of (m, r)."""


class SparseFactor(InformationFactor):
    """By a sparse Cholesky factor, and its selected inverse.

    Squares are 2 a'g - |B g|^2 for nearly g = (B'B)^-1 a too, off by the square of what g is. Where few are asked for,
    those that may have lost digits are made so; where these are many, the worst are compared, and unless they agree all
    are made so.
    """

    def __init__(self, B: sparse.csr_array, matrix: sparse.csr_array, factor: Factor) -> None:
        self._B, self._matrix, self._factor, self.label = B, matrix, factor, factor.label
        size = matrix.shape[0]
        steps = {"steps": FEW_STEPS} if size > MANY else {}
        self.least = float(1 / np.sqrt(norm_of_inverse(factor.solve, size, **steps))) if size else np.inf

    @classmethod
    def of(cls, B: sparse.csr_array) -> SparseFactor:
        """Of B, (N, r).

        Raises
        ------
        UnsupportedProblemError
            If B'B is not positive definite.
        MemoryError
            If the factor would not fit.
        """
        matrix = sparse.csr_array(B.T @ B)
        instead = "leave rows that weigh very many leaves out, or divide the problem"
        return cls(B, matrix, factorise(matrix, instead) if matrix.shape[0] else Factor(np.array, "none", _no_triangle))

    def solve(self, C: Float) -> Float:
        """(B'B)^-1 C, (r, K)."""
        return self._factor.solve(C) if C.size else np.zeros(C.shape)

    def squares(self, rows: sparse.csr_array) -> Float:
        """By entries of the inverse where those of a row, (m, r), are on its pattern."""
        if not rows.nnz:
            return np.zeros(rows.shape[0])
        few = float(rows.shape[0]) * (FILL * self._matrix.nnz + self._B.nnz) <= SHARPENED
        doubted, single = self.least**2 < WELL and few, bool((np.diff(rows.indptr) == 1).all())
        if not (single or self._holds(rows)):
            return (
                self._sharp_squares(rows) if doubted else factor_and_squares(self._matrix, sparse.csc_array(rows.T))[1]
            )
        if single:
            found = self._inverse.diagonal[rows.indices] * rows.data**2
        else:
            found = np.asarray((rows @ self._inverse.on(self._matrix)).multiply(rows).sum(axis=1)).ravel()
        return self._sharpened(rows, found) if doubted else found

    def _sharpened(self, rows: sparse.csr_array, found: Float) -> Float:
        """Squares of rows, (m, r), from those found, (m,): those that may have lost digits, where these are some."""
        long = reciprocal(rows.power(2).sum(axis=1)) * found
        lost = (abs(rows) @ np.sqrt(self._inverse.diagonal)) ** 2 * reciprocal(np.maximum(found, 0.0))
        most = [np.argsort(-own)[: BLOCK // 2] for own in (long, lost)]
        doubtful = np.flatnonzero(np.maximum(long, lost) * ROUNDING > ALIKE)
        if doubtful.size > SOME:
            return found if self._agree(rows, found, np.unique(most)) else self._sharp_squares(rows)
        doubtful = np.union1d(doubtful, most)
        found[doubtful] = self._sharp_squares(rows[doubtful])
        return found

    def _agree(self, rows: sparse.csr_array, found: Float, some: Index) -> bool:
        """Whether squares of some rows, (k,) of (m, r), are those found, (m,)."""
        return bool(np.allclose(self._sharp_squares(rows[some]), found[some], rtol=ALIKE, atol=0))

    def _sharp_squares(self, rows: sparse.csr_array) -> Float:
        """The same, of (m, r), by solutions for all of them."""
        found = np.empty(rows.shape[0])
        for start in range(0, rows.shape[0], BLOCK):
            A = rows[start : start + BLOCK].T.toarray()
            G = self._factor.solve(A)
            moved = self._B @ G
            found[start : start + BLOCK] = 2 * np.einsum("ij,ij->j", A, G) - np.einsum("ij,ij->j", moved, moved)
        return found

    def _holds(self, rows: sparse.csr_array) -> bool:
        """Whether all pairs of leaves in a row, (m, r), are entries of the matrix."""
        ones = sparse.csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
        m = self._matrix
        held = sparse.csr_array((np.ones(m.nnz), m.indices, m.indptr), shape=m.shape)
        pairs = (ones @ held).multiply(ones).sum(axis=1)
        return bool((np.asarray(pairs).ravel() == np.diff(rows.indptr).astype(float) ** 2).all())

    @cached_property
    def _inverse(self) -> SelectedInverse:
        """Entries of the inverse, (r, r), on the pattern of the factor."""
        return SelectedInverse(*self._factor.triangle())


def _no_triangle() -> tuple[sparse.csc_matrix, Index]:
    """Of a matrix without rows."""
    return sparse.csc_matrix((0, 0)), np.zeros(0, dtype=np.intp)


class OrthogonalFactor(InformationFactor):
    """By a triangle R with R'R = B'B, which never squares what B weighs.

    Parameters
    ----------
    root : ndarray, (r, r)
    least : float
    """

    label = "LAPACK, orthogonal transformations"

    def __init__(self, root: Float, least: float) -> None:
        self._root, self.least = root, least

    @classmethod
    def of_columns(cls, B: sparse.csr_array) -> tuple[Index, sparse.csr_array, InformationFactor, float, float]:
        """Independent columns of B, (N, q), in order; what is free, (q, d); their factor; and the two singular values.

        These are the least that counts, and the largest that does not.
        """
        require_memory(3 * 8.0 * B.shape[0] * B.shape[1], f"a dense matrix of shape {B.shape}", "give less at a time")
        R, order = qr(B.toarray(), mode="r", pivoting=True, check_finite=False)
        R = R[: min(B.shape)]
        values = np.linalg.svd(R, compute_uv=False)
        rank = int(np.count_nonzero(values > ROUNDING * max(B.shape) * values[0]))
        least, dropped = float(values[rank - 1]), float(values[rank]) if rank < values.size else 0.0
        root = R[:rank, :rank]
        moved = np.zeros((B.shape[1], B.shape[1] - rank))
        basic = solve_triangular(root, R[:rank, rank:])
        moved[order[:rank]] = np.where(
            abs(basic) > NOTHING * np.maximum(abs(basic).max(axis=0, initial=0.0), 1), -basic, 0
        )
        moved[order[rank:]] = np.eye(B.shape[1] - rank)
        kept = np.sort(order[:rank])
        turn = np.argsort(order[:rank])
        if not np.array_equal(turn, np.arange(rank)):
            root = np.linalg.qr(root[:, turn], mode="r")
        return kept, sparse.csr_array(moved), cls(root, least), least, dropped

    def solve(self, C: Float) -> Float:
        """(B'B)^-1 C, (r, K)."""
        return solve_triangular(self._root, solve_triangular(self._root, C, trans="T"))

    def squares(self, rows: sparse.csr_array) -> Float:
        """Of every row, (m, r)."""
        if not rows.shape[0]:
            return np.zeros(0)
        require_memory(8.0 * 2 * rows.shape[0] * rows.shape[1], f"{rows.shape[0]:,} variances", "ask for fewer")
        return np.square(solve_triangular(self._root, rows.T.toarray(), trans="T")).sum(axis=0)
