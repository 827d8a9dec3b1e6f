"""Matrices of components by their pieces, which products put together where these are small.

They do what arrays (entries, m, q) do: entries are taken, axes exchanged, right-hand sides multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Index, as_slice

PUT_TOGETHER = 200  # numbers of a component up to which products take one matrix in place of its pieces

Entries: TypeAlias = tuple[Index, Float, Index, Index]  # which entries, their matrices, and which rows and columns


class Ragged:
    """Matrices (entries, r, q), those of a lot zero but for the same rows and columns.

    Parameters
    ----------
    shape : (int, int, int)
        Entries, r and q.
    lots : sequence of (ndarray of int, ndarray, ndarray of int, ndarray of int)
        Entries, what is not zero of their matrices, and where its rows and columns belong. An entry of none is 0.
    """

    def __init__(self, shape: tuple[int, int, int], lots: Sequence[Entries]) -> None:
        self.shape, self._lots = shape, lots
        self._lot_of, self._place = np.full(shape[0], -1), np.zeros(shape[0], dtype=np.intp)
        for number, (entries, _, _, _) in enumerate(lots):
            self._lot_of[entries], self._place[entries] = number, np.arange(len(entries))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def lots(self) -> Iterator[Entries]:
        """As they were given, less what was not taken."""
        for number in np.unique(self._lot_of[self._lot_of >= 0]).tolist():
            entries = np.flatnonzero(self._lot_of == number)
            _, matrices, rows, columns = self._lots[number]
            yield entries, matrices[as_slice(self._place[entries])], rows, columns

    def __getitem__(self, places: slice | Index) -> Ragged:
        taken = copy(self)
        taken._lot_of, taken._place = self._lot_of[places], self._place[places]
        taken.shape = len(taken._lot_of), *self.shape[1:]
        return taken

    def swapaxes(self, _one: int, _other: int) -> Ragged:
        """Every matrix transposed."""
        turned = copy(self)
        turned.shape = self.shape[0], *self.shape[:0:-1]
        turned._lots = [(own, matrices.swapaxes(1, 2), columns, rows) for own, matrices, rows, columns in self._lots]
        return turned

    def __matmul__(self, right: Float) -> Float:
        """Products with (entries, q, K), or of one matrix with all."""
        result = np.zeros((len(right), self.shape[1], right.shape[2]))
        for entries, matrices, rows, columns in self.lots:
            chosen = entries if len(self) > 1 else np.arange(len(right))
            result[chosen[:, None], rows] = matrices @ right[chosen[:, None], columns]
        return result

    def __abs__(self) -> Ragged:
        return Ragged(self.shape, [(own[0], abs(own[1]), *own[2:]) for own in self.lots])

    def toarray(self) -> Float:
        """All of it, (entries, r, q)."""
        whole = np.zeros(self.shape)
        for entries, matrices, rows, columns in self.lots:
            whole[np.ix_(entries, rows, columns)] = matrices
        return whole


Batch = Float | Ragged


def absolute(batch: Batch) -> Batch:
    """Absolute values of all entries."""
    return abs(batch) if isinstance(batch, Ragged) else np.abs(batch)


def array_of(batch: Batch) -> Float:
    """All of it, (entries, r, q)."""
    return batch.toarray() if isinstance(batch, Ragged) else batch


def lots_of(batch: Batch) -> Iterator[Entries]:
    """Those of one kind together."""
    if isinstance(batch, Ragged):
        yield from batch.lots
    else:
        entries, rows, columns = map(np.arange, batch.shape)
        yield entries, batch, rows, columns


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of pieces among some numbers.

    Attributes
    ----------
    length : int
        How many numbers.
    places : dict of int to (slice, int)
        For every piece where its coordinates lie, and how many each of its copies has; copies run fastest.
    to_pieces : csr_array, (coordinates, length)
        Orthonormal rows for each copy of a piece.
    from_pieces : csr_array
        Its transpose.
    """

    length: int
    places: Mapping[int, tuple[slice, int]]
    to_pieces: sparse.csr_array
    from_pieces: sparse.csr_array

    @classmethod
    def of(cls, length: int, bases: Mapping[int, tuple[sparse.csc_array, int]]) -> Coordinates:
        """From each piece's (length, b * copies), and b."""
        places, start = {}, 0
        for number, (basis, size) in bases.items():
            places[number] = slice(start, start + basis.shape[1]), size
            start += basis.shape[1]
        nothing = sparse.csc_array((length, 0))
        together = sparse.csr_array(sparse.hstack([nothing, *(basis for basis, _ in bases.values())]))
        return cls(length, places, sparse.csr_array(together.T), together)

    @cached_property
    def are_numbers(self) -> bool:
        """Whether they are the numbers themselves, of one piece."""
        alone = [size for _, size in self.places.values()] == [self.length] and self.from_pieces.nnz == self.length
        return alone and not (self.from_pieces - sparse.eye_array(self.length)).nnz


@dataclass(frozen=True)
class Composed:
    """Matrices of a component, (entries, r, q), those of its pieces between their coordinates.

    Attributes
    ----------
    rows, columns : Coordinates
        Among r and q numbers.
    pieces : dict of int to ndarray or Ragged, (entries, b, k)
    entries : int
    """

    rows: Coordinates
    columns: Coordinates
    pieces: Mapping[int, Batch]
    entries: int

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, places: slice | Index) -> Composed:
        count = np.arange(self.entries)[places].size
        return Composed(self.rows, self.columns, {i: own[places] for i, own in self.pieces.items()}, count)

    def at(self, place: int) -> list[Float]:
        """Of one entry the matrices of the pieces, about its numbers that are not empty."""
        own = (list(lots_of(own[place : place + 1])) for own in self.pieces.values())
        return [lots[0][1][0] if lots else np.zeros((0, 0)) for lots in own]

    def swapaxes(self, _one: int, _other: int) -> Composed:
        """Every matrix transposed."""
        turned = {i: own.swapaxes(1, 2) for i, own in self.pieces.items()}
        return Composed(self.columns, self.rows, turned, self.entries)

    def __matmul__(self, right: Float) -> Float:
        """Products with (G, q, K)."""
        return sum_of_products([self], [right])

    def toarray(self) -> Float:
        """All of it, (entries, r, q)."""
        if self.rows.are_numbers and self.columns.are_numbers:
            return array_of(next(iter(self.pieces.values())))
        whole = np.zeros((self.entries, self.rows.length, self.columns.length))
        for number, own in self.pieces.items():
            (place, size), (source, width) = self.rows.places[number], self.columns.places[number]
            left, right = self.rows.from_pieces[:, place], self.columns.to_pieces[source]
            if size == width == 1:
                whole += array_of(own) * (left @ right).toarray()
            else:
                ahead = array_of(own) @ right.toarray().reshape(width, -1)
                whole += left.toarray() @ ahead.reshape(self.entries, left.shape[1], self.columns.length)
        return whole


def together(matrices: Float | Composed, size: int) -> Float | Composed:
    """The same as one array, of few numbers."""
    return matrices.toarray() if isinstance(matrices, Composed) and size <= PUT_TOGETHER else matrices


def sum_of_products(factors: Sequence[Composed], rights: Sequence[Float]) -> Float:
    """Sum of the products of matrices of one component with right-hand sides (G, q, K), (G, r, K)."""
    rows = factors[0].rows
    G, K = len(rights[0]), rights[0].shape[2]
    total = np.zeros((G, rows.to_pieces.shape[0], K))
    for factor, right in zip(factors, rights, strict=True):
        given = np.stack([factor.columns.to_pieces @ own for own in np.ascontiguousarray(right)])
        for number, matrices in factor.pieces.items():
            place, size = rows.places[number]
            source, width = factor.columns.places[number]
            part = given[:, source].reshape(G, width, -1)
            made = part * matrices if size == width == 1 and not isinstance(matrices, Ragged) else matrices @ part
            total[:, place] += made.reshape(G, -1, K)
    return np.stack([rows.from_pieces @ own for own in total])
