"""Gains and covariances of components: messages going up the tree, posteriors going down, piece by piece.

Geounits lower down hold few of the kinds of cells that their parents hold: a block without facilities has only
households. Of a piece geounits with the same kinds are a lot, and its matrices are as small as their numbers are
few; in what children tell their parent, numbers that they lack are known to be 0. Pieces whose numbers are of the same
kinds are worked on together. Children are added up two at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from blue_solvers.components.component_products import Composed, Ragged
from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.messages import LinearMeasurement, Message, SumOfChildren, combine
from blue_solvers.components.tree.splitting import Division, Piece
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index

STACKED = 1 << 18  # numbers in an array that several pieces share: beyond, each by itself costs no more
Found = tuple[Index, Float, Index, Index]  # entries, matrices (pieces, entries, r, q), and which rows and columns


@dataclass(frozen=True)
class PieceCoefficients:
    """Coefficients of b numbers that are a copy of a piece.

    Attributes
    ----------
    matrices : dict of Ragged, (entries, b, b)
        By name, with entries as `TreePlan` counts them: ``"children"``, what multiplies the sum of children's
        estimates; ``"gain"``, what a child takes of what its parent learnt; ``"root"``, square roots of the
        covariance of the estimate from a geounit and from below; ``"posterior"``, those of the final one. By number
        of an observed table that says something, what multiplies its rows, (entries, b, k).
    message : Message
        What the tree tells of its root, (1, b, b), or of the numbers that are not empty there.
    """

    matrices: Mapping[str | int, Ragged]
    message: Message


@dataclass(frozen=True)
class Coefficients:
    """The same of a component, put together from its pieces."""

    pieces: Sequence[tuple[Piece, PieceCoefficients]]
    matrices: Mapping[str | int, Composed]


@dataclass(frozen=True)
class Boundary:
    """What is known from outside a part of a tree.

    Attributes
    ----------
    below : mapping of geounit to sequence of sequence of Message (1, b, b), for every component and piece
        Stands in for what some geounits without children were measured.
    above : sequence of sequence of ndarray (b, b)
        Square roots of the root's final covariance, for every component and piece; empty where nothing is.
    """

    below: Mapping[int, Sequence[Sequence[Message]]] = field(default_factory=dict)
    above: Sequence[Sequence[Float]] = ()


NO_BOUNDARY = Boundary()


@dataclass
class _Lot:
    """Classes of a level with the same numbers, and what is known of these: (pieces, classes, s, s).

    Attributes
    ----------
    support : ndarray of int
    message : Message
    posterior : ndarray
        Square roots of the covariance of the final estimate, of geounits with children.
    """

    support: Index
    message: Message
    posterior: Float


class PieceSolver:
    """Pieces of the same kinds of numbers.

    Parameters
    ----------
    plan : TreePlan
    jobs : sequence of (int, Piece)
        Each with the number of a component that it is a piece of.
    boundary : Boundary
    """

    def __init__(self, plan: TreePlan, jobs: Sequence[tuple[int, Piece]], boundary: Boundary) -> None:
        self._plan, self._jobs, self._boundary = plan, jobs, boundary
        self._kinds = jobs[0][1].kinds
        self._lots: list[_Lot] = []
        # Lots of geounits with children, their pairs with these, and what the children tell:
        self._parents: list[tuple[_Lot, Index, SumOfChildren]] = []
        self._lot_of, self._row_of = np.zeros((2, plan.class_rank.size), dtype=np.intp)
        self._found: defaultdict[str | int, list[Found]] = defaultdict(list)

    def solve(self) -> list[PieceCoefficients]:
        """Of every piece."""
        plan, size = self._plan, self._kinds.size
        for number, level in reversed(list(enumerate(plan.levels))):
            every = level.first_class + np.arange(level.class_count)
            for classes in np.split(every, [every.size - level.inner.size]):
                for own, support in self._lots_among(number, classes):
                    self._go_up(number, own, support)
        self._go_down()
        found: dict[str | int, list[Ragged]] = {}
        for name, count in plan.entries.items():
            widths = [size for _ in self._jobs]
            if not isinstance(name, str):
                widths = [len(piece.rows.get(plan.tables[name].name, ())) for _, piece in self._jobs]
            found[name] = self._matrices(name, count, widths)
        message = self._lots[-1].message
        return [
            PieceCoefficients({name: own[i] for name, own in found.items() if own[i].size[1]}, message[i])
            for i in range(len(self._jobs))
        ]

    def _matrices(self, name: str | int, count: int, widths: Sequence[int]) -> list[Ragged]:
        """So many matrices of every piece."""
        lot_of, place = np.full(count, -1), np.zeros(count, dtype=np.intp)
        for number, (entries, _, _, _) in enumerate(self._found[name]):
            lot_of[entries], place[entries] = number, np.arange(len(entries))
        made = []
        for i, width in enumerate(widths):
            kept = [(own[i], rows, columns[columns < width]) for _, own, rows, columns in self._found[name]]
            lots = [(own[..., : columns.size], rows, columns) for own, rows, columns in kept]
            made.append(Ragged(lots, (self._kinds.size, width), lot_of, place))
        return made

    def _lots_among(self, number: int, classes: Index) -> Iterator[tuple[Index, Index]]:
        """Classes, of (classes,) of a level, that have the same numbers, and these."""
        empty = self._plan.empty_kinds(number, self._plan.class_rank[classes])[:, self._kinds]
        patterns, which = empty[:1], np.zeros_like(classes)
        if self._plan.has_zeros:
            patterns, which = np.unique(empty, axis=0, return_inverse=True)
        for i, flags in enumerate(patterns):
            yield classes[which.ravel() == i], np.flatnonzero(~flags)

    def _go_up(self, number: int, classes: Index, support: Index) -> None:
        """What some classes, (classes,), were measured, and what their children tell, of a support's numbers, (m,)."""
        lot = self._lot(number, classes, support)
        self._lot_of[classes], self._row_of[classes] = len(self._lots), np.arange(classes.size)
        self._lots.append(lot)
        members, below = self._plan.levels[number].members[self._plan.class_rank[classes]], self._boundary.below
        for row, geounit in enumerate(members.tolist() if below else []):
            for i, (component, piece) in enumerate(self._jobs if geounit in below else []):
                lot.message[i, row] = below[geounit][component][piece.place][0]
        self._found["root"].append((classes, lot.message.root, support, support))

    def _lot(self, number: int, classes: Index, support: Index) -> _Lot:
        """Room for some classes, (classes,), with the numbers of a support, (m,), filled with what children tell."""
        plan, level = self._plan, self._plan.levels[number]
        shape = len(self._jobs), classes.size, support.size
        nothing = Message.zeros((*shape, support.size))
        lot = _Lot(support, nothing, nothing.root.copy())
        if not support.size:
            return lot
        sources, used = self._sources(number, classes, support)
        numbers = plan.parent_number[level.members[plan.class_rank[classes]]]
        has_children = numbers[0] >= 0
        if has_children:
            pairs, owners = plan.pairs_of(numbers)
            children = self._about(plan.pair_class[pairs], support)
            sums = SumOfChildren(children, plan.pair_count[pairs].astype(float), owners)
            self._parents.append((lot, pairs, sums))
            sources.append(LinearMeasurement.of_message(sums.total))
        lot.message[:], gains = combine(sources)
        for (t, rows), gain in zip(used, gains, strict=False):
            self._found[t].append((classes - level.first_class, gain, support, rows))
        if has_children:
            self._found["children"].append((numbers, gains[-1], support, support))
        return lot

    def _about(self, classes: Index, support: Index) -> Message:
        """What is known of some classes, (classes,), as messages about more numbers, (m,), exactly 0 in them."""
        found = Message.zeros((len(self._jobs), classes.size, support.size, support.size))
        pieces = np.arange(len(self._jobs))
        for chosen, lot, rows in self._by_lot(classes):
            places = np.searchsorted(support, lot.support)
            if places.size == support.size:
                found[:, chosen] = lot.message[:, rows]
                continue
            found[np.ix_(pieces, chosen, places, places)] = lot.message[:, rows]
            others = np.setdiff1d(np.arange(support.size), places)
            found.exact[:, chosen[:, None], others, others] = 1.0
        return found

    def _by_lot(self, classes: Index) -> Iterator[tuple[Index, _Lot, Index]]:
        """Places among some classes, (classes,), the lot that these are of, and their rows there."""
        lots = self._lot_of[classes]
        for number in np.unique(lots).tolist():
            chosen = np.flatnonzero(lots == number)
            yield chosen, self._lots[number], self._row_of[classes[chosen]]

    def _sources(
        self, number: int, classes: Index, support: Index
    ) -> tuple[list[LinearMeasurement], list[tuple[int, Index]]]:
        """What was measured in classes, (classes,), of numbers, (m,); of tables, by number, the rows that say it."""
        level, ranks, count = self._plan.levels[number], self._plan.class_rank[classes], len(self._jobs)
        sources, used = [], []
        for (t, table), weights, exact in zip(level.tables, level.weights, level.exact, strict=True):
            given = {i: piece.rows[table.name] for i, (_, piece) in enumerate(self._jobs) if table.name in piece.rows}
            W = np.zeros((count, max(map(len, given.values()), default=0), support.size))
            for i, rows in given.items():
                W[i, : len(rows)] = rows[:, support]
            said = np.flatnonzero(W.any(axis=(0, 2)))
            if said.size and (weights[ranks].any() or exact[ranks].any()):
                sources.append(LinearMeasurement.measured(W[:, None, said], weights[ranks], exact[ranks].astype(float)))
                used.append((t, said))
        if not sources:
            nothing = np.zeros((count, classes.size, support.size, support.size))
            sources.append(LinearMeasurement(np.eye(support.size), nothing, nothing))  # whose gain is not kept
        return sources, used

    def _go_down(self) -> None:
        """Square roots of posteriors: of the root first, then of every pair; gains on the way."""
        plan, found, top = self._plan, self._found, self._lots[-1]
        top.posterior = top.message.root
        if self._boundary.above:
            above = [self._boundary.above[component][piece.place] for component, piece in self._jobs]
            top.posterior = np.stack(above)[:, None]
        found["posterior"].append((np.zeros(1, dtype=np.intp), top.posterior, top.support, top.support))
        for lot, of_lot, sums in reversed(self._parents):
            gain, root = sums.share(lot.posterior)
            for chosen, child, rows in self._by_lot(plan.pair_class[of_lot]):
                if not child.support.size:
                    continue
                pairs, places = of_lot[chosen], np.searchsorted(lot.support, child.support)
                learnt = root[:, chosen][:, :, places]
                if places.size < lot.support.size:
                    learnt = compress(learnt)
                child.posterior[:, rows] = learnt
                found["gain"].append((pairs, gain[:, chosen][:, :, places], child.support, lot.support))
                found["posterior"].append((pairs + 1, learnt, child.support, child.support))


def solve_components(plan: TreePlan, numbers: Sequence[int], boundary: Boundary = NO_BOUNDARY) -> list[Coefficients]:
    """Coefficients of some components of a plan; those of equal design keys share them."""
    keys = [plan.design_keys[i] for i in numbers]
    one_of = dict(zip(keys, numbers, strict=True))
    divisions = {key: plan.division(key) for key in one_of}
    lots: dict[bytes, list[tuple[int, Piece]]] = {}
    for key, i in one_of.items():
        for piece in divisions[key].pieces:
            lots.setdefault(piece.kinds.tobytes(), []).append((i, piece))
    solved: dict[tuple[int, Piece], PieceCoefficients] = {}
    for lot in lots.values():
        numbers_of_each = max(plan.class_rank.size, plan.pair_parent.size) * lot[0][1].size ** 2
        count = max(1, STACKED // numbers_of_each)
        for some in [lot[first : first + count] for first in range(0, len(lot), count)]:
            solved |= zip(some, PieceSolver(plan, some, boundary).solve(), strict=True)
    found, entries = {}, plan.entries
    for key, i in one_of.items():
        pieces = [(piece, solved.pop((i, piece))) for piece in divisions[key].pieces]
        found[key] = _put_together(plan, entries, divisions[key], pieces)
    return [found[key] for key in keys]


def _put_together(
    plan: TreePlan, entries: Mapping[str | int, int], division: Division, pieces: list[tuple[Piece, PieceCoefficients]]
) -> Coefficients:
    """Coefficients of a component from those of its pieces."""
    own, matrices = division.coordinates, {}
    for name, count in entries.items():
        found = {piece.place: solved.matrices[name] for piece, solved in pieces if name in solved.matrices}
        if found or isinstance(name, str):
            columns = own if isinstance(name, str) else division.frames[plan.tables[name].name]
            matrices[name] = Composed(own, columns, found, count)
    return Coefficients(pieces, matrices)
