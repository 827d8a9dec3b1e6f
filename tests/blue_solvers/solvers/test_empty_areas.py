"""Areas with leaves that are known to be wholly empty: by the factor over areas as from dense algebra."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from constraint_builders import Areas, Problem, Schema
from tests.helpers.effort import examples

LEAVES, CELLS = 8, 8
GROUP = np.array([0, 1, 1, 0])
KIND, SEX = np.eye(4), np.eye(2)
TABLES = {
    "total": np.ones((1, CELLS)),
    "kind": np.kron(KIND, np.ones((1, 2))),
    "group": np.kron(np.eye(2)[GROUP].T, np.ones((1, 2))),
    "sex": np.kron(np.ones((1, 4)), SEX),
    "group * sex": np.kron(np.eye(2)[GROUP].T, SEX),
    "kind * sex": np.eye(CELLS),
}


@examples(80, 5)
@given(seed=st.integers(0, 100_000))
def test_beside_dense_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = {"Region": rng.integers(0, 3, LEAVES), "Chain": rng.integers(0, 3, LEAVES), "Block": np.arange(LEAVES)}
    schema = Schema({"kind": 4, "sex": 2}, recodes={"kind": {"group": GROUP.tolist()}})
    observed, desired = ({level: some(rng) for level in (*layers, "Leaf")} for _ in range(2))
    observed["Block"] |= {"kind * sex": 4.0}
    if rng.random() < 0.5:
        observed["Region"]["total"] = 0.0
    empty = rng.random(LEAVES) < rng.choice([0.0, 0.3, 1.0])
    zeros = {(str(rng.choice(["Block", "Leaf"])), "total"): empty}
    problem = Problem(
        schema, observed, {k: list(v) for k, v in desired.items()}, areas=Areas(LEAVES, layers), zeros=zeros
    )
    P = blue(problem, "areas")
    M, D = (stacked(own, layers) for own in (problem.observed.names, problem.desired.names))
    free = np.flatnonzero(np.repeat(~empty, CELLS))
    v, y = problem.variances, M @ np.where(np.repeat(empty, CELLS), 0, rng.poisson(9, LEAVES * CELLS)).astype(float)
    y += np.sqrt(v) * rng.standard_normal(y.size)
    exact = v == 0
    C, N = M[exact][:, free], np.eye(free.size)
    start = np.zeros(free.size)
    if C.any():
        start = np.linalg.lstsq(C, y[exact], rcond=None)[0]
        N = np.linalg.svd(C)[2][np.linalg.matrix_rank(C) :].T
    W = M[~exact][:, free] @ N / np.sqrt(v[~exact])[:, None]
    covariance = np.linalg.pinv(W.T @ W, rcond=1e-11)
    gain = D[:, free] @ N @ covariance @ W.T
    pulls = (y[~exact] - M[~exact][:, free] @ start) / np.sqrt(v[~exact])
    np.testing.assert_allclose(P @ y + P.offset, D[:, free] @ start + gain @ pulls, atol=1e-7)
    np.testing.assert_allclose(P.variances(), np.einsum("ij,ij->i", gain, gain), atol=1e-8)


def some(rng: np.random.Generator) -> dict[str, float]:
    found = {table: float(rng.choice([0.5, 1.0, 3.0])) for table in TABLES if rng.random() < 0.5}
    return found or {"total": 1.0}


def stacked(names: tuple, layers: dict[str, np.ndarray]) -> np.ndarray:
    """Tables of all areas over (leaves, cells)."""
    rows = []
    for level, table in names:
        label = layers.get(level, np.arange(LEAVES))
        rows.append(np.kron(np.equal.outer(np.unique(label), label), TABLES[table]))
    return np.vstack(rows)
