"""How a small block of group sums falls apart under what tables, and empty cells at any geounit, tell of it.

Tables are symmetric matrices A = W'W on the block, kinds of cells that are empty together are diagonal projectors. The
algebra that they span falls into irreducible parts: spaces of b x c directions along which every A is a matrix (b, b)
that c copies share. Each of the b directions lies within one kind, so that what is empty stays a matter of directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from constraint_builders.arrays import Float, Index

TOLERANCE = 1e-10  # of what tables tell, relative to the largest: unweighted sums over few cells


@dataclass(frozen=True)
class AlikeSpaces:
    """Copies of one irreducible part.

    Attributes
    ----------
    kinds : ndarray of int, (b,)
        The kind of cells that every direction lies in.
    grams : ndarray, (tables, b, b)
        What every table tells of each copy.
    vectors : ndarray, (n, b, c)
        Orthonormal.
    """

    kinds: Index
    grams: Float
    vectors: Float


def alike_spaces(kinds: Index, grams: Float) -> list[AlikeSpaces]:
    """The irreducible parts of a block of n cells.

    Parameters
    ----------
    kinds : ndarray of int, (n,)
    grams : ndarray, (tables, n, n)
        Symmetric.
    """
    scaled = grams / np.maximum(abs(grams).max(axis=(1, 2), initial=0.0), 1e-300)[:, None, None]
    spaces = [np.eye(kinds.size)[:, kinds == kind] for kind in np.unique(kinds)]
    spaces = _told_apart(spaces, scaled)
    owners = [int(kinds[np.flatnonzero(abs(V[:, 0]) > 0)[0]]) for V in spaces]
    order = sorted(range(len(spaces)), key=lambda i: (owners[i], *_own(spaces[i], scaled), i))
    spaces, own_kinds = [spaces[i] for i in order], np.array([owners[i] for i in order], dtype=np.intp)
    found = []
    for members, aligned in _linked(spaces, scaled):
        for part in _agreeing(aligned, scaled):
            vectors, kinds_of = (
                (np.stack(part, axis=1), own_kinds[members])
                if part is not None
                else (
                    np.concatenate(aligned, axis=1)[:, :, None],
                    np.repeat(own_kinds[members], [V.shape[1] for V in aligned]),
                )
            )
            own = np.einsum("nb,tnm,mc->tbc", vectors[:, :, 0], grams, vectors[:, :, 0])
            found.append(AlikeSpaces(kinds_of, own, vectors))
    return found


def _own(space: Float, grams: Float) -> tuple[float, ...]:
    """What tables tell of a space by itself, to sort by."""
    return tuple(np.round(np.einsum("ni,tnm,mi->t", space, grams, space) / space.shape[1], 8).tolist())


def _told_apart(spaces: list[Float], grams: Float) -> list[Float]:
    """Spaces cut until every table is a multiple of an isometry, or nothing, between any two of them."""
    while True:
        cut: list[Float] = []
        for V in spaces:
            cut += _cut_by(V, spaces, grams)
        if len(cut) == len(spaces):
            return cut
        spaces = cut


def _cut_by(V: Float, spaces: Sequence[Float], grams: Float) -> list[Float]:
    if V.shape[1] == 1:
        return [V]
    for A in grams:
        told = A @ V
        for other in spaces:
            link = told.T @ other
            parts = _eigenspaces(V.T @ told if other is V else link @ link.T)
            if len(parts) > 1:
                return [V @ U for U in parts]
    return [V]


def _eigenspaces(S: Float) -> list[Float]:
    """Of a symmetric matrix with entries of order one."""
    own = S.diagonal()
    if abs(S - np.diag(own)).max() <= TOLERANCE and own.max() - own.min() <= TOLERANCE:
        return [np.eye(len(S))]
    values, vectors = np.linalg.eigh(S)
    bounds = np.flatnonzero(np.diff(values) > TOLERANCE) + 1
    return np.split(vectors, bounds, axis=1)


def _linked(spaces: list[Float], grams: Float) -> Iterator[tuple[list[int], list[Float]]]:
    """Spaces that some table links, in bases in which the first link of each is a multiple of the identity."""
    left = dict(enumerate(spaces))
    while left:
        first = min(left)
        aligned = {first: left.pop(first)}
        waiting = [first]
        for number in waiting:
            for other, V in list(left.items()):
                links = aligned[number].T @ grams @ V
                sizes = abs(links).max(axis=(1, 2))
                if sizes.max(initial=0.0) > TOLERANCE:
                    link = links[int(sizes.argmax())]
                    aligned[other] = V @ (link / np.sqrt((link**2).sum() / V.shape[1])).T
                    del left[other]
                    waiting.append(other)
        members = sorted(aligned)
        yield members, [aligned[i] for i in members]


def _agreeing(aligned: list[Float], grams: Float) -> Iterator[list[Float] | None]:
    """Aligned spaces cut together until all links are multiples of the identity; None where that cannot be."""
    if aligned[0].shape[1] == 1:
        yield aligned
        return
    for A in grams:
        for one in aligned:
            for other in aligned:
                link = one.T @ A @ other
                parts = _eigenspaces((link + link.T) / 2)
                if len(parts) > 1:
                    for U in parts:
                        yield from _agreeing([V @ U for V in aligned], grams)
                    return
                if abs(link - link.T).max() > TOLERANCE:
                    yield None
                    return
    yield aligned
