"""Coefficients of a large piece in the numbers of each geounit that are not empty there.

Geounits lower down hold few of the kinds of cells that their parents hold: a block without facilities has only
households. Each message is as small as its geounit's own numbers are few, and grows as children are added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.coefficient_arrays import Boundary, Coefficients
from blue_solvers.components.tree.merges import merges_of
from blue_solvers.components.tree.messages import Message, Parting, Telling, add, combine, part
from blue_solvers.components.tree.piecewise import Ragged
from blue_solvers.components.tree.splitting import Piece
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index


@dataclass
class _Node:
    """What is known of a sum: which numbers it has, a message about them (1, s, s), and what it was added up from."""

    support: Index
    message: Message
    halves: tuple[_Node, _Node, Parting] | None = None


@dataclass
class _Children:
    """The children of a geounit: their pairs, how many each stands for, and their sum."""

    pairs: Index
    counts: Float
    terms: list[_Node]
    total: _Node


@dataclass
class _ByClass:
    """By class, geounit with children and pair, in the order of the plan."""

    support: dict[int, Index] = field(default_factory=dict)
    message: dict[int, Message] = field(default_factory=dict)
    measured: dict[int, dict[int, tuple[Float, Index, Index]]] = field(default_factory=dict)
    children: dict[int, Float] = field(default_factory=dict)
    sums: dict[int, _Children] = field(default_factory=dict)


class Supported:
    """One large piece.

    Parameters
    ----------
    plan : TreePlan
    number : int
        Of a component that it is a piece of.
    piece : Piece
    boundary : Boundary
    """

    def __init__(self, plan: TreePlan, number: int, piece: Piece, boundary: Boundary) -> None:
        self._plan, self._number, self._piece, self._boundary = plan, number, piece, boundary
        self._found = _ByClass()

    def solve(self) -> Coefficients:
        plan, found, size = self._plan, self._found, self._piece.size
        for number in reversed(range(len(plan.levels))):
            self._go_up(number)
        gains, posteriors = self._go_down()
        supports = [found.support[own] for own in range(plan.class_rank.size)]
        roots = [found.message[own].root[0] for own in range(plan.class_rank.size)]
        of_parents = [supports[self._class_of(own)] for own in range(plan.parents.size)]
        of_pairs = [supports[own] for own in plan.pair_class.tolist()]
        above = [of_parents[own] for own in plan.pair_parent.tolist()]
        top = int(plan.levels[0].class_of[0])
        of_posteriors = [supports[top], *of_pairs]
        square = (size, size)
        return Coefficients(
            Ragged(square, [found.children[own] for own in range(len(of_parents))], of_parents, of_parents),
            Ragged(square, gains, of_pairs, above),
            Ragged(square, roots, supports, supports),
            Ragged(square, posteriors, of_posteriors, of_posteriors),
            found.message[top],
            measured={t: self._measured(t) for t in found.measured},
        )

    def _measured(self, t: int) -> Ragged:
        level = next(own for own in self._plan.levels if any(t == block for block, _ in own.tables))
        own = self._found.measured[t]
        nothing = np.zeros((0, 0)), np.zeros(0, np.intp), np.zeros(0, np.intp)
        parts = [own.get(level.first_class + i, nothing) for i in range(level.class_count)]
        shape = self._piece.size, len(self._piece.rows[self._plan.tables[t].name])
        return Ragged(shape, *(list(one) for one in zip(*parts, strict=True)))

    def _class_of(self, parent: int) -> int:
        return int(self._plan.class_of[self._plan.parents[parent]])

    def _go_up(self, number: int) -> None:
        plan, level, found = self._plan, self._plan.levels[number], self._found
        for t, table in level.tables:
            if table.name in self._piece.rows:
                found.measured[t] = {}
        own_classes = level.first_class + np.arange(level.class_count)
        empty = plan.empty_kinds(number, plan.class_rank[own_classes])[:, self._piece.kinds]
        for own, flags in zip(own_classes.tolist(), empty, strict=True):
            found.support[own] = np.flatnonzero(~flags)
        parents = dict(zip(level.inner_classes.tolist(), plan.inner_numbers(number).tolist(), strict=True))
        for own in own_classes.tolist():
            total = self._sum(parents[own], found.support[own]) if own in parents else None
            self._combine(number, own, total, parents.get(own, -1))
        for own, geounit in plan.bounded(number, level.leaf_classes, self._boundary.below):
            found.message[own] = self._piece.of_message(self._boundary.below[geounit][self._number])

    def _combine(self, number: int, own: int, total: Message | None, parent: int) -> None:
        """Of one class what it was measured, and what its children tell together."""
        level, found = self._plan.levels[number], self._found
        support, rank = found.support[own], self._plan.class_rank[own]
        if not support.size:
            found.message[own] = Message.zeros((1, 0, 0))
            if total is not None:
                found.children[parent] = np.zeros((0, 0))
            return
        sources, used = [], []
        for (t, table), weights, exact in zip(level.tables, level.weights, level.exact, strict=True):
            W = self._piece.rows.get(table.name)
            if W is None or not (weights[rank] or exact[rank]):
                continue
            rows = np.flatnonzero(W[:, support].any(axis=1))
            if rows.size:
                flags = np.array([float(exact[rank])])
                sources.append(Telling.measured(W[np.ix_(rows, support)], weights[rank : rank + 1], flags))
                used.append((t, rows))
        if total is not None:
            sources.append(Telling.told(total))
        if not sources:
            identity, nothing = np.eye(support.size)[None], np.zeros((1, support.size, support.size))
            sources.append(Telling(identity, nothing, nothing))
        combined = combine(sources)
        found.message[own] = combined.message
        for (t, rows), gain in zip(used, combined.gains, strict=False):
            found.measured[t][own] = gain[0], support, rows
        if total is not None:
            found.children[parent] = combined.gains[-1][0]

    def _sum(self, parent: int, support: Index) -> Message:
        """What the children of a geounit tell together, about the numbers that it has."""
        plan, found = self._plan, self._found
        pairs = np.flatnonzero(plan.pair_parent == parent)
        counts = plan.pair_count[pairs].astype(float)
        terms = []
        for own, count in zip(plan.pair_class[pairs].tolist(), counts.tolist(), strict=True):
            terms.append(_Node(found.support[own], found.message[own].repeated(np.array([count]))))
        nodes = dict(enumerate(terms))
        merges = merges_of(np.zeros(len(terms), dtype=np.intp))
        for left, right, total in merges.rounds:
            for one, other, place in zip(left.tolist(), right.tolist(), total.tolist(), strict=True):
                nodes[place] = _added(nodes[one], nodes[other])
        top = nodes[int(merges.totals[0])]
        found.sums[parent] = _Children(pairs, counts, terms, top)
        return _about(top, support)

    def _go_down(self) -> tuple[list[Float], list[Float]]:
        """Of every pair the gain; of the root, then of every pair a square root of the posterior."""
        plan, found = self._plan, self._found
        gains: list[Float] = [np.zeros((0, 0))] * plan.pair_parent.size
        top = int(plan.levels[0].class_of[0])
        root = found.message[top].root[0]
        if self._boundary.above is not None:
            root = self._piece.of_root(self._boundary.above[self._number])
        posteriors: list[Float] = [root] + [np.zeros((0, 0))] * plan.pair_parent.size
        for parent in np.argsort(plan.spine.level_of[plan.parents], kind="stable").tolist():
            above = posteriors[int(plan.posterior_of[plan.parents[parent]])]
            support = found.support[self._class_of(parent)]
            own = found.sums.pop(parent)
            shared = _shared(own.total, np.eye(support.size), above, support)
            for pair, count, term in zip(own.pairs.tolist(), own.counts.tolist(), own.terms, strict=True):
                gain, learnt = shared[id(term)]
                message = found.message[int(plan.pair_class[pair])]
                if count > 1:
                    gain = (np.eye(len(gain)) - message.exact[0]) @ gain / count
                    parts = (message.root * np.sqrt(1 - 1 / count), learnt[None] / count)
                    learnt = compress(*parts)[0] if len(gain) else learnt
                gains[pair], posteriors[pair + 1] = gain, learnt
        return gains, posteriors


def _about(node: _Node, support: Index) -> Message:
    """A message about more numbers, which are exactly 0 in it."""
    own = node.message
    if node.support.size == support.size:
        return own
    places = np.searchsorted(support, node.support)
    wide = Message.zeros((1, support.size, support.size))
    for given, array in zip(own.arrays, wide.arrays, strict=True):
        array[0][np.ix_(places, places)] = given[0]
    others = np.setdiff1d(np.arange(support.size), places)
    wide.exact[0, others, others] = 1.0
    return wide


def _added(one: _Node, other: _Node) -> _Node:
    support = np.union1d(one.support, other.support)
    if not support.size:
        return _Node(support, one.message, (one, other, Parting(*(np.zeros((1, 0, 0)),) * 3)))
    left, right = _about(one, support), _about(other, support)
    return _Node(support, add(left, right), (one, other, part(left, right)))


def _shared(total: _Node, gain: Float, root: Float, support: Index) -> dict[int, tuple[Float, Float]]:
    """Of every term of a sum its gain, and a square root of its posterior covariance, about its own numbers.

    From those of the geounit above, about the numbers `support`.
    """
    found: dict[int, tuple[Float, Float]] = {}
    rows = np.searchsorted(support, total.support)
    waiting: list[tuple[_Node, Float, Float]] = [(total, gain[rows], _square(root[rows]))]
    while waiting:
        node, own_gain, own_root = waiting.pop()
        if node.halves is None:
            found[id(node)] = own_gain, own_root
            continue
        *halves, parting = node.halves
        for half, share in zip(halves, (parting.left[0], parting.right[0]), strict=True):
            kept = np.searchsorted(node.support, half.support)
            share = share[kept]
            learnt = compress(parting.root[:, kept], (share @ own_root)[None])[0] if kept.size else np.zeros((0, 0))
            waiting.append((half, share @ own_gain, learnt))
    return found


def _square(root: Float) -> Float:
    """A square root with as many columns as rows."""
    return root if root.shape[0] == root.shape[1] else compress(root[None])[0] if len(root) else np.zeros((0, 0))
