"""What the closed form and the two passes cannot say by themselves: equalities, exact cells, cells not measured.

Let x be the exact estimate of a structured problem, with covariance V, and F x a few combinations of observed cells.
One more independent measurement f of these, with covariance R, changes the estimate to

    x - V F' K^+ (F x - f),    Cov = V - V F' K^+ F V,    K = R + F V F'.

R = 0 makes F x = f exact (Woodbury). R = -t takes back a pseudo-measurement of variance t: tables that equalities
speak of and that were not measured count as measured in the structured problem, so that every combination has an
estimate.

Which combinations say something new is decided without variances, where all noise counts alike: it is a matter of the
tables alone. Each combination costs one covariance column, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from blue_solvers.components import Components, components_of
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from blue_solvers.components.unmeasured_in_equalities import unmeasured_in_equalities
from blue_solvers.contract import UnsupportedProblemError, variances_from_weights
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory

INDEPENDENT = 1e-10  # of a combination's own length, where all noise counts alike: what is left of one that is implied
ROUNDED, NEARLY = 1e-13, 1e-8  # likewise: between these rounding would decide
CANCELLED = 1e-4  # of a variance: where less is left than that, it is worked out afresh
VANISHED = 1e-14  # of the weights that measurements had before: what is left of less is rounding
CONTRADICTION_TOLERANCE = 1e-8  # relative: right-hand sides may be rounded sums
UNDETERMINED = 1e-11  # of the variance of pseudo-measurements: less was told by nothing else, up to rounding
COPIES = 5  # of all columns over the observed layout

FormOf: TypeAlias = Callable[[Problem], Components]
NO_CELLS: Index = np.zeros(0, dtype=np.intp)


class ConditionedEstimate:
    """The exact estimate of a problem with equalities; see the module.

    Parameters
    ----------
    problem : Problem
        Of equal variances within the tables of a geounit, with `equalities` or without.
    known : ndarray of int
        Observed cells whose measurement is exact, whatever variance the problem gives them.
    form_of : callable
        The exact estimate of the problem without its equalities.

    Attributes
    ----------
    offset : ndarray, (m,)
        Constant part of the estimate.

    Raises
    ------
    UnsupportedProblemError
        If the equalities contradict one another, or structural zeros.
    MemoryError
        If a column for each of them would not fit.
    """

    def __init__(self, problem: Problem, known: Index, form_of: FormOf) -> None:
        E, b = self._equal_to = problem.equality_rows
        cells, size = unmeasured_in_equalities(problem), problem.observed.size
        rows = sparse.csr_array(sparse.vstack([E, _units(known, size)], format="csr"))
        needed = COPIES * 8.0 * size * (rows.shape[0] + cells.size)
        require_memory(needed, f"{rows.shape[0]:,} equalities", "use solver='cholesky' or 'cg', or fewer")
        base, pseudo_variance = _pseudo_measured(problem, cells)
        chosen = _independent(base, form_of, rows, b)
        self._measured = np.ones((size, 1))
        self._measured[cells] = 0
        # F x - h F y - c is what is missing: of equalities, of cells known exactly (h = 1), and of those not measured
        F = sparse.csr_array(sparse.vstack([rows[chosen], _units(cells, size)], format="csr"))
        told, constants = np.zeros((2, F.shape[0]))
        told[: chosen.size] = chosen >= b.size
        constants[: chosen.size] = np.concatenate([b, np.zeros(known.size)])[chosen]
        self._desired = form_of(base)
        same = problem.desired.names == problem.observed.names
        self._observed = self._desired if same else form_of(base.observing())
        self._noise = np.where(np.isfinite(base.variances), base.variances, 0.0)[:, None]
        pulls = _of_columns(self._observed.adjoint, F.T.toarray(), size)
        right = self._work_out_gain(pulls, chosen.size, pseudo_variance)
        self._left = _of_columns(self._desired.apply, self._changes, problem.desired.size)
        self._changed = self._left**2 @ self._signs
        self._missing = self._measured * (pulls @ right.T - F.T @ (told * right).T)
        self._constants = (right @ constants)[:, None]
        self.offset = (self._left @ self._constants)[:, 0]

    def _work_out_gain(self, pulls: Float, known: int, pseudo_variance: float) -> Float:
        """What to multiply with what is missing, so that `_changes` times the product changes the observed cells.

        What is known is made orthonormal first: one that is known well is then not what two that are known badly leave.
        With W = root of Sigma P' F', scaled to the noise of pseudo-measurements, what it leaves of these is T, and they
        are taken back by (1 - T'T)^+: along the directions of which nothing else tells, they stay.
        """
        deviations = np.sqrt(self._noise)
        W = deviations * pulls
        Q, L = orthonormal(W[:, :known])
        W = W[:, known:] / np.sqrt(pseudo_variance)
        T = W - Q @ (Q.T @ W)
        values, vectors = np.linalg.eigh(np.eye(W.shape[1]) - T.T @ T)
        told = values > UNDETERMINED
        root = vectors[:, told] / np.sqrt(values[told])
        self._changes = deviations * np.concatenate([Q, T @ root], axis=1)
        self._signs = np.repeat([1.0, -1.0], [known, root.shape[1]])
        back, again = -root.T / np.sqrt(pseudo_variance), root.T @ (W.T @ Q) @ L
        return np.block([[L, np.zeros((known, W.shape[1]))], [again, back]])

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._desired.apply(Y * self._measured) - self._left @ (self._missing.T @ Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._desired.adjoint(V) * self._measured - self._missing @ (self._left.T @ V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,); exactly 0 where equalities determine a cell."""
        before = self._desired.variances()
        variances = np.where(before > 0, before - self._changed, 0.0)
        small = np.flatnonzero((variances < CANCELLED * before) & (before > 0))
        if small.size:
            noise = sparse.diags_array(self._noise[:, 0])
            variances[small] = variances_from_weights(noise, small, variances.size, self._weights_that_move)
        return variances

    def _weights_that_move(self, V: Float) -> Float:
        """P' V, (n, K), 0 for functionals to which equalities leave nothing but rounding."""
        weights, largest = self.adjoint(V), abs(self._desired.adjoint(V)).max(axis=0)
        deviations = np.sqrt(self._noise * self._measured)
        left = np.linalg.norm(deviations * weights, axis=0)
        return np.where(left > VANISHED * largest * np.linalg.norm(deviations), weights, 0.0)

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, or from an equality."""
        E, b = self._equal_to
        changed = self._changes @ (self._missing.T @ Y - self._constants)
        Y = Y * self._measured
        gaps = E @ self._observed.apply(Y - changed) - b[:, None]
        return max(self._desired.violation(Y), float(abs(gaps).max(initial=0.0)))


def form_of_places(problem: Problem) -> Components:
    """The exact estimate of a problem of equal variances within the tables of a geounit, but for its equalities."""
    special = problem.is_placed or problem.has_zeros
    return TreeForm(StructuredProblem.of(problem)) if special else components_of(problem)


def conditioned(problem: Problem, known: Index = NO_CELLS, form_of: FormOf = form_of_places) -> Components:
    """The exact estimate of a problem, given its equalities and the cells whose measurement is exact, if any.

    Parameters
    ----------
    problem : Problem
    known : ndarray of int, optional
        Observed cells whose measurement is exact, whatever variance the problem gives them.
    form_of : callable, optional
        The exact estimate of the problem without its equalities, by default in closed form or in two passes.
    """
    if not problem.has_equalities and not known.size:
        return form_of(problem)
    return ConditionedEstimate(problem, known, form_of)


def _pseudo_measured(problem: Problem, cells: Index) -> tuple[Problem, float]:
    """A problem without its equalities, where some cells count as measured, and the variance that these have.

    It is so large that, by equalities with coefficients of any size, the measurements tell as much of them at least.
    """
    variances, sizes = np.array(problem.variances), abs(problem.equality_rows[0].data)
    noisy = variances[(variances > 0) & np.isfinite(variances)]
    pseudo_variance = float(noisy.max(initial=0.0)) or 1.0
    if cells.size:
        pseudo_variance *= float(sizes.max() / sizes.min(where=sizes > 0, initial=np.inf)) ** 2
    variances[cells] = pseudo_variance
    return problem.with_variances(variances).replace(equalities=None), pseudo_variance


def _of_columns(linear: Callable[[Float], Float], X: Float, size: int) -> Float:
    """A linear map of columns, (size, K), of none too."""
    return linear(X) if X.shape[1] else np.zeros((size, 0))


def _units(cells: Index, size: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(cells.size), (np.arange(cells.size), cells)), shape=(cells.size, size))


def _independent(base: Problem, form_of: FormOf, rows: sparse.csr_array, b: Float) -> Index:
    """Numbers of combinations that say something new, whatever the sizes of the noise.

    Where all noise counts alike, what a combination makes of consistent values is its projection on them.

    Raises
    ------
    UnsupportedProblemError
        If some of the first, which are equal to `b`, contradict one another.
    """
    alike = base.with_variances(np.where(np.isfinite(base.variances) & (base.variances > 0), 1.0, base.variances))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
    scale = np.where(lengths > 0, lengths, 1.0)
    pulls = form_of(alike.observing()).adjoint(rows.T.toarray() / scale)
    _require_attainable(pulls[:, : b.size], b / scale[: b.size])
    return pivots(np.where(alike.exact[:, None], 0.0, pulls))[0]


def pivots(columns: Float) -> tuple[Index, Float, Index]:
    """Independent columns of about unit length; the triangular factor of all, and their order."""
    if not columns.shape[1]:
        return np.zeros(0, dtype=np.intp), np.zeros((0, 0)), np.zeros(0, dtype=np.intp)
    R, order = qr(columns, mode="r", pivoting=True)
    size = min(R.shape)
    left = abs(R.diagonal()[:size])
    if ((left > ROUNDED) & (left < NEARLY)).any():
        raise UnsupportedProblemError(
            "what is known exactly is nearly, and not quite, a combination of other such knowledge, and rounding would "
            "decide what it says: leave one of the equalities out, or make it follow exactly"
        )
    rank = int(np.count_nonzero(left > INDEPENDENT))
    return np.sort(order[:rank]), R[:size], order


def _require_attainable(pulls: Float, b: Float) -> None:
    """Refuse E x = b that no consistent x satisfies: combinations of rows that are 0 for all must be 0 on the right.

    `pulls` is what the rows make of consistent values, (n, k).
    """
    chosen, R, order = pivots(pulls)
    rank = chosen.size
    if rank == b.size:
        return
    first, rest = order[:rank], order[rank:]
    implied = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else np.zeros((0, rest.size))
    gaps = abs(b[rest] - implied.T @ b[first])
    sizes = abs(b[rest]) + abs(implied.T) @ abs(b[first])
    if (gaps > CONTRADICTION_TOLERANCE * sizes + INDEPENDENT * abs(b).max()).any():
        raise UnsupportedProblemError(
            "the equalities contradict one another, the structural zeros or the tables' own sums: no values satisfy "
            "all of them; correct their right-hand side"
        )


def orthonormal(W: Float) -> tuple[Float, Float]:
    """Q with orthonormal columns, and L with W L' = Q, of independent columns W whose rows may differ by decades."""
    if not W.shape[1]:
        return W, np.zeros((0, 0))
    lengths = np.linalg.norm(W, axis=0)
    order = np.argsort(-abs(W).max(axis=1), kind="stable")
    sorted_Q, R, columns = qr((W / lengths)[order], mode="economic", pivoting=True)
    Q, inverse = np.empty_like(sorted_Q), np.empty_like(R)
    Q[order] = sorted_Q
    inverse[columns] = solve_triangular(R, np.eye(len(R)))
    return Q, (inverse / lengths[:, None]).T
