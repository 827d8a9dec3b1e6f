"""Linear combinations of cells that are known exactly, on top of an estimate that does not use them.

With E x = b for cells x of the observed layout, x_D the estimate of the desired cells without, and G = Cov(x_D, x)
E', the estimate with them is x_D - G (E Cov(x) E')^+ (E x - b). Each combination costs one covariance column, once.
The right-hand side is a constant, or the measurement itself of a cell that is known exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components import Components, components_of
from blue_solvers.components.tree_form import TreeForm
from blue_solvers.solver import Float
from constraint_builders import Problem

RANK_TOLERANCE = 1e-10  # relative to what the combinations' cells could vary: implied and repeated ones drop out
CONTRADICTION_TOLERANCE = 1e-6  # relative; rounding in the squares of what rows make of values stays below its square


class WithEqualities:
    """The exact estimate of a problem with equalities; see the module.

    Parameters
    ----------
    problem : Problem
        Of equal variances within the tables of a geounit, with `equalities` or without.
    known : ndarray of int, optional
        Observed cells whose measurement is exact, whatever variance the problem gives them.

    Attributes
    ----------
    offset : ndarray, (m,)
        Constant part of the estimate.

    Raises
    ------
    ValueError
        If the equalities contradict one another, or structural zeros.
    """

    def __init__(self, problem: Problem, known: NDArray[np.intp] | None = None) -> None:
        self._known = np.zeros(0, dtype=np.intp) if known is None else known
        self._E, b = _combinations(problem, self._known)
        same = problem.desired.names == problem.observed.names
        self._desired = form_of(problem)
        self._observed = self._desired if same else form_of(problem.observing())
        adjoint = self._observed.adjoint(self._E.T.toarray())
        _require_attainable(self._E[: b.size], adjoint[:, : b.size], b)
        weighted = problem.noise_covariance @ adjoint
        self._G = self._desired.apply(weighted)
        covariance = self._E @ self._observed.apply(weighted)
        self._gain = self._G @ covariance_inverse(covariance, abs(self._E) @ np.sqrt(self._observed.variances()))
        self.offset = self._gain[:, : b.size] @ b
        self._data = slice(b.size, None)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        desired = self._desired.apply(Y)
        missing = self._E @ (desired if self._observed is self._desired else self._observed.apply(Y))
        missing[self._data] -= Y[self._known]
        return desired - self._gain @ missing

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        multipliers = self._gain.T @ V
        pulls = self._E.T @ multipliers
        if self._observed is self._desired:
            result = self._desired.adjoint(V - pulls)
        else:
            result = self._desired.adjoint(V) - self._observed.adjoint(pulls)
        result[self._known] += multipliers[self._data]
        return result

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        taken = np.einsum("ij,ij->i", self._gain, self._G)
        return np.maximum(self._desired.variances() - taken, 0.0)

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, before the equalities."""
        return self._desired.violation(Y)


def form_of(problem: Problem) -> Components:
    """The exact estimate of a problem of equal variances within the tables of a geounit, but for its equalities."""
    special = problem.spine is not None or problem.zeros is not None
    return TreeForm(problem) if special else components_of(problem)


def _combinations(problem: Problem, known: NDArray[np.intp]) -> tuple[sparse.csr_array, Float]:
    """E and the right-hand sides that are constant, of its first rows."""
    n = problem.observed.size
    units = sparse.csr_array((np.ones(known.size), (np.arange(known.size), known)), shape=(known.size, n))
    if problem.equalities is None:
        return units, np.zeros(0)
    E, b = problem.equalities
    return sparse.csr_array(sparse.vstack([E, units], format="csr")), b


def _require_attainable(E: sparse.csr_array, adjoint: Float, b: Float) -> None:
    """Refuse E x = b that no consistent x satisfies: combinations of rows that are 0 for all must be 0 on the right.

    `adjoint` is P' E', (n, k): what the rows make of consistent values is what they make of P y.
    """
    lengths = np.sqrt(np.asarray(E.multiply(E).sum(axis=1))).ravel()
    scale = np.where(lengths > 0, lengths, 1.0)
    scaled = adjoint / scale
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    right = b / scale
    always = vectors[:, values <= CONTRADICTION_TOLERANCE**2]
    if (abs(always.T @ right) > CONTRADICTION_TOLERANCE * (abs(always.T) @ abs(right))).any():
        raise ValueError(
            "the equalities contradict one another, the structural zeros or the tables' own sums: no values satisfy "
            "all of them; correct their right-hand side"
        )


def covariance_inverse(covariance: Float, deviations: Float) -> Float:
    """Pseudo-inverse of the combinations' covariance, scaled by the most that each could deviate."""
    scale = np.where(deviations > 0, deviations, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > RANK_TOLERANCE
    scaled = vectors[:, kept] / scale[:, None]
    return (scaled / values[kept]) @ scaled.T
