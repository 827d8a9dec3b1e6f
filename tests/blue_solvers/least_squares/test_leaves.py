"""Least squares whose leaves are the answer, beside exact fractions, dense algebra and the sums' own estimate."""

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import Problem, estimate, selected_inverse
from blue_solvers.errors import UnsupportedProblemError
from blue_solvers.least_squares import factors_of_information, leaf_basis, least_squares, proof_of_leaves
from constraint_builders import LowRankPlusDiagonal
from tests.helpers.designs import KINDS, anchors, differences, exact_least_squares, grid_of_differences, measured
from tests.helpers.effort import lengths
from tests.helpers.refused import refused

CLOSE = 1e-8  # standard errors
PROVED = 1e-6


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@lengths("designs", 4, 150)
def test_answers_are_those_of_exact_fractions_and_proved(kind: Any, designs: int) -> None:
    for seed in range(designs):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        S, variances = kind(rng)
        y = measured(rng, S, variances)
        exact, found = exact_least_squares(S, y, variances), least_squares(S, y, variances)
        assert found.rank.rank == exact.rank, seed
        assert found.rank.is_clear
        np.testing.assert_array_equal(np.isnan(found.values), np.isnan(exact.leaves))
        known = ~np.isnan(exact.leaves)
        assert (abs(found.values - exact.leaves)[known] <= CLOSE * exact.deviations[known]).all(), seed
        np.testing.assert_allclose(found.std_errors, exact.deviations, rtol=CLOSE)
        told = exact.row_variances > 0
        spread = np.sqrt(exact.row_variances)
        assert (abs(found.rows - exact.rows)[told] <= CLOSE * spread[told]).all(), seed
        np.testing.assert_allclose(found.operator.over_observed.variances()[told], spread[told] ** 2, rtol=2 * CLOSE)
        assert found.certificate().bound <= PROVED, seed


def reference(S: Any, y: np.ndarray, Sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leaves and their covariance by dense algebra, of full rank."""
    root = np.linalg.cholesky(Sigma)
    dense = S.toarray() if sparse.issparse(S) else np.asarray(S)
    U, values, rows = np.linalg.svd(np.linalg.solve(root, dense), full_matrices=False)
    inverse = rows.T / values
    return inverse @ (U.T @ np.linalg.solve(root, y)), inverse @ inverse.T


def large_design(seed: int, leaves: int = 400) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """A network of several hundred leaves in three parts, one of them without an anchor, and a leaf in no row."""
    rng = np.random.default_rng(seed)
    part = np.sort(rng.integers(0, 3, leaves - 1))
    first = np.array([int(np.searchsorted(part, own)) for own in part])
    node = np.arange(leaves - 1)
    tree = node[node > first]
    pairs = np.stack([tree, rng.integers(first[tree], tree)], axis=1)
    starts, stops = np.searchsorted(part, np.arange(3)), np.searchsorted(part, np.arange(3), side="right")
    more = np.concatenate([rng.integers(a, b, (b - a, 2)) for a, b in zip(starts, stops, strict=True)])
    pairs = np.concatenate([pairs, more[more[:, 0] != more[:, 1]]])
    rows = [differences(pairs, leaves), anchors(np.array([starts[0] + 3, starts[1] + 1, starts[1] + 5]), leaves)]
    S = sparse.csr_array(sparse.vstack(rows))
    variances = 10 ** rng.uniform(-2, 2, S.shape[0])
    return S, variances, measured(rng, S, variances)


@pytest.mark.parametrize("orthogonal", [True, False], ids=["orthogonal", "pivots"])
def test_of_less_than_full_rank_parts_are_told_apart_and_differences_estimated(
    orthogonal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not orthogonal:
        monkeypatch.setattr(factors_of_information, "OPERATIONS", 0.0)
    S, variances, y = large_design(1)
    found = least_squares(S, y, variances)
    U, values, rows = np.linalg.svd(S.toarray() / np.sqrt(variances)[:, None], full_matrices=False)
    rank = int((values > 1e-9 * values[0]).sum())
    assert found.rank.rank == rank == S.shape[1] - 2
    assert found.rank.is_clear
    free = np.linalg.svd(S.toarray())[2][rank:]
    lost = (abs(free) > 1e-9).any(axis=0)
    np.testing.assert_array_equal(np.isnan(found.values), lost)
    inverse = rows[:rank].T / values[:rank]
    best, covariance = inverse @ (U.T[:rank] @ (y / np.sqrt(variances))), inverse @ inverse.T
    np.testing.assert_allclose(found.values[~lost], best[~lost], atol=1e-8)
    np.testing.assert_allclose(found.std_errors[~lost], np.sqrt(covariance.diagonal()[~lost]), rtol=1e-8)
    apart = np.flatnonzero(lost)
    W = np.zeros((S.shape[1], 2))
    W[apart[:2], 0], W[apart[[0, -1]], 1] = [1, -1], [1, 1]
    told = found.functionals(W)
    np.testing.assert_allclose(told.estimate[0], W[:, 0] @ best, rtol=1e-9)
    np.testing.assert_allclose(told.variances[0], W[:, 0] @ covariance @ W[:, 0], rtol=1e-8)
    assert np.isnan(told.estimate[1])
    assert np.isnan(told.covariance[1]).all()
    columns = found.covariance_columns([0, apart[0]])
    np.testing.assert_allclose(columns[~lost, 0], covariance[~lost, 0], atol=1e-10)
    assert np.isnan(columns[:, 1]).all()


def test_several_free_directions_of_one_part_are_found_by_pivots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_basis, "is_cheap_orthogonal", lambda shape: False)
    rng = np.random.default_rng(3)
    S = rng.integers(-3, 4, (40, 9)).astype(float) @ rng.integers(-2, 3, (9, 14))
    y = measured(rng, S, np.ones(40))
    found = least_squares(S, y, 1.0)
    assert (found.rank.rank, found.rank.leaves) == (np.linalg.matrix_rank(S), 14)
    np.testing.assert_allclose(found.rows, S @ np.linalg.lstsq(S, y)[0], atol=1e-9)


def covariances(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Noise of every kind that has entries, (n, n)."""
    root, shared = rng.standard_normal((n, n)), rng.standard_normal((n, 2))
    blocks = sparse.block_diag([own @ own.T + np.eye(len(own)) for own in np.split(rng.standard_normal((n, 3)), 4)])
    order = rng.permutation(n)
    return {
        "dense": root @ root.T + np.eye(n),
        "blocks": sparse.csr_array(blocks)[order][:, order],
        "shared": LowRankPlusDiagonal(rng.uniform(1, 3, n), shared),
    }


@lengths("designs", 20, 600)
def test_exact_and_unmeasured_rows_of_any_rank_are_those_of_dense_algebra(designs: int) -> None:
    """Combinations that exact rows leave nothing of are rounding, and no information."""
    kinds, proved = KINDS[1:6], 0
    for seed in range(designs):
        rng = np.random.default_rng([seed, 99])
        S, variances = kinds[seed % 5](rng)
        rows = S.toarray() if sparse.issparse(S) else S
        n, k = rows.shape
        exact = rng.random(n) < rng.choice([0, 0.1, 0.3])
        open_ = ~exact & (rng.random(n) < rng.choice([0, 0.2]))
        noisy, sd = ~exact & ~open_, np.sqrt(np.clip(variances, 1e-2, 1e2))
        y = rows @ rng.normal(0, 5, k) + np.where(noisy, sd * rng.standard_normal(n), 0)
        y[open_] = np.nan
        found = least_squares(S, y, np.where(exact, 0.0, np.where(open_, np.inf, sd**2)))
        units = np.linalg.norm(rows, axis=0)
        units[units == 0] = 1.0
        scaled = rows / units
        fixed, free = np.zeros(k), np.eye(k)
        if exact.any():
            _, values, right = np.linalg.svd(scaled[exact])
            free = right[int((values > 1e-9 * values.max(initial=0)).sum()) :].T
            fixed = np.linalg.lstsq(scaled[exact], y[exact], rcond=1e-11)[0]
        weighted = scaled[noisy] / sd[noisy, None]
        told, rank = np.zeros((k, int(noisy.sum()))), 0
        if noisy.any() and free.shape[1]:
            U, values, right = np.linalg.svd(weighted @ free, full_matrices=False)
            rank = int((values > 1e-10 * np.linalg.norm(weighted, 2)).sum())
            told = free @ (right[:rank].T / values[:rank]) @ U[:, :rank].T
        best = fixed + told @ (y[noisy] / sd[noisy] - weighted @ fixed)
        lost = np.zeros(k, dtype=bool)
        if (~open_).any():
            _, values, right = np.linalg.svd(scaled[~open_])
            lost = (abs(right[int((values > 1e-9).sum()) :]) > 1e-8).any(axis=0)
        assert found.rank.rank == k - free.shape[1] + rank, seed
        np.testing.assert_array_equal(np.isnan(found.values), lost)
        errors = np.linalg.norm(told, axis=1)
        if not lost.any():
            np.testing.assert_allclose(found.rows, scaled @ best, rtol=1e-7, atol=1e-8 * max(1, abs(best).max()))
            C = found.operator.functional_covariance(np.diag(units))
            np.testing.assert_allclose(C, told @ told.T, rtol=1e-6, atol=1e-7 * max(1e-9, errors.max() ** 2))
        np.testing.assert_allclose(
            (found.values * units)[~lost], best[~lost], rtol=1e-7, atol=1e-8 * max(1, abs(best).max())
        )
        np.testing.assert_allclose((found.std_errors * units)[~lost], errors[~lost], rtol=1e-6, atol=1e-8)
        redundancy = found.goodness_of_fit().redundancy
        assert redundancy.sum() == pytest.approx(noisy.sum() - rank, abs=1e-6)
        bound = found.certificate().bound
        proved += bound is not None and bound <= PROVED
    assert proved >= 0.98 * designs


def test_fit_and_rows_are_those_of_the_sums_own_estimate() -> None:
    rng = np.random.default_rng(2)
    S = np.vstack([np.ones(6), np.repeat(np.eye(3), 2, axis=1), np.eye(6)])
    variances = rng.uniform(1, 3, 10)
    y = measured(rng, S, variances)
    y[4] += 30
    sums, found = estimate(Problem.from_summing_matrix(S, variances), y), least_squares(S, y, variances)
    np.testing.assert_allclose(found.rows, sums.values, rtol=1e-11)
    np.testing.assert_allclose(found.values, sums.values[4:], rtol=1e-11)
    np.testing.assert_allclose(found.std_errors, sums.std_errors[4:], rtol=1e-11)
    ours, theirs = found.goodness_of_fit(), sums.goodness_of_fit()
    np.testing.assert_allclose(ours.residuals, theirs.residuals, rtol=1e-8)
    np.testing.assert_allclose(ours.redundancy, theirs.redundancy, rtol=1e-9)
    np.testing.assert_allclose(ours.minimal_detectable_error(), theirs.minimal_detectable_error(), rtol=1e-9)
    assert (ours.degrees_of_freedom, ours.outliers(1)[0].cell) == (theirs.degrees_of_freedom, (4,))


@lengths("side", 40, 60)
def test_variances_on_a_grid_are_not_those_that_few_iterations_leave(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    S = sparse.csr_array(sparse.vstack([grid_of_differences(side, side), anchors(np.array([0]), side**2)]))
    y = measured(np.random.default_rng(0), S, np.ones(S.shape[0]))
    inverse = np.linalg.inv((S.T @ S).toarray())
    rows = S.multiply(S @ inverse).sum(axis=1)
    for few in (0, 10_000):  # compiled, and the reference
        monkeypatch.setattr(selected_inverse, "FEW_SUPERNODES", few)
        found = least_squares(S, y, 1.0)
        np.testing.assert_allclose(found.variances, inverse.diagonal(), rtol=1e-9)
        np.testing.assert_allclose(found.operator.over_observed.variances(), rows, rtol=1e-9)


@lengths("networks", 20, 200)
def test_stiff_networks_keep_their_digits(networks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the factor's entries but for those that may have lost digits; if many may, by none where the worst did."""
    monkeypatch.setattr(factors_of_information, "OPERATIONS", 0.0)
    monkeypatch.setattr(factors_of_information, "SOON", 0.0)
    agreed = []
    agree = factors_of_information.SparseFactor._agree
    monkeypatch.setattr(
        factors_of_information.SparseFactor, "_agree", lambda *args: agreed.append(agree(*args)) or agreed[-1]
    )
    for seed in range(networks):
        rng = np.random.default_rng([seed, 5])
        size, stiff = int(rng.integers(100, 250)), rng.uniform(1.3, 2.0)
        node = np.arange(1, size)
        pairs = np.stack([node, np.maximum(node - rng.integers(1, 6, node.size), 0)], axis=1)
        rows = [differences(pairs, size, 10 ** rng.uniform(-stiff, stiff, node.size)), anchors(np.zeros(1, int), size)]
        S = sparse.csr_array(sparse.vstack([*rows, sparse.random_array((size // 2, size), density=2 / size, rng=rng)]))
        variances = 10 ** rng.uniform(-stiff, stiff, S.shape[0])
        found = least_squares(S, np.zeros(S.shape[0]), variances, certify=False)
        monkeypatch.setattr(factors_of_information, "SOME", (1024, -1)[seed % 2])
        root = np.linalg.qr(found.operator.basis.B.toarray(), mode="r")
        for own, spread in (
            (found.operator, found.operator.basis.F),
            (found.operator.over_observed, found.operator.basis.sums),
        ):
            exact = np.linalg.norm(np.linalg.solve(root.T, spread.toarray().T), axis=0)
            np.testing.assert_allclose(np.sqrt(own.variances()), exact, rtol=CLOSE, atol=1e-300)
    assert 0 < sum(agreed) < len(agreed), agreed


def test_names_are_those_of_frames_or_given() -> None:
    frame = pd.DataFrame([[1, 1.0], [1, 0], [0, 1]], index=["both", "left", "right"], columns=["l", "r"])
    y, variances = pd.Series({"right": 4.0, "left": 1.0, "both": 6.0}), pd.Series({"left": 1.0, "right": 1, "both": 2})
    found = least_squares(frame, y, variances)
    plain = least_squares(frame.to_numpy(), [6.0, 1, 4], [2.0, 1, 1], names=["l", "r"])
    np.testing.assert_array_equal(found.values, plain.values)
    assert found.to_frame()["node"].to_list() == plain.to_frame()["node"].to_list() == ["l", "r"]
    assert found.goodness_of_fit().describe(1) == "table 'rows', cell (node=left)"
    np.testing.assert_array_equal(found.tables["leaves"], found.values)
    named = least_squares(frame.to_numpy(), y, 1.0, row_names=frame.index)
    np.testing.assert_array_equal(named.y, [6, 1, 4])


def test_operators_are_read_and_the_estimate_is_one() -> None:
    rng = np.random.default_rng(4)
    S, variances = rng.standard_normal((90, 70)), rng.uniform(1, 2, 90)
    y = measured(rng, S, variances)
    found = least_squares(aslinearoperator(S), y, variances)
    np.testing.assert_allclose(found.values, least_squares(S, y, variances).values, rtol=1e-12)
    P = found.operator
    Y, V = rng.standard_normal((90, 3)), rng.standard_normal((70, 2))
    np.testing.assert_allclose(V.T @ (P @ Y), (P.T @ V).T @ Y, rtol=1e-10)
    np.testing.assert_allclose(P @ S, np.eye(70), atol=1e-10)
    again = pickle.loads(pickle.dumps(P))
    np.testing.assert_allclose(again @ y, found.values, rtol=1e-12)
    assert repr(again) == repr(P)
    assert "rank 70 of 70" in P.info.reason
    assert "20 equations" in repr(found)


@pytest.mark.parametrize("factored", [True, False], ids=["factor", "singular values"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@lengths("designs", 3, 100)
def test_no_planted_error_is_above_its_bound(
    kind: Any, designs: int, factored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the bound say much more, which is of the combination that is off the most."""
    if not factored:
        monkeypatch.setattr(proof_of_leaves, "SHIFTS", ())
    for seed in range(designs):
        rng = np.random.default_rng([seed, 77, KINDS.index(kind)])
        S, variances = kind(rng)
        y = measured(rng, S, variances)
        exact, P = exact_least_squares(S, y, variances), operator_of(S, variances)
        known = ~np.isnan(exact.leaves)
        moved = 10 ** rng.uniform(-9, 0) * rng.standard_normal(known.size)
        claimed = P.anything(y[:, None])[:, 0] + np.where(known, moved * np.nan_to_num(exact.deviations), 0.0)
        off = np.linalg.norm(S @ np.where(known, claimed - exact.leaves, 0.0) / np.sqrt(variances))
        assert (1 - 1e-6) * off <= P.certificate(y, claimed).bound <= 1.1 * off + PROVED, seed


def operator_of(S: Any, variances: Any) -> Any:
    """Of rows, (n, k), and their variances."""
    return least_squares(S, np.zeros(S.shape[0]), variances, certify=False).operator


@pytest.mark.parametrize("kind", ["dense", "blocks", "shared", "exact"])
@lengths("designs", 4, 100)
def test_no_planted_error_is_above_its_bound_of_any_noise(kind: str, designs: int) -> None:
    """Correlated noise beside dense algebra too."""
    for seed in range(designs):
        rng = np.random.default_rng([seed, 11])
        S = rng.standard_normal((20, 6)) * (rng.random((20, 6)) < 0.5) + np.eye(20, 6)
        exact = np.flatnonzero(rng.random(20) < 0.1)[:3] if kind == "exact" else np.zeros(0, dtype=int)
        Sigma = np.diag(10 ** rng.uniform(-2, 2, 20)) if kind == "exact" else covariances(rng, 20)[kind]
        whole = Sigma.toarray() if sparse.issparse(Sigma) else Sigma @ np.eye(20)
        noisy = np.setdiff1d(np.arange(20), exact)
        y = S @ rng.normal(0, 9, 6) + np.where(np.isin(np.arange(20), exact), 0.0, rng.standard_normal(20))
        given = np.where(np.isin(np.arange(20), exact), 0.0, whole.diagonal()) if kind == "exact" else Sigma
        found = least_squares(S, y, given)
        assert found.certificate().bound <= 1e-9, seed
        if kind != "exact":
            values, covariance = reference(S, y, whole)
            np.testing.assert_allclose(found.values, values, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(found.std_errors, np.sqrt(covariance.diagonal()), rtol=1e-9)
            np.testing.assert_allclose(found.covariance_block([0, 2], [1, 2, 5]), covariance[[0, 2]][:, [1, 2, 5]])
            np.testing.assert_allclose(found.covariance_columns([4]), covariance[:, [4]])
            fit, left = found.goodness_of_fit(), y - S @ values
            assert fit.degrees_of_freedom == 14
            np.testing.assert_allclose(fit.statistic, left @ np.linalg.solve(whole, left))
        moved = rng.standard_normal(6) * 10 ** rng.uniform(-6, 0)
        moved -= np.linalg.pinv(S[exact]) @ (S[exact] @ moved)
        off = np.linalg.norm(np.linalg.solve(np.linalg.cholesky(whole[np.ix_(noisy, noisy)]), S[noisy] @ moved))
        bound = found.operator.certificate(y, found.values + moved).bound
        assert (1 - 1e-6) * off - 1e-9 <= bound <= 1.1 * off + 1e-9, seed


def test_leaves_of_any_number_are_proved_and_planted_errors_found() -> None:
    """An error of one leaf is off by what the rows around it say of it."""
    S = sparse.csr_array(sparse.vstack([grid_of_differences(50, 60), anchors(np.array([0]), 3000)]))
    found = least_squares(S, measured(np.random.default_rng(0), S, np.ones(S.shape[0])), 1.0)
    assert found.info.exact
    assert found.proof.bound < 1e-11
    planted = found.values + np.where(np.arange(3000) == 1234, 1e-6, 0.0)
    assert 2e-6 <= found.operator.certificate(found.y, planted).bound < 2.1e-6
    apart = found.operator.certificate(found.y, found.values, found.rows + np.where(np.arange(5891) == 7, 1e-6, 0.0))
    assert 1e-6 <= apart.bound < 1e-5
    assert apart.violation == pytest.approx(1e-6)


def test_exact_rows_and_shared_noise_of_many_leaves_are_proved() -> None:
    rng = np.random.default_rng(1)
    S = sparse.csr_array(sparse.vstack([grid_of_differences(40, 50), anchors(np.array([0, 3]), 2000)]))
    variances = np.where(rng.random(S.shape[0]) < 0.05, 0.0, 10 ** rng.uniform(-4, 4, S.shape[0]))
    found = least_squares(S, S @ rng.normal(0, 9, 2000) + np.sqrt(variances) * rng.normal(size=S.shape[0]), variances)
    assert found.certificate().bound < 1e-9
    off = found.values + np.where(np.arange(2000) == S.indices[S.indptr[np.flatnonzero(variances == 0)[0]]], 1.0, 0.0)
    assert "contradicts what is known exactly by 1" in str(found.operator.certificate(found.y, off))
    shared = LowRankPlusDiagonal(np.ones(S.shape[0]), rng.standard_normal((S.shape[0], 2)))
    found = least_squares(S, found.y, shared)
    assert found.certificate().bound < 1e-9
    moved = found.operator.certificate(found.y, found.values + 1e-3)
    assert 1e-3 / found.std_errors[0] <= moved.bound < 2e-3


@pytest.mark.parametrize("factored", [True, False], ids=["factor", "singular values"])
def test_eigenvalues_are_bounded_from_below_or_not_at_all(factored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is guessed of them."""
    if not factored:
        monkeypatch.setattr(proof_of_leaves, "SHIFTS", ())
    for seed in range(8):
        rng = np.random.default_rng(seed)
        C = rng.standard_normal((30, 8)) * (rng.random((30, 8)) < 0.5) + np.eye(30, 8)
        C[:, 7] = C[:, 6] + 10.0 ** -rng.integers(0, 5) * C[:, 7]
        C = sparse.csr_array(C / np.linalg.norm(C, axis=0))
        least = np.linalg.svd(C.toarray())[1][-1] ** 2
        for guess in (None, least, 100 * least, 1.0):
            found = proof_of_leaves.bounded_below(C, abs(C), 16, guess).least
            assert 0.9 * least / 4096 <= found <= least * (1 + 1e-9), (seed, guess)
        C = sparse.csr_array(sparse.hstack([C, C @ np.full((8, 1), 0.5)]))
        with pytest.raises(proof_of_leaves.NotCertifiedError):
            proof_of_leaves.bounded_below(C, abs(C), 16)


def test_a_proof_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_of_leaves, "SHIFTS", ())
    monkeypatch.setattr(proof_of_leaves, "is_cheap_orthogonal", lambda shape: False)
    found = least_squares([[1.0, 0.0], [1.0, 1.0]], [1.0, 2.0], 1.0)
    assert str(found.certificate()).startswith("not certified: no factor says how far its information matrix is from")
    assert not found.info.exact


REFUSED: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    ([[1.0], [2.0]], [1, 2, 3], 1.0, {}, r"y must have shape \(2,\), one number for every row of S: got \(3,\)"),
    ([[1.0], [2.0]], [1, np.nan], 1.0, {}, r"table 'rows', cell \(node=1\) is NaN: give a finite number"),
    ([[1.0], [np.nan]], [1, 1], 1.0, {}, "S holds NaN or infinite entries"),
    ([[1.0, 1e-160]], [1], 1.0, {}, "S weighs leaf 1 by 1e-160 at most, below 1e-50: scale its column"),
    ([[1.0], [2.0]], [1, 1], [1, -1], {}, r"variances is negative \(-1.0\)"),
    ([[1.0], [2.0]], [1, 1], [1, np.nan], {}, "variances is NaN"),
    ([[1.0], [2.0]], [1, 1], [1, 1, 1], {}, r"variances must be a number or have shape \(2,\) or \(2, 2\)"),
    ([[1.0, 2.0]], [1], 1.0, {"names": ["a"]}, "names of leaves must be 2, one for every column of S: got 1"),
    ([[1.0, 2.0]], [1], 1.0, {"names": ["a", "a"]}, "two leaves are called 'a'"),
    ([[1.0], [2.0]], [1, 1], np.ones((2, 2)), {}, "the covariance is singular, so that combinations of rows"),
    ([[1.0], [2.0]], [1, 1], aslinearoperator(np.eye(2)), {}, "its covariance is an operator without entries"),
    ([[1, 1], [1, 1 + 1e-7]], [1, 1], [0, 0], {}, "exact and nearly a combination of other exact rows"),
    (
        [[1, 1], [2, 2], [1, 0]],
        [1, 3, 0],
        [0, 0, 1],
        {},
        r"exact rows \(node=0\), \(node=1\) contradict one another by 1",
    ),
]


@refused(*REFUSED, error=(ValueError, UnsupportedProblemError))
def test_what_is_no_problem_of_least_squares_is_refused(S: Any, y: Any, variances: Any, more: dict[str, Any]) -> None:
    least_squares(S, y, variances, **more)


def test_nothing_measured_leaves_every_leaf_open() -> None:
    found = least_squares([[1.0, 1.0], [0.0, 0.0]], [np.nan, 2.0], [np.inf, 1.0])
    assert np.isnan(found.values).all()
    assert (found.rank.rank, str(found.rank)) == (0, "rank 0 of 2 (least singular value inf, the next 0)")
    assert np.isnan(found.rows[0])
    assert found.rows[1] == 0


def test_of_correlated_rows_the_proof_is_of_leaves_too() -> None:
    S, Sigma, y = [[3.0, 0.0, 0.0], [0.0, 1.0, 1.0]], np.array([[1.0, 0.5], [0.5, 1.0]]) * 1e-8, [1e9 + 1, 2.0]
    found = least_squares(S, y, Sigma, certify=True)
    off = float(abs(Fraction(found.values[0]) - Fraction(1_000_000_001, 3)))
    assert np.isnan(found.values[1:]).all()
    assert off / found.std_errors[0] <= found.info.error_bound < 1e-2
    moved = np.add(found.values, [0.01, 0.0, 0.0])
    assert found.operator.certificate(found.y, moved, found.rows).bound >= 0.01 / found.std_errors[0]
