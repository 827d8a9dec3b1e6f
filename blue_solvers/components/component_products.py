"""Components, of contrasts and group sums in slots, what tables see of them, and products with their matrices.

Matrices of components are kept by their pieces; products put these together where they are small. They do what arrays
(entries, m, q) do: entries are taken, axes exchanged, right-hand sides multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.grouping import Grouping
from blue_solvers.components.orthogonal import squares_of_sums
from blue_solvers.components.reflections import Basis
from constraint_builders import Schema
from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.description.table import Table

PUT_TOGETHER = 200  # numbers of a component up to which products take one matrix in place of its pieces

Lot: TypeAlias = tuple[Float, Index, Index]  # matrices that are zero but for the same rows and columns, and these
Number = TypeVar("Number", bound=np.generic)


class Component:
    """Contrasts along some variables, group sums along the others.

    Parameters
    ----------
    axes : sequence of Grouping
        Of every variable in use, or of what a table has of it.
    contrasts : sequence of bool
        Along which of them it is contrasts.

    Attributes
    ----------
    slots : tuple of slice
        Its part of an array of slots, in which contrasts come first, group sums last.
    size : int
        Number of group sums, m.
    place : tuple of slice
        Its part of slots of many geounits.
    """

    def __init__(self, axes: Sequence[Grouping], contrasts: Sequence[bool]) -> None:
        pairs = [(g.levels - g.sizes.size, g.sizes.size, own) for g, own in zip(axes, contrasts, strict=True)]
        self.contrasts = tuple(contrasts)
        self.slots = tuple(slice(0, first) if own else slice(first, None) for first, _, own in pairs)
        self.size, self.place = prod(count for _, count, own in pairs if not own), (slice(None), *self.slots)
        kept = [i for i, contrast in enumerate(contrasts, 1) if not contrast]
        # Axes of (G, ..., K) with those that are no contrasts first:
        self._order, self._kept = (0, *kept, *(i for i in range(1, len(contrasts) + 2) if i not in kept)), len(kept) + 1

    def to_front(self, array: NDArray[Number]) -> NDArray[Number]:
        """The axes that are no contrasts as one, and all others: (G, ..., K) to (G, size, -1)."""
        turned = array.transpose(self._order)
        return turned.reshape(len(array), prod(turned.shape[1 : self._kept]), -1)

    def multiply(self, matrices: Float | Composed, source: Float, target: Float) -> None:
        """Add matrices (G or 1, r, q) times its part of some coordinates, (G, ..., K), to its part of others."""
        part = target.transpose(self._order)
        part += (matrices @ self.to_front(source)).reshape(part.shape)


class TableMap:
    """What a table sees of the variables in use.

    Parameters
    ----------
    schema : Schema
    groupings : sequence of Grouping
        Of the variables in use.
    components : sequence of Component
        All that these have.
    table : Table

    Attributes
    ----------
    seen : list of int
        The components that it sees, by their numbers: it keeps every variable whole that they are contrasts along.
    axes : list of Grouping
        Its coordinates along each: slots of a variable that it keeps whole, of others cells, each a group by itself.
    sums : list of ndarray, (groups of `axes`, r)
        What its coordinates have of orthonormal group sums along each.
    """

    def __init__(
        self, schema: Schema, groupings: Sequence[Grouping], components: Sequence[Component], table: Table
    ) -> None:
        self.shape, self.lengths = table.shape, tuple(own.levels for own in groupings)
        self.axes: list[Grouping] = []
        self.sums: list[Float] = []
        factors = dict(zip(table.axes, table.factors, strict=True))
        for own in groupings:
            factor = factors.get(own.axis, "")
            if own.has_contrasts and factor == schema.names[own.axis]:
                self.axes.append(own)
                self.sums.append(np.eye(own.sizes.size))
            else:
                cells = np.array(schema.groups_of(factor)) if factor else np.zeros(own.levels, dtype=np.intp)
                self.sums.append(np.zeros((cells.max() + 1, own.sizes.size)))
                self.sums[-1][cells, own.groups] = np.sqrt(own.sizes)[own.groups]
                self.axes.append(Grouping(own.axis, np.arange(len(self.sums[-1]))))
        summed = {place for place, own in enumerate(self.axes) if not own.has_contrasts}
        self.seen = [i for i, own in enumerate(components) if not any(own.contrasts[place] for place in summed)]

    def part(self, component: Component) -> Component:
        """A component that it sees, among its coordinates."""
        return Component(self.axes, component.contrasts)


class TableAccess:
    """Coordinates of a table, and what components make of them.

    Parameters
    ----------
    table : TableMap
    matrices : iterable of (Component, Composed)
        Of components that the table sees what multiplies their part of its coordinates, (entries, m, k).
    """

    def __init__(self, table: TableMap, matrices: Iterable[tuple[Component, Composed]]) -> None:
        self._table, self._basis = table, Basis(table.axes)
        self._lengths = tuple(own.levels for own in table.axes)
        pairs = zip(table.lengths, self._lengths, strict=True)
        self._place = (slice(None), *(slice(slots - length, None) for slots, length in pairs))
        own = [(component, table.part(component), found) for component, found in matrices]
        several = [(one, part, found) for one, part, found in own if one.size > 1]
        self._several = [(one, part, m.toarray() if one.size <= PUT_TOGETHER else m) for one, part, m in several]
        # Components of one group sum are multiplied by a number each, all of them at once.
        numbers = [(part, found.toarray()[:, :, 0]) for one, part, found in own if one.size == 1]
        self._number_of = np.zeros(self._lengths if numbers else 0, dtype=np.intp)
        for i, (part, _) in enumerate(numbers, 1):
            self._number_of[part.slots] = i
        nothing = np.zeros((own[0][2].entries if own else 0, 1))
        self._numbers = np.concatenate([nothing, *(found for _, found in numbers)], axis=1)

    def coordinates(self, cells: Float) -> Float:
        """From cells (G, *shape, K) to coordinates (G, ..., K), a copy."""
        array = np.array(cells, order="C", copy=True).reshape(len(cells), *self._lengths, cells.shape[-1])
        self._basis.to_slots(array)
        return array

    def cells(self, coordinates: Float) -> Float:
        """The inverse of `coordinates`, (G, ..., K), and its transpose; it works in their place."""
        self._basis.to_cells(coordinates)
        return coordinates.reshape(len(coordinates), *self._table.shape, coordinates.shape[-1])

    def to_slots(self, coordinates: Float, entries: Index) -> Float:
        """Slots (G, ..., K) from coordinates, each geounit's by the matrices of its entry."""
        slots = np.zeros((len(coordinates), *self._table.lengths, coordinates.shape[-1]))
        self.add_to_slots(coordinates, entries, slots)
        return slots

    def add_to_slots(self, coordinates: Float, entries: Index, slots: Float) -> None:
        """Add to slots (G, ..., K) what coordinates make; these are used up."""
        chosen = _one_or_all(entries)
        for component, part, matrices in self._several if len(slots) else ():
            component.multiply(matrices[chosen], coordinates[part.place], slots[component.place])
        if len(slots) and self._number_of.size:
            coordinates *= self._factors(chosen)
            slots[self._place] += coordinates

    def from_slots(self, slots: Float, entries: Index) -> Float:
        """The transpose: coordinates (G, ..., K) from slots, of geounits whose coefficients are `entries`, (G,)."""
        coordinates, chosen = np.zeros((len(slots), *self._lengths, slots.shape[-1])), _one_or_all(entries)
        if len(slots) and self._number_of.size:
            np.multiply(self._factors(chosen), slots[self._place], out=coordinates)
        for component, part, matrices in self._several if len(slots) else ():
            component.multiply(matrices[chosen].swapaxes(1, 2), slots[component.place], coordinates[part.place])
        return coordinates

    def _factors(self, entries: slice | Index) -> Float:
        """The coefficients of some entries, (G or 1, ..., 1), that components of one number have."""
        return self._numbers[entries].take(self._number_of, axis=1)[..., None]


def _one_or_all(entries: Index) -> slice | Index:
    """A single entry of (G,) where all are the same, and a slice of those that follow one another."""
    if entries.size and (entries == entries[0]).all():
        return slice(int(entries[0]), int(entries[0]) + 1)
    return as_slice(entries)


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
        """Some entries, a slice or (k,)."""
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
        first = int(self.lot_of[0]) if len(self) else -1
        if first >= 0 and (self.lot_of == first).all() and self.lots[first][0].shape[1:] == self.size:
            return self.lots[first][0][self.place]
        whole = np.zeros((len(self), *self.size))
        for entries, own, rows, columns in self.by_lot():
            whole[np.ix_(entries, rows, columns)] = own
        return whole


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of pieces among some numbers.

    Attributes
    ----------
    length : int
        How many numbers.
    bases : dict of int to (sparse array, int)
        Of every piece orthonormal columns (length, b * copies), copies run fastest, and b.
    are_numbers : bool
        Whether they are the numbers themselves, of one piece.
    """

    length: int
    bases: Mapping[int, tuple[sparse.csc_array, int]]
    are_numbers: bool

    @cached_property
    def places(self) -> dict[int, tuple[slice, int]]:
        """For every piece where its coordinates lie, and how many each of its copies has."""
        widths = [basis.shape[1] for basis, _ in self.bases.values()]
        stops = np.cumsum([0, *widths]).tolist()
        return {
            number: (slice(*own), size)
            for (number, (_, size)), own in zip(self.bases.items(), pairwise(stops), strict=True)
        }

    @cached_property
    def from_pieces(self) -> sparse.csr_array:
        """Numbers from coordinates, (length, coordinates)."""
        own = (basis for basis, _ in self.bases.values())
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

    def __getitem__(self, places: slice | Index) -> Composed:
        """Some entries, a slice or (k,)."""
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

    def squares_of_sums(self, W: Float | sparse.csr_array, places: Index) -> Float:
        """Diagonal of W M M' W' for the matrices M of some entries, (entries, rows of W)."""
        if self.rows.are_numbers:
            return squares_of_sums(W, next(iter(self.pieces.values()))[places].toarray())
        squares = np.zeros((W.shape[0], len(places)))
        turned = sparse.csc_array(sparse.csr_array(W) @ self.rows.from_pieces)
        for number, (place, size) in self.rows.places.items():
            matrices = self.pieces[number][places]
            if size == 1:  # nothing cancels
                squares += np.outer(turned[:, place].power(2).sum(axis=1), matrices.toarray() ** 2)
                continue
            own = sparse.coo_array(turned[:, place])
            copies = own.shape[1] // size
            keys, found = np.unique(own.row * copies + own.col % copies, return_inverse=True)
            taken = sparse.csr_array((own.data, (found, own.col // copies)), shape=(keys.size, size))
            rows, starts = np.unique(keys // copies, return_index=True)
            for entries, roots, kept, _ in matrices.by_lot() if keys.size else ():
                sums = np.add.reduceat(squares_of_sums(taken[:, kept], roots), starts, axis=1)
                squares[np.ix_(rows, entries)] += sums.T
        return squares.T
