"""Where every table sits in the flat vector that solvers work on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float, Index
from constraint_builders.description.described import Compared
from constraint_builders.description.labelled import (
    NODE,
    Dimension,
    Nodes,
    aligned,
    aligned_both_ways,
    names_of_columns,
    refuse_labels,
)
from constraint_builders.description.reals import real_array, refuse_masked
from constraint_builders.memory import SURE_CELLS, require_cells

Name = Hashable
Place = slice


class Naming(Protocol):
    """What names of blocks mean."""

    def canonical(self, name: Any) -> Name:
        """The one name of a block in all spellings; `ValueError` for a name that means nothing."""

    def dimensions(self, name: Any) -> tuple[Dimension, ...]:
        """The axes of a block in the order that this spelling of its name says."""


class Layout(Compared):
    """A flat vector cut into named blocks, each an array in C order.

    Parameters
    ----------
    names : sequence of str
        Names of the blocks, as the user asked for them.
    shapes : sequence of tuple of int
        Their shapes.
    naming : Naming, optional
        What names mean, so that ``"b * a"`` finds ``"a * b"``: arrays given under another spelling than the layout's
        are turned, arrays with labels are laid out by label.
    keys : sequence of str, optional
        The names in canonical form, where that is known already.

    Raises
    ------
    ValueError
        If two names are those of one table.
    MemoryError
        If the cells would not fit in memory.
    """

    _same_in, _hashed_by = ("names", "_shapes", "naming"), ("names", "_shapes")

    def __init__(
        self,
        names: Sequence[Name],
        shapes: Sequence[tuple[int, ...]],
        naming: Naming | None = None,
        keys: Sequence[Name] | None = None,
    ) -> None:
        self.names = tuple(names)
        self.naming = naming
        self._shapes = tuple(tuple(map(int, shape)) for shape in shapes)
        sizes = [prod(shape) for shape in self._shapes]
        if sum(sizes) > SURE_CELLS:
            for name, size in zip(self.names, sizes, strict=True):
                require_cells(size, f"table {name!r}")
            require_cells(sum(sizes), f"a layout of {len(sizes)} tables")
        self.sizes = np.array(sizes, dtype=np.intp)
        self.offsets = np.array([0, *accumulate(sizes)], dtype=np.intp)
        if keys is None:
            keys = list(map(naming.canonical, self.names)) if naming else self.names
        self._index = dict(zip(keys, range(len(keys)), strict=True))
        if len(self._index) < len(keys):
            second = next(index for index, key in enumerate(keys) if key in keys[:index])
            first, name = self.names[keys.index(keys[second])], self.names[second]
            raise ValueError(f"{first!r} and {name!r} are names of one table: give it once")

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return int(self.offsets[-1])

    def index(self, name: Name) -> int:
        """Position of the block called `name`, in any spelling.

        Raises
        ------
        ValueError
            If there is no such block.
        """
        try:
            return self._index[self.naming.canonical(name) if self.naming else name]
        except (KeyError, ValueError, TypeError):
            raise ValueError(f"no table {name!r} here: there are {_some(self.names)}") from None

    def shape(self, name: Name) -> tuple[int, ...]:
        """Shape of the block called `name`, its axes in the order of that name."""
        index = self.index(name)
        shape = self._shapes[index]
        return tuple(shape[i] for i in np.argsort(self.turn(name, index)))

    def turn(self, name: Any, index: int) -> tuple[int, ...]:
        """For every axis of a block its position among those of an array given under some spelling of its name."""
        if not self.naming or name == self.names[index]:
            return tuple(range(len(self._shapes[index])))
        given = [dimension.name for dimension in self.naming.dimensions(name)]
        return tuple(given.index(dimension.name) for dimension in self.naming.dimensions(self.names[index]))

    def slice(self, name: Name) -> Place:
        """Where the block called `name` sits in the flat vector."""
        return self.block(self.index(name))

    def block(self, index: int) -> Place:
        """Where the block at a position among `names` sits in the flat vector."""
        return Place(int(self.offsets[index]), int(self.offsets[index + 1]))

    def tables(self, vector: ArrayLike) -> dict[Any, NDArray[Any]]:
        """Cut a flat vector into its tables.

        Parameters
        ----------
        vector : array_like, (size,) or (size, K)

        Returns
        -------
        dict of ndarray
            Views of `vector` under their names, of each block's shape, its axes in the order of the name, with a
            trailing axis K for (size, K).

        Raises
        ------
        ValueError
            If the vector has another length.
        """
        if type(vector) is not np.ndarray:
            vector = self.flat(vector, "the vector", truth_values=True)
        if vector.ndim not in (1, 2) or vector.shape[0] != self.size:
            raise ValueError(
                f"this layout cuts vectors of shape ({self.size},) or ({self.size}, K): got {vector.shape}"
            )
        trailing = vector.shape[1:]
        blocks = zip(self.names, self._shapes, self.offsets[:-1], self.offsets[1:], strict=True)
        return TableArrays({name: vector[start:stop].reshape(shape + trailing) for name, shape, start, stop in blocks})

    def vector(self, tables: Mapping[Any, ArrayLike]) -> Float:
        """Lay tables out in one flat vector; the inverse of `tables`.

        Parameters
        ----------
        tables : mapping of str to array_like
            Every block of the layout by name, in any order, each of its block's shape, or all with one trailing axis K.
            Axes are in the order of the name that an array is given under; frames of pandas, arrays of xarray and
            mappings are laid out by their labels. With a geography also by geolevel, as in ``{"US": {"total": ...}}``.

        Returns
        -------
        ndarray, (size,) or (size, K)

        Raises
        ------
        ValueError
            If a table is unknown, missing, given twice, of the wrong shape, or holds anything but numbers; or if the
            columns of frames differ.
        """
        if not hasattr(tables, "items"):
            example = f"{{{self.names[0]!r}: ...}}" if self.names else "{}"
            raise TypeError(f"give tables by name, as in {example}: got {type(tables).__name__}")
        arrays: dict[int, tuple[Any, NDArray[np.float64]]] = {}
        columns: dict[Any, tuple[str, ...] | None] = {}
        has_places = isinstance(next(iter(self.names), None), tuple)
        for name, values in (by_table(tables) if has_places else tables).items():
            index, what = self.index(name), f"table {name!r}"
            if index in arrays:
                raise ValueError(f"table {self.names[index]!r} is given twice: give it once")
            arrays[index] = name, real_array(self.by_position(values, name, what), what)
            if arrays[index][1].ndim > len(self._shapes[index]):
                columns[name] = names_of_columns(values)
        missing = [name for index, name in enumerate(self.names) if index not in arrays]
        if missing:
            raise ValueError(f"no values for {_some(missing)}: give every table of the layout")
        if len(set(columns.values())) > 1:
            first, *others = columns
            other = next(name for name in others if columns[name] != columns[first])
            raise ValueError(f"tables {first!r} and {other!r} have other columns: give both the same, in one order")
        trailing = self._trailing(list(arrays.values()))
        vector = np.empty((self.size, *trailing))
        for index, (name, array) in arrays.items():
            expected = self.shape(name) + trailing
            if array.shape != expected:
                raise ValueError(f"table {name!r} must have shape {expected}: got {array.shape}")
            turn = self.turn(name, index)
            turned = array.transpose(*turn, *range(len(turn), array.ndim))
            vector[self.offsets[index] : self.offsets[index + 1]] = turned.reshape(-1, *trailing)
        return vector

    def _trailing(self, arrays: Sequence[tuple[Any, NDArray[Any]]]) -> tuple[int, ...]:
        """The axis that most arrays, (*cells, ...), have behind those of their tables; none where as many have none."""
        shapes = [(array.shape, self.shape(name)) for name, array in arrays]
        found = Counter(given[len(own) :][:1] for given, own in shapes if given[: len(own)] == own)
        return max(found, key=lambda axis: (found[axis], -len(axis)), default=())

    def flat(self, values: Any, what: str, truth_values: bool = False) -> Float:
        """Numbers over the whole layout that somebody gives as one array, its first axis the cells.

        Parameters
        ----------
        values : array_like, (size,) or (size, K), or mapping of tables
            Labels of the first axis are followed where the cells are nodes, and refused where they have no names. What
            has a layout of its own, as an estimate has, is laid out by its tables.
        what : str
            What an error calls it.
        truth_values : bool
            Whether arrays of truth values count as 0 and 1.

        Raises
        ------
        ValueError
            If labels or tables do not fit, or it holds anything but numbers; shapes are the caller's to say.
        """
        are_nodes = isinstance(self.naming, Nodes)
        if isinstance(values, Mapping) and (not are_nodes or {*values} == {*self.names}):
            return self.vector(values)
        own = getattr(values, "layout", None)
        if isinstance(own, Layout) and own != self:
            if own.naming != self.naming:
                raise ValueError(f"{what} is over tables of other cells: give numbers over {self!r}")
            return self.vector(own.tables(np.asarray(values)))
        if are_nodes:
            values = self.by_position(values, NODE, what)
        return real_array(values, what, truth_values)

    def one_vector(self, values: Any, what: str) -> Float:
        """What `flat` reads, of shape (size,); `ValueError` for another one."""
        vector = self.flat(values, what)
        if vector.shape != (self.size,):
            cells = f"the cells of {_some(self.names)} in a row"
            raise ValueError(f"{what} must have shape ({self.size},): got {vector.shape}; it holds {cells}")
        return vector

    def refuse(self, cells: NDArray[Any], why: str, *said: Any) -> None:
        """Raise `ValueError` for the first of some cells, flags (size,) or positions (k,), if there is one.

        Parameters
        ----------
        cells : ndarray
        why : str
            What is wrong, as `str.format` takes it: with the cell in words, and `said`.
        *said
            Of arrays, (size,), what they hold of that cell.
        """
        places = np.flatnonzero(cells) if cells.dtype == bool else cells
        if places.size:
            own = (each[places[0]] if isinstance(each, np.ndarray) else each for each in said)
            raise ValueError(why.format(self.describe(int(places[0])), *own))

    def positions(self, cells: Any) -> Index:
        """Positions of cells in the flat vector that somebody lists, (k,).

        Raises
        ------
        ValueError
            If they are no list of whole numbers, have labels of their own, or one is no position.
        """
        refuse_masked(cells, "cells")
        refuse_labels(cells, "cells")
        positions = np.asarray(cells)
        if positions.ndim != 1 or (positions.size and not np.issubdtype(positions.dtype, np.integer)):
            raise ValueError(f"cells must be a list of positions: got {positions.dtype} of shape {positions.shape}")
        outside = positions[(positions < 0) | (positions >= self.size)]
        if outside.size:
            raise ValueError(f"cell {outside[0]} is not in the layout: positions run from 0 to {self.size - 1}")
        return positions.astype(np.intp)

    def square(self, values: Any, what: str) -> Any:
        """A matrix over the whole layout both ways: by labels where the cells are nodes, as `flat` reads them."""
        if not isinstance(self.naming, Nodes):
            return values
        return aligned_both_ways(values, self.naming.dimensions(NODE)[0], what)

    def by_position(self, values: Any, name: Any, what: str) -> Any:
        """Values given under some spelling of a block's name, in its order: by their labels where they have some."""
        return aligned(values, partial(self.naming.dimensions, name), what) if self.naming else values

    def turned(self, vector: NDArray[Any], name: Any) -> NDArray[Any]:
        """The cells of a block of a flat vector, (cells,), in the order of some spelling of its name."""
        index = self.index(name)
        cells = vector[self.block(index)].reshape(self._shapes[index])
        return cells.transpose(np.argsort(self.turn(name, index))).ravel()

    def chosen(self, blocks: Sequence[int]) -> Layout:
        """The layout of some blocks alone, by their positions among `names`."""
        names, shapes = [self.names[i] for i in blocks], [self._shapes[i] for i in blocks]
        return Layout(names, shapes, self.naming)

    def cells(self, blocks: Sequence[int]) -> NDArray[np.intp]:
        """Where the cells of some blocks sit in the flat vector, block after block."""
        places = [np.arange(self.offsets[i], self.offsets[i + 1], dtype=np.intp) for i in blocks]
        return np.concatenate([np.zeros(0, dtype=np.intp), *places])

    def locate(self, position: int) -> tuple[Name, tuple[int, ...]]:
        """Name of the block, and the cell within it, at a position of the flat vector."""
        index = int(np.searchsorted(self.offsets, position, side="right")) - 1
        cell = np.unravel_index(position - int(self.offsets[index]), self._shapes[index])
        return self.names[index], tuple(int(i) for i in cell)

    def describe(self, position: int) -> str:
        """Name a cell of the flat vector for a message: ``"table 'age * sex', cell (age=3, sex=male)"``."""
        name, cell = self.locate(position)
        return f"table {name!r}, cell {self.labels(position)}" if cell else f"table {name!r}"

    def labels(self, position: int) -> str:
        """The labels of a cell of the flat vector, for instance ``"(age=3, sex=male)"``; its indices without any."""
        name, cell = self.locate(position)
        if not self.naming:
            return str(cell)
        along = zip(self.naming.dimensions(name), cell, strict=True)
        return f"({', '.join(f'{dimension.name}={dimension.labels[i]}' for dimension, i in along)})"

    def __repr__(self) -> str:
        return f"Layout({len(self.names)} tables, {self.size:,} cells: {_some(self.names)})"


def by_table(tables: Mapping[Any, Any]) -> dict[Any, Any]:
    """What is said of (geolevel, table), some of it perhaps by geolevel: ``{geolevel: {table: ...}}``.

    Raises
    ------
    ValueError
        If something is said of one of them in both ways.
    """
    found: dict[Any, Any] = {}
    for name, values in tables.items():
        whole_level = isinstance(values, Mapping) and not isinstance(name, tuple)
        for key, own in [((name, table), own) for table, own in values.items()] if whole_level else [(name, values)]:
            if key in found:
                raise ValueError(f"table {key!r} is given twice: give it once")
            found[key] = own
    return found


class TableArrays(dict[Any, NDArray[Any]]):
    """Arrays by the names of their tables; where there is no such table the error says which there are."""

    def __missing__(self, name: Any) -> NDArray[Any]:
        raise KeyError(f"no table {name!r} here: there are {_some(list(self))}")


def _some(names: Sequence[Name], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
