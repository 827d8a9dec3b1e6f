"""What the closed form and the two passes cannot say by themselves: equalities, and cells known exactly.

Let x be the exact estimate of a structured problem, with covariance V, and F x a few combinations of observed cells.
One more independent measurement f of these, with covariance R, changes the estimate to

    x - V F' K^+ (F x - f),    Cov = V - V F' K^+ F V,    K = R + F V F'.

R = 0 makes F x = f exact (Woodbury). Of equalities that speak of what is not estimable those combinations count in
which that cancels.

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
from blue_solvers.contract import UnsupportedProblemError, variances_from_weights
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory

INDEPENDENT = 1e-10  # of a combination's own length, where all noise counts alike: what is left of one that is implied
ROUNDED, NEARLY = 1e-13, 1e-8  # likewise: between these rounding would decide
CANCELLED = 1e-4  # of a variance: where less is left than that, it is worked out afresh
VANISHED = 1e-14  # of the weights that measurements had before, and of what changes them: less is rounding
CONTRADICTION_TOLERANCE = 1e-8  # relative: right-hand sides may be rounded sums
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
        E, b = problem.equality_rows
        needed = COPIES * 8.0 * problem.observed.size * (b.size + known.size)
        require_memory(needed, f"{b.size + known.size:,} equalities", "use solver='cholesky' or 'cg', or fewer")
        base = problem.replace(equalities=None)
        # F x - h F y - c is what is missing: h = 1 of cells known exactly, c of equalities
        F, told, constants, self._equal_to = _independent(base, known, E, b, form_of)
        self._desired = form_of(base)
        same = problem.desired.names == problem.observed.names
        self._observed = self._desired if same else form_of(base.observing())
        self._deviations = np.sqrt(np.where(base.unmeasured, 0.0, base.variances))[:, None]
        pulls = _of_columns(self._observed.adjoint, F.T.toarray(), problem.observed.size)
        pulls[base.unmeasured] = 0
        # made orthonormal first: one that is known well is then not what two that are known badly leave
        Q, L = orthonormal(own := self._deviations * pulls)
        self._terms = abs(L) @ np.linalg.norm(own, axis=0)  # sizes of what each is a difference of
        self._changes = self._deviations * Q
        self._left = _of_columns(self._desired.apply, self._changes, problem.desired.size)
        self._missing, self._constants = pulls @ L.T - F.T @ (told * L).T, (L @ constants)[:, None]
        self.offset = (self._left @ self._constants)[:, 0]

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._desired.apply(Y) - self._left @ (self._missing.T @ Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._desired.adjoint(V) - self._missing @ (self._left.T @ V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,); exactly 0 where equalities determine a cell."""
        before = self._desired.variances()
        variances = np.where(before > 0, before - (self._left**2).sum(axis=1), 0.0)
        small = np.flatnonzero((variances < CANCELLED * before) & (before > 0))
        if small.size:
            noise = sparse.diags_array(self._deviations[:, 0] ** 2)
            variances[small] = variances_from_weights(noise, small, variances.size, self._weights_that_move)
        return variances

    def _weights_that_move(self, V: Float) -> Float:
        """P' V, (n, K), 0 for functionals to which equalities leave nothing but rounding."""
        weights, largest = self.adjoint(V), abs(self._desired.adjoint(V)).max(axis=0)
        terms = largest * np.linalg.norm(self._deviations) + self._terms @ abs(self._left.T @ V)
        left = np.linalg.norm(self._deviations * weights, axis=0)
        return np.where(left > VANISHED * terms, weights, 0.0)

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest difference of a geounit from its children's sum, or from an equality."""
        E, b = self._equal_to
        changed = self._changes @ (self._missing.T @ Y - self._constants)
        gaps = E @ self._observed.apply(Y - changed) - b[:, None]
        X, violation = self._desired.apply_checked(Y)
        return X - self._left @ (self._missing.T @ Y), max(violation, float(abs(gaps).max(initial=0.0)))


def form_of_places(problem: Problem) -> Components:
    """The exact estimate of a problem of equal variances within the tables of a geounit, but for its equalities."""
    special = problem.is_placed or problem.has_zeros
    return TreeForm(StructuredProblem.of(problem)) if special else components_of(problem)


def conditioned(problem: Problem, known: Index = NO_CELLS, form_of: FormOf = form_of_places) -> Components:
    """The exact estimate of a problem, given its equalities and the cells whose measurement is exact, if any.

    Parameters
    ----------
    problem : Problem
    known : ndarray of int, (k,), optional
        Observed cells whose measurement is exact, whatever variance the problem gives them.
    form_of : callable, optional
        The exact estimate of the problem without its equalities, by default in closed form or in two passes.
    """
    return ConditionedEstimate(problem, known, form_of) if problem.has_equalities or known.size else form_of(problem)


def _of_columns(linear: Callable[[Float], Float], X: Float, size: int) -> Float:
    """A linear map of columns, (size, K), of none too."""
    return linear(X) if X.shape[1] else np.zeros((size, 0))


def _independent(
    base: Problem, known: Index, E: sparse.csr_array, b: Float, form_of: FormOf
) -> tuple[sparse.csr_array, Float, Float, tuple[sparse.csr_array, Float]]:
    """Combinations F, (k, n), of observed cells that say something new, whatever the noise: F x = h F y + c.

    And all equalities that count. Where all noise counts alike, what a combination makes of consistent values is its
    projection on them. What the measurements' estimate of it leaves of that is not estimable: only combinations of
    equalities count of which it leaves nothing.

    Raises
    ------
    UnsupportedProblemError
        If some of the equalities contradict one another.
    """
    units = np.ldexp(1.0, -np.frexp(np.sqrt(E.power(2).sum(axis=1)))[1])
    E, b = sparse.csr_array(sparse.diags_array(units) @ E), units * b
    alike, measured = np.where(base.exact, 0.0, 1.0), ~base.unmeasured
    whole = form_of(base.with_variances(alike).observing())
    pulls = _of_columns(whole.adjoint, E.T.toarray(), alike.size)
    _require_attainable(pulls, b)
    if base.has_unmeasured and b.size:
        told, every = (
            form_of(base.with_variances(own).observing())
            for own in (np.where(measured, 1.0, np.inf), np.ones(alike.size))
        )
        first, rest, shares = _implied(every.adjoint(E.T.toarray() - measured[:, None] * told.adjoint(E.T.toarray())))
        pulls, b, units = pulls[:, rest] - pulls[:, first] @ shares, b[rest] - shares.T @ b[first], units[rest]
        E = sparse.csr_array(E[rest] - sparse.csr_array(shares.T) @ E[first])
    cells = sparse.csr_array((np.ones(known.size), (np.arange(known.size), known)), shape=(known.size, alike.size))
    pulls = np.concatenate([pulls, _of_columns(whole.adjoint, cells.T.toarray(), alike.size)], axis=1)
    chosen = pivots(np.where(base.exact[:, None], 0.0, pulls))[0]
    F = sparse.csr_array(sparse.vstack([E, cells], format="csr"))[chosen]
    constants = np.concatenate([b, np.zeros(known.size)])[chosen]
    equal_to = sparse.csr_array(sparse.diags_array(1 / units) @ E), b / units
    return F, (chosen >= b.size).astype(float), constants, equal_to


def pivots(columns: Float) -> tuple[Index, Float, Index]:
    """Independent columns, (r,), of (n, k), each about a unit long; the triangular factor and order, (k,), of all."""
    if not columns.shape[1]:
        return np.zeros(0, dtype=np.intp), np.zeros((0, 0)), np.zeros(0, dtype=np.intp)
    R, order = qr(columns, mode="r", pivoting=True)
    size = min(R.shape)
    left = abs(R.diagonal()[:size])
    require_clear(left)
    rank = int(np.count_nonzero(left > INDEPENDENT))
    return np.sort(order[:rank]), R[:size], order


def require_clear(left: Float) -> None:
    """Refuse what combinations of exact knowledge leave of one another, any shape, where rounding would decide."""
    if ((left > ROUNDED) & (left < NEARLY)).any():
        raise UnsupportedProblemError(
            "what is known exactly is nearly, and not quite, a combination of other such knowledge, and rounding would "
            "decide what it says: leave one of the equalities out, or make it follow exactly"
        )


def _implied(columns: Float) -> tuple[Index, Index, Float]:
    """Independent columns, the others, and the shares that these have of the first, (first, others)."""
    chosen, R, order = pivots(columns)
    rank = chosen.size
    shares = solve_triangular(R[:rank, :rank], R[:rank, rank:]) if rank else np.zeros((0, order.size))
    return order[:rank], order[rank:], shares


def _require_attainable(pulls: Float, b: Float) -> None:
    """Refuse E x = b that no consistent x satisfies: combinations of rows that are 0 for all must be 0 on the right.

    `pulls` is what the rows make of consistent values, (n, k).
    """
    first, rest, implied = _implied(pulls)
    if not rest.size:
        return
    gaps = abs(b[rest] - implied.T @ b[first])
    sizes = abs(b[rest]) + abs(implied.T) @ abs(b[first])
    if (gaps > CONTRADICTION_TOLERANCE * sizes + INDEPENDENT * abs(b).max()).any():
        raise UnsupportedProblemError(
            "the equalities contradict one another, the structural zeros or the tables' own sums: no values satisfy "
            "all of them; correct their right-hand side"
        )


def orthonormal(W: Float) -> tuple[Float, Float]:
    """Q, (n, k), orthonormal, L, (k, k), with W L' = Q, of independent columns W whose rows may differ by decades."""
    if not W.shape[1]:
        return W, np.zeros((0, 0))
    lengths = np.linalg.norm(W, axis=0)
    order = np.argsort(-abs(W).max(axis=1), kind="stable")
    sorted_Q, R, columns = qr((W / lengths)[order], mode="economic", pivoting=True)
    Q, inverse = np.empty_like(sorted_Q), np.empty_like(R)
    Q[order] = sorted_Q
    inverse[columns] = solve_triangular(R, np.eye(len(R)))
    return Q, (inverse / lengths[:, None]).T
