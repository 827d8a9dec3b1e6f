"""Summing matrices whose nodes nest: proved as geounits, whatever was measured of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import certify
from constraint_builders import Problem
from tests.helpers.effort import examples

MOST_LEAVES = 9


def rows_of_a_tree(rng: np.random.Generator, leaves: int) -> np.ndarray:
    """All leaves, groups of groups of them down to each, in any order."""
    groups = [np.arange(leaves)]
    rows = []
    while groups:
        group = groups.pop()
        rows.append(np.isin(np.arange(leaves), group))
        if group.size > 1:
            cuts = np.sort(rng.choice(np.arange(1, group.size), rng.integers(1, min(3, group.size)), replace=False))
            groups += np.split(rng.permutation(group), cuts)
    return rng.permutation(np.array(rows, dtype=float))


@examples(200, 25)
@given(
    seed=st.integers(0, 100_000), leaves=st.integers(1, MOST_LEAVES), planted=st.sampled_from([0.0, 1e-7, 1e-3, 1.0])
)
def test_bounds_hold_and_right_answers_are_proved(seed: int, leaves: int, planted: float) -> None:
    """Beside dense least squares, with variances of six decades; errors of any size are planted in agreeing tables."""
    rng = np.random.default_rng(seed)
    S = rows_of_a_tree(rng, leaves)
    variances = 10.0 ** rng.uniform(-3, 3, len(S))
    y = S @ rng.poisson(50, leaves) + rng.standard_normal(len(S)) * np.sqrt(variances)
    whitened = S / np.sqrt(variances)[:, None]
    best = np.linalg.lstsq(whitened, y / np.sqrt(variances), rcond=None)[0]
    covariance = np.linalg.inv(whitened.T @ whitened)
    shift = rng.standard_normal(leaves)
    error = np.sqrt(shift @ np.linalg.solve(covariance, shift))  # of the worst combination, in its standard errors
    shift *= planted / error
    certificate = certify(Problem.from_summing_matrix(S, variances), y, S @ (best + shift))
    assert certificate.bound is not None, certificate
    assert certificate.bound >= 0.999 * planted - 1e-9  # what numpy's answer is itself off by
    if planted == 0:
        assert certificate.bound < 1e-6
