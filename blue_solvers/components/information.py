"""What the observed tables together tell about every component, and how precisely.

A component T is a set of variables: contrasts along these, group sums along the others. Its group sums are
estimated from an information matrix, one for all contrasts, of size prod r_v over the variables outside T. Without
recodes that is a number. Tables known exactly come first: noisy ones fill in only what these leave open.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.grouping import Grouping, group_sums, sees_contrasts
from constraint_builders import Schema
from constraint_builders.table import Table

Float = NDArray[np.float64]

ROUNDING = 16 * float(np.finfo(float).eps)
WELL_CONDITIONED = 1e6  # up to here doubles leave ten digits, and extended precision is not needed
RANK_TOLERANCE = 1e-9  # of unweighted information, whose entries are of order one


@dataclass(frozen=True)
class Solve:
    """Group sums of one component from its information vectors: u = exact h_E + noisy (h_N - cross h_E).

    Attributes
    ----------
    noisy : ndarray, (m, m)
        Covariance of the estimate.
    exact : ndarray, (m, m) or None
        None where no exact table sees the component.
    cross : ndarray, (m, m) or None
    """

    noisy: Float
    exact: Float | None = None
    cross: Float | None = None


class Information:
    """Information of all components of a problem under assumptions A1 to A3.

    Parameters
    ----------
    schema : Schema
    groupings : list of Grouping
    tables : list of Table
        Observed tables, measured ones only.
    variances : ndarray
        Variance of a cell in each; 0 is exact.
    """

    def __init__(self, schema: Schema, groupings: list[Grouping], tables: list[Table], variances: Float) -> None:
        self._schema = schema
        self._plain = [grouping for grouping in groupings if grouping.sizes.size == 1]
        self._grouped = [grouping for grouping in groupings if grouping.sizes.size > 1]
        exact = [table for table, variance in zip(tables, variances, strict=True) if variance == 0]
        noisy = [(table, 1 / variance) for table, variance in zip(tables, variances, strict=True) if variance > 0]
        self._solves: dict[tuple[bool, ...], list[Solve]] = {}
        self._covariances: dict[tuple[bool, ...], Float] = {}
        for contrasts in product(*([False, True] if g.has_contrasts else [False] for g in self._grouped)):
            J = self._accumulate(contrasts, noisy)
            seen = self._accumulate(contrasts, [(table, 1.0) for table, _ in noisy])
            J_exact = self._accumulate(contrasts, [(table, 1.0) for table in exact]) if exact else None
            flat = zip(
                J.reshape(-1, *J.shape[-2:]),
                seen.reshape(-1, *J.shape[-2:]),
                [None] * prod(J.shape[:-2]) if J_exact is None else J_exact.reshape(-1, *J.shape[-2:]),
                strict=True,
            )
            self._solves[contrasts] = [_solve(*matrices) for matrices in flat]

    def solve(self, component: frozenset[int]) -> Solve:
        """How the group sums of a component, given by its variables, follow from its information vectors."""
        contrasts = tuple(grouping.axis in component for grouping in self._grouped)
        number = 0
        for grouping in self._plain:
            number = 2 * number + (grouping.axis in component)
        return self._solves[contrasts][number]

    def _accumulate(self, contrasts: tuple[bool, ...], tables: list[tuple[Table, float]]) -> NDArray:
        """Information (2, ..., 2, m, m) of the components with given contrasts along grouped variables.

        Along a plain variable index 0 is the total and 1 the contrasts, and what the contrasts' tables know of the
        total is a share 1 / n of their information.
        """
        sizes = [g.sizes.size for g, contrast in zip(self._grouped, contrasts, strict=True) if not contrast]
        J = np.zeros((2,) * len(self._plain) + (prod(sizes),) * 2, dtype=np.longdouble)
        for table, weight in tables:
            factors = dict(zip(table.axes, table.factors, strict=True))
            if all(
                sees_contrasts(self._schema, g, factors.get(g.axis))
                for g, contrast in zip(self._grouped, contrasts, strict=True)
                if contrast
            ):
                matrices = [
                    self._along(g, factors.get(g.axis))
                    for g, contrast in zip(self._grouped, contrasts, strict=True)
                    if not contrast
                ]
                index = tuple(int(g.axis in factors and g.has_contrasts) for g in self._plain)
                J[index] += weight * kronecker(matrices)
        for position, grouping in enumerate(self._plain):
            total, own = (np.moveaxis(J, position, 0)[index] for index in (0, 1))
            total += own / grouping.levels
        return J

    def _along(self, grouping: Grouping, factor: str | None) -> Float:
        if sees_contrasts(self._schema, grouping, factor):
            return np.diag(1 / grouping.sizes)
        sums = group_sums(self._schema, grouping, factor)
        return sums.T @ sums

    def cell_variances(self, tables: list[Table]) -> Float:
        """Variances of the cells of desired tables, one after the other."""
        sums = {contrasts: self._variance_sums(contrasts) for contrasts in self._solves}
        if self._grouped:
            return np.concatenate([self._table_variances(table, sums) for table in tables])
        kept = [[int(g.axis in table.axes and g.has_contrasts) for g in self._plain] for table in tables]
        by_table = sums[()][(*np.array(kept, dtype=np.intp).reshape(len(tables), -1).T, 0, 0)]
        return np.repeat(by_table, [table.size for table in tables])

    def _variance_sums(self, contrasts: tuple[bool, ...]) -> Float:
        """For every choice of plain variables kept the covariance of group sums in a cell, (2, ..., 2, m, m)."""
        V = np.stack([solve.noisy for solve in self._solves[contrasts]])
        V = V.reshape((2,) * len(self._plain) + V.shape[-2:])
        for position, grouping in enumerate(self._plain):
            total, own = (np.moveaxis(V, position, 0)[index] for index in (0, 1))
            own *= 1 - 1 / grouping.levels
            own += total / grouping.levels**2
        return V

    def _table_variances(self, table: Table, sums: dict[tuple[bool, ...], Float]) -> Float:
        factors = dict(zip(table.axes, table.factors, strict=True))
        index = tuple(int(g.axis in factors and g.has_contrasts) for g in self._plain)
        detailed = [sees_contrasts(self._schema, g, factors.get(g.axis)) for g in self._grouped]
        total: Float = np.zeros(())
        for contrasts, V in sums.items():
            if all(own or not contrast for own, contrast in zip(detailed, contrasts, strict=True)):
                total = total + self._part(V[index], contrasts, detailed, factors)
        return self._spread(total, detailed, factors, table)

    def _part(self, V: Float, contrasts: tuple[bool, ...], detailed: list[bool], factors: dict[int, str]) -> Float:
        """Variance from one choice of contrasts, an axis for every grouped variable (groups, or a recode's cells)."""
        rows, scales = [], []
        for grouping, contrast, own in zip(self._grouped, contrasts, detailed, strict=True):
            if contrast:
                scales.append(1 - 1 / grouping.sizes)
            else:
                maps = (
                    np.diag(1 / grouping.sizes)
                    if own
                    else group_sums(self._schema, grouping, factors.get(grouping.axis))
                )
                rows.append(maps)
                scales.append(np.ones(maps.shape[0]))
        W = kronecker(rows)
        variances = np.einsum("ij,jk,ik->i", W, V, W)
        rounding = ROUNDING * np.einsum("ij,jk,ik->i", abs(W), abs(V), abs(W))
        variances = np.where(variances > rounding, variances, 0.0)  # what exact tables determine, not -1e-16
        shape = [1 if contrast else scale.size for contrast, scale in zip(contrasts, scales, strict=True)]
        return variances.reshape(shape) * reduce(np.multiply.outer, scales, np.ones(()))

    def _spread(self, variances: Float, detailed: list[bool], factors: dict[int, str], table: Table) -> Float:
        """From groups to the cells of a table."""
        for position, (grouping, own) in enumerate(zip(self._grouped, detailed, strict=True)):
            if own:
                variances = np.take(variances, grouping.groups, axis=position)
        lengths = {g.axis: variances.shape[i] for i, g in enumerate(self._grouped)}
        shape = [lengths.get(axis, 1) for axis in table.axes]
        return np.broadcast_to(variances.reshape(shape), table.shape).ravel()


def kronecker(matrices: list[Float]) -> Float:
    """Kronecker product of any number of matrices."""
    result: NDArray = np.ones((1, 1))
    for matrix in matrices:
        result = np.kron(result, matrix)
    return result


def _solve(J: NDArray, seen: NDArray, J_exact: NDArray | None) -> Solve:
    """Solve for one component; directions that nothing sees stay zero (no desired table needs them)."""
    if J_exact is None or not J_exact.any():
        return Solve(_inverse_on(_range(seen, seen), J))
    known = _range(J_exact, J_exact)
    exact = _inverse_on(known, J_exact)
    open_ = np.eye(len(J)) - known @ known.T
    noisy = _inverse_on(_range(open_ @ seen @ open_, seen), J)
    return Solve(noisy, exact, (J @ exact).astype(float))


def _range(matrix: NDArray, scale: NDArray) -> Float:
    """Orthonormal basis of the range of a semidefinite matrix, up to rounding of numbers as large as `scale`."""
    if matrix.shape == (1, 1):
        return np.ones((1, int(matrix[0, 0] > 0)))
    values, vectors = np.linalg.eigh(matrix.astype(float))
    return vectors[:, values > RANK_TOLERANCE * scale.trace()]


def _inverse_on(basis: Float, J: NDArray) -> Float:
    """Inverse of J restricted to a subspace.

    Precisions may differ by many decades, and the least must not drown in the rounding of the greatest: J is summed in
    extended precision where the machine has it, and one Newton step in it mends the inverse.
    """
    if J.shape == (1, 1):
        return (basis @ basis.T / J).astype(float) if basis.size else np.zeros((1, 1))
    plain = basis.T @ J.astype(float) @ basis
    inverse = np.linalg.inv(plain)
    if np.linalg.norm(plain, 1) * np.linalg.norm(inverse, 1) > WELL_CONDITIONED:
        restricted = basis.T @ J @ basis
        inverse = inverse + inverse @ (np.eye(len(restricted)) - restricted @ inverse)
    return (basis @ inverse @ basis.T).astype(float)
