"""Products by regions by nested recodes of time: beside dense least squares over the Kronecker product, formed here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue, estimate
from constraint_builders import Areas, Problem, Schema
from tests.helpers.effort import examples

DAYS = 12
TIMES = {
    "day": np.arange(DAYS),
    "week": np.arange(DAYS) // 3,
    "month": np.arange(DAYS) // 6,
    "total": np.zeros(DAYS, int),
}
CROSSING = {**TIMES, "month": np.arange(DAYS) // 5}  # weeks do not add to these months
REGION, PRODUCT = np.divmod(np.arange(6), 3)
LAYERS = {"All": np.zeros(6, int), "Region": REGION, "Product": PRODUCT, "Leaf": np.arange(6)}


def sums(labels: np.ndarray) -> np.ndarray:
    """The 0/1 matrix of groups."""
    return np.equal.outer(np.unique(labels), labels).astype(float)


@pytest.mark.parametrize("times", [TIMES, CROSSING], ids=["nested", "crossing"])
@examples(30, 2)
@given(seed=st.integers(0, 100_000))
def test_beside_dense_least_squares(times: dict[str, np.ndarray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = Schema({"day": DAYS}, recodes={"day": {name: times[name].tolist() for name in ("week", "month")}})
    areas = Areas(6, {"All": LAYERS["All"], "Region": REGION, "Product": PRODUCT})
    observed = {
        level: {time: float(rng.choice([0.2, 1.0, 5.0])) for time in times if time == "day" or rng.random() < 0.6}
        for level in LAYERS
    }
    problem = Problem(schema, observed, {level: list(times) for level in LAYERS}, areas=areas)
    M = np.vstack([np.kron(sums(LAYERS[level]), sums(times[time])) for level, time in problem.observed.names])
    D = np.vstack([np.kron(sums(LAYERS[level]), sums(times[time])) for level, time in problem.desired.names])
    y = rng.normal(size=len(M)) * 10
    W = M / np.sqrt(problem.variances)[:, None]
    covariance = np.linalg.inv(W.T @ W)
    P = blue(problem)
    assert P.info.solver == "areas"
    np.testing.assert_allclose(P @ y, D @ covariance @ W.T @ (y / np.sqrt(problem.variances)), atol=1e-9)
    np.testing.assert_allclose(P.variances(), np.einsum("ij,jk,ik->i", D, covariance, D), rtol=1e-9)
    est = estimate(problem, y)
    assert est.certificate().bound < 1e-9
