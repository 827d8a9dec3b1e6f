"""One layer of areas, and reading it: labels of leaves, or a matrix of weights."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Index
from constraint_builders.description.equality import equal
from constraint_builders.description.labelled import INSTEAD, is_numbered, row_labels
from constraint_builders.description.linear import read_matrix
from constraint_builders.description.reals import refuse_masked

BETWEEN = " * "


@dataclass(frozen=True, eq=False)
class AreaLayer:
    """The areas of one kind.

    Attributes
    ----------
    incidence : csr_array, (areas, leaves)
        With which weight every leaf counts in every area; indices sorted, no zeros.
    labels : tuple or None
        Of the areas; None where they are numbered.
    """

    incidence: sparse.csr_array
    labels: tuple[Hashable, ...] | None = None

    @property
    def size(self) -> int:
        """Number of areas."""
        return self.incidence.shape[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the areas, as text."""
        return tuple(map(str, range(self.size) if self.labels is None else self.labels))

    @cached_property
    def is_of_sets(self) -> bool:
        """Whether every leaf is in an area or not, without other weights."""
        return bool((self.incidence.data == 1).all())

    @cached_property
    def is_of_leaves(self) -> bool:
        """Whether its areas are the leaves, one by one in their order."""
        own = self.incidence
        places = np.arange(own.shape[0] + 1)
        return (
            own.shape[0] == own.shape[1] == own.nnz
            and self.is_of_sets
            and np.array_equal(own.indices, places[:-1])
            and np.array_equal(own.indptr, places)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AreaLayer):
            return NotImplemented
        return equal(self.incidence, other.incidence) and self.labels == other.labels

    def __hash__(self) -> int:
        return hash(self.incidence.shape)


def read_leaves(leaves: int | Sequence[Hashable]) -> tuple[int, tuple[Hashable, ...] | None]:
    """Number of leaves, and their names where they have some."""
    if isinstance(leaves, int | np.integer) and not isinstance(leaves, bool):
        if leaves < 1:
            raise ValueError(f"areas need at least one leaf: got {leaves}")
        return int(leaves), None
    if isinstance(leaves, str) or not hasattr(leaves, "__len__"):
        raise TypeError(f"leaves must be their number, or their names: got {leaves!r}")
    labels = tuple(read_labels(leaves, "leaves"))
    if not labels:
        raise ValueError("areas need at least one leaf: got no names")
    return len(labels), labels


def read_layer(name: str, given: Any, leaves: int, leaf_names: tuple[Hashable, ...] | None) -> AreaLayer:
    """A layer from a label for every leaf, or from a matrix (areas, leaves)."""
    what = f"layer {name!r}"
    refuse_masked(given, what)
    if _is_matrix(given):
        labels, values = (None, given) if sparse.issparse(given) else row_labels(given, what)
        matrix = read_matrix(values, what)
        order = _leaf_order(getattr(given, "columns", None), leaf_names, what)
        matrix = matrix if order is None else sparse.csr_array(matrix[:, order])
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if matrix.shape[1] != leaves:
            raise ValueError(f"{what} has {matrix.shape[1]} columns, and there are {leaves} leaves: give one for each")
        if not matrix.shape[0]:
            raise ValueError(f"{what} has no areas: give a row for each, or leave it out")
        numbered = labels == tuple(map(str, range(matrix.shape[0])))
        return AreaLayer(matrix, None if numbered else labels)
    order = _leaf_order(getattr(given, "index", None), leaf_names, what)
    of_areas, codes = _areas_of_labels(given, what)
    codes = codes if order is None else codes[order]
    if codes.size != leaves:
        raise ValueError(f"{what} labels {codes.size} leaves, and there are {leaves}: give a label for each")
    incidence = sorted_incidence(np.ones(leaves), codes, np.arange(leaves), (len(of_areas), leaves))
    return AreaLayer(incidence, of_areas)


def _leaf_order(index: Any, leaf_names: tuple[Hashable, ...] | None, what: str) -> Index | None:
    """Where the leaves are along an axis that an index names; None without one."""
    if not hasattr(index, "nlevels") or is_numbered(index):
        return None
    if leaf_names is None:
        raise ValueError(f"{what} says its leaves by name, and they have none: name them, or, {INSTEAD}")
    places = {str(label): i for i, label in enumerate(index)}
    missing = [name for name in map(str, leaf_names) if name not in places]
    if missing or len(places) != len(leaf_names) or len(index) != len(leaf_names):
        lost = f"leaf {missing[0]!r} is missing" if missing else "it says other leaves too, or one twice"
        raise ValueError(f"{what} must say each leaf by name, once: {lost}")
    return np.array([places[str(name)] for name in leaf_names], dtype=np.intp)


def _is_matrix(given: Any) -> bool:
    if sparse.issparse(given):
        return True
    if isinstance(given, list | tuple):
        return bool(given) and isinstance(given[0], list | np.ndarray)
    return np.ndim(given) == 2


def _areas_of_labels(given: Any, what: str) -> tuple[tuple[Hashable, ...], Index]:
    """The distinct labels, and for every leaf the number of its own."""
    array = given if isinstance(given, np.ndarray) else None
    if array is not None and array.ndim == 1 and array.dtype.kind in "iub":
        found, codes = np.unique(array, return_inverse=True)
        return tuple(found.tolist()), codes.astype(np.intp)
    labels = read_labels(given, what)
    if labels and all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels):
        found, codes = np.unique(np.array(labels), return_inverse=True)
        return tuple(int(v) if float(v).is_integer() else v for v in found.tolist()), codes.astype(np.intp)
    numbers = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return tuple(numbers), np.fromiter((numbers[label] for label in labels), np.intp, len(labels))


def read_labels(given: Any, what: str) -> list[Hashable]:
    """Labels of any hashable kind, none of them missing."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"{what} must be labels, one for every leaf, or a matrix of weights: got {given!r}")
    labels = given.tolist() if hasattr(given, "tolist") else list(given)
    for position, label in enumerate(labels):
        if _is_missing(label):
            raise ValueError(
                f"{what} has no label for leaf {position} ({label!r}): name its area, or give a matrix "
                "(areas, leaves), in which a leaf may be in none"
            )
    try:
        hash(tuple(labels))
    except TypeError:
        raise TypeError(f"{what} must have labels that can be told apart, such as text or numbers") from None
    return labels


def _is_missing(label: Any) -> bool:
    """None, NaN, or a missing value of a frame's own kind, which does not equal itself either."""
    try:
        return label is None or not bool(label == label)
    except (TypeError, ValueError):
        return True


def crossed(first: AreaLayer, second: AreaLayer) -> AreaLayer:
    """All pairs of areas that hold a leaf together, those of the first together."""
    one, other = first.incidence.tocsc(), second.incidence.tocsc()
    ones, others = (np.diff(own.indptr).astype(np.int64) for own in (one, other))
    leaf = np.repeat(np.arange(ones.size), ones * others)
    number = np.arange(leaf.size) - np.repeat(np.cumsum(ones * others) - ones * others, ones * others)
    a = one.indices[one.indptr[leaf] + number // others[leaf]].astype(np.int64)
    b = other.indices[other.indptr[leaf] + number % others[leaf]].astype(np.int64)
    found, rows = np.unique(a * second.size + b, return_inverse=True)
    if not found.size:
        raise ValueError("no area of one layer holds a leaf together with one of the other: nothing to cross")
    incidence = sorted_incidence(np.ones(leaf.size), rows, leaf, (found.size, ones.size))
    of_first, of_second = first.names, second.names
    pairs = zip(*(part.tolist() for part in np.divmod(found, second.size)), strict=True)
    return AreaLayer(incidence, tuple(f"{of_first[i]}{BETWEEN}{of_second[j]}" for i, j in pairs))


def sorted_incidence(values: Float, rows: Index, columns: Index, shape: tuple[int, int]) -> sparse.csr_array:
    """A sparse matrix with its indices in order."""
    matrix = sparse.csr_array((values, (rows, columns)), shape=shape)
    matrix.sort_indices()
    return matrix
