"""Matrices of components by their pieces, which products put together where these are small.

They do what arrays (entries, m, q) do: entries are taken, axes exchanged, right-hand sides multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import chunks
from blue_solvers.components.orthogonal import SMALL
from blue_solvers.components.tree.messages import Message
from constraint_builders.arrays import Float, Index

PUT_TOGETHER = 200  # numbers of a component up to which products take one matrix in place of its pieces
AT_ONCE = 1 << 20  # numbers that rows times roots are worked out to at a time


class Ragged:
    """Matrices (entries, r, q) of which each is zero but for some rows and columns.

    Parameters
    ----------
    shape : (int, int)
        r and q.
    matrices : sequence of ndarray
    rows, columns : sequence of ndarray of int
        Of every matrix, where its rows and columns belong.
    """

    def __init__(
        self, shape: tuple[int, int], matrices: Sequence[Float], rows: Sequence[Index], columns: Sequence[Index]
    ) -> None:
        self._shape, self.matrices, self.rows, self.columns = shape, list(matrices), list(rows), list(columns)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Entries, r, q."""
        return len(self.matrices), *self._shape

    def __len__(self) -> int:
        return len(self.matrices)

    def __getitem__(self, places: slice | Index) -> Ragged:
        numbers = np.arange(len(self))[places].tolist()
        parts = ([own[i] for i in numbers] for own in (self.matrices, self.rows, self.columns))
        return Ragged(self._shape, *parts)

    def swapaxes(self, _one: int, _other: int) -> Ragged:
        """Every matrix transposed."""
        return Ragged(self._shape[::-1], [own.T for own in self.matrices], self.columns, self.rows)

    def __matmul__(self, right: Float) -> Float:
        """Products with (entries, q, K), or of one matrix with all."""
        result = np.zeros((len(right), self._shape[0], right.shape[2]))
        for number, own in enumerate(right):
            i = number if len(self) > 1 else 0
            result[number, self.rows[i]] = self.matrices[i] @ own[self.columns[i]]
        return result

    def __mul__(self, scales: Float) -> Ragged:
        """Every matrix times a number, (entries, 1, 1)."""
        scaled = [own * float(scale) for own, scale in zip(self.matrices, np.ravel(scales), strict=True)]
        return Ragged(self._shape, scaled, self.rows, self.columns)

    def __abs__(self) -> Ragged:
        return Ragged(self._shape, [abs(own) for own in self.matrices], self.rows, self.columns)

    def toarray(self) -> Float:
        """All of it, (entries, r, q)."""
        whole = np.zeros(self.shape)
        for own, matrix, rows, columns in zip(whole, self.matrices, self.rows, self.columns, strict=True):
            own[np.ix_(rows, columns)] = matrix
        return whole


Batch = Float | Ragged


def absolute(batch: Batch) -> Batch:
    """Absolute values of all entries."""
    return abs(batch) if isinstance(batch, Ragged) else np.abs(batch)


def array_of(batch: Batch) -> Float:
    """All of it, (entries, r, q)."""
    return batch.toarray() if isinstance(batch, Ragged) else batch


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
        if not bases:
            nothing = sparse.csr_array((length, 0))
            return cls(length, {}, sparse.csr_array(nothing.T), nothing)
        together = sparse.csr_array(sparse.hstack([basis for basis, _ in bases.values()]))
        return cls(length, places, sparse.csr_array(together.T), together)


@dataclass(frozen=True)
class PieceMessages:
    """What is known of every piece of a component."""

    pieces: Sequence[Message]

    @property
    def arrays(self) -> tuple[Float, ...]:
        """All of them."""
        return tuple(array for own in self.pieces for array in own.arrays)


@dataclass(frozen=True)
class PieceRoots:
    """A square root of the covariance of every piece of a component, (b, b), about its numbers that are not empty."""

    pieces: Sequence[Float]


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

    def at(self, place: int) -> PieceRoots:
        """Of one entry the matrices of the pieces."""
        return PieceRoots(
            [own.matrices[place] if isinstance(own, Ragged) else own[place] for own in self.pieces.values()]
        )

    def swapaxes(self, _one: int, _other: int) -> Composed:
        """Every matrix transposed."""
        turned = {i: own.swapaxes(1, 2) for i, own in self.pieces.items()}
        return Composed(self.columns, self.rows, turned, self.entries)

    def __matmul__(self, right: Float) -> Float:
        """Products with (G, q, K)."""
        return sum_of_products([self], [right])

    def toarray(self) -> Float:
        """All of it, (entries, r, q)."""
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

    def squares(self, W: sparse.csr_array, least: float) -> Float:
        """Diagonal of W root root' W' with these as roots, (entries, rows of W).

        0 where it is below the square of `least` times what its root is summed from.
        """
        squares, sizes = np.zeros((2, W.shape[0], len(self)))
        turned = sparse.csc_array(sparse.csr_array(W) @ self.rows.from_pieces)
        numbers = [number for number, (_, size) in self.rows.places.items() if size == 1]
        if numbers:  # of one number each: nothing cancels
            spans = [np.arange(turned.shape[1])[self.rows.places[number][0]] for number in numbers]
            piece_of = np.repeat(np.arange(len(spans)), [own.size for own in spans])
            adding = sparse.csr_array((np.ones(piece_of.size), (np.arange(piece_of.size), piece_of)))
            deviations = np.concatenate([array_of(self.pieces[number])[:, 0] for number in numbers], axis=1)
            squares += (turned[:, np.concatenate(spans)].power(2) @ adding) @ deviations.T**2
            sizes += squares
        for number, (place, size) in self.rows.places.items():
            if size == 1:
                continue
            apart = turned[:, place].toarray().reshape(len(squares), size, -1).swapaxes(1, 2)
            row, copy = np.nonzero(apart.any(axis=2))
            if not row.size:
                continue
            rows, starts = np.unique(row, return_index=True)
            taken = sparse.csr_array(apart[row, copy]) if size > SMALL else apart[row, copy]
            factor = self.pieces[number]
            for given, own, roots in ((squares, taken, factor), (sizes, abs(taken), absolute(factor))):
                for entries, found in _squares(own, roots):
                    given[rows, entries] += np.add.reduceat(found, starts, axis=0)
        return np.where(squares > least**2 * sizes, squares, 0.0).T


def together(matrices: Float | Composed, size: int) -> Float | Composed:
    """The same as one array, of few numbers."""
    return matrices.toarray() if isinstance(matrices, Composed) and size <= PUT_TOGETHER else matrices


def _squares(taken: sparse.csr_array | Float, roots: Batch) -> Iterator[tuple[slice, Float]]:
    """Of some entries at a time the squared lengths of rows times roots, (rows, entries); cancelled before squaring."""
    if isinstance(roots, Ragged):
        for entry, (matrix, kept) in enumerate(zip(roots.matrices, roots.rows, strict=True)):
            yield slice(entry, entry + 1), ((taken[:, kept] @ matrix) ** 2).sum(axis=1)[:, None]
        return
    size = roots.shape[1]
    for some in chunks(len(roots), max(1, AT_ONCE // max(1, taken.shape[0] * size))):
        side_by_side = roots[some].transpose(1, 0, 2).reshape(size, -1)
        yield some, ((taken @ side_by_side) ** 2).reshape(taken.shape[0], len(roots[some]), size).sum(axis=2)


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
