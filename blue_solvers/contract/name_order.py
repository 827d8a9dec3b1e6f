"""Tables in the order of their names, by a solver that takes them in the schema's order."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blue_solvers.contract.prepared import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.schema_order import SchemaOrder


class InNameOrder(Prepared):
    """An estimate in the schema's order, its cells put where the names of their tables say.

    Parameters
    ----------
    problem : Problem
    order : SchemaOrder
        Of this problem.
    prepared : Prepared
        For ``order.problem``.
    """

    def __init__(self, problem: Problem, order: SchemaOrder, prepared: Prepared) -> None:
        self.problem = problem
        self._prepared = prepared
        self._order = order
        self._to_names = np.argsort(order.desired)
        self.offset = self._desired(prepared.offset)
        self.info = prepared.info

    def _desired(self, values: Float) -> Float:
        return values.take(self._to_names, axis=0)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._prepared.apply(Y.take(self._order.observed, axis=0))
        return self._desired(X), info

    def violation(self, Y: Float) -> float | None:
        return self._prepared.violation(Y.take(self._order.observed, axis=0))

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._prepared.apply_checked(Y.take(self._order.observed, axis=0))
        return self._desired(X), info

    def adjoint(self, V: Float) -> Float:
        weights = self._prepared.adjoint(V.take(self._order.desired, axis=0))
        result = np.empty_like(weights)
        result[self._order.observed] = weights
        return result

    def variances(self) -> Float:
        return self._desired(self._prepared.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        return self._prepared.functional_covariance(sparse.csc_array(W[self._order.desired]))
