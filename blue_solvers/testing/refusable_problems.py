"""Problems that a solver may take or refuse, and some that none can take."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine
from constraint_builders.arrays import Float


def refusable_problems() -> dict[str, Problem]:
    """Small problems by name, of kinds that not every solver takes.

    Returns
    -------
    dict of str to Problem
    """
    schema = Schema({"a": 2, "b": 3}, recodes={"b": {"low": [0, 0, 1]}})
    tables = {"a": 1.0, "b": 2.0, "detailed": 3.0}
    cellwise = {"a": [1.0, 2.0], "b": [2.0, 1.0, 1.5], "detailed": 3.0}
    correlated = sparse.block_diag([np.eye(2) + 0.3, np.eye(3), np.eye(6) + 0.2], format="csr")
    unknown = dict.fromkeys(tables)
    spine = Spine([-1, 0, 0, 1], ["State", "County", "County", "Tract"])
    on_spine = {"State": {"total": 1.0}, "County": {"b": 2.0, "detailed": 1.0}, "Tract": {"detailed": 3.0}}
    shared = LowRankPlusDiagonal(np.arange(1.0, 12.0), np.ones((11, 1)))
    shared_by_table = LowRankPlusDiagonal(np.repeat([1.0, 2.0, 3.0], [2, 3, 6]), np.ones((11, 1)))
    crossed = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0], *np.eye(4).tolist()]
    tree = [[1, 1, 1], [1, 1, 0], *np.eye(3).tolist()]
    twice = np.eye(11)[[0, 0]]
    return {
        "low-rank correlated noise": Problem(schema, unknown, covariance=shared),
        "low-rank correlated noise, equal within tables": Problem(schema, unknown, covariance=shared_by_table),
        "names in another order": Problem(schema, {"b * a": 1.0, "b": 2.0}, ["low * a", "a"]),
        "variances in another order": Problem(schema, {"b * a": np.arange(1.0, 7.0).reshape(3, 2), "b": 2.0}),
        "undetermined cells": Problem(schema, {"a": 1.0, "b": [1.0, np.inf, np.inf]}, undetermined="nan"),
        "covariance an operator": Problem(schema, unknown, covariance=aslinearoperator(correlated)),
        "covariance an operator that solves": Problem(schema, unknown, covariance=_Solved(correlated.toarray())),
        "covariance an operator that is none": Problem(
            schema, unknown, covariance=aslinearoperator(np.eye(11) + 2 * np.eye(11)[::-1])
        ),
        "spine": Problem(schema, on_spine, spine=spine),
        "spine, variances by cell": Problem(schema, on_spine | {"County": {"b": [[1.0, 2.0, 3.0]] * 2}}, spine=spine),
        "structural zeros": Problem(schema, tables, zeros={"detailed": np.eye(2, 3, dtype=bool)}),
        "equalities": Problem(schema, tables, equalities=(np.eye(11)[:1], [7.0])),
        "equalities, variances by cell": Problem(schema, cellwise, equalities=(np.eye(11)[:1], [7.0])),
        "equalities that contradict": Problem(schema, tables, equalities=(twice, [7.0, 8.0])),
        "equalities that contradict, variances by cell": Problem(schema, cellwise, equalities=(twice, [7.0, 8.0])),
        "equations that contradict": Problem.from_matrix([[1.0, 1.0], [1.0, 1.0]], 1.0, b=[1.0, 2.0]),
        "equations that nearly follow": Problem.from_matrix([[1.0, 1.0, 0.0], [1.0, 1.0, 1e-9]], [1.0, 2.0, 3.0]),
        "summing matrix, a tree": Problem.from_summing_matrix(tree, 1.0),
        "summing matrix, crossed": Problem.from_summing_matrix(crossed, 1.0),
    }


class _Solved(LinearOperator):
    """A covariance known by its products and by those of its inverse."""

    def __init__(self, covariance: Float) -> None:
        super().__init__(np.dtype(np.float64), covariance.shape)
        self._covariance = covariance

    def _matmat(self, X: Float) -> Float:
        return self._covariance @ X

    def _adjoint(self) -> _Solved:
        return self

    def solve(self, V: Float) -> Float:
        """The inverse times V, (n,) or (n, K)."""
        return np.asarray(np.linalg.solve(self._covariance, V), dtype=np.float64)
