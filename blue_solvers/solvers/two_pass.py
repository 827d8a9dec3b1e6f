"""The exact two-pass solver on a spine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import sparse

from blue_solvers.components.assumptions import tree_refusal
from blue_solvers.components.corrections import Corrected
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.covariances import Weights, functional_covariance
from blue_solvers.components.tree.tree_form import TreeForm
from blue_solvers.components.tree_of_sums import TreeOfSums
from blue_solvers.contract import Capability, Info, Prepared, Solver, TableVariances
from blue_solvers.solvers.sea_blue import SeaBlueEstimate
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.problem import ProblemOverSpine


@dataclass(frozen=True)
class TwoPass(Solver):
    """One pass up the spine and one down, all geounits of a level at once.

    Exact for any tables at any geolevel with any variances by geounit, geounits where nothing was measured and
    tables known exactly included, as long as noise is uncorrelated and of equal variance within a table of a
    geounit. Recodes may nest, cross or be of unequal groups. A problem without a spine is one of a single geounit.
    """

    name: ClassVar[str] = "two_pass"

    @classmethod
    def capabilities(cls) -> tuple[Capability, ...]:
        """Its row of the table."""
        return (
            Capability(
                cls.name,
                cls(),
                "the same within each geounit of a spine, any recodes, structural zeros, equalities; summing matrices "
                "of trees",
                "a few passes over the data",
            ),
        )

    def refusal(self, problem: Problem) -> str | None:
        """All but equal variances within every table of every geounit, or nodes that form a tree."""
        return tree_refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Work out gains and covariances of every component."""
        if problem.relations.tree is not None:
            reason = "two sweeps over the tree of sums, exact"
            return TreeOfSums(problem, problem.relations.tree, Info(self.name, exact=True, reason=reason))
        if problem.tree is not None:
            return _PartOfTree(problem, problem.tree, self.plan(problem.tree.problem))
        info = Info(self.name, exact=True, reason="two passes over the spine, exact")
        if problem.equalities is not None:
            return SeaBlueEstimate(problem, Corrected(problem), info)
        return _TwoPassEstimate(problem, TreeForm(StructuredProblem.of(problem)), info)


class _TwoPassEstimate(SeaBlueEstimate):
    """The two passes, and a third for chosen functionals."""

    def __init__(self, problem: Problem, form: TreeForm, info: Info) -> None:
        super().__init__(problem, form, info)
        self._form = form

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, violation = self._form.apply_checked(Y)
        return X, replace(self.info, violation=violation)

    def variances_by_table(self) -> TableVariances:
        return self._form.variances_by_table()

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        return functional_covariance(self._form.plan, self._form.coefficients, _weights(self.problem, W), W.shape[1])


def _weights(problem: Problem, W: sparse.csc_array) -> list[Weights]:
    """Functionals over the desired layout, (m, K), as what they take of every table."""
    spine, levels = problem.domain.spine, problem.desired_levels
    entries = sparse.coo_array(W)
    block = np.searchsorted(problem.desired.offsets, entries.row, side="right") - 1
    found = []
    for index in np.unique(block).tolist():
        table, own = problem.desired_tables[index], block == index
        number, cell = np.divmod(entries.row[own] - problem.desired.offsets[index], table.size)
        numbers, row = np.unique(number, return_inverse=True)
        pairs = row * table.size + cell, entries.col[own]
        cells = sparse.csr_array((entries.data[own], pairs), shape=(numbers.size * table.size, W.shape[1]))
        found.append(Weights(spine.members[levels[index]][numbers], table, cells))
    return found


class _PartOfTree(Prepared):
    """The estimate of areas that form a tree, in their own order."""

    def __init__(self, problem: Problem, over: ProblemOverSpine, over_spine: Prepared) -> None:
        self.problem = problem
        self._over_spine = over_spine
        self._observed, self._desired = over.observed, over.desired
        own = over_spine.problem
        self._is_whole = [
            size == places.size and np.array_equal(places, np.arange(size))
            for places, size in ((self._observed, own.observed.size), (self._desired, own.desired.size))
        ]
        self.offset = self._taken(over_spine.offset)
        self.info = over_spine.info

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._over_spine.apply(self._spread(Y, self._observed, self._over_spine.problem.observed.size, 0))
        return self._taken(X), replace(self.info, violation=info.violation)

    def violation(self, Y: Float) -> float | None:
        return self._over_spine.violation(self._spread(Y, self._observed, self._over_spine.problem.observed.size, 0))

    def adjoint(self, V: Float) -> Float:
        weights = self._over_spine.adjoint(self._spread(V, self._desired, self._over_spine.problem.desired.size, 1))
        return weights if self._is_whole[0] else weights[self._observed]

    def variances(self) -> Float:
        return self._taken(self._over_spine.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        entries = sparse.coo_array(W)
        pairs = self._desired[entries.row], entries.col
        shape = self._over_spine.problem.desired.size, W.shape[1]
        return self._over_spine.functional_covariance(sparse.csc_array((entries.data, pairs), shape=shape))

    def _taken(self, X: Float) -> Float:
        return X if self._is_whole[1] else X[self._desired]

    def _spread(self, X: Float, places: Index, size: int, kind: int) -> Float:
        """Where the problem over the spine has them, which may have others too."""
        if self._is_whole[kind]:
            return X
        spread = np.zeros((size, X.shape[1]))
        spread[places] = X
        return spread
