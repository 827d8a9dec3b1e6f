"""What is known of group sums u of one component, and how statements about them combine and add up.

A message has three parts, kept apart as projectors: directions that nothing determines (unknown), directions known
exactly, and the rest with a finite covariance. The covariance is kept as square roots of itself and of its inverse,
which orthogonal transformations combine without losing what is known well beside what is known badly. All arrays are
batches (N, ..., m).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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
    root : ndarray, (N, m, m)
        L with covariance L L' along the directions that are neither unknown nor exact.
    information_root : ndarray, (N, m, m)
        T with T'T the inverse of the covariance along these directions.
    unknown, exact : ndarray, (N, m, m)
        Orthogonal projectors.
    """

    root: Float
    information_root: Float
    unknown: Float
    exact: Float

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Self:
        """A batch of zero matrices, (..., m, m)."""
        return cls(*(np.zeros(shape) for _ in fields(cls)))

    @property
    def arrays(self) -> tuple[Float, Float, Float, Float]:
        """All four."""
        return self.root, self.information_root, self.unknown, self.exact

    def __getitem__(self, index: object) -> Self:
        return type(self)(*(getattr(self, field.name)[index] for field in fields(self)))

    def __setitem__(self, index: object, values: Self) -> None:
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(values, field.name)

    @property
    def finite(self) -> Float:
        """Projector on the directions of finite covariance."""
        return complement(self.unknown, self.exact)

    def repeated(self, counts: Float) -> Message:
        """Of the sum of as many independent ones as `counts`, (N,)."""
        scale = np.sqrt(counts)[:, None, None]
        return Message(self.root * scale, self.information_root / scale, self.unknown, self.exact)


@dataclass(frozen=True)
class Telling:
    """A statement about u: a value v = W u with independent noise where it is noisy, or exactly where it is exact.

    Attributes
    ----------
    design : ndarray, (N or 1, q, m)
        W.
    noisy : ndarray, (N, k, q)
        Square root of the information about v, so that noisy @ v ~ noisy @ W u with unit noise; zero where nothing
        noisy is said. A multiple of the identity is (N, 1, 1).
    seen : ndarray, (N or 1, m, m)
        W'W without weights, of what is noisy.
    exact : ndarray, (N, e, q) or None
        Which combinations of v hold exactly.
    """

    design: Float
    noisy: Float
    seen: Float
    exact: Float | None = None

    @classmethod
    def measured(cls, W: Float, precisions: Float, exact: Float) -> Telling:
        """A table with rows W, (k, m) or (N, k, m), of precisions (N,), 0 for none; exact where flagged."""
        design = W if W.ndim == 3 else W[None]
        identity = np.eye(design.shape[1])
        return cls(
            design,
            np.sqrt(precisions)[:, None, None],
            (precisions > 0)[:, None, None] * (design.swapaxes(1, 2) @ design),
            exact[:, None, None] * identity if exact.any() else None,
        )

    @classmethod
    def told(cls, message: Message) -> Telling:
        """What a message says of u, v being its estimate."""
        identity = np.eye(message.root.shape[-1])[None]
        return cls(identity, message.information_root, message.finite, message.exact if message.exact.any() else None)


@dataclass(frozen=True)
class Combined:
    """The estimate from several sources: u is the sum of gains (N, m, q) times their values."""

    message: Message
    gains: list[Float]


def combine(sources: Sequence[Telling]) -> Combined:
    """The best estimate of u from independent sources, those that are exact first.

    Directions that nothing determines are estimated as zero.
    """
    weighed = [_times(source.noisy, source.design) for source in sources]
    measured = F = np.concatenate(weighed, axis=1)
    N, _, m = F.shape
    identity = np.eye(m)
    exact, along_exact = _exact_part(sources, N, m)
    seen = sum((source.seen for source in sources), start=np.zeros((N, m, m)))
    open_ = complement(exact)
    determined = range_projector(open_ @ seen @ open_ if exact.any() else seen, 1 + trace(seen))
    unseen = complement(determined)
    if unseen.any():
        size = np.sqrt((F**2).sum(axis=(1, 2)) / m)
        padding = np.where(size > 0, size, 1.0)[:, None, None] * unseen
        F = np.concatenate([F @ determined, padding], axis=1)
    fitted = fit(F)
    if unseen.any():
        fitted = fitted.within(determined)
    inverse = _made_consistent(fitted.inverse[:, :, : measured.shape[1]], measured, determined)
    rows = np.split(inverse, np.cumsum([own.shape[1] for own in weighed])[:-1], axis=2)
    gains = [_times(own, source.noisy) for own, source in zip(rows, sources, strict=True)]
    if along_exact is not None:
        rest = identity - sum(gain @ source.design for gain, source in zip(gains, sources, strict=True))
        gains = [gain + rest @ own for gain, own in zip(gains, along_exact, strict=True)]
        gains = _made_exact(gains, along_exact, sources)
    message = Message(fitted.covariance_root, fitted.information_root, complement(exact, determined), exact)
    return Combined(message, gains)


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
    parts = finite @ left.root, finite @ right.root
    m = left.root.shape[-1]
    size = np.sqrt((left.root**2 + right.root**2).sum(axis=(1, 2)) / m)
    padding = np.where(size > 0, size, 1.0)[:, None, None] * complement(finite)
    root, inverse = compress_and_invert(*parts, padding)
    return Message(finite @ root, inverse @ finite, unknown, exact)


@dataclass(frozen=True)
class Parting:
    """How two u share what their sum d is found to differ by: `left` d and `right` d, which add up to d.

    `root` is a square root of the covariance that either has when the sum is known.
    """

    left: Float
    right: Float
    root: Float


def part(left: Message, right: Message) -> Parting:
    """How the sum of two independent u tells of each."""
    combined = combine([Telling.told(left), Telling.told(right)])  # of the left one: 0, and d less the right one
    shared = combined.message.unknown / 2  # what neither knows of by itself
    return Parting(
        complement(left.exact) @ (combined.gains[1] + shared),
        complement(right.exact) @ (combined.gains[0] + shared),
        combined.message.root,
    )


def _exact_part(sources: Sequence[Telling], N: int, m: int) -> tuple[Float, list[Float] | None]:
    """Projectors on what is known exactly, and the gains there; None where nothing is."""
    if all(source.exact is None for source in sources):
        return np.zeros((N, m, m)), None
    rows = [None if s.exact is None else s.exact @ s.design for s in sources]
    gram = sum((E.swapaxes(1, 2) @ E for E in rows if E is not None), start=np.zeros((N, m, m)))
    exact = range_projector(gram, 1 + trace(gram))
    inverse = inverse_on(exact, gram)
    gains = [
        np.zeros((N, m, source.design.shape[1]))
        if E is None or source.exact is None
        else inverse @ E.swapaxes(1, 2) @ source.exact
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
    """Products of batches of matrices, of which (N, 1, 1) is a multiple of any identity."""
    return left * right if (1, 1) in (left.shape[1:], right.shape[1:]) else left @ right
