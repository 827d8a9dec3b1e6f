"""What was measured and how precisely: tables or other cells, the noise in them, what else is known about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from constraint_builders.description.layout import Float, Layout
from constraint_builders.description.noise_covariance import read_covariance
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.relations.bases import factor_bases
from constraint_builders.relations.summing import SummingMatrix

NOISE_LAWS = ("gaussian", "discrete_gaussian", "laplace", "discrete_laplace")


@dataclass(frozen=True)
class Assumptions:
    """Which of the paper's assumptions hold: known covariance, uncorrelated noise, equal variance within tables."""

    A1: bool
    A2: bool
    A3: bool


class Measurements:
    """The part of a problem that says nothing about what is wanted; see `Problem` for the attributes."""

    schema: Schema | None = None
    spine: Spine | None = None
    observed: Layout
    observed_tables: tuple[Table, ...] = ()
    observed_levels: tuple[int, ...] = ()
    variances: Float
    covariance: sparse.csr_array | LinearOperator | None = None
    noise: str = "gaussian"
    zeros: StructuralZeros | None = None
    equalities: tuple[sparse.csr_array, Float] | None = None
    matrix: sparse.csr_array | None = None
    b: Float | None = None
    summing: SummingMatrix | None = None

    def _set_noise(self, variances: Float, covariance: Any, noise: str) -> None:
        """Variances where they are given, NaN where the covariance has them."""
        if noise not in NOISE_LAWS:
            raise ValueError(f"noise must be one of {NOISE_LAWS}: got {noise!r}")
        self.noise = noise
        if covariance is not None:
            self.covariance, diagonal = read_covariance(covariance, variances.size)
            given = ~np.isnan(variances)
            if not np.allclose(variances[given], diagonal[given], rtol=1e-9, atol=0):
                raise ValueError(
                    "observed variances differ from the covariance's diagonal: give None for them, or one value"
                )
            variances = diagonal
        elif np.isnan(variances).any():
            where = self.observed.describe(int(np.flatnonzero(np.isnan(variances))[0]))
            raise ValueError(f"no variance for {where}: give one, or a covariance")
        self.variances = variances
        self.variances.flags.writeable = False

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """Observed cells that are known exactly (variance 0)."""
        return self.variances == 0

    @cached_property
    def unmeasured(self) -> NDArray[np.bool_]:
        """Observed cells that were not measured (variance infinite)."""
        return np.isinf(self.variances)

    @cached_property
    def measured_tables(self) -> NDArray[np.bool_]:
        """For every observed table whether any of its cells was measured."""
        return np.array([np.isfinite(v).any() for v in np.split(self.variances, self.observed.offsets[1:-1])])

    @cached_property
    def geounit_variances(self) -> list[Float] | None:
        """The one variance of every observed table in every geounit, or None where assumption A2 or A3 fails.

        A list of (geounits,) arrays, one for each table; without a spine there is one geounit.
        """
        if self.covariance is not None or self.schema is None:
            return None
        blocks = [
            self.variances[self.observed.block(i)].reshape(-1, table.size)
            for i, table in enumerate(self.observed_tables)
        ]
        if all((block == block[:, :1]).all() for block in blocks):
            return [block[:, 0] for block in blocks]
        return None

    @cached_property
    def table_variances(self) -> Float | None:
        """The one variance of every observed table of a problem without a spine; None where A2 or A3 fails."""
        if self.covariance is not None or self.schema is None or self.spine is not None:
            return None
        starts = self.observed.offsets[:-1]
        low, high = (reduction.reduceat(self.variances, starts) for reduction in (np.minimum, np.maximum))
        return low if np.array_equal(low, high) else None

    def typical_variances(self) -> list[Float]:
        """Mean variance of the measured cells of every table in every geounit, infinite where there is none."""
        if self.geounit_variances is not None:
            return self.geounit_variances
        typical = []
        for i, table in enumerate(self.observed_tables):
            cells = self.variances[self.observed.block(i)].reshape(-1, table.size)
            measured = np.isfinite(cells)
            total, count = np.where(measured, cells, 0).sum(axis=1), measured.sum(axis=1)
            typical.append(np.divide(total, count, out=np.full(len(cells), np.inf), where=count > 0))
        return typical

    @property
    def assumptions(self) -> Assumptions:
        """Which of the paper's assumptions hold."""
        finite = bool(np.isfinite(self.variances).all())
        equal = self.table_variances is not None or (self.spine is not None and self.geounit_variances is not None)
        return Assumptions(A1=finite, A2=self.covariance is None, A3=equal)

    @cached_property
    def noise_covariance(self) -> LinearOperator:
        """The covariance of the noise over the observed layout as an operator, (n, n); unmeasured cells count as 0."""
        if self.covariance is not None:
            return aslinearoperator(self.covariance)
        return aslinearoperator(sparse.diags_array(np.where(self.unmeasured, 0.0, self.variances)))

    @cached_property
    def recodes_cross(self) -> bool:
        """Whether recodes of a variable cross so that no basis of group sums serves all of them."""
        return self.schema is not None and factors_cross(self.schema, self.observed_tables)


def factors_cross(schema: Schema, tables: Iterable[Table]) -> bool:
    """Whether recodes of tables cross so that no basis of group sums serves all of them."""
    try:
        factor_bases(schema, (factor for table in tables for factor in table.factors))
    except NotImplementedError:
        return True
    return False
