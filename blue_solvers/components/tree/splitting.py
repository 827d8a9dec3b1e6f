"""How a component falls apart into pieces that neither tables nor structural zeros tie together, at any geounit.

Every table is a partition of the group sums, which have weights in it. Group sums are of one kind if they are empty at
the same geounits; those that are empty at all of them belong to no piece. Tables of many rows tie few group sums
together: the blocks that they leave fall apart by themselves (`alike_spaces`), most of them in the same way, so that
one piece stands for many copies. Tables of few rows see of these copies only as many combinations as they have rows;
what they see is tied together in one piece, and the rest of the copies stays as it was. Nothing depends on variances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from blue_solvers.components.orthogonal import SMALL
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.tree.alike_spaces import AlikeSpaces, alike_spaces
from blue_solvers.components.tree.messages import Message
from blue_solvers.components.tree.piecewise import PUT_TOGETHER, Coordinates, PieceMessages, PieceRoots
from constraint_builders.arrays import Float, Index

LARGEST_BLOCK = 64  # group sums that tables of many rows may tie together
SAVING = 0.5  # of the multiplications that one piece takes: where little more is saved, nothing is divided
WORTH = SMALL  # group sums up to which nothing is divided
BATCHED = SMALL  # numbers of a piece up to which all geounits are worked on together
TOLERANCE = 1e-11  # of unweighted rows of length one
ROUNDING = 1e-13  # left where rows do not see a space

Axes = list[Float]  # rows of a table along every variable that is no contrast; their Kronecker product is W


@dataclass(frozen=True)
class _Partition:
    """A table over group sums: of each the row that it belongs to, and its weight there."""

    rows: Index
    weights: Float
    count: int

    @classmethod
    def of(cls, axes: Axes) -> _Partition:
        """From the 0/1 rows, times weights, along every variable."""
        rows, weights = np.zeros(1, dtype=np.intp), np.ones(1)
        for W in axes:
            rows = (rows[:, None] * len(W) + abs(W).argmax(axis=0)).ravel()
            weights = np.outer(weights, W.sum(axis=0)).ravel()
        return cls(rows, weights, prod(map(len, axes)))

    @property
    def largest(self) -> float:
        """Largest square of a weight."""
        return float(abs(self.weights).max()) ** 2

    def matrix(self, cells: Index) -> sparse.csr_array:
        """Rows about some group sums, all others left out of them, (rows, m)."""
        shape = self.count, self.rows.size
        return sparse.csr_array((self.weights[cells], (self.rows[cells], cells)), shape=shape)


class Piece:
    """Copies of b numbers that share all coefficients.

    Parameters
    ----------
    place : int
        Its number among the pieces.
    rows : mapping of str to ndarray, (k, b)
        What each table, by name, says of them.
    kinds : ndarray of int, (b,)
        Which kind of group sums every number is of; -1 where it is empty everywhere.
    basis : sparse array, (m, b * copies)
        Orthonormal.
    frames : mapping of str to sparse array, (rows of the table, k * copies)
        For each of these tables the combinations of its rows that say so, orthonormal for each copy.
    """

    def __init__(
        self,
        place: int,
        rows: Mapping[str, Float],
        kinds: Index,
        basis: sparse.csc_array,
        frames: Mapping[str, sparse.csc_array],
    ) -> None:
        self.place, self.rows, self.kinds, self.basis, self.frames = place, dict(rows), kinds, basis, dict(frames)
        self.size = kinds.size
        self.copies = basis.shape[1] // self.size

    @property
    def is_batched(self) -> bool:
        """Whether all geounits are worked on together, not each in the numbers that are not empty there."""
        return self.size <= BATCHED

    def of_message(self, message: Message | PieceMessages) -> Message:
        """What a message about the component says of the piece."""
        return message.pieces[self.place] if isinstance(message, PieceMessages) else message

    def of_root(self, root: Float | PieceRoots) -> Float:
        """The piece's square root of a covariance, from the component's."""
        return root.pieces[self.place] if isinstance(root, PieceRoots) else root

    def of_weights(self, weights: Float) -> Float:
        """Weights on the piece's numbers, (b, copies * rest, K), from those on the group sums, (m, rest, K)."""
        own = self.basis.T @ weights.reshape(len(weights), -1)
        return own.reshape(self.size, -1, weights.shape[-1])


class WholePiece(Piece):
    """All of a component."""

    def __init__(self, tables: Mapping[str, Axes], kinds: Index) -> None:
        basis = sparse.csc_array(sparse.eye_array(kinds.size))
        super().__init__(0, {name: kronecker(axes) for name, axes in tables.items()}, kinds, basis, {})

    @property
    def is_batched(self) -> bool:
        return True


class Division:
    """A component in pieces.

    Attributes
    ----------
    size : int
        Number of group sums, m.
    pieces : list of Piece
    is_whole : bool
        Whether it is one piece, in no coordinates but its own.
    seeing : dict of str to int
        Rows of the tables that see the component.
    """

    def __init__(self, tables: Mapping[str, Axes], size: int, pieces: Sequence[Piece]) -> None:
        self.size, self.pieces = size, list(pieces)
        self.is_whole = any(isinstance(piece, WholePiece) for piece in pieces)
        self.seeing = {name: prod(map(len, axes)) for name, axes in tables.items()}
        self._frames: dict[str, Coordinates] = {}

    @cached_property
    def coordinates(self) -> Coordinates:
        """Of all pieces among the group sums."""
        bases = {piece.place: (piece.basis, piece.size) for piece in self.pieces}
        return Coordinates.of(self.size, bases)

    def frames(self, table: str) -> Coordinates:
        """The same among the rows of a table."""
        if table not in self._frames:
            own = {p.place: (p.frames[table], len(p.rows[table])) for p in self.pieces if table in p.frames}
            self._frames[table] = Coordinates.of(self.seeing[table], own)
        return self._frames[table]


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
    if size <= WORTH or (size <= PUT_TOGETHER and sum(piece.size**3 for piece in pieces) > SAVING * size**3):
        pieces = [WholePiece(tables, kinds)]
    return Division(tables, size, pieces)


def _pieces(tables: Mapping[str, Axes], kinds: Index) -> list[Piece]:
    partitions = {name: _Partition.of(axes) for name, axes in tables.items()}
    cells = np.flatnonzero(kinds >= 0)
    base, blocks = _blocks(partitions, cells)
    tying = {name: own.matrix(cells) for name, own in partitions.items() if name not in base}
    whole = {name: partitions[name].matrix(cells) for name in base}
    scales = [partitions[name].largest for name in base]
    spaces = [_CopiedSpace(own, kinds.size, whole, scales) for own in _alike(partitions, base, blocks, kinds)]
    pieces: list[Piece] = []
    tied: list[_CopiedSpace] = []
    lengths = {name: np.sqrt(W.power(2).sum(axis=1)) for name, W in tying.items()}
    units = [sparse.diags_array(1 / own[own > 0]) @ tying[name][own > 0] for name, own in lengths.items()]
    for space in spaces:
        seen, rest = space.parted(units)
        if seen is not None:
            tied.append(seen)
        if rest is not None:
            pieces.append(rest.piece(len(pieces)))
    return pieces + [_tied(group, tying, len(pieces) + i) for i, group in enumerate(_together(tied, tying))]


def _blocks(partitions: Mapping[str, _Partition], cells: Index) -> tuple[list[str], list[Index]]:
    """Tables that leave small blocks of group sums, those of most rows first, and these blocks."""
    base: list[str] = []
    labels = np.arange(cells.size)
    for name in sorted(partitions, key=lambda own: (-partitions[own].count, own)):
        own = partitions[name]
        count = labels.max(initial=-1) + 1
        shape = (count + own.count,) * 2
        graph = sparse.coo_array((np.ones(cells.size), (labels, count + own.rows[cells])), shape=shape)
        joined = sparse.csgraph.connected_components(graph, directed=False)[1][labels]
        _, joined = np.unique(joined, return_inverse=True)
        if np.bincount(joined).max(initial=0) <= LARGEST_BLOCK:
            base, labels = [*base, name], joined
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return base, np.split(cells[order], starts) if cells.size else []


def _alike(
    partitions: Mapping[str, _Partition], base: Sequence[str], blocks: Sequence[Index], kinds: Index
) -> list[tuple[AlikeSpaces, list[tuple[Index, Float]]]]:
    """Spaces that are alike in all blocks: what is told of one, and of every block its group sums and vectors there."""
    by_shape: dict[bytes, list[AlikeSpaces]] = {}
    found: dict[bytes, tuple[AlikeSpaces, list[tuple[Index, Float]]]] = {}
    own = [partitions[name] for name in base]
    scales = np.array([table.largest for table in own]).reshape(-1, 1, 1)
    for cells in blocks:
        keys = [table.rows[cells] for table in own] + [table.weights[cells] for table in own] + [kinds[cells]]
        cells = cells[np.lexsort(keys)]
        grams = np.zeros((len(own), cells.size, cells.size))
        for gram, table in zip(grams, own, strict=True):
            rows, weights = table.rows[cells], table.weights[cells]
            gram[...] = (rows[:, None] == rows) * np.outer(weights, weights)
        shape = kinds[cells].tobytes() + grams.tobytes()
        if shape not in by_shape:
            by_shape[shape] = alike_spaces(kinds[cells], grams)
        for space in by_shape[shape]:
            told = np.round(space.grams / scales, 10) + 0.0  # no negative zeros
            found.setdefault(space.kinds.tobytes() + told.tobytes(), (space, []))[1].append((cells, space.vectors))
    return list(found.values())


class _CopiedSpace:
    """Copies of alike spaces: an orthonormal basis (m, b * c), and what the base tables say of it."""

    def __init__(
        self,
        found: tuple[AlikeSpaces, list[tuple[Index, Float]]],
        size: int,
        tables: Mapping[str, sparse.csr_array],
        scales: Sequence[float],
    ) -> None:
        space, places = found
        self.kinds = space.kinds
        b, count = self.kinds.size, sum(vectors.shape[2] for _, vectors in places)
        rows, columns, values = [], [], []
        start = 0
        for cells, vectors in places:
            n, _, c = vectors.shape
            own = np.arange(b)[:, None] * count + start + np.arange(c)
            rows.append(np.repeat(cells, b * c))
            columns.append(np.tile(own.ravel(), n))
            values.append(vectors.ravel())
            start += c
        entries = np.concatenate(values)
        kept = entries != 0
        places_of = np.concatenate(rows)[kept], np.concatenate(columns)[kept]
        self.basis = sparse.csc_array(sparse.coo_array((entries[kept], places_of), shape=(size, b * count)))
        self.copies = count
        self.rows: dict[str, Float] = {}
        self.frames: dict[str, sparse.csc_array] = {}
        for gram, scale, (name, W) in zip(space.grams, scales, tables.items(), strict=True):
            squares, directions = np.linalg.eigh(gram)
            seen = squares > TOLERANCE * scale
            if seen.any():
                roots = np.sqrt(squares[seen])
                self.rows[name] = roots[:, None] * directions[:, seen].T
                mixing = sparse.kron(directions[:, seen] / roots, sparse.eye_array(count))
                self.frames[name] = _pruned(W @ self.basis @ mixing)

    def parted(self, units: Sequence[sparse.csr_array]) -> tuple[_CopiedSpace | None, _CopiedSpace | None]:
        """The copies that some rows of length one see, and the rest; None where there are none."""
        if not units:
            return None, self
        seen = sparse.csr_array(sparse.vstack(units) @ self.basis)
        seen.data[abs(seen.data) <= ROUNDING] = 0
        seen.eliminate_zeros()
        seen = seen[np.flatnonzero(np.diff(seen.indptr))]
        if not seen.nnz:
            return None, self
        by_copy = seen.toarray().reshape(-1, self.copies).T
        Q, R, _ = qr(by_copy[:, by_copy.any(axis=0)], pivoting=True)
        rank = int(np.count_nonzero(abs(R.diagonal()) > TOLERANCE))
        return self._turned(Q[:, :rank]), self._turned(Q[:, rank:]) if rank < self.copies else None

    def _turned(self, combinations: Float) -> _CopiedSpace:
        """Orthonormal combinations of the copies, (c, own)."""
        turned = object.__new__(_CopiedSpace)
        turned.kinds, turned.rows, turned.copies = self.kinds, self.rows, combinations.shape[1]

        def mixed(basis: sparse.csc_array, count: int) -> sparse.csc_array:
            return _pruned(basis @ sparse.kron(sparse.eye_array(count), combinations))

        turned.basis = mixed(self.basis, self.kinds.size)
        turned.frames = {name: mixed(own, len(self.rows[name])) for name, own in self.frames.items()}
        return turned

    def piece(self, place: int) -> Piece:
        return Piece(place, self.rows, self.kinds, self.basis, self.frames)


def _pruned(matrix: sparse.sparray) -> sparse.csc_array:
    """Without what is but rounding."""
    found = sparse.csc_array(matrix)
    found.data[abs(found.data) <= ROUNDING * abs(found.data).max(initial=0.0)] = 0
    found.eliminate_zeros()
    return found


def _together(tied: Sequence[_CopiedSpace], tying: Mapping[str, sparse.csr_array]) -> list[list[_CopiedSpace]]:
    """Spaces that rows tie to one another, directly or by others."""
    if not tied:
        return []
    rows = sparse.vstack(list(tying.values()))
    touches = np.stack([_touched(rows @ space.basis) for space in tied])  # (spaces, rows)
    graph = sparse.csr_array(touches.astype(float)) @ sparse.csr_array(touches.T.astype(float))
    count, labels = sparse.csgraph.connected_components(graph, directed=False)
    return [[tied[i] for i in np.flatnonzero(labels == number).tolist()] for number in range(count)]


def _touched(seen: sparse.sparray) -> NDArray[np.bool_]:
    return np.asarray(abs(seen).max(axis=1).toarray()).ravel() > ROUNDING


def _tied(spaces: Sequence[_CopiedSpace], tying: Mapping[str, sparse.csr_array], place: int) -> Piece:
    """One piece of several spaces, each of whose copies is a number of its own."""
    basis = sparse.csc_array(sparse.hstack([space.basis for space in spaces]))
    kinds = np.concatenate([np.repeat(space.kinds, space.copies) for space in spaces])
    rows: dict[str, Float] = {}
    frames: dict[str, sparse.csc_array] = {}
    for name in dict.fromkeys(name for space in spaces for name in space.rows):
        given = [space.rows.get(name, np.zeros((0, space.kinds.size))) for space in spaces]
        rows[name] = _along_diagonal(
            [np.asarray(np.kron(W, np.eye(space.copies))) for W, space in zip(given, spaces, strict=True)]
        )
        frames[name] = sparse.csc_array(sparse.hstack([space.frames[name] for space in spaces if name in space.rows]))
    for name, W in tying.items():
        seen = (W @ basis).toarray()
        touched = np.flatnonzero(abs(seen).max(axis=1, initial=0.0) > ROUNDING)
        if not touched.size:
            continue
        frame = np.zeros((len(seen), touched.size))
        frame[touched, np.arange(touched.size)] = 1
        own = seen[touched]
        if touched.size > basis.shape[1]:
            Q, own = np.linalg.qr(own)
            frame = frame @ Q
        rows[name], frames[name] = own, sparse.csc_array(frame)
    return Piece(place, rows, kinds, basis, frames)


def _along_diagonal(parts: Sequence[Float]) -> Float:
    shape = reduce(lambda one, own: (one[0] + own.shape[0], one[1] + own.shape[1]), parts, (0, 0))
    whole = np.zeros(shape)
    row = column = 0
    for own in parts:
        whole[row : row + own.shape[0], column : column + own.shape[1]] = own
        row, column = row + own.shape[0], column + own.shape[1]
    return whole
