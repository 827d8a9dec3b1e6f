"""Coefficients of pieces of components, of one size, several at once, in the numbers that are not empty at a geounit.

Geounits lower down hold few of the kinds of cells that their parents hold: a block without facilities has only
households. Of a large piece geounits with the same kinds are a lot, and its matrices are as small as their numbers are
few; in what children tell their parent, numbers that they lack are known to be 0. Small pieces are one lot a level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.coefficient_arrays import Boundary, PieceCoefficients
from blue_solvers.components.tree.messages import Message, Telling, combine
from blue_solvers.components.tree.piecewise import Batch, Entries, Ragged
from blue_solvers.components.tree.splitting import Piece
from blue_solvers.components.tree.sums_of_children import SumOfChildren, flattened, raised
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table


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
    sums: SumOfChildren | SumOfNumbers | None


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
        self._found: defaultdict[str | int, list[Entries]] = defaultdict(list)  # matrices (pieces, entries, r, q)

    def solve(self) -> list[PieceCoefficients]:
        """Of every piece."""
        plan = self._plan
        for number in reversed(range(len(plan.levels))):
            self._go_up(number)
        self._go_down()
        pairs, classes = plan.pair_parent.size, plan.class_rank.size
        counts = {"children": plan.parents.size, "gain": pairs, "root": classes, "posterior": pairs + 1}
        counts |= {"own": classes, "own_exact": classes} if self._size == 1 else {}
        tables = [(t, table.name, level.class_count) for level in plan.levels for t, table in level.tables]
        solved = []
        for i, piece in enumerate(self._pieces):
            square = {name: self._matrices(i, name, (count, self._size, self._size)) for name, count in counts.items()}
            seeing = ((t, count, piece.rows.get(name)) for t, name, count in tables)
            measured = {t: self._matrices(i, t, (count, *W.T.shape)) for t, count, W in seeing if W is not None}
            message = self._lots[-1].message[i]
            solved.append(PieceCoefficients(**square, measured=measured, message=message))
        return solved

    def _matrices(self, i: int, name: str | int, shape: tuple[int, int, int]) -> Batch:
        """Matrices of a piece."""
        lots = [
            (entries, matrices[i, :, :, : shape[2]], rows, columns[: shape[2]])
            for entries, matrices, rows, columns in self._found[name]
        ]
        found = Ragged(shape, lots)
        return found.toarray() if self._is_batched else found

    def _go_up(self, number: int) -> None:
        level = self._plan.levels[number]
        for classes in (level.leaf_classes, level.inner_classes):
            for own, support in self._lots_among(number, classes):
                lot = self._lot(number, own, support)
                self._lot_of[own], self._row_of[own] = len(self._lots), np.arange(own.size)
                self._lots.append(lot)
                for row, geounit in self._plan.bounded(number, own, self._boundary.below):
                    for i, (place, piece) in enumerate(zip(self._numbers, self._pieces, strict=True)):
                        told = self._boundary.below[geounit][place][piece.place]
                        lot.message[i, self._row_of[row]] = told[0]
                self._found["root"].append((own, lot.message.root, support, support))

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
            adding = SumOfNumbers if self._size == 1 else SumOfChildren
            lot.sums = adding(children, plan.pair_count[lot.pairs].astype(float), owners)
            sources.append(Telling.told(flattened(lot.sums.total)))
        combined = combine(sources)
        lot.posterior = np.zeros_like(nothing.root)
        lot.message[:] = raised(combined.message, shape)
        if self._size == 1:
            said = [(source.exact @ source.design) ** 2 for source in sources if source.exact is not None]
            total = sum(said, start=np.zeros((classes.size * len(self._pieces), 1, 1))).reshape(*shape, 1)
            exactly = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
            self._found["own"].append((classes, lot.message.root**2, support, support))
            self._found["own_exact"].append((classes, exactly, support, support))
        gains = [gain.reshape(*shape, -1) for gain in combined.gains]
        for (t, rows), gain in zip(used, gains, strict=False):
            self._found[t].append((classes - level.first_class, gain, support, rows))
        if lot.sums is not None:
            self._found["children"].append((numbers, gains[-1], support, support))
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
            top.posterior = np.stack([self._boundary.above[place][piece.place][None] for place, piece in jobs])
        found["posterior"].append((np.zeros(1, dtype=np.intp), top.posterior, top.support, top.support))
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
                found["gain"].append((pairs, gain[:, chosen][:, :, places], child.support, lot.support))
                found["posterior"].append((pairs + 1, learnt, child.support, child.support))


class SumOfNumbers:
    """`SumOfChildren` of one number each, all at once: sums of positive terms alone, in which nothing cancels."""

    def __init__(self, children: Message, counts: Float, owners: Index) -> None:
        self._counts, self._owners = counts, owners
        self._starts = np.flatnonzero(np.diff(owners, prepend=-1))
        self._V, self._unknown = children.root**2, children.unknown
        exact = np.minimum.reduceat(children.exact, self._starts, axis=1)
        unknown = np.minimum(self._over_owners(self._unknown), 1.0)
        root = np.sqrt(np.where(unknown > 0, 0.0, self._over_owners(self._V)))
        self.total = Message(root, np.divide(1.0, root, out=np.zeros_like(root), where=root > 0), unknown, exact)

    def _over_owners(self, by_pair: Float) -> Float:
        return np.add.reduceat(by_pair * self._counts[:, None, None], self._starts, axis=1)

    def share(self, above: Float) -> tuple[Float, Float]:
        """Of every pair the gain, and a square root of the posterior variance; from those of the geounits above."""
        V, unknown = self._V, self._unknown
        total, unknowns = (self._over_owners(own)[:, self._owners] for own in (V, unknown))
        gain = np.divide(V, total, out=np.zeros_like(V), where=total > 0)
        large = (total / 2 < V) & (self._counts == 1)[:, None, None]  # at most one child: others are not what is left
        others = np.where(large, self._over_owners(np.where(large, 0.0, V))[:, self._owners], total - V)
        conditional = gain * others
        if unknown.any():
            gain = np.where(unknowns > 0, unknown / np.maximum(unknowns, 1), gain)
            conditional = np.where(unknowns > 0, np.where(unknown > 0, total, V), conditional)
        return gain, np.sqrt(conditional + (gain * above[:, self._owners]) ** 2)
