"""Intervals of reconciled forecasts by the sample, against dense refits; non-negative ones; parameters and copies."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import nnls
from scipy.stats import t as student

from blue_solvers.adapters import ExactMinTrace, reconcile
from blue_solvers.adapters.residual_covariance import METHODS
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.grouped_forecasts import GROUPED, HORIZON, deviations, frames, projection, sample, without
from tests.helpers.refused import refuses

WHOLE = np.linalg.svd(GROUPED.T)[2][4:]  # what sums that agree leave at 0: an orthonormal basis, (5, 9)


@every("method", ["mint_cov", "mint_shrink"])
def test_conformal_intervals_are_ranks_of_errors_held_out(method: str) -> None:
    """Every time reconciled by a covariance that is estimated without it, from scratch."""
    values, fitted, y_hat = sample()
    residuals = values - fitted
    own = ExactMinTrace(method).fit(GROUPED, y_hat, values, fitted)
    found = own.predict(level=[90, 60], intervals_method="conformal")
    errors = np.stack([without(residuals, t, method) @ residuals[:, t] for t in range(24)], axis=1)
    half = np.sort(abs(errors), axis=1)[:, [14, 22]]  # the 15th and the 23rd of 24: 60 and 90 % of 25
    expected = own.predict()["mean"][:, 0, None] + np.concatenate([-half[:, ::-1], half], axis=1)
    np.testing.assert_allclose(found["quantiles"][:, 0], expected, rtol=1e-7)
    np.testing.assert_allclose(
        found["quantiles"][:, 2] - found["mean"][:, 2, None],
        expected - own.predict()["mean"][:, :1],
        rtol=1e-7,
        atol=1e-7,
    )
    np.testing.assert_allclose(found["sigmah"][:, 1], np.sqrt((errors**2).mean(axis=1)), rtol=1e-7)


def test_students_intervals_are_those_of_a_regression() -> None:
    """The sample covariance is a regression of errors on disagreements, whose predictions have Student's t."""
    values, fitted, y_hat = sample()
    residuals = values - fitted
    found = (
        ExactMinTrace("mint_cov").fit(GROUPED, y_hat, values, fitted).predict(level=[90], intervals_method="student")
    )
    centred = residuals - residuals.mean(axis=1, keepdims=True)
    Z = WHOLE @ centred
    slopes = np.linalg.lstsq(Z.T, centred.T, rcond=None)[0].T
    errors = residuals - slopes @ WHOLE @ residuals
    apart = WHOLE @ y_hat
    degrees = 24 - 5
    spread = (
        (errors**2).sum(axis=1)[:, None] / degrees * (1 + np.einsum("ih,ih->h", apart, np.linalg.solve(Z @ Z.T, apart)))
    )
    width = 2 * student.ppf(0.95, degrees) * np.sqrt(spread)
    np.testing.assert_allclose(np.diff(found["quantiles"], axis=2)[..., 0], width, rtol=1e-7)


@every("method", METHODS)
@every("intervals", ["student", "bootstrap", "conformal"])
def test_steps_of_their_own(method: str, intervals: str) -> None:
    """Forecasts of the sample made two steps before give the second step's intervals; weights are the first's."""
    values, fitted, y_hat = sample()
    steps = np.stack([fitted, fitted + (fitted - values), fitted], axis=2)
    y_hat = projection(np.eye(9)) @ y_hat  # which agree, so that errors of the weights add nothing
    ask = {"level": [80], "intervals_method": intervals, "seed": 3}
    found = ExactMinTrace(method).fit_predict(GROUPED, y_hat, values, steps, **ask)  # type: ignore[arg-type]
    alike = ExactMinTrace(method).fit_predict(GROUPED, y_hat, values, fitted, **ask)  # type: ignore[arg-type]
    ratio = np.diff(found["quantiles"], axis=2) / np.diff(alike["quantiles"], axis=2)
    np.testing.assert_allclose(ratio[:, :, 0], np.broadcast_to([1, 2, 1], (9, HORIZON)), rtol=1e-7)
    np.testing.assert_array_equal(found["mean"], alike["mean"])
    one, own = y_hat[:, :1], ExactMinTrace(method)  # a single step of its own is one too, whatever the base intervals
    short = own.fit_predict(GROUPED, one, values, steps[..., :1], deviations()[:, :1], **ask)  # type: ignore[arg-type]
    np.testing.assert_allclose(short["quantiles"][:, 0], found["quantiles"][:, 0], rtol=1e-7)


@every("method", ["ols", "wls_struct", "wls_var"])
def test_own_intervals_of_base_forecasts_scale_the_sample(method: str) -> None:
    """What weighs forecasts need not say how large their errors are: residuals do."""
    values, fitted, y_hat = sample()
    sizes = ((values - fitted) ** 2).mean(axis=1) + 2e-8
    weights = {"ols": np.ones(9), "wls_struct": GROUPED.sum(axis=1), "wls_var": sizes}[method]
    own = ExactMinTrace(method).fit(GROUPED, y_hat, values, fitted, sigmah=deviations())
    errors = projection(np.diag(weights)) @ (deviations()[:, 1, None] / np.sqrt(sizes)[:, None] * (values - fitted))
    half = np.sort(abs(errors), axis=1)[:, 22]
    found = own.predict(level=[90], intervals_method="conformal")["quantiles"][:, 1]
    np.testing.assert_allclose(np.diff(found)[:, 0], 2 * half, rtol=1e-8)


@every("intervals", ["student", "bootstrap"])
def test_draws_have_the_intervals(intervals: str) -> None:
    values, fitted, y_hat = sample()
    own = ExactMinTrace("mint_shrink")
    found = own.fit_predict(
        GROUPED, y_hat, values, fitted, level=[78], intervals_method=intervals, num_samples=20_000, seed=1
    )
    draws = own.sample(20_000)
    np.testing.assert_allclose(draws, np.einsum("ij,jhk->ihk", GROUPED, draws[5:]), rtol=1e-7, atol=1e-7)
    share = 0.78 if intervals == "student" else 0.78 * 25 / 24
    bounds = np.quantile(draws, [(1 - share) / 2, (1 + share) / 2], axis=2)
    np.testing.assert_allclose(bounds[1] - bounds[0], np.diff(found["quantiles"], axis=2)[..., 0], rtol=0.05)


@examples(15)
@given(st.integers(0, 10**6), st.sampled_from(["low rank", "dense"]))
def test_nonnegative_forecasts_of_correlated_errors(seed: int, kind: str) -> None:
    """Against non-negative least squares of what a dense Cholesky factor whitens."""
    rng = np.random.default_rng(seed)
    W = np.diag(rng.uniform(1, 4, 9)) + (U := rng.normal(size=(9, 2))) @ U.T
    y_hat = rng.normal(0, 10, (9, 2))
    given_one = W if kind == "dense" else ExactMinTrace("mint_shrink")
    if kind == "dense":
        own = ExactMinTrace(covariance=given_one, nonnegative=True).fit(GROUPED, y_hat)
    else:
        residuals = np.linalg.cholesky(W) @ rng.normal(size=(9, 12))
        own = ExactMinTrace("mint_shrink", nonnegative=True).fit(GROUPED, y_hat, residuals, 0 * residuals)
        W = own.errors.covariance @ np.eye(9)
    root = np.linalg.cholesky(np.linalg.inv(W)).T
    leaves = np.stack([nnls(root @ GROUPED, root @ column)[0] for column in y_hat.T], axis=1)
    np.testing.assert_allclose(own.predict()["mean"], GROUPED @ leaves, atol=1e-5)


def test_intervals_of_nonnegative_forecasts() -> None:
    """Ranks of what the sample's own non-negative forecasts erred by; none begins below 0."""
    values, fitted, y_hat = sample()
    y_hat = y_hat - 20
    own = ExactMinTrace("wls_struct", nonnegative=True).fit(GROUPED, y_hat, values, fitted)
    found = own.predict(level=[90], intervals_method="conformal")
    weigh = 1 / np.sqrt(GROUPED.sum(axis=1))
    errors = [values[:, t] - GROUPED @ nnls(GROUPED * weigh[:, None], fitted[:, t] * weigh)[0] for t in range(24)]
    half = np.sort(abs(np.stack(errors, axis=1)), axis=1)[:, 22, None]
    np.testing.assert_allclose(found["quantiles"][..., 1], found["mean"] + half, rtol=1e-6)
    np.testing.assert_allclose(found["quantiles"][..., 0], np.maximum(found["mean"] - half, 0), rtol=1e-6, atol=1e-6)
    assert (found["quantiles"] == 0).any()
    with pytest.raises(ValueError, match="no exact intervals: ask for 'conformal' or 'bootstrap'"):
        own.predict(level=[90], intervals_method="student")


def test_what_a_sample_cannot_say() -> None:
    values, fitted, y_hat = sample()
    own = ExactMinTrace("mint_shrink").fit(GROUPED, y_hat, values, fitted)
    for method in ("conformal", "bootstrap"):
        with pytest.raises(ValueError, match="24 times say nothing of a coverage of 97 %: give 33 or more"):
            own.predict(level=[97], intervals_method=method)
    assert np.isfinite(own.predict(level=[96], intervals_method="conformal")["quantiles"]).all()
    with pytest.raises(ValueError, match="no intervals_method 'permbu': there are 'normality', 'student'"):
        own.predict(level=[90], intervals_method="permbu")
    with pytest.raises(ValueError, match="intervals by 'conformal' need y_insample and y_hat_insample"):
        ExactMinTrace("ols").fit(GROUPED, y_hat).predict(level=[90], intervals_method="conformal")
    with pytest.raises(ValueError, match=r"residuals must have shape \(9, T\), or \(9, T, 3\)"):
        own.fit(GROUPED, y_hat, values, np.stack([fitted, fitted], axis=2))
    with pytest.raises(ValueError, match="series 4 has the residual inf"):
        own.fit(GROUPED, y_hat, np.where(np.arange(9)[:, None] == 4, np.inf, values), fitted)
    gaps = np.where(np.arange(24) % 9 == np.arange(9)[:, None], np.nan, fitted)
    own = ExactMinTrace("wls_var").fit(GROUPED, y_hat, values, gaps)
    refuses("two times or more at which every series", own.predict, level=[50], intervals_method="conformal")


def test_frames_have_intervals_of_the_sample() -> None:
    import pandas as pd

    base, summing, past = frames(pd.DataFrame, levels=False)
    out = reconcile(base, summing, Y_df=past, method="wls_struct", level=[90], intervals_method="conformal")
    values, fitted, y_hat = sample()
    own = ExactMinTrace("wls_struct").fit(GROUPED, y_hat, values, fitted)
    expected = np.sort(own.predict(level=[90], intervals_method="conformal")["quantiles"][..., 1].ravel())
    np.testing.assert_allclose(np.sort(out["AR/ExactMinTrace_method-wls_struct-hi-90"]), expected, rtol=1e-9)


def test_parameters_as_scikit_learn_sets_them() -> None:
    _, _, y_hat = sample()
    own = ExactMinTrace("wls_struct").fit(GROUPED, y_hat)
    assert own.get_params() == {"method": "wls_struct", "nonnegative": False, "ridge": 2e-8, "covariance": None}
    assert own.set_params(method="mint_cov") is own
    assert own.insample
    refuses("nothing is fitted yet", own.predict)
    refuses("no parameter 'weights': there are method, nonnegative, ridge, covariance", own.set_params, weights=1)
    refuses("no method 'mint'", own.set_params, method="mint")
    assert own.method == "mint_cov"
    base = pytest.importorskip("sklearn.base")
    variances = np.arange(1.0, 10)
    copied = base.clone(ExactMinTrace("ols", True, 1e-6, variances).fit(GROUPED, y_hat))
    assert (copied.fitted, repr(copied)) == (False, "ExactMinTrace(method='own', nonnegative='True')")
    np.testing.assert_array_equal(copied.covariance, variances)


def test_series_that_cannot_be_changed() -> None:
    """Arrays without leave to write go in; what was fitted keeps its own."""
    values, fitted, y_hat = sample()
    given_ones = [np.array(own) for own in (GROUPED, y_hat, values, fitted)]
    for one in given_ones:
        one.flags.writeable = False
    own = ExactMinTrace("mint_shrink").fit(*given_ones)
    mean = own.predict()["mean"]
    changed = y_hat.copy()
    own.fit(GROUPED, changed, values, fitted)
    changed[:] = 0
    np.testing.assert_array_equal(own.predict()["mean"], mean)
    with pytest.raises(ValueError, match="read-only"):
        own.y_hat[:] = 0


@examples(20)
@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
@example(seed=2795, leaves=2, last=False)  # the last rows sum none and both of the leaves
def test_few_parents_are_reconciled_as_by_the_operator(seed: int, leaves: int, last: bool) -> None:
    """Where leaves are the last rows one matrix of their parents does it; elsewhere, and with exact values, P does."""
    rng = np.random.default_rng(seed)
    S = np.vstack([rng.integers(0, 2, (3, leaves)), np.eye(leaves)])
    S = S if last else S[::-1]
    variances = 10.0 ** rng.uniform(-3, 3, len(S))
    y_hat = rng.normal(0, 10, (len(S), 2))
    own = ExactMinTrace(covariance=variances).fit(S, y_hat)
    W = np.diag(1 / variances)
    expected = S @ np.linalg.solve(S.T @ W @ S, S.T @ W @ y_hat)
    np.testing.assert_allclose(own.predict()["mean"], expected, atol=1e-8)
    np.testing.assert_allclose(own.P @ y_hat, expected, atol=1e-8)
    known = np.where(np.arange(len(S)) == 0, 0.0, variances)  # known exactly: kept as it is
    if S[0].any():
        np.testing.assert_allclose(ExactMinTrace(covariance=known).fit(S, y_hat).predict()["mean"][0], y_hat[0])
