"""A problem with all tables in the schema's order of the variables, which solvers are written for, or with some tables.

The vectors of a problem hold every table's cells in the order of the name that it was given under. Where that is not
the schema's, the same problem in the schema's order has the same cells at other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import NamedTables, Table, TableNames
from constraint_builders.estimability import refuse_unestimable
from constraint_builders.problem import Problem
from constraint_builders.record import NOTHING_ASSUMED

AS_IT_IS = slice(None)  # cells of tables none of which is turned


class SchemaOrder(NamedTuple):
    """A problem in the schema's order, and where its cells are in that which it was made from.

    Attributes
    ----------
    problem : Problem
        Under canonical names.
    observed : ndarray of int, (n,), or slice
        ``y[observed]`` is a vector over its observed layout, for y over that of the problem it was made from.
    desired : ndarray of int, (m,), or slice
        The same for the desired layout.
    """

    problem: Problem
    observed: Index | slice = AS_IT_IS
    desired: Index | slice = AS_IT_IS


def in_schema_order(problem: Problem) -> SchemaOrder:
    """The same problem with all tables in the schema's order: itself, vectors as they are, if nothing is turned."""
    if not problem.has_turned_tables:
        return SchemaOrder(problem)
    own = NamedTables(problem.observed, problem.observed_tables, problem.observed_levels)
    desired_layout, desired_tables, desired = observed_layout, observed_tables, observed = _turned(problem.names, own)
    if problem.desired is not problem.observed:
        asked = NamedTables(problem.desired, problem.desired_tables, problem.desired_levels)
        desired_layout, desired_tables, desired = _turned(problem.names, asked)
    matrix, b = problem.equality_rows
    changes: dict[str, Any] = {"equalities": (sparse.csr_array(matrix[:, observed]), b)} if b.size else {}
    turned = problem.replace(
        observed=observed_layout,
        observed_tables=observed_tables,
        desired=desired_layout,
        desired_tables=desired_tables,
        noise=problem.noise.at(observed),
        undetermined=_at(desired, problem.undetermined),
        assumed=np.flatnonzero(np.isin(observed, problem.assumed)),
        truth=_at(observed, problem.truth),
        sources=None,
        **changes,
    )
    return SchemaOrder(turned, observed, desired)


def _at(cells: Index, values: Any) -> Any:
    """What some cells, (k,), have, where that is known of any."""
    return values if values is None else values[cells]


def _turned(names: TableNames, given: NamedTables) -> tuple[Layout, tuple[Table, ...], Index]:
    """How tables in the schema's order lie, these, and for every cell its position in the layout that was given."""
    called = list(map(names.called, given.levels, (table.name for table in given.tables)))
    turned = tuple(table.in_schema_order() for table in given.tables)
    cells = np.split(np.arange(given.layout.size), given.layout.offsets[1:-1])
    for index, (table, own) in enumerate(zip(given.tables, turned, strict=True)):
        if own is not table:
            cells[index] = cells[index].reshape(-1, table.size)[:, own.places_in(table)].ravel()
    return names.laid_out(called, turned, given.levels).layout, turned, np.concatenate(cells)


def of_tables(problem: Problem, kept: Sequence[int], wanted: Sequence[int] | None = None) -> Problem:
    """The same problem with some of the observed tables only.

    Parameters
    ----------
    problem : Problem
    kept : sequence of int
        Positions of the tables that count as observed. Equalities may speak of no other.
    wanted : sequence of int, optional
        Positions of the observed tables that are desired; None leaves the desired tables as they are.

    Returns
    -------
    Problem

    Raises
    ------
    ValueError
        If noise is correlated, an equality speaks of another table, or a desired table is not estimable.
    """
    if problem.covariance is not None:
        raise ValueError("the noise is correlated: it belongs to all tables together")
    cells = problem.observed.cells(kept)
    changes: dict[str, Any] = {**NOTHING_ASSUMED, "noise": problem.noise.at(cells), "truth": None, "sources": None}
    if problem.equalities is not None:
        E, b = problem.equalities
        changes["equalities"] = sparse.csr_array(E[:, cells]), b
        if changes["equalities"][0].nnz < E.nnz:
            raise ValueError("an equality speaks of a table that is left out")
    if wanted is not None:
        changes |= _tables(problem, "desired", wanted)
    smaller = problem.replace(**changes, **_tables(problem, "observed", kept))
    refuse_unestimable(smaller)
    return smaller


def _tables(problem: Problem, what: str, chosen: Sequence[int]) -> dict[str, Any]:
    """Some of the observed tables, as fields of what is observed or desired."""
    levels = tuple(problem.observed_levels[i] for i in chosen)
    tables = tuple(problem.observed_tables[i] for i in chosen)
    return {what: problem.observed.chosen(chosen), f"{what}_tables": tables, f"{what}_levels": levels}
