"""Desired tables of geounits or areas in terms of measured cells, for values that agree everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.description.areas import Areas
from constraint_builders.description.layout import Layout
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine_or_areas import Places
from constraint_builders.description.table import Table
from constraint_builders.relations.compositions import compose
from constraint_builders.relations.elimination import eliminate, relations_between_rows
from constraint_builders.relations.marginals import margin_matrix, placed_marginal_matrix, refines
from constraint_builders.relations.placed import consistency_of

UNOBSERVED_VARIANCE = 1e200  # marks cells to be worked out: any measurement is preferred to them


@dataclass(frozen=True)
class SpineSums:
    """Measured tables at levels, and what can be summed from them.

    Attributes
    ----------
    schema : Schema
    places : Spine or Areas
    layout : Layout
        Of the observed tables.
    levels : tuple of int
        Their geolevels.
    tables : tuple of Table
    variances : list of ndarray (geounits,)
        A typical variance of each in every geounit, ``inf`` where it was not measured.
    unmeasured : ndarray of bool, (n,)
    recodes_cross : bool
        Whether recodes cross so that relations must come from the detailed cells.
    possible : ndarray of bool (leaves * detailed cells,) or None
        Detailed cells that may be other than empty, if some may not.
    """

    schema: Schema
    places: Places
    layout: Layout
    levels: tuple[int, ...]
    tables: tuple[Table, ...]
    variances: list[Float]
    unmeasured: NDArray[np.bool_]
    recodes_cross: bool
    possible: NDArray[np.bool_] | None

    def matrix(self, desired: Layout, levels: Sequence[int], tables: Sequence[Table]) -> sparse.csr_array:
        """Desired cells as combinations of measured ones, (m, n).

        Raises
        ------
        ValueError
            If nothing measured determines a cell, which is named.
        """
        found = [self._of_one_table(level, table) for level, table in zip(levels, tables, strict=True)]
        missing = [i for i, block in enumerate(found) if block is None]
        if missing:
            wanted = [levels[i] for i in missing], [tables[i] for i in missing]
            across = self._across_levels(self._relations_with(*wanted), *wanted)
            if self.possible is not None and any(lost is not None for _, lost in across):
                across = self._across_levels(self._relations_of_possible_cells(*wanted), *wanted)
            for i, (block, lost) in zip(missing, across, strict=True):
                if lost is not None:
                    cell = desired.describe(int(desired.offsets[i]) + lost)
                    raise ValueError(f"{cell} is not estimable: nothing measured determines it")
                found[i] = block
        return sparse.csr_array(sparse.vstack([block for block in found if block is not None], format="csr"))

    def _of_one_table(self, level: int, table: Table) -> sparse.csr_array | None:
        own = self._at_level(level, table)
        if own is None and isinstance(self.places, LevelledTree):
            return self._of_relatives(self.places, level, table)
        return self._of_leaves(level, table) if own is None else own

    def _of_relatives(self, spine: LevelledTree, level: int, table: Table) -> sparse.csr_array | None:
        """A table as sums and differences of measured ones of the geounits, their children, parents and siblings."""
        source = np.full(spine.size, -1)
        for i in np.argsort([-observed.size for observed in self.tables], kind="stable").tolist():
            if refines(self.schema, self.tables[i], table):
                members = spine.members[self.levels[i]]
                cells = self.unmeasured[self.layout.block(i)].reshape(members.size, -1)
                source[members[~cells.any(axis=1)]] = i
        composed, known = compose(spine, source >= 0)
        members = spine.members[level]
        if not known[members].all():
            return None
        total = sparse.csr_array((members.size * table.size, self.layout.size))
        composed = composed[members].tocsc()
        for i in np.unique(source[np.flatnonzero(np.diff(composed.indptr))]).tolist():
            places = spine.members[self.levels[i]]
            own = sparse.csr_array(composed[:, places] * (source[places] == i))
            sums = sparse.kron(own, margin_matrix(self.schema, self.tables[i], table)).tocoo()
            columns = sums.col + self.layout.offsets[i]
            total = total + sparse.csr_array((sums.data, (sums.row, columns)), shape=total.shape)
        return total

    def _at_level(self, level: int, table: Table) -> sparse.csr_array | None:
        """A table as sums of one observed table of its level, if one contains it and was measured everywhere."""
        for i in np.argsort([observed.size for observed in self.tables], kind="stable").tolist():
            fine = self.tables[i]
            complete = not self.unmeasured[self.layout.block(i)].any()
            if self.levels[i] == level and complete and refines(self.schema, fine, table):
                geounits = sparse.eye_array(self.places.members[level].size)
                sums = sparse.kron(geounits, margin_matrix(self.schema, fine, table)).tocoo()
                columns = sums.col + self.layout.offsets[i]
                return sparse.csr_array((sums.data, (sums.row, columns)), shape=(sums.shape[0], self.layout.size))
        return None

    def _of_leaves(self, level: int, table: Table) -> sparse.csr_array | None:
        """A table of areas as sums of one of the leaves, if one contains it and was measured everywhere."""
        if not isinstance(self.places, Areas):
            return None
        for other, name in enumerate(self.places.levels):
            own = self._at_level(other, table) if other != level and self.places.layer(name).is_of_leaves else None
            if own is not None:
                return sparse.csr_array(sparse.kron(self.places.leaves_of(level), sparse.eye_array(table.size)) @ own)
        return None

    def _across_levels(
        self, relations: sparse.csr_array, levels: Sequence[int], tables: Sequence[Table]
    ) -> list[tuple[sparse.csr_array, int | None]]:
        """Tables from measurements of several levels, each with the first of its cells that nothing determines.

        They are unknowns of an extended set of equations, and eliminated.
        """
        n = self.layout.size
        sizes = [self.places.members[level].size * table.size for level, table in zip(levels, tables, strict=True)]
        unknown = np.concatenate([np.flatnonzero(self.unmeasured), np.arange(n, n + sum(sizes))])
        elimination = eliminate(relations, unknown)
        free = np.zeros(n + sum(sizes))
        free[elimination.free_columns] = 1
        open_ = np.append(abs(elimination.solved) @ free > 0, True)  # the last stands for cells without a row
        row_of = np.full(n + sum(sizes), -1)
        row_of[elimination.solved_columns] = np.arange(elimination.solved_columns.size)
        blocks: list[tuple[sparse.csr_array, int | None]] = []
        for rows in np.split(row_of[n:], np.cumsum(sizes)[:-1]):
            lost = np.flatnonzero(open_[rows])
            if lost.size:
                blocks.append((sparse.csr_array((rows.size, n)), int(lost[0])))
            else:
                blocks.append((sparse.csr_array(-elimination.solved[rows][:, :n]), None))
        return blocks

    def _relations_with(self, levels: Sequence[int], tables: Sequence[Table]) -> sparse.csr_array:
        """What holds between all observed cells and those of further tables."""
        all_levels, all_tables = (*self.levels, *levels), (*self.tables, *tables)
        if self.recodes_cross:
            return self._relations_of_possible_cells(levels, tables)
        known = [np.minimum(variances, UNOBSERVED_VARIANCE) for variances in self.variances]
        wanted = [np.full(self.places.members[level].size, UNOBSERVED_VARIANCE) for level in levels]
        return consistency_of(self.schema, self.places, all_levels, all_tables, [*known, *wanted]).matrix()

    def _relations_of_possible_cells(self, levels: Sequence[int], tables: Sequence[Table]) -> sparse.csr_array:
        """The same by eliminating the detailed cells, but for structural zeros."""
        M = placed_marginal_matrix(self.schema, self.places, (*self.levels, *levels), (*self.tables, *tables))
        return relations_between_rows(M if self.possible is None else M[:, np.flatnonzero(self.possible)])
