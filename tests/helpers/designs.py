"""Invented designs of least squares with float weights, and their answers in exact rational arithmetic.

Where rank counts, entries are doubles that say so exactly: small whole numbers, or these times powers of two.
"""

from typing import Any, NamedTuple

import flint
import numpy as np
from scipy import sparse

Design = tuple[Any, np.ndarray]


class Exact(NamedTuple):
    """What rational arithmetic says: rank; leaves with standard deviations, NaN if not estimable; rows, variances."""

    rank: int
    leaves: np.ndarray
    deviations: np.ndarray
    rows: np.ndarray
    row_variances: np.ndarray


def dense(rng: np.random.Generator) -> Design:
    """Normal entries in units over six decades, variances over six."""
    leaves = int(rng.integers(1, 13))
    rows = leaves + int(rng.integers(0, 15))
    return rng.standard_normal((rows, leaves)) * 10 ** rng.uniform(-3, 3, leaves), 10 ** rng.uniform(-3, 3, rows)


def sparse_rows(rng: np.random.Generator) -> Design:
    """Some three leaves in a row."""
    leaves = int(rng.integers(3, 25))
    entries = rng.standard_normal((3 * leaves, leaves)) * (rng.random((3 * leaves, leaves)) < 3 / leaves)
    return sparse.csr_array(entries), 10 ** rng.uniform(-2, 2, 3 * leaves)


def edges(rng: np.random.Generator, nodes: int, more: int) -> np.ndarray:
    """Edges of a connected graph, (nodes - 1 + more, 2)."""
    tree = [(int(rng.integers(0, node)), node) for node in range(1, nodes)]
    return np.array(tree + [tuple(rng.choice(nodes, 2, replace=False).tolist()) for _ in range(more)])


def differences(pairs: np.ndarray, nodes: int, weights: np.ndarray | float = 1.0) -> sparse.csr_array:
    """A row for every edge, (edges, nodes): the difference of its ends, times a weight."""
    count = len(pairs)
    entries = np.repeat(np.broadcast_to(weights, count), 2) * np.tile([1.0, -1.0], count)
    return sparse.csr_array((entries, (np.repeat(np.arange(count), 2), pairs.ravel())), shape=(count, nodes))


def balances(names: list[str]) -> tuple[sparse.csr_array, np.ndarray]:
    """What must hold between series of the electricity balance, (balances, n), and their lower bounds, (n,)."""
    place = {name: number for number, name in enumerate(names)}
    region, kind = zip(*(name[2:].rsplit("_", 1) for name in names), strict=True)
    rows: list[dict[int, float]] = []
    for own in sorted({one for one, of in zip(region, kind, strict=True) if of == "D"}):
        demand, made, sent = (place[f"E_{own}_{of}"] for of in ("D", "NG", "TI"))
        flows = [i for i, one in enumerate(region) if one.startswith(f"{own}-")]
        fuels = [i for i, one in enumerate(region) if one == own and kind[i] not in ("D", "NG", "TI")]
        rows += [{demand: 1, sent: 1, made: -1}]
        rows += [{total: 1, **dict.fromkeys(parts, -1.0)} for total, parts in ((sent, flows), (made, fuels)) if parts]
    for i, one in enumerate(region):
        there, _, back = one.partition("-")
        if back and there < back:
            rows.append({i: 1, place[f"E_{back}-{there}_ID"]: 1})
    counts = [len(row) for row in rows]
    entries = np.concatenate([list(row.values()) for row in rows]), np.concatenate([list(row) for row in rows])
    A = sparse.csr_array((entries[0], (np.repeat(np.arange(len(rows)), counts), entries[1])), (len(rows), len(names)))
    return A, np.where(np.isin(kind, ["TI", "ID"]), -np.inf, 1.0)


def anchors(nodes: np.ndarray, size: int) -> sparse.csr_array:
    """Some nodes measured themselves."""
    return sparse.csr_array((np.ones(nodes.size), (np.arange(nodes.size), nodes)), shape=(nodes.size, size))


def graph(rng: np.random.Generator) -> Design:
    """Differences along edges, and up to two nodes themselves: without any the rank is one less."""
    nodes = int(rng.integers(3, 25))
    known = anchors(rng.choice(nodes, int(rng.integers(0, 3)), replace=False), nodes)
    S = sparse.vstack([differences(edges(rng, nodes, int(rng.integers(0, nodes))), nodes), known], format="csr")
    return sparse.csr_array(S), 10 ** rng.uniform(-2, 2, S.shape[0])


def power(rng: np.random.Generator) -> Design:
    """Flows of a network by the differences of its angles, injections, perhaps an angle, some of them missing."""
    nodes = int(rng.integers(4, 25))
    pairs = edges(rng, nodes, int(rng.integers(1, nodes)))
    flows = differences(pairs, nodes, np.round(64 * rng.uniform(1, 50, len(pairs))) / 64)
    S = sparse.vstack([flows, differences(pairs, nodes).T @ flows, anchors(np.zeros(1, int), nodes)], format="csr")
    kept = rng.random(S.shape[0]) < rng.uniform(0.4, 1)
    kept[0] = True
    return sparse.csr_array(S[np.flatnonzero(kept)]), 10 ** rng.uniform(-3, 1, int(kept.sum()))


def grid_of_differences(height: int, width: int) -> sparse.csr_array:
    """Differences between neighbours of a grid."""
    number = np.arange(height * width).reshape(height, width)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    return differences(np.concatenate([across, down]), number.size)


def grid(rng: np.random.Generator) -> Design:
    """Differences on a grid, perhaps with one node known."""
    height, width = rng.integers(2, 6, 2).tolist()
    S = grid_of_differences(height, width)
    if rng.random() < 0.5:
        S = sparse.csr_array(sparse.vstack([S, anchors(np.zeros(1, int), height * width)]))
    return S, rng.uniform(0.5, 2, S.shape[0])


def deficient(rng: np.random.Generator) -> Design:
    """A product of small whole numbers of less than full rank, in units of powers of two."""
    leaves = int(rng.integers(3, 14))
    rank, rows = int(rng.integers(1, leaves)), leaves + int(rng.integers(0, 10))
    S = (rng.integers(-3, 4, (rows, rank)) @ rng.integers(-3, 4, (rank, leaves))).astype(float)
    S[0, 0] += not S.any()
    return S * 2.0 ** rng.integers(-10, 11, leaves), 10 ** rng.uniform(-2, 2, rows)


def collinear(rng: np.random.Generator) -> Design:
    """Two leaves that rows hardly tell apart."""
    leaves = int(rng.integers(2, 10))
    S = rng.standard_normal((leaves + int(rng.integers(1, 10)), leaves))
    S[:, -1] = S[:, 0] + 10 ** rng.uniform(-6, -2) * rng.standard_normal(len(S))
    return S, rng.uniform(0.5, 2, len(S))


KINDS = (dense, sparse_rows, graph, power, grid, deficient, collinear)


def measured(rng: np.random.Generator, S: Any, variances: np.ndarray) -> np.ndarray:
    """Rows of some leaves, with noise."""
    return S @ rng.normal(0, 10, S.shape[1]) + np.sqrt(variances) * rng.standard_normal(S.shape[0])


def exact_least_squares(S: Any, y: np.ndarray, variances: np.ndarray) -> Exact:
    """Weighted least squares of doubles, by fractions."""
    entries = S.toarray() if sparse.issparse(S) else S
    (n, k), A = entries.shape, flint.fmpq_mat([[_exactly(own) for own in row] for row in entries.tolist()])
    weights = [1 / _exactly(own) for own in variances]
    weighted = flint.fmpq_mat([[A[i, j] * weights[i] for j in range(k)] for i in range(n)])
    N, right = A.transpose() * weighted, weighted.transpose() * flint.fmpq_mat([[_exactly(own)] for own in y])
    reduced, rank = N.rref()
    pivots = [next(j for j in range(k) if reduced[i, j] != 0) for i in range(rank)]
    inverse = flint.fmpq_mat([[N[i, j] for j in pivots] for i in pivots]).inv()
    solved = inverse * flint.fmpq_mat([[right[i, 0]] for i in pivots])
    leaves, deviations = np.full(k, np.nan), np.full(k, np.nan)
    for own, leaf in enumerate(pivots):
        if all(reduced[own, j] == 0 for j in range(k) if j not in pivots):
            leaves[leaf], deviations[leaf] = _rounded(solved[own, 0]), np.sqrt(_rounded(inverse[own, own]))
    basic = flint.fmpq_mat([[A[i, j] for j in pivots] for i in range(n)])
    rows, turned = basic * solved, basic * inverse
    spread = [sum((turned[i, a] * basic[i, a] for a in range(rank)), flint.fmpq(0)) for i in range(n)]
    fitted = np.array([_rounded(rows[i, 0]) for i in range(n)])
    return Exact(rank, leaves, deviations, fitted, np.array(list(map(_rounded, spread))))


def _exactly(value: float) -> Any:
    return flint.fmpq(*float(value).as_integer_ratio())


def _rounded(value: Any) -> float:
    return int(value.p) / int(value.q)
