"""The fit test: right under its own law, and finds planted errors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from scipy.stats import kstest, norm

from blue_solvers import blue
from blue_solvers.goodness import fit_test as estimate_and_fit
from blue_solvers.least_squares import eliminate_outliers
from blue_solvers.verification import Fit, fit_of_estimate
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine, gallery
from noise_mechanisms import add_noise
from tests.helpers.effort import examples, lengths
from tests.helpers.refused import refuses

SCHEMA = Schema({"sex": 2, "age": 10, "race": 12})
TABLES = {"total": 1.0, "sex": 2.0, "sex * age": 3.0, "age * race": 4.0, "detailed": 9.0}


def truth_of(problem: Problem, seed: int = 0) -> np.ndarray:
    M = problem.marginal_matrix()
    return M @ np.random.default_rng(seed).gamma(2.0, 30.0, M.shape[1])


def fitted(problem: Problem, y: np.ndarray) -> Fit:
    P = blue(problem.observing())
    return fit_of_estimate(problem, y, P @ y + P.offset, P.variances())


def dense_residual_covariance(problem: Problem) -> np.ndarray:
    """Sigma A' (A Sigma A')^+ A Sigma, by dense algebra."""
    M = problem.marginal_matrix().toarray()
    Sigma = np.diag(problem.variances)
    return Sigma - M @ np.linalg.pinv(M.T @ np.diag(1 / problem.variances) @ M) @ M.T


def test_everything_equals_dense_algebra() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(Schema({"a": 3, "b": 4}), {"total": 1.0, "a": 2.0, "b": rng.uniform(1, 9, 4), "detailed": 5.0})
    y = add_noise(problem, truth_of(problem), rng=rng)
    fit = fitted(problem, y)
    C = dense_residual_covariance(problem)
    e = C @ (y / problem.variances)
    assert fit.statistic == pytest.approx(e @ (e / problem.variances))
    assert fit.degrees_of_freedom == np.linalg.matrix_rank(problem.constraint_matrix().toarray())
    np.testing.assert_allclose(fit.residuals, e / np.sqrt(np.diag(C)), rtol=1e-9)
    for name, part in fit.by_table.items():
        cells = problem.observed.slice(name)
        assert part.statistic == pytest.approx((e**2 / problem.variances)[cells].sum())
        assert part.expectation == pytest.approx((np.diag(C) / problem.variances)[cells].sum())
    worst = fit.outliers(1)[0]
    i = int(np.argmax(abs(fit.residuals)))
    rest = problem.with_variances(np.where(np.arange(y.size) == i, 1e12, problem.variances))
    without = (blue(rest.observing()) @ y)[i]
    assert (worst.value, worst.expected) == pytest.approx((y[i], without), rel=1e-6)
    assert (worst.table, worst.cell) == problem.observed.locate(i)
    one = 2 * norm.sf(abs(fit.residuals[i]))
    assert worst.probability == pytest.approx(1 - (1 - one) ** fit.checked, rel=1e-6)
    detected = norm.ppf(0.8) - norm.ppf((1 - 0.95 ** (1 / fit.checked)) / 2)
    np.testing.assert_allclose(fit.minimal_detectable_error(), detected * problem.variances / np.sqrt(np.diag(C)))


@examples(60, 25)
@given(seed=st.integers(0, 2**32 - 1), shared=st.booleans())
def test_degrees_of_freedom_are_the_noisy_cells_less_what_they_estimate(seed: int, shared: bool) -> None:
    """Tables that are known exactly, several of which say the same, and noise that cells share or do not."""
    rng = np.random.default_rng(seed)
    names = [name for name in ("total", "a", "b", "detailed") if rng.random() < 0.7] or ["detailed"]
    layout = Problem(Schema({"a": 2, "b": 3}), dict.fromkeys(names, 1.0))
    exact = np.repeat([rng.random() < 0.4 for _ in names], layout.observed.sizes)
    if exact.all():
        return
    variances, noisy = np.where(exact, 0.0, rng.uniform(1, 9, exact.size)), ~exact
    noise = LowRankPlusDiagonal(variances, noisy[:, None] * rng.normal(size=(exact.size, 1)))
    problem = layout.with_covariance(noise) if shared else layout.with_variances(variances)
    M = problem.marginal_matrix().toarray()
    y = M @ rng.poisson(30, 6) + noisy * rng.normal(size=exact.size)
    estimated = np.linalg.matrix_rank(M) - (np.linalg.matrix_rank(M[exact]) if exact.any() else 0)
    fit = fitted(problem, y)
    assert fit.degrees_of_freedom == noisy.sum() - estimated
    assert 0 <= fit.p_value <= 1


def _covariance(kind: str, size: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """One of a kind, and its entries: what is shared is larger than what cells have of their own."""
    own, shared = rng.uniform(0.5, 2, size), rng.normal(0, 2, (size, 2))
    if kind == "low rank":
        return LowRankPlusDiagonal(own, shared), np.diag(own) + shared @ shared.T
    entries = np.diag(own) + shared @ shared.T
    if kind == "sparse":
        return sparse.csr_array(entries), entries
    operator = aslinearoperator(entries)
    operator.solve = lambda V: np.linalg.solve(entries, V)
    return operator, entries


@examples(30, 10)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["sparse", "low rank", "operator"]))
def test_correlated_measurements_are_told_what_others_predict(seed: int, kind: str) -> None:
    """Each beside an estimate from all others and the noise that it shares with them; errors as residuals show them.

    And the deviations of tables, which are none smaller than those of dense algebra.
    """
    rng = np.random.default_rng(seed)
    schema = Schema({"a": 2, "b": 3})
    layout = Problem(schema, {"a": 1.0, "b": 1.0, "detailed": 1.0})
    covariance, Sigma = _covariance(kind, layout.observed.size, rng)
    problem, M = layout.with_covariance(covariance), layout.marginal_matrix().toarray()
    y = M @ rng.poisson(30, 6) + np.linalg.cholesky(Sigma) @ rng.normal(size=len(M))
    fit = blue(problem).estimate(y, certify=False).goodness_of_fit()
    for position, outlier in zip(fit.furthest(20), fit.outliers(20), strict=True):
        rest = np.arange(len(M)) != position
        K = np.linalg.inv(Sigma[np.ix_(rest, rest)])
        found = np.linalg.lstsq(np.linalg.cholesky(K).T @ M[rest], np.linalg.cholesky(K).T @ y[rest], rcond=None)[0]
        predicted = M[position] @ found + Sigma[position, rest] @ K @ (y[rest] - M[rest] @ found)
        assert outlier.expected == pytest.approx(predicted, rel=1e-6)
    K = np.linalg.inv(Sigma)
    left = np.eye(len(M)) - M @ np.linalg.solve(M.T @ K @ M, M.T @ K)
    C = left @ Sigma @ left.T
    distance = norm.ppf(0.8) - norm.ppf((1 - 0.95 ** (1 / fit.checked)) / 2)
    np.testing.assert_allclose(
        fit.minimal_detectable_error(), distance * np.sqrt(np.diag(C)) / abs(np.diag(left)), rtol=1e-6
    )
    for name, part in fit.by_table.items():
        cells = problem.observed.slice(name)
        R = C[cells, cells] / np.sqrt(np.outer(np.diag(Sigma)[cells], np.diag(Sigma)[cells]))
        off = part.statistic - part.expectation
        assert abs(part.z) <= abs(off) / np.sqrt(2 * (R**2).sum()) * (1 + 1e-9)
        assert abs(part.z) >= abs(off) / (np.sqrt(2) * part.expectation) * (1 - 1e-9)


def test_deviations_of_tables_equal_dense_algebra() -> None:
    problem = Problem(SCHEMA, TABLES)
    y = add_noise(problem, truth_of(problem), rng=1)
    fit, C = fitted(problem, y), dense_residual_covariance(problem)
    sizes = abs(fit.residuals)
    for k in (2, 20, 200):
        assert sizes[fit.furthest(k)].tolist() == np.sort(sizes)[::-1][:k].tolist()
    for name, part in fit.by_table.items():
        cells = problem.observed.slice(name)
        sd = np.sqrt(problem.variances[cells])
        R = C[cells, cells] / np.outer(sd, sd)
        assert part.z == pytest.approx((part.statistic - part.expectation) / np.sqrt(2 * (R**2).sum()), rel=1e-9)


def test_deviations_of_tables_named_in_any_order_are_alike() -> None:
    """Of more variables than bits number sets of."""
    schema, y = Schema({f"v{i}": 2 for i in range(80)}), np.arange(12.0)
    found = list[float]()
    for name, few in (("v0 * v1", y[:4]), ("v1 * v0", y[:4].reshape(2, 2).T.ravel())):
        problem = Problem(schema, {name: 1.0, "v0 * v1 * v2": 2.0})
        found += [own.z for own in fitted(problem, np.append(few, y[4:])).by_table.values()]
    assert found[2:] == pytest.approx(found[:2])


def test_right_noise_has_uniform_probabilities() -> None:
    problem = Problem(SCHEMA, TABLES)
    truth, rng = truth_of(problem), np.random.default_rng(5)
    P = blue(problem.observing())
    fits = [
        fit_of_estimate(problem, y, P @ y, P.variances())
        for y in (add_noise(problem, truth, rng=rng) for _ in range(300))
    ]
    assert kstest([f.p_value for f in fits], "uniform").pvalue > 1e-3
    worst = np.array([f.outliers(1)[0].probability for f in fits])  # Sidak's bound: never too small
    assert (worst < 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert (worst < 0.3).mean() > 0.15
    assert abs(np.mean([f.by_table["detailed"].z for f in fits])) < 4 / np.sqrt(300)


@pytest.mark.few(1)
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_variance_misread_by_one_percent_is_found(factor: float) -> None:
    """600,000 cells, a county and its two tracts: what is declared of the tracts' noise is 1 % off."""
    schema, spine = Schema({"a": 100, "b": 100, "c": 60}), Spine([-1, 0, 0])
    declared = {"depth 0": {"detailed": 0.2}, "depth 1": {"detailed": factor}}
    actual = Problem(schema, {**declared, "depth 1": {"detailed": 1.0}}, spine=spine)
    y = add_noise(actual, np.full(actual.observed.size, 50.0), rng=6)
    leaves = actual.observed.slice(("depth 1", "detailed"))
    y[: leaves.start] += 50.0  # the county holds both tracts
    misread = fitted(Problem(schema, declared, spine=spine), y)
    assert abs(fitted(actual, y).by_table["depth 1", "detailed"].z) < 3
    assert misread.degrees_of_freedom == 600_000
    assert (misread.by_table["depth 1", "detailed"].z > 0) == (factor < 1)
    assert misread.p_value < 1e-3


def test_a_missing_geounit_is_found() -> None:
    parent = [-1, 0, 0, 0, *[1] * 8, *[2] * 8, *[3] * 8]
    spine = Spine(parent)
    problem = Problem(SCHEMA, {level: {"total": 4.0, "detailed": 4.0} for level in spine.levels}, spine=spine)
    y = add_noise(problem, truth_of(problem), rng=7)
    lost = 5  # among the leaves: its numbers were never added to the file
    for name in (("depth 2", "total"), ("depth 2", "detailed")):
        problem.observed.tables(y)[name][lost] = 0.0
    fit = fitted(problem, y)
    assert fit.p_value < 1e-12
    worst = np.argsort(-fit.by_geounit[2])[:9]  # only their parent checks siblings: all of them show it
    assert {*worst.tolist()} == {1, *range(4, 12)}
    assert spine.members[2][lost] in worst
    assert fit.by_geolevel["depth 2"].z > 10
    assert fit.outliers(1)[0].table[0] in ("depth 1", "depth 2")


def test_numbers_that_mean_nothing_are_refused() -> None:
    fit = fitted(single := Problem(Schema({"a": 3}), {"a": 2.0, "total": 1.0}), np.ones(single.observed.size))
    assert fit.outliers(np.int64(0)) == fit.furthest(0) == []
    for k in (-1, 2.5, True, "3", np.nan):
        for asked in (fit.outliers, fit.furthest):
            refuses(r"k is .*: give a whole number of 0 or more", asked, k)
    for share in (0, 1, 80, -0.1, np.nan):
        for what in ("power", "level"):
            refuses(f"{what} ", fit.minimal_detectable_error, **{what: share})


def test_cells_that_nothing_checks_say_so() -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"total": 0.0, "a": [1.0, np.inf, 1.0], "b": 1.0, "detailed": 3.0})
    y = add_noise(problem, truth_of(problem), rng=8)
    fit = fitted(problem, y)
    assert fit.reason(0) == "known exactly"
    assert fit.reason(2) == "not measured"
    assert np.isnan(fit.residuals[[0, 2]]).all()
    assert sorted(fit.furthest(99)) == np.flatnonzero(np.isfinite(fit.residuals)).tolist()
    alone = Problem(Schema({"a": 3, "b": 2}), {"a": 1.0, "detailed": 1.0, "total": np.inf})
    single = Problem(Schema({"a": 3}), {"a": 2.0})
    fit = fitted(single, np.array([1.0, 2.0, 3.0]))
    assert fit.reason(1).startswith("nothing else")
    assert fit.degrees_of_freedom == 0
    assert fit.p_value == 1
    assert fit.outliers(5) == []
    assert np.isinf(fit.minimal_detectable_error()).all()
    assert fitted(alone, add_noise(alone, truth_of(alone), rng=1)).checked == 9


@lengths("draws", 20, 40)
def test_laplace_noise_is_judged_by_replicates(draws: int) -> None:
    schema = Schema({"a": 6, "b": 5})
    problem = Problem(schema, {"total": 1.0, "a": 2.0, "b": 2.0, "detailed": 3.0}, noise="laplace")
    truth, rng = truth_of(problem), np.random.default_rng(9)
    by_law = [estimate_and_fit(problem, add_noise(problem, truth, rng=rng), rng=rng) for _ in range(draws)]
    assert kstest([f.p_value for f in by_law], "uniform").pvalue > 1e-3
    assert kstest([f.outliers(1)[0].probability for f in by_law], "uniform").pvalue > 1e-3
    y = add_noise(problem, truth, rng=rng)
    y[10] += 40.0
    assert estimate_and_fit(problem, y, rng=rng).outliers(1)[0].probability < 0.02


def test_the_least_error_that_is_found_is_that_of_the_law() -> None:
    """By the normal law that of Laplace noise was 6.5 for 7.5, and two thirds of it where one noise is the residual."""
    problem = Problem(Schema({"a": 5, "b": 2}), {"a": 1.0, "a * b": 1.0}, noise="laplace")
    P, found = blue(problem), 0
    for seed in range(200):
        y, cell = add_noise(problem, np.zeros(15), rng=seed), seed % 15
        y[cell] += P.estimate(y, certify=False).goodness_of_fit(draws=0).minimal_detectable_error()[cell]
        fit = P.estimate(y, certify=False).goodness_of_fit(draws=0)
        found += fit.parts.probability_of(fit.residuals[cell], 3.0) < 0.05
    assert 0.7 < found / 200 < 0.9


def test_bad_input_is_refused_by_name() -> None:
    problem = gallery.toy()
    refuses(r"variances must have shape \(4,\)", fit_of_estimate, problem, np.zeros(4), np.zeros(4), np.zeros(3))
    with pytest.raises(ValueError, match="table 'B', cell \\(B=0\\) of y is not finite"):
        fit_of_estimate(problem, [np.nan, 0, 0, 0], np.zeros(4), np.zeros(4))
    refuses("draws is -1: give a whole number of 1 or more", estimate_and_fit, problem, np.zeros(4), draws=-1)
    fit = fit_of_estimate(problem, np.zeros(4), np.zeros(4), np.full(4, 0.5))
    with pytest.raises(ValueError, match="no spine"):
        _ = fit.by_geolevel


def test_outliers_are_called_by_their_labels() -> None:
    import pandas as pd

    nodes = ["company", "north", "south"]
    S = pd.DataFrame([[1, 1], [1, 0], [0, 1]], index=nodes, columns=nodes[1:])
    problem = Problem.from_summing_matrix(S, pd.Series([4.0, 9.0, 1.0], nodes))
    fit = fitted(problem, np.array([125.0, 60, 57]))
    assert [own.labels for own in fit.outliers(3)] == [f"(node={nodes[own.cell[0]]})" for own in fit.outliers(3)]
    assert f"largest residual: 'x' {fit.outliers(1)[0].labels}, " in str(fit)
    found = eliminate_outliers(problem, np.array([125.0, 60, 7]), level=0.1)
    assert found.outliers[0].labels in str(found)
    assert found.outliers[0].labels.startswith("(node=")
