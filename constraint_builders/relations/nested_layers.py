"""Layers of disjoint sets of leaves that nest, as a tree: every leaf says in which set of every layer it lies.

A layer after the other, those of few sets first, every set of the next must lie in one set of those before, or in none.
Each layer is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from constraint_builders.arrays import Int32, distinct_numbers
from constraint_builders.description.areas import Areas
from constraint_builders.relations.summing import NestedNodes

UNSEEN = -2


def nested_layers(layers: Sequence[Int32], sizes: Sequence[int]) -> NestedNodes | None:
    """The sets of all layers as nodes, one layer after the other; None if layers of fewer sets do not hold the others.

    Of equal sets that of a layer of fewer sets holds the other, or else that of the earlier layer.

    Parameters
    ----------
    layers : sequence of ndarray of int32, (leaves,)
        Of every leaf the number of its set; -1 for none.
    sizes : sequence of int
        Numbers of sets.
    """
    order = sorted(range(len(layers)), key=lambda i: sizes[i])
    starts = np.cumsum([0, *sizes]).tolist()
    found = _runs_in_runs([layers[i] for i in order], [sizes[i] for i in order], [starts[i] for i in order])
    if found is not None:
        return found
    parent = np.full(starts[-1], UNSEEN, dtype=np.int32)
    counts = np.zeros(starts[-1], dtype=np.int32)
    latest = np.full(layers[0].size, -1, dtype=np.int32)
    for i in order:
        own = slice(starts[i], starts[i + 1])
        _place_layer(layers[i], starts[i], latest, parent[own], counts[own])
        if parent[starts[i]] == UNSEEN:
            return None
    return NestedNodes.of(parent.astype(np.intp), counts.astype(np.intp)) if counts.all() else None


def sets_of_layers(areas: Areas, levels: Iterable[int]) -> dict[int, Int32]:
    """Of the layers of disjoint sets among those at some positions, for every leaf the number of its set."""
    found = ((level, areas.layer(areas.levels[level]).area_of_leaf) for level in levels)
    return {level: own for level, own in found if own is not None}


def layers_cross(layers: Sequence[Int32], sizes: Sequence[int]) -> bool:
    """Whether a set of a layer and one of that of next more sets overlap otherwise than by one lying in the other.

    Other layers are not looked at: that none cross is not said.
    """
    order = sorted(range(len(layers)), key=lambda i: sizes[i])
    for i, j in pairwise(order):
        both = (layers[i] >= 0) & (layers[j] >= 0)
        pairs, number = distinct_numbers(layers[i][both].astype(np.int64) * sizes[j] + layers[j][both])
        common = np.bincount(number, minlength=pairs.size)
        first, second = (np.bincount(layers[k][layers[k] >= 0], minlength=sizes[k]) for k in (i, j))
        if ((common < first[pairs // sizes[j]]) & (common < second[pairs % sizes[j]])).any():
            return True
    return False


def _runs_in_runs(layers: list[Int32], sizes: list[int], starts: list[int]) -> NestedNodes | None:
    """The same where in every layer all leaves lie in sets and those of each are side by side; None elsewhere.

    Layers of few sets come first; `starts` are the numbers of their first nodes.
    """
    parent = np.full(sum(sizes), UNSEEN, dtype=np.intp)
    above, changed_above = np.full(layers[0].size, -1, dtype=np.int32), np.zeros(layers[0].size - 1, dtype=bool)
    for layer, size, start in zip(layers, sizes, starts, strict=True):
        if layer.min() < 0:
            return None
        changed = layer[1:] != layer[:-1]
        if np.count_nonzero(changed) != size - 1 or np.logical_and(changed_above, ~changed, out=changed_above).any():
            return None
        if size == layer.size:
            parent[start + layer] = above
        else:
            first = np.concatenate([[0], np.flatnonzero(changed) + 1])
            parent[start + layer[first]] = above[first]
        above, changed_above = layer + np.int32(start), changed
    if parent.min() == UNSEEN:  # a set of no leaves, and another of several runs
        return None
    return NestedNodes(parent, np.zeros(parent.size, dtype=bool))


def _place_layer(own: Int32, start: int, latest: Int32, parent: Int32, counts: Int32) -> None:
    """Put the sets of a layer below those that hold their leaves so far, in place.

    Where there is no such one of all leaves of a set, all is as if no layer had been there.

    Parameters
    ----------
    own : ndarray of int32, (leaves,)
        Of every leaf the number of its set; -1 for none.
    start : int
        Of the layer's first set the number as a node.
    latest : ndarray of int32, (leaves,)
        Of every leaf the node that it lies in, -1 for none; becomes its node of this layer where it has one.
    parent, counts : ndarray of int32, (sets,)
        Of every set the node that it lies in, -1 for none, and the number of its leaves; -2 and 0 where it has none.
    """
    held = slice(None) if own.min(initial=0) >= 0 else own >= 0
    sets, above = own[held], latest[held]
    parent[sets] = above
    if not np.array_equal(parent[sets], above):
        latest[:], parent[:] = -1, UNSEEN
        return
    latest[held] = sets + np.int32(start)
    counts += np.bincount(sets, minlength=counts.size).astype(np.int32)
