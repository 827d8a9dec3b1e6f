"""The BLUE of a described problem in ball arithmetic, from the description alone: it builds its own M and Sigma.

What is determined and what is known exactly is worked out modulo a large prime, over as few unknowns as tables tell
apart; the least squares, with what is known as constraints, in balls, whose radius says how many digits are right.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from flint import arb, arb_mat, ctx, nmod_mat

from tests.helpers.oracles.description import Description

PRIME = (1 << 61) - 1  # a rank modulo a large prime is the rank, unless the prime divides a minor
BITS = (256, 512, 1024)
SURE = 1e-12  # relative radius of what is said
ROUNDING_OF_SUMS = 1e-12  # of the largest figure


class ContradictionError(ValueError):
    """No counts satisfy what is known exactly."""


@dataclass(frozen=True)
class Reference:
    """What the answer is, and how well the measurements fit it.

    Attributes
    ----------
    estimate : ndarray, (m,)
        Of the desired cells, rounded once; NaN where nothing determines a cell.
    variances : ndarray, (m,)
        Exactly 0 where exact knowledge determines a cell; NaN where nothing does.
    determined : ndarray of bool, (m,)
    largest : float
        Size of a measurement, which rounding is relative to.
    statistic : float
        Chi-square of the measurements.
    degrees_of_freedom : int
    moved : ndarray, (m,)
        How far the estimates move, at most, when every number of the description and the data moves by a share of
        itself, divided by that share.
    """

    estimate: np.ndarray
    variances: np.ndarray
    determined: np.ndarray
    largest: float = 0.0
    statistic: float = 0.0
    degrees_of_freedom: int = 0
    moved: np.ndarray = field(default_factory=lambda: np.zeros(0))

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


class _Solved(NamedTuple):
    """The least squares in balls.

    Attributes
    ----------
    estimate, variances : list of arb
        Of the rows of D.
    statistic : float
    moved : ndarray
    weighed : arb_mat (rows, unknowns)
        The inverse of the covariance times what is fitted.
    wanted : arb_mat (m, unknowns of D)
    spread : arb_mat (m, unknowns)
        D times the covariance of the unknowns.
    """

    estimate: list[arb]
    variances: list[arb]
    statistic: float
    moved: np.ndarray
    weighed: arb_mat
    wanted: arb_mat
    spread: arb_mat


class _Equations:
    """What was measured and what is known, over the unknowns that these determine, others being given."""

    def __init__(self, description: Description, y: np.ndarray) -> None:
        v, self._description = description.variances, description
        self.noisy, exact = np.flatnonzero((v > 0) & np.isfinite(v)), np.flatnonzero(v == 0)
        M, D = _told_apart(description.marginal_matrix(), description.desired_matrix(), description.empty_cells())
        E, b = description.equalities or (np.zeros((0, len(M))), np.zeros(0))
        self._c = [arb(float(own)) for own in [*y[exact], *b]]
        known = _stacked(modular(M[exact]), modular(E) * modular(M))
        both = _stacked(modular(np.unique(M[self.noisy], axis=0)), known)
        J, self.undetermined = _moved(both, modular(D))
        fixed = _columns(known, known.nrows(), J)
        self._independent = _pivots(*fixed.transpose().rref())
        self.free = _moved(fixed, modular(D[:, J]))[1]
        self._steep = np.vstack([abs(M[exact]), abs(E) @ abs(M)])[:, J]
        self._exact, self._equalities, self._M = M[np.ix_(exact, J)], E, M[:, J]
        self._A, self._D, self._y = M[np.ix_(self.noisy, J)], D[:, J], y[self.noisy]
        self.degrees_of_freedom = self.noisy.size - (len(J) - len(self._independent))

    def solved(self) -> _Solved:
        """As many bits as the context has."""
        C = [*_rows(_balls(self._exact)), *_rows(_balls(self._equalities) * _balls(self._M))]
        weigh, shared = _precision(self._description, self.noisy)
        own, D, independent = self._A, self._D, self._independent
        A = np.block([[own, shared], [np.zeros((shared.shape[1], own.shape[1])), np.eye(shared.shape[1])]])
        unknowns, rows = A.shape[1], len(independent)
        balls, wanted = _balls(A), _balls(D)
        right = _balls(np.append(self._y, np.zeros(shared.shape[1]))[:, None])
        weighed = weigh(balls)
        system = [row + [arb(0)] * rows for row in _rows(balls.transpose() * weighed)]
        for k, row in enumerate(independent):
            fixed = C[row] + [arb(0)] * (unknowns - D.shape[1])
            for i in range(unknowns):
                system[i][unknowns + k] = fixed[i]
            system.append(fixed + [arb(0)] * rows)
        moved = weighed.transpose() * right
        sides = arb_mat([[moved[i, 0]] for i in range(unknowns)] + [[self._c[row]] for row in independent])
        if not system:
            none = [arb(0)] * len(D)
            statistic = _float((right.transpose() * weigh(right))[0, 0])
            return _Solved(none, none, statistic, np.zeros(len(D)), weighed, wanted, wanted)
        inverse = arb_mat(system).inv()
        counts = inverse * sides
        for row, value in zip(C, self._c, strict=True):
            if not (sum((a * counts[j, 0] for j, a in enumerate(row) if a != 0), arb(0)) - value).contains(0):
                raise ContradictionError("no counts satisfy what is known exactly")
        spread = wanted * _block(inverse, D.shape[1])
        found = list(zip(_rows(wanted), _rows(spread), D, strict=True))
        variances = [sum((own[k] * moved[k] for k in np.flatnonzero(row)), arb(0)) for own, moved, row in found]
        estimate = [sum((own[k] * counts[int(k), 0] for k in np.flatnonzero(row)), arb(0)) for own, _, row in found]
        inner = _block(counts, unknowns)
        residuals = right - balls * inner
        size, pulled = abs(_floats(inner)[:, 0]), _floats(spread)
        moved = abs(pulled[:, :unknowns] @ _floats(weighed).T) @ (abs(_floats(right)[:, 0]) + abs(A) @ size)
        given = abs(np.array([_float(self._c[row]) for row in independent]))
        given += (self._steep @ size[: D.shape[1]])[independent]
        moved += abs(pulled[:, unknowns:]) @ given
        statistic = _float((residuals.transpose() * weigh(residuals))[0, 0])
        return _Solved(estimate, variances, statistic, moved, weighed, wanted, _columns_of(spread, unknowns))


def solve(description: Description, y: np.ndarray) -> Reference:
    """Estimate, variances and fit.

    Raises
    ------
    ContradictionError
        If exact values, equalities and zeros contradict one another.
    """
    own, before = _Equations(description, y), ctx.prec
    free, undetermined = own.free, own.undetermined
    try:
        for ctx.prec in BITS:
            found = own.solved()
            if all(_is_sure(v) for v, may in zip(found.variances, free & ~undetermined, strict=True) if may):
                break
        else:
            raise ArithmeticError("balls are too wide: more bits")
    finally:
        ctx.prec = before
    return Reference(
        np.where(undetermined, np.nan, [_float(value) for value in found.estimate]),
        np.where(undetermined, np.nan, np.where(free, [_float(value) for value in found.variances], 0.0)),
        ~undetermined,
        float(abs(np.nan_to_num(y)).max(initial=0.0)),
        found.statistic,
        own.degrees_of_freedom,
        found.moved,
    )


def weigh(description: Description, y: np.ndarray, V: np.ndarray) -> Weighed:
    """What the estimate makes of functionals V, (m, K), of desired cells that are all determined."""
    own, before = _Equations(description, y), ctx.prec
    weights = np.zeros((description.variances.size, V.shape[1]))
    try:
        ctx.prec = BITS[1]
        found = own.solved()
        pulled = found.spread.transpose() * _balls(V)
        weights[own.noisy] = _floats(found.weighed * pulled)[: own.noisy.size]
        covariance = _floats(found.wanted * _block(pulled, found.wanted.ncols()))
    finally:
        ctx.prec = before
    return Weighed(weights, covariance)


def _told_apart(M: np.ndarray, D: np.ndarray, empty: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of cells that may hold something, one for all that no table tells apart."""
    columns = np.unique(np.vstack([M, D])[:, ~empty].T, axis=0).T
    return columns[: len(M)], columns[len(M) :]


def modular(matrix: np.ndarray) -> nmod_mat:
    """Of finite fractions of twos, as doubles are."""
    values = np.asarray(matrix, dtype=float).ravel().tolist()
    ratios = {value: value.as_integer_ratio() for value in set(values)}
    own = {value: over * pow(under, -1, PRIME) % PRIME for value, (over, under) in ratios.items()}
    return nmod_mat(*matrix.shape, [own[value] for value in values], PRIME)


def _stacked(above: nmod_mat, below: nmod_mat) -> nmod_mat:
    return nmod_mat(above.nrows() + below.nrows(), above.ncols(), [*above.entries(), *below.entries()], PRIME)


def _columns(matrix: nmod_mat, rows: int, chosen: list[int]) -> nmod_mat:
    entries, own = matrix.entries(), range(rows)
    return nmod_mat(rows, len(chosen), [entries[i * matrix.ncols() + j] for i in own for j in chosen], PRIME)


def _block(matrix: arb_mat, rows: int) -> arb_mat:
    """The first rows."""
    return arb_mat(rows, matrix.ncols(), matrix.entries()[: rows * matrix.ncols()])


def _columns_of(matrix: arb_mat, columns: int) -> arb_mat:
    """The first columns."""
    return _block(matrix.transpose(), columns).transpose()


def _rows(matrix: arb_mat) -> list[list[arb]]:
    entries, columns = matrix.entries(), matrix.ncols()
    return [entries[i * columns : (i + 1) * columns] for i in range(matrix.nrows())]


def _pivots(echelon: nmod_mat, rank: int) -> list[int]:
    found, j = [], 0
    for i in range(rank):
        while not int(echelon[i, j]):
            j += 1
        found.append(j)
        j += 1
    return found


def _moved(equations: nmod_mat, D: nmod_mat) -> tuple[list[int], np.ndarray]:
    """Columns that the equations determine, others being given; and which rows of D change with these others."""
    echelon, rank = equations.rref()
    J = _pivots(echelon, rank)
    others = sorted(set(range(equations.ncols())) - set(J))
    if not others:
        return J, np.zeros(D.nrows(), dtype=bool)
    change = _columns(D, D.nrows(), others)
    if J:
        change = change - _columns(D, D.nrows(), J) * _columns(echelon, rank, others)
    entries = np.array([int(own) != 0 for own in change.entries()]).reshape(D.nrows(), len(others))
    return J, entries.any(axis=1)


def _precision(description: Description, noisy: np.ndarray) -> tuple[Callable[[arb_mat], arb_mat], np.ndarray]:
    """What multiplies by the inverse of the covariance, and the low-rank correlated noise as columns."""
    if description.covariance is not None and description.shared is None:
        Sigma = _balls(description.covariance[np.ix_(noisy, noisy)])
        return (lambda V: Sigma.solve(V) if noisy.size else V), np.zeros((noisy.size, 0))
    own, shared = (description.variances, np.zeros((description.variances.size, 0)))
    own, shared = description.shared or (own, shared)
    weights = [1 / arb(float(value)) for value in own[noisy]] + [arb(1)] * shared.shape[1]

    def scaled(V: arb_mat) -> arb_mat:
        entries, columns = V.entries(), V.ncols()
        return arb_mat(V.nrows(), columns, [weights[i // columns] * own for i, own in enumerate(entries)])

    return scaled, shared[noisy]


def _balls(matrix: np.ndarray) -> arb_mat:
    return arb_mat(*matrix.shape, [arb(value) for value in np.asarray(matrix, dtype=float).ravel().tolist()])


def _float(value: arb) -> float:
    """The middle, and 0 where that is within the radius."""
    return 0.0 if value.is_finite() and value.contains(0) else float(value.mid())


def _floats(matrix: arb_mat) -> np.ndarray:
    return np.array([_float(value) for value in matrix.entries()]).reshape(matrix.nrows(), matrix.ncols())


def _is_sure(value: arb) -> bool:
    return bool(value > 0) and float(value.rad()) <= SURE * _float(value)
