"""The geolevels of a spine, or of a part of one, as the pass of sums takes them; for each a table that holds all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from blue_solvers.verification.claims import Claim
from blue_solvers.verification.known_tables import LevelTable
from blue_solvers.verification.sums import Sum
from blue_solvers.verification.ties import TiedCells
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.marginals import refines


@dataclass(frozen=True)
class Unread:
    """A table of geounits that is read when rows of it are asked for, each time anew."""

    read: Callable[[], Float]

    def __getitem__(self, rows: slice | Index) -> Float:
        return self.read()[rows]


@dataclass
class Sheet:
    """A table of a geolevel.

    Attributes
    ----------
    key : str
        Tells it from all others.
    table : Table
    variance : ndarray, (G, 1) or (G, cells)
        0 exact, ``inf`` not measured.
    y, x : ndarray (G, cells), or what gives its rows when they are asked for, or None
        What was measured, and what is claimed; None where nothing was.
    least : ndarray, optional
        Of the same shape as `variance`: a diagonal below the covariance, if that is not diagonal.
    rho, left : ndarray (G, cells), optional
        Of correlated noise the weighted residuals, and where what is left of them goes.
    known : ndarray of bool (G,), optional
        Geounits in all whose parts the table is known exactly, or in which it is: what is moved there costs nothing.
    tied : TiedCells, optional
        What combinations of cells that are known exactly say of it.
    """

    key: str
    table: Table
    variance: Float
    y: Float | Unread | None = None
    x: Float | Unread | None = None
    least: Float | None = None
    rho: Float | None = None
    left: Float | None = None
    known: Flags | None = None
    tied: TiedCells | None = None


@dataclass
class Below:
    """What has come up from below to geounits of a geolevel, in the cells of its finest table.

    Attributes
    ----------
    share : ndarray, (G, cells)
        What the residuals of all parts have in common.
    variance : ndarray, (G, 1) or (G, cells)
        Of all the cells below together: what it costs to have something back there. 0 where nothing is below.
    total : ndarray of longdouble or float, (G, cells)
        Sums over the leaves; NaN where these are not known.
    error : ndarray, (G, 2)
        How far rounding may have moved any of them, and all together.
    known : ndarray of str
        Of a single geounit the tables that are known exactly in all its parts.
    """

    share: Float
    variance: Float
    total: NDArray[np.longdouble] | Float
    error: Float
    known: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype="U1"))

    def row(self, number: int) -> Below:
        """That of one geounit, in as little room as holds it all: one variance if all are alike, doubles if they do."""
        place = slice(number, number + 1)
        variance, total = self.variance[place], self.total[place]
        near = total.astype(float)
        return Below(
            self.share[place],
            variance[:, :1] if (variance == variance[:, :1]).all() else variance,
            near if np.array_equal(near, total, equal_nan=True) else total,
            self.error[place],
        )

    def put(self, number: int, other: Below) -> None:
        """Put in what came up to one geounit elsewhere."""
        self.share[number], self.variance[number] = other.share[0], other.variance[0]
        self.total[number], self.error[number] = other.total[0], other.error[0]


@dataclass
class Layer:
    """A geolevel.

    Attributes
    ----------
    name : str
    sheets : list of Sheet
        The finest first, which holds all others; then from the largest to the smallest.
    sums : list of (int, Sum)
        For every sheet but the first from which it is summed.
    direct : list of (int, Sum)
        Every sheet but the first, by number, as a sum of the first.
    parent : ndarray of int, (G,)
        Number of every geounit's parent within the layer above.
    upward : Sum or None
        To the finest table of the layer above; None at the top.
    has_below : ndarray of bool, (G,)
        Geounits of which something has come up from below.
    elsewhere : ndarray of bool, (G,)
        Of these, those whose own tables are in what has come up already.
    alone : ndarray of bool, (G,)
        Geounits that may be all of their parent: they have no siblings here.
    dead : ndarray of bool, (G, cells), or None
        Cells of the finest table that are known to be empty.
    """

    name: str
    sheets: list[Sheet]
    sums: list[tuple[int, Sum]]
    direct: list[tuple[int, Sum]]
    parent: Index
    upward: Sum | None
    has_below: Flags
    elsewhere: Flags
    alone: Flags
    dead: Flags | None = None
    below: Below | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        """Number of geounits."""
        return self.parent.size

    def know(self, schema: Schema, table: Table, rows: Flags) -> None:
        """Take note of geounits in all whose parts a table is known exactly."""
        if not rows.any() or not refines(schema, self.sheets[0].table, table):
            return
        sheet = next((own for own in self.sheets if own.table == table), None)
        if sheet is None:
            sheet = Sheet(f"{self.name} {table.name} below", table, np.full((self.rows, 1), np.inf))
            later = [i for i, own in enumerate(self.sheets) if i and own.table.size < table.size]
            self.sheets.insert(min(later, default=len(self.sheets)), sheet)
            self.sums, self.direct = _sums(schema, self.sheets)
        sheet.known = rows if sheet.known is None else sheet.known | rows


def spread_knowledge(schema: Schema, layers: Sequence[Layer]) -> None:
    """Tell every geounit which tables are known exactly in all its parts, from the leaves up."""
    for here, above in zip(layers[:0:-1], layers[-2::-1], strict=True):
        for sheet in list(here.sheets):
            known = (sheet.variance == 0).all(axis=1)
            known = known if sheet.known is None else known | sheet.known
            if known.any():
                open_ = np.bincount(here.parent, weights=~known, minlength=above.rows)
                inside = np.bincount(here.parent, minlength=above.rows)
                above.know(schema, sheet.table, (open_ == 0) & (inside > 0))


def finest_tables(
    schema: Schema, levels: int, observed: Sequence[LevelTable], claimed: Sequence[LevelTable] = ()
) -> list[Table] | None:
    """For every geolevel a table that holds all of it and of those above; None where that of the last does not."""
    found: list[Table] = []
    for level in reversed(range(levels)):
        over = [table for own, table in (*observed, *claimed) if own <= level]
        here = (table for own, table in observed if own == level)
        holding = next((table for table in here if all(refines(schema, table, other) for other in over)), None)
        if holding is None and not found:
            return None
        found.append(found[-1] if holding is None else holding)
    return found[::-1]


def layers_of(
    schema: Schema, tree: LevelledTree, finest: Sequence[Table], sheets: Sequence[Sequence[Sheet]]
) -> list[Layer]:
    """The layers of a tree, from the root down; where a geounit skips a level, one without tables is put in between.

    Parameters
    ----------
    schema : Schema
    tree : LevelledTree
    finest : sequence of Table
        For every level.
    sheets : sequence of sequence of Sheet
        For every level its tables, over its geounits.
    """
    layers: list[Layer] = []
    parents, passing = [], np.zeros(0, np.intp)
    for level in reversed(range(len(tree.levels))):
        above = np.concatenate([tree.parent[tree.members[level]], passing])
        skips = (above >= 0) & (tree.level_of[above] < level - 1)
        parent = np.where(above >= 0, tree.rank_in_level[above], -1)
        size = tree.members[level - 1].size if level else 0
        parent[skips] = size + np.arange(np.count_nonzero(skips))
        parents.append(parent)
        passing = above[skips]
    for level, parent in enumerate(reversed(parents)):
        own = [_padded(sheet, parent.size) for sheet in sheets[level]]
        own.sort(key=lambda sheet: (sheet.table != finest[level], -sheet.table.size))
        if not own or own[0].table != finest[level]:
            own.insert(0, Sheet(f"{level}", finest[level], np.full((parent.size, 1), np.inf)))
        has_below = np.bincount(parents[-2 - level], minlength=parent.size) > 0 if level + 1 < len(parents) else None
        layers.append(
            Layer(
                tree.levels[level],
                own,
                *_sums(schema, own),
                parent,
                Sum(schema, finest[level], finest[level - 1]) if level else None,
                np.zeros(parent.size, dtype=bool) if has_below is None else has_below,
                np.zeros(parent.size, dtype=bool),
                np.bincount(parent + 1)[parent + 1] == 1,
            )
        )
    return layers


def _padded(sheet: Sheet, rows: int) -> Sheet:
    """A sheet with rows more, in which nothing was measured."""
    more = rows - len(sheet.variance)
    if not more:
        return sheet
    if sheet.rho is not None:
        raise NotCertifiedError("branches of its spine skip geolevels, and its noise is correlated or equalities hold")

    def padded(array: Float | Unread, value: float) -> Float:
        own = array[:]
        return np.concatenate([own, np.full((more, own.shape[1]), value)])

    y, x = (None if own is None else padded(own, value) for own, value in ((sheet.y, 0.0), (sheet.x, np.nan)))
    return replace(sheet, variance=padded(sheet.variance, np.inf), y=y, x=x)


def _sums(schema: Schema, sheets: Sequence[Sheet]) -> tuple[list[tuple[int, Sum]], list[tuple[int, Sum]]]:
    """Every sheet but the first as a sum of the smallest sheet before it that holds it, and of the first."""
    numbers, tables = range(1, len(sheets)), [sheet.table for sheet in sheets]
    sources = [max(i for i in range(j) if refines(schema, tables[i], tables[j])) for j in numbers]
    sums = [(i, Sum(schema, tables[i], tables[j])) for j, i in zip(numbers, sources, strict=True)]
    return sums, [(j, Sum(schema, tables[0], tables[j])) for j in numbers]


def holds_all(problem: Problem, made: Sequence[Claim] = ()) -> list[Table] | None:
    """For every geolevel of a problem the table that holds all others; None if it has none, or too much besides."""
    if (
        not problem.is_tabular
        or problem.areas is not None
        or (problem.equalities is not None and problem.covariance is not None)
    ):
        return None
    levels, domain = problem.observed_levels, problem.domain
    observed = list(zip(levels, problem.observed_tables, strict=True))
    claimed = [(claim.level, claim.table) for claim in made]
    return finest_tables(domain.schema, len(domain.spine.levels), observed, claimed)


def problem_layers(
    problem: Problem,
    y: Float,
    x: Float,
    told: tuple[WeighedNoise, Float, Float] | None = None,
    multipliers: Float | None = None,
    made: Sequence[Claim] = (),
) -> list[Layer]:
    """The layers of a problem in which a table holds all others.

    Of correlated noise with that noise, the weighted residuals, and where what is left of them goes; of equalities with
    their multipliers.
    """
    finest, schema, tree = holds_all(problem, made), problem.domain.schema, problem.domain.spine
    if finest is None:
        raise NotCertifiedError("no measured table holds all others")
    by_geounit = problem.geounit_variances
    levels = problem.observed_levels
    sheets: list[list[Sheet]] = [[] for _ in tree.levels]
    for i, (level, table) in enumerate(zip(levels, problem.observed_tables, strict=True)):
        cut, shape = problem.observed.block(i), (-1, table.size)
        own = problem.variances[cut].reshape(shape) if by_geounit is None else by_geounit[i][:, None]
        sheet = Sheet(f"{level} {table.name}", table, own, y[cut].reshape(shape), x[cut].reshape(shape))
        if multipliers is not None and problem.equalities is not None:
            sheet.tied = TiedCells.of(problem.equalities[0][:, cut], table.size, multipliers)
        if told is not None:
            noise, rho, left = told
            sheet.least = np.square(noise.least[cut]).reshape(shape)
            sheet.rho, sheet.left = rho[cut].reshape(shape), left[cut].reshape(shape)
        sheets[level].append(sheet)
    for claim in made:
        nothing_known = np.full((tree.members[claim.level].size, 1), np.inf)
        figures = claim.figures.reshape(-1, claim.table.size)
        sheets[claim.level].append(Sheet(f"claim {claim.index}", claim.table, nothing_known, x=figures))
    layers = layers_of(schema, tree, finest, sheets)
    if problem.zeros is not None:
        for layer, members in zip(layers, tree.members, strict=True):
            mark_empty(schema, layer, problem.zeros.axes, problem.zeros.empty[members])
    spread_knowledge(schema, layers)
    return layers


def mark_empty(schema: Schema, layer: Layer, axes: Sequence[int], empty: Flags) -> None:
    """Mark cells of leaves that are known to be empty, of some variables, (G, ...).

    Raises
    ------
    NotCertifiedError
        If the finest table does not tell them apart.
    """
    if layer.has_below.all():
        return
    table, finest = make_table(schema, tuple(schema.names[axis] for axis in sorted(axes))), layer.sheets[0].table
    if not refines(schema, finest, table):
        raise NotCertifiedError(
            f"cells of {table.name!r} are known to be empty, which no table holding all others shows"
        )
    s = Sum(schema, finest, table)
    dead = np.broadcast_to(s.up(empty.reshape(len(empty), -1)), (len(empty), *s.fine)).reshape(len(empty), -1)
    layer.dead = np.concatenate([dead, np.zeros((layer.rows - len(dead), dead.shape[1]), dtype=bool)])
