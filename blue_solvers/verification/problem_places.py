"""The places of problems, and of parts of a tree: which tables hold all others, and who is in which area."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
from scipy import sparse

from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.holding_tables import MOST_FREE, finest_tables, tables_that_hold
from blue_solvers.verification.placed_tables import NONE_EMPTY, ChildSummary, Leaves, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import NO_MAP, Reach
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index, as_slice
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.spine import ONE_PLACE
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.relations.marginals import cell_map, refines

PART = 2**17  # cells of leaves worked on at a time
MOST_HOLDING = 200  # tables of one place, each compared with each
# Cells read for tables of a place: of more it is asked what they have in common. Of 10 variables two-way and detailed
# that takes 5 ms of proof in place of 47.
WORTH_HELPERS = 2**16
Factors = dict[int, str]  # of a table, by axes
ALL_LEAVES_ONCE, NONE_ALONE = np.ones(1), np.zeros(1)
MOST_PATTERNS = 64  # of structural zeros, where several tables hold all others


@dataclass(frozen=True)
class Claim:
    """A desired table.

    Attributes
    ----------
    index : int
        Its number among the desired ones.
    level : int
    table : Table
    figures : ndarray, (geounits * cells,)
        NaN where nothing is claimed.
    """

    index: int
    level: int
    table: Table
    figures: Float


def observed_twins(problem: Problem) -> list[slice | None]:
    """Of every desired table where it is observed; None where it is not."""
    blocks = map(problem.observed.block, range(len(problem.observed_tables)))
    observed = dict(zip(zip(problem.observed_levels, problem.observed_tables, strict=True), blocks, strict=True))
    return [observed.get(own) for own in zip(problem.desired_levels, problem.desired_tables, strict=True)]


def claims(problem: Problem, x: Float, desired: Float, twins: Sequence[slice | None] | None = None) -> list[Claim]:
    """The desired tables, in (m,), but for those that have twins, `observed_twins`, of which x, (n,), says the same."""
    found = []
    for index, twin in enumerate(observed_twins(problem) if twins is None else twins):
        figures = desired[problem.desired.block(index)]
        if twin is None or not np.array_equal(figures, x[twin]):
            found.append(Claim(index, problem.desired_levels[index], problem.desired_tables[index], figures))
    return found


def matrix_of_claims(problem: Problem, made: Sequence[Claim]) -> sparse.csr_array:
    """Their cells as sums of the counts, (cells, detailed cells of all leaves)."""
    wanted = problem.replace(
        observed=problem.desired, observed_tables=problem.desired_tables, observed_levels=problem.desired_levels
    )
    return sparse.csr_array(wanted.marginal_matrix()[problem.desired.cells([claim.index for claim in made])])


def holds_all(problem: Problem, made: Sequence[Claim] = ()) -> list[Table] | None:
    """For every geolevel of a problem on a tree the table that holds all others; None where there is none."""
    if not problem.is_tabular or problem.areas is not None:
        return None
    observed = list(zip(problem.observed_levels, problem.observed_tables, strict=True))
    claimed = [(claim.level, claim.table) for claim in made]
    return finest_tables(problem.domain.schema, len(problem.domain.spine.levels), observed, claimed)


def tree_places(
    schema: Schema,
    tree: LevelledTree,
    finest: Sequence[Table],
    level_tables: Sequence[LevelTable],
    zeros: StructuralZeros | None = None,
    summaries: Mapping[int, ChildSummary] | None = None,
) -> PlacedTables:
    """Of a tree, in which a table holds all others at every level.

    Parameters
    ----------
    schema : Schema
    tree : LevelledTree
    finest : sequence of Table
        For every level.
    level_tables : sequence of LevelTable
    zeros : StructuralZeros, optional
        Over all nodes.
    summaries : mapping of int to ChildSummary, optional
        What was told of leaves whose branches were cut off, by their positions.
    """
    levels, leaves = list[Level](), list[Leaves]()
    level_tables = [*level_tables, *_known_below(schema, tree, finest, summaries or {})]
    for number, members in enumerate(tree.members):
        here = as_slice(members)
        parent, children = tree.parent[here], tree.child_counts[here]
        alone = (tree.child_counts[parent] == 1) | (parent < 0)
        whole = members[children == 0] if children.any() else members
        above = {} if whole is members else _areas(schema, tree, finest, number, members)
        described = (ALL_LEAVES_ONCE, alone.astype(float) if alone.any() else NONE_ALONE), 1.0
        name, own = tree.levels[number], finest[number : number + 1]
        levels.append(_level(schema, name, number, members.size, own, level_tables, described, above))
        told = np.isin(whole, list(summaries)) if summaries else np.zeros(0, dtype=bool)
        for nodes, below in ((whole[~told], None), (whole[told], summaries)) if summaries else ((whole, None),):
            for some in _pieces(nodes, finest[number].size):
                empty = NONE_EMPTY
                if zeros is not None and below is None:
                    empty = zeros.cells(finest[number], some).reshape(some.size, -1)
                rows, of_some = tree.rank_in_level[as_slice(some)], (schema, tree, finest, number, some)
                above, ancestors = _areas(*of_some), partial(_areas, *of_some, all_above=True)
                roots = None if below is None else _together([below[node] for node in some.tolist()])
                leaves.append(Leaves(number, rows, above, ancestors, None, empty, roots))
    return PlacedTables(schema, levels, leaves, nest=True)


def _together(below: Sequence[ChildSummary]) -> ChildSummary:
    """What several parts tell of their roots."""
    return ChildSummary(
        np.concatenate([own.share for own in below]),
        np.concatenate([np.broadcast_to(own.variance, own.share.shape) for own in below]),
        np.concatenate([own.total.astype(np.longdouble) for own in below]),
        np.concatenate([own.error for own in below]),
        slack=np.concatenate([own.slack for own in below]),
    )


def _known_below(
    schema: Schema, tree: LevelledTree, finest: Sequence[Table], summaries: Mapping[int, ChildSummary]
) -> Iterator[LevelTable]:
    """Tables that parts know exactly in all leaves, as those of their roots, of which nothing else is said."""
    roots = dict[tuple[int, str], list[int]]()
    for node, own in summaries.items():
        for name in own.known:
            roots.setdefault((int(tree.level_of[node]), name), []).append(node)
    for (number, name), nodes in roots.items():
        table = parse_table(schema, name)
        if refines(schema, finest[number], table):
            variance = np.full((tree.members[number].size, 1), np.inf)
            variance[tree.rank_in_level[nodes]] = 0.0
            yield LevelTable("", number, table, variance)


def _areas(
    schema: Schema, tree: LevelledTree, finest: Sequence[Table], number: int, nodes: Index, all_above: bool = False
) -> dict[int, Reach]:
    """The places that some nodes, (k,), of a level are in, by their levels: their parents, or all."""
    found, own = dict[int, Reach](), tree.parent[as_slice(nodes)]
    of_parents = np.bincount(tree.level_of[own]) if number else np.zeros(0, dtype=np.intp)
    for above in range(number) if all_above else np.flatnonzero(of_parents).tolist():
        if all_above:
            own = tree.ancestors_at(nodes, above)
        area = tree.rank_in_level[own]
        if all_above or of_parents[above] < own.size:
            area = np.where((own >= 0) & (tree.level_of[own] == above), area, -1)
        found[above] = Reach.of_sets(area, _map(schema, finest[number], finest[above]))
    return found


def problem_places(problem: Problem, made: Sequence[Claim] = (), said: Flags | None = None) -> PlacedTables:
    """Of a problem, with tables of which figures are claimed; `said` tells of which observed ones some are, (tables,).

    Raises
    ------
    NotCertifiedError
        If no tables of the leaves hold all others.
    """
    level_tables, finest = _level_tables(problem, made), holds_all(problem, made)
    if finest is None:
        said = np.ones(len(problem.observed_tables), dtype=bool) if said is None else said
        return _crossing_places(problem, level_tables, said)
    return tree_places(problem.domain.schema, problem.domain.spine, finest, level_tables, problem.zeros)


def _level_tables(problem: Problem, made: Sequence[Claim]) -> list[LevelTable]:
    """The observed tables, and those that are claimed."""
    by_geounit, level_tables, start = problem.geounit_variances, [], problem.observed.size
    for i, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True)):
        cut = problem.observed.block(i)
        own = problem.variances[cut].reshape(-1, table.size) if by_geounit is None else by_geounit[i][:, None]
        level_tables.append(LevelTable(f"{level} {table.name}", level, table, own, place=cut))
    for claim in made:
        size, start = claim.figures.size, start + claim.figures.size
        placed = LevelTable.unmeasured(claim.level, claim.table, size // claim.table.size)
        level_tables.append(replace(placed, key=f"claim {claim.index}", place=slice(start - size, start)))
    return level_tables


def _crossing_places(problem: Problem, level_tables: Sequence[LevelTable], said: Flags) -> PlacedTables:
    """Of areas, a spine or one place: several tables may hold all others, which were measured in all leaves.

    `said` tells of which observed tables anything is claimed, (tables,).
    """
    places, schema, last = problem.domain.places, problem.domain.schema, len(problem.domain.places.levels) - 1
    if problem.areas is not None:
        for placed in level_tables:  # other layers of leaves are the leaves too
            layer = problem.areas.layer(places.levels[placed.level])
            placed.level = last if layer.is_of_leaves else placed.level
    members, count = [places.leaves_of(number) for number in range(last + 1)], problem.domain.leaves.size
    level_of, rows = np.full(count, last), np.arange(count)
    if problem.areas is None:
        own_places = problem.domain.spine
        level_of, rows = (own[problem.domain.leaves] for own in (own_places.level_of, own_places.rank_in_level))
    in_use = [
        placed
        for i, placed in enumerate(level_tables)
        if i >= said.size or said[i] or np.isfinite(placed.variance).any()
    ]
    tables = tables_that_hold(schema, in_use, last, count)
    if sum(table.size for table in tables) * np.count_nonzero(level_of < last) > MOST_FREE:
        raise NotCertifiedError(
            f"its counts are too many to list, some branches end above {places.levels[last]!r}, and no one table that "
            "was measured where branches end holds all others: one that does would let sums prove it"
        )
    if len(tables) > MOST_HOLDING and problem.domain.places.size == 1:
        raise NotCertifiedError(
            f"its counts are too many to list, and {len(tables):,} tables are needed to hold all others: proofs by "
            f"sums take {MOST_HOLDING}, but for plain tables"
        )
    levels = []
    for number, own in enumerate(members):
        weight = abs(own).max(axis=1).toarray().ravel() if own.nnz else np.zeros(own.shape[0])
        squares = float(own.power(2).sum(axis=0).max(initial=0.0)) or 1.0
        described = (weight, NONE_ALONE), squares
        levels.append(_level(schema, places.levels[number], number, weight.size, tables, in_use, described))
    leaves: list[Leaves] = []
    by_leaf = {number: own.tocsc() for number, own in enumerate(members[:last]) if levels[number].level_tables}
    for some, margins in _alike(problem, levels[last], level_of):
        home, reach = int(level_of[some[0]]), {}
        for number, own in by_leaf.items():
            if problem.areas is None and number >= home:
                continue
            inside = sparse.csc_array(own[:, some])
            reach[number] = Reach(inside.indptr.astype(np.intp), inside.indices.astype(np.intp), inside.data, NO_MAP)
        empty = NONE_EMPTY
        if margins is not None and not margins.free.all():
            empty = np.broadcast_to(~margins.free, (some.size, margins.free.size))
        elif margins is None and problem.zeros is not None:
            empty = problem.zeros.cells(tables[0], problem.domain.leaves[some]).reshape(some.size, -1)
        leaves.append(Leaves(home, rows[some], reach, reach.copy, margins, empty))
    return PlacedTables(schema, levels, leaves, nest=False)


def _level(
    schema: Schema,
    name: str,
    number: int,
    rows: int,
    tables: Sequence[Table],
    level_tables: Sequence[LevelTable],
    described: tuple[tuple[Float, Float], float],
    above: dict[int, Reach] | None = None,
) -> Level:
    """A level of places `described`, (rows,) each, and of its tables what holds each and what it is summed from.

    That is the smallest with one factor more, a helper of several, or the table that holds it.
    """
    own = [placed for placed in level_tables if placed.level == number]
    where = "" if name in ONE_PLACE.levels else f" of {name!r}"
    for placed in own:
        cover = next((i for i, table in enumerate(tables) if refines(schema, table, placed.table)), None)
        if cover is None:
            raise NotCertifiedError(
                "its counts are too many to list, and no table that was measured in all leaves holds "
                f"{placed.table.name!r}{where}: a measurement of it there, or of a finer table, "
                "would let sums prove it"
            )
        placed.cover = cover
    by_factors = {(placed.cover, frozenset(placed.table.factors)): placed for placed in own}
    for placed in own:
        whole, factors = tables[placed.cover], frozenset(placed.table.factors)
        others = [factor for factor in whole.factors if factor not in factors]
        more = [by_factors.get((placed.cover, factors | {factor})) for factor in others]
        between = [other for other in more if other is not None and placed.table.size < other.table.size < whole.size]
        placed.through = min(between, key=lambda other: other.table.size, default=None)
    helpers = [helper for cover, whole in enumerate(tables) for helper in _helpers(schema, whole, cover, own)]
    for placed in (*own, *helpers):
        holding = tables[placed.cover] if placed.through is None else placed.through.table
        placed.into = _map(schema, holding, placed.table)
    return Level(name, number, rows, tuple(tables), own, *described, above or {}, helpers)


def _helpers(schema: Schema, whole: Table, cover: int, level_tables: Sequence[LevelTable]) -> list[LevelTable]:
    """Tables of which nothing is said, that others are summed from together: few pass over all that holds them."""
    alone = [placed for placed in level_tables if placed.cover == cover and placed.through is None]
    alone = sorted((own for own in alone if own.table.size < whole.size), key=lambda own: own.table.size, reverse=True)
    if len(alone) * whole.size < WORTH_HELPERS:
        return []
    of_whole = dict(zip(whole.axes, whole.factors, strict=True))
    tables = [whole, *(placed.table for placed in alone)]
    sizes = {factor: size for table in tables for factor, size in zip(table.factors, table.shape, strict=True)}
    groups = list[tuple[Factors, list[LevelTable]]]()
    for placed in alone:
        own = dict(zip(placed.table.axes, placed.table.factors, strict=True))
        joined = [_union(of_whole, factors, own) for factors, _ in groups]
        cells = [prod(sizes[factor] for factor in both.values()) for both in joined]
        usable = [i for i, (_, members) in enumerate(groups) if 2 * cells[i] * (len(members) + 1) <= whole.size]
        if usable:
            least = min(usable, key=cells.__getitem__)
            groups.append((joined[least], [*groups.pop(least)[1], placed]))
        else:
            groups.append((own, [placed]))
    helpers = list[LevelTable]()
    for factors, members in groups:
        table = make_table(schema, tuple(factors.values()))
        holding = next((own for own in members if own.table.size == table.size), None)
        if holding is None:
            holding = LevelTable.unmeasured(members[0].level, table, len(members[0].variance), cover)
            helpers.append(holding)
        for placed in members:
            placed.through = holding if placed.table.size < table.size else None
    return helpers


def _union(whole: Factors, one: Factors, two: Factors) -> Factors:
    """The coarsest factors of two tables, or of the whole that holds both, that hold both of them."""
    return {**one, **{axis: own if one.get(axis, own) == own else whole[axis] for axis, own in two.items()}}


def _alike(problem: Problem, level: Level, level_of: Index) -> Iterator[tuple[Index, CommonMargins | None]]:
    """Leaves of one level, `level_of` (leaves,), of which the same cells are structural zeros, some at a time."""
    zeros, width = problem.zeros, max(level.width, 1)
    empty, patterns, own = NONE_EMPTY, np.zeros((1, 1), dtype=bool), np.zeros(level_of.size, dtype=np.intp)
    if zeros is not None and len(level.tables) > 1:
        empty = zeros.empty[problem.domain.leaves]
        patterns, own = np.unique(empty.reshape(level_of.size, -1), axis=0, return_inverse=True)
    if len(patterns) > MOST_PATTERNS:
        raise NotCertifiedError(
            f"no one table holds all others, and {len(patterns):,} sets of cells are structural zeros in some "
            f"leaves: proofs by sums take {MOST_PATTERNS}"
        )
    for number, pattern in enumerate(patterns):
        margins = None
        if len(level.tables) > 1:
            known = None if zeros is None else (zeros.axes, pattern.reshape(empty.shape[1:]))
            margins = CommonMargins(problem.domain.schema, level.tables, tuple(level.columns), known)
        for home in np.flatnonzero(np.bincount(level_of)).tolist():
            alike = np.flatnonzero((own.ravel() == number) & (level_of == home))
            yield from ((some, margins) for some in _pieces(alike, width) if some.size)


def _pieces(nodes: Index, width: int) -> Iterator[Index]:
    """Nodes, (nodes,), some at a time: as many as there is room for with so many cells each."""
    step = max(1, PART // width)
    return (nodes[start : start + step] for start in range(0, nodes.size, step))


def _map(schema: Schema, fine: Table, coarse: Table) -> Index:
    if fine.name == coarse.name:
        return NO_MAP
    found = cell_map(schema, fine, coarse)
    return NO_MAP if found.size == coarse.size and (found == np.arange(found.size)).all() else found
