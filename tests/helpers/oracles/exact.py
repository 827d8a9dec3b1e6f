"""The BLUE of a described problem to 600 bits, from the description alone: it builds its own M and Sigma.

The structure (what exact knowledge fixes, what the measurements determine) is worked out in rational numbers; the least
squares in ball arithmetic, whose radius says how many digits are right.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

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


class _Measured:
    """Counts by what is free in them: d = start + N z, of which the measurements see the columns J."""

    def __init__(self, description: Description, M: np.ndarray, y: np.ndarray) -> None:
        v = description.variances
        exact, self.noisy = np.flatnonzero(v == 0), np.flatnonzero((v > 0) & np.isfinite(v))
        self.start, self.N = _solutions(*_known(description, M, exact, y))
        B = rational(M[self.noisy]) * self.N
        self.echelon, rank = B.rref()
        self.J = _pivots(self.echelon, rank)
        base_y = [_q(y[i]) - _dot(M[i], self.start) for i in self.noisy]
        A = _columns(B, self.J)
        self.WA = _precision(description, self.noisy)(A)
        if self.J:
            self.cov = (_ball(A).transpose() * self.WA).inv()
            self.moved = self.cov * (_ball(_column(base_y)).transpose() * self.WA).transpose()


_LATEST: list[Any] = []  # what it was made of, and what was made: the same is often asked about other desired tables


def _measured(description: Description, y: np.ndarray) -> _Measured:
    M = description.marginal_matrix()[:, ~description.empty_cells()]
    others = (*(description.equalities or ()), *([] if description.covariance is None else [description.covariance]))
    told = [(own.shape, own.tobytes()) for own in (M, description.variances, y, *map(np.asarray, others))]
    if _LATEST[:1] != [told]:
        _LATEST[:] = [told, _Measured(description, M, y)]
    return _LATEST[1]


class _Reduced:
    """What was measured, and the desired cells along what is free."""

    def __init__(self, description: Description, y: np.ndarray) -> None:
        ctx.prec = BITS
        self.measured = _measured(description, np.asarray(y, dtype=float))
        self.D = description.desired_matrix()[:, ~description.empty_cells()]
        self.ND = rational(self.D) * self.measured.N
        self.DJ = _ball(_columns(self.ND, self.measured.J))


def solve(description: Description, y: np.ndarray) -> Reference:
    """Estimate and variances of the desired cells.

    Raises
    ------
    ContradictionError
        If exact values, equalities and zeros contradict one another.
    """
    r = _Reduced(description, y)
    own, J = r.measured, r.measured.J
    base_D = [_dot(row, own.start) for row in r.D]
    if J:
        moved_by = r.DJ * own.moved
        estimate = [_mid(moved_by[i, 0] + arb(base_D[i])) for i in range(r.D.shape[0])]
        DC = r.DJ * own.cov
        variances = [
            _mid(sum((DC[i, k] * r.DJ[i, k] for k in range(len(J))), arb(0))) if any(r.ND[i, j] for j in J) else 0.0
            for i in range(r.D.shape[0])
        ]
    else:
        estimate, variances = [float(Fraction(int(q.p), int(q.q))) for q in base_D], [0.0] * r.D.shape[0]
    determined = ~np.array(_moved_by_the_undetermined(own.echelon, r.ND, J), dtype=bool)
    known = [np.where(determined, values, np.nan) for values in (estimate, variances)]
    return Reference(*known, determined, float(abs(np.nan_to_num(y)).max(initial=0.0)))


def weigh(description: Description, y: np.ndarray, V: np.ndarray) -> Weighed:
    """The same of functionals V, (m, K), of desired cells that are all determined."""
    r = _Reduced(description, y)
    weights, covariance = np.zeros((description.variances.size, V.shape[1])), np.zeros((r.D.shape[0], V.shape[1]))
    own = r.measured
    if own.J:
        pulled = own.cov * (r.DJ.transpose() * _ball(rational(V)))
        weights[own.noisy] = _mids(own.WA * pulled)
        covariance = _mids(r.DJ * pulled)
    return Weighed(weights, covariance)


def _mids(matrix: arb_mat) -> np.ndarray:
    return np.array([_mid(value) for value in matrix.entries()]).reshape(matrix.nrows(), matrix.ncols())


def _q(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


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
    entries = C.entries()
    lines = ([*entries[i * columns : (i + 1) * columns], right[i]] for i in range(rows))
    augmented = fmpq_mat(rows, columns + 1, list(chain.from_iterable(lines)))
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


def _columns(matrix: fmpq_mat, columns: list[int]) -> fmpq_mat:
    entries, width = matrix.entries(), matrix.ncols()
    starts = range(0, len(entries), width) if width else ()
    return fmpq_mat(matrix.nrows(), len(columns), [entries[i + j] for i in starts for j in columns])


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
    return arb_mat(matrix)


def _precision(description: Description, noisy: np.ndarray) -> Callable[[fmpq_mat], arb_mat]:
    """Sigma^-1 times a matrix over the noisy cells."""
    if description.covariance is None:
        v = description.variances
        weights = [1 / arb(float(v[i])) for i in noisy]

        def scaled(A: fmpq_mat) -> arb_mat:
            entries, width = A.entries(), max(A.ncols(), 1)
            return arb_mat(A.nrows(), A.ncols(), [weights[i // width] * arb(own) for i, own in enumerate(entries)])

        return scaled
    Sigma = description.covariance[np.ix_(noisy, noisy)]
    inverse = arb_mat(*Sigma.shape, [arb(float(value)) for value in Sigma.ravel()]).inv()
    return lambda A: inverse * _ball(A)
