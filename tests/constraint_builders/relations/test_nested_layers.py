"""Layers of disjoint sets as a tree, beside what sets of leaves say one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Areas, Problem, Schema
from constraint_builders.relations.node_tree import _runs_in_runs, layers_cross, nested_layers
from tests.helpers.effort import examples


def invented(seed: int) -> list[np.ndarray]:
    """Labels by layer: sets that nest, of leaves in any order or side by side, some in none, now and then crossed."""
    rng = np.random.default_rng(seed)
    leaves = int(rng.integers(1, 13))
    own = [np.sort(rng.integers(0, leaves, leaves)) if rng.random() < 0.7 else np.arange(leaves)]
    for _ in range(int(rng.integers(0, 4))):
        own.append(np.sort(rng.integers(0, leaves, leaves))[own[-1]])
    if rng.random() < 0.3:
        own.append(np.zeros(leaves, dtype=int))
    own = [np.unique(labels, return_inverse=True)[1] for labels in own]
    if rng.random() < 0.5:
        order = rng.permutation(leaves)
        own = [rng.permutation(labels.max() + 1)[labels][order] for labels in own]
    if rng.random() < 0.3:
        own[0] = np.where(rng.random(leaves) < 0.7, own[0], -1)
    if rng.random() < 0.3:
        own.append(np.unique(rng.integers(0, 2, leaves), return_inverse=True)[1])
    return [own[i].astype(np.int32) for i in rng.permutation(len(own))]


def sets_of(layers: list[np.ndarray], sizes: list[int]) -> list[frozenset[int]]:
    return [
        frozenset(np.flatnonzero(own == number).tolist())
        for own, size in zip(layers, sizes, strict=True)
        for number in range(size)
    ]


@examples(200, 60)
@given(seed=st.integers(0, 100_000))
def test_every_set_lies_in_the_least_that_holds_it(seed: int) -> None:
    layers = invented(seed)
    sizes = [
        int(own.max(initial=-1)) + 1 + (seed % 7 == i) for i, own in enumerate(layers)
    ]  # now and then an empty set
    if not all(sizes):
        return
    sets = sets_of(layers, sizes)
    of = np.repeat(np.arange(len(sizes)), sizes)
    rank = [(len(own), -sizes[of[i]], -i) for i, own in enumerate(sets)]  # of equal sets the last lies innermost

    def above(i: int) -> list[int]:
        return [j for j in range(len(sets)) if sets[j] >= sets[i] and rank[j] > rank[i]]

    found = nested_layers(layers, sizes)
    nested = all(a <= b or b <= a or not a & b for a in sets for b in sets) and all(sets)
    in_order = all((sizes[of[j]], of[j]) < (sizes[of[i]], of[i]) for i in range(len(sets)) for j in above(i))
    assert (found is not None) == (nested and in_order)
    if found is not None:
        assert found.parent.tolist() == [min(above(i), key=rank.__getitem__, default=-1) for i in range(len(sets))]
        children = [[sets[j] for j in np.flatnonzero(found.parent == i)] for i in range(len(sets))]
        rests = [bool(below) and frozenset().union(*below) < own for own, below in zip(sets, children, strict=True)]
        assert found.rest.tolist() == rests


def test_inventions_are_of_all_kinds() -> None:
    kinds = set()
    for seed in range(300):
        layers = invented(seed)
        sizes = [int(own.max(initial=-1)) + 1 for own in layers]
        if all(sizes):
            starts, order = np.cumsum([0, *sizes]).tolist(), np.argsort(sizes, kind="stable")
            ordered = ([own[i] for i in order] for own in (layers, sizes, starts))
            kinds.add((nested_layers(layers, sizes) is None, _runs_in_runs(*ordered) is None))
    assert kinds == {(False, False), (False, True), (True, True)}


def test_sets_that_hold_one_another_here_and_the_other_way_there_nest_too() -> None:
    """No layer holds the other, and yet every two sets are apart or one inside the other."""
    areas = Areas(6, {"A": [0, 0, 1, 1, 2, 2], "B": [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]]})
    problem = Problem(Schema({"kind": 1}), {level: {"total": 1.0} for level in areas.levels}, areas=areas)
    parent = problem.tree.problem.domain.spine.parent
    assert sorted(np.bincount(parent[parent >= 0]).tolist(), reverse=True)[:4] == [2, 2, 2, 2]


@examples(200, 60)
@given(seed=st.integers(0, 100_000))
def test_layers_that_are_said_to_cross_do(seed: int) -> None:
    layers = invented(seed)
    sizes = [int(own.max(initial=-1)) + 1 for own in layers]

    def cross(some: list[int]) -> bool:
        sets = sets_of([layers[i] for i in some], [sizes[i] for i in some])
        return any(a & b and not a <= b and not b <= a for a in sets for b in sets)

    if layers_cross(layers, sizes):
        assert cross(list(range(len(layers))))
    for i in range(1, len(layers)):
        assert layers_cross(layers[i - 1 : i + 1], sizes[i - 1 : i + 1]) == cross([i - 1, i])
