"""The BLUE of a described problem in ball arithmetic, over as few unknowns as its tables tell apart.

It says what `exact` says, for problems of some thousand cells too: what is determined and what is known exactly is
worked out modulo a large prime, the least squares with what is known as constraints in balls.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from flint import arb, arb_mat, ctx, nmod_mat

from tests.helpers.oracles.description import Description
from tests.helpers.oracles.exact import ContradictionError, Reference

PRIME = (1 << 61) - 1  # a rank modulo a large prime is the rank, unless the prime divides a minor
BITS = (256, 512, 1024)
SURE = 1e-12  # relative radius of what is said


@dataclass(frozen=True)
class Answer(Reference):
    """What the answer is, and how well the measurements fit it.

    Attributes
    ----------
    statistic : float
        Chi-square of the measurements.
    degrees_of_freedom : int
    moved : ndarray, (m,)
        How far the estimates move, at most, when every number of the description and the data moves by a share of
        itself, divided by that share.
    """

    statistic: float = 0.0
    degrees_of_freedom: int = 0
    moved: np.ndarray = field(default_factory=lambda: np.zeros(0))


def answer(description: Description, y: np.ndarray) -> Answer:
    """Estimate, variances and fit.

    Raises
    ------
    ContradictionError
        If exact values, equalities and zeros contradict one another.
    """
    v, before = description.variances, ctx.prec
    noisy, exact = np.flatnonzero((v > 0) & np.isfinite(v)), np.flatnonzero(v == 0)
    M, D = _told_apart(description.marginal_matrix(), description.desired_matrix(), description.empty_cells())
    E, b = description.equalities or (np.zeros((0, len(M))), np.zeros(0))
    c, seen = [arb(float(own)) for own in [*y[exact], *b]], np.unique(M[noisy], axis=0)
    known = _stacked(_modular(M[exact]), _modular(E) * _modular(M))
    both = _stacked(_modular(seen), known)
    J, undetermined = _moved(both, _modular(D))
    fixed = _columns(known, known.nrows(), J)
    independent = _pivots(*fixed.transpose().rref())
    free = _moved(fixed, _modular(D[:, J]))[1]
    steep = np.vstack([abs(M[exact]), abs(E) @ abs(M)])[:, J]
    try:
        for ctx.prec in BITS:
            C = [*_rows(_balls(M[np.ix_(exact, J)])), *_rows(_balls(E) * _balls(M[:, J]))]
            found = _least_squares(description, M[np.ix_(noisy, J)], D[:, J], y[noisy], noisy, C, c, independent, steep)
            estimate, variances, statistic, moved = found
            if all(_is_sure(own) for own, may in zip(variances, free & ~undetermined, strict=True) if may):
                break
        else:
            raise ArithmeticError("balls are too wide: more bits")
    finally:
        ctx.prec = before
    return Answer(
        np.where(undetermined, np.nan, [_float(own) for own in estimate]),
        np.where(undetermined, np.nan, np.where(free, [_float(own) for own in variances], 0.0)),
        ~undetermined,
        float(abs(np.nan_to_num(y)).max(initial=0.0)),
        statistic,
        noisy.size - (len(J) - len(independent)),
        moved,
    )


def _told_apart(M: np.ndarray, D: np.ndarray, empty: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of cells that may hold something, one for all that no table tells apart."""
    columns = np.unique(np.vstack([M, D])[:, ~empty].T, axis=0).T
    return columns[: len(M)], columns[len(M) :]


def _modular(matrix: np.ndarray) -> nmod_mat:
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


def _least_squares(
    description: Description,
    A: np.ndarray,
    D: np.ndarray,
    y: np.ndarray,
    noisy: np.ndarray,
    C: list[list[arb]],
    c: list[arb],
    independent: list[int],
    steep: np.ndarray,
) -> tuple[list[arb], list[arb], float, np.ndarray]:
    """Estimates and variances of the rows of D in balls, chi-square, and how far the estimates may move."""
    weigh, shared = _precision(description, noisy)
    A = np.block([[A, shared], [np.zeros((shared.shape[1], A.shape[1])), np.eye(shared.shape[1])]])
    unknowns, rows = A.shape[1], len(independent)
    balls = _balls(A)
    right = _balls(np.append(y, np.zeros(shared.shape[1]))[:, None])
    weighed = weigh(balls)
    normal = balls.transpose() * weighed
    system = [own + [arb(0)] * rows for own in _rows(normal)]
    for k, row in enumerate(independent):
        own = C[row] + [arb(0)] * (unknowns - D.shape[1])
        for i in range(unknowns):
            system[i][unknowns + k] = own[i]
        system.append(own + [arb(0)] * rows)
    moved = weighed.transpose() * right
    sides = arb_mat([[moved[i, 0]] for i in range(unknowns)] + [[c[row]] for row in independent])
    if not system:
        return [arb(0)] * len(D), [arb(0)] * len(D), _float((right.transpose() * weigh(right))[0, 0]), np.zeros(len(D))
    inverse = arb_mat(system).inv()
    counts = inverse * sides
    for own, value in zip(C, c, strict=True):
        if not (sum((a * counts[j, 0] for j, a in enumerate(own) if a != 0), arb(0)) - value).contains(0):
            raise ContradictionError("no counts satisfy what is known exactly")
    wanted = _balls(D)
    spread = wanted * _block(inverse, D.shape[1])
    found = list(zip(_rows(wanted), _rows(spread), D, strict=True))
    variances = [sum((own[k] * moved[k] for k in np.flatnonzero(row)), arb(0)) for own, moved, row in found]
    estimate = [sum((own[k] * counts[int(k), 0] for k in np.flatnonzero(row)), arb(0)) for own, _, row in found]
    inner = _block(counts, unknowns)
    residuals = right - balls * inner
    size, pulled = abs(_floats(inner)[:, 0]), _floats(spread)
    moved = abs(pulled[:, :unknowns] @ _floats(weighed).T) @ (abs(_floats(right)[:, 0]) + abs(A) @ size)
    given = abs(np.array([_float(c[row]) for row in independent])) + (steep @ size[: D.shape[1]])[independent]
    moved += abs(pulled[:, unknowns:]) @ given
    return estimate, variances, _float((residuals.transpose() * weigh(residuals))[0, 0]), moved


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
    return float(value.mid())


def _floats(matrix: arb_mat) -> np.ndarray:
    return np.array([_float(value) for value in matrix.entries()]).reshape(matrix.nrows(), matrix.ncols())


def _is_sure(value: arb) -> bool:
    return bool(value > 0) and float(value.rad()) <= SURE * _float(value)
