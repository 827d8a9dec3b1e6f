"""The linear equations that every possible truth satisfies: self-consistency, and what else is known exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.domain import Domain
from constraint_builders.description.table import Table
from constraint_builders.relations.bases import factors_cross
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.elimination import Elimination, eliminate, relations_between_rows
from constraint_builders.relations.marginals import marginal_matrix
from constraint_builders.relations.node_tree import NodeTree
from constraint_builders.relations.placed import consistency_of
from constraint_builders.relations.summing import NO_NODES, NestedNodes

if TYPE_CHECKING:
    from constraint_builders.measured import Measured

UNOBSERVED_VARIANCE = 1e200  # marks cells to be worked out: any measurement is preferred to them
Equations = tuple[sparse.csr_array, Float]
FOLLOWS = 1e-12  # of the terms of a row that follows from others: what rounding may leave of it
MOST_KEPT = 5_000_000  # entries of equations that are not worked out again


class UnsolvableError(ValueError):
    """Equations that contradict one another, or that say what rounding would decide."""


class Relations(ABC):
    """The equations A x = b between observed cells, after those that were not measured have been eliminated.

    Parameters
    ----------
    measured : Measured

    Attributes
    ----------
    independent : bool
        Whether `between_cells` gives independent rows where these are asked for.
    nested : NestedNodes
        The nodes of a summing matrix, where they form a tree and their noise is uncorrelated; otherwise none.
    """

    independent: ClassVar[bool] = True
    nested: NestedNodes = NO_NODES

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._eliminations: dict[str, Elimination] = {}

    @cached_property
    def tree(self) -> NodeTree:
        """The `nested` nodes, generation after generation."""
        return NodeTree.of(self.nested)

    @abstractmethod
    def between_cells(self, rows: str) -> Equations:
        """What holds between all cells, measured or not, but for the equalities: A (rows, n) and b."""

    @property
    def recodes_cross(self) -> bool:
        """Whether recodes of a variable cross so that no basis of group sums serves all of them."""
        return False

    @property
    def is_structural(self) -> bool:
        """Whether the equations are those of self-consistency alone, between tables measured whole."""
        return False

    @cached_property
    def partly_measured(self) -> bool:
        """Whether unmeasured cells must be eliminated: tables measured in part, or other equations."""
        return self._measured.has_unmeasured

    @property
    def rank(self) -> int:
        """Number of independent equations."""
        return self.equations("independent")[0].shape[0]

    @cached_property
    def tied(self) -> Flags:
        """Which observed cells an equation speaks of, (n,)."""
        return np.diff(sparse.csc_array(self.equations("independent")[0]).indptr) > 0

    def equations(self, rows: str) -> Equations:
        """A and b of the rows "independent" or "all"."""
        m, extended = self._measured, self._between_measured(rows)
        if rows == "independent" and (m.has_equalities or not self.independent):
            elimination = eliminate(extended, np.arange(m.observed.size))
            if elimination.nearly_dependent.size:
                raise UnsolvableError(
                    f"row {elimination.nearly_dependent[0]} of the equations A x = b is nearly a combination of "
                    "others, and rounding would decide what it says: leave it out, or make it one exactly"
                )
            _require_solvable(extended, elimination)
            extended = sparse.csr_array(extended[np.sort(elimination.pivot_rows)])
        return _parted(extended)

    def _between_measured(self, rows: str) -> sparse.csr_array:
        """``[A, -b]`` after the cells that were not measured have been eliminated."""
        return self.elimination(rows).remaining if self.partly_measured else self._of_all_cells(rows)

    def elimination(self, rows: str) -> Elimination:
        """Elimination of the cells that were not measured; kept where it is small, since many ask for it."""
        if rows in self._eliminations:
            return self._eliminations[rows]
        found = eliminate(self._of_all_cells(rows), np.flatnonzero(self._measured.unmeasured))
        if found.remaining.nnz + found.solved.nnz <= MOST_KEPT:
            self._eliminations[rows] = found
        return found

    def _of_all_cells(self, rows: str) -> sparse.csr_array:
        """``[A, -b]``, so that b takes part in eliminations."""
        A, b = self.between_cells(rows)
        if self._measured.has_equalities:
            E, value = self._measured.equality_rows
            A, b = sparse.vstack([A, E], format="csr"), np.concatenate([b, value])
        return sparse.csr_array(sparse.hstack([A, sparse.csr_array(-b[:, None])], format="csr"))

    @cached_property
    def open_elimination(self) -> Elimination:
        """Elimination of the cells that were not measured from all that holds between observed cells, measured or not.

        Its free columns are cells of which each, were it measured, would determine more, and all together everything.
        """
        m = self._measured
        A = self._between_any_cells()
        if m.has_equalities:
            A = sparse.csr_array(sparse.vstack([A, m.equality_rows[0]], format="csr"))
        return eliminate(A, np.flatnonzero(m.unmeasured))

    def _between_any_cells(self) -> sparse.csr_array:
        """A of what holds between all cells, unmeasured ones too."""
        return self.between_cells("independent")[0]

    def marginal_matrix(self) -> sparse.csr_array:
        """The 0/1 matrix from the detailed histograms, of leaves, to all observed cells."""
        raise ValueError("a problem made from a matrix has no detailed table: there is no marginal matrix")

    @property
    def must_be_completed(self) -> bool:
        """Whether cells that were not measured take part, which then must follow from the others."""
        return self.partly_measured

    @cached_property
    def completion(self) -> Equations:
        """How cells that were not measured follow from the others: x = C x + c.

        C is (n, n), the identity on measured cells.
        """
        m, elimination = self._measured, self.elimination("independent")
        c = np.zeros(m.observed.size)
        c[elimination.solved_columns] = -elimination.solved[:, [c.size]].toarray().ravel()
        return elimination.completing(~m.unmeasured), c

    @cached_property
    def between_exact(self) -> Equations:
        """The equations that hold between exactly known cells alone: (A, b), A of shape (rows, n)."""
        remaining = self._of_exact_cells()
        elimination = eliminate(remaining, np.arange(self._measured.observed.size))
        _require_solvable(remaining, elimination)
        return _parted(remaining[np.sort(elimination.pivot_rows)])

    def _of_exact_cells(self) -> sparse.csr_array:
        """``[A, -b]`` of exactly known cells alone: what was measured with noise is eliminated."""
        m = self._measured
        return eliminate(self._between_measured("all"), np.flatnonzero(~m.exact & ~m.unmeasured)).remaining


def _require_solvable(extended: sparse.csr_array, elimination: Elimination) -> None:
    """Of ``[A, -b]``, (rows, n + 1), from which all cells were eliminated: one solution must meet all rows."""
    if not elimination.remaining.nnz:
        return
    solution = np.zeros(extended.shape[1])
    solution[elimination.solved_columns] = -elimination.solved[:, [-1]].toarray().ravel()
    solution[-1] = 1.0
    if (abs(extended @ solution) > FOLLOWS * (abs(extended) @ abs(solution))).any():
        raise UnsolvableError("the equations A x = b contradict one another: no x satisfies all of them")


def _parted(extended: sparse.csr_array) -> Equations:
    """A, (k, n), and b, (k,), of ``[A, -b]``."""
    n = extended.shape[1] - 1
    return sparse.csr_array(extended[:, :n]), -extended[:, [n]].toarray().ravel()


class TableRelations(Relations):
    """The equations of tables.

    Parameters
    ----------
    measured : Measured
    domain : Domain
        What its tables count.
    """

    def __init__(self, measured: Measured, domain: Domain) -> None:
        super().__init__(measured)
        self._schema, self._domain = domain.schema, domain

    @cached_property
    def structure(self) -> SelfConsistency:
        """Self-consistency of the tables that were measured, each with its typical variance."""
        return self._structure([np.asarray(v) for v in self._measured.typical_variances()])

    def _structure(self, variances: list[Float]) -> SelfConsistency:
        """Self-consistency of the observed tables, each with a variance at every place of its level, (places,)."""
        m = self._measured
        return consistency_of(self._schema, self._domain.places, m.observed_levels, m.observed_tables, variances)

    def structure_of_all(self, levels: Sequence[int] = (), tables: Sequence[Table] = ()) -> SelfConsistency:
        """The same of tables that were not measured too, and of further ones at some levels."""
        m, places = self._measured, self._domain.places
        variances = [np.minimum(variance, UNOBSERVED_VARIANCE) for variance in m.typical_variances()]
        variances += [np.full(places.members[level].size, UNOBSERVED_VARIANCE) for level in levels]
        every = (*m.observed_levels, *levels), (*m.observed_tables, *tables)
        return consistency_of(self._schema, places, *every, variances)

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
        return m.is_measured_in_part

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
        return _homogeneous(self.structure_of_all().matrix(rows))

    def _between_any_cells(self) -> sparse.csr_array:
        if self._measured.has_zeros or self.recodes_cross:
            return self._between_possible_cells("independent")
        return self.structure_of_all().matrix()

    def _between_possible_cells(self, rows: str) -> sparse.csr_array:
        """What holds between observed cells where some are empty: self-consistency, and that these are 0.

        That takes the cells themselves among the observed ones, each leaf's. Where some leaf has none, and where
        recodes cross, the detailed cells are eliminated.
        """
        first = self._detailed_cells()
        if self.recodes_cross or (first < 0).any():
            return self.of_possible_cells()
        numbers, cells = self._domain.leaves, np.arange(self._domain.size // first.size)
        empty = (first[:, None] + cells).ravel()[self._measured.known_empty.detailed(numbers)]
        size = self._measured.observed.size
        possible = np.ones(size)
        possible[empty] = 0
        between = sparse.csr_array(self.structure_of_all().matrix(rows) @ sparse.diags_array(possible))
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

    def of_possible_cells(self, levels: Sequence[int] = (), tables: Sequence[Table] = ()) -> sparse.csr_array:
        """What holds between observed cells, and those of further tables at some levels.

        The detailed cells, but for structural zeros, are eliminated.
        """
        return relations_between_rows(self._possible_cells(range(len(self._measured.observed_tables)), levels, tables))

    def marginal_matrix(self) -> sparse.csr_array:
        """The 0/1 matrix from the detailed histograms, of leaves, to all observed cells."""
        m = self._measured
        return marginal_matrix(self._schema, m.observed_tables, self._domain.places, m.observed_levels)

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

    def _of_exact_cells(self) -> sparse.csr_array:
        """``[A, -b]`` of exactly known cells alone.

        Where the detailed cells take part, they are eliminated from the sums that are known, mostly few.
        """
        m = self._measured
        if not (m.has_zeros or self.recodes_cross):
            return super()._of_exact_cells()
        (E, values), n, needed = m.equality_rows, m.observed.size, m.exact.copy()
        needed[E.indices] = True
        blocks = [i for i in range(len(m.observed_tables)) if needed[m.observed.block(i)].any()]
        if not blocks:
            return sparse.csr_array((0, n + 1))
        cells, M = m.observed.cells(blocks), self._possible_cells(blocks)
        known = np.flatnonzero(m.exact[cells])
        place = np.concatenate([cells[known], np.full(values.size, n)])
        weights = np.concatenate([np.ones(known.size), values])
        own = sparse.csr_array((weights, (np.arange(place.size), place)), shape=(place.size, n + 1))
        return relations_between_rows(sparse.vstack([M[known], E[:, cells] @ M], format="csr"), own)

    def _possible_cells(
        self, blocks: Sequence[int], levels: Sequence[int] = (), tables: Sequence[Table] = ()
    ) -> sparse.csr_array:
        """Some observed tables, and further ones at some levels, as sums of detailed cells but for structural zeros."""
        m = self._measured
        every = [m.observed_tables[i] for i in blocks], [m.observed_levels[i] for i in blocks]
        M = marginal_matrix(self._schema, [*every[0], *tables], self._domain.places, [*every[1], *levels])
        return M[:, np.flatnonzero(~m.known_empty.detailed(self._domain.leaves))] if m.has_zeros else M


def _homogeneous(A: sparse.csr_array) -> Equations:
    """A x = 0: A, (k, n), and zeros, (k,)."""
    return A, np.zeros(A.shape[0])
