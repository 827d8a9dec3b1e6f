"""The non-negative numbers that all else is summed from: detailed cells, leaves, or nodes that only equations tie."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy import sparse

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.relations.marginals import marginal_matrix


class Cells(ABC):
    """What is fitted of a problem, and how its layouts are summed from it.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    shape : tuple of int
        Of all cells.
    possible : ndarray of int, (d,)
        Which of them are no structural zeros, flat.
    """

    shape: tuple[int, ...]
    possible: Index

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    @abstractmethod
    def to_observed(self) -> sparse.csr_array:
        """The matrix from the possible cells to the observed layout, (n, d)."""

    @abstractmethod
    def to_desired(self) -> sparse.csr_array:
        """The matrix from the possible cells to the desired layout, (m, d)."""

    @abstractmethod
    def equations(self) -> tuple[sparse.csr_array, Float]:
        """Equations over the observed layout that do not follow from its being sums of cells, (k, n) and (k,)."""


class DetailedCells(Cells):
    """The detailed cells of tables, with a geography of every leaf."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        domain, zeros = problem.domain, problem.zeros
        places = () if problem.places is None else (domain.leaves.size,)
        self.shape = (*places, *domain.schema.shape)
        self.possible = np.arange(domain.size) if zeros is None else np.flatnonzero(~zeros.detailed(domain.leaves))

    def to_observed(self) -> sparse.csr_array:
        return sparse.csr_array(self._problem.marginal_matrix()[:, self.possible])

    def to_desired(self) -> sparse.csr_array:
        p, domain = self._problem, self._problem.domain
        matrix = marginal_matrix(domain.schema, p.desired_tables, domain.places, p.desired_levels)
        return sparse.csr_array(matrix[:, self.possible])

    def equations(self) -> tuple[sparse.csr_array, Float]:
        nothing = sparse.csr_array((0, self._problem.observed.size)), np.zeros(0)
        return self._problem.equalities or nothing


class SummedLeaves(Cells):
    """The leaves of a summing matrix: a node with negative weights may have any sign."""

    def __init__(self, problem: Problem, sums: sparse.csr_array) -> None:
        super().__init__(problem)
        self._sums, self.shape, self.possible = sums, (sums.shape[1],), np.arange(sums.shape[1])

    def to_observed(self) -> sparse.csr_array:
        return self._sums

    def to_desired(self) -> sparse.csr_array:
        return self._sums

    def equations(self) -> tuple[sparse.csr_array, Float]:
        return sparse.csr_array((0, self._problem.observed.size)), np.zeros(0)


class NodesAlone(Cells):
    """The nodes of equations, which are all that there is."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.shape, self.possible = (problem.observed.size,), np.arange(problem.observed.size)

    def to_observed(self) -> sparse.csr_array:
        return sparse.csr_array(sparse.eye_array(self.possible.size, format="csr"))

    def to_desired(self) -> sparse.csr_array:
        return self.to_observed()

    def equations(self) -> tuple[sparse.csr_array, Float]:
        return self._problem.relations.between_cells("all")


def cells_of(problem: Problem) -> Cells:
    """What is fitted of a problem."""
    if problem.is_tabular:
        return DetailedCells(problem)
    return NodesAlone(problem) if problem.summing is None else SummedLeaves(problem, problem.summing.matrix)
