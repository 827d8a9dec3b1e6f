"""Variances in closed form: parts of tables do not mix, and each is a number for every geounit of a tree.

What tables say of the counts splits into parts, one for each set T of variables: functions of the cells of T that sum
to zero along each of its axes. A part of a geounit is the sum of those of its children, so that what all that was
measured says of it is found up the tree and down again, for every T alone. All that is done with these numbers is to
add, multiply and divide positive ones: nothing is lost but by rounding each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np

from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.closed_tables import ClosedTables, TooManyTablesError
from constraint_builders.relations.marginals import map_along

MOST_CELLS = 4.0  # of all tables that some observed table contains, for each observed cell
Key = tuple[int, ...]


def are_of_groups(problem: Problem, tables: tuple[Table, ...] | None = None) -> Flags:
    """Which tables, the observed ones by default, have groups of levels, (tables,)."""
    names, tables = {*problem.domain.schema.names}, problem.observed_tables if tables is None else tables
    return np.array([not names.issuperset(table.factors) for table in tables], dtype=bool)


def tables_within(problem: Problem, keys: tuple[Key, ...]) -> ClosedTables:
    """All tables that some observed table contains, by the variables of the latter.

    Raises
    ------
    NotCertifiedError
        If they are too many.
    """
    try:
        return ClosedTables.of(problem.domain.schema.shape, keys, MOST_CELLS * problem.observed.size + 1e6)
    except TooManyTablesError:
        raise NotCertifiedError("its tables contain too many others") from None


def levels_of(schema: Schema, table: Table) -> Table:
    """The table of the levels whose groups another has."""
    return make_table(schema, tuple(schema.names[axis] for axis in table.axes))


def densities(tables: ClosedTables, information: Float) -> Float:
    """Information about every set's part, (tables, ...), of that about cells of each table: all that contain it."""
    found = information.copy()
    for table, without, levels in tables.by_axis:
        found[without] += found[table] / levels
    return found


def part_variances(tables: ClosedTables, density: Float) -> Float:
    """Of a cell of every table, (tables, ...), of that information about every set's part."""
    share = np.ones(len(density))
    for table, _, levels in tables.by_axis:
        share[table] *= 1 - 1 / levels
    share = share.reshape(-1, *(1,) * (density.ndim - 1))
    found = np.divide(share, density, out=np.where(share > 0, np.inf, np.zeros_like(density)), where=density > 0)
    for table, without, levels in tables.by_axis:
        found[table] += found[without] / levels**2
    return found


def variances_of_groups(schema: Schema, tables: ClosedTables, table: Table, density: Float) -> Float:
    """Of the cells of a table, perhaps of groups of levels, (..., cells), of information (tables, ...) about parts.

    Each is a product of one indicator for every axis, of so many levels: of g levels of n what is constant has
    g^2 / n^2 of the mean's variance, and the rest g - g^2 / n of a contrast's.
    """
    fine, found = levels_of(schema, table), np.zeros((*density.shape[1:], table.size))
    groups = [np.bincount(map_along(schema, fine, table, axis)).astype(float) for axis in table.axes]
    for part in subsets(table.axes):
        share = np.ones(())
        for g, axis in zip(groups, table.axes, strict=True):
            n = schema.shape[axis]
            share = np.multiply.outer(share, g - g**2 / n if axis in part else (g / n) ** 2)
        precision = density[tables.numbers[part]][..., None]
        own = np.broadcast_to(share.ravel(), found.shape)
        found += np.divide(own, precision, out=np.where(own > 0, np.inf, 0.0), where=(precision > 0) & (own > 0))
    return found


def variances_between(problem: Problem) -> tuple[Float, Float]:
    """Lower and upper bounds of the variance of every desired cell, (m,) each: of the least noise and of the most.

    Raises
    ------
    NotCertifiedError
        Where areas cross, cells are known exactly, noise is correlated, observed tables are of groups, no observed one
        contains a desired one, or the tables that they contain are too many.
    """
    nested = problem.tree if problem.noise.covariance is None else None
    if nested is not None:
        lower, upper = variances_between(nested.problem)
        return lower[nested.desired], upper[nested.desired]
    known = problem.noise.covariance is not None or problem.has_zeros or problem.has_equalities
    if not problem.is_tabular or problem.areas is not None or known or are_of_groups(problem).any():
        raise NotCertifiedError("its variances have no closed form")
    schema, tree = problem.domain.schema, problem.domain.spine
    keys = tuple(dict.fromkeys(table.axes for table in problem.observed_tables))
    tables = tables_within(problem, keys)
    of_groups = are_of_groups(problem, problem.desired_tables).tolist()
    numbers = tables.numbers
    if not all(table.axes in numbers for table in problem.desired_tables):
        raise NotCertifiedError("a table is desired which no observed one contains")
    slack, bounds, before = _rounding(tables, tree), list[Float](), None
    for extreme, side in ((np.min, 1 - slack), (np.max, 1 + slack)):
        information = np.zeros((tables.sizes.size, tree.size))
        for i, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True)):
            own = extreme(problem.variances[problem.observed.block(i)].reshape(-1, table.size), axis=1)
            information[numbers[table.axes], tree.members[level]] = _inverse(own)
        if before is None or not np.array_equal(information, before):
            density, before = over_tree(tree, densities(tables, information)), information
            variances, found = part_variances(tables, density), np.empty(problem.desired.size)
            for i, (level, table) in enumerate(zip(problem.desired_levels, problem.desired_tables, strict=True)):
                here, cells = tree.members[level], found[problem.desired.block(i)].reshape(-1, table.size)
                if of_groups[i]:
                    cells[...] = variances_of_groups(schema, tables, table, density[:, here])
                else:
                    cells[...] = variances[numbers[table.axes], here][:, None]
        bounds.append(found * side)
    return bounds[0], bounds[1]


def subsets(axes: Key) -> Iterator[Key]:
    """All sets of some axes, none of them first."""
    return chain.from_iterable(combinations(axes, k) for k in range(len(axes) + 1))


def over_tree(tree: LevelledTree, own: Float) -> Float:
    """Information about parts of every node, (tables, nodes), of all that was measured; `own` of its tables alone."""
    if tree.size == 1:
        return own
    parent = tree.parent
    below, within = np.zeros_like(own), own.copy()  # variance of what children add up to; own and what is below
    for members in reversed(tree.members):
        has_children = members[tree.child_counts[members] > 0]
        within[:, has_children] += _inverse(below[:, has_children])
        inside = members[parent[members] >= 0]
        inside = inside[np.argsort(parent[inside], kind="stable")]
        if inside.size:
            starts = np.flatnonzero(np.diff(parent[inside], prepend=-1))
            below[:, parent[inside[starts]]] += np.add.reduceat(_inverse(within[:, inside]), starts, axis=1)
    order, counts = np.argsort(parent, kind="stable"), tree.child_counts
    roots = np.zeros(np.count_nonzero(parent < 0), dtype=np.intp)
    ends = roots.size + np.cumsum(counts)
    first, last = (np.concatenate([roots, np.repeat(own, counts)]) for own in (ends - counts, parent.size - ends))
    beside, variances = np.empty_like(own), _inverse(within[:, order])
    beside[:, order] = _sums_before(variances, first) + _sums_before(variances[:, ::-1], last[::-1])[:, ::-1]
    outside = np.zeros_like(own)  # of all that is neither a node nor below it
    for members in tree.members:
        inside = members[parent[members] >= 0]
        above = parent[inside]
        outside[:, inside] = _inverse(_inverse(own[:, above] + outside[:, above]) + beside[:, inside])
    return within + outside


def _sums_before(values: Float, first: Index) -> Float:
    """Sums of the values, (tables, k), from `first`, (k,), on that come before each, those of it and before doubled."""
    found, places, step = np.zeros_like(values), np.flatnonzero(np.arange(first.size) > first), 1
    found[:, places] = values[:, places - 1]
    while (places := places[places - step > first[places]]).size:
        found[:, places] += found[:, places - step]
        step *= 2
    return found


def _inverse(values: Float) -> Float:
    """1 / values, of any shape: of 0 infinite, of infinite ones 0."""
    with np.errstate(divide="ignore"):
        found: Float = 1.0 / values
    return found


def _rounding(tables: ClosedTables, tree: LevelledTree) -> float:
    """By how much of themselves variances may be off."""
    most = sum(int(tree.child_counts[members].max(initial=0)) + 16 for members in tree.members)
    return 8 * (tables.sizes.size + 2 * len(tables.shape) + 2 * most) * ROUNDING
