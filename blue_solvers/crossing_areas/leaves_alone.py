"""Leaves that are measured alike and share nothing, as columns of one leaf."""

from __future__ import annotations

import numpy as np

from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.clusters import zeros_of_leaves
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Float
from constraint_builders.description.areas import LEAF
from constraint_builders.description.layout import Layout


class LeavesAloneForm:
    """The estimate of leaves that share nothing, without the cells of all variables; see `AlikeLeavesForm`.

    Parameters
    ----------
    problem : Problem
        Of a spine whose leaves alone have tables, of the same variances.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._leaves = problem.domain.leaves.size
        variances = [float(own[0]) for own in problem.geounit_variances or ()]
        observed = {table.name: own for table, own in zip(problem.observed_tables, variances, strict=True)}
        desired = [table.name for table in problem.desired_tables]
        zeros = zeros_of_leaves(problem, 1)
        self._one = Problem(problem.domain.schema, {LEAF: observed}, {LEAF: desired}, areas=Areas(1, {}), zeros=zeros)
        self._form = AreaForm(self._one)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        p, one = self._problem, self._one
        X = self._form.apply(self._as_columns(Y, p.observed, one.observed))
        return self._as_rows(X, p.desired, one.desired, Y.shape[1])

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        p, one = self._problem, self._one
        U = self._form.adjoint(self._as_columns(V, p.desired, one.desired))
        return self._as_rows(U, p.observed, one.observed, V.shape[1])

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        each = np.repeat(self._form.variances()[:, None], self._leaves, axis=1)
        return self._as_rows(each, self._problem.desired, self._one.desired, 1)[:, 0]

    def _as_columns(self, X: Float, all_leaves: Layout, one: Layout) -> Float:
        """From tables of all leaves, (leaves * cells, K), to those of one, (cells, leaves * K)."""
        K = X.shape[1]
        found = np.empty((one.size, self._leaves, K))
        for i in range(len(one.names)):
            found[one.block(i)] = X[all_leaves.block(i)].reshape(self._leaves, -1, K).swapaxes(0, 1)
        return found.reshape(one.size, -1)

    def _as_rows(self, X: Float, all_leaves: Layout, one: Layout, K: int) -> Float:
        """The inverse of `_as_columns`."""
        given, found = X.reshape(one.size, self._leaves, K), np.empty((all_leaves.size, K))
        for i in range(len(one.names)):
            found[all_leaves.block(i)] = given[one.block(i)].swapaxes(0, 1).reshape(-1, K)
        return found
