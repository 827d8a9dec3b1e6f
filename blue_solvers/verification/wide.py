"""Certificates of many overlapping tables whose joint table is out of reach: contrasts, each judged once.

What residuals say of the counts splits into parts, one for each set T of variables: functions of the cells of T that
sum to zero along each of its axes. Parts do not mix, and every measured table S that contains T bears on T's with
information 1 / (largest variance in S * levels of S outside T). The size of a part in this information is exact where
variances are equal within tables, and a bound otherwise.

Tables that agree are those that have every table's part from itself. How far each is from what it should be follows
from how far its sums are from the next coarser tables: differences of sums, which lose nothing.

What a table of groups of levels says of counts is moved to the table of the levels themselves, in which other tables'
information is judged alone; of the least variances it has what that would have if it were measured as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from blue_solvers.verification.closed_form import (
    are_of_groups,
    densities,
    levels_of,
    part_variances,
    subsets,
    tables_within,
    variances_of_groups,
)
from blue_solvers.verification.compensated_sums import spread_gaps, tables_of_steps, take_parts
from blue_solvers.verification.problem_places import Claim
from blue_solvers.verification.weighed_noise import (
    EXACT_TO,
    EXTENDED,
    PIECE,
    ROUNDING,
    DisprovedError,
    NotCertifiedError,
    WeighedNoise,
    in_standard_errors,
    require_time,
)
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import cell_map
from constraint_builders.schema_order import in_schema_order

EXTREMES = (np.maximum, 1), (np.minimum, -1)
Agreeing = tuple[Float, Float, Float]  # cells of all tables, less what, and their rounding by table, in norm


class Groups(NamedTuple):
    """An observed table of groups of levels.

    Attributes
    ----------
    table : Table
    cells : slice
        Where it is observed.
    number : int
        Of the table of the levels themselves.
    into : ndarray of int
        For every cell of that table its own.
    """

    table: Table
    cells: slice
    number: int
    into: Index


class Separated:
    """All tables that some observed table contains, by their variables; the observed ones first.

    Attributes
    ----------
    tables : ClosedTables
    count : int
        Number of those that are observed.
    cells : slice or ndarray of int
        Their observed cells.
    groups : list of Groups
        All other observed tables.
    steepest : ndarray, (tables,)
        Largest standard deviation of a cell; infinite where nothing was measured.
    least : ndarray, (tables,)
        Square root of the least of a diagonal below the covariance, likewise.
    besides : ndarray, (tables,)
        What groups say of the levels of a table at most: information about each.

    Raises
    ------
    NotCertifiedError
        Where there are places, exact knowledge about single cells or groups, too many tables, or groups of levels in
        whose table nothing was measured.
    """

    def __init__(self, problem: Problem, noise: WeighedNoise) -> None:
        starts, observed, schema = problem.observed.offsets[:-1], problem.observed_tables, problem.domain.schema
        unmeasured, exact = (np.add.reduceat(own.astype(int), starts) for own in (problem.unmeasured, problem.exact))
        has_groups = are_of_groups(problem)
        in_part = any(((own > 0) & (own < problem.observed.sizes)).any() for own in (unmeasured, exact))
        is_more = noise.correlated is not None or not problem.has_only_tables or in_part or exact[has_groups].any()
        if is_more or has_groups.all():
            raise NotCertifiedError("it is more than tables of one place, each of one variance")
        plain, grouped = (np.flatnonzero(own).tolist() for own in (~has_groups, has_groups))
        self.cells: slice | Index = problem.observed.cells(plain) if grouped else slice(None)
        self.schema, self.count = schema, len(plain)
        self.tables = tables_within(problem, tuple(observed[i].axes for i in plain))
        self.steepest, self.least = np.full((2, self.tables.sizes.size), np.inf)
        self.steepest[: len(plain)] = np.where(unmeasured > 0, np.inf, np.maximum.reduceat(noise.sd, starts))[plain]
        self.least[: len(plain)] = np.where(unmeasured > 0, np.inf, np.minimum.reduceat(noise.least, starts))[plain]
        self.groups, self.besides, density = list[Groups](), np.zeros_like(self.least), self.density
        for i in grouped:
            own, number = problem.observed.block(i), self.tables.numbers.get(observed[i].axes, -1)
            if unmeasured[i] or number < 0 or not density[number]:
                raise NotCertifiedError(f"no measured table of levels holds the groups of {observed[i].name!r}")
            into = cell_map(schema, levels_of(schema, observed[i]), observed[i])
            self.groups.append(Groups(observed[i], own, number, into))
            self.besides[number] += np.bincount(into).max() / noise.least[own].min() ** 2

    def densities(self, sd: Float, besides: Float | float = 0.0) -> Float:
        """Information about every set's part, (tables,): of each table that has it 1 / (variance * levels outside).

        To what tables say is added what is said `besides` of their cells.
        """
        own = np.divide(1.0, sd**2, out=np.full_like(sd, np.inf), where=sd > 0)
        return densities(self.tables, own + besides)

    @cached_property
    def most(self) -> Float:
        """More information about every set's part than there is, were all variances within each table the least."""
        return self.densities(self.least, self.besides)

    @cached_property
    def density(self) -> Float:
        """Information about every set's part, were all variances within each table the largest, (tables,)."""
        return self.densities(self.steepest)

    @cached_property
    def least_variances(self) -> Float:
        """Of a cell of every table from below, (tables,)."""
        return part_variances(self.tables, self.most)

    @cached_property
    def _pieces(self) -> list[tuple[int, int]]:
        """First and end of tables, by number, whose cells are squared at a time: few take less memory than all."""
        piece = self.tables.offsets // PIECE
        return [*pairwise([*np.flatnonzero(np.diff(piece[:-1], prepend=-1)).tolist(), piece.size - 1])]

    def norms(self, cells: Float) -> Float:
        """Of every table, (tables,), of cells (S,)."""
        offsets, found = self.tables.offsets, np.empty(self.tables.sizes.size)
        for first, end in self._pieces:
            own = cells[offsets[first] : offsets[end]]
            found[first:end] = np.add.reduceat(own * own, offsets[first:end] - offsets[first])
        return np.sqrt(found)


def certify_wide(
    problem: Problem, noise: WeighedNoise, family: Separated, y: Float, x: Float, made: Sequence[Claim] = ()
) -> tuple[float, float]:
    """Bound and violation, from y and x, (n,), both in standard errors."""
    rho, off = noise.weighted(y - x)
    optimality = _parts(family, rho)
    require_time()
    figures = x[family.cells]
    claimed, cells = np.ones(family.count, dtype=bool), np.zeros(family.tables.cells)
    if problem.has_unmeasured:
        claimed = np.logical_and.reduceat(np.isfinite(figures), family.tables.offsets[: family.count])
        figures = np.where(np.repeat(claimed, family.tables.sizes[: family.count]), figures, 0.0)
    cells[: figures.size] = figures
    scale = float(max(cells.max(initial=0.0), -cells.min(initial=0.0)))
    certain = _certain(family, cells, claimed, y[family.cells], scale)
    sizes, worst, agreeing = _disagreements(family, cells, certain, claimed)
    steepest, least, variances = (
        own[: family.count] for own in (family.steepest, family.least, family.least_variances)
    )
    noisy, measured, said = claimed & (least > 0), claimed & (steepest > 0), np.flatnonzero(claimed)
    figure = in_standard_errors(worst[said], np.sqrt(variances[said]), EXACT_TO * scale)
    apart, violation = sizes[noisy] / least[noisy], (worst[measured] / steepest[measured]).max(initial=0.0)
    others = [(claim.table, claim.figures, np.full(claim.table.size, np.inf)) for claim in made]
    others += [(own.table, x[own.cells], noise.sd[own.cells]) for own in family.groups]
    for table, given, sd in others:
        beside, std_errors = _of_sums(family, table, given, agreeing)
        figure = max(figure, in_standard_errors(beside, std_errors, EXACT_TO * scale))
        apart, violation = np.append(apart, beside / sd), max(violation, (beside / sd).max())
    return optimality + off + (float(np.linalg.norm(apart)) + figure) * (1 + 1e-9), float(violation)


def _parts(family: Separated, rho: Float) -> float:
    """The parts of residuals, (n,), in the norm of the information about each, with the rounding of splitting them."""
    tables, density = family.tables, family.density
    cells = np.zeros(tables.cells)
    own = rho[family.cells]
    cells[: own.size] = own
    added = family.norms(cells)  # sizes of what is added up in every table
    for groups in family.groups:
        moved = rho[groups.cells][groups.into]
        cells[slice(*tables.offsets[groups.number : groups.number + 2])] += moved
        added[groups.number] += np.linalg.norm(moved)
    squares = np.empty(len(tables.up))
    take_parts(cells, tables.finest_first, squares)
    means = np.sqrt(squares)
    np.add.at(added, tables.up[:, 0], means * np.sqrt(tables.up[:, 4]))
    np.add.at(added, tables.up[:, 1], means)
    parts = family.norms(cells)
    left = (parts > 0) & (density < np.inf)
    adds = tables.variables + len(tables.shape) + 2 + len(family.groups)
    square = float((parts[left] ** 2 / density[left]).sum())
    rounding = float(((adds * ROUNDING * added)[left] ** 2 / density[left]).sum())
    return float(np.sqrt(square)) * (1 + rho.size * ROUNDING) + float(np.sqrt(rounding))


def _disagreements(family: Separated, cells: Float, certain: Float, claimed: Flags) -> tuple[Float, Float, Agreeing]:
    """How far observed tables are from tables that agree, in norm and worst cell, (tables,); and the latter tables.

    `cells` are what is claimed; tables that agree have the parts of `certain`, which are the same but for what is
    known exactly and for what is not claimed.
    """
    tables, gaps = family.tables, np.zeros(cells.size)
    spread_gaps(certain, gaps, tables.coarsest_first)
    values, found = family.norms(certain), family.norms(gaps)
    rounding = np.zeros(found.size)
    for steps in np.split(tables.upwards, np.flatnonzero(np.diff(tables.variables[tables.upwards[:, 0]])) + 1):
        table, without, levels = steps[:, 0], steps[:, 1], steps[:, 4]
        summing = (ROUNDING * (levels + 2)) ** 2 * (values[table] + values[without])  # compensated
        spreading = 4 * ROUNDING * ((levels + 4) * found[table] + found[without])
        moved = (rounding[without] / np.sqrt(levels) + summing + spreading) ** 2
        rounding += np.sqrt(np.bincount(table, moved, rounding.size))  # what steps of one table move is orthogonal
    apart, own, starts = gaps, rounding[: claimed.size], tables.offsets[: claimed.size]
    if certain is not cells:
        apart = gaps + (cells - certain)
        found = family.norms(apart)
    last = tables.offsets[claimed.size]
    worst = np.maximum(*(extreme.reduceat(apart[:last], starts) * sign for extreme, sign in EXTREMES))
    return found[: claimed.size] + own, worst + own, (certain, gaps, rounding)


def _of_sums(family: Separated, table: Table, figures: Float, agreeing: Agreeing) -> tuple[Float, Float]:
    """How far a table of cells, or groups, (cells,), is off sums of tables that agree, and its least standard errors.

    Raises
    ------
    NotCertifiedError
        If no observed table contains its own.
    """
    fine = levels_of(family.schema, table)
    number = family.tables.numbers.get(table.axes)
    if number is None:
        raise NotCertifiedError(f"table {table.name!r} is claimed, which no observed one contains")
    place = slice(*family.tables.offsets[number : number + 2])
    own = agreeing[0][place].astype(np.longdouble) - agreeing[1][place]
    into, total = cell_map(family.schema, fine, table), np.zeros(table.size, dtype=np.longdouble)
    np.add.at(total, into, own)
    largest = int(np.bincount(into).max())
    rounding = float(agreeing[2][number]) + (largest + 1) * EXTENDED * float(np.linalg.norm(own.astype(float)))
    off = abs(figures - total).astype(float) + rounding * float(np.sqrt(largest))
    off[np.isnan(figures)] = 0.0
    variances = variances_of_groups(family.schema, family.tables, table, family.most)
    return off, np.sqrt(variances)


def _certain(family: Separated, cells: Float, claimed: Flags, y: Float, scale: float) -> Float:
    """What is claimed, (S,), with what is known exactly in its place, and sums of these in tables not claimed."""
    tables = family.tables
    known, valued = family.steepest == 0, np.zeros(family.steepest.size, dtype=np.bool_)
    found = cells.copy() if known.any() or not claimed.all() else cells
    valued[: claimed.size] = claimed
    for number in np.flatnonzero(known).tolist():
        own = slice(*tables.offsets[number : number + 2])
        off = abs(cells[own] - y[own]).max() if valued[number] else np.inf
        if off > EXACT_TO * scale:
            raise DisprovedError(f"x contradicts what is known exactly by {off:.3g}")
        found[own] = y[own]
    exact = known.copy()
    for finer, coarser, _ in tables.by_axis:
        exact[coarser] |= exact[finer]
    rows = np.flatnonzero(exact[tables.up[:, 0]] | ~valued[tables.up[:, 1]])
    of_steps = tables_of_steps(found, tables.finest_first[rows])
    for (table, without), (whole, sums) in zip(tables.up[rows, :2].tolist(), of_steps, strict=True):
        if not (exact[table] or (valued[table] and not valued[without])):
            continue
        total = whole.sum(axis=1, dtype=np.longdouble)
        if not known[without]:
            sums[...], valued[without], known[without] = total, True, exact[table]
        elif abs(sums - total).max() > EXACT_TO * scale:
            raise DisprovedError("values known exactly contradict one another")
    return found


def table_deviations(problem: Problem) -> Float | None:
    """Standard deviations of the tables' weighted squares, from the parts that they share; None where parts mix."""
    if problem.table_variances is None:
        return None
    ordered = in_schema_order(problem).problem
    try:
        family = Separated(ordered, WeighedNoise.of(ordered))
    except NotCertifiedError:
        return None
    if family.groups:
        return None
    tables, density = family.tables, family.density
    independent = np.ones_like(density)
    for finer, _, levels in tables.by_axis:
        independent[finer] *= levels - 1
    variances = []
    for table, variance in zip(ordered.observed_tables, problem.table_variances, strict=True):
        within = [tables.numbers[own] for own in subsets(table.axes) if 0 < variance < np.inf]
        own = tables.sizes[within] / (variance * table.size)
        variances.append(float((2 * independent[within] * (1 - own / density[within]) ** 2).sum()))
    return np.sqrt(np.array(variances))
