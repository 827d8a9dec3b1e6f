"""A problem with all tables in the schema's order of the variables, which solvers are written for.

The vectors of a problem hold every table's cells in the order of the name that it was given under. Where that is not
the schema's, the same problem in the schema's order has the same cells at other positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.table import Table
from constraint_builders.problem import Problem
from constraint_builders.relations.spine_tables import spine_layout, table_layout


@dataclass(frozen=True)
class SchemaOrder:
    """A problem in the schema's order, and where its cells are in that which it was made from.

    Attributes
    ----------
    problem : Problem
        Under canonical names.
    observed : ndarray of int, (n,)
        ``y[observed]`` is a vector over its observed layout, for y over that of the problem it was made from.
    desired : ndarray of int, (m,)
        The same for the desired layout.
    """

    problem: Problem
    observed: Index
    desired: Index


def in_schema_order(problem: Problem) -> SchemaOrder | None:
    """The same problem with all tables in the schema's order; None where they are in it already."""
    if not problem.has_turned_tables:
        return None
    observed = _order(problem.observed, problem.observed_tables)
    desired = _order(problem.desired, problem.desired_tables)
    layout = _layout(problem, problem.observed, problem.observed_tables)
    same = problem.desired is problem.observed
    changes: dict[str, Any] = {}
    if problem.equalities is not None:
        matrix, b = problem.equalities
        changes["equalities"] = sparse.csr_array(matrix[:, observed]), b
    turned = problem.replace(
        observed=layout,
        observed_tables=tuple(table.in_schema_order() for table in problem.observed_tables),
        desired=layout if same else _layout(problem, problem.desired, problem.desired_tables),
        desired_tables=tuple(table.in_schema_order() for table in problem.desired_tables),
        noise=problem.noise.at(observed),
        undetermined=None if problem.undetermined is None else problem.undetermined[desired],
        assumed=np.flatnonzero(np.isin(observed, problem.assumed)),
        truth=None if problem.truth is None else problem.truth[observed],
        sources=None,
        **changes,
    )
    return SchemaOrder(turned, observed, desired)


def _order(layout: Layout, tables: Sequence[Table]) -> Index:
    """For every cell in the schema's order its position in the layout."""
    positions = np.arange(layout.size)
    cells = ((positions[layout.block(index)].reshape(-1, table.size), table) for index, table in enumerate(tables))
    return np.concatenate([own[:, table.in_schema_order().places_in(table)].ravel() for own, table in cells])


def _layout(problem: Problem, layout: Layout, tables: Sequence[Table]) -> Layout:
    domain = problem.domain
    if problem.places is None:
        ordered = [table.in_schema_order() for table in tables]
        return table_layout(domain.schema, [table.name for table in ordered], ordered)
    levels = [str(name[0]) for name in layout.names if isinstance(name, tuple)]
    names = list(zip(levels, (table.name for table in tables), strict=True))
    return spine_layout(domain.schema, domain.places, names)
