"""The non-negative numbers that all else is summed from: detailed cells, leaves, or nodes that only equations tie."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.relations.marginals import marginal_matrix


class Cells:
    """What is fitted of a problem, and how its layouts are summed from it.

    Of tables these are the detailed cells, with a geography of every leaf; of a summing matrix its leaves, of which a
    node with negative weights may have any sign; of equations the nodes, which are all that there is.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    shape : tuple of int
        Of all cells, impossible ones among them.
    possible : ndarray of int, (d,)
        Positions of the cells that may hold something, in C order of `shape`.
    are_nodes : bool
        Whether they are the observed cells themselves.
    """

    shape: tuple[int, ...]
    possible: Index

    def __init__(self, problem: Problem) -> None:
        self._problem, self.are_nodes = problem, not problem.is_tabular and problem.summing is None
        if problem.is_tabular:
            domain = problem.domain
            self.shape = (*(() if problem.places is None else (domain.leaves.size,)), *domain.schema.shape)
            empty = problem.known_empty.detailed(domain.leaves) if problem.has_zeros else np.zeros(domain.size, bool)
            self.possible = np.flatnonzero(~empty)
        else:
            self._nodes = sparse.csr_array(sparse.eye_array(problem.observed.size))
            if problem.summing is not None:
                self._nodes = problem.summing.matrix
            self.shape, self.possible = self._nodes.shape[1:], np.arange(self._nodes.shape[1])

    def to_observed(self) -> sparse.csr_array:
        """The matrix from the possible cells to the observed layout, (n, d)."""
        if not self._problem.is_tabular:
            return self._nodes
        return sparse.csr_array(self._problem.marginal_matrix()[:, self.possible])

    def to_desired(self) -> sparse.csr_array:
        """The matrix from the possible cells to the desired layout, (m, d)."""
        p = self._problem
        if not p.is_tabular:
            return self._nodes if p.desired is p.observed else sparse.eye_array(p.desired.size, format="csr")
        matrix = marginal_matrix(p.domain.schema, p.desired_tables, p.domain.places, p.desired_levels)
        return sparse.csr_array(matrix[:, self.possible])

    def equations(self) -> tuple[sparse.csr_array, Float]:
        """Equations over the observed layout that do not follow from its being sums of cells, (k, n) and (k,)."""
        p = self._problem
        return p.relations.between_cells("all") if self.are_nodes else p.equality_rows
