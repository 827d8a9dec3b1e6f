"""Gains and covariances of a component: messages going up the tree, posteriors going down.

Components of one group sum are numbers, and all sums of variances are of positive terms: nothing cancels. Others take
the square roots of `messages`, and children are added up two at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.tree.coefficient_arrays import Boundary, Coefficients
from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.piecewise import Composed, PieceMessages, PieceRoots
from blue_solvers.components.tree.solved_pieces import PieceSolver
from blue_solvers.components.tree.splitting import Division, Piece, WholePiece
from blue_solvers.components.tree.tree_plan import DesignKey, TreePlan
from constraint_builders.arrays import Float, Index, as_slice

WHOLE = WholePiece({}, np.zeros(1, dtype=np.intp))  # a component of one group sum
SQUARE = "children", "gain", "root", "posterior"  # matrices of a piece like those of a component


def solve_components(
    plan: TreePlan, boundary: Boundary | None = None, numbers: Sequence[int] | None = None
) -> list[Coefficients]:
    """Coefficients of some components of a plan, by default of all; those that have all in common share them."""
    outside, chosen = boundary or Boundary(), range(len(plan.components)) if numbers is None else numbers
    found: dict[int, Coefficients] = {}
    for some in plan.stacks([i for i in chosen if plan.components[i].size == 1], 1):
        found |= zip(some, _Numbers(plan, some, outside).solve(), strict=True)
    alike = _alike(plan, outside, chosen)
    divisions = {members[0]: plan.division(plan.design_key(plan.components[members[0]])) for members in alike}
    jobs = [(number, piece) for number, division in divisions.items() for piece in division.pieces]
    solved: dict[tuple[int, Piece], Coefficients] = {}
    lots: list[Sequence[tuple[int, Piece]]] = [[job] for job in jobs if not job[1].is_batched]
    for size in sorted({piece.size for _, piece in jobs if piece.is_batched}):
        lots += plan.stacks([job for job in jobs if job[1].is_batched and job[1].size == size], size)
    for lot in lots:
        solved |= zip(lot, PieceSolver(plan, lot, outside).solve(), strict=True)
    for members, division in zip(alike, divisions.values(), strict=True):
        together = _put_together(plan, division, [solved.pop((members[0], piece)) for piece in division.pieces])
        found |= dict.fromkeys(members, together)
    return [found[i] for i in chosen]


def pieces_of(plan: TreePlan, number: int, own: Coefficients) -> Iterator[tuple[Piece, Coefficients]]:
    """The pieces of a component, by its number, and of its coefficients those of each."""
    division = plan.division(plan.design_key(plan.components[number]))
    if division.is_whole:
        yield division.pieces[0], own
        return
    for piece in division.pieces:
        yield piece, own.of_piece(piece.place)


def _alike(plan: TreePlan, boundary: Boundary, numbers: Sequence[int]) -> list[list[int]]:
    """Those of several group sums by what tables, and messages from outside, tell of them."""
    by_design: dict[DesignKey, list[list[int]]] = {}
    for i in numbers:
        if plan.components[i].size > 1:
            groups = by_design.setdefault(plan.design_key(plan.components[i]), [])
            for members in groups:
                if _told_alike(boundary, members[0], i):
                    members.append(i)
                    break
            else:
                groups.append([i])
    return [members for groups in by_design.values() for members in groups]


def _told_alike(boundary: Boundary, one: int, other: int) -> bool:
    """Whether the same comes from outside about two components."""
    messages = boundary.below.values()
    pairs = [(a, b) for own in messages for a, b in zip(own[one].arrays, own[other].arrays, strict=True)]
    if boundary.above is not None:
        own = (boundary.above[number] for number in (one, other))
        roots = [root.pieces if isinstance(root, PieceRoots) else [root] for root in own]
        pairs += zip(*roots, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def _put_together(plan: TreePlan, division: Division, pieces: list[Coefficients]) -> Coefficients:
    """Coefficients of a component from those of its pieces."""
    if division.is_whole:
        return pieces[0]
    own = division.coordinates
    pairs = plan.pair_parent.size
    counts = plan.parents.size, pairs, plan.class_rank.size, pairs + 1
    children, gain, root, posterior = (
        Composed(own, own, {i: getattr(piece, name) for i, piece in enumerate(pieces)}, count)
        for name, count in zip(SQUARE, counts, strict=True)
    )
    message = PieceMessages([piece.message for piece in pieces if isinstance(piece.message, Message)])
    measured = {}
    for t in sorted({t for piece in pieces for t in piece.measured}):
        found = {i: piece.measured[t] for i, piece in enumerate(pieces) if t in piece.measured}
        measured[t] = Composed(own, division.frames(plan.tables[t].name), found, len(next(iter(found.values()))))
    return Coefficients(children, gain, root, posterior, message, measured=measured)


class _Numbers:
    """Components of one group sum, several at once: arrays (components, entries)."""

    def __init__(self, plan: TreePlan, stack: Sequence[int], boundary: Boundary) -> None:
        self._plan, self._stack, self._boundary = plan, stack, boundary
        shape = len(stack), plan.class_rank.size
        self._V, self._own_exact = np.zeros(shape), np.zeros(shape)
        self._own = np.zeros(shape) if boundary.below else self._V  # one and the same but for what comes from below
        self._unknown, self._exact = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        by_parent = len(stack), plan.parents.size
        self._children, self._sum = np.zeros(by_parent), np.zeros(by_parent)
        self._unknown_children = np.zeros(by_parent)

    def solve(self) -> list[Coefficients]:
        for number in reversed(range(len(self._plan.levels))):
            self._go_up(number)
        gain, conditional = self._part()
        posterior = self._posterior(gain, conditional)
        np.sqrt(posterior, out=posterior)
        root = np.sqrt(self._V)
        top = self._plan.levels[0].class_of[0]
        found = []
        for i in range(len(self._stack)):
            parts = (root, root, self._unknown, self._exact)
            V, T, unknown, exact = (np.array([[[float(part[i, top])]]]) for part in parts)
            message = Message(V, np.divide(1.0, T, out=np.zeros_like(T), where=T > 0), unknown, exact)
            arrays = (self._children, gain, root, posterior)
            children, own_gain, own_root, own_posterior = (array[i][:, None, None] for array in arrays)
            own, own_exact = (array[i][:, None, None] for array in (self._own, self._own_exact))
            found.append(Coefficients(children, own_gain, own_root, own_posterior, message, own, own_exact))
        return found

    def _go_up(self, number: int) -> None:
        plan, level = self._plan, self._plan.levels[number]
        classes = slice(level.first_class, level.first_class + level.class_count)
        precision, J_exact = self._information(number, classes)
        own_exact = J_exact > 0
        exact = own_exact.copy()
        numbers = plan.inner_numbers(number)
        inner = level.inner_classes - level.first_class
        if numbers.size:
            told, told_exactly = self._told(numbers)
            precision[:, inner] += told
            exact[:, inner] |= told_exactly
        if exact.any():
            precision[exact] = 0.0
        V = self._V[:, classes]
        np.divide(1.0, precision, out=V, where=precision > 0)
        self._exact[:, classes], self._unknown[:, classes] = exact, ~exact & (precision == 0)
        if own_exact.any():
            both = own_exact.astype(float)
            if numbers.size:
                both[:, inner] += told_exactly
            np.divide(1.0, both * J_exact, out=self._own_exact[:, classes], where=own_exact)
        if numbers.size:
            share = 1.0 / (1.0 + own_exact[:, inner])
            self._children[:, numbers] = np.where(told_exactly, share, V[:, inner] * told)
        if self._own is not self._V:
            self._own[:, classes] = V
            self._take_from_below(number, np.arange(classes.start, classes.stop))

    def _told(self, numbers: Index) -> tuple[Float, NDArray[np.bool_]]:
        """For some geounits the precision of the sum of their children, and whether all of them are exact."""
        total, unknown, exact = self._plan.sums_of_children(numbers, self._V, self._unknown, self._exact)
        geounits = self._plan.parents[numbers]
        self._sum[:, numbers], self._unknown_children[:, numbers] = total, unknown
        known = (unknown == 0) & (total > 0)
        return np.divide(1.0, total, out=np.zeros_like(total), where=known), exact == self._plan.spine.child_counts[
            geounits
        ]

    def _information(self, number: int, classes: slice) -> tuple[Float, Float]:
        """Precision of all tables of every class, and the same of what is exact, each table counting as 1."""
        level = self._plan.levels[number]
        ranks = as_slice(self._plan.class_rank[classes])
        J, J_exact = np.zeros((len(self._stack), level.class_count)), np.zeros((len(self._stack), level.class_count))
        for (_, table), weights, exact in zip(level.tables, level.weights, level.exact, strict=True):
            seen = (self._plan.components[i] for i in self._stack)
            own = [self._plan.scale(table, c) ** 2 if self._plan.sees(table, c) else 0.0 for c in seen]
            squares = np.array(own)[:, None]
            J += squares * weights[ranks]
            if level.has_exact:
                J_exact += squares * exact[ranks]
        if level.zeros is not None:
            own_ranks = self._plan.class_rank[classes]
            for i, place in enumerate(self._stack):
                J_exact[i] += self._plan.empty_groups(number, own_ranks, self._plan.components[place])[:, 0]
        return J, J_exact

    def _take_from_below(self, number: int, classes: Index) -> None:
        for column, geounit in self._plan.bounded(number, classes, self._boundary.below):
            for i, place in enumerate(self._stack):
                message = WHOLE.of_message(self._boundary.below[geounit][place])
                self._V[i, column] = float(message.root[0, 0, 0]) ** 2
                self._unknown[i, column] = message.unknown[0, 0, 0] > 0.5
                self._exact[i, column] = message.exact[0, 0, 0] > 0.5

    def _part(self) -> tuple[Float, Float]:
        """By pair: what a child takes of what its parent learns, and its variance once its parent is known.

        The variances stand behind a place for the root's.
        """
        plan = self._plan
        V, total = self._V[:, as_slice(plan.pair_class)], self._sum[:, plan.pair_parent]
        gain = np.divide(V, total, out=np.zeros_like(V), where=total > 0)
        large = (total / 2 < V) & (plan.pair_count == 1)  # at most one child, the others' sum is not what is left
        variances = np.empty((len(self._stack), plan.pair_parent.size + 1))
        others = np.subtract(total, V, out=variances[:, 1:])
        if large.any():
            small = np.where(large, 0.0, V) * plan.pair_count
            np.copyto(others, plan.sums_of_pairs(small.astype(np.float64))[:, plan.pair_parent], where=large)
        conditional = np.multiply(gain, others, out=others)
        if self._unknown.any():
            unknown, unknowns = self._unknown[:, plan.pair_class], self._unknown_children[:, plan.pair_parent]
            gain[unknowns > 0] = 0.0
            gain = np.where(unknown, 1 / np.maximum(unknowns, 1), gain)
            np.copyto(conditional, np.where(unknown, total, V), where=unknowns > 0)
        return gain, variances

    def _posterior(self, gain: Float, posterior: Float) -> Float:
        """From variances once the parents are known, in place."""
        plan = self._plan
        posterior[:, 0] = self._V[:, plan.levels[0].class_of[0]]
        if self._boundary.above is not None:
            posterior[:, 0] = [float(WHOLE.of_root(self._boundary.above[place])[0, 0]) ** 2 for place in self._stack]
        for pairs in plan.pairs_by_level:
            if pairs.size:
                above = posterior[:, plan.posterior_above(pairs)]
                above *= gain[:, as_slice(pairs)] ** 2
                posterior[:, as_slice(pairs + 1)] += above
        return posterior
