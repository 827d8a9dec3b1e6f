"""Designs of any real weights, of full rank and of less: nothing is eliminated as if doubles were exact."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import certify, estimate
from constraint_builders import Problem
from tests.helpers.effort import examples

ROWS = 30


@examples(200, 25)
@given(
    seed=st.integers(0, 100_000),
    unknowns=st.integers(1, 9),
    lacks=st.integers(0, 2),
    planted=st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
)
def test_bounds_hold_and_right_answers_are_proved(seed: int, unknowns: int, lacks: int, planted: float) -> None:
    """Beside a dense singular value decomposition; columns that others make up add nothing."""
    rng = np.random.default_rng(seed)
    S = rng.standard_normal((rng.integers(unknowns, ROWS), unknowns))
    S = np.hstack([S, S @ rng.standard_normal((unknowns, lacks))])
    variances = 10.0 ** rng.uniform(-2, 2, len(S))
    y = S @ rng.normal(50, 10, S.shape[1]) + rng.standard_normal(len(S)) * np.sqrt(variances)
    sd = np.sqrt(variances)
    U = np.linalg.svd(S / sd[:, None])[0][:, :unknowns]
    best = sd * (U @ (U.T @ (y / sd)))
    direction = rng.standard_normal(unknowns)
    x = best + planted * sd * (U @ (direction / np.linalg.norm(direction)))
    certificate = certify(Problem.from_summing_matrix(S, variances), y, x)
    assert certificate.bound is not None, certificate
    assert certificate.bound >= 0.999 * planted
    if planted == 0:
        assert certificate.bound < 1e-6


def test_a_dense_design_is_estimated_with_its_proof() -> None:
    rng = np.random.default_rng(3)
    problem = Problem.from_summing_matrix(rng.standard_normal((40, 20)), np.ones(40))
    assert estimate(problem, rng.normal(50, 3, 40)).info.exact
