"""Linear combinations of measured cells that are known exactly, as the pass of sums takes them.

Multipliers of the combinations may be taken off the residuals, whoever gives them: what is left then is a bound all the
same. And counts may be moved so that one combination changes and no other, and nothing else that is
known exactly: so an estimate that is off by rounding has counts beside it that satisfy everything, and a figure that
such moves change has a standard error that they bound from below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blue_solvers.verification.compensated_sums import NO_MAP, Reach
from blue_solvers.verification.known_exactly import LeafSums
from blue_solvers.verification.placed_tables import LevelTable, PlacedTables, finest_known
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, NotCertifiedError
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.relations.marginals import cell_map, refines

EXTENDED = 2 * float(np.finfo(np.longdouble).eps)
SAYS_NOTHING = 1e-9  # of a combination's largest weight: what it moves by less, no count moves
MOVES = 1e-3  # of a count: a figure that moves by less is treated as if it were known exactly
SAMPLED = 4096  # counts that are tried, for a figure that holds some of those that are moved


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


@dataclass(frozen=True)
class Ties:
    """What combinations that are known exactly leave free.

    Attributes
    ----------
    equal_to : tuple of float, (k,)
    units : tuple of float, (k,)
        The largest weight of each.
    chosen : tuple of int
        Combinations that say something new.
    inverse : tuple of tuple of float
        Square: by how much each move has to be made to change one of the chosen by one.
    reach : float
        By how much a combination changes at most where a cell known exactly is changed by one, by its best count.
    length : float
        By how much all counts together move at most where one is moved by one and the combinations kept.
    least : float
        By how much a figure then moves at least, but for tables that may be `fixed`.
    fixed : tuple of str
        Tables of which a figure may be known exactly by what the combinations say.
    """

    equal_to: tuple[float, ...]
    units: tuple[float, ...]
    chosen: tuple[int, ...]
    inverse: tuple[tuple[float, ...], ...]
    reach: float
    length: float
    least: float
    fixed: tuple[str, ...]

    def are_sound(self, equal_to: tuple[float, ...]) -> bool:
        """Whether these can be ties of combinations that are known to be so much."""
        k, chosen = len(equal_to), {*self.chosen}
        square = len(self.inverse) == len(self.chosen) and all(len(row) == len(self.chosen) for row in self.inverse)
        fit = self.equal_to == equal_to and len(self.units) == k and len(chosen) == len(self.chosen)
        lengths = all(0 < own < np.inf for own in (self.length, self.least, 1 + self.reach))
        return fit and square and chosen <= {*range(k)} and lengths

    def moved(self, tied: list[list[float]], corrected: float, scale: float) -> float:
        """By how much counts have to be moved at most for every combination of them to be what it is known to be.

        Parameters
        ----------
        tied : list of list of float
            The combinations of figures; see `TiedCells.sums`.
        corrected : float
            By how much counts are moved already.
        scale : float
            The largest figure.

        Raises
        ------
        NotCertifiedError
            If figures contradict what is known by more than rounding.
        """
        off = np.zeros(len(self.equal_to))
        of_figures = tied or [[0.0] * 4] * off.size  # of no figure at all
        for i, ((high, low, slack, size), known) in enumerate(zip(of_figures, self.equal_to, strict=True)):
            gap = float(abs(np.longdouble(high) - known + np.longdouble(low)))
            off[i] = gap + slack + self.reach * corrected
            if not off[i] <= EXACT_TO * max(scale * self.units[i], size):
                raise NotCertifiedError(f"x contradicts equality {i}, which is known exactly, by {gap:.3g}")
        k = len(self.chosen)
        return 2 * float((abs(np.array(self.inverse).reshape(k, k)) @ off[list(self.chosen)]).sum())

    @classmethod
    def of(cls, problem: Problem, places: PlacedTables, figures: Mapping[str, LevelTable]) -> Ties:
        """The ties of a problem on a spine.

        Parameters
        ----------
        problem : Problem
        places : PlacedTables
            Of the problem, with all tables of which figures are claimed.
        figures : mapping of str to (int, Table)
            These tables.

        Raises
        ------
        NotCertifiedError
            If tables are known exactly that do not nest.
        """
        E, equal_to = problem.equalities or (sparse.csr_array((0, problem.observed.size)), np.zeros(0))
        counts = _Counts(places, problem.exact)
        chosen, moves = _moves(E, counts)
        tried = counts.some(moves)
        by_row = np.array([counts.change(counts.spread(E[[row]]), tried) for row in chosen]).reshape(
            len(chosen), tried.shape[1]
        )
        inverse = np.linalg.inv(by_row[:, : len(chosen)])
        combined = [counts.spread(sparse.csr_array(own[None] @ E[chosen])) for own in inverse]
        least, fixed = 1.0, list[str]()
        for key, table in figures.items():
            own = counts.cells_of(table, tried)
            for cell in np.unique(own[:, : len(chosen)]).tolist():
                by_figure = (own[0] == cell).astype(float) - (own[1] == cell)
                start = by_figure[: len(chosen)]
                most = float(abs(by_figure - start @ inverse @ by_row).max()) if cell >= 0 and start.any() else 1.0
                least, fixed = (least, [*fixed, key]) if most < MOVES else (min(least, most), fixed)
        return cls(
            tuple(equal_to.tolist()),
            tuple(abs(E).max(axis=1).toarray().ravel().tolist()),
            tuple(chosen),
            tuple(map(tuple, inverse.tolist())),
            counts.reach(E),
            2 + 4 * sum(float(abs(counts.apart(own)).max(initial=0.0)) for own in combined),
            least,
            tuple(sorted(set(fixed))),
        )


def _moves(E: sparse.csr_array, counts: _Counts) -> tuple[list[int], list[tuple[int, int]]]:
    """Combinations that say something new, and as many moves of counts, each of which changes its own."""
    chosen: list[int] = []
    moves: list[tuple[int, int]] = []
    changed = np.zeros((E.shape[0], 0))
    for row in range(E.shape[0]):
        rest = np.zeros(E.shape[0])
        rest[row] = 1.0
        rest[chosen] = -np.linalg.solve(changed[chosen].T, changed[row]) if chosen else 0.0
        spread = counts.spread(sparse.csr_array(rest[None] @ E))
        apart = abs(counts.apart(spread))
        if apart.max(initial=0.0) > SAYS_NOTHING * abs(E[[row]]).max():
            moves.append(counts.furthest(spread, int(apart.argmax())))
            changed = np.column_stack([changed, counts.column(E, moves[-1])])
            chosen.append(row)
    return chosen, moves


class _Counts:
    """The counts behind a problem: the cells of the tables that hold all others, of all leaves.

    Those are moved alone that are not known to be empty; where a table is known exactly, two of one of its cells, in
    opposite directions.
    """

    def __init__(self, places: PlacedTables, exact: Flags) -> None:
        self._places, self._sums, schema = places, LeafSums(places, exact.size), places.schema
        tables = [(sheet.level, sheet.table) for sheet in places.sheets if exact[sheet.place].any()]
        self._known = finest_known(schema, tables)
        every = np.zeros((1, self._sums.size), dtype=np.intp) + np.arange(self._sums.size)
        group = (
            np.zeros(self._sums.size, dtype=np.intp) if self._known is None else self.cells_of(self._known, every)[0]
        )
        self._group = np.where(self._sums.free, group, -1)  # of all counts that may be moved against one another
        self._sizes = np.bincount(self._group[self._group >= 0], minlength=1)

    def spread(self, row: sparse.csr_array) -> Float:
        """By how much every count, moved by one, changes a combination of observed cells, (counts,)."""
        return self._sums.shares_of(row.toarray().ravel())

    def apart(self, spread: Float) -> Float:
        """How far every count is from those that it may be moved against, (counts,); at most all of it is."""
        free = self._group >= 0
        if self._known is None:
            return np.where(free, spread, 0.0)
        sums = np.bincount(self._group[free], weights=spread[free], minlength=self._sizes.size).astype(float)
        means = np.divide(sums, self._sizes, out=np.zeros_like(sums), where=self._sizes > 0)
        return np.where(free, spread - means[self._group], 0.0)

    def reach(self, E: sparse.csr_array) -> float:
        """By how much combinations change, all together, with the best count of every cell of the table known."""
        if self._known is None:
            return 0.0
        changed = sum((abs(self.spread(E[[row]])) for row in range(E.shape[0])), np.zeros(self._group.size))
        least = np.full(self._sizes.size, np.inf)
        np.minimum.at(least, self._group[self._group >= 0], changed[self._group >= 0])
        shown = (self._group[self._sums.free] >= 0).all()
        return float(least[np.isfinite(least)].max(initial=0.0) if shown else changed.max(initial=0.0))

    def furthest(self, spread: Float, count: int) -> tuple[int, int]:
        """The move of a count that changes a combination most: alone, or against another; -1 for none."""
        if self._known is None:
            return count, -1
        others = np.flatnonzero(self._group == self._group[count])
        return count, int(others[abs(spread[others] - spread[count]).argmax()])

    def change(self, spread: Float, moves: Index) -> Float:
        """What moves (2, m) change."""
        return spread[moves[0]] - np.where(moves[1] < 0, 0.0, spread[moves[1]])

    def some(self, moves: list[tuple[int, int]]) -> Index:
        """These moves, and others at random, (2, m)."""
        free = np.flatnonzero(self._group >= 0)
        rng = np.random.default_rng(0)
        order = free[np.argsort(self._group[free], kind="stable")] if self._known is not None else free
        first = rng.permutation(order.size)[:SAMPLED]
        other = np.full(first.size, -1)
        if self._known is not None:
            other = order[(first + 1) % max(order.size, 1)]
            first = order[first]
            together = self._group[first] == self._group[other]
            first, other = first[together], other[together]
        else:
            first = order[first]
        return np.concatenate([np.array(moves, dtype=np.intp).reshape(-1, 2).T, [first, other]], axis=1)

    def column(self, E: sparse.csr_array, move: tuple[int, int]) -> Float:
        """What a move changes of every combination, (k,)."""
        cells = np.zeros(self._sums.size)
        cells[move[0]] += 1
        if move[1] >= 0:
            cells[move[1]] -= 1
        return E @ self._sums.figures_of(cells)[: E.shape[1]]

    def cells_of(self, table: LevelTable, counts: Index) -> Index:
        """The cells of a table, of all its places, that hold counts; -1 where none does."""
        places, found = self._places, np.full(counts.shape, -1)
        schema, (level, own) = places.schema, table
        for (cut, (_, width)), some in zip(self._sums.cuts, places.leaves, strict=True):
            reach = Reach.itself(some.rows.size, NO_MAP) if some.level == level else some.reach.get(level)
            finest = places.levels[some.level].tables[0]
            inside = (counts >= cut.start) & (counts < cut.stop)
            if reach is None or not inside.any() or not refines(schema, finest, own):
                continue
            area = np.full(some.rows.size, -1)
            area[reach.rows] = some.rows if some.level == level else reach.areas
            row, cell = np.divmod(counts[inside] - cut.start, width)
            place = area[row] * own.size + cell_map(schema, finest, own)[cell]
            found[inside] = np.where(area[row] >= 0, place, -1)
        return found
