"""What was measured and how precisely: tables or other cells, the noise in them, what else is known about them."""

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
from constraint_builders.description.domain import Domain
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import Noise
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.relations.equations import Relations
from constraint_builders.relations.given_relations import relations_of
from constraint_builders.relations.summing import SummingMatrix
from constraint_builders.vectors import check_vector


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
        return Domain(self.schema, self.spine or Spine([-1], ["all"]))

    @cached_property
    def relations(self) -> Relations:
        """What holds between the observed cells."""
        return relations_of(self)

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
        if self.spine is None:
            return None if self.table_variances is None else list(self.table_variances[:, None])
        return self.noise.by_geounit(self.observed, [table.size for table in self.observed_tables])

    @cached_property
    def table_variances(self) -> Float | None:
        """The one variance of every observed table of a problem without a spine; None where A2 or A3 fails."""
        return self.noise.by_table(self.observed) if self.is_tabular and self.spine is None else None

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
        covariance = self.covariance
        return aslinearoperator(self.noise.entries() if covariance is None else covariance)

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
        return self.relations.completion

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
        """Raise `ValueError` for a vector over the observed layout that no table can hold; see `vector`."""
        check_vector(self, y)
