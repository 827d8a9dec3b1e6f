"""Reconciled forecasts, against dense generalised least squares and against hierarchicalforecast."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls
from scipy.stats import norm

from blue_solvers.adapters import ExactMinTrace, reconcile, reconcile_over_time
from blue_solvers.adapters.residual_covariance import METHODS, shrunk_covariance
from constraint_builders import LowRankPlusDiagonal
from constraint_builders.arrays import Float
from tests.helpers.effort import examples
from tests.helpers.every import cases, every
from tests.helpers.grouped_forecasts import GROUPED, HORIZON, NAMES, TAGS, deviations, frames, projection, sample
from tests.helpers.refused import refuses


def shrunk(residuals: Float) -> Float:
    """By the definition of Schaefer and Strimmer, pair by pair."""
    n, times = residuals.shape
    centred = residuals - residuals.mean(axis=1, keepdims=True)
    covariance = centred @ centred.T / (times - 1)
    X = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True))
    above = below = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                products = X[i] * X[j]
                above += ((products - products.mean()) ** 2).sum() / (times * (times - 1))
                below += products.mean() ** 2
    intensity = min(1.0, above / below)
    return np.where(np.eye(n) > 0, covariance, (1 - intensity) * covariance)


def weights_of(method: str, residuals: Float) -> Float:
    """The covariance of a method, dense."""
    return {
        "ols": lambda: np.eye(9),
        "wls_struct": lambda: np.diag(GROUPED.sum(axis=1)),
        "wls_var": lambda: np.diag((residuals**2).mean(axis=1) + 2e-8),
        "mint_cov": lambda: np.cov(residuals),
        "mint_shrink": lambda: shrunk(residuals),
    }[method]()


@every("method", METHODS)
def test_methods_are_generalised_least_squares(method: str) -> None:
    values, fitted, y_hat = sample()
    P = projection(weights_of(method, values - fitted))
    own = ExactMinTrace(method)
    found = own.fit_predict(sparse.csr_array(GROUPED), y_hat, values, fitted, sigmah=deviations(), level=[95, 80])
    np.testing.assert_allclose(found["mean"], P @ y_hat, rtol=1e-9)
    W = weights_of(method, values - fitted)
    correlations = W / np.sqrt(np.outer(np.diag(W), np.diag(W)))
    for step in range(HORIZON):
        own_covariance = correlations * np.outer(deviations()[:, step], deviations()[:, step])
        errors = np.sqrt(np.diag(P @ own_covariance @ P.T))
        np.testing.assert_allclose(found["sigmah"][:, step], errors, rtol=1e-8)
        expected = found["mean"][:, step, None] + errors[:, None] * norm.ppf([0.025, 0.1, 0.9, 0.975])
        np.testing.assert_allclose(found["quantiles"][:, step], expected, rtol=1e-8)


@every("method", ["wls_var", "mint_cov", "mint_shrink"])
def test_errors_by_the_covariance_of_residuals(method: str) -> None:
    values, fitted, y_hat = sample()
    W = weights_of(method, values - fitted)
    P = projection(W)
    own = ExactMinTrace(method).fit(GROUPED, y_hat, values, fitted)
    np.testing.assert_allclose(own.std_errors()[:, 1], np.sqrt(np.diag(P @ W @ P.T)), rtol=1e-8)


@examples(30)
@given(st.integers(2, 8), st.integers(2, 12), st.integers(0, 10**6))
def test_the_shrunk_covariance_is_low_rank_plus_diagonal(series: int, times: int, seed: int) -> None:
    residuals = np.random.default_rng(seed).normal(size=(series, times)) + 0.5
    own = shrunk_covariance(residuals)
    np.testing.assert_allclose(own @ np.eye(series), shrunk(residuals), rtol=1e-7, atol=1e-7)


@every("kind", ["diagonal", "dense", "sparse", "low rank"])
def test_own_covariances(kind: str) -> None:
    rng = np.random.default_rng(2)
    U, D = rng.normal(size=(9, 2)), rng.uniform(1, 4, 9)
    own: Any = {
        "diagonal": lambda: D,
        "dense": lambda: np.diag(D) + U @ U.T,
        "sparse": lambda: sparse.csr_array(np.diag(D) + np.eye(9, k=1) / 3 + np.eye(9, k=-1) / 3),
        "low rank": lambda: LowRankPlusDiagonal(D, U),
    }[kind]()
    W = np.diag(own) if kind == "diagonal" else own.toarray() if kind == "sparse" else own @ np.eye(9)
    _, _, y_hat = sample()
    P = projection(W)
    reconciler = ExactMinTrace(covariance=own)
    np.testing.assert_allclose(reconciler.fit_predict(GROUPED, y_hat)["mean"], P @ y_hat, rtol=1e-8)
    np.testing.assert_allclose(reconciler.std_errors()[:, 0], np.sqrt(np.diag(P @ W @ P.T)), rtol=1e-8)
    scaled = ExactMinTrace(covariance=own).fit(GROUPED, y_hat, sigmah=deviations()).std_errors()
    W_h = W / np.sqrt(np.outer(np.diag(W), np.diag(W))) * np.outer(deviations()[:, 2], deviations()[:, 2])
    np.testing.assert_allclose(scaled[:, 2], np.sqrt(np.diag(P @ W_h @ P.T)), rtol=1e-8)


@every("sigmah", [deviations(), None])
def test_samples_are_coherent_and_spread_as_they_should(sigmah: Float | None) -> None:
    values, fitted, y_hat = sample()
    own = ExactMinTrace("mint_shrink")
    mean = own.fit_predict(GROUPED, y_hat, values, fitted, sigmah=sigmah, seed=4)["mean"]
    draws = own.sample(20_000)
    np.testing.assert_allclose(draws, np.einsum("ij,jhk->ihk", GROUPED, draws[5:]), rtol=1e-7, atol=1e-7)
    errors = own.std_errors()
    np.testing.assert_allclose(draws.std(axis=2), errors, rtol=0.03)
    assert (abs(draws.mean(axis=2) - mean) < 5 * errors / np.sqrt(20_000)).all()


def test_nonnegative_forecasts_are_the_best_of_their_kind() -> None:
    _, _, y_hat = sample()
    y_hat = y_hat - 20
    found = ExactMinTrace("wls_struct", nonnegative=True).fit_predict(GROUPED, y_hat)["mean"]
    weigh = 1 / np.sqrt(GROUPED.sum(axis=1))
    leaves = np.stack([nnls(GROUPED * weigh[:, None], own * weigh)[0] for own in y_hat.T], axis=1)
    np.testing.assert_allclose(found, GROUPED @ leaves, atol=1e-7)
    assert (leaves == 0).any()


@every("method", ["wls_struct", "wls_var", "mint_shrink"])
def test_crossed_with_time(method: str) -> None:
    """Years, half-years and quarters of every series, beside a dense Kronecker product and its intervals."""
    over_time = np.vstack([np.ones((1, 4)), np.kron(np.eye(2), np.ones((1, 2))), np.eye(4)])
    rng = np.random.default_rng(6)
    S, y_hat = np.kron(GROUPED, over_time), rng.normal(10, 3, (9, 7))
    values = np.einsum("ij,jkt,lk->ilt", GROUPED, rng.gamma(5, 3, (4, 4, 30)), over_time)
    fitted = values + rng.normal(size=values.shape)
    ask = {"level": [80], "intervals_method": "conformal"}
    found = reconcile_over_time(GROUPED, [4, 2, 1], y_hat, values, fitted, method=method, **ask)
    flat = [own.reshape(63, -1) for own in (y_hat, values, fitted)]
    beside = ExactMinTrace(method).fit_predict(S, *flat, **ask)
    if method != "mint_shrink":
        W = S.sum(axis=1) if method == "wls_struct" else ((flat[1] - flat[2]) ** 2).mean(axis=1) + 2e-8
        weighed = S.T / W
        np.testing.assert_allclose(found["mean"].ravel(), (S @ np.linalg.solve(weighed @ S, weighed @ flat[0]))[:, 0])
    assert found["quantiles"].shape == (9, 7, 2)
    for name, own in found.items():
        np.testing.assert_allclose(own.reshape(beside[name].shape), beside[name], rtol=1e-9)


def test_periods_and_shapes_over_time_are_refused_by_name() -> None:
    wrong: tuple[list[Any], ...] = ([12, 5, 1], [4, 2], [])
    for periods in wrong:
        with pytest.raises(ValueError, match="periods must be divisors of the longest, 1 among them"):
            reconcile_over_time(GROUPED, periods, np.zeros((9, 3)))
    refuses(r"y_hat must have shape \(9, 3\): got \(9, 2\)", reconcile_over_time, GROUPED, [2, 1], np.zeros((9, 2)))
    with pytest.raises(ValueError, match=r"y_insample must have shape \(9, 3, T\): got \(9, 3\)"):
        reconcile_over_time(GROUPED, [2, 1], np.zeros((9, 3)), np.zeros((9, 3)), np.zeros((9, 3)))


KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
}


@every("kind", KINDS)
def test_frames_in_and_out_unchanged(kind: str) -> None:
    base, summing, past = frames(KINDS[kind])
    out = reconcile(base, summing, TAGS, past, method="mint_shrink", level=[90])
    assert type(out) is type(base)
    own = "AR/ExactMinTrace_method-mint_shrink"
    names = list(out.columns) if kind != "pyarrow" else out.column_names
    before = list(base.columns) if kind != "pyarrow" else base.column_names
    assert names == [*before, own, f"{own}-lo-90", f"{own}-hi-90"]
    found, given_rows = pl.DataFrame(pa.table(out) if kind == "pandas" else out), pl.DataFrame(base)
    assert found.select(before).equals(given_rows)
    values, fitted, y_hat = sample()
    P = projection(shrunk(values - fitted))
    place = found.with_columns(i=pl.col("unique_id").replace_strict({name: i for i, name in enumerate(NAMES)}))
    np.testing.assert_allclose(found[own], (P @ y_hat)[place["i"], place["ds"] - 1], rtol=1e-8)
    W = shrunk(values - fitted)
    correlations = W / np.sqrt(np.outer(np.diag(W), np.diag(W)))
    errors = np.stack([np.sqrt(np.diag(P @ (correlations * np.outer(s, s)) @ P.T)) for s in deviations().T], axis=1)
    width = 2 * norm.ppf(0.95) * errors[place["i"], place["ds"] - 1]
    np.testing.assert_allclose(found[f"{own}-hi-90"] - found[f"{own}-lo-90"], width, rtol=1e-7)


def test_a_summing_matrix_with_an_index_or_sparse_columns() -> None:
    base, summing, _ = frames(pd.DataFrame)
    expected = reconcile(base, summing, method="ols")
    pd.testing.assert_frame_equal(reconcile(base, summing.set_index("unique_id"), method="ols"), expected)
    leaves = summing[NAMES[5:]].astype(pd.SparseDtype(float, 0))
    kept = pd.concat([summing[["unique_id"]], leaves], axis=1)
    pd.testing.assert_frame_equal(reconcile(base, kept, method="ols"), expected)


@cases(
    (lambda s: pd.read_csv(io.StringIO(s.to_csv())), "column 'Unnamed: 0' has no row of its name"),
    (lambda s: s.iloc[:-1], f"column '{NAMES[-1]}' has no row of its name"),
    (lambda s: s.assign(unique_id=[NAMES[-1], *NAMES[:-1]]), "is not the leaf whose column is called so"),
    (lambda s: s.assign(**{NAMES[-1]: 1.0}), "is not the leaf whose column is called so"),
    (lambda s: s.assign(note="a"), "column 'note' of S_df holds String: weights are numbers, drop all else"),
)
def test_a_column_that_is_no_leaf_and_rows_in_another_order_are_refused(
    change: Callable[[Any], Any], message: str
) -> None:
    """An index that was written to a file was one more leaf, which took up whatever did not add up."""
    base, summing, _ = frames(pd.DataFrame)
    with pytest.raises(ValueError, match=message):
        reconcile(base[base["unique_id"].isin(change(summing)["unique_id"])], change(summing), method="ols")


def test_series_that_only_an_index_names_are_read_and_columns_that_are_numbered_are_none() -> None:
    """Arrow keeps an index without a name; numbers of columns, as pandas gives them, are not those of the series."""
    base, summing, _ = frames(pd.DataFrame)
    right = reconcile(base, summing, method="ols").drop(columns="unique_id")
    own = summing.set_index("unique_id").rename_axis(None)
    pd.testing.assert_frame_equal(
        reconcile(base, pa.Table.from_pandas(own), method="ols").drop(columns="unique_id"), right
    )
    number = {name: i for i, name in enumerate(NAMES)}
    numbered = own.set_axis([*own.index.map(number)]).set_axis(range(own.shape[1]), axis=1)
    others = own.set_axis([f"leaf {i}" for i in range(own.shape[1])], axis=1)
    pd.testing.assert_frame_equal(reconcile(base, others, method="ols").drop(columns="unique_id"), right)
    base = base.assign(unique_id=base["unique_id"].map(number))
    pd.testing.assert_frame_equal(reconcile(base, numbered, method="ols").drop(columns="unique_id"), right)


@cases(
    (lambda b: b[b["unique_id"] != "east"], {}, "Y_hat_df: series 'east' of S_df has no rows"),
    (lambda b: b.assign(unique_id=b["unique_id"].replace("east", "north")), {}, "'north' is no row of S_df"),
    (lambda b: b.iloc[1:], {}, "has no forecast 'AR' at some time"),
    (lambda b: pd.concat([b, b.iloc[:1]]), {}, "has two rows of one time"),
    (lambda b: b.rename(columns={"ds": "date"}), {}, "Y_hat_df has no column 'ds'"),
    (lambda b: b[["unique_id", "ds"]], {}, "has no column of forecasts"),
    (lambda b: b, {"tags": {"x": ["north"]}}, "tag 'x': series 'north' is no row of S_df"),
    (lambda b: b, {"method": "mint_shrink"}, "needs the sample's values and the forecasts of them"),
    (lambda b: b, {"method": "mint"}, "no method 'mint': there are 'ols'"),
    (lambda b: b[["unique_id", "ds", "AR"]], {"level": [90]}, "weighs forecasts and does not say how large"),
    (lambda b: b.drop(columns="AR-hi-80"), {"level": [90]}, "Y_hat_df has 'AR-lo-80' and no 'AR-hi-80'"),
    (lambda b: b.drop(columns="AR-lo-80"), {"level": [90]}, "Y_hat_df has 'AR-hi-80' and no 'AR-lo-80'"),
    (lambda b: b, {"level": [190]}, "a level is a coverage in per cent"),
    (lambda b: b, {"level": [0.9]}, "a level is a coverage in per cent"),
    (lambda b: b.assign(ds=b["ds"].map(str).where(b.index > 0)), {}, "has a row without a time in 'ds'"),
)
def test_what_is_wrong_is_named(change: Callable[[Any], Any], options: dict[str, Any], message: str) -> None:
    base, summing, _ = frames(pd.DataFrame)
    refuses(message, reconcile, change(base), summing, **{"method": "ols", **options})


def test_other_refusals() -> None:
    values, fitted, y_hat = sample()
    refuses("singular: use 'mint_shrink'", ExactMinTrace("mint_cov").fit, GROUPED, y_hat, values[:, :9], fitted[:, :9])
    with pytest.raises(ValueError, match="non-negative forecasts have no exact intervals"):
        ExactMinTrace("ols", nonnegative=True).fit_predict(GROUPED, y_hat, level=[90])
    with pytest.raises(ValueError, match="intervals by 'bootstrap' need y_insample"):
        ExactMinTrace("ols").fit_predict(GROUPED, y_hat, level=[90], intervals_method="bootstrap")
    refuses("nothing is fitted yet", ExactMinTrace("ols").predict)
    own = ExactMinTrace("ols").fit(GROUPED, y_hat)
    np.testing.assert_array_equal(own.predict(GROUPED, y_hat)["mean"], own.predict()["mean"])
    for S, base in ((GROUPED, y_hat + 1), (2 * GROUPED, y_hat), (GROUPED[:8], None), (None, y_hat[:, :1])):
        refuses("S or y_hat is another than this was fitted to", own.predict, S, base)
    for residual in (np.inf, 1e200):
        with pytest.raises(ValueError, match="series 2 has the residual"):
            ExactMinTrace("wls_var").fit(GROUPED, y_hat, np.where(np.arange(9)[:, None] == 2, residual, values), fitted)
    for variance in (0.0, np.inf):
        known = np.where(np.arange(9) == 1, variance, 1.0)
        with pytest.raises(ValueError, match=f"gives series 1 the variance {variance:g}"):
            ExactMinTrace(covariance=known).fit(GROUPED, y_hat, sigmah=deviations())
    refuses("values known exactly contradict one another", ExactMinTrace(covariance=np.zeros(9)).fit, GROUPED, y_hat)
    for level, message in ((90, "level must be a list"), ([0.9], "a coverage in per cent"), (["90"], "level is '90'")):
        refuses(message, own.predict, level=level, error=(ValueError, TypeError))
    with pytest.raises(ValueError, match="y_hat of series 1 at step 2 is nan"):
        ExactMinTrace("ols").fit(GROUPED, np.where(np.arange(27).reshape(9, 3) == 5, np.nan, y_hat))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_beside_the_original(method: str) -> None:
    """In one list with hierarchicalforecast's own class: the same forecasts, and intervals."""
    core = pytest.importorskip("hierarchicalforecast.core")
    methods = pytest.importorskip("hierarchicalforecast.methods")
    base, summing, past = frames(pd.DataFrame)
    tags = {level: np.array(series) for level, series in TAGS.items()}
    both = core.HierarchicalReconciliation(reconcilers=[methods.MinTrace(method=method), ExactMinTrace(method)])
    out = both.reconcile(Y_hat_df=base, Y_df=past, S_df=summing, tags=tags, level=[80], intervals_method="normality")
    theirs, ours = f"AR/MinTrace_method-{method}", f"AR/ExactMinTrace_method-{method}"
    np.testing.assert_allclose(out[ours], out[theirs], rtol=1e-5)
    for bound in ("lo-80", "hi-80"):
        np.testing.assert_allclose(out[f"{ours}-{bound}"], out[f"{theirs}-{bound}"], rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_in_its_list_with_intervals_of_the_sample() -> None:
    core = pytest.importorskip("hierarchicalforecast.core")
    base, summing, past = frames(pd.DataFrame, levels=False)
    tags = {level: np.array(series) for level, series in TAGS.items()}
    for intervals in ("conformal", "bootstrap"):
        ask = {"level": [80], "intervals_method": intervals, "num_samples": 5, "seed": 2}
        own = core.HierarchicalReconciliation(reconcilers=[ExactMinTrace("mint_shrink")])
        ids = ["unique_id", "ds"]
        theirs = own.reconcile(Y_hat_df=base, Y_df=past, S_df=summing, tags=tags, **ask).sort_values(ids)
        ours = reconcile(base, summing, Y_df=past, level=[80], intervals_method=intervals, seed=2).sort_values(ids)
        called = "AR/ExactMinTrace_method-mint_shrink"
        assert theirs.filter(like=f"{called}-sample").shape == (27, 5)
        for bound in ("lo", "hi"):
            width = abs(ours[f"{called}-{bound}-80"] - ours[called])
            np.testing.assert_allclose(
                abs((theirs[f"{called}-{bound}-80"] - theirs[called]).to_numpy()), width, rtol=0.2
            )


@pytest.mark.filterwarnings("ignore")
def test_the_sparse_matrix_of_hierarchicalforecast() -> None:
    utils = pytest.importorskip("hierarchicalforecast.utils")
    if not hasattr(utils, "SMatrix"):
        pytest.skip("an older release without SMatrix")
    base, summing, _ = frames(pd.DataFrame)
    held = utils.SMatrix(sparse.csc_matrix(GROUPED), np.array(NAMES), np.array(NAMES[5:]))
    pd.testing.assert_frame_equal(reconcile(base, held, method="ols"), reconcile(base, summing, method="ols"))
