"""Desired cells as sums of observed ones, for values that agree."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.relations.bases import factors_cross
from constraint_builders.relations.marginals import Margin, refines
from constraint_builders.relations.spine_sums import SpineSums
from constraint_builders.relations.spine_tables import spine_layout

if TYPE_CHECKING:
    from constraint_builders.measured import Measured
    from constraint_builders.record import Record

MOST_ELIMINATED = 20_000  # detailed cells, to find out what several tables determine together


def is_small(measured: Measured) -> bool:
    """Whether detailed cells can be eliminated to find out what several tables determine together."""
    return measured.domain.size <= MOST_ELIMINATED


class Tabulation:
    """From the observed layout to the desired one.

    Parameters
    ----------
    record : Record
    """

    def __init__(self, record: Record) -> None:
        self._record = record
        self._same = record.desired is record.observed

    def apply(self, X: Float) -> Float:
        """Sum consistent values over the observed layout, (n, K), to the desired layout, (m, K)."""
        if self._same:
            return X.copy()
        if self.matrix is not None:
            return self.matrix @ X
        result = np.empty((self._record.desired.size, X.shape[1]))
        for target, source, margin in self._margins:
            result[target] = X[source] if margin is None else margin.apply(X[source])
        return result

    def transpose(self, V: Float) -> Float:
        """The transpose of `apply`: (m, K) over the desired layout to (n, K) over the observed one."""
        if self._same:
            return V.copy()
        if self.matrix is not None:
            return self.matrix.T @ V
        result = np.zeros((self._record.observed.size, V.shape[1]))
        for target, source, margin in self._margins:
            result[source] += V[target] if margin is None else margin.transpose(V[target])
        return result

    @cached_property
    def _margins(self) -> tuple[tuple[slice, slice, Margin | None], ...]:
        """For every desired table: its place, its source's place, and the margin between them (None: the same)."""
        r, found = self._record, []
        for index, (table, source) in enumerate(zip(r.desired_tables, self._sources, strict=True)):
            fine = r.observed_tables[source]
            margin = None if fine == table else Margin(r.domain.schema, fine, table)
            found.append((r.desired.block(index), r.observed.block(source), margin))
        return tuple(found)

    @cached_property
    def _sources(self) -> list[int]:
        """For every desired table, up to one that has none, the smallest observed table that it can be summed from."""
        r, found = self._record, list[int]()
        if not r.is_tabular:
            return found
        schema = r.domain.schema
        order = sorted(np.flatnonzero(r.measured_tables).tolist(), key=lambda i: r.observed_tables[i].size)
        by_name = {r.observed_tables[i].name: i for i in order}
        holders: dict[int, list[int]] = {}
        for index in order:
            for axis in r.observed_tables[index].axes:
                holders.setdefault(axis, []).append(index)
        for table in r.desired_tables:
            source = by_name.get(table.name)
            if source is None:
                kept = [axis for axis in table.axes if schema.shape[axis] > 1]
                candidates = min((holders.get(axis, []) for axis in kept), key=len, default=order)
                source = next((i for i in candidates if refines(schema, r.observed_tables[i], table)), None)
            if source is None:
                break
            found.append(source)
        return found

    @cached_property
    def matrix(self) -> sparse.csr_array | None:
        """Desired cells in terms of measured ones, (m, n); None where each table is summed from one observed table."""
        r = self._record
        if r.spine is not None:
            return self._sums().matrix(r.desired, r.desired_levels, r.desired_tables)
        return None if len(self._sources) == len(r.desired_tables) else self._of_several()

    def _of_several(self) -> sparse.csr_array:
        """The matrix without a geography, where a table follows from several observed ones together."""
        r = self._record
        lost = r.desired.names[len(self._sources)]
        if not is_small(r):
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, and its detailed "
                f"cells are more than {MOST_ELIMINATED:,}, too many to find out whether several do together"
            )
        layout = spine_layout(r.domain.schema, r.domain.spine, [("all", str(name)) for name in r.desired.names])
        try:
            return self._sums().matrix(layout, r.desired_levels, r.desired_tables)
        except ValueError:
            raise ValueError(
                f"table {lost!r} is not estimable: no observed table contains it, nor do several together"
            ) from None

    def _sums(self) -> SpineSums:
        r = self._record
        return SpineSums(
            r.domain.schema,
            r.domain.spine,
            r.observed,
            r.observed_levels,
            r.observed_tables,
            r.typical_variances(),
            r.unmeasured,
            factors_cross(r.domain.schema, [*r.observed_tables, *r.desired_tables]),
            None if r.zeros is None else ~r.zeros.detailed(r.domain.leaves),
        )
