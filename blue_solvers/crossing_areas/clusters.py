"""Leaves that share all areas but themselves and were measured alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from blue_solvers.crossing_areas.component_problem import equal_variances
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float, Index, Integers
from constraint_builders.description.area_layers import AreaLayer
from constraint_builders.description.areas import LEAF
from constraint_builders.description.distinct_numbers import distinct_numbers
from constraint_builders.description.table import make_table

WORTH = 0.7  # clusters for every leaf, above which leaves are factorised with the areas


@dataclass(frozen=True)
class Clusters:
    """Leaves that share all areas but themselves.

    Attributes
    ----------
    of_leaf : ndarray of int, (leaves,)
    leaf_levels : frozenset of int
        The layers in use whose areas are the leaves.
    """

    of_leaf: Index
    leaf_levels: frozenset[int]

    @classmethod
    def of(cls, problem: Problem) -> Clusters | None:
        """Of a problem whose leaves were all measured alike; None where they were not, or few share their areas."""
        areas, variances = problem.domain.areas, equal_variances(problem)
        levels = sorted({*problem.observed_levels, *problem.desired_levels})
        of_leaves = frozenset(i for i in levels if areas.layer(areas.levels[i]).is_of_leaves)
        own = [i for i, level in enumerate(problem.observed_levels) if level in of_leaves]
        names = [problem.observed_tables[i].name for i in own]
        if not own or len(set(names)) < len(names) or any((variances[i] != variances[i][0]).any() for i in own):
            return None
        if problem.zeros is not None and not zeros_are_alike(problem.zeros.empty[problem.domain.leaves]):
            return None
        layers = [areas.layer(areas.levels[level]) for level in levels if level not in of_leaves]
        of_leaf = alike_leaves(layers, areas.leaves, int(WORTH * areas.leaves))
        return None if of_leaf is None else cls(of_leaf, of_leaves)

    @cached_property
    def sizes(self) -> Index:
        """Number of leaves in every cluster."""
        return np.bincount(self.of_leaf)

    @cached_property
    def sums(self) -> sparse.csr_array:
        """From leaves to clusters, (clusters, leaves)."""
        places = self.of_leaf, np.arange(self.of_leaf.size)
        return sparse.csr_array((np.ones(self.of_leaf.size), places), shape=(self.sizes.size, self.of_leaf.size))


def zeros_are_alike(empty: Flags) -> bool:
    """Whether the same cells of all leaves, (leaves, ...), are known to be empty."""
    return bool((empty == empty[:1]).all())


def zeros_of_leaves(problem: Problem, leaves: int) -> dict[tuple[str, str], Flags] | None:
    """Of so many leaves, the cells that are empty in all leaves of a problem, as `Problem` takes them."""
    if problem.zeros is None:
        return None
    schema, empty = problem.domain.schema, problem.zeros.empty[problem.domain.leaves[:1]]
    table = make_table(schema, tuple(schema.names[axis] for axis in problem.zeros.axes))
    return {(LEAF, table.name): np.repeat(empty, leaves, axis=0)}


def alike_leaves(layers: Iterable[AreaLayer], leaves: int, most: int) -> Index | None:
    """A number for every leaf, shared by those that lie in the same areas with the same weights.

    In the order of their first; None where there are more than so many.
    """
    number, count = np.zeros(leaves, dtype=np.int64), 1
    for layer in sorted(layers, key=lambda own: -own.size):
        for rows, weights in _memberships(layer):
            number, count = _numbered(number, rows, weights)
            if count > most:
                return None
    first, own = np.unique(number, return_index=True, return_inverse=True)[1:]
    return np.argsort(np.argsort(first))[own]


def _memberships(layer: AreaLayer) -> Iterator[tuple[Integers, Float | None]]:
    """For every leaf an area that it lies in, -1 for none, and its weight there, if not 1; and so on."""
    if layer.area_of_leaf is not None:
        yield layer.area_of_leaf.astype(np.int64), None
        return
    columns = layer.incidence.tocsc()
    columns.sort_indices()
    lengths = np.diff(columns.indptr)
    for k in range(int(lengths.max(initial=0))):
        has = np.flatnonzero(lengths > k)
        rows, weights = np.full(layer.leaves, -1), np.zeros(layer.leaves)
        rows[has], weights[has] = columns.indices[columns.indptr[has] + k], columns.data[columns.indptr[has] + k]
        yield rows, weights


def _numbered(number: Integers, rows: Integers, weights: Float | None) -> tuple[Integers, int]:
    """A number for every combination of keys, and how many there are."""
    keys = [rows + 1] if weights is None else [rows + 1, np.unique(weights, return_inverse=True)[1]]
    for key in keys:
        found, places = distinct_numbers(number * (int(key.max()) + 1) + key)
        number = places.astype(np.int64)
    return number, found.size
