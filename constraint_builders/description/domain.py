"""What tables count, and where: combinations of levels at geounits or in areas, some of them structural zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Index
from constraint_builders.description.areas import Areas, Places
from constraint_builders.description.described import Compared, Described
from constraint_builders.description.reals import refuse_masked
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table, TableNames, axes_of


class OtherPlacesError(ValueError):
    """A tree of geounits is needed, and a problem has areas, or the other way round."""


@dataclass(frozen=True)
class Domain:
    """The kinds and the places that tables are about.

    Attributes
    ----------
    schema : Schema
    places : Spine or Areas
        A spine of one geounit where a problem has none.
    """

    schema: Schema
    places: Places

    @property
    def spine(self) -> Spine:
        """The tree of geounits.

        Raises
        ------
        OtherPlacesError
            For a problem of areas.
        """
        if not isinstance(self.places, Spine):
            raise OtherPlacesError(
                "a problem of areas has no spine: this needs a tree of geounits, Problem(..., spine=)"
            )
        return self.places

    @property
    def areas(self) -> Areas:
        """The areas.

        Raises
        ------
        OtherPlacesError
            For a problem of geounits.
        """
        if not isinstance(self.places, Areas):
            raise OtherPlacesError("a problem of geounits has no areas: this needs Problem(..., areas=)")
        return self.places

    @cached_property
    def leaves(self) -> Index:
        """The places that hold no others, of which detailed cells are kept apart."""
        if isinstance(self.places, Spine):
            return np.flatnonzero(self.places.child_counts == 0)
        return self.places.members[-1]

    @property
    def size(self) -> int:
        """Number of detailed cells of all leaves."""
        return self.leaves.size * prod(self.schema.shape)


class EmptyCells(Compared, Described):
    """Cells of every geounit that are empty.

    Parameters
    ----------
    axes : tuple of int
        The schema's variables that decide whether a cell is empty.
    empty : ndarray of bool, (geounits, *levels of `axes`)
    kinds : ndarray of int, (cells of `axes`,), optional
        A number for every cell that only those share that are empty in the same geounits, -1 for cells that are empty
        in all. By default as these geounits tell them apart; parts of a tree have those of the whole.
    """

    _same_in, _hashed_by = ("axes", "empty"), ("axes", "empty")

    def __init__(self, axes: tuple[int, ...], empty: Flags, kinds: Index | None = None) -> None:
        self.axes, self.empty, self._given_kinds = axes, empty, kinds

    @cached_property
    def kinds(self) -> Index:
        """The kind of every cell; see the parameters."""
        if self._given_kinds is not None:
            return self._given_kinds
        flags = self.empty.reshape(len(self.empty), -1)
        _, kinds = np.unique(np.packbits(flags, axis=0), axis=1, return_inverse=True)
        kinds = np.where(flags.all(axis=0), -1, kinds.ravel())
        return np.unique(kinds, return_inverse=True)[1].ravel() - int((kinds < 0).any())

    @cached_property
    def _first_of_kinds(self) -> Index:
        """A cell of every kind."""
        kinds, first = np.unique(self.kinds, return_index=True)
        return first[kinds >= 0]

    def empty_kinds(self, geounits: Index) -> Flags:
        """Which kinds are empty in some geounits, (geounits, kinds)."""
        return self.empty.reshape(len(self.empty), -1)[np.ix_(geounits, self._first_of_kinds)]


class StructuralZeros(EmptyCells):
    """Empty cells of every geounit, over the variables that they are told apart by.

    Parameters
    ----------
    names : TableNames
    zeros : mapping of name to ndarray of bool
        For tables, whether or not they were measured, which cells are empty. Counts are not negative, so every finer
        cell of an empty cell is empty too, in its geounit and in all below, in its area and all leaves there.

    Attributes
    ----------
    axes : tuple of int
        The schema's variables that decide whether a cell is empty.
    empty : ndarray of bool, (geounits, *levels of `axes`)

    Raises
    ------
    ValueError
        If an array is not of truth values or not of its table's shape.
    """

    def __init__(self, names: TableNames, zeros: Mapping[Any, Any]) -> None:
        schema, places, (layout, tables, levels) = names.schema, names.places, names.tables(zeros)
        axes = tuple(axes_of(tables))
        super().__init__(axes, np.zeros((places.size, *(schema.shape[axis] for axis in axes)), dtype=bool))
        self._schema = schema
        for name, table, level in zip(zeros, tables, levels, strict=True):
            refuse_masked(zeros[name], f"zeros of {name!r}")
            flags = np.asarray(layout.by_position(zeros[name], name, f"zeros of {name!r}"))
            if flags.dtype != bool or flags.shape != layout.shape(name):
                raise ValueError(
                    f"zeros of {name!r} must be truth values of shape {layout.shape(name)}: "
                    f"got {flags.dtype} {flags.shape}"
                )
            members = places.members[level]
            cells = flags.reshape(members.size, *table.shape)
            for position, factor in enumerate(table.factors, start=1):
                cells = np.take(cells, schema.groups_of(factor), axis=position)
            lengths = [schema.shape[axis] if axis in table.axes else 1 for axis in self.axes]
            turned = cells.transpose(0, *(1 + i for i in table.schema_order))
            self.empty[members] |= turned.reshape(members.size, *lengths)
        self.empty = places.inherited(self.empty)

    @classmethod
    def of(cls, schema: Schema, axes: tuple[int, ...], empty: Flags) -> StructuralZeros:
        """Those of some places, (places, *levels), by the variables that tell them apart; see the attributes."""
        zeros = object.__new__(cls)
        EmptyCells.__init__(zeros, axes, empty)
        zeros._schema = schema
        return zeros

    def cells(self, table: Table, geounits: NDArray[np.intp]) -> Flags:
        """Cells of a table that hold empty cells alone, (G, *cells) in the table's order, in geounits (G,)."""
        whole, empty = table.in_schema_order(), self.empty[geounits]
        for position, axis in enumerate(self.axes, start=1):
            groups = np.zeros(self._schema.shape[axis], dtype=np.intp)
            if axis in whole.axes:
                groups = np.array(self._schema.groups_of(whole.factors[whole.axes.index(axis)]))
            order = np.argsort(groups, kind="stable")
            starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
            empty = np.logical_and.reduceat(np.take(empty, order, axis=position), starts, axis=position)
        lengths = [n if axis in self.axes else 1 for axis, n in zip(whole.axes, whole.shape, strict=True)]
        cells = np.broadcast_to(empty.reshape(-1, *lengths), (len(empty), *whole.shape))
        return cells.transpose(0, *(1 + whole.axes.index(axis) for axis in table.axes))

    def detailed(self, geounits: NDArray[np.intp]) -> Flags:
        """Empty detailed cells of some geounits, flat: (geounits * detailed cells,)."""
        lengths = [n if axis in self.axes else 1 for axis, n in enumerate(self._schema.shape)]
        cells = self.empty[geounits].reshape(geounits.size, *lengths)
        return np.broadcast_to(cells, (geounits.size, *self._schema.shape)).ravel()
