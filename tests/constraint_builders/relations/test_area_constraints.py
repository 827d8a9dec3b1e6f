"""Equations between tables of areas: all that hold, none twice, and what the measurements determine."""

import numpy as np

from constraint_builders import Areas, Problem, Schema
from tests.helpers.every import every

SCHEMA = Schema({"a": 2, "b": 3}, recodes={"b": {"g": [0, 1, 1]}})


def test_all_is_what_the_measurements_determine_in_every_area_of_a_layer() -> None:
    areas = Areas(4, {"Region": [0, 0, 1, 1], "Part": [[1, 1, 0, 0]], "None": [[0, 0, 0, 0]]})
    problem = Problem(SCHEMA, {"Region": {"a": 1.0}, "Part": {"b": 2.0}}, areas=areas, desired="all")
    assert set(problem.desired.names) == {
        ("Region", "total"), ("Region", "a"), ("Part", "total"), ("Part", "a"), ("Part", "b"),
        ("None", "total"), ("None", "a"), ("None", "b"),
    }  # fmt: skip


@every("seed", range(20))
def test_what_is_known_to_be_empty_is_so_in_its_own_leaf_alone(seed: int) -> None:
    """Whatever the order of the layers: the same table of an area of one leaf, or of several, is another's."""
    rng = np.random.default_rng(seed)
    empty = rng.random((5, 3)) < 0.3
    towns, halves = rng.integers(0, 3, 5), rng.integers(0, 2, 5)
    layers = {"Town": np.unique(towns, return_inverse=True)[1], "Half": np.unique(halves, return_inverse=True)[1]}
    tables = {str(layer): {"a": 1.0} for layer in rng.permutation(["Leaf", *layers])}
    problem = Problem(Schema({"a": 3}), tables, areas=Areas(5, layers), zeros={("Leaf", "a"): empty})
    places = {"Leaf": np.eye(5)} | {name: np.eye(own.max() + 1)[own].T for name, own in layers.items()}
    M = np.concatenate([np.kron(places[layer], np.eye(3)) for layer, _ in problem.observed.names]) * ~empty.ravel()
    C = problem.constraint_matrix("all").toarray()
    assert not (C @ M).any()
    assert np.linalg.matrix_rank(C) == len(M) - np.linalg.matrix_rank(M)
