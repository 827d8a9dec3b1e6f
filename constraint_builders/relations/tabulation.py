"""Desired cells as sums of observed ones, for values that agree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import Table
from constraint_builders.relations.bases import factors_cross
from constraint_builders.relations.marginals import Margin, cell_map, refines
from constraint_builders.relations.measurements import Measurements
from constraint_builders.relations.spine_sums import SpineSums
from constraint_builders.relations.spine_tables import spine_layout

MOST_ELIMINATED = 20_000  # detailed cells, to find out what several tables determine together


def is_small(measured: Measurements) -> bool:
    """Whether detailed cells can be eliminated to find out what several tables determine together."""
    return measured.domain.size <= MOST_ELIMINATED


@dataclass(frozen=True, eq=False)
class Wanted:
    """The tables that are wanted, with a geography each at a level of it, and where they sit in a vector."""

    layout: Layout
    tables: tuple[Table, ...]
    levels: tuple[int, ...]


class Tabulation:
    """From the observed layout to the desired one.

    Parameters
    ----------
    measured : Measurements
    wanted : Wanted
    """

    def __init__(self, measured: Measurements, wanted: Wanted) -> None:
        self._measured = measured
        self._wanted = wanted
        self._same = wanted.layout is measured.observed

    def apply(self, X: Float) -> Float:
        """Sum consistent values over the observed layout, (n, K), to the desired layout, (m, K)."""
        if self._same:
            return X.copy()
        if self._by_matrix:
            return self.entries() @ X
        result = np.empty((self._wanted.layout.size, X.shape[1]))
        for target, source, margin in self._margins:
            result[target] = margin.apply(X[source])
        return result

    def transpose(self, V: Float) -> Float:
        """The transpose of `apply`: (m, K) over the desired layout to (n, K) over the observed one."""
        if self._same:
            return V.copy()
        if self._by_matrix:
            return self.entries().T @ V
        result = np.zeros((self._measured.observed.size, V.shape[1]))
        for target, source, margin in self._margins:
            result[source] += margin.transpose(V[target])
        return result

    def entries(self) -> sparse.csr_array:
        """Desired cells in terms of observed ones, (m, n), for consistent values."""
        m, w = self._measured, self._wanted
        if self._same:
            return sparse.csr_array(sparse.eye_array(m.observed.size, format="csr"))
        if self._by_matrix:
            return self._matrix
        pairs = zip(self._sources, w.tables, w.layout.offsets[:-1], strict=True)
        rows = [cell_map(m.domain.schema, m.observed_tables[i], table) + start for i, table, start in pairs]
        places = np.concatenate(rows), m.observed.cells(self._sources)
        return sparse.csr_array((np.ones(places[0].size), places), shape=(w.layout.size, m.observed.size))

    @cached_property
    def _margins(self) -> tuple[tuple[slice, slice, Margin], ...]:
        """For every desired table: its place, its source's place, and the margin between them."""
        m, w = self._measured, self._wanted
        return tuple(
            (w.layout.block(index), m.observed.block(source), Margin(m.domain.schema, m.observed_tables[source], table))
            for index, (table, source) in enumerate(zip(w.tables, self._sources, strict=True))
        )

    @cached_property
    def _sources(self) -> list[int]:
        """For every desired table, up to one that has none, the smallest observed table that it can be summed from."""
        m, found = self._measured, list[int]()
        if not m.is_tabular:
            return found
        if self._same and m.measured_tables.all():
            return list(range(len(self._wanted.tables)))
        schema = m.domain.schema
        order = sorted(np.flatnonzero(m.measured_tables).tolist(), key=lambda i: m.observed_tables[i].size)
        by_name = {m.observed_tables[i].name: i for i in order}
        holders: dict[int, list[int]] = {}
        for index in order:
            for axis in m.observed_tables[index].axes:
                holders.setdefault(axis, []).append(index)
        for table in self._wanted.tables:
            source = by_name.get(table.name)
            if source is None:
                kept = [axis for axis in table.axes if schema.shape[axis] > 1]
                candidates = min((holders.get(axis, []) for axis in kept), key=len, default=order)
                source = next((i for i in candidates if refines(schema, m.observed_tables[i], table)), None)
            if source is None:
                break
            found.append(source)
        return found

    @property
    def matrix(self) -> sparse.csr_array | None:
        """Desired cells in terms of measured ones, (m, n); None where each table is summed from one observed table."""
        return self._matrix if self._by_matrix else None

    @cached_property
    def _by_matrix(self) -> bool:
        """Whether some desired table may not be summed from one observed table."""
        return self._measured.is_placed or len(self._sources) < len(self._wanted.tables)

    @cached_property
    def _matrix(self) -> sparse.csr_array:
        """Desired cells in terms of measured ones, (m, n), each perhaps of several tables."""
        w = self._wanted
        return self._sums().matrix(w.layout, w.levels, w.tables) if self._measured.is_placed else self._of_several()

    def _of_several(self) -> sparse.csr_array:
        """The matrix without a geography, where a table follows from several observed ones together."""
        m, w = self._measured, self._wanted
        lost = w.layout.names[len(self._sources)]
        if not is_small(m):
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, and its detailed "
                f"cells are more than {MOST_ELIMINATED:,}, too many to find out whether several do together"
            )
        layout = spine_layout(m.domain.schema, m.domain.spine, [("all", str(name)) for name in w.layout.names])
        try:
            return self._sums().matrix(layout, w.levels, w.tables)
        except ValueError:
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, nor do several together"
            ) from None

    def _sums(self) -> SpineSums:
        m, w = self._measured, self._wanted
        return SpineSums(
            m.domain.schema,
            m.domain.places,
            m.observed,
            m.observed_levels,
            m.observed_tables,
            m.typical_variances(),
            m.unmeasured,
            factors_cross(m.domain.schema, [*m.observed_tables, *w.tables]),
            ~m.zeros.detailed(m.domain.leaves) if m.zeros else None,
        )
