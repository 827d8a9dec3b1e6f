"""Tables of places, as a proof by sums takes them: leaves whose tables hold all others, and the areas that they are in.

A spine is the case where areas nest; a part of one is a spine whose leaves may stand for branches that were cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.compensated_sums import NO_MAP, Cells, Reach, spread, summed
from blue_solvers.verification.weighed_noise import ROUNDING, NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index, Long
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table, make_table
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.relations.marginals import cell_map, refines

LevelTable = tuple[int, Table]
PART = 2**16  # cells of leaves worked on at a time
MOST_HOLDING = 40  # tables of one place, each compared with each
EXTENDED = 2 * float(np.finfo(np.longdouble).eps)
MOST_PATTERNS = 64  # of cells known to be empty, where several tables hold all others


@dataclass(frozen=True)
class Unread:
    """A table that is read when rows of it are asked for, each time anew."""

    read: Callable[[], Float]

    def __getitem__(self, rows: slice | Index) -> Float:
        return self.read()[rows]


@dataclass(frozen=True)
class TiedCells:
    """The cells of a table that combinations speak of.

    Attributes
    ----------
    row, geounit, cell : ndarray of int, (entries,)
        Which combination, and where; by geounit.
    weight : ndarray, (entries,)
    multipliers : ndarray, (k,)
        Of the combinations.
    """

    row: Index
    geounit: Index
    cell: Index
    weight: Float
    multipliers: Float

    @classmethod
    def of(cls, share: sparse.csr_array, cells: int, multipliers: Float | None = None) -> TiedCells | None:
        """From the combinations' columns of a table, (k, geounits * cells); None where they say nothing of it."""
        multipliers = np.zeros(share.shape[0]) if multipliers is None else multipliers
        entries = share.tocoo()
        row, column = entries.coords
        if not entries.nnz:
            return None
        order = np.argsort(column, kind="stable")
        geounit, cell = np.divmod(column[order], cells)
        return cls(row[order], geounit, cell, entries.data[order], multipliers)

    def among(self, here: Index) -> tuple[Index, tuple[Index, Index], Float]:
        """Of some geounits: which combination, the place among these geounits and the cell, and the weight."""
        order = np.argsort(here)
        found = np.minimum(np.searchsorted(here, self.geounit, sorter=order), here.size - 1)
        chosen = np.flatnonzero(here[order[found]] == self.geounit)
        place = order[found][chosen]
        return self.row[chosen], (place, self.cell[chosen]), self.weight[chosen]

    def pull(self, q: Float, variance: Float, here: Index) -> float:
        """Take the multipliers off weighted residuals of some geounits; gives the squared rounding of that, weighed."""
        row, cells, weight = self.among(here)
        pulled = np.zeros_like(q)
        np.add.at(pulled, cells, weight * self.multipliers[row])
        sizes = np.zeros_like(q)
        np.add.at(sizes, cells, abs(weight * self.multipliers[row]))
        noise = np.where(np.isfinite(variance), variance, 0.0)  # the others were not measured, or are known exactly
        q -= np.where(noise > 0, pulled, 0.0)
        rounding = ROUNDING * (self.multipliers.size + 4) * np.where(sizes > 0, sizes + abs(q), 0.0)
        return float(np.sum(rounding**2 * noise))

    def sums(self, here: Index, x: Float, off: Float | None) -> list[list[float]]:
        """Combinations of the figures of some geounits: high and low half, what they may be off by, and their size."""
        row, cells, weight = self.among(here)
        terms = weight.astype(np.longdouble) * x[cells]
        slack = 0.0 if off is None else abs(weight) * off[cells]
        each = np.stack([terms, slack + (row.size + 4) * EXTENDED * abs(terms), abs(terms)], axis=1)
        found = np.zeros((self.multipliers.size, 3), dtype=np.longdouble)
        np.add.at(found, row, each)
        return [[*_halves(value), float(slack), float(size)] for value, slack, size in found]


def added(one: list[list[float]], two: list[list[float]]) -> list[list[float]]:
    """Shares of combinations, put together."""
    if not one or not two:
        return one or two
    found = []
    for own, other in zip(one, two, strict=True):
        value = sum((np.longdouble(half) for half in (*own[:2], *other[:2])), np.longdouble(0))
        size = own[3] + other[3]
        found.append([*_halves(value), own[2] + other[2] + EXTENDED * size, size])
    return found


def _halves(value: np.longdouble) -> tuple[float, float]:
    high = float(value)
    return high, float(value - np.longdouble(high))


@dataclass
class Sheet:
    """A table of a level of places.

    Attributes
    ----------
    key : str
        Tells it from all others.
    level : int
    table : Table
    variance : ndarray, (G, 1) or (G, cells)
        0 exact, ``inf`` not measured.
    y, x : ndarray (G, cells), or what gives its rows when they are asked for, or None
        What was measured, and what is claimed; None where nothing was.
    least : ndarray, optional
        Of the same shape as `variance`: a diagonal below the covariance, if that is not diagonal.
    rho, left : ndarray (G, cells), optional
        The weighted residuals, where they are not (y - x) / variance, and where what is left of them goes.
    tied : TiedCells, optional
        What combinations of cells that are known exactly say of it.
    place : slice
        Of its figures among all of a problem.
    holder : int
        Which of the tables that hold all others it is summed from.
    into : ndarray of int
        For every cell of that table the cell that it is summed to; empty where they are the same.
    """

    key: str
    level: int
    table: Table
    variance: Float
    y: Float | Unread | None = None
    x: Float | Unread | None = None
    least: Float | None = None
    rho: Float | None = None
    left: Float | None = None
    tied: TiedCells | None = None
    place: slice = field(default_factory=lambda: slice(0))
    holder: int = 0
    into: Index = field(default_factory=lambda: NO_MAP)


@dataclass
class Level:
    """PlacedTables of a level, and their tables, the coarsest first.

    Attributes
    ----------
    name : str
    rows : int
    tables : tuple of Table
        Those that hold all others of the level.
    sheets : list of Sheet
    alone : ndarray of bool, (rows,)
        PlacedTables that may be all of the one above: they have no siblings.
    weight, squares : ndarray, (rows,), float
        The largest weight of a leaf in every place, and the most that squared weights of a leaf come to.
    above : dict of int to Reach
        By level the places that those are in to which sums of the leaves are handed on; see `Leaves.above`.
    """

    name: str
    rows: int
    tables: tuple[Table, ...]
    sheets: list[Sheet]
    alone: Flags
    weight: Float
    squares: float = 1.0
    above: dict[int, Reach] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sheets.sort(key=lambda sheet: sheet.table.size)

    @cached_property
    def columns(self) -> list[slice]:
        """Where the cells of its tables are in a row."""
        return [slice(a, b) for a, b in pairwise(np.cumsum([0, *(table.size for table in self.tables)]).tolist())]

    @property
    def width(self) -> int:
        """Cells of all its tables."""
        return sum(table.size for table in self.tables)

    def own(self, holder: int) -> Sheet | None:
        """The sheet of one of its tables, if it has one that was measured or claimed."""
        return next((own for own in self.sheets if own.table.name == self.tables[holder].name), None)

    @cached_property
    def others(self) -> list[Sheet]:
        """All sheets but those."""
        own = [self.own(holder) for holder in range(len(self.tables))]
        return [sheet for sheet in self.sheets if not any(sheet is other for other in own)]

    def variances(self, rows: Index) -> Float:
        """Of the tables that hold all others, (rows, cells)."""
        found = np.full((rows.size, self.width), np.inf)
        for holder, columns in enumerate(self.columns):
            sheet = self.own(holder)
            if sheet is not None:
                found[:, columns] = sheet.variance[rows]
        return found

    def room(self, rows: int | None = None) -> Cells:
        """Zeros for cells of some places, of all by default, and for what these lose by rounding."""
        return np.zeros((2, self.rows if rows is None else rows, self.width))

    def spread(self, sheet: Sheet, amounts: Cells, said: Cells) -> None:
        """Add what is said of a table to the cells of the one that holds it."""
        columns = self.columns[sheet.holder]
        held = np.ascontiguousarray(said[:, :, columns])
        spread(amounts, Reach.itself(held.shape[1], sheet.into), held)
        said[:, :, columns] = held

    def sums_of(self, sheet: Sheet, cells: Cells) -> Cells:
        """A table as sums of the leaves' cells."""
        return summed(sheet.into, sheet.table.size, cells[:, :, self.columns[sheet.holder]])


@dataclass
class Below:
    """What parts tell of their roots, one row each, in the cells of their finest table.

    Attributes
    ----------
    share : ndarray, (rows, cells)
        What the residuals of all leaves have in common.
    variance : ndarray, (rows, 1) or (rows, cells)
        Of all leaves together: what it costs to have something back there.
    total : ndarray of longdouble or float, (rows, cells)
        Sums over the leaves; NaN where these are not known.
    error : ndarray, (rows,)
        How far rounding may have moved them.
    known : ndarray of str, (rows, names)
        The tables that are known exactly in all leaves.
    """

    share: Float
    variance: Float
    total: Float | Long
    error: Float
    known: NDArray[np.str_] = field(default_factory=lambda: np.zeros((1, 0), dtype="U1"))

    @property
    def names(self) -> list[str]:
        """Of tables that are known exactly in some of them."""
        return sorted({*self.known.ravel().tolist()} - {""})

    @classmethod
    def of_all(cls, below: Sequence[Below]) -> Below:
        """Of several roots."""
        most = max(own.known.size for own in below)
        return cls(
            np.concatenate([own.share for own in below]),
            np.concatenate([np.broadcast_to(own.variance, own.share.shape) for own in below]),
            np.concatenate([own.total.astype(np.longdouble) for own in below]),
            np.concatenate([own.error for own in below]),
            np.array([[*own.known.ravel().tolist(), *[""] * (most - own.known.size)] for own in below], dtype=str),
        )


@dataclass
class Leaves:
    """Some leaves of one level, whose tables hold all others.

    Attributes
    ----------
    level : int
    rows : ndarray of int
        Among the places of that level.
    above : dict of int to Reach
        By level the areas that take their sums: all that they are in, but where areas nest, and these hand them on.
    areas : callable
        Gives all areas that they are in, but for themselves, by level.
    margins : CommonMargins or None
        Where several tables hold all others.
    empty : ndarray of bool, (leaves, cells), or None
        Cells that are known to be empty.
    told : Below or None
        Of roots of branches that were cut off.
    """

    level: int
    rows: Index
    above: dict[int, Reach]
    areas: Callable[[], dict[int, Reach]]
    margins: CommonMargins | None = None
    empty: Flags | None = None
    told: Below | None = None

    @cached_property
    def reach(self) -> dict[int, Reach]:
        """By level all areas that they are in, but for themselves."""
        return self.areas()


@dataclass
class PlacedTables:
    """Levels, the coarsest first, and all leaves; `nest` says whether areas are a tree."""

    schema: Schema
    levels: list[Level]
    leaves: list[Leaves]
    nest: bool

    @property
    def sheets(self) -> Iterator[Sheet]:
        """Of all levels."""
        return (sheet for level in self.levels for sheet in level.sheets)

    @property
    def tables(self) -> dict[str, LevelTable]:
        """By the keys of sheets."""
        return {sheet.key: (sheet.level, sheet.table) for sheet in self.sheets}


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


def claims(problem: Problem, x: Float, desired: Float) -> list[Claim]:
    """The desired tables, but for those that are observed and of which x says the same."""
    observed = {own: i for i, own in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True))}
    found = []
    for index, own in enumerate(zip(problem.desired_levels, problem.desired_tables, strict=True)):
        figures = desired[problem.desired.block(index)]
        twin = observed.get(own)
        if twin is None or not np.array_equal(figures, x[problem.observed.block(twin)]):
            found.append(Claim(index, *own, figures))
    return found


def matrix_of_claims(problem: Problem, made: Sequence[Claim]) -> sparse.csr_array:
    """Their cells as sums of the counts, (cells, detailed cells of all leaves)."""
    wanted = problem.replace(
        observed=problem.desired, observed_tables=problem.desired_tables, observed_levels=problem.desired_levels
    )
    return sparse.csr_array(wanted.marginal_matrix()[problem.desired.cells([claim.index for claim in made])])


def finest_tables(
    schema: Schema, levels: int, observed: Sequence[LevelTable], claimed: Sequence[LevelTable] = ()
) -> list[Table] | None:
    """For every geolevel a table that holds all of it and of those above; None where that of the last does not."""
    found: list[Table] = []
    for level in reversed(range(levels)):
        over = (table for own, table in (*observed, *claimed) if own <= level)
        holding = max((table for own, table in observed if own == level), key=lambda table: table.size, default=None)
        if holding is not None:
            factors = {*holding.factors}
            if not all(factors.issuperset(table.factors) or refines(schema, holding, table) for table in over):
                holding = None
        if holding is None and not found:
            return None
        found.append(found[-1] if holding is None else holding)
    return found[::-1]


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
    sheets: Sequence[Sheet],
    zeros: StructuralZeros | None = None,
    handed: Mapping[int, Below] | None = None,
) -> PlacedTables:
    """Of a tree, in which a table holds all others at every level.

    Parameters
    ----------
    schema : Schema
    tree : LevelledTree
    finest : sequence of Table
        For every level.
    sheets : sequence of Sheet
    zeros : StructuralZeros, optional
        Over all nodes.
    handed : mapping of int to Below, optional
        What was told of leaves whose branches were cut off, by their positions.
    """
    siblings = tree.child_counts[np.maximum(tree.parent, 0)]
    levels = []
    for number, members in enumerate(tree.members):
        own = [sheet for sheet in sheets if sheet.level == number]
        for sheet in own:
            sheet.into = _map(schema, finest[number], sheet.table)
        alone = (siblings[members] == 1) | (tree.parent[members] < 0)
        inner = np.where(tree.child_counts[members] > 0, members, -1)
        above = _areas(schema, tree, finest, number, inner, all_above=False)
        tables, ones = (finest[number],), np.ones(members.size)
        levels.append(Level(tree.levels[number], members.size, tables, own, alone, ones, above=above))
    leaves = []
    for number, members in enumerate(tree.members):
        whole = members[tree.child_counts[members] == 0]
        told = np.isin(whole, list(handed)) if handed else np.zeros(whole.size, dtype=bool)
        for nodes, below in ((whole[~told], None), (whole[told], handed)):
            for some in _pieces(nodes, finest[number].size):
                empty = (
                    None
                    if zeros is None or below is not None
                    else zeros.cells(finest[number], some).reshape(some.size, -1)
                )
                rows, ancestors = tree.rank_in_level[some], partial(_areas, schema, tree, finest, number, some)
                above = ancestors(all_above=False)
                roots = None if below is None else Below.of_all([below[node] for node in some.tolist()])
                leaves.append(Leaves(number, rows, above, ancestors, None, empty, roots))
    return PlacedTables(schema, levels, leaves, nest=True)


def _areas(
    schema: Schema, tree: LevelledTree, finest: Sequence[Table], number: int, nodes: Index, all_above: bool = True
) -> dict[int, Reach]:
    """The places that some nodes of a level are in, -1 for none, by their levels: all, or their parents."""
    found, parent = {}, np.where(nodes >= 0, tree.parent[nodes], -1)
    for above in range(number):
        own = tree.ancestors_at(nodes, above) if all_above else np.where(tree.level_of[parent] == above, parent, -1)
        if (own >= 0).any():
            area = np.where(own >= 0, tree.rank_in_level[own], -1)
            found[above] = Reach.of_sets(area, _map(schema, finest[number], finest[above]))
    return found


def problem_places(
    problem: Problem,
    y: Float,
    x: Float,
    made: Sequence[Claim] = (),
    told: tuple[WeighedNoise, Float, Float] | None = None,
) -> PlacedTables:
    """Of a problem.

    Parameters
    ----------
    problem : Problem
    y, x : ndarray, (n,)
    made : sequence of Claim
    told : (WeighedNoise, ndarray, ndarray), optional
        That, the weighted residuals, (n,), and where what is left of them goes, of correlated noise or where
        something that is known exactly takes its part of them.

    Raises
    ------
    NotCertifiedError
        If no tables of the leaves hold all others.
    """
    sheets = _sheets(problem, y, x, made, told)
    finest = holds_all(problem, made)
    if finest is None and (problem.areas is not None or problem.domain.spine.size == 1):
        return _crossing_places(problem, sheets)
    if finest is None:
        schema, level = problem.domain.schema, problem.domain.spine.levels[-1]
        axes = {axis for table in problem.observed_tables for axis in table.axes}
        whole = make_table(schema, tuple(schema.names[axis] for axis in sorted(axes)))
        raise NotCertifiedError(
            f"its counts are too many to list, and no table that was measured at {level!r} holds all others: a "
            f"measurement of {whole.name!r} there, with any variance, would let sums prove it"
        )
    zeros = problem.zeros
    return tree_places(problem.domain.schema, problem.domain.spine, finest, sheets, zeros)


def _sheets(
    problem: Problem,
    y: Float,
    x: Float,
    made: Sequence[Claim],
    told: tuple[WeighedNoise, Float, Float] | None,
) -> list[Sheet]:
    by_geounit, sheets, start = problem.geounit_variances, [], y.size
    for i, (level, table) in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True)):
        cut, shape = problem.observed.block(i), (-1, table.size)
        own = problem.variances[cut].reshape(shape) if by_geounit is None else by_geounit[i][:, None]
        values = y[cut].reshape(shape), x[cut].reshape(shape)
        sheet = Sheet(f"{level} {table.name}", level, table, own, *values, place=cut)
        if problem.equalities is not None:
            sheet.tied = TiedCells.of(problem.equalities[0][:, cut], table.size)
        if told is not None:
            noise, rho, left = told
            sheet.rho = rho[cut].reshape(shape)
            if noise.correlated is not None:
                sheet.least, sheet.left = np.square(noise.least[cut]).reshape(shape), left[cut].reshape(shape)
        sheets.append(sheet)
    for claim in made:
        figures = claim.figures.reshape(-1, claim.table.size)
        nothing, place = np.full((len(figures), 1), np.inf), slice(start, start + claim.figures.size)
        sheets.append(Sheet(f"claim {claim.index}", claim.level, claim.table, nothing, x=figures, place=place))
        start = place.stop
    return sheets


def _crossing_places(problem: Problem, sheets: Sequence[Sheet]) -> PlacedTables:
    """Of areas, or of one place: several tables may hold all others."""
    places, schema, last = problem.domain.places, problem.domain.schema, len(problem.domain.places.levels) - 1
    if problem.areas is not None:
        for sheet in sheets:  # other layers of leaves are the leaves too
            layer = problem.areas.layer(places.levels[sheet.level])
            sheet.level = last if layer.is_of_leaves else sheet.level
    spoken = [sheet for sheet in sheets if _is_spoken_of(problem, sheet)]
    tables = _holders([sheet for sheet in spoken if sheet.level == last and _is_measured(sheet)], schema)
    if len(tables) > MOST_HOLDING and problem.areas is None:
        raise NotCertifiedError(
            f"its counts are too many to list, and {len(tables):,} tables are needed to hold all others: proofs by "
            f"sums take {MOST_HOLDING}, but for plain tables"
        )
    levels = []
    for number, name in enumerate(places.levels):
        own, members = [sheet for sheet in spoken if sheet.level == number], places.leaves_of(number)
        _hold(schema, tables, own, "" if problem.areas is None else f" of {name!r}")
        weight = abs(members).max(axis=1).toarray().ravel() if members.nnz else np.zeros(members.shape[0])
        squares = float(members.power(2).sum(axis=0).max(initial=0.0))
        alone = np.zeros(members.shape[0], dtype=bool)
        levels.append(Level(name, members.shape[0], tables, own, alone, weight, squares))
    leaves = []
    by_leaf = {number: places.leaves_of(number).tocsc() for number in range(last) if levels[number].sheets}
    for some, margins in _alike(problem, levels[last]):
        reach = {}
        for number, members in by_leaf.items():
            own = sparse.csc_array(members[:, some])
            reach[number] = Reach(own.indptr.astype(np.intp), own.indices.astype(np.intp), own.data, NO_MAP)
        empty = None
        if margins is not None and not margins.free.all():
            empty = np.broadcast_to(~margins.free, (some.size, margins.free.size))
        elif margins is None and problem.zeros is not None:
            empty = problem.zeros.cells(tables[0], problem.domain.leaves[some]).reshape(some.size, -1)
        leaves.append(Leaves(last, some, reach, reach.copy, margins, empty))
    return PlacedTables(schema, levels, leaves, nest=False)


def _hold(schema: Schema, tables: Sequence[Table], sheets: Sequence[Sheet], where: str) -> None:
    """Say of every sheet which table holds it."""
    for sheet in sheets:
        holder = next((i for i, table in enumerate(tables) if refines(schema, table, sheet.table)), None)
        if holder is None:
            raise NotCertifiedError(
                "its counts are too many to list, and no table that was measured in all leaves holds "
                f"{sheet.table.name!r}{where}: a measurement of it there, or of a finer table, would let sums prove it"
            )
        sheet.holder, sheet.into = holder, _map(schema, tables[holder], sheet.table)


def _is_spoken_of(problem: Problem, sheet: Sheet) -> bool:
    """Whether measurements, x or equalities say anything of a table."""
    if sheet.x is None or np.isfinite(sheet.variance).any() or not np.isnan(sheet.x[:]).all():
        return True
    if sheet.place.stop > problem.observed.size or problem.equalities is None:
        return False
    return bool(abs(problem.equalities[0][:, sheet.place]).sum() > 0)


def _is_measured(sheet: Sheet) -> bool:
    return sheet.y is not None and bool(np.isfinite(sheet.variance).all())


def _holders(candidates: Sequence[Sheet], schema: Schema) -> tuple[Table, ...]:
    """Measured tables of the leaves of which none holds another; those that say most of what they share come first."""
    found = []
    for i, sheet in enumerate(candidates):
        others = [j for j, own in enumerate(candidates) if j != i and refines(schema, own.table, sheet.table)]
        if all(j > i and refines(schema, sheet.table, candidates[j].table) for j in others):
            found.append(sheet)
    return tuple(sheet.table for sheet in sorted(found, key=lambda own: own.table.size * float(own.variance.mean())))


def _alike(problem: Problem, level: Level) -> Iterator[tuple[Index, CommonMargins | None]]:
    """Leaves of which the same cells are known to be empty, some at a time."""
    zeros, width = problem.zeros, max(level.width, 1)
    if len(level.tables) == 1:
        yield from ((some, None) for some in _pieces(np.arange(level.rows), width))
        return
    empty = np.zeros((level.rows, 1), dtype=bool) if zeros is None else zeros.empty[problem.domain.leaves]
    patterns, own = np.unique(empty.reshape(level.rows, -1), axis=0, return_inverse=True)
    if len(patterns) > MOST_PATTERNS:
        raise NotCertifiedError(
            f"no one table holds all others, and {len(patterns):,} sets of cells are known to be empty in some "
            f"leaves: proofs by sums take {MOST_PATTERNS}"
        )
    for number, pattern in enumerate(patterns):
        known = None if zeros is None else (zeros.axes, pattern.reshape(empty.shape[1:]))
        margins = CommonMargins(problem.domain.schema, level.tables, tuple(level.columns), known)
        yield from ((some, margins) for some in _pieces(np.flatnonzero(own.ravel() == number), width))


def _pieces(nodes: Index, width: int) -> Iterator[Index]:
    step = max(1, PART // width)
    return (nodes[start : start + step] for start in range(0, nodes.size, step))


def _map(schema: Schema, fine: Table, coarse: Table) -> Index:
    if fine.name == coarse.name:
        return NO_MAP
    found = cell_map(schema, fine, coarse)
    return NO_MAP if found.size == coarse.size and (found == np.arange(found.size)).all() else found
