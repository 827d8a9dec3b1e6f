"""What was measured and how precisely, and the equations that every possible truth satisfies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from constraint_builders.arrays import Float
from constraint_builders.description.areas import Areas, Places
from constraint_builders.description.domain import Domain, StructuralZeros
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import Noise
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import ONE_PLACE, Spine
from constraint_builders.description.table import Table, TableNames
from constraint_builders.memory import SURE_CELLS
from constraint_builders.relations.equations import Relations
from constraint_builders.relations.kinds_of_equations import relations_of
from constraint_builders.relations.summing import SummingMatrix
from constraint_builders.vectors import refuse_contradictions, refuse_unreadable, refuse_untrue


class NoTablesError(ValueError):
    """Tables of a schema are needed, and a problem made from a matrix has none."""


@dataclass(frozen=True)
class Assumptions:
    """Which of the paper's assumptions hold: known covariance, uncorrelated noise, equal variance within tables."""

    A1: bool
    A2: bool
    A3: bool


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Measured:
    """The part of a problem that says nothing about what is wanted; see `Problem` for the attributes."""

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
    def names(self) -> TableNames:
        """What its tables are called: with their level where there is a geography."""
        return TableNames(self.domain.schema, self.domain.places, self.is_placed)

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
        """Whether cells are structural zeros."""
        return self.zeros is not None

    @cached_property
    def known_empty(self) -> StructuralZeros:
        """The cells of tables that are structural zeros: none, of no variables, where nothing is said of that."""
        domain = self.domain
        return self.zeros or StructuralZeros.of(domain.schema, (), np.zeros(domain.places.size, dtype=bool))

    @property
    def zero_axes(self) -> tuple[int, ...]:
        """The schema's variables that decide whether a cell is a structural zero."""
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
        """Whether tables of one place are all: no geography, no structural zeros, no equalities."""
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
    def is_measured_in_part(self) -> bool:
        """Whether some cells of a table of a place were measured and others not."""
        typical = zip(self.observed_tables, self.typical_variances(), strict=True)
        whole = sum(table.size * int(np.isinf(variances).sum()) for table, variances in typical)
        return int(self.unmeasured.sum()) > whole

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

    @cached_property
    def relations(self) -> Relations:
        """What holds between the observed cells."""
        return relations_of(self)

    @property
    def is_tree_of_sums(self) -> bool:
        """Whether it is of a summing matrix whose nodes form a tree, and noise is uncorrelated."""
        return self.relations.nested.parent.size > 0

    @property
    def recodes_cross(self) -> bool:
        """Whether recodes of a variable cross so that no basis of group sums serves all of them."""
        return self.relations.recodes_cross

    def constraint_matrix(self, rows: str = "independent") -> sparse.csr_array:
        """The self-consistency constraints: A x = b for every possible truth.

        Parameters
        ----------
        rows : {"independent", "all"}
            As many rows as the rank, or also one for every cell of a table next above another: redundant, and better
            conditioned for iterative solvers. The rows of `from_matrix` are given back as they are by ``"all"``.

        Returns
        -------
        csr_array, (rows, n)
            Entries in {-1, 0, 1} for plain marginals. Columns of cells that were not measured are zero.

        Raises
        ------
        ValueError
            If `rows` is something else.
        MemoryError
            If the matrix would not fit.
        """
        return self.equations(rows)[0]

    def equations(self, rows: str = "independent") -> tuple[sparse.csr_array, Float]:
        """The constraint matrix A of `constraint_matrix`, and its right-hand side b, (rows,)."""
        if rows not in ("independent", "all"):
            raise ValueError(f"rows must be 'independent' or 'all': got {rows!r}")
        return self.relations.equations(rows)

    @property
    def is_structural(self) -> bool:
        """Whether the equations are those of self-consistency alone, between tables measured whole."""
        return self.relations.is_structural

    @property
    def completion(self) -> tuple[sparse.csr_array, Float] | None:
        """How cells that were not measured follow from the others: x = C x + c; None if no such cell is needed.

        C is (n, n), the identity on measured cells.
        """
        return self.relations.completion if self.relations.must_be_completed else None

    def completed(self, X: Float, constants: bool = False) -> Float:
        """All observed cells from those that were measured, (n, K), without what does not depend on them or with it."""
        if not self.relations.must_be_completed:
            return X
        C, c = self.relations.completion
        return C @ X + c[:, None] if constants else C @ X

    def completed_transpose(self, U: Float) -> Float:
        """The transpose of the linear part of `completed`, (n, K)."""
        return self.relations.completion[0].T @ U if self.relations.must_be_completed else U

    @property
    def exact_equations(self) -> tuple[sparse.csr_array, Float]:
        """The equations that hold between exactly known cells alone: (A, b), A of shape (rows, n)."""
        return self.relations.between_exact

    @property
    def rank(self) -> int:
        """Rank of the constraint matrix."""
        return self.relations.rank

    def marginal_matrix(self) -> sparse.csr_array:
        """The 0/1 matrix (n, detailed cells) from the detailed histogram to all observed cells.

        With a spine its columns are the detailed cells of every geounit without children, in the spine's order.

        Raises
        ------
        ValueError
            For a problem made `from_matrix`, which has no detailed histogram.
        MemoryError
            If it would not fit, with the bytes that it needs.
        """
        return self.relations.marginal_matrix()

    def vector(self, tables: Mapping[Any, ArrayLike]) -> Float:
        """Lay the observed tables out in one vector, refusing what no table can hold.

        Parameters
        ----------
        tables : mapping of str to array_like
            Every observed table by name, of its shape, or with one trailing axis K.

        Returns
        -------
        ndarray, (n,) or (n, K)

        Raises
        ------
        ValueError
            If a table is unknown, missing or of the wrong shape; if a value is NaN or infinite in a cell that was
            measured; if values known exactly contradict one another.
        """
        y = self.observed.vector(tables)
        self.check_vector(y)
        return y

    def check_vector(self, y: Float) -> None:
        """Raise `ValueError` for an observed vector, (n,) or (n, K), that no table can hold; see `vector`."""
        refuse_unreadable(self, y)
        known = np.count_nonzero(self.exact)
        if known > 1 or (known and not self.is_structural):
            refuse_contradictions(self, self.relations.between_exact, y)

    def check_truth(self, truth: Float) -> None:
        """Raise `ValueError` for true values, (n,), that do not add up where they are measured; of a million cells."""
        if self.observed.size <= SURE_CELLS:  # the equations of many more take memory
            refuse_untrue(self, lambda: self.equations("all"), truth)
