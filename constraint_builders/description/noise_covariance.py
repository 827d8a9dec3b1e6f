"""Noise that is correlated between cells: the kinds of it, and reading what noise measurements have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, splu

from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.low_rank import LowRankPlusDiagonal
from constraint_builders.description.noise import IndependentNoise, LawOrName, Noise, require_law
from constraint_builders.description.reals import LARGEST, checked_variances, read_matrix, refuse_extreme, refuse_masked

MOST_SINGULAR = 3_000  # cells of a covariance whose rank is found by dense algebra
SINGULAR = 1e-15  # times cells: eigenvalues of correlations that rounding may leave of 0
IN_OTHER_UNITS = "measure in smaller units, whose variances are larger"
SYMMETRY_TOLERANCE = 1e-10
SOLVE_TOLERANCE = 1e-6  # of what a solution leaves: an iterative one is good enough, a wrong one is far above


class InOrder(LinearOperator):
    """A covariance whose cells are at other positions; with the inverse of one that has it."""

    def __init__(self, covariance: LinearOperator, order: Index) -> None:
        super().__init__(np.dtype(np.float64), covariance.shape)
        self._covariance, self._order = covariance, order

    def _back(self, X: Float) -> Float:
        """Columns (n, K) in the order that the covariance has."""
        given = np.empty(X.shape)
        given[self._order] = X
        return given

    def _matmat(self, X: Float) -> Float:
        return self._covariance.matmat(self._back(X))[self._order]

    def _adjoint(self) -> InOrder:
        return self

    @property
    def solve(self) -> Callable[[Float], Float]:
        """The inverse times (n, K); `AttributeError` where the covariance has none."""
        inverse = self._covariance.solve
        return lambda V: np.asarray(inverse(self._back(V)))[self._order]


class CorrelatedNoise(Noise):
    """Noise of a covariance, whose entries are known where `has_entries` says so."""

    has_entries = False

    def __init__(self, law: LawOrName, covariance: Any, variances: Float) -> None:
        super().__init__(law, variances)
        self._covariance = covariance

    @property
    def covariance(self) -> Any:
        """As it was given."""
        return self._covariance

    def __matmul__(self, X: Float) -> Float:
        """The covariance times X, (n,) or (n, K)."""
        return np.asarray(self._covariance @ X)

    def entries(self) -> sparse.csr_array | None:
        """None: they are not known, or every cell is correlated with every other."""
        return None


class SparseNoise(CorrelatedNoise):
    """Noise of a sparse covariance, positive definite."""

    has_entries = True

    def __init__(self, law: LawOrName, covariance: sparse.csr_array) -> None:
        super().__init__(law, covariance, covariance.diagonal())

    @property
    def solve(self) -> Callable[[Float], Float] | None:
        """By a sparse factorisation, each time anew."""
        return lambda V: splu(sparse.csc_array(self._covariance)).solve(V)

    def entries(self) -> sparse.csr_array:
        """The matrix."""
        matrix: sparse.csr_array = self._covariance
        return matrix

    def at(self, cells: Index) -> SparseNoise:
        """The noise of the cells at some positions, (k,)."""
        return SparseNoise(self.law, sparse.csr_array(self._covariance[cells][:, cells]))

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """By a Cholesky factor of each block of connected cells."""
        blocks, labels = sparse.csgraph.connected_components(self._covariance, directed=False)
        noise = rng.standard_normal((self.variances.size, columns))
        alone = np.bincount(labels)[labels] == 1
        noise[alone] *= np.sqrt(self.variances[alone])[:, None]
        order = np.argsort(labels, kind="stable")
        for cells in np.split(order, np.cumsum(np.bincount(labels, minlength=blocks))[:-1]):
            if cells.size > 1:
                noise[cells] = np.linalg.cholesky(self._covariance[cells][:, cells].toarray()) @ noise[cells]
        return noise


class LowRankNoise(CorrelatedNoise):
    """Noise that is independent but for a few sources that many cells share."""

    is_shared = True

    def __init__(self, law: LawOrName, covariance: LowRankPlusDiagonal) -> None:
        super().__init__(law, covariance, covariance.variances)

    @property
    def sources(self) -> Float:
        """U of the covariance D + U U', (n, k)."""
        return self._covariance.factor

    @property
    def own(self) -> IndependentNoise:
        """That of the variances D."""
        return IndependentNoise(self.law, np.array(self._covariance.diagonal))

    @property
    def solve(self) -> Callable[[Float], Float]:
        """By Woodbury's identity."""
        return self._covariance.solve

    def at(self, cells: Index) -> LowRankNoise:
        """The noise of the cells at some positions, (k,)."""
        own = self._covariance
        return LowRankNoise(self.law, LowRankPlusDiagonal(own.diagonal[cells], own.factor[cells]))

    def had_been_measured(self, cells: Index, variance: float) -> LowRankNoise:
        """The same with other variances of some cells' own noise, (k,)."""
        diagonal = np.array(self._covariance.diagonal)
        diagonal[cells] = variance
        return LowRankNoise(self.law, LowRankPlusDiagonal(diagonal, self._covariance.factor))

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """Every cell's own, and what the sources make of theirs."""
        D, U = self._covariance.diagonal[:, None], self._covariance.factor
        own = np.sqrt(np.where(np.isinf(D), 0.0, D)) * rng.standard_normal((len(D), columns))
        return own + U @ rng.standard_normal((U.shape[1], columns))


class OperatorNoise(CorrelatedNoise):
    """Noise of a covariance that is known by its products only, and by a method ``solve`` where it has one."""

    @property
    def solve(self) -> Callable[[Float], Float] | None:
        """The operator's own method."""
        return getattr(self._covariance, "solve", None)

    def at(self, cells: Index) -> OperatorNoise:
        """The noise of the same cells in another order."""
        return OperatorNoise(self.law, InOrder(self._covariance, cells), self.variances[cells])

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """Refused."""
        raise ValueError("correlated noise cannot be drawn from an operator: give the covariance as a sparse matrix")


class SingularNoise(SparseNoise):
    """Noise that some combinations of cells have none of: these are known exactly, as they were measured.

    Parameters
    ----------
    law : str or NoiseLaw
    covariance : csr_array, (n, n)
    factor : ndarray, (n, k)
        F with Sigma = F F'.
    """

    is_singular = True

    def __init__(self, law: LawOrName, covariance: sparse.csr_array, factor: Float) -> None:
        super().__init__(law, covariance)
        self._factor = factor

    @property
    def factor(self) -> Float:
        """F with Sigma = F F', (n, k)."""
        return self._factor

    @property
    def solve(self) -> None:
        """None: there is no inverse."""
        return None

    def at(self, cells: Index) -> SingularNoise:
        """The noise of the cells at some positions, (k,)."""
        return SingularNoise(self.law, sparse.csr_array(self._covariance[cells][:, cells]), self._factor[cells])

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """By the factor."""
        return self._factor @ rng.standard_normal((self._factor.shape[1], columns))


def singular_factor(matrix: sparse.csr_array) -> Float:
    """F, (n, k), of a singular covariance F F', k being its rank.

    Raises
    ------
    ValueError
        If a combination of cells would have a variance below 0, or there are too many cells.
    """
    size = matrix.shape[0]
    if size > MOST_SINGULAR:
        raise ValueError(
            f"covariance is singular or not positive definite: of more than {MOST_SINGULAR:,} cells give every "
            "combination a variance above 0, or LowRankPlusDiagonal"
        )
    deviations = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    inverse = np.divide(1.0, deviations, out=np.zeros(size), where=deviations > 0)
    eigenvalues, vectors = np.linalg.eigh(matrix.toarray() * np.outer(inverse, inverse))
    rounding = SINGULAR * size * max(float(eigenvalues[-1]), 1.0)
    alone = matrix[np.flatnonzero(deviations == 0)]
    if eigenvalues[0] < -rounding or (alone.nnz and abs(alone.data).max() > 0):
        raise ValueError(
            "covariance is not positive semi-definite: a combination of cells would have a variance below 0"
        )
    kept = eigenvalues > rounding
    return deviations[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept])


def read_noise(observed: Layout, variances: Float, covariance: Any = None, law: LawOrName = "gaussian") -> Noise:
    """The noise of the measurements.

    Parameters
    ----------
    observed : Layout
    variances : ndarray, (n,)
        NaN where the covariance has them.
    covariance : sparse array, ndarray or LinearOperator, (n, n), optional
    law : str or NoiseLaw

    Raises
    ------
    ValueError
        If there is no such law, a variance is missing or differs from the covariance's diagonal, the covariance's shape
        is wrong, a value is not finite, or of its diagonal below 1e-100, or it is not symmetric and positive
        semi-definite, or singular of thousands of cells. Of an operator only its diagonal and its action on random
        vectors is checked, and that of its method ``solve`` where it has one.
    """
    if covariance is None:
        noise: Noise = IndependentNoise(law, variances)
        observed.refuse(np.isnan(variances), "no variance for {}: give one, or a covariance")
        return noise
    noise = _correlated(law, covariance, observed)
    given = ~np.isnan(variances)
    if not np.allclose(variances[given], noise.variances[given], rtol=1e-9, atol=0):
        raise ValueError("observed variances differ from the covariance's diagonal: give None for them, or one value")
    return noise


def _correlated(law: LawOrName, covariance: Any, observed: Layout) -> Noise:
    require_law(law)
    refuse_masked(covariance, "covariance")
    size = observed.size
    if np.shape(covariance) != (size, size):
        raise ValueError(f"covariance must have shape ({size}, {size}): got {np.shape(covariance)}")
    if isinstance(covariance, LowRankPlusDiagonal):
        return LowRankNoise(law, covariance)
    if isinstance(covariance, LinearOperator):
        _check_operator(covariance)
        diagonal = _diagonal(covariance)
        refuse_extreme(diagonal, "diagonal of the covariance", IN_OTHER_UNITS)
        return OperatorNoise(law, covariance, diagonal)
    matrix = read_matrix(observed.square(covariance, "covariance"), "covariance", LARGEST, 0.0)
    if abs(matrix - matrix.T).max() > SYMMETRY_TOLERANCE * abs(matrix.data).max(initial=0.0):
        raise ValueError("covariance is not symmetric: a covariance equals its transpose")
    refuse_extreme(matrix.diagonal(), "diagonal of the covariance", IN_OTHER_UNITS)
    return (
        SparseNoise(law, matrix) if _positive_definite(matrix) else SingularNoise(law, matrix, singular_factor(matrix))
    )


def _positive_definite(matrix: sparse.csr_array) -> bool:
    """Whether a sparse symmetric matrix (n, n) factorises with positive pivots, none lost to rounding."""
    diagonal = matrix.diagonal()
    if diagonal.min(initial=np.inf) <= 0:
        return False
    scaling = sparse.diags_array(1 / np.sqrt(diagonal))
    correlation = sparse.csc_array(scaling @ matrix @ scaling)
    try:
        factors = splu(correlation, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        return False
    pivots = factors.U.diagonal()
    return bool(np.array_equal(factors.perm_r, factors.perm_c) and pivots.min() > 1e-14)


def _check_operator(operator: LinearOperator) -> None:
    u, v = np.random.default_rng(0).standard_normal((2, operator.shape[0]))
    image_u, image_v = operator.matvec(u), operator.matvec(v)
    if not (np.isfinite(image_u).all() and np.isfinite(image_v).all()):
        raise ValueError("covariance operator returns NaN or infinite values")
    scale = np.linalg.norm(u) * np.linalg.norm(image_v)
    if abs(v @ image_u - u @ image_v) > 1e-8 * scale:
        raise ValueError("covariance operator is not symmetric: a covariance equals its transpose")
    if min(u @ image_u, v @ image_v) <= 0:
        raise ValueError("covariance operator is not positive definite")
    if hasattr(operator, "solve"):
        missing = operator.matvec(np.asarray(operator.solve(v[:, None]))[:, 0]) - v
        if not np.linalg.norm(missing) <= SOLVE_TOLERANCE * np.linalg.norm(v):
            raise ValueError("the covariance operator's method solve does not give its inverse times (n, K) vectors")


def _diagonal(operator: LinearOperator, block: int = 64) -> NDArray[np.float64]:
    size = operator.shape[0]
    diagonal = np.empty(size)
    for start in range(0, size, block):
        columns = np.arange(start, min(start + block, size))
        units = np.zeros((size, columns.size))
        units[columns, np.arange(columns.size)] = 1
        diagonal[columns] = operator.matmat(units)[columns, np.arange(columns.size)]
    return diagonal


def read_variances(observed: Layout, variances: ArrayLike, unmeasured: NDArray[np.bool_]) -> Float:
    """Other variances, (n,), of the same measurements.

    Raises
    ------
    ValueError
        If the shape does not fit, a variance is negative or NaN, or a measured cell's is infinite.
    """
    values = checked_variances(observed.one_vector(variances, "variances"), "variances")
    observed.refuse(np.isinf(values) & ~unmeasured, "{} was measured: its variance cannot be infinite")
    return values
