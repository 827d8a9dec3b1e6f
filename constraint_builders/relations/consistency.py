"""What holds between tables: their self-consistency, of one geographic unit, up and down a spine, or between areas."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.domain import Domain
from constraint_builders.relations.bases import factors_cross
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.elimination import relations_between_rows
from constraint_builders.relations.equations import Equations, Relations
from constraint_builders.relations.marginals import marginal_matrix, placed_marginal_matrix
from constraint_builders.relations.measurements import Measurements
from constraint_builders.relations.placed import consistency_of
from constraint_builders.relations.spine_sums import UNOBSERVED_VARIANCE


class TableRelations(Relations):
    """The equations of tables.

    Parameters
    ----------
    measured : Measurements
    domain : Domain
        What its tables count.
    """

    def __init__(self, measured: Measurements, domain: Domain) -> None:
        super().__init__(measured)
        self._schema, self._domain = domain.schema, domain

    @cached_property
    def structure(self) -> SelfConsistency:
        """Self-consistency of the tables that were measured, each with its typical variance."""
        return self._structure([np.asarray(v) for v in self._measured.typical_variances()])

    def _structure(self, variances: list[Float]) -> SelfConsistency:
        m = self._measured
        return consistency_of(self._schema, self._domain.places, m.observed_levels, m.observed_tables, variances)

    def _structure_of_all(self) -> SelfConsistency:
        """The same of tables that were not measured too."""
        return self._structure([np.minimum(v, UNOBSERVED_VARIANCE) for v in self._measured.typical_variances()])

    @cached_property
    def recodes_cross(self) -> bool:
        """Whether recodes of a variable cross so that no basis of group sums serves all of them."""
        return factors_cross(self._schema, self._measured.observed_tables)

    @property
    def _special(self) -> bool:
        """Whether something else than self-consistency between the tables' own cells holds."""
        return self._measured.has_zeros or self._measured.has_equalities or self.recodes_cross

    @cached_property
    def partly_measured(self) -> bool:
        """Whether unmeasured cells must be eliminated: tables measured in part, or other equations."""
        m = self._measured
        if self._special or not m.has_unmeasured:
            return m.has_unmeasured
        if m.is_placed:
            sizes = [table.size for table in m.observed_tables]
            typical = zip(sizes, m.typical_variances(), strict=True)
            whole = sum(size * int(np.isinf(v).sum()) for size, v in typical)
        else:
            whole = int(m.observed.sizes[~m.measured_tables].sum())
        return int(m.unmeasured.sum()) > whole

    @property
    def is_structural(self) -> bool:
        """Whether the equations are those of self-consistency alone, between tables measured whole."""
        return not self._special and not self.partly_measured

    @property
    def rank(self) -> int:
        """Number of independent equations."""
        return self.structure.rank if self.is_structural else super().rank

    @cached_property
    def tied(self) -> Flags:
        """Which observed cells an equation speaks of, (n,)."""
        if not self.is_structural:
            return super().tied
        tables = zip(self.structure.tied_places(), self._measured.observed_tables, strict=True)
        return np.concatenate([np.repeat(places, table.size) for places, table in tables])

    def equations(self, rows: str) -> Equations:
        """A and b of the rows "independent" or "all"."""
        return _homogeneous(self.structure.matrix(rows)) if self.is_structural else super().equations(rows)

    def between_cells(self, rows: str) -> Equations:
        """Self-consistency, of unmeasured cells too where equalities or zeros may speak of them."""
        m = self._measured
        if m.has_zeros or self.recodes_cross:
            return _homogeneous(self._between_possible_cells(rows))
        if not m.has_equalities or not m.has_unmeasured:
            return _homogeneous(self.structure.matrix(rows))
        return _homogeneous(self._structure_of_all().matrix(rows))

    def _between_any_cells(self) -> sparse.csr_array:
        if self._measured.has_zeros or self.recodes_cross:
            return self._between_possible_cells("independent")
        return self._structure_of_all().matrix()

    def _between_possible_cells(self, rows: str) -> sparse.csr_array:
        """What holds between observed cells where some are empty: self-consistency, and that these are 0.

        That takes the cells themselves among the observed ones, each leaf's. Where some leaf has none, and where
        recodes cross, the detailed cells are eliminated.
        """
        first = self._detailed_cells()
        if self.recodes_cross or (first < 0).any():
            return self._of_possible_cells()
        numbers, cells = self._domain.leaves, np.arange(self._domain.size // first.size)
        empty = (first[:, None] + cells).ravel()[self._measured.known_empty.detailed(numbers)]
        size = self._measured.observed.size
        possible = np.ones(size)
        possible[empty] = 0
        between = sparse.csr_array(self._structure_of_all().matrix(rows) @ sparse.diags_array(possible))
        between.eliminate_zeros()
        units = sparse.csr_array((np.ones(empty.size), (np.arange(empty.size), empty)), shape=(empty.size, size))
        return sparse.csr_array(sparse.vstack([between, units], format="csr"))

    def _detailed_cells(self) -> Index:
        """Of every leaf the first cell of an observed detailed table of that leaf alone; -1 if it has none."""
        m, names = self._measured, self._schema.names
        first = np.full(self._domain.leaves.size, -1, dtype=np.intp)
        for index, (level, table) in enumerate(zip(m.observed_levels, m.observed_tables, strict=True)):
            if table.factors != names:
                continue
            places = self._domain.places.leaves_of(level)
            alone = np.flatnonzero(np.diff(places.indptr) == 1)
            own = places.indptr[alone]
            alone, own = alone[places.data[own] == 1], own[places.data[own] == 1]
            first[places.indices[own]] = m.observed.offsets[index] + alone * table.size
        return first

    def _of_possible_cells(self) -> sparse.csr_array:
        """What holds between observed cells: the detailed cells, but for structural zeros, are eliminated."""
        m = self._measured
        M = self.marginal_matrix()
        if m.has_zeros:
            M = M[:, np.flatnonzero(~m.known_empty.detailed(self._domain.leaves))]
        return relations_between_rows(M)

    def marginal_matrix(self) -> sparse.csr_array:
        """The 0/1 matrix from the detailed histograms, of leaves, to all observed cells."""
        m = self._measured
        if m.is_placed:
            return placed_marginal_matrix(self._schema, self._domain.places, m.observed_levels, m.observed_tables)
        return marginal_matrix(self._schema, m.observed_tables)

    @property
    def must_be_completed(self) -> bool:
        """Whether cells that were not measured take part; with a geography desired cells never rest on them."""
        return not self._measured.is_placed and self.partly_measured

    @cached_property
    def between_exact(self) -> Equations:
        """The equations that hold between exactly known cells alone: (A, b), A of shape (rows, n)."""
        by_geounit = self._measured.geounit_variances
        if self.is_structural and by_geounit is not None:
            exact = [np.where(variance == 0, 1.0, np.inf) for variance in by_geounit]
            return _homogeneous(self._structure(exact).matrix())
        return super().between_exact


def _homogeneous(A: sparse.csr_array) -> Equations:
    return A, np.zeros(A.shape[0])
