"""Small random spines, and variances on them by dense algebra: the independent reference of these tests."""

from collections.abc import Mapping

import numpy as np

from constraint_builders import Spine
from constraint_builders.geography import Entities, Strategy, leaves

LEVELS = ("US", "State", "County", "Tract", "Block")


def random_spine(rng: np.random.Generator, depth: int, most_children: int) -> Spine:
    """A spine with all leaves at the same depth."""
    parent, level, front = [-1], [LEVELS[0]], [0]
    for d in range(1, depth + 1):
        grown = []
        for geounit in front:
            for _ in range(rng.integers(1, most_children + 1)):
                grown.append(len(parent))
                parent.append(geounit)
                level.append(LEVELS[d])
        front = grown
    return Spine(parent, level)


def uneven_spine(rng: np.random.Generator, size: int) -> Spine:
    """A spine whose branches differ in depth, its geounits in random order."""
    parent = np.array([-1] + [rng.integers(0, i) for i in range(1, size)])
    depth = np.zeros(size, dtype=int)
    for i in range(1, size):
        depth[i] = depth[parent[i]] + 1
    order = rng.permutation(size)
    place = np.argsort(order)
    shuffled = [place[parent[i]] if parent[i] >= 0 else -1 for i in order]
    return Spine(shuffled, [f"level {depth[i]}" for i in order])


def blocks_below(spine: Spine) -> np.ndarray:
    """Which leaves lie in every geounit, (N, L)."""
    found = np.zeros((spine.size, leaves(spine).size))
    for column, geounit in enumerate(leaves(spine)):
        while geounit >= 0:
            found[geounit, column] = 1
            geounit = spine.parent[geounit]
    return found


def total_covariance(spine: Spine, precisions: np.ndarray) -> np.ndarray:
    """Covariance of the blocks' totals by generalized least squares, (L, L), dense."""
    A = blocks_below(spine)
    return np.linalg.inv(A.T @ (precisions[:, None] * A))


def total_variances(spine: Spine, precisions: np.ndarray) -> np.ndarray:
    """Variance of every geounit's total, (N,)."""
    A = blocks_below(spine)
    return np.einsum("ij,jk,ik->i", A, total_covariance(spine, precisions), A)


def random_entities(rng: np.random.Generator, blocks: int, count: int) -> Entities:
    """Entities of random blocks, none empty."""
    contains = rng.random((count, blocks)) < rng.uniform(0.2, 0.8)
    contains[np.arange(count), rng.integers(0, blocks, count)] = True
    return Entities([f"entity {k}" for k in range(count)], contains)


def detailed_covariance(strategy: Strategy, queries: Mapping[str, np.ndarray]) -> np.ndarray:
    """Covariance over blocks x cells by generalised least squares; `queries` are (rows, cells) by table."""
    inside, rows, precisions = blocks_below(strategy.spine), [], []
    for level, tables in strategy.observed().items():
        members = strategy.spine.members[strategy.spine.level_index(level)]
        for table, variances in tables.items():
            for geounit, variance in zip(members, variances, strict=True):
                rows.append(np.kron(inside[geounit], queries[table]))
                precisions += [1 / variance] * len(queries[table])
    A, precisions = np.vstack(rows), np.array(precisions)
    return np.linalg.inv(A.T @ (precisions[:, None] * A))
