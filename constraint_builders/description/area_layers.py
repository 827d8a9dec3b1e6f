"""One layer of areas, and reading it: labels of leaves, a matrix of weights, or the columns of any data frame."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Int32, Integers, distinct_numbers
from constraint_builders.description.described import Described, equal
from constraint_builders.description.labelled import LEAF_AXIS, Dimension, aligned, is_missing, read_names, row_labels
from constraint_builders.description.reals import read_matrix, refuse_masked
from constraint_builders.extras import needing

BETWEEN = " * "


def columns_of(frame: Any) -> dict[str, np.ndarray]:
    """Columns by name, each (rows,).

    Parameters
    ----------
    frame : data frame or mapping of str to sequence
        Of pandas, polars or pyarrow; others with the Arrow PyCapsule interface are read by polars.

    Raises
    ------
    TypeError
        If it is none.
    ValueError
        If columns differ in length.
    """
    if isinstance(frame, Mapping):
        names, values = list(frame), {name: read_names(own, f"column {name!r}") for name, own in frame.items()}
    elif hasattr(frame, "column_names") and hasattr(frame, "num_rows"):
        names, values = list(frame.column_names), frame
    elif hasattr(frame, "columns") and hasattr(frame, "to_numpy"):
        names, values = list(frame.columns), frame
    elif hasattr(frame, "__arrow_c_stream__"):
        values = _by_polars(frame)
        names = values.columns
    else:
        raise TypeError(f"areas are read from a data frame, one row a leaf: got {type(frame).__name__}")
    columns = {str(name): _column(values[name]) for name in names}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of the frame differ in length: {lengths}")
    return columns


def _by_polars(frame: Any) -> Any:
    with needing("reading a frame by its Arrow stream needs polars", "frames"):
        import polars
    return polars.DataFrame(frame)


def _column(values: Any) -> np.ndarray:
    """Values as they are, in an array of one axis."""
    if isinstance(values, np.ndarray) or hasattr(values, "to_numpy"):
        return np.asarray(values)
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column


@dataclass(frozen=True, eq=False)
class AreaLayer(Described):
    """The areas of one kind, by a matrix or by the one area that every leaf lies in; `of_matrix` and `of_sets` make it.

    Attributes
    ----------
    size, leaves : int
        Number of areas, and of leaves.
    labels : tuple or None
        Of the areas; None where they are numbered.
    members : csr_array, (areas, leaves), or ndarray of int32, (leaves,)
        With which weight every leaf counts in every area, indices sorted, no zeros; or of every leaf the number of its
        area, -1 for none.
    """

    size: int
    leaves: int
    labels: tuple[Hashable, ...] | None
    members: sparse.csr_array | Int32

    @classmethod
    def of_matrix(cls, matrix: sparse.csr_array, labels: tuple[Hashable, ...] | None = None) -> AreaLayer:
        """From the weights of leaves in areas, (areas, leaves)."""
        size, leaves = matrix.shape
        return cls(size, leaves, labels, matrix)

    @classmethod
    def of_sets(cls, areas: Int32, size: int, labels: tuple[Hashable, ...] | None = None) -> AreaLayer:
        """From the number of every leaf's area among so many."""
        return cls(size, areas.size, labels, areas)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the areas, as text."""
        return tuple(map(str, range(self.size) if self.labels is None else self.labels))

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """With which weight every leaf counts in every area, (areas, leaves); indices sorted, no zeros."""
        if not isinstance(self.members, np.ndarray):
            return self.members
        inside = self.members >= 0
        starts = np.concatenate([[0], np.cumsum(inside)])
        areas = self.members[inside]
        shape = self.size, self.leaves
        return sparse.csr_array(sparse.csc_array((np.ones(areas.size), areas, starts), shape=shape).tocsr())

    @cached_property
    def area_of_leaf(self) -> Int32 | None:
        """Of every leaf the number of its area, -1 for none; None where one lies in several, or has another weight."""
        if isinstance(self.members, np.ndarray):
            return self.members
        columns = self.members.tocsc()
        lengths = np.diff(columns.indptr)
        if not self.is_of_sets or lengths.max(initial=0) > 1:
            return None
        found = np.full(self.leaves, -1, dtype=np.int32)
        found[lengths > 0] = columns.indices
        return found

    @cached_property
    def is_of_sets(self) -> bool:
        """Whether every leaf is in an area or not, without other weights."""
        return isinstance(self.members, np.ndarray) or bool((self.members.data == 1).all())

    @cached_property
    def is_of_leaves(self) -> bool:
        """Whether its areas are the leaves, one by one in their order."""
        if self.size != self.leaves or self.area_of_leaf is None:
            return False
        return np.array_equal(self.area_of_leaf, np.arange(self.leaves))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AreaLayer):
            return NotImplemented
        if (self.size, self.leaves, self.labels) != (other.size, other.leaves, other.labels):
            return False
        if isinstance(self.members, np.ndarray) and isinstance(other.members, np.ndarray):
            return np.array_equal(self.members, other.members)
        return equal(self.incidence, other.incidence)

    def __hash__(self) -> int:
        return hash((self.size, self.leaves))


def read_leaves(leaves: int | Sequence[Hashable]) -> tuple[int, tuple[Hashable, ...] | None]:
    """Number of leaves, and their names where they have some."""
    if isinstance(leaves, int | np.integer) and not isinstance(leaves, bool):
        if leaves < 1:
            raise ValueError(f"areas need at least one leaf: got {leaves}")
        return int(leaves), None
    labels = tuple(read_labels(leaves, "leaves"))
    if not labels:
        raise ValueError("areas need at least one leaf: got no names")
    return len(labels), labels


def read_layer(name: str, given: Any, leaves: int, leaf_names: tuple[Hashable, ...] | None) -> AreaLayer:
    """A layer from a label for every leaf, or from a matrix (areas, leaves); leaves that are said by name, by these."""
    what = f"layer {name!r}"
    refuse_masked(given, what)

    def along() -> tuple[Dimension]:
        return (Dimension(LEAF_AXIS, tuple(map(str, range(leaves) if leaf_names is None else leaf_names))),)

    if _is_matrix(given):
        labels, _ = row_labels(given, what)
        columns = aligned(given, along, what) if labels is None else np.transpose(aligned(given.T, along, what))
        matrix = read_matrix(columns, what)
        if matrix.shape[1] != leaves:
            raise ValueError(f"{what} has {matrix.shape[1]} columns, and there are {leaves} leaves: give one for each")
        if not matrix.shape[0]:
            raise ValueError(f"{what} has no areas: give a row for each, or leave it out")
        numbered = labels == tuple(map(str, range(matrix.shape[0])))
        return AreaLayer.of_matrix(matrix, None if numbered else labels)
    size, of_areas, areas = _areas_of_labels(aligned(given, along, what), what)
    if areas.size != leaves:
        raise ValueError(f"{what} labels {areas.size} leaves, and there are {leaves}: give a label for each")
    return AreaLayer.of_sets(areas, size, of_areas)


def _is_matrix(given: Any) -> bool:
    if sparse.issparse(given):
        return True
    if isinstance(given, list | tuple):
        return bool(given) and isinstance(given[0], list | np.ndarray)
    return np.ndim(given) == 2


def _areas_of_labels(given: Any, what: str) -> tuple[int, tuple[Hashable, ...] | None, Int32]:
    """Number of distinct labels, these unless they are numbers from 0 on, and for every leaf the number of its own."""
    array = given if isinstance(given, np.ndarray) else None
    if array is not None and array.ndim == 1 and array.dtype.kind in "iub":
        found, areas = distinct_numbers(array)
        numbered = found.dtype.kind != "b" and bool(found.size) and found[0] == 0 and found[-1] == found.size - 1
        return found.size, None if numbered else tuple(found.tolist()), areas
    labels = read_labels(given, what)
    if labels and all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels):
        found, inverse = np.unique(np.array(labels), return_inverse=True)
        values = tuple(int(v) if float(v).is_integer() else v for v in found.tolist())
        return found.size, values, inverse.astype(np.int32)
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return len(numbers), tuple(numbers), np.fromiter(map(numbers.__getitem__, labels), np.int32, len(labels))


def read_labels(given: Any, what: str) -> list[Hashable]:
    """Labels of any hashable kind, none of them missing."""
    labels = read_names(given, what)
    try:
        distinct = dict.fromkeys(labels)
    except TypeError:
        distinct = None
    if distinct is None or any(map(is_missing, distinct)):
        for position, label in enumerate(labels):
            if is_missing(label):
                raise ValueError(
                    f"{what} has no label for leaf {position} ({label!r}): name its area, or give a matrix "
                    "(areas, leaves), in which a leaf may be in none"
                )
    if distinct is None:
        raise TypeError(f"{what} must have labels that can be told apart, such as text or numbers")
    return labels


def crossed(first: AreaLayer, second: AreaLayer) -> AreaLayer:
    """All pairs of areas that hold a leaf together, those of the first together."""
    of_one, of_other = first.area_of_leaf, second.area_of_leaf
    if of_one is None or of_other is None:
        found, matrix = _overlaps(first, second)
        layer = AreaLayer.of_matrix(matrix)
    else:
        areas = np.full(first.leaves, -1, dtype=np.int32)
        both = (of_one >= 0) & (of_other >= 0)
        found, areas[both] = distinct_numbers(of_one[both].astype(np.int64) * second.size + of_other[both])
        layer = AreaLayer.of_sets(areas, found.size)
    if not found.size:
        raise ValueError("no area of one layer holds a leaf together with one of the other: nothing to cross")
    of_first, of_second = first.names, second.names
    pairs = zip(*(part.tolist() for part in np.divmod(found, second.size)), strict=True)
    return replace(layer, labels=tuple(f"{of_first[i]}{BETWEEN}{of_second[j]}" for i, j in pairs))


def _overlaps(first: AreaLayer, second: AreaLayer) -> tuple[Integers, sparse.csr_array]:
    """Pairs of areas, each as one number, and which leaves lie in both, (pairs, leaves)."""
    one, other = first.incidence.tocsc(), second.incidence.tocsc()
    ones, others = (np.diff(own.indptr).astype(np.int64) for own in (one, other))
    leaf = np.repeat(np.arange(ones.size), ones * others)
    number = np.arange(leaf.size) - np.repeat(np.cumsum(ones * others) - ones * others, ones * others)
    a = one.indices[one.indptr[leaf] + number // others[leaf]].astype(np.int64)
    b = other.indices[other.indptr[leaf] + number % others[leaf]].astype(np.int64)
    found, rows = np.unique(a * second.size + b, return_inverse=True)
    matrix = sparse.csr_array((np.ones(leaf.size), (rows, leaf)), shape=(found.size, ones.size))
    matrix.sort_indices()
    return found, matrix
