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
    observed_tables, observed_layout, observed = _turned(problem, problem.observed, problem.observed_tables)
    desired_tables, desired_layout, desired = observed_tables, observed_layout, observed
    if problem.desired is not problem.observed:
        desired_tables, desired_layout, desired = _turned(problem, problem.desired, problem.desired_tables)
    changes: dict[str, Any] = {}
    if problem.equalities is not None:
        matrix, b = problem.equalities
        changes["equalities"] = sparse.csr_array(matrix[:, observed]), b
    turned = problem.replace(
        observed=observed_layout,
        observed_tables=observed_tables,
        desired=desired_layout,
        desired_tables=desired_tables,
        noise=problem.noise.at(observed),
        undetermined=None if problem.undetermined is None else problem.undetermined[desired],
        assumed=np.flatnonzero(np.isin(observed, problem.assumed)),
        truth=None if problem.truth is None else problem.truth[observed],
        sources=None,
        **changes,
    )
    return SchemaOrder(turned, observed, desired)


def _turned(problem: Problem, layout: Layout, tables: Sequence[Table]) -> tuple[tuple[Table, ...], Layout, Index]:
    """Tables in the schema's order, how they lie, and for every cell its position in the layout that was given."""
    turned, domain = tuple(table.in_schema_order() for table in tables), problem.domain
    names = [table.name for table in tables]
    if problem.places is None:
        ordered = table_layout(domain.schema, names, turned)
    else:
        levels = [str(name[0]) for name in layout.names if isinstance(name, tuple)]
        ordered = spine_layout(domain.schema, domain.places, list(zip(levels, names, strict=True)))
    positions = np.arange(layout.size)
    cells = [
        positions[layout.block(index)].reshape(-1, table.size)[:, own.places_in(table)].ravel()
        for index, (table, own) in enumerate(zip(tables, turned, strict=True))
    ]
    return turned, ordered, np.concatenate(cells)
