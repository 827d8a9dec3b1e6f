"""Summing matrices: nodes that nest are proved as geounits, those that cross as areas, any weights as they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue, certify, estimate
from blue_solvers.verification import Certificate
from blue_solvers.verification.certificate import Certifier
from constraint_builders import Problem
from tests.helpers.effort import examples

MOST_LEAVES, ROWS = 9, 30


def require_bound(certificate: Certificate, planted: float, least: float, off: float = 1e-9) -> None:
    """Proved, and never below the error that was planted, but for what numpy's answer is itself off by."""
    assert certificate.bound is not None, certificate
    assert certificate.bound >= 0.999 * planted - off
    if planted == 0:
        assert certificate.bound < least


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


@examples(200, 15)
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
    require_bound(certificate, planted, 1e-6)


@examples(100, 12)
@given(
    seed=st.integers(0, 100_000),
    leaves=st.integers(2, MOST_LEAVES),
    exact=st.booleans(),
    planted=st.sampled_from([0.0, 1e-7, 1e-3, 1.0]),
)
def test_nodes_that_cross_are_proved_by_sums(seed: int, leaves: int, exact: bool, planted: float) -> None:
    """Sums of any weights, leaves measured twice, a sum known exactly, by no list; beside dense least squares."""
    rng = np.random.default_rng(seed)
    sums = rng.choice([0.0, 1.0, 1.0, -1.0, 2.5], (int(rng.integers(1, 6)), leaves))
    sums[0] = 1.0
    S = np.concatenate([sums, np.eye(leaves), np.eye(leaves)[:1]])
    variances = 10.0 ** rng.uniform(-2, 2, len(S))
    free = np.eye(leaves)[:, 1:] - np.eye(leaves)[:, :1] if exact else np.eye(leaves)  # the first row stays
    counts = rng.poisson(50, leaves).astype(float)
    order = rng.permutation(len(S))
    y = S @ counts + rng.standard_normal(len(S)) * np.sqrt(variances)
    if exact:
        variances[0], y[0] = 0.0, counts.sum()
    noisy = slice(int(exact), None)
    scale = 1 / np.sqrt(variances[noisy])[:, None]
    best = (
        counts + free @ np.linalg.lstsq(scale * (S @ free)[noisy], scale[:, 0] * (y - S @ counts)[noisy], rcond=None)[0]
    )
    shift = free @ rng.standard_normal(free.shape[1])
    shift *= planted / np.linalg.norm(scale[:, 0] * (S @ shift)[noisy])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blue_solvers.verification.certificate.MOST_LISTED", 0)
        patch.setattr("blue_solvers.verification.certificate.can_be_listed", lambda *_: False)
        problem = Problem.from_summing_matrix(S[order], variances[order])
        certificate = certify(problem, y[order], (S @ (best + shift))[order])
    require_bound(certificate, planted, 1e-9)


@pytest.mark.parametrize("known", [1.0, 0.0])
def test_what_proofs_keep_is_the_same_for_all_measurements(known: float) -> None:
    """A second proof, from costs that the first one kept, is the one of a fresh start; of leaves in several depths."""
    rng = np.random.default_rng(0)
    S = rows_of_a_tree(rng, 700)
    variances = 10.0 ** rng.uniform(-1, 1, len(S))
    variances[S.sum(axis=1) == 700] = known
    problem = Problem.from_summing_matrix(sparse.csr_array(S), variances)
    P, judges = blue(problem), Certifier(problem)
    for seed in range(3):
        y = S @ rng.poisson(50, 700) + np.random.default_rng(seed).standard_normal(len(S)) * np.sqrt(variances)
        x = P @ y + P.offset
        kept, fresh = judges.certify(y, x), certify(problem, y, x)
        assert kept == fresh
        assert kept.bound < 1e-9


@examples(200, 25)
@given(
    seed=st.integers(0, 100_000),
    unknowns=st.integers(1, 9),
    lacks=st.integers(0, 2),
    planted=st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
)
def test_any_real_weights_are_proved(seed: int, unknowns: int, lacks: int, planted: float) -> None:
    """Of full rank and of less, beside a dense singular value decomposition: doubles are not eliminated as if exact."""
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
    require_bound(certificate, planted, 1e-6, off=0.0)


def test_a_dense_design_is_estimated_with_its_proof() -> None:
    rng = np.random.default_rng(3)
    problem = Problem.from_summing_matrix(rng.standard_normal((40, 20)), np.ones(40))
    assert estimate(problem, rng.normal(50, 3, 40)).info.exact
