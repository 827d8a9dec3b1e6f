"""Measurements, and the equations that every possible truth satisfies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from constraint_builders.arrays import Float
from constraint_builders.memory import SURE_CELLS
from constraint_builders.relations.equations import Relations
from constraint_builders.relations.given_relations import relations_of
from constraint_builders.relations.measurements import Measurements
from constraint_builders.vectors import refuse_contradictions, refuse_unreadable, refuse_untrue


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Measured(Measurements):
    """The part of a problem that says nothing about what is wanted."""

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
        """Raise `ValueError` for a vector over the observed layout that no table can hold; see `vector`."""
        refuse_unreadable(self, y)
        known = np.count_nonzero(self.exact)
        if known > 1 or (known and not self.is_structural):
            refuse_contradictions(self, self.relations.between_exact, y)

    def check_truth(self, truth: Float) -> None:
        """Raise `ValueError` for true values, (n,), that do not add up where they are measured; of a million cells."""
        if self.observed.size <= SURE_CELLS:  # the equations of many more take memory
            refuse_untrue(self, lambda: self.equations("all"), truth)
