"""The noise of the measurements: its law, its covariance Sigma, and what can be done with it.

Who estimates asks the noise, and never what kind it is: a kind is one class, which says what it can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.described import Described, equal
from constraint_builders.description.layout import Layout
from constraint_builders.description.reals import shown
from constraint_builders.diagonals import diagonal_matrix

# By name, where the class is, ``module:class``; it is imported by `noise_mechanisms.laws.kind_of` alone.
NOISE_LAWS: dict[str, str] = {
    "gaussian": "noise_mechanisms.laws.law_classes:Gaussian",
    "discrete_gaussian": "noise_mechanisms.laws.law_classes:DiscreteGaussian",
    "laplace": "noise_mechanisms.laws.law_classes:Laplace",
    "discrete_laplace": "noise_mechanisms.laws.law_classes:DiscreteLaplace",
}


class NoiseLaw(ABC):
    """A law of noise as an object, see `noise_mechanisms.laws`; it may stand where a variance is declared."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def variance(self) -> float:
        """In squared counts."""

    @property
    def mean(self) -> float:
        """What it adds on average, in counts."""
        return 0.0

    @property
    def excess_kurtosis(self) -> float:
        """That of Gaussian noise, for which its tails are taken where a law says nothing else."""
        return 0.0

    @property
    def by_proxy(self) -> float:
        """Its variance by its sub-Gaussian variance proxy; 0 where none is known."""
        return 0.0

    def impossible(self, figures: Float) -> Flags:
        """Which figures, (...), no count leads to."""
        return np.zeros(np.shape(figures), dtype=bool)

    @property
    def copies_are_independent(self) -> bool:
        """Whether figures of one cell that stand in several tables are measurements of their own."""
        return True

    def contradicted(self, cell: Index, figures: Float) -> Index:
        """Cells of which no count leads to all figures, (k,), that are of these cells, (k,)."""
        return cell[:0]

    @property
    def declared(self) -> str | NoiseLaw:
        """Its name, where that and a variance say all; otherwise the law."""
        return self.name


WHOLE_PART = 1e-9  # relative: by which a law's variance, divided by that of a mean, may miss a whole number
LawOrName: TypeAlias = str | NoiseLaw


def common_law(laws: Sequence[NoiseLaw], law: LawOrName) -> LawOrName:
    """What tables that declare these have as theirs, `law` being that of those that declare variances.

    Raises
    ------
    ValueError
        If they are not one, or leave counts as they are.
    """
    for own in dict.fromkeys(laws):
        _refuse_no_variance(own)
    found = list(dict.fromkeys(own.declared for own in laws)) or [law]
    if len(found) > 1 or (law not in ("gaussian", found[0])):
        others = ", ".join(str(own) for own in dict.fromkeys([*found, law] if law != "gaussian" else found))
        raise ValueError(f"tables have noise of several laws, {others}: the noise of a problem has one")
    return found[0]


def refuse_variances_beside_law(noise: Noise, observed: Layout) -> None:
    """Refuse variances that are not those of a law that is an object, nor of the mean of figures that have it.

    Raises
    ------
    ValueError
        If a finite variance is no whole part of the law's, or that is 0.
    """
    if isinstance(noise.law, str) or noise.covariance is not None:
        return
    _refuse_no_variance(noise.law)
    own = noise.variances
    parts = np.divide(noise.law.variance, own, out=np.ones_like(own), where=(own > 0) & np.isfinite(own))
    wrong = (np.rint(parts) < 1) | (abs(parts - np.rint(parts)) > WHOLE_PART * parts)
    why = "{} has the variance {:g} beside the law {!r}, of {:g}: give all noisy tables the law, or variances alone"
    observed.refuse(wrong, why, own, noise.law, noise.law.variance)


def _refuse_no_variance(law: NoiseLaw) -> None:
    """Refuse a law whose variance would be taken for that of exact values."""
    if not law.variance > 0:
        raise ValueError(
            f"the law {law!r} leaves large counts as they are: its variance would be 0, which means known exactly; "
            "give variances"
        )


def require_law(name: Any, what: str = "noise") -> LawOrName:
    """The name of a law, or a law, as it is; `ValueError` for anything else, with `what` it was given for."""
    if not isinstance(name, NoiseLaw) and (not isinstance(name, str) or name not in NOISE_LAWS):
        raise ValueError(f"{what} must be one of {', '.join(NOISE_LAWS)}, or a law: got {shown(name)}")
    return name


class Noise(Described, ABC):
    """Centred noise over the observed layout; equal to the name of its law, as ``problem.noise == "laplace"``.

    Parameters
    ----------
    law : str or NoiseLaw
        A name in `NOISE_LAWS`, or a law.
    variances : ndarray, (n,)
        Diagonal of Sigma: 0 where a cell is known exactly, ``inf`` where it was not measured.

    Attributes
    ----------
    has_entries : bool
        Whether `entries` gives a matrix.
    is_shared : bool
        Whether Sigma is that of independent noise and a few sources that cells share: `own` and `sources`.
    is_singular : bool
        Whether Sigma is known to have no inverse: combinations of noisy cells are known exactly.

    Raises
    ------
    ValueError
        If there is no such law.
    """

    has_entries: ClassVar[bool] = True
    is_shared: ClassVar[bool] = False
    is_singular: ClassVar[bool] = False

    def __init__(self, law: LawOrName, variances: Float) -> None:
        self.law, self._variances = require_law(law), variances
        self._variances.flags.writeable = False

    @property
    def variances(self) -> Float:
        """Diagonal of Sigma, (n,)."""
        return self._variances

    @property
    def different_variances(self) -> Float:
        """Every variance that some cell has, once for some runs of cells."""
        return self._variances

    @property
    def exact(self) -> Flags:
        """Cells that are known exactly, (n,)."""
        return self.variances == 0

    @property
    def unmeasured(self) -> Flags:
        """Cells that were not measured, (n,)."""
        return np.isinf(self.variances)

    @cached_property
    def has_unmeasured(self) -> bool:
        """Whether some cell was not measured."""
        return bool(np.isinf(self._variances).any())

    @property
    @abstractmethod
    def covariance(self) -> sparse.csr_array | LinearOperator | None:
        """Sigma as it was given; None where noise is uncorrelated."""

    @abstractmethod
    def __matmul__(self, X: Float) -> Float:
        """Sigma X, (n,) or (n, K); cells that were not measured count as 0."""

    @property
    @abstractmethod
    def solve(self) -> Callable[[Float], Float] | None:
        """Sigma^-1 times (n,) or (n, K); None where it is not known how."""

    @abstractmethod
    def entries(self) -> sparse.csr_array | None:
        """Sigma as a sparse matrix, cells that were not measured counting as 0; None where it has too many entries."""

    @abstractmethod
    def at(self, cells: Index) -> Noise:
        """The noise of the cells at some positions, (k,), in that order."""

    @property
    def sources(self) -> Float:
        """U with Sigma = D + U U', D being what is `own`: a column for every source that cells share, (n, k)."""
        return np.zeros((self.variances.size, 0))

    @property
    def own(self) -> Noise:
        """The noise without the sources that cells share."""
        return self

    @property
    def factor(self) -> Float:
        """F with Sigma = F F', (n, k), where `is_singular`; without columns where it is not, or nobody knows."""
        return np.zeros((self.variances.size, 0))

    def by_geounit(self, observed: Layout, cells: Sequence[int]) -> list[Float] | None:
        """The one variance of every table in every geounit, (geounits,) for each table; None where they are not equal.

        Parameters
        ----------
        observed : Layout
        cells : sequence of int
            The number of cells that each table has in a geounit.
        """
        return None

    def by_table(self, observed: Layout) -> Float | None:
        """The one variance of every table, (tables,); None where variances differ within one."""
        return None

    def had_been_measured(self, cells: Index, variance: float) -> Noise:
        """The same noise, had some cells, (k,), been measured that were not, with a variance."""
        return self

    @abstractmethod
    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """Gaussian columns of covariance Sigma, (n, columns), 0 where nothing was measured: simulation only.

        Raises
        ------
        ValueError
            If they cannot be drawn.
        """

    def centred(self, y: Float) -> Float:
        """Measurements, (n,) or (n, K), less what the law adds on average where there is noise."""
        if not isinstance(self.law, NoiseLaw) or not self.law.mean:
            return y
        return (y.T - np.where(self.exact | self.unmeasured, 0.0, self.law.mean)).T

    def published(self, y: Float) -> Float:
        """What `centred` was made of, (n,) or (n, K)."""
        if not isinstance(self.law, NoiseLaw) or not self.law.mean:
            return y
        return (y.T + np.where(self.exact | self.unmeasured, 0.0, self.law.mean)).T

    def of_law(self, law: LawOrName) -> Noise:
        """The same noise of another law."""
        other = copy(self)
        other.law = require_law(law)
        return other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str | NoiseLaw):
            return self.law == other
        if not isinstance(other, Noise):
            return NotImplemented
        same = type(self) is type(other) and self.law == other.law
        return same and equal(self.variances, other.variances) and equal(self.covariance, other.covariance)

    def __hash__(self) -> int:
        return hash(self.law)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.law!r}, {self.variances.size:,} cells)"


class IndependentNoise(Noise):
    """Noise that is independent from cell to cell.

    Parameters
    ----------
    law : str or NoiseLaw
    variances : ndarray, (n,) or (runs,)
    counts : ndarray of int, (runs,), optional
        How many cells, one after another, have each of the variances: then they are laid out only where somebody asks.
    """

    def __init__(self, law: LawOrName, variances: Float, counts: Index | None = None) -> None:
        super().__init__(law, variances)
        self._counts = counts

    def _of_cells(self, of_runs: NDArray) -> NDArray:
        """For every cell, (n,), what is said of its run of equal variances, (runs,)."""
        return of_runs if self._counts is None else np.repeat(of_runs, self._counts)

    def _flags(self, of_runs: Flags) -> Flags:
        """The same of flags, (n,), without memory where there are none."""
        if self._counts is None or of_runs.any():
            return self._of_cells(of_runs)
        return np.zeros(int(self._counts.sum()), dtype=bool)  # no memory is taken for what nobody writes to

    @cached_property
    def variances(self) -> Float:
        """Of every cell, (n,)."""
        variances: Float = self._of_cells(self._variances)
        variances.flags.writeable = False
        return variances

    @property
    def exact(self) -> Flags:
        """Cells that are known exactly, (n,)."""
        return self._flags(self._variances == 0)

    @property
    def unmeasured(self) -> Flags:
        """Cells that were not measured, (n,)."""
        return self._flags(np.isinf(self._variances))

    @property
    def covariance(self) -> None:
        """None: the variances say all."""
        return None

    @property
    def _finite(self) -> Float:
        return np.where(np.isinf(self.variances), 0.0, self.variances)

    def __matmul__(self, X: Float) -> Float:
        """Each cell's variance times X, (n,) or (n, K); cells that were not measured count as 0."""
        return (X.T * self._finite).T

    @property
    def solve(self) -> Callable[[Float], Float]:
        """Divide by the variances; refused where a cell is known exactly."""
        return self._divided

    def _divided(self, V: Float) -> Float:
        """Sigma^-1 V, (n, K); `ValueError` where a cell is exact."""
        if not self.variances.all():
            cell = int(np.flatnonzero(self.variances == 0)[0])
            raise ValueError(f"cell {cell} is known exactly, so the covariance has no inverse: leave exact cells out")
        return (V.T / self.variances).T

    def entries(self) -> sparse.csr_array:
        """The diagonal."""
        return diagonal_matrix(self._finite)

    def at(self, cells: Index) -> IndependentNoise:
        """The noise of the cells at some positions, (k,)."""
        return IndependentNoise(self.law, self.variances[cells])

    def by_geounit(self, observed: Layout, cells: Sequence[int]) -> list[Float] | None:
        """The one variance of every table in every geounit."""
        if self._counts is not None:
            geounits = observed.sizes // np.array(cells)
            if np.array_equal(self._counts, np.repeat(cells, geounits)):
                return np.split(self._variances, np.cumsum(geounits)[:-1])
        blocks = [self.variances[observed.block(i)].reshape(-1, size) for i, size in enumerate(cells)]
        return [block[:, 0] for block in blocks] if all((block == block[:, :1]).all() for block in blocks) else None

    def by_table(self, observed: Layout) -> Float | None:
        """The one variance of every table."""
        counts = self._counts
        if counts is observed.sizes or (counts is not None and np.array_equal(counts, observed.sizes)):
            return self._variances
        starts = observed.offsets[:-1]
        low, high = (reduction.reduceat(self.variances, starts) for reduction in (np.minimum, np.maximum))
        return low if np.array_equal(low, high) else None

    def had_been_measured(self, cells: Index, variance: float) -> IndependentNoise:
        """The same with other variances of some cells, (k,)."""
        variances = np.array(self.variances)
        variances[cells] = variance
        return IndependentNoise(self.law, variances)

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """Every cell's own."""
        return np.sqrt(self._finite)[:, None] * rng.standard_normal((self.variances.size, columns))
