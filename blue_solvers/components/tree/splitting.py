"""How a component falls apart into pieces that neither tables nor structural zeros tie together, at any geounit.

Every table is a partition of the group sums, which have weights in it. Group sums are of one kind if they are empty at
the same geounits; those that are empty at all of them belong to no piece. Tables of many rows tie few group sums
together: the blocks that they leave fall apart by themselves (`IsotypicComponent`), most of them in the same way, so
that one piece stands for many copies. Tables of few rows see of these copies only as many combinations as they have
rows; what they see is tied together in one piece, and the rest of the copies stays as it was. Nothing depends on
variances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import prod

import numpy as np
from scipy import sparse
from scipy.linalg import block_diag, qr

from blue_solvers.components.component_products import PUT_TOGETHER, Coordinates
from blue_solvers.components.orthogonal import SMALL, kronecker
from constraint_builders.arrays import Float, Index

LARGEST_BLOCK = 64  # group sums that tables of many rows may tie together
SAVING = 0.5  # of the multiplications that one piece takes: where little more is saved, nothing is divided
WORTH = SMALL  # group sums up to which nothing is divided
APART = 1e-10  # of what tables tell, relative to the largest, where it is not the same
TOLERANCE = 1e-11  # of unweighted rows of length one
ROUNDING = 1e-13  # left where rows do not see a space

Axes = list[Float]  # rows of a table along every variable that is no contrast; their Kronecker product is W
Partitions = dict[str, sparse.csc_array]  # W of every table about the group sums that are not empty everywhere
Embeddings = list[tuple[Index, Float]]  # by block that has copies of a space: its group sums, and vectors (n, b, c)


@dataclass(frozen=True)
class IsotypicComponent:
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


@dataclass(eq=False)
class Piece:
    """Copies of b numbers that share all coefficients.

    Attributes
    ----------
    rows : mapping of str to ndarray, (k, b)
        What each table, by name, says of them.
    kinds : ndarray of int, (b,)
        Which kind of group sums every number is of; -1 where it is empty everywhere.
    basis : sparse array, (m, b * copies)
        Orthonormal; copies run fastest.
    frames : mapping of str to sparse array, (rows of the table, k * copies)
        For each of these tables the combinations of its rows that say so, orthonormal for each copy.
    place : int
        Its number among the pieces.
    """

    rows: Mapping[str, Float]
    kinds: Index
    basis: sparse.csc_array
    frames: Mapping[str, sparse.csc_array]
    place: int = 0

    @property
    def size(self) -> int:
        """Numbers, b."""
        return self.kinds.size

    @property
    def multiplicity(self) -> int:
        """How many there are."""
        return self.basis.shape[1] // self.size

    def of_weights(self, weights: Float) -> Float:
        """Weights on the piece's numbers, (b, copies * rest, K), from those on the group sums, (m, rest, K)."""
        own = self.basis.T @ weights.reshape(len(weights), -1)
        return own.reshape(self.size, -1, weights.shape[-1])

    def turned(self, combinations: Float) -> Piece:
        """Orthonormal combinations of the copies, (copies, c), as copies."""

        def mixed(basis: sparse.csc_array) -> sparse.csc_array:
            """A basis of the copies, (rows, k * copies), as one of their combinations, (rows, k * c)."""
            numbers = sparse.eye_array(basis.shape[1] // self.multiplicity)
            return _pruned(basis @ sparse.kron(numbers, combinations))

        frames = {name: mixed(own) for name, own in self.frames.items()}
        return Piece(self.rows, self.kinds, mixed(self.basis), frames)


class Division:
    """A component in pieces.

    Attributes
    ----------
    size : int
        Number of group sums, m.
    pieces : list of Piece
    is_whole : bool
        Whether its one piece is all of it, in no coordinates but its own.
    coordinates : Coordinates
        Of all pieces among the group sums.
    frames : dict of str to Coordinates
        The same among the rows of every table that sees the component.
    """

    def __init__(self, tables: Mapping[str, Axes], size: int, pieces: Sequence[Piece], is_whole: bool) -> None:
        self.size, self.pieces = size, list(pieces)
        for place, piece in enumerate(pieces):
            piece.place = place
        self.coordinates = Coordinates(size, {own.place: (own.basis, own.size) for own in pieces}, is_whole)
        self.frames: dict[str, Coordinates] = {}
        for name, axes in tables.items():
            told = {own.place: (own.frames[name], len(own.rows[name])) for own in pieces if name in own.rows}
            self.frames[name] = Coordinates(prod(map(len, axes)), told, is_whole)


def split(tables: Mapping[str, Axes], kinds: Index) -> Division:
    """How a component falls apart, by what tables tell of it; one piece if that saves little.

    Parameters
    ----------
    tables : mapping of str to list of ndarray
        Rows along every variable.
    kinds : ndarray of int, (m,)
        The kind of every group sum; -1 for those that are empty everywhere.
    """
    size = kinds.size
    pieces = _pieces(tables, kinds) if size > WORTH else []
    is_whole = size <= WORTH or (size <= PUT_TOGETHER and sum(own.size**3 for own in pieces) > SAVING * size**3)
    if is_whole:
        rows = {name: kronecker(axes) for name, axes in tables.items()}
        frames = {name: _identity(len(W)) for name, W in rows.items()}
        pieces = [Piece(rows, kinds, _identity(size), frames)]
    return Division(tables, size, pieces, is_whole)


@lru_cache(maxsize=64)
def _identity(size: int) -> sparse.csc_array:
    """Not to be written to, (size, size)."""
    return sparse.eye_array(size, format="csc")


def _pieces(tables: Mapping[str, Axes], kinds: Index) -> list[Piece]:
    """The pieces of tables by their rows along every axis, and of group sums of some kinds, (m,)."""
    cells = np.flatnonzero(kinds >= 0)
    partitions = {
        name: sparse.csc_array(reduce(lambda one, other: sparse.kron(one, other, "csc"), axes))[:, cells]
        for name, axes in tables.items()
    }
    base, blocks = _blocks(partitions, cells.size)
    tying = {name: sparse.csr_array(W) for name, W in partitions.items() if name not in base}
    units = [_of_length_one(W) for W in tying.values()]
    seen, pieces = list[Piece](), list[Piece]()
    for found in _alike(base, blocks, kinds[cells]):
        _part(_copied(*found, base, cells.size), units, seen, pieces)
    pieces += [_tied(group, tying) for group in _together(seen, units)]
    for piece in pieces:
        piece.basis = sparse.eye_array(kinds.size, format="csc")[:, cells] @ piece.basis
    return pieces


def _blocks(partitions: Partitions, size: int) -> tuple[Partitions, list[Index]]:
    """Tables that leave small blocks of group sums, those of most rows first, and these blocks."""
    base: Partitions = {}
    labels = np.arange(size)
    for name, W in sorted(partitions.items(), key=lambda own: (-own[1].shape[0], own[0])):
        rows = sparse.vstack([*base.values(), W])
        graph = sparse.block_array([[None, rows.T], [rows, None]])
        joined = sparse.csgraph.connected_components(graph, directed=False)[1][:size]
        if np.bincount(joined).max(initial=0) <= LARGEST_BLOCK:
            base[name], labels = W, np.unique(joined, return_inverse=True)[1]
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return base, np.split(order, starts) if size else []


def _alike(base: Partitions, blocks: Sequence[Index], kinds: Index) -> list[tuple[IsotypicComponent, Embeddings]]:
    """Spaces alike in all blocks of sums, of kinds (sums,): what is told of one, and each block's sums and vectors."""
    by_shape, found = dict[bytes, list[IsotypicComponent]](), dict[bytes, tuple[IsotypicComponent, Embeddings]]()
    rows, weights = np.zeros((2, len(base), kinds.size))
    for i, W in enumerate(base.values()):
        rows[i], weights[i] = W.indices, W.data
    scales = abs(weights).max(axis=1, initial=0.0)[:, None, None] ** 2
    for cells in blocks:
        cells = cells[np.lexsort([*rows[:, cells], *weights[:, cells], kinds[cells]])]
        own, sizes = rows[:, cells], weights[:, cells]
        grams = (own[:, :, None] == own[:, None]) * sizes[:, :, None] * sizes[:, None]
        shape = kinds[cells].tobytes() + grams.tobytes()
        if shape not in by_shape:
            by_shape[shape] = isotypic_components(kinds[cells], grams)
        for space in by_shape[shape]:
            told = np.round(space.grams / scales, 10) + 0.0  # no negative zeros
            found.setdefault(space.kinds.tobytes() + told.tobytes(), (space, []))[1].append((cells, space.vectors))
    return list(found.values())


def _copied(space: IsotypicComponent, places: Embeddings, base: Partitions, size: int) -> Piece:
    """Copies of alike spaces, and what the base tables say of them."""
    cells, blocks = np.concatenate([own for own, _ in places]), [vectors for _, vectors in places]
    copies = sum(vectors.shape[2] for vectors in blocks)
    vectors = sparse.hstack([sparse.block_diag([own[:, i] for own in blocks]) for i in range(space.kinds.size)])
    basis = _pruned(sparse.eye_array(size, format="csc")[:, cells] @ vectors)
    rows, frames = {}, {}
    for gram, (name, W) in zip(space.grams, base.items(), strict=True):
        squares, directions = np.linalg.eigh(gram)
        seen = squares > TOLERANCE * abs(W.data).max() ** 2
        if seen.any():
            roots = np.sqrt(squares[seen])
            rows[name] = roots[:, None] * directions[:, seen].T
            frames[name] = _pruned(W @ basis @ sparse.kron(directions[:, seen] / roots, sparse.eye_array(copies)))
    return Piece(rows, space.kinds, basis, frames)


def _of_length_one(W: sparse.csr_array) -> sparse.csr_array:
    """The rows, (rows, sums), that are not zero, divided by their lengths."""
    lengths = np.sqrt(W.power(2).sum(axis=1))
    return sparse.csr_array(sparse.diags_array(1 / lengths[lengths > 0]) @ W[lengths > 0])


def _part(space: Piece, units: Sequence[sparse.csr_array], seen: list[Piece], rest: list[Piece]) -> None:
    """Add the copies that some rows of length one, (rows, sums), see to some pieces, and the others to the rest."""
    told = _pruned(sparse.vstack([space.basis[:0], *(W @ space.basis for W in units)]), 1.0).tocsr()
    by_copy = told[np.flatnonzero(np.diff(told.indptr))].toarray().reshape(-1, space.multiplicity).T
    if not by_copy.size:
        rest.append(space)
        return
    Q, R, _ = qr(by_copy[:, by_copy.any(axis=0)], pivoting=True)
    rank = int(np.count_nonzero(abs(R.diagonal()) > TOLERANCE))
    seen.append(space.turned(Q[:, :rank]))
    if rank < space.multiplicity:
        rest.append(space.turned(Q[:, rank:]))


def _pruned(matrix: sparse.sparray, size: float = 0.0) -> sparse.csc_array:
    """Without what is but rounding of `size`, by default of its largest entry."""
    found = sparse.csc_array(matrix)
    found.data[abs(found.data) <= ROUNDING * (size or abs(found.data).max(initial=0.0))] = 0
    found.eliminate_zeros()
    return found


def _together(tied: Sequence[Piece], units: Sequence[sparse.csr_array]) -> list[list[Piece]]:
    """Spaces that rows, (rows, sums), tie to one another, directly or by others."""
    if not tied:
        return []
    rows = sparse.vstack(units)
    seen = (_pruned(rows @ space.basis, 1.0).count_nonzero(axis=1) > 0 for space in tied)
    touches = sparse.csr_array(np.stack(list(seen)).astype(float))  # (spaces, rows)
    labels = sparse.csgraph.connected_components(touches @ touches.T, directed=False)[1]
    return [[tied[i] for i in np.flatnonzero(labels == number).tolist()] for number in range(labels.max() + 1)]


def _tied(spaces: Sequence[Piece], tying: Mapping[str, sparse.csr_array]) -> Piece:
    """One piece of several spaces, tied by rows, (rows, sums), each of whose copies is a number of its own."""
    basis = sparse.csc_array(sparse.hstack([space.basis for space in spaces]))
    kinds = np.concatenate([np.repeat(space.kinds, space.multiplicity) for space in spaces])
    rows, frames = dict[str, Float](), dict[str, sparse.csc_array]()
    for name in dict.fromkeys(name for space in spaces for name in space.rows):
        own = [space.rows.get(name, np.zeros((0, space.size))) for space in spaces]
        rows[name] = block_diag(*(np.kron(W, np.eye(space.multiplicity)) for W, space in zip(own, spaces, strict=True)))
        frames[name] = sparse.csc_array(sparse.hstack([space.frames[name] for space in spaces if name in space.rows]))
    for name, W in tying.items():
        seen = sparse.csr_array(W @ basis)
        touched = np.flatnonzero(_pruned(seen, 1.0).count_nonzero(axis=1))
        if touched.size:
            rows[name], frames[name] = seen[touched].toarray(), sparse.eye_array(W.shape[0], format="csc")[:, touched]
    return Piece(rows, kinds, basis, frames)


def isotypic_components(kinds: Index, grams: Float) -> list[IsotypicComponent]:
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
            found.append(IsotypicComponent(kinds[abs(vectors[:, :, 0]).argmax(axis=0)], own, vectors))
    return found


def _linked(spaces: list[Float], grams: Float) -> tuple[list[Float], list[Float]]:
    """The first space, (n, d), and all that tables link to it, in bases in which links are multiples of the identity.

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
                commute &= bool(abs(link - link.T).max() <= APART)
        for other in list(left):
            links = one.T @ grams @ other
            link = links[int(abs(links).max(axis=(1, 2), initial=0.0).argmax())] if len(links) else links.sum(axis=0)
            if abs(link).max() > APART:
                cuts = {id(spaces[0]): _eigenspaces(link @ link.T), id(other): _eigenspaces(link.T @ link)}
                if max(map(len, cuts.values())) > 1:
                    return [], [own @ U for own in spaces for U in cuts.get(id(own), [np.eye(own.shape[1])])]
                aligned.append(other @ link.T / np.sqrt((link**2).sum() / link.shape[0]))
                left = [own for own in left if own is not other]
    if not commute:
        aligned = [direction[:, None] for direction in np.concatenate(aligned, axis=1).T]
    return aligned, left


def _eigenspaces(S: Float) -> list[Float]:
    """Of a symmetric matrix, (d, d), with entries of order one, cut where its eigenvalues are furthest apart."""
    values, vectors = np.linalg.eigh(S)
    gaps = np.diff(values)
    return np.split(vectors, np.flatnonzero(gaps > max(APART, gaps.max(initial=0.0) / 10)) + 1, axis=1)
