"""Coefficients of pieces of components, of one size, several at once, in the numbers that are not empty at a geounit.

Geounits lower down hold few of the kinds of cells that their parents hold: a block without facilities has only
households. Of a large piece geounits with the same kinds are a lot, and its matrices are as small as their numbers are
few; in what children tell their parent, numbers that they lack are known to be 0. Small pieces are one lot a level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.coefficient_arrays import Boundary, Coefficients
from blue_solvers.components.tree.messages import Message, Telling, combine
from blue_solvers.components.tree.piecewise import Batch, Ragged
from blue_solvers.components.tree.splitting import Piece
from blue_solvers.components.tree.sums_of_children import SumOfChildren, flattened, raised
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table

Entries = tuple[Index, Float, Index, Index]  # places, matrices (pieces, places, r, q), and which rows and columns


@dataclass
class _Lot:
    """Classes of a level with the same numbers, and what is known of these: (pieces, classes, s, s).

    Attributes
    ----------
    classes, support : ndarray of int
    message : Message
    posterior : ndarray
        Square roots of the covariance of the final estimate, of geounits with children.
    pairs : ndarray of int
        With their children.
    sums : SumOfChildren or None
    """

    classes: Index
    support: Index
    message: Message
    posterior: Float
    pairs: Index
    sums: SumOfChildren | None


@dataclass
class _Found:
    """Coefficients of all pieces, as they are found."""

    children: list[Entries] = field(default_factory=list)
    gain: list[Entries] = field(default_factory=list)
    root: list[Entries] = field(default_factory=list)
    posterior: list[Entries] = field(default_factory=list)
    measured: dict[int, list[Entries]] = field(default_factory=dict)


class PieceSolver:
    """Pieces of one size.

    Parameters
    ----------
    plan : TreePlan
    jobs : sequence of (int, Piece)
        Each with the number of a component that it is a piece of; one alone if it is large.
    boundary : Boundary
    """

    def __init__(self, plan: TreePlan, jobs: Sequence[tuple[int, Piece]], boundary: Boundary) -> None:
        self._plan, self._boundary = plan, boundary
        self._numbers, self._pieces = [number for number, _ in jobs], [piece for _, piece in jobs]
        self._size, self._is_batched = self._pieces[0].size, self._pieces[0].is_batched
        self._lots: list[_Lot] = []
        self._lot_of, self._row_of = np.zeros((2, plan.class_rank.size), dtype=np.intp)
        self._found = _Found()

    def solve(self) -> list[Coefficients]:
        """Of every piece."""
        plan, found = self._plan, self._found
        for number in reversed(range(len(plan.levels))):
            self._go_up(number)
        self._go_down()
        pairs, classes = plan.pair_parent.size, plan.class_rank.size
        counts = {t: level.class_count for level in plan.levels for t, _ in level.tables}
        solved = []
        for i, piece in enumerate(self._pieces):
            rows = {t: piece.rows.get(plan.tables[t].name) for t in found.measured}
            measured = {
                t: self._put_together(i, found.measured[t], counts[t], len(W)) for t, W in rows.items() if W is not None
            }
            children = self._put_together(i, found.children, plan.parents.size, self._size)
            gain = self._put_together(i, found.gain, pairs, self._size)
            root = self._put_together(i, found.root, classes, self._size)
            posterior = self._put_together(i, found.posterior, pairs + 1, self._size)
            top = self._lots[-1].message[i]
            solved.append(Coefficients(children, gain, root, posterior, top, measured=measured))
        return solved

    def _put_together(self, i: int, entries: Sequence[Entries], count: int, width: int) -> Batch:
        """Matrices of a piece, (count, size, width)."""
        if self._is_batched:
            whole = np.zeros((count, self._size, width))
            for places, values, _, _ in entries:
                whole[places] = values[i, :, :, :width]
            return whole
        nothing = np.zeros(0, dtype=np.intp)
        found: list[tuple[Float, Index, Index]] = [(np.zeros((0, 0)), nothing, nothing)] * count
        for places, values, rows, columns in entries:
            for place, own in zip(places.tolist(), values[i], strict=True):
                found[place] = own, rows, columns
        matrices, all_rows, all_columns = zip(*found, strict=True) if found else ((), (), ())
        return Ragged((self._size, width), matrices, all_rows, all_columns)

    def _go_up(self, number: int) -> None:
        level = self._plan.levels[number]
        self._found.measured |= {t: [] for t, table in level.tables if self._rows(table).shape[1]}
        for classes in (level.leaf_classes, level.inner_classes):
            for own, support in self._lots_among(number, classes):
                lot = self._lot(number, own, support)
                self._lot_of[own], self._row_of[own] = len(self._lots), np.arange(own.size)
                self._lots.append(lot)
                for row, geounit in self._plan.bounded(number, own, self._boundary.below):
                    for i, (place, piece) in enumerate(zip(self._numbers, self._pieces, strict=True)):
                        lot.message[i, self._row_of[row]] = piece.of_message(self._boundary.below[geounit][place])[0]
                self._found.root.append((own, lot.message.root, support, support))

    def _lots_among(self, number: int, classes: Index) -> Iterator[tuple[Index, Index]]:
        """Classes of a level that have the same numbers, and these."""
        if self._is_batched:
            if classes.size:
                yield classes, np.arange(self._size)
            return
        empty = self._plan.empty_kinds(number, self._plan.class_rank[classes])[:, self._pieces[0].kinds]
        kinds, kind_of = np.unique(empty, axis=0, return_inverse=True)
        for kind, flags in enumerate(kinds):
            yield classes[kind_of.ravel() == kind], np.flatnonzero(~flags)

    def _lot(self, number: int, classes: Index, support: Index) -> _Lot:
        """What some classes were measured, and what their children tell."""
        plan, level = self._plan, self._plan.levels[number]
        shape = len(self._pieces), classes.size, support.size
        nothing = Message.zeros((*shape, support.size))
        lot = _Lot(classes, support, nothing, nothing.root, classes[:0], None)
        if not support.size:
            return lot
        sources, used = self._sources(number, classes, support)
        numbers = plan.parent_number[level.members[plan.class_rank[classes]]]
        if numbers[0] >= 0:
            pairs, starts = plan.pairs_of(numbers)
            lot.pairs = np.arange(plan.pair_parent.size)[pairs]
            owners = np.repeat(np.arange(numbers.size), np.diff(starts))
            children = self._about(plan.pair_class[lot.pairs], support)
            lot.sums = SumOfChildren(children, plan.pair_count[lot.pairs].astype(float), owners)
            sources.append(Telling.told(flattened(lot.sums.total)))
        combined = combine(sources)
        lot.posterior = np.zeros_like(nothing.root)
        lot.message[:] = raised(combined.message, shape)
        gains = [gain.reshape(*shape, -1) for gain in combined.gains]
        for (t, rows), gain in zip(used, gains, strict=False):
            self._found.measured[t].append((classes - level.first_class, gain, support, rows))
        if lot.sums is not None:
            self._found.children.append((numbers, gains[-1], support, support))
        return lot

    def _about(self, classes: Index, support: Index) -> Message:
        """What is known of some classes as messages about more numbers, which are exactly 0 in them."""
        found = Message.zeros((len(self._pieces), classes.size, support.size, support.size))
        pieces = np.arange(len(self._pieces))
        for chosen, lot, rows in self._by_lot(classes):
            places, own = np.searchsorted(support, lot.support), lot.message[:, rows]
            for given, array in zip(own.arrays, found.arrays, strict=True):
                array[np.ix_(pieces, chosen, places, places)] = given
            others = np.setdiff1d(np.arange(support.size), places)
            found.exact[:, chosen[:, None], others, others] = 1.0
        return found

    def _by_lot(self, classes: Index) -> Iterator[tuple[Index, _Lot, Index]]:
        """Places among some classes, the lot that these are of, and their rows there."""
        lots = self._lot_of[classes]
        for number in np.unique(lots).tolist():
            chosen = np.flatnonzero(lots == number)
            yield chosen, self._lots[number], self._row_of[classes[chosen]]

    def _rows(self, table: Table) -> Float:
        """W of a table about every piece, (pieces, k, b), zero where it sees nothing."""
        rows = [piece.rows.get(table.name) for piece in self._pieces]
        stacked = np.zeros((len(rows), max((len(W) for W in rows if W is not None), default=0), self._size))
        for i, W in enumerate(rows):
            if W is not None:
                stacked[i, : len(W)] = W
        return stacked

    def _sources(self, number: int, classes: Index, support: Index) -> tuple[list[Telling], list[tuple[int, Index]]]:
        """What was measured in some classes; of tables, by number, the rows that say something; empty cells last."""
        plan, level = self._plan, self._plan.levels[number]
        ranks, count = plan.class_rank[classes], len(self._pieces)
        sources, used = [], []
        for (t, table), weights, exact in zip(level.tables, level.weights, level.exact, strict=True):
            W = self._rows(table)[:, :, support]
            rows = np.flatnonzero(self._is_batched | W.any(axis=(0, 2)))
            if rows.size and (weights[ranks].any() or exact[ranks].any()):
                design = np.repeat(W[:, rows], classes.size, axis=0)
                precisions = np.tile(weights[ranks], count)
                sources.append(Telling.measured(design, precisions, np.tile(exact[ranks].astype(float), count)))
                used.append((t, rows))
        if level.zeros is not None or not sources:
            empty = plan.empty_kinds(number, ranks)
            flags = np.concatenate([empty[:, piece.kinds[support]] for piece in self._pieces]).astype(float)
            identity, nothing = np.eye(support.size), np.zeros((len(flags), support.size, support.size))
            exactly = flags[:, :, None] * identity if flags.any() else None
            sources.append(Telling(identity[None], nothing, nothing[:1], exactly))  # of value 0: its gain is not kept
        return sources, used

    def _go_down(self) -> None:
        """Square roots of posteriors: of the root first, then of every pair; gains on the way."""
        plan, found, top = self._plan, self._found, self._lots[-1]
        top.posterior = top.message.root
        if self._boundary.above is not None:
            jobs = zip(self._numbers, self._pieces, strict=True)
            top.posterior = np.stack([piece.of_root(self._boundary.above[place])[None] for place, piece in jobs])
        found.posterior.append((np.zeros(1, dtype=np.intp), top.posterior, top.support, top.support))
        for lot in reversed(self._lots):
            if lot.sums is None:
                continue
            gain, root = lot.sums.share(lot.posterior)
            for chosen, child, rows in self._by_lot(plan.pair_class[lot.pairs]):
                if not child.support.size:
                    continue
                pairs, places = lot.pairs[chosen], np.searchsorted(lot.support, child.support)
                learnt = root[:, chosen][:, :, places]
                if places.size < lot.support.size:
                    learnt = compress(learnt.reshape(-1, *learnt.shape[2:])).reshape(*learnt.shape[:3], -1)
                child.posterior[:, rows] = learnt
                found.gain.append((pairs, gain[:, chosen][:, :, places], child.support, lot.support))
                found.posterior.append((pairs + 1, learnt, child.support, child.support))
