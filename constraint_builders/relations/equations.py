"""The linear equations that every possible truth satisfies: self-consistency, and what else is known exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Float
from constraint_builders.relations.elimination import Elimination, eliminate
from constraint_builders.relations.measurements import Measurements
from constraint_builders.relations.node_tree import NodeTree
from constraint_builders.relations.summing import NO_NODES, NestedNodes

Equations = tuple[sparse.csr_array, Float]


class UnsolvableError(ValueError):
    """Equations that contradict one another, or that say what rounding would decide."""


class Relations(ABC):
    """The equations A x = b between observed cells, after those that were not measured have been eliminated.

    Parameters
    ----------
    measured : Measurements

    Attributes
    ----------
    independent : bool
        Whether `between_cells` gives independent rows where these are asked for.
    nested : NestedNodes
        The nodes of a summing matrix, where they form a tree and their noise is uncorrelated; otherwise none.
    """

    independent: ClassVar[bool] = True
    nested: NestedNodes = NO_NODES

    def __init__(self, measured: Measurements) -> None:
        self._measured = measured

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
            _require_solvable(elimination)
            extended = sparse.csr_array(extended[np.sort(elimination.pivot_rows)])
        return _parted(extended)

    def _between_measured(self, rows: str) -> sparse.csr_array:
        """``[A, -b]`` after the cells that were not measured have been eliminated."""
        return self.elimination(rows).remaining if self.partly_measured else self._of_all_cells(rows)

    def elimination(self, rows: str) -> Elimination:
        """Elimination of the cells that were not measured."""
        return eliminate(self._of_all_cells(rows), np.flatnonzero(self._measured.unmeasured))

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
        n = m.observed.size
        solved, cells = elimination.solved, elimination.solved_columns
        placement = sparse.csr_array((np.ones(cells.size), (cells, np.arange(cells.size))), shape=(n, cells.size))
        follow = sparse.csr_array(-(placement @ solved))
        identity = sparse.diags_array((~m.unmeasured).astype(float))
        C = sparse.csr_array(identity + follow[:, :n])
        C = sparse.csr_array(C + sparse.diags_array(np.bincount(cells, minlength=n).astype(float)))
        C.eliminate_zeros()
        return C, follow[:, [n]].toarray().ravel()

    @cached_property
    def between_exact(self) -> Equations:
        """The equations that hold between exactly known cells alone: (A, b), A of shape (rows, n)."""
        m = self._measured
        noisy = np.flatnonzero(~m.exact & ~m.unmeasured)
        remaining = eliminate(self._between_measured("all"), noisy).remaining
        elimination = eliminate(remaining, np.arange(m.observed.size))
        _require_solvable(elimination)
        return _parted(remaining[np.sort(elimination.pivot_rows)])


def _require_solvable(elimination: Elimination) -> None:
    """Of all cells from ``[A, -b]``: nothing may be left of b."""
    if elimination.remaining.nnz:
        raise UnsolvableError("the equations A x = b contradict one another: no x satisfies all of them")


def _parted(extended: sparse.csr_array) -> Equations:
    """A and b of ``[A, -b]``."""
    n = extended.shape[1] - 1
    return sparse.csr_array(extended[:, :n]), -extended[:, [n]].toarray().ravel()
