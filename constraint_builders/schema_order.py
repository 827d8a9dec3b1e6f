"""A problem with all tables in the schema's order of the variables, which solvers are written for.

The vectors of a problem hold every table's cells in the order of the name that it was given under. Where that is not
the schema's, the same problem in the schema's order has the same cells at other positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import NamedTables, Table, TableNames
from constraint_builders.problem import Problem

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
