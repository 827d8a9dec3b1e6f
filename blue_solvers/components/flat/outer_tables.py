"""Tables that nothing refines are corrected through margins: read for their sums, and read and written once more.

What is seen of a table D by others lies in its margins without one of a few axes I each. Of the difference r between
estimate and measurement of D nothing is left without means over these: r = r_1 + P_1 r_2 + P_1 P_2 r_3 + ..., r_i being
the means over axis i and P_i what takes them out. So D tells the margins P_1 ... P_{i-1} of its means, and is told as
much of what their estimates differ by. The sweeps need not hold D, only its margins, nor tables wanted that nothing
else sees: they are sums of the estimate of D.

Bytes that must move: a table twice in and once out, and its margins, which are few where its axes are long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import prod

import numpy as np

from blue_solvers.components.flat.axis_steps import take_means
from blue_solvers.components.flat.grouped_axes import GroupedAxes
from blue_solvers.components.flat.margin_steps import add_together, exchange, sum_together
from blue_solvers.components.flat.shared_steps import PARTS, cut, is_large
from blue_solvers.threads import Workers
from constraint_builders.arrays import Flags, Float, Index, Integers
from constraint_builders.relations.closed_tables import ClosedTables

WORTH = 0.5  # cells of margins for each of a table, up to which it is corrected through them
LEAST = 1 << 14  # cells of outer tables: with fewer, the calls take longer than the sweeps' passes
MEAN = LEAST >> 4  # cells of an outer table, on average
MOST_OF_ALL = 0.5  # of observed cells, that are in outer tables
MOST_SUBSETS = 10  # axes of which every subset is looked at

Axes = tuple[int, ...]


@dataclass(frozen=True)
class OuterChoice:
    """Which tables are outer, and along which axes.

    Attributes
    ----------
    tables : ClosedTables
        All of the problem.
    axes : dict
        Of every outer table the rows of `ClosedTables.up` of its axes in I, longest margins first.
    inner : ndarray of bool, (tables,)
        The tables that not only an outer table says anything about.
    """

    tables: ClosedTables
    axes: dict[int, Axes]
    inner: Flags

    @classmethod
    def of(
        cls, tables: ClosedTables, axes: GroupedAxes, observed_at: Index, noisy: Flags, exact: Flags, desired_at: Index
    ) -> OuterChoice:
        """Of tables that are observed, some of them noisy and some exact, and desired, by their places among all."""
        observed, noisy = observed_at[noisy | exact], noisy[noisy | exact]
        few = _has_few_finest(tables, observed) and np.isin(desired_at, observed).all()
        if few or np.unique(desired_at).size < desired_at.size:
            return cls(tables, {}, np.ones(tables.sizes.size, dtype=np.bool_))
        grouped = np.array([*(own < -1 for own in axes.instead), False])
        levels = np.array([axis for axis, _ in axes.several], dtype=np.intp)
        whole = (tables.kept[desired_at][:, :, None] == levels).any(axis=1).all(axis=1)
        recoded = desired_at[~whole]  # no steps lead to these from tables of the levels
        first, last = _owners(tables, axes, observed, recoded)
        shared = first != last
        shares = _shares(tables, axes)
        order = np.lexsort((-shares, tables.up[:, 0]))
        starts = np.searchsorted(tables.up[order, 0], np.arange(tables.sizes.size + 1))
        times = np.bincount(observed, minlength=tables.sizes.size)
        alone = ~shared[observed] & (first[observed] == observed) & (times[observed] == 1) & noisy
        alone &= ~grouped[tables.kept[observed]].any(axis=1)
        found: dict[int, Axes] = {}
        for table in observed[alone].tolist():
            rows = order[starts[table] : starts[table + 1]]
            chosen = _fewest(tables, shares, rows, shared, order, starts)
            if chosen is not None:
                found[table] = chosen
        if tables.sizes[list(found)].sum() < max(LEAST, MEAN * len(found), MOST_OF_ALL * tables.sizes[observed].sum()):
            found = {}
        inner = np.ones(tables.sizes.size, dtype=np.bool_)
        owned = np.flatnonzero(~shared)
        inner[owned[np.isin(first[owned], list(found))]] = False
        return cls(tables, found, inner)

    def held(self, axes: GroupedAxes, desired: Index, observed: Index) -> tuple[ClosedTables, Index, dict[Axes, int]]:
        """The closed tables of those desired and those told, outer ones' margins in their place.

        Returns
        -------
        held : ClosedTables
        numbers : ndarray of int, (held tables,)
            Which of all tables they are.
        number_of : dict
            The number of each of them by its axes.
        """
        if not self.axes:
            return self.tables, np.arange(self.tables.sizes.size), {}
        asked = np.concatenate([desired, observed])
        margins = [int(self.tables.up[row, 1]) for rows in self.axes.values() for row in rows]
        kept = [axes_of(self.tables, table) for table in [*asked[self.inner[asked]].tolist(), *margins]]
        held = ClosedTables.of(axes.shape, kept, np.inf, axes.instead)
        every = {axes_of(self.tables, table): table for table in range(self.tables.sizes.size)}
        number_of = {axes_of(held, table): table for table in range(held.sizes.size)}
        return held, np.array([every[own] for own in number_of], dtype=np.intp), number_of


def _has_few_finest(tables: ClosedTables, observed: Index) -> bool:
    """Whether the observed tables that nothing at hand refines have too few cells to be outer ones."""
    finest = np.ones(tables.sizes.size, dtype=np.bool_)
    finest[tables.up[:, 1]] = False
    cells = tables.sizes[observed]
    return bool(cells[finest[observed]].sum() < max(LEAST, MOST_OF_ALL * cells.sum()))


def _owners(tables: ClosedTables, axes: GroupedAxes, observed: Index, shared: Index) -> tuple[Index, Index]:
    """The first and the last of the observed tables that say anything about a table's component, or any number.

    What is `shared` counts as if several did.
    """
    count = tables.sizes.size
    first, last = np.full(count, count), np.full(count, -1)
    first[observed], last[observed] = observed, observed
    first[shared], last[shared] = -1, count
    stepped = np.array([*(own >= -1 for own in axes.instead), False])
    alike = np.sort(np.where(stepped[tables.kept], tables.kept, len(tables.shape)), axis=1)
    number = np.unique(alike, axis=0, return_inverse=True)[1].ravel() if axes.several else np.arange(count)
    ends = np.searchsorted(-tables.variables[tables.up[:, 0]], -np.arange(tables.variables.max(initial=0), -2, -1))
    for size, start, stop in zip(range(tables.variables.max(initial=0), -1, -1), ends, ends[1:], strict=False):
        members = np.flatnonzero(tables.variables == size)
        if axes.several:
            low, high = np.full(count, count), np.full(count, -1)
            np.minimum.at(low, number[members], first[members])
            np.maximum.at(high, number[members], last[members])
            first[members], last[members] = low[number[members]], high[number[members]]
        table, without = tables.up[start:stop, 0], tables.up[start:stop, 1]
        np.minimum.at(first, without, first[table])
        np.maximum.at(last, without, last[table])
    return first, last


def _fewest(
    tables: ClosedTables, shares: Float, rows: Index, shared: Flags, order: Index, starts: Index
) -> Axes | None:
    """The axes of a table with the fewest cells in margins: what keeps them all must be seen by nothing else."""
    longest_first = tuple(rows.tolist())
    costs = dict(zip(longest_first, shares[rows].tolist(), strict=True))
    if len(rows) > MOST_SUBSETS or shared[tables.up[rows, 1]].all():
        return longest_first if sum(costs.values()) <= WORTH else None

    def is_own(kept: Axes) -> bool:
        table = int(tables.up[rows[0], 0])
        for row in longest_first:
            if row not in kept:
                own = order[starts[table] : starts[table + 1]]
                table = int(tables.up[own[tables.up[own, 2] == tables.up[row, 2]][0], 1])
        return not shared[table]

    sets = chain.from_iterable(combinations(longest_first, size) for size in range(len(rows) + 1))
    for kept in sorted(sets, key=lambda kept: sum(costs[row] for row in kept)):
        if sum(costs[row] for row in kept) > WORTH:
            return None
        if is_own(kept):
            return kept
    return None


def _shares(tables: ClosedTables, axes: GroupedAxes) -> Float:
    """Of every row of `ClosedTables.up` the cells of the margin for each of the table."""
    cells = np.array([1 if own < 0 else int(axes.groups[own]) for own in axes.listed])
    return cells[tables.up[:, 2]] / tables.up[:, 4]


class OuterTables:
    """The outer tables of a problem, beside the closed tables that their margins are among.

    Parameters
    ----------
    choice : OuterChoice
    axes : GroupedAxes
    inner : ClosedTables
        The closed tables that are held.
    number_of : mapping
        The number of each of them by its axes.
    starts : mapping
        Where outer tables are observed, by their numbers among all tables.
    precisions : mapping
    wanted : mapping
        Where tables that are not inner are desired, by their numbers among all tables.
    desired : int
        Cells of all desired tables.

    Attributes
    ----------
    held : int
        Cells after those of desired tables, of what they are worked out from.
    precisions, ones : ndarray, (margins,)
        Of the outer table of every margin; and 1 for each.
    """

    def __init__(
        self,
        choice: OuterChoice,
        axes: GroupedAxes,
        inner: ClosedTables,
        number_of: Mapping[Axes, int],
        starts: Mapping[int, int],
        precisions: Mapping[int, float],
        wanted: Mapping[int, int],
        desired: int,
    ) -> None:
        self._tables, self._groups, self._listed = choice.tables, axes.groups, axes.listed
        places = dict(wanted)
        sums = self._sums(choice, places)
        needed = {table for table in choice.axes if table in places or table in sums}
        end = desired
        for table in [*sums, *choice.axes]:
            if table not in places:
                places[table], end = end, end + int(choice.tables.sizes[table])
        self.held = end - desired
        order = sorted(choice.axes, key=lambda table: table not in needed)
        self.precisions = np.array([precisions[table] for table in order for _ in choice.axes[table]])
        self.ones = np.ones_like(self.precisions)
        self._lay_margins(choice, order, number_of, inner, starts, places)
        self._lay_sums(sums, places)
        self._needed = len(needed)
        sizes, count = self._heads[:, 2], PARTS if is_large(choice.tables) else 1
        self._parts, self._needed_parts = cut(sizes, count), cut(sizes[: len(needed)], count)

    def _sums(self, choice: OuterChoice, places: Mapping[int, int]) -> dict[int, list[int]]:
        """Of outer tables, and others that are not inner, the rows of `up` to those wanted; the finest first."""
        tables, rows = choice.tables, choice.tables.up[~choice.inner[choice.tables.up[:, 0]]]
        numbers = np.flatnonzero(~choice.inner[choice.tables.up[:, 0]])
        finer: dict[int, list[int]] = {}
        for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
            finer.setdefault(row[1], []).append(number)
        found: dict[int, list[int]] = {}
        at_hand = {*places, *choice.axes}
        waiting = sorted(set(places) - set(choice.axes), key=lambda table: tables.variables[table])
        while waiting:
            table = waiting.pop(0)
            source = min(finer[table], key=lambda n: (tables.up[n, 0] not in at_hand, tables.sizes[tables.up[n, 0]]))
            found.setdefault(int(tables.up[source, 0]), []).append(source)
            if tables.up[source, 0] not in at_hand:
                at_hand.add(int(tables.up[source, 0]))
                waiting.append(int(tables.up[source, 0]))
                waiting.sort(key=lambda table: tables.variables[table])
        return dict(sorted(found.items(), key=lambda pair: -tables.variables[pair[0]]))

    def _lay_margins(
        self,
        choice: OuterChoice,
        order: list[int],
        number_of: Mapping[Axes, int],
        inner: ClosedTables,
        starts: Mapping[int, int],
        places: Mapping[int, int],
    ) -> None:
        tables, end = choice.tables, 0
        heads: list[list[int]] = []
        steps: list[list[int]] = []
        exchanged: list[list[int]] = []
        centred: list[list[int]] = []
        for table in order:
            heads.append([starts[table], places[table], int(tables.sizes[table]), len(steps), len(choice.axes[table])])
            for place, row in enumerate(choice.axes[table]):
                step = [end, *self._step(row)]
                steps.append(step)
                without = int(tables.up[row, 1])
                kept = axes_of(tables, without)
                exchanged.append([int(inner.offsets[number_of[kept]]), *step])
                lengths = [tables.shape[axis] for axis in kept]
                for other in choice.axes[table][:place]:
                    at = kept.index(int(tables.up[other, 2]))
                    before, after = prod(lengths[:at]), prod(lengths[at + 1 :])
                    centred.append([end, -1, before, lengths[at], after, int(self._listed[kept[at]])])
                end += int(tables.sizes[without])
        self._heads, self._steps = _rows(heads, 5), _rows(steps, 5)
        self._exchanged, self._centred = _rows(exchanged, 6), _rows(centred, 6)
        self._centred[self._centred[:, 1] < 0, 1] = end
        self._centred_factors = np.ones(len(centred))
        self._margin_cells = end + max((row[2] * row[4] * self._count(row[5]) for row in centred), default=0)

    def _lay_sums(self, sums: Mapping[int, list[int]], places: Mapping[int, int]) -> None:
        heads: list[list[int]] = []
        steps: list[list[int]] = []
        for table, rows in sums.items():
            heads.append([places[table], places[table], int(self._tables.sizes[table]), len(steps), len(rows)])
            steps += [[places[int(self._tables.up[row, 1])], *self._step(row)] for row in rows]
        self._sum_heads, self._sum_steps = _rows(heads, 5), _rows(steps, 5)

    def _step(self, row: int) -> list[int]:
        _, _, axis, before, levels, after = self._tables.up[row].tolist()
        return [before, levels, after, int(self._listed[axis])]

    def _count(self, listed: int) -> int:
        return 1 if listed < 0 else int(self._groups[listed])

    def tell(self, values: Float, cells: Float, weights: Float, workers: Workers, heads: Integers) -> Float:
        """Add to closed tables, (S, K), what outer tables among `values` say, times weights; return it.

        Parameters
        ----------
        values, cells : ndarray
        weights : ndarray, (margins,)
        workers : Workers
        heads : ndarray of int
            `observed` or `back`.
        """
        margins = np.empty((self._margin_cells, values.shape[1]))
        add, groups = sum_together.fastest(), self._groups
        workers.for_each(lambda some: add(values, margins, heads[some], self._steps, groups), self._parts)
        self._centre(margins)
        exchange.fastest()(cells, margins, self._exchanged, groups, weights, False)
        return margins

    def hear(
        self,
        values: Float,
        cells: Float,
        margins: Float,
        found: Float,
        gains: Float,
        workers: Workers,
        heads: Integers,
    ) -> None:
        """Set outer tables in `found` to `values` and what closed tables times gains have more in margins."""
        add, groups = add_together.fastest(), self._groups
        exchange.fastest()(cells, margins, self._exchanged, groups, gains, True)
        self._centre(margins)
        parts = self._needed_parts if heads is self.wanted else self._parts
        workers.for_each(lambda some: add(values, found, margins, heads[some], self._steps, groups), parts)

    def _centre(self, margins: Float) -> None:
        if len(self._centred):
            take_means.fastest()(margins, self._centred, self._groups, self._centred_factors)

    def sum_up(self, found: Float) -> None:
        """Set tables that are sums of outer ones, in place."""
        add = sum_together.fastest()
        for row in range(len(self._sum_heads)):
            add(found, found, self._sum_heads[row : row + 1], self._sum_steps, self._groups)

    def share_out(self, found: Float) -> None:
        """The transpose: add tables that are sums to every cell that they sum, in place."""
        add = add_together.fastest()
        for row in reversed(range(len(self._sum_heads))):
            add(found, found, found, self._sum_heads[row : row + 1], self._sum_steps, self._groups)

    def disagreement(self, found: Float, cells: Float) -> float:
        """Largest difference between sums of outer tables, worked out, and the closed tables."""
        margins = np.empty((self._margin_cells, found.shape[1]))
        sum_together.fastest()(found, margins, self.back, self._steps, self._groups)
        worst = 0.0
        for table, place, before, _, after, listed in self._exchanged.tolist():
            size = before * after * self._count(listed)
            worst = max(worst, float(abs(cells[table : table + size] - margins[place : place + size]).max()))
        return worst

    @property
    def is_shared(self) -> bool:
        """Whether outer tables come in parts for threads."""
        return len(self._parts) > 1

    @property
    def has_sums(self) -> bool:
        """Whether any table is a sum of outer ones."""
        return len(self._sum_heads) > 0

    @property
    def observed(self) -> Integers:
        """Where outer tables are observed, and where they are desired; as heads of `margin_steps`."""
        return self._heads

    @cached_property
    def wanted(self) -> Integers:
        """The first of `observed`, of which anything is desired."""
        return self._heads[: self._needed]

    @cached_property
    def back(self) -> Integers:
        """The other way."""
        return np.ascontiguousarray(self._heads[:, [1, 0, 2, 3, 4]])


def axes_of(tables: ClosedTables, number: int) -> Axes:
    """The axes that one of the tables keeps."""
    return tuple(axis for axis in tables.kept[number].tolist() if axis < len(tables.shape))


def _rows(rows: list[list[int]], width: int) -> Integers:
    return np.array(rows, dtype=np.int64).reshape(-1, width)
