"""The BLUE of a described problem to 600 bits, from the description alone: it builds its own M and Sigma.

The structure (what exact knowledge fixes, what the measurements determine) is worked out in rational numbers; the least
squares in ball arithmetic, whose radius says how many digits are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from tests.helpers.oracles.description import Description

BITS = 600
ROUNDING_OF_SUMS = 1e-12  # of the largest figure


class ContradictionError(ValueError):
    """No counts satisfy what is known exactly."""


@dataclass(frozen=True)
class Reference:
    """What the answer is.

    Attributes
    ----------
    estimate : ndarray, (m,)
        Of the desired cells, rounded once; NaN where nothing determines a cell.
    variances : ndarray, (m,)
        Exactly 0 where exact knowledge determines a cell; NaN where nothing does.
    determined : ndarray of bool, (m,)
    largest : float
        Size of a measurement, which rounding is relative to.
    """

    estimate: np.ndarray
    variances: np.ndarray
    determined: np.ndarray
    largest: float = 0.0

    @property
    def std_errors(self) -> np.ndarray:
        """Square roots of the variances."""
        return np.sqrt(self.variances)

    def error(self, figures: np.ndarray) -> float:
        """The largest error of a figure in its own standard errors, less the rounding of the estimate.

        Infinite where a figure that is known exactly is off by more than rounding of sums.
        """
        off = np.maximum(abs(figures - self.estimate) - np.spacing(abs(self.estimate)), 0)
        known = self.variances == 0
        if off[known].max(initial=0.0) > ROUNDING_OF_SUMS * abs(self.estimate).max(initial=self.largest):
            return np.inf
        return float((off[~known] / self.std_errors[~known]).max(initial=0.0))


@dataclass(frozen=True)
class Weighed:
    """What the estimate makes of functionals of the desired cells, each rounded once.

    Attributes
    ----------
    weights : ndarray, (n, K)
        The measurements' share in them, of noisy cells; 0 for others.
    covariance : ndarray, (m, K)
        Of every desired cell with each of them.
    """

    weights: np.ndarray
    covariance: np.ndarray


class _Reduced:
    """Counts by what is free in them: d = start + N z, of which the measurements see the columns J."""

    def __init__(self, description: Description, y: np.ndarray) -> None:
        ctx.prec = BITS
        M, D = description.marginal_matrix(), description.desired_matrix()
        possible = ~description.empty_cells()
        M, self.D = M[:, possible], D[:, possible]
        v = description.variances
        exact, self.noisy = np.flatnonzero(v == 0), np.flatnonzero((v > 0) & np.isfinite(v))
        self.start, N = _solutions(*_known(description, M, exact, y))
        NM, self.ND = _times(M, N), _times(self.D, N)
        B = _rows(NM, self.noisy)
        self.echelon, rank = B.rref()
        self.J = _pivots(self.echelon, rank)
        self.base_y = [_q(y[i]) - _dot(M[i], self.start) for i in self.noisy]
        self.A = _columns(B, self.J)
        self.WA = _precision(description, self.noisy)(self.A)
        self.DJ = _ball(_columns(self.ND, self.J))
        if self.J:
            self.cov = (_ball(self.A).transpose() * self.WA).inv()


def solve(description: Description, y: np.ndarray) -> Reference:
    """Estimate and variances of the desired cells.

    Raises
    ------
    ContradictionError
        If exact values, equalities and zeros contradict one another.
    """
    r = _Reduced(description, y)
    base_D = [_dot(row, r.start) for row in r.D]
    if r.J:
        moved_by = r.DJ * (r.cov * (_ball(_column(r.base_y)).transpose() * r.WA).transpose())
        estimate = [_mid(moved_by[i, 0] + _to_arb(base_D[i])) for i in range(r.D.shape[0])]
        DC = r.DJ * r.cov
        variances = [
            _mid(sum((DC[i, k] * r.DJ[i, k] for k in range(len(r.J))), arb(0))) if any(r.ND[i, j] for j in r.J) else 0.0
            for i in range(r.D.shape[0])
        ]
    else:
        estimate, variances = [float(Fraction(int(q.p), int(q.q))) for q in base_D], [0.0] * r.D.shape[0]
    determined = ~np.array(_moved_by_the_undetermined(r.echelon, r.ND, r.J), dtype=bool)
    known = [np.where(determined, own, np.nan) for own in (estimate, variances)]
    return Reference(*known, determined, float(abs(np.nan_to_num(y)).max(initial=0.0)))


def weigh(description: Description, y: np.ndarray, V: np.ndarray) -> Weighed:
    """The same of functionals V, (m, K), of desired cells that are all determined."""
    r = _Reduced(description, y)
    weights, covariance = np.zeros((description.variances.size, V.shape[1])), np.zeros((r.D.shape[0], V.shape[1]))
    if r.J:
        pulled = r.cov * (r.DJ.transpose() * _ball(rational(V)))
        weights[r.noisy] = _mids(r.WA * pulled)
        covariance = _mids(r.DJ * pulled)
    return Weighed(weights, covariance)


def _mids(matrix: arb_mat) -> np.ndarray:
    return np.array([_mid(value) for value in matrix.entries()]).reshape(matrix.nrows(), matrix.ncols())


def _q(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def _to_arb(value: fmpq) -> arb:
    return arb(value)


def _mid(value: arb) -> float:
    return float(value.mid())


def rational(matrix: np.ndarray) -> fmpq_mat:
    values = np.asarray(matrix, dtype=float).ravel().tolist()
    distinct = {value: _q(value) for value in set(values)}  # of 0 and 1 nearly always
    return fmpq_mat(*matrix.shape, [distinct[value] for value in values])


def _known(description: Description, M: np.ndarray, exact: np.ndarray, y: np.ndarray) -> tuple[fmpq_mat, list[fmpq]]:
    """Equations C d = right of everything known exactly."""
    C = rational(M[exact])
    right = [_q(value) for value in y[exact]]
    if description.equalities is not None:
        E, b = description.equalities
        EM = rational(E) * rational(M)
        C = fmpq_mat(C.nrows() + EM.nrows(), M.shape[1], [*C.entries(), *EM.entries()])
        right += [_q(value) for value in b]
    return C, right


def _solutions(C: fmpq_mat, right: list[fmpq]) -> tuple[list[fmpq], fmpq_mat]:
    """A particular solution and a basis of the differences, as columns."""
    rows, columns = C.nrows(), C.ncols()
    if not rows:
        return [fmpq(0)] * columns, _identity(columns)
    augmented = fmpq_mat(rows, columns + 1)
    for i in range(rows):
        for j in range(columns):
            augmented[i, j] = C[i, j]
        augmented[i, columns] = right[i]
    reduced, rank = augmented.rref()
    pivots = _pivots(reduced, rank)
    if columns in pivots:
        raise ContradictionError("no counts satisfy what is known exactly")
    start = [fmpq(0)] * columns
    for i, j in enumerate(pivots):
        start[j] = reduced[i, columns]
    free = sorted(set(range(columns)) - set(pivots))
    N = fmpq_mat(columns, len(free))
    for k, j in enumerate(free):
        N[j, k] = fmpq(1)
        for i, pivot in enumerate(pivots):
            N[pivot, k] = -reduced[i, j]
    return start, N


def _identity(size: int) -> fmpq_mat:
    identity = fmpq_mat(size, size)
    for i in range(size):
        identity[i, i] = fmpq(1)
    return identity


def _times(matrix: np.ndarray, N: fmpq_mat) -> fmpq_mat:
    return rational(matrix) * N


def _rows(matrix: fmpq_mat, rows: np.ndarray) -> fmpq_mat:
    return fmpq_mat(len(rows), matrix.ncols(), [matrix[int(i), j] for i in rows for j in range(matrix.ncols())])


def _columns(matrix: fmpq_mat, columns: list[int]) -> fmpq_mat:
    return fmpq_mat(matrix.nrows(), len(columns), [matrix[i, j] for i in range(matrix.nrows()) for j in columns])


def _column(values: list[fmpq]) -> fmpq_mat:
    return fmpq_mat(len(values), 1, values)


def _dot(row: np.ndarray, values: list[fmpq]) -> fmpq:
    return sum((_q(a) * value for a, value in zip(row, values, strict=True) if a), fmpq(0))


def _pivots(echelon: fmpq_mat, rank: int) -> list[int]:
    """The column of the first entry of each row that is not 0: independent columns of what was reduced."""
    pivots, j = [], 0
    for i in range(rank):
        while not echelon[i, j]:
            j += 1
        pivots.append(j)
    return pivots


def _moved_by_the_undetermined(echelon: fmpq_mat, ND: fmpq_mat, J: list[int]) -> list[bool]:
    """Which desired cells change along directions that no measurement sees."""
    pivots = set(J)
    free = [j for j in range(ND.ncols()) if j not in pivots]
    if not free:
        return [False] * ND.nrows()
    # the null vector of free column j has 1 there and -echelon[., j] at the pivots
    seen = fmpq_mat(len(J), len(free), [echelon[k, j] for k in range(len(J)) for j in free])
    moved = (_columns(ND, free) - _columns(ND, J) * seen).entries()
    return [any(moved[i : i + len(free)]) for i in range(0, len(moved), len(free))]


def _ball(matrix: fmpq_mat) -> arb_mat:
    return arb_mat(matrix.nrows(), matrix.ncols(), [arb(value) for value in matrix.entries()])


def _precision(description: Description, noisy: np.ndarray) -> Callable[[fmpq_mat], arb_mat]:
    """Sigma^-1 times a matrix over the noisy cells."""
    if description.covariance is None:
        v = description.variances
        weights = [1 / arb(float(v[i])) for i in noisy]

        def scaled(A: fmpq_mat) -> arb_mat:
            rows, columns = A.nrows(), A.ncols()
            return arb_mat(rows, columns, [weights[i] * arb(A[i, j]) for i in range(rows) for j in range(columns)])

        return scaled
    Sigma = description.covariance[np.ix_(noisy, noisy)]
    inverse = arb_mat(*Sigma.shape, [arb(float(value)) for value in Sigma.ravel()]).inv()
    return lambda A: inverse * _ball(A)
