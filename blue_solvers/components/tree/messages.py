"""What is known of group sums u of one component, and how statements about them combine and add up.

A message has three parts, kept apart as projectors: directions that are not estimable (unknown), directions known
exactly, and the rest with a finite covariance. The covariance is kept as square roots of itself and of its inverse,
which orthogonal transformations combine without losing what is known well beside what is known badly. All arrays are
batches, with any axes before those of matrices.

Everything that decides a rank is unweighted: sums of projectors and of 0/1 rows, whose nonzero eigenvalues are of order
one. Variances never take part.

Children are added up in pairs of neighbours, pairs of these, until one is left for every parent: sums of two share what
a parent learns without subtracting one covariance from another. Single numbers are added up all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

import numpy as np

from blue_solvers.components.orthogonal import compress, compress_and_invert, fit
from constraint_builders.arrays import Float, Index

RANK_TOLERANCE = 1e-9  # relative to the largest eigenvalue there can be


@dataclass(frozen=True)
class Message:
    """What is known of group sums, for a batch.

    Attributes
    ----------
    root : ndarray, (..., m, m)
        L with covariance L L' along the directions that are neither unknown nor exact.
    information_root : ndarray, (..., m, m)
        T with T'T the inverse of the covariance along these directions.
    unknown, exact : ndarray, (..., m, m)
        Orthogonal projectors.
    """

    root: Float
    information_root: Float
    unknown: Float
    exact: Float

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Self:
        """A batch of zero matrices, (..., m, m)."""
        return cls(*np.zeros((4, *shape)))

    def __getitem__(self, index: object) -> Self:
        return type(self)(*(own[index] for own in vars(self).values()))

    def __setitem__(self, index: object, values: Self) -> None:
        for name, own in vars(self).items():
            own[index] = getattr(values, name)

    @property
    def finite(self) -> Float:
        """Projector on the directions of finite covariance."""
        return complement(self.unknown, self.exact)


@dataclass(frozen=True)
class LinearMeasurement:
    """A statement about u: a value v = W u with independent noise where it is noisy, or exactly where it is exact.

    Attributes
    ----------
    design : ndarray, (..., q, m)
        W.
    noisy : ndarray, (..., k, q)
        Square root of the information about v, so that noisy @ v ~ noisy @ W u with unit noise; zero where nothing
        noisy is said. A multiple of the identity is (..., 1, 1).
    seen : ndarray, (..., m, m)
        W'W without weights, of what is noisy.
    exact : ndarray, (..., q, q)
        Projector on the combinations of v that hold exactly. A multiple of the identity is (..., 1, 1).
    """

    design: Float
    noisy: Float
    seen: Float
    exact: Float = field(default_factory=lambda: np.zeros((1, 1)))

    @classmethod
    def measured(cls, W: Float, precisions: Float, exact: Float) -> LinearMeasurement:
        """A table with rows W, (..., k, m), of precisions (...), 0 for none; exact where flagged."""
        return cls(
            W,
            np.sqrt(precisions)[..., None, None],
            (precisions > 0)[..., None, None] * (W.swapaxes(-1, -2) @ W),
            exact[..., None, None],
        )

    @classmethod
    def of_message(cls, message: Message) -> LinearMeasurement:
        """What a message says of u, v being its estimate."""
        return cls(np.eye(message.root.shape[-1]), message.information_root, message.finite, message.exact)


def combine(sources: Sequence[LinearMeasurement]) -> tuple[Message, list[Float]]:
    """The best estimate of u from independent sources, those that are exact first: the sum of gains times values.

    What it says of u, and the gain of every source, (..., m, q). Directions that are not estimable are taken as zero.
    """
    weighed = [_times(source.noisy, source.design) for source in sources]
    F = np.concatenate(weighed, axis=-2)
    rows, nothing = F.shape[-2], np.zeros((*F.shape[:-2], F.shape[-1], F.shape[-1]))
    exact, along_exact = _exact_part(sources, nothing)
    identity = np.eye(F.shape[-1])
    if not along_exact and any((source.seen == identity).all() for source in sources):
        determined, unseen = identity + nothing, nothing
    else:
        seen = sum((source.seen for source in sources), start=nothing)
        size = 1 + trace(seen)
        if along_exact:
            seen = complement(exact) @ seen @ complement(exact)
        determined = range_projector(seen, size)
        unseen = complement(determined)
    if unseen.any():
        F = np.concatenate([F @ determined, _as_large([F]) * unseen], axis=-2)
    inverse, information, covariance = fit(F)
    if unseen.any():
        inverse, information, covariance = determined @ inverse, information @ determined, determined @ covariance
    inverse = _made_consistent(inverse[..., :rows], F[..., :rows, :], determined)
    stops = np.cumsum([0, *(own.shape[-2] for own in weighed)]).tolist()
    parts = [inverse[..., first:stop] for first, stop in pairwise(stops)]
    gains = [_times(own, source.noisy) for own, source in zip(parts, sources, strict=True)]
    if along_exact:
        rest = identity - sum(gain @ source.design for gain, source in zip(gains, sources, strict=True))
        gains = [gain + rest @ own for gain, own in zip(gains, along_exact, strict=True)]
        gains = _made_exact(gains, along_exact, sources)
    unknown = complement(exact, determined) if along_exact else unseen
    return Message(covariance, information, unknown, exact), gains


def add(left: Message, right: Message) -> Message:
    """What is known of the sum of two independent u."""
    if not any(own.any() for own in (left.unknown, right.unknown, left.exact, right.exact)):
        root, inverse = compress_and_invert(left.root, right.root)
        return Message(root, inverse, left.unknown, left.exact)
    unknown = range_projector(left.unknown + right.unknown)
    exact = complement(range_projector(complement(left.exact) + complement(right.exact)))
    finite = complement(unknown, exact)
    padding = _as_large([left.root, right.root]) * complement(finite)
    root, inverse = compress_and_invert(finite @ left.root, finite @ right.root, padding)
    return Message(finite @ root, inverse @ finite, unknown, exact)


def part(left: Message, right: Message) -> tuple[Float, Float, Float]:
    """How two independent u share what their sum d is found to differ by: L and R with L d and R d, which add up to d.

    And a square root of the covariance that either has when the sum is known.
    """
    if left.root.shape[-1] == 1:
        is_open = left.unknown + right.unknown > 0
        one, other = (np.where(is_open, own.unknown, own.root**2) for own in (left, right))
        total = one + other + (one + other == 0)
        root = np.where(is_open, left.root + right.root, left.root * right.root / np.sqrt(total))
        return one / total, other / total, root
    # Of left: 0, and d less right.
    known, (by_left, by_right) = combine([LinearMeasurement.of_message(left), LinearMeasurement.of_message(right)])
    shared = known.unknown / 2  # what neither knows of by itself
    return complement(left.exact) @ (by_right + shared), complement(right.exact) @ (by_left + shared), known.root


def _as_large(matrices: Sequence[Float]) -> Float:
    """Numbers of the size of what is in some matrices (..., m), (..., 1, 1); 1 where that is nothing."""
    size = np.sqrt(sum((own**2).sum(axis=(-2, -1), keepdims=True) for own in matrices) / matrices[0].shape[-1])
    return np.where(size > 0, size, 1.0)


def _exact_part(sources: Sequence[LinearMeasurement], nothing: Float) -> tuple[Float, list[Float]]:
    """Projectors, (..., m, m), on what is known exactly, and the gains of all sources there; or zeros, and none."""
    if not any(source.exact.any() for source in sources):
        return nothing, []
    rows = [_times(source.exact, source.design) for source in sources]
    gram = sum((E.swapaxes(-1, -2) @ E for E in rows), start=nothing)
    exact = range_projector(gram, 1 + trace(gram))
    inverse = np.linalg.pinv(gram, RANK_TOLERANCE, hermitian=True)
    return exact, [_times(inverse @ E.swapaxes(-1, -2), source.exact) for source, E in zip(sources, rows, strict=True)]


def _made_consistent(inverse: Float, F: Float, determined: Float) -> Float:
    """The inverse, (..., m, k), made to keep u when all that is measured agrees with it, to rounding.

    F, (..., k, m), is 0 along what is not determined.
    """
    if determined.shape[-1] == 1:
        return inverse
    missing = determined - inverse @ F
    return inverse + missing @ inverse


def _made_exact(gains: list[Float], along_exact: list[Float], sources: Sequence[LinearMeasurement]) -> list[Float]:
    """Gains, (..., m, q), whose estimate says what exact sources say, to rounding: projectors are not as exact."""
    said = [_times(own, source.exact) @ source.design for own, source in zip(along_exact, sources, strict=True)]
    along = sum(said[1:], start=said[0])
    return [gain + (own - along @ gain) for gain, own in zip(gains, along_exact, strict=True)]


def _times(left: Float, right: Float) -> Float:
    """Products of batches of matrices, of which (..., 1, 1) is a multiple of any identity."""
    return left * right if (1, 1) in (left.shape[-2:], right.shape[-2:]) else left @ right


def range_projector(matrix: Float, scale: Float | float = 1.0) -> Float:
    """Orthogonal projectors on the ranges of positive semidefinite matrices; not to be written to.

    Eigenvalues count from `RANK_TOLERANCE` times `scale`, (...); 1 fits sums of projectors.
    """
    least = np.broadcast_to(RANK_TOLERANCE * scale, matrix.shape[:-2])
    if matrix.shape[-1] == 1:
        return (matrix > least[..., None, None]).astype(float)
    flat, bounds = matrix.reshape(-1, *matrix.shape[-2:]), least.ravel()
    values, vectors = np.linalg.eigh(flat)
    counts = values > bounds[:, None]
    if counts.all():
        return np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    kept = vectors * counts[:, None, :]
    return (kept @ kept.swapaxes(-1, -2)).reshape(matrix.shape)


def complement(*projectors: Float) -> Float:
    """Projectors on what is orthogonal to some subspaces, these to one another; exactly 0 where nothing is."""
    identity = np.eye(projectors[0].shape[-1])
    rest = identity - sum(projectors)
    return np.where(trace(rest)[..., None, None] < 0.5, 0.0, rest)


def trace(matrix: Float) -> Float:
    """Traces of a batch of matrices, (...) from (..., m, m)."""
    return np.einsum("...ii->...", matrix)


def merges_of(owners: Index) -> tuple[list[tuple[Index, Index, slice]], Index, int]:
    """How terms are added up by their owner, (terms,), given in order of owners; every owner has a term.

    Returns
    -------
    rounds : list of (left, right, total)
        Which are added up to which, (merges,) each; terms are numbered from 0, and sums on from these.
    totals : ndarray of int, (owners,)
        The last sum of every owner, or its only term.
    size : int
        Terms and sums together.
    """
    nodes, size = np.arange(owners.size), owners.size
    counts = np.unique(owners, return_counts=True)[1]
    rounds: list[tuple[Index, Index, slice]] = []
    while nodes.size > counts.size:
        even = (np.arange(nodes.size) - np.repeat(np.cumsum(counts) - counts, counts)) % 2 == 0
        left = np.flatnonzero(even[:-1] & ~even[1:])
        rounds.append((nodes[left], nodes[left + 1], slice(size, size + left.size)))
        nodes[left] = np.arange(size, size + left.size)
        nodes, counts, size = nodes[even], (counts + 1) // 2, size + left.size
    return rounds, nodes, size


class SumOfChildren:
    """Children of some geounits, added up.

    Parameters
    ----------
    children : Message, (components, pairs, m, m)
        In order of their parents.
    counts : ndarray, (pairs,)
        How many each stands for.
    owners : ndarray of int, (pairs,)
        Its parent.

    Attributes
    ----------
    total : Message, (components, geounits, m, m)
    """

    def __init__(self, children: Message, counts: Float, owners: Index) -> None:
        self._children, self._counts = children, counts
        self._rounds, self._totals, self._size = merges_of(owners)
        components, terms, m, _ = children.root.shape
        nodes = Message.zeros((components, self._size, m, m))
        scale = np.sqrt(counts)[:, None, None]
        own = Message(children.root * scale, children.information_root / scale, children.unknown, children.exact)
        nodes[:, :terms] = own
        self._partings = []
        for left, right, total in self._rounds:
            one, other = nodes[:, left], nodes[:, right]
            nodes[:, total] = add(one, other)
            self._partings.append(part(one, other))
        self.total = nodes[:, self._totals]

    def share(self, above: Float) -> tuple[Float, Float]:
        """Of every pair the gain, and a root of the posterior covariance, (..., m, m); from those of geounits above."""
        components, terms, m, _ = self._children.root.shape
        gain = np.zeros((components, self._size, m, m))
        root = np.zeros_like(gain)
        gain[:, self._totals], root[:, self._totals] = np.eye(m), above
        for (*places, total), (*shares, own) in reversed([*zip(self._rounds, self._partings, strict=True)]):
            for place, share in zip(places, shares, strict=True):
                gain[:, place] = _times(share, gain[:, total])
                root[:, place] = compress(own, _times(share, root[:, total]))
        several = np.flatnonzero(self._counts > 1)
        if several.size:  # who share evenly
            counts, children = self._counts[several][:, None, None], self._children[:, several]
            gain[:, several] = (np.eye(m) - children.exact) @ gain[:, several] / counts
            root[:, several] = compress(children.root * np.sqrt(1 - 1 / counts), root[:, several] / counts)
        return gain[:, :terms], root[:, :terms]
