"""What was measured and how precisely: tables or other cells, the noise in them, what else is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from constraint_builders.arrays import Float
from constraint_builders.description.areas import Areas
from constraint_builders.description.domain import Domain
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import Noise
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import ONE_PLACE, Spine
from constraint_builders.description.spine_or_areas import Places
from constraint_builders.description.table import Table
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.relations.summing import SummingMatrix


class NoTablesError(ValueError):
    """Tables of a schema are needed, and a problem made from a matrix has none."""


@dataclass(frozen=True)
class Assumptions:
    """Which of the paper's assumptions hold: known covariance, uncorrelated noise, equal variance within tables."""

    A1: bool
    A2: bool
    A3: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Measurements:
    """The fields of a problem that say nothing about what is wanted; see `Problem` for the attributes."""

    observed: Layout
    noise: Noise
    schema: Schema | None = None
    spine: Spine | None = None
    areas: Areas | None = None
    observed_tables: tuple[Table, ...] = ()
    observed_levels: tuple[int, ...] = ()
    zeros: StructuralZeros | None = None
    equalities: tuple[sparse.csr_array, Float] | None = None
    matrix: sparse.csr_array | None = None
    b: Float | None = None
    summing: SummingMatrix | None = None

    @property
    def is_tabular(self) -> bool:
        """Whether the cells are those of tables of a schema, or else nodes that only equations speak of."""
        return self.schema is not None

    @property
    def places(self) -> Places | None:
        """The geounits or the areas of the tables; None where there is no geography."""
        return self.areas if self.spine is None else self.spine

    @cached_property
    def domain(self) -> Domain:
        """The schema and the geography of the tables, of one geounit where there is none.

        Raises
        ------
        NoTablesError
            For a problem made from a matrix.
        """
        if self.schema is None:
            raise NoTablesError("a problem made from a matrix has no schema: this needs the tables of one")
        return Domain(self.schema, self.places or ONE_PLACE)

    @property
    def variances(self) -> Float:
        """Variance of the noise in every observed cell, (n,)."""
        return self.noise.variances

    @property
    def covariance(self) -> sparse.csr_array | LinearOperator | None:
        """Covariance of the noise as it was given; None where it is uncorrelated."""
        return self.noise.covariance

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """Observed cells that are known exactly (variance 0)."""
        return self.noise.exact

    @cached_property
    def unmeasured(self) -> NDArray[np.bool_]:
        """Observed cells that were not measured (variance infinite)."""
        return self.noise.unmeasured

    @property
    def has_unmeasured(self) -> bool:
        """Whether some observed cell was not measured."""
        return self.noise.has_unmeasured

    @property
    def is_placed(self) -> bool:
        """Whether there is a geography: geounits of a spine, or areas."""
        return self.places is not None

    @property
    def has_areas(self) -> bool:
        """Whether its tables are of areas, which may cross."""
        return self.areas is not None

    @property
    def has_zeros(self) -> bool:
        """Whether cells are known to be empty."""
        return self.zeros is not None

    @cached_property
    def known_empty(self) -> StructuralZeros:
        """The cells of tables that are known to be empty: none, of no variables, where nothing is said of that."""
        domain = self.domain
        return self.zeros or StructuralZeros.of(domain.schema, (), np.zeros(domain.places.size, dtype=bool))

    @property
    def zero_axes(self) -> tuple[int, ...]:
        """The schema's variables that decide whether a cell is known to be empty."""
        return self.zeros.axes if self.zeros else ()

    @property
    def has_equalities(self) -> bool:
        """Whether combinations of cells are known exactly."""
        return self.equalities is not None and bool(self.equalities[1].size)

    @property
    def equality_rows(self) -> tuple[sparse.csr_array, Float]:
        """E and b of the equalities E x = b, (k, n) and (k,)."""
        if self.equalities is None:
            return sparse.csr_array((0, self.observed.size)), np.zeros(0)
        return self.equalities

    @property
    def is_correlated(self) -> bool:
        """Whether noise is, so that assumption A2 fails."""
        return self.covariance is not None

    @property
    def is_alike_by_geounit(self) -> bool:
        """Whether noise is independent and of one variance in every table of a geounit: assumptions A2 and A3."""
        return self.geounit_variances is not None

    @property
    def has_only_tables(self) -> bool:
        """Whether tables of one place are all: no geography, no cells known to be empty, no equalities."""
        return not self.is_placed and not self.has_zeros and not self.has_equalities

    @property
    def has_exact_knowledge(self) -> bool:
        """Whether anything else than the tables' own sums is known exactly; that of equations is not asked."""
        return not self.is_tabular or self.has_zeros or self.has_equalities or bool(self.exact.any())

    def leaves_of(self, level: int) -> sparse.csr_array:
        """How every area of a level, or node, weighs the leaves, (areas, leaves)."""
        return self.domain.places.leaves_of(level) if self.summing is None else self.summing.matrix

    @property
    def has_weights(self) -> bool:
        """Whether an area, or a node, weighs leaves by anything but 1."""
        incidence = None if self.areas is None else self.areas.incidence
        weighed = incidence if self.summing is None else self.summing.matrix
        return weighed is not None and bool((weighed.data != 1).any())

    @cached_property
    def measured_tables(self) -> NDArray[np.bool_]:
        """For every observed table whether any of its cells was measured."""
        if self.table_variances is not None:
            return np.isfinite(self.table_variances)
        return np.array([np.isfinite(v).any() for v in np.split(self.variances, self.observed.offsets[1:-1])])

    @cached_property
    def geounit_variances(self) -> list[Float] | None:
        """The one variance of every observed table in every geounit, or None where assumption A2 or A3 fails.

        A list of (geounits,) arrays, one for each table, or of areas; without a geography there is one geounit.
        """
        if self.places is None:
            return None if self.table_variances is None else list(self.table_variances[:, None])
        return self.noise.by_geounit(self.observed, [table.size for table in self.observed_tables])

    @cached_property
    def table_variances(self) -> Float | None:
        """The one variance of every observed table of a problem without a geography; None where A2 or A3 fails."""
        return self.noise.by_table(self.observed) if self.is_tabular and self.places is None else None

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
        equal = self.table_variances is not None or (self.places is not None and self.geounit_variances is not None)
        return Assumptions(A1=finite, A2=self.covariance is None, A3=equal)

    @cached_property
    def noise_covariance(self) -> LinearOperator:
        """The covariance of the noise over the observed layout as an operator, (n, n); unmeasured cells count as 0."""
        return aslinearoperator(self.covariance if self.is_correlated else self.noise.entries())
