"""What has labels is read by them, or refused: frames of pandas, arrays of xarray, mappings, named tuples.

Where the entries along an axis have names, an index, coordinates or keys are these names, numbers too; an index that is
nothing but 0, 1, 2, ... stands for positions only where nothing has names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Index

NODE = "node"  # the axis of problems that are given by a matrix
LEAF_AXIS = "leaf"  # of what is said of every leaf of areas
OF_ANY_NAME = ([NODE], [LEAF_AXIS])  # whatever an index of theirs is called
PLAIN = {float, int, str}  # kinds of entries that have no labels of their own
NAMES = {int, str}  # kinds of names of which none is missing
INSTEAD = "to give values by their positions write .to_numpy()"


@dataclass(frozen=True)
class Dimension:
    """One axis of a table: what varies along it, and the labels of its cells."""

    name: str
    labels: tuple[str, ...]


def has_labels(values: Any) -> bool:
    """Whether an array, or one in a list, says what its axes or their entries are, otherwise than by positions."""
    if _is_data_array(values):
        return bool(values.ndim)
    if _is_frame(values):
        return not all(_is_numbered(index) for index in _indexes(values))
    if _is_named_tuple(values):
        return True
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype == object and values.ndim):
        return not PLAIN.issuperset(map(type, values)) and any(map(has_labels, values))
    return hasattr(values, "columns")


def refuse_labels(values: Any, what: str) -> None:
    """Raise `ValueError` for an array with labels, where nothing says which positions they stand for."""
    if has_labels(values):
        raise ValueError(
            f"{what} has labels, which say nothing here: give it to problem.vector as a table, which is laid out by "
            f"label, or, {INSTEAD}"
        )


def aligned(values: Any, dimensions_of: Callable[[], Sequence[Dimension]], what: str) -> Any:
    """Values in the order of some dimensions: those that have labels by their labels, others as they are.

    Parameters
    ----------
    values : array_like or mapping
        Where it has an index, as in pandas, the index and the columns must together have one level for each dimension,
        or the index alone has, and the columns are a trailing axis. Where it has dimensions, as in xarray, they must be
        these, and labels be coordinates of their names. The keys of a mapping, or the fields of a named tuple, are the
        labels of a single dimension.
    dimensions_of : callable
        Gives the dimensions; asked for labelled values only.
    what : str
        What an error calls the values.

    Returns
    -------
    array_like
        `values` where they have no labels, otherwise an array of the shape of the dimensions, and a trailing axis.

    Raises
    ------
    ValueError
        If labels are unknown, missing or repeated, or do not tell which dimension they belong to.
    """
    if isinstance(values, np.ndarray):
        return values
    if _is_named_tuple(values):
        values = values._asdict()
    if isinstance(values, Mapping):
        return _mapping(values, dimensions_of(), what)
    if _is_data_array(values):
        return _data_array(values, dimensions_of(), what)
    if _is_frame(values):
        return _frame(values, dimensions_of(), what)
    if hasattr(values, "columns"):
        raise ValueError(f"{what} is a frame without an index, whose rows say nothing: {INSTEAD}")
    if has_labels(values):
        raise ValueError(f"{what} is a list of arrays with labels of their own: give one array or frame, or, {INSTEAD}")
    return values


def aligned_both_ways(values: Any, dimension: Dimension, what: str) -> Any:
    """A matrix in the order of a dimension along both axes; errors are those of `aligned`."""
    if not _is_frame(values):
        return aligned(values, lambda: (dimension,), what)
    places = (_order([_numbers(list(index), dimension, what)], [dimension], what) for index in _indexes(values))
    return values.to_numpy()[np.ix_(*places)]


def names_of_columns(values: Any) -> tuple[str, ...] | None:
    """What the columns of a frame are called; None where they are numbered, or there are none."""
    if not _is_frame(values) or not hasattr(values, "columns") or _is_numbered(values.columns):
        return None
    return tuple(map(str, values.columns))


def read_names(values: Any, what: str) -> list[Any]:
    """Names in the order in which they are given.

    Raises
    ------
    TypeError
        If they have no order, as a set, or are no list of names, as text, a mapping or a frame.
    ValueError
        If they are labelled themselves.
    """
    refuse_sets(values, what)
    is_list = hasattr(values, "__iter__") and getattr(values, "ndim", 1) == 1
    if isinstance(values, str | bytes | Mapping) or hasattr(values, "columns") or not is_list:
        raise TypeError(f"{what} must be a list: got {' '.join(repr(values).split()):.60}")
    if has_labels(values):
        raise ValueError(f"{what} have labels beside their values: write .to_numpy() for the values")
    return list(values.tolist() if hasattr(values, "tolist") else values)


def read_texts(values: Any, what: str) -> list[str]:
    """Names as text, of numbers the digits; as `read_names`, and `ValueError` for one that is missing or in bytes."""
    names = read_names(values, what)
    if not set(map(type, names)) <= NAMES:
        for position, name in enumerate(names):
            if is_missing(name) or isinstance(name, bytes):
                how = "in bytes: decode it" if isinstance(name, bytes) else "missing: name it"
                raise ValueError(f"{what}: {name!r} at position {position} is {how}")
    return list(map(str, names))


def is_missing(name: Any) -> bool:
    """None, NaN, or a missing value of a frame's own kind, which does not equal itself either."""
    try:
        return name is None or not bool(name == name)
    except (TypeError, ValueError):
        return True


def refuse_sets(values: Any, what: str) -> None:
    """Raise `TypeError` for a set, whose order is another in every run, where the order counts."""
    if isinstance(values, set | frozenset):
        raise TypeError(f"{what} are a set, whose order is no order: give a list, such as sorted(...)")


def row_labels(values: Any, what: str) -> tuple[tuple[str, ...] | None, Any]:
    """What the index of a frame says of its rows, None without one, and its values.

    Raises
    ------
    ValueError
        If a label is repeated.
    """
    if not _is_frame(values):
        return None, values
    labels = tuple(map(str, values.index))
    if len(set(labels)) < len(labels):
        raise ValueError(f"{what} has a row twice: labels of its index are unique")
    return labels, values.to_numpy()


@dataclass(frozen=True)
class Nodes:
    """The axis of a table of nodes, of a problem that is given by a matrix: numbers where they have no labels."""

    size: int
    labels: tuple[str, ...] | None

    def canonical(self, name: Any) -> Any:
        """Names as they are."""
        return name

    def dimensions(self, name: Any) -> tuple[Dimension, ...]:
        """The one dimension, whatever the table is called."""
        return (Dimension(NODE, tuple(map(str, range(self.size))) if self.labels is None else self.labels),)


def _is_data_array(values: Any) -> bool:
    """Whether axes have names, as in arrays of xarray, and in its variables, which have no coordinates."""
    return hasattr(values, "dims") and hasattr(values, "values")


def _is_named_tuple(values: Any) -> bool:
    return isinstance(values, tuple) and hasattr(values, "_asdict")


def _is_frame(values: Any) -> bool:
    return hasattr(getattr(values, "index", None), "nlevels") and not _is_data_array(values)


def _indexes(values: Any) -> list[Any]:
    """The index, and of a frame the columns."""
    return [values.index, *([values.columns] if hasattr(values, "columns") else [])]


def _is_numbered(index: Any) -> bool:
    """Whether an index is nothing but the positions."""
    return index.nlevels == 1 and index.name is None and np.array_equal(index.to_numpy(), np.arange(len(index)))


def _mapping(values: Mapping[Any, Any], dimensions: Sequence[Dimension], what: str) -> list[Any]:
    if len(dimensions) != 1:
        raise ValueError(f"{what} is a mapping, and has {[d.name for d in dimensions]}: give an array, or a frame")
    given = list(values.values())
    return [given[i] for i in _order([_numbers(list(values), dimensions[0], what)], dimensions, what)]


def _data_array(values: Any, dimensions: Sequence[Dimension], what: str) -> NDArray[Any]:
    wanted = [dimension.name for dimension in dimensions]
    names = wanted if wanted in OF_ANY_NAME and values.ndim == 1 else [str(name) for name in values.dims]
    if sorted(names) != sorted(wanted):
        raise ValueError(f"{what} must have the dimensions {wanted}: got {names}")
    array, coordinates = np.asarray(values.values), getattr(values, "coords", {})
    for axis, name in enumerate(values.dims):
        dimension = dimensions[wanted.index(names[axis])]
        beside = [other for other, own in coordinates.items() if getattr(own, "dims", ()) == (name,)]
        if beside and name not in beside:
            raise ValueError(
                f"{what} has labels {beside[0]!r} along {name!r}: name the dimension after them, or, {INSTEAD}"
            )
        if name in coordinates:
            labels = np.asarray(coordinates[name].values).tolist()
            array = np.take(array, _order([_numbers(labels, dimension, what)], [dimension], what), axis=axis)
        elif array.shape[axis] != len(dimension.labels):
            raise ValueError(f"{what} has {array.shape[axis]} entries along {name!r}: give its {len(dimension.labels)}")
    return array.transpose([names.index(name) for name in wanted])


def _frame(values: Any, dimensions: Sequence[Dimension], what: str) -> NDArray[Any]:
    indexes = _indexes(values)
    if len(dimensions) in (1, indexes[0].nlevels):
        indexes = indexes[:1]  # columns, if any, are a trailing axis
    levels = [index.get_level_values(i) for index in indexes for i in range(index.nlevels)]
    if len(dimensions) == 1 < len(levels):  # a node, or an area, may be called by several words
        levels = indexes
    if len(levels) != len(dimensions):
        raise ValueError(
            f"{what} has labels along {len(levels)} axes, the table has {[d.name for d in dimensions]}: give one for "
            f"each, or, {INSTEAD}"
        )
    own = _assigned(levels, dimensions, what)
    numbers = [_numbers(list(level), dimension, what) for level, dimension in zip(levels, own, strict=True)]
    array, start = values.to_numpy(), 0
    for axis, index in enumerate(indexes):
        places = slice(start, start + index.nlevels)
        array = np.take(array, _order(numbers[places], own[places], what), axis=axis)
        start = places.stop
    array = array.reshape(*(len(dimension.labels) for dimension in own), *array.shape[len(indexes) :])
    turn = [own.index(dimension) for dimension in dimensions]
    return array.transpose(*turn, *range(len(turn), array.ndim))


def _assigned(levels: Sequence[Any], dimensions: Sequence[Dimension], what: str) -> list[Dimension]:
    """The dimension that every level of an index belongs to: by its name, and without one by its labels."""
    by_name = {dimension.name: dimension for dimension in dimensions}
    if list(by_name) in OF_ANY_NAME or (len(dimensions) == 1 and levels[0].name is None):
        return list(dimensions)
    found: list[Dimension | None] = []
    for level in levels:
        if level.name is not None and str(level.name) not in by_name:
            raise ValueError(f"{what} has labels of {level.name!r}: the table has {list(by_name)}")
        found.append(None if level.name is None else by_name[str(level.name)])
    for position, level in enumerate(levels):
        if found[position] is None:
            labels = set(map(str, level))
            fitting = [d for d in dimensions if d not in found and set(d.labels) == labels]
            if len(fitting) != 1:
                shown = ", ".join(map(repr, sorted(labels)[:4]))
                left = [d.name for d in dimensions if d not in found]
                raise ValueError(
                    f"{what}: labels {shown} do not tell which of {left} they are: name the index and the columns, or "
                    f"{INSTEAD}"
                )
            found[position] = fitting[0]
    given = [dimension for dimension in found if dimension is not None]
    if len({dimension.name for dimension in given}) < len(given):
        raise ValueError(f"{what} has one of {list(by_name)} along two axes: give each once")
    return given


def _numbers(labels: Sequence[Any], dimension: Dimension, what: str) -> Index:
    """For every entry along an axis the cell of the dimension that its label names."""
    number = {label: i for i, label in enumerate(dimension.labels)}
    known = [number.get(str(label), -1) for label in labels]
    if -1 in known:
        raise ValueError(f"{what}: {str(labels[known.index(-1)])!r} is no label of {dimension.name!r}; {INSTEAD}")
    return np.array(known, dtype=np.intp)


def _order(numbers: Sequence[Index], dimensions: Sequence[Dimension], what: str) -> Index:
    """The entries along an axis, (size,), in the order of the dimensions that it tells apart, each there once."""
    shape = tuple(len(dimension.labels) for dimension in dimensions)
    places = np.ravel_multi_index(tuple(numbers), shape)
    counts = np.bincount(places, minlength=prod(shape))
    strange = np.flatnonzero(counts != 1)
    if strange.size:
        cell = np.unravel_index(strange[0], shape)
        named = ", ".join(f"{d.name}={d.labels[int(i)]}" for d, i in zip(dimensions, cell, strict=True))
        problem = "missing: give every cell" if counts[strange[0]] == 0 else "given twice: give each cell once"
        raise ValueError(f"{what}: {named} is {problem}")
    return np.argsort(places)
