"""How a small block of group sums falls apart under what tables, and empty cells at any geounit, tell of it.

Tables are symmetric matrices A = W'W on the block, kinds of cells that are empty together are diagonal projectors. The
algebra that they span falls into irreducible parts: spaces of b x c directions along which every A is a matrix (b, b)
that c copies share. Each of the b directions lies within one kind, so that what is empty stays a matter of directions.
"""

from __future__ import annotations

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
    spaces, found = [np.eye(kinds.size)[:, kinds == kind] for kind in np.unique(kinds)], []
    while spaces:
        aligned, spaces = _linked(spaces, scaled)
        if aligned:
            vectors = np.stack(aligned, axis=1)
            own = np.einsum("nb,tnm,mc->tbc", vectors[:, :, 0], grams, vectors[:, :, 0])
            found.append(AlikeSpaces(kinds[abs(vectors[:, :, 0]).argmax(axis=0)], own, vectors))
    return found


def _linked(spaces: list[Float], grams: Float) -> tuple[list[Float], list[Float]]:
    """The first space and all that tables link to it, in bases in which every link is a multiple of the identity.

    Beside them the other spaces; nothing, and all spaces, of which some are cut, where a link shows that copies of
    different parts are in one. Directions one by one where no cut makes the links commute.
    """
    aligned, left, commute = spaces[:1], spaces[1:], True
    for one in aligned:
        for other in aligned:
            for link in one.T @ grams @ other:
                parts = _eigenspaces((link + link.T) / 2)
                if len(parts) > 1:
                    return [], [*(spaces[0] @ U for U in parts), *spaces[1:]]
                commute &= bool(abs(link - link.T).max() <= TOLERANCE)
        for other in list(left):
            links = one.T @ grams @ other
            link = links[int(abs(links).max(axis=(1, 2), initial=0.0).argmax())] if len(links) else links.sum(axis=0)
            if abs(link).max() > TOLERANCE:
                cuts = {id(spaces[0]): _eigenspaces(link @ link.T), id(other): _eigenspaces(link.T @ link)}
                if max(map(len, cuts.values())) > 1:
                    return [], [own @ U for own in spaces for U in cuts.get(id(own), [np.eye(own.shape[1])])]
                aligned.append(other @ link.T / np.sqrt((link**2).sum() / link.shape[0]))
                left = [own for own in left if own is not other]
    if not commute:
        aligned = [direction[:, None] for direction in np.concatenate(aligned, axis=1).T]
    return aligned, left


def _eigenspaces(S: Float) -> list[Float]:
    """Of a symmetric matrix with entries of order one, cut where its eigenvalues are furthest apart."""
    values, vectors = np.linalg.eigh(S)
    gaps = np.diff(values)
    return np.split(vectors, np.flatnonzero(gaps > max(TOLERANCE, gaps.max(initial=0.0) / 10)) + 1, axis=1)
