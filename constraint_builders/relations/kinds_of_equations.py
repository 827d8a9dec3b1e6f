"""The equations of whatever a problem is made from: tables, equations of the user's own, sums of leaves."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from constraint_builders.relations.equations import Equations, Relations, TableRelations
from constraint_builders.relations.summing import NO_NODES, NestedNodes, SummingMatrix

if TYPE_CHECKING:
    from constraint_builders.measured import Measured


class MatrixRelations(Relations):
    """The equations A x = b of `Problem.from_matrix`, of any rank."""

    independent = False

    def __init__(self, measured: Measured, A: sparse.csr_array) -> None:
        super().__init__(measured)
        self._A = A

    def between_cells(self, rows: str) -> Equations:
        """The equations as they were given."""
        b = self._measured.b
        return self._A, np.zeros(self._A.shape[0]) if b is None else b


class SummingRelations(Relations):
    """The equations between nodes that are sums of leaves."""

    def __init__(self, measured: Measured, summing: SummingMatrix) -> None:
        super().__init__(measured)
        self._summing = summing

    def between_cells(self, rows: str) -> Equations:
        """Independent equations, as sparse as they come."""
        A = self._summing.relations
        return A, np.zeros(A.shape[0])

    @property
    def nested(self) -> NestedNodes:  # type: ignore[override]
        """The nodes, where they form a tree and their noise is uncorrelated."""
        return (not self._measured.is_correlated and self._summing.nested) or NO_NODES

    @cached_property
    def between_exact(self) -> Equations:
        """The equations that hold between exactly known nodes alone."""
        if not self.nested.parent.size:
            return super().between_exact
        A = self.tree.between(self._measured.exact)
        return A, np.zeros(A.shape[0])


def relations_of(measured: Measured) -> Relations:
    """What holds between the observed cells of a problem."""
    if measured.summing is not None:
        return SummingRelations(measured, measured.summing)
    if measured.matrix is not None:
        return MatrixRelations(measured, measured.matrix)
    return TableRelations(measured, measured.domain)
