"""Relations of equations that were given and of summing matrices, and which relations a problem has."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from constraint_builders.relations.consistency import TableRelations
from constraint_builders.relations.equations import Equations, Relations
from constraint_builders.relations.node_tree import NodeTree, tree_of_nodes

if TYPE_CHECKING:
    from constraint_builders.measured import Measured


class MatrixRelations(Relations):
    """The equations A x = b of `Problem.from_matrix`, of any rank."""

    independent = False

    def between_cells(self, rows: str) -> Equations:
        """The equations as they were given."""
        A, b = self._measured.matrix, self._measured.b
        assert A is not None
        return A, np.zeros(A.shape[0]) if b is None else b


class SummingRelations(Relations):
    """The equations between nodes that are sums of leaves."""

    def between_cells(self, rows: str) -> Equations:
        """Independent equations, as sparse as they come."""
        assert self._measured.summing is not None
        A = self._measured.summing.relations
        return A, np.zeros(A.shape[0])

    @cached_property
    def tree(self) -> NodeTree | None:  # type: ignore[override]
        """The nodes as geounits, where they form a tree and their noise is uncorrelated."""
        m = self._measured
        assert m.summing is not None
        if m.summing.parent is None or m.covariance is not None:
            return None
        return tree_of_nodes(m.summing, m.variances)

    @cached_property
    def between_exact(self) -> Equations:
        """The equations that hold between exactly known nodes alone."""
        if self.tree is None:
            return super().between_exact
        A = self.tree.between_exact
        return A, np.zeros(A.shape[0])


def relations_of(measured: Measured) -> Relations:
    """What holds between the observed cells of a problem."""
    if measured.schema is not None:
        return TableRelations(measured, measured.schema)
    return MatrixRelations(measured) if measured.summing is None else SummingRelations(measured)
