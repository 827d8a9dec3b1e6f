"""Spines judged by exact variances, on and off the spine, before any noise is drawn.

The matrix mechanism's view: the variance of a workload under a strategy depends on the spine and the budget alone, not
on the data. With P the estimate as an operator and Sigma the variances of the noise, that of a linear functional w of
the estimates is c' Sigma c with c = P' w, the weights over the measurements: one adjoint apply, for any solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.contract import Solver
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.solvers import SolverName
from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import read_matrix
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.geography import Entities, NotComposableError, Strategy, compositions, leaves, osed
from constraint_builders.problem import Problem

BATCH_BYTES = 2**27  # dense columns over both layouts that are worked on at once


def workload_variances(P: BlueOperator, workload: sparse.sparray | NDArray) -> Float:
    """Exact variances of linear functionals of the estimates.

    Parameters
    ----------
    P : BlueOperator
        Of a problem with uncorrelated noise.
    workload : sparse array or ndarray, (m, K)
        One functional a column, over the desired layout.

    Returns
    -------
    ndarray, (K,)
        In squared counts.

    Raises
    ------
    ValueError
        If the workload has another number of rows, labels or no finite numbers, or the noise is correlated.
    """
    if P.problem.covariance is not None:
        raise ValueError("workload variances need uncorrelated noise: use P.covariance")
    variances = np.where(P.problem.unmeasured, 0.0, P.problem.variances)
    return np.concatenate([variances @ weights**2 for weights in workload_weights(P, workload)])


def workload_weights(P: BlueOperator, workload: sparse.sparray | NDArray) -> Iterator[Float]:
    """Weights over the measurements of the estimates of functionals, (n, columns) for one batch of them after another.

    Raises
    ------
    ValueError
        If the workload has another number of rows than the desired layout has cells, labels or no finite numbers.
    """
    columns = sparse.csc_array(read_matrix(workload, "the workload"))
    if columns.shape[0] != P.shape[0]:
        raise ValueError(f"the workload has {columns.shape[0]:,} rows, the desired layout {P.shape[0]:,} cells")
    batch = max(1, BATCH_BYTES // (8 * sum(P.shape)))
    for start in range(0, columns.shape[1], batch):
        yield P.T @ columns[:, start : start + batch].toarray()


def entity_workload(problem: Problem, entities: Entities, table: str = "total") -> sparse.csc_array:
    """Every cell of a table in every entity, as functionals of a problem's estimates.

    Each entity is composed of the fewest geounits, added and subtracted, of those at whose geolevels the table is
    desired. Estimates are consistent, so that the value and its variance are those of the sum over its blocks.

    Parameters
    ----------
    problem : Problem
        With a spine, desiring the table at geolevels that compose every entity: at every one with leaves, for any.
    entities : Entities
    table : str

    Returns
    -------
    csc_array, (m, K * cells)
        Entity by entity, cells in C order.

    Raises
    ------
    ValueError
        If the problem has no spine, does not desire the table at geolevels that compose an entity, or the entities are
        of another number of blocks.
    """
    if problem.spine is None:
        raise ValueError("entities need a problem with a spine")
    spine, wanted = problem.spine, parse_table(problem.domain.schema, table)
    start = np.full(len(spine.levels), -1)
    places = np.tile(np.arange(wanted.size), (len(spine.levels), 1))
    for index, (own, level) in enumerate(zip(problem.desired_tables, problem.desired_levels, strict=True)):
        if own.name == wanted.name:
            start[level], places[level] = problem.desired.offsets[index], wanted.places_in(own)
    try:
        signs = sparse.coo_array(compositions(spine, entities, start[spine.level_of] >= 0))
    except NotComposableError as error:
        levels = ", ".join(repr(level) for level, place in zip(spine.levels, start, strict=True) if place >= 0)
        raise ValueError(f"{error}: table {table!r} is desired at {levels or 'no geolevel'}; desire it below") from None
    cells = np.arange(wanted.size)
    levels_used = spine.level_of[signs.col]
    first_cell = start[levels_used] + spine.rank_in_level[signs.col] * wanted.size
    rows = (first_cell[:, None] + places[levels_used]).ravel()
    columns = (signs.row[:, None] * wanted.size + cells).ravel()
    shape = (problem.desired.size, entities.size * wanted.size)
    return sparse.csc_array((np.repeat(signs.data.astype(float), wanted.size), (rows, columns)), shape=shape)


def entity_variances(
    strategy: Strategy, schema: Schema, entities: Entities, table: str = "total", solver: SolverName | Solver = "auto"
) -> Float:
    """Exact variance of every cell of a table for every entity, on the spine or off it, under a strategy.

    Parameters
    ----------
    strategy : Strategy
        Bypassed or not.
    schema : Schema
        Of the strategy's tables.
    entities : Entities
        For a spine's own geounits: ``Entities.from_labels({level: partitions(spine)[level]}, outside=False)``.
    table : str
    solver : str or Solver
        As for `blue`.

    Returns
    -------
    ndarray, (K, *table's shape)
        In squared counts.

    Raises
    ------
    ValueError
        If the table cannot be estimated from the strategy's tables, or the entities are of another number of blocks.
    """
    spine = strategy.spine
    levels = [spine.levels[level] for level in np.unique(spine.level_of[leaves(spine)])]
    problem = strategy.problem(schema, {level: [table] for level in levels})
    found = workload_variances(blue(problem, solver), entity_workload(problem, entities, table))
    return found.reshape(entities.size, *parse_table(schema, table).shape)


@dataclass(frozen=True)
class SpineReport:
    """Spines side by side: how far every entity is from each, and how accurate it is.

    Attributes
    ----------
    entities : Entities
    distances : dict of str to ndarray of int, (K,)
        Off-spine entity distance, by the spine's name.
    variances : dict of str to ndarray, (K,)
        Exact variance, by the spine's name; of a table of several cells their mean.
    """

    entities: Entities
    distances: Mapping[str, Index]
    variances: Mapping[str, Float]

    def summary(self) -> list[tuple[str, float, int, float, float]]:
        """For every spine its name, mean and worst distance, mean and worst variance."""
        return [
            (
                name,
                float(self.distances[name].mean()),
                int(self.distances[name].max()),
                float(self.variances[name].mean()),
                float(self.variances[name].max()),
            )
            for name in self.variances
        ]

    def rows(self, before: str, after: str) -> list[tuple[str, int, int, float, float]]:
        """Two spines entity by entity: name, distances, variances; those that lose most first, gainers last.

        Raises
        ------
        ValueError
            If there is no spine of that name.
        """
        for name in (before, after):
            if name not in self.variances:
                raise ValueError(f"no spine {name!r} in this report: there are {', '.join(map(repr, self.variances))}")
        old, new = self.variances[before], self.variances[after]
        return [
            (
                self.entities.names[k],
                int(self.distances[before][k]),
                int(self.distances[after][k]),
                float(old[k]),
                float(new[k]),
            )
            for k in np.argsort(-new / old, kind="stable")
        ]


def compare_spines(
    strategies: Mapping[str, Strategy],
    schema: Schema,
    entities: Entities,
    table: str = "total",
    solver: SolverName | Solver = "auto",
) -> SpineReport:
    """Judge spines by the distances and exact variances of the same entities.

    Parameters
    ----------
    strategies : mapping of str to Strategy
        Spines with their budgets, by name; all over the same blocks in the same order.
    schema, entities, table, solver
        As for `entity_variances`.

    Returns
    -------
    SpineReport

    Raises
    ------
    ValueError
        If spines have different blocks, or for what `entity_variances` refuses.
    """
    require_same_blocks(strategies)
    variances = {}
    for name, strategy in strategies.items():
        found = entity_variances(strategy, schema, entities, table, solver)
        variances[name] = found.reshape(entities.size, -1).mean(axis=1)
    return SpineReport(entities, {name: osed(s.spine, entities) for name, s in strategies.items()}, variances)


def require_same_blocks(strategies: Mapping[str, Strategy]) -> None:
    """Raise `ValueError` unless the strategies' spines, by name, have the same blocks in the same order."""
    blocks = {name: [own.spine.geocodes[i] for i in leaves(own.spine)] for name, own in strategies.items()}
    first = next(iter(blocks), "")
    for name, codes in blocks.items():
        if codes != blocks[first]:
            raise ValueError(
                f"spines {first!r} and {name!r} have different blocks, or in another order: compare like with like"
            )
