"""Matrices of components by their pieces, which products put together where these are small.

They do what arrays (entries, m, q) do: entries are taken, axes exchanged, right-hand sides multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Index, as_slice

PUT_TOGETHER = 200  # numbers of a component up to which products take one matrix in place of its pieces

Lot: TypeAlias = tuple[Float, Index, Index]  # matrices that are zero but for the same rows and columns, and these


@dataclass(frozen=True)
class Ragged:
    """Matrices (entries, r, q) in lots that have the same rows and columns; an entry of no lot is 0.

    Attributes
    ----------
    lots : sequence of (ndarray, ndarray of int, ndarray of int)
    size : (int, int)
        r and q.
    lot_of, place : ndarray of int, (entries,)
        The lot of every entry, or -1, and where it is there.
    """

    lots: Sequence[Lot]
    size: tuple[int, int]
    lot_of: Index
    place: Index

    def __len__(self) -> int:
        return len(self.lot_of)

    def __getitem__(self, entries: slice | Index) -> Ragged:
        return Ragged(self.lots, self.size, self.lot_of[entries], self.place[entries])

    def swapaxes(self, _one: int, _other: int) -> Ragged:
        """Every matrix transposed."""
        turned = [(own.swapaxes(-1, -2), columns, rows) for own, rows, columns in self.lots]
        return replace(self, lots=turned, size=self.size[::-1])

    def __abs__(self) -> Ragged:
        return replace(self, lots=[(abs(own), rows, columns) for own, rows, columns in self.lots])

    def by_lot(self) -> Iterator[tuple[Index, Float, Index, Index]]:
        """Entries, their matrices, and which rows and columns these are."""
        for number in np.unique(self.lot_of[self.lot_of >= 0]).tolist():
            entries = np.flatnonzero(self.lot_of == number)
            own, rows, columns = self.lots[number]
            yield entries, own[as_slice(self.place[entries])], rows, columns

    def __matmul__(self, right: Float) -> Float:
        """Products with (entries, q, K), or of one matrix with all."""
        result = np.zeros((len(right), self.size[0], right.shape[2]))
        for entries, own, rows, columns in self.by_lot():
            chosen = entries if len(self) > 1 else np.arange(len(right))
            result[chosen[:, None], rows] = own @ right[chosen[:, None], columns]
        return result

    def toarray(self) -> Float:
        """All of it, (entries, r, q)."""
        if len(self) and self.lot_of[0] >= 0 and (self.lot_of == self.lot_of[0]).all():
            own = self.lots[self.lot_of[0]][0]
            if own.shape[1:] == self.size:
                return own[self.place]
        whole = np.zeros((len(self), *self.size))
        for entries, own, rows, columns in self.by_lot():
            if own.shape == whole.shape:
                return own
            whole[np.ix_(entries, rows, columns)] = own
        return whole


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of pieces among some numbers.

    Attributes
    ----------
    length : int
        How many numbers.
    bases : dict of int to (sparse array or None, int)
        Of every piece orthonormal columns (length, b * copies), copies run fastest, and b; None for the identity, of
        one copy.
    """

    length: int
    bases: Mapping[int, tuple[sparse.csc_array | None, int]]

    @cached_property
    def are_numbers(self) -> bool:
        """Whether they are the numbers themselves, of one piece."""
        return any(basis is None for basis, _ in self.bases.values())

    @cached_property
    def places(self) -> dict[int, tuple[slice, int]]:
        """For every piece where its coordinates lie, and how many each of its copies has."""
        widths = [self.length if basis is None else basis.shape[1] for basis, _ in self.bases.values()]
        stops = np.cumsum([0, *widths]).tolist()
        sizes = (size for _, size in self.bases.values())
        return {
            number: (slice(*own), size) for number, own, size in zip(self.bases, pairwise(stops), sizes, strict=True)
        }

    @cached_property
    def from_pieces(self) -> sparse.csr_array:
        """Numbers from coordinates, (length, coordinates)."""
        own = (sparse.eye_array(self.length) if basis is None else basis for basis, _ in self.bases.values())
        return sparse.csr_array(sparse.hstack([sparse.csc_array((self.length, 0)), *own]))

    @cached_property
    def to_pieces(self) -> sparse.csr_array:
        """The transpose."""
        return sparse.csr_array(self.from_pieces.T)


@dataclass(frozen=True)
class Composed:
    """Matrices of a component, (entries, r, q), those of its pieces between their coordinates.

    Attributes
    ----------
    rows, columns : Coordinates
        Among r and q numbers.
    pieces : dict of int to Ragged, (entries, b, k)
    entries : int
    """

    rows: Coordinates
    columns: Coordinates
    pieces: Mapping[int, Ragged]
    entries: int

    def __len__(self) -> int:
        return self.entries

    def __getitem__(self, places: slice | Index) -> Composed:
        count = np.arange(self.entries)[places].size
        return Composed(self.rows, self.columns, {i: own[places] for i, own in self.pieces.items()}, count)

    def at(self, place: int) -> list[Float]:
        """Of one entry the matrices of the pieces, about its numbers that are not empty."""
        found = (list(own[place : place + 1].by_lot()) for own in self.pieces.values())
        return [own[0][1][0] if own else np.zeros((0, 0)) for own in found]

    def swapaxes(self, _one: int, _other: int) -> Composed:
        """Every matrix transposed."""
        turned = {i: own.swapaxes(1, 2) for i, own in self.pieces.items()}
        return Composed(self.columns, self.rows, turned, self.entries)

    def __matmul__(self, right: Float) -> Float:
        """Products with (G, q, K)."""
        given = np.stack([self.columns.to_pieces @ own for own in np.ascontiguousarray(right)])
        total = np.zeros((len(right), self.rows.to_pieces.shape[0], right.shape[2]))
        for number, matrices in self.pieces.items():
            place, (source, width) = self.rows.places[number][0], self.columns.places[number]
            part = given[:, source].reshape(len(right), width, -1)
            total[:, place] = (matrices @ part).reshape(len(right), -1, right.shape[2])
        return np.stack([self.rows.from_pieces @ own for own in total])

    def put_together(self) -> Float | Composed:
        """The same as one array, of few numbers."""
        return self.toarray() if self.rows.length <= PUT_TOGETHER else self

    def toarray(self) -> Float:
        """All of it, (entries, r, q)."""
        if self.rows.are_numbers and self.columns.are_numbers:
            return next(iter(self.pieces.values())).toarray()
        whole = np.zeros((self.entries, self.rows.length, self.columns.length))
        for number, own in self.pieces.items():
            place, (source, width) = self.rows.places[number][0], self.columns.places[number]
            left, right = self.rows.from_pieces[:, place], self.columns.to_pieces[source]
            ahead = own.toarray() @ right.toarray().reshape(width, -1)
            whole += left.toarray() @ ahead.reshape(self.entries, left.shape[1], self.columns.length)
        return whole
