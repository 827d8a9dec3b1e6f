"""What is known of group sums u of one component, and how statements about them combine and add up.

A message has three parts, kept apart as projectors: directions that nothing determines (unknown), directions known
exactly, and the rest with a finite covariance. The covariance is kept as square roots of itself and of its inverse,
which orthogonal transformations combine without losing what is known well beside what is known badly. All arrays are
batches, with any axes before those of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from blue_solvers.components.orthogonal import compress_and_invert, fit
from blue_solvers.components.subspaces import complement, inverse_on, range_projector, trace
from constraint_builders.arrays import Float


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

    def repeated(self, counts: Float) -> Message:
        """Of the sum of as many independent ones as `counts`, (...)."""
        scale = np.sqrt(counts)[..., None, None]
        return Message(self.root * scale, self.information_root / scale, self.unknown, self.exact)


@dataclass(frozen=True)
class Telling:
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
    exact : ndarray, (..., e, q) or None
        Which combinations of v hold exactly.
    """

    design: Float
    noisy: Float
    seen: Float
    exact: Float | None = None

    @classmethod
    def measured(cls, W: Float, precisions: Float, exact: Float) -> Telling:
        """A table with rows W, (..., k, m), of precisions (...), 0 for none; exact where flagged."""
        return cls(
            W,
            np.sqrt(precisions)[..., None, None],
            (precisions > 0)[..., None, None] * (W.swapaxes(-1, -2) @ W),
            exact[..., None, None] * np.eye(W.shape[-2]) if exact.any() else None,
        )

    @classmethod
    def told(cls, message: Message) -> Telling:
        """What a message says of u, v being its estimate."""
        identity = np.eye(message.root.shape[-1])
        return cls(identity, message.information_root, message.finite, message.exact if message.exact.any() else None)


def combine(sources: Sequence[Telling]) -> tuple[Message, list[Float]]:
    """The best estimate of u from independent sources, those that are exact first: the sum of gains times values.

    What it says of u, and the gain of every source, (..., m, q). Directions that nothing determines are estimated as
    zero.
    """
    weighed = [_times(source.noisy, source.design) for source in sources]
    measured = F = np.concatenate(weighed, axis=-2)
    nothing = np.zeros((*F.shape[:-2], F.shape[-1], F.shape[-1]))
    exact, along_exact = _exact_part(sources, nothing)
    seen = sum((source.seen for source in sources), start=nothing)
    size = 1 + trace(seen)
    if along_exact is not None:
        open_ = complement(exact)
        seen = open_ @ seen @ open_
    determined = range_projector(seen, size)
    unseen = complement(determined)
    if unseen.any():
        F = np.concatenate([F @ determined, _as_large([F]) * unseen], axis=-2)
    inverse, information, covariance = fit(F)
    if unseen.any():
        inverse, information, covariance = determined @ inverse, information @ determined, determined @ covariance
    inverse = _made_consistent(inverse[..., : measured.shape[-2]], measured, determined)
    ends = np.cumsum([0, *(own.shape[-2] for own in weighed)]).tolist()
    rows = [inverse[..., first:last] for first, last in pairwise(ends)]
    gains = [_times(own, source.noisy) for own, source in zip(rows, sources, strict=True)]
    if along_exact is not None:
        rest = np.eye(F.shape[-1]) - sum(gain @ source.design for gain, source in zip(gains, sources, strict=True))
        gains = [gain + rest @ own for gain, own in zip(gains, along_exact, strict=True)]
        gains = _made_exact(gains, along_exact, sources)
    unknown = unseen if along_exact is None else complement(exact, determined)
    return Message(covariance, information, unknown, exact), gains


def add(left: Message, right: Message) -> Message:
    """What is known of the sum of two independent u."""
    if not any(own.any() for own in (left.unknown, right.unknown, left.exact, right.exact)):
        root, inverse = compress_and_invert(left.root, right.root)
        return Message(root, inverse, left.unknown, left.exact)
    unknown = (
        range_projector(left.unknown + right.unknown) if (left.unknown.any() or right.unknown.any()) else left.unknown
    )
    exact = complement(range_projector(complement(left.exact) + complement(right.exact)))
    finite = complement(unknown, exact)
    padding = _as_large([left.root, right.root]) * complement(finite)
    root, inverse = compress_and_invert(finite @ left.root, finite @ right.root, padding)
    return Message(finite @ root, inverse @ finite, unknown, exact)


def part(left: Message, right: Message) -> tuple[Float, Float, Float]:
    """How two independent u share what their sum d is found to differ by: L and R with L d and R d, which add up to d.

    And a square root of the covariance that either has when the sum is known.
    """
    known, (by_left, by_right) = combine([Telling.told(left), Telling.told(right)])  # of left: 0, and d less right
    shared = known.unknown / 2  # what neither knows of by itself
    return complement(left.exact) @ (by_right + shared), complement(right.exact) @ (by_left + shared), known.root


def _as_large(matrices: Sequence[Float]) -> Float:
    """Numbers of the size of what is in some matrices (..., m), (..., 1, 1); 1 where that is nothing."""
    size = np.sqrt(sum((own**2).sum(axis=(-2, -1), keepdims=True) for own in matrices) / matrices[0].shape[-1])
    return np.where(size > 0, size, 1.0)


def _exact_part(sources: Sequence[Telling], nothing: Float) -> tuple[Float, list[Float] | None]:
    """Projectors on what is known exactly, and the gains there; zeros, and None, where nothing is."""
    if all(source.exact is None for source in sources):
        return nothing, None
    rows = [None if s.exact is None else s.exact @ s.design for s in sources]
    gram = sum((E.swapaxes(-1, -2) @ E for E in rows if E is not None), start=nothing)
    exact = range_projector(gram, 1 + trace(gram))
    inverse = inverse_on(exact, gram)
    gains = [
        np.zeros((*nothing.shape[:-1], source.design.shape[-2]))
        if E is None or source.exact is None
        else inverse @ E.swapaxes(-1, -2) @ source.exact
        for source, E in zip(sources, rows, strict=True)
    ]
    return exact, gains


def _made_consistent(inverse: Float, F: Float, determined: Float) -> Float:
    """What keeps u when all that is measured agrees with it, to rounding: counts are large beside their noise."""
    if determined.shape[-1] == 1:
        return inverse
    missing = determined - inverse @ F @ determined
    return inverse + missing @ inverse


def _made_exact(gains: list[Float], along_exact: list[Float], sources: Sequence[Telling]) -> list[Float]:
    """Gains whose estimate says what exact sources say, to rounding: projectors on those are not as exact."""
    said = [
        own @ source.exact @ source.design
        for own, source in zip(along_exact, sources, strict=True)
        if source.exact is not None
    ]
    along = sum(said[1:], start=said[0])
    return [gain + (own - along @ gain) for gain, own in zip(gains, along_exact, strict=True)]


def _times(left: Float, right: Float) -> Float:
    """Products of batches of matrices, of which (..., 1, 1) is a multiple of any identity."""
    return left * right if (1, 1) in (left.shape[-2:], right.shape[-2:]) else left @ right
