"""Reconciled forecasts where a number could be wrong without a word: gaps, refits, unequal or singular covariances."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from blue_solvers.adapters import ExactMinTrace, reconcile, reconcile_over_time
from constraint_builders.arrays import Float
from tests.helpers.every import every
from tests.helpers.grouped_forecasts import GROUPED, deviations, frames, projection, sample, without
from tests.helpers.refused import refuses


def in_fractions(S: Float, variances: Float, y: Float) -> Float:
    """S (S' W S)^-1 S' W y by exact elimination."""
    leaves = range(S.shape[1])
    rows = [
        ([Fraction(own) for own in row], 1 / Fraction(v), Fraction(value))
        for row, v, value in zip(S, variances, y, strict=True)
    ]
    left: list[list[Any]] = [
        [sum(w * row[i] * row[j] for row, w, _ in rows) for j in leaves] + [sum(w * row[i] * v for row, w, v in rows)]
        for i in leaves
    ]
    for i in leaves:
        left[i] = [own / left[i][i] for own in left[i]]
        for other in leaves:
            if other != i:
                left[other] = [a - left[other][i] * b for a, b in zip(left[other], left[i], strict=True)]
    return np.array([float(sum(own * left[i][-1] for i, own in enumerate(row))) for row, _, _ in rows])


def test_unequal_variances_below_few_parents() -> None:
    """By one matrix of the parents a forecast of 100 was off by 1, or had no Cholesky factor."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        S = np.vstack([rng.integers(0, 2, (4, 4)), np.eye(4)])
        S[1] = S[0]
        variances, y = 10.0 ** rng.uniform(-9, 9, 8), rng.normal(100, 5, 8)
        found = ExactMinTrace(covariance=variances).fit_predict(S, y[:, None])["mean"][:, 0]
        np.testing.assert_allclose(found, in_fractions(S, variances, y), rtol=1e-10, atol=1e-10)
    S[1], variances[:] = S[0], [1e-18, 1e-18, 1, 1, 1, 1, 1, 1]
    assert np.isfinite(ExactMinTrace(covariance=variances).fit_predict(S, y[:, None])["mean"]).all()


@every("method", ["mint_cov", "mint_shrink"])
def test_later_steps_without_the_first_times(method: str) -> None:
    """Forecasts two steps ahead begin a time later: weights are by all times, errors held out by those of both."""
    values, fitted, y_hat = sample()
    late = fitted.copy()
    late[:, [0, 7]] = np.nan
    steps, residuals = np.stack([fitted, late, fitted], axis=2), values - fitted
    found = ExactMinTrace(method).fit_predict(GROUPED, y_hat, values, steps, level=[80], intervals_method="conformal")
    times = np.delete(np.arange(24), [0, 7])
    errors = np.stack([without(residuals, int(t), method) @ residuals[:, t] for t in times], axis=1)
    np.testing.assert_allclose(found["sigmah"][:, 1], np.sqrt((errors**2).mean(axis=1)), rtol=1e-7)


def test_nothing_is_left_of_a_fit_that_was_refused() -> None:
    """Its forecasts were reconciled by the weights of the fit before."""
    values, fitted, y_hat = sample()
    own = ExactMinTrace("wls_var").fit(GROUPED, y_hat, values, fitted)
    refuses("needs the sample's values", own.fit, GROUPED, 5 * y_hat)
    refuses("nothing is fitted yet", own.predict)


def test_arrays_that_are_changed_after_the_fit() -> None:
    _, _, y_hat = sample()
    given_ones = [(np.arange(1.0, 10), None), (np.eye(9) + 0.1, deviations())]
    for covariance, sigmah in given_ones:
        own = ExactMinTrace(covariance=covariance).fit(GROUPED, y_hat, sigmah=sigmah)
        before = own.predict(level=[90])["quantiles"]
        covariance[:] = np.eye(9)[0]
        if sigmah is not None:
            sigmah[:] = 7
        np.testing.assert_array_equal(own.predict(level=[90])["quantiles"], before)


def test_standard_errors_in_units_of_any_size() -> None:
    """Deviations below 1e-8 were all taken for those of the first series."""
    _, _, y_hat = sample()
    small = ExactMinTrace("ols").fit(GROUPED, 1e-9 * y_hat, sigmah=1e-9 * deviations()).std_errors()
    np.testing.assert_allclose(1e9 * small, ExactMinTrace("ols").fit(GROUPED, y_hat, sigmah=deviations()).std_errors())


def test_weights_err_as_the_sample_does_and_not_as_new_forecasts() -> None:
    """Student's intervals: what the weights' own errors add is not scaled by the first step's deviations."""
    values, fitted, y_hat = sample()
    own = ExactMinTrace("mint_cov").fit(GROUPED, y_hat, values, fitted)
    plain = own._sample_errors()
    scales = np.array([1.0, 2.0, 3.0])
    sigmah = np.sqrt(own.errors.diagonal)[:, None] * scales
    own.fit(GROUPED, y_hat, values, fitted, sigmah[:, ::-1])
    found = np.diff(own.predict(level=[90], intervals_method="student")["quantiles"], axis=2)[..., 0]
    squares = (plain.first**2).sum(axis=1)[:, None] / plain.degrees
    width = 2 * student.ppf(0.95, plain.degrees) * np.sqrt(squares * (scales[::-1] ** 2 + plain.leverages))
    np.testing.assert_allclose(found, width, rtol=1e-8)


def test_singular_covariances_of_residuals() -> None:
    """Forecasts of a sample that add up leave no way to make others do: these came back as they were."""
    values, fitted, y_hat = sample()
    adding_up = projection(np.eye(9)) @ fitted
    own = ExactMinTrace("mint_cov")
    with pytest.raises(ValueError, match="singular, and leaves no error in sums of y_hat that do not add up"):
        own.fit(GROUPED, y_hat, projection(np.eye(9)) @ values, adding_up)
    with pytest.raises(ValueError, match="singular, and leaves no error in sums of y_hat that do not add up"):
        own.fit(GROUPED, 1e-9 * y_hat, 1e-9 * projection(np.eye(9)) @ values, 1e-9 * adding_up)  # of any unit
    coherent = projection(np.eye(9)) @ y_hat
    own.fit(GROUPED, coherent, projection(np.eye(9)) @ values, adding_up)
    np.testing.assert_allclose(own.predict()["mean"], coherent, rtol=1e-9)
    with pytest.raises(ValueError, match="the sample covariance is singular, some residuals being sums of others"):
        own.predict(level=[80], intervals_method="conformal")


@every("method", ["mint_cov", "mint_shrink"])
def test_nonnegative_errors_are_held_out(method: str) -> None:
    """Far from 0 they are those of any sign."""
    values, fitted, y_hat = (own + 1e4 * GROUPED.sum(axis=1)[:, None] for own in sample())
    asked: Any = {"level": [80], "intervals_method": "conformal"}
    found = ExactMinTrace(method, nonnegative=True).fit_predict(GROUPED, y_hat, values, fitted, **asked)
    expected = ExactMinTrace(method).fit_predict(GROUPED, y_hat, values, fitted, **asked)
    np.testing.assert_allclose(found["sigmah"], expected["sigmah"], rtol=1e-3)
    np.testing.assert_allclose(found["quantiles"], expected["quantiles"], rtol=1e-6)


def test_leaves_are_not_negative_beside_a_difference_of_them() -> None:
    rng = np.random.default_rng(0)
    S = np.array([[1.0, -1], [1, 0], [0, 1]])
    values = S @ rng.normal(5, 1, (2, 30))
    fitted = values + rng.normal(0, 1, values.shape)
    found = ExactMinTrace("ols", nonnegative=True).fit_predict(
        S, [[-3.0], [-2.0], [1.0]], values, fitted, level=[80], intervals_method="conformal"
    )["quantiles"][:, 0]
    assert found[0, 0] < 0
    assert (found[1:] >= 0).all()


def test_one_series_alone() -> None:
    values, fitted = np.arange(12.0)[None], np.arange(12.0)[None] + np.cos(np.arange(12.0))
    found = ExactMinTrace("mint_cov").fit_predict([[1.0]], [[3.0]], values, fitted, level=[80])
    assert found["sigmah"][0, 0] == pytest.approx(np.std(np.cos(np.arange(12.0)), ddof=1))


def test_draws_and_seeds_are_whole_numbers() -> None:
    values, fitted, y_hat = sample()
    own = ExactMinTrace("wls_var").fit(GROUPED, y_hat, values, fitted)
    for name, wrong in [("num_samples", 0), ("num_samples", 1.5), ("seed", -1), ("seed", "a")]:
        with pytest.raises(ValueError, match=f"{name} is {wrong!r}: give a whole number"):
            own.predict(level=[80], intervals_method="bootstrap", **{name: wrong})  # type: ignore[arg-type]


def test_bootstrap_over_time_has_a_seed() -> None:
    rng = np.random.default_rng(0)
    values = np.ones((1, 3, 12))
    asked: Any = {"level": [80], "intervals_method": "bootstrap", "seed": 4}
    found = [
        reconcile_over_time([[1.0]], [2, 1], [[3.0, 1, 1]], values, values + own, **asked)["quantiles"]
        for own in [rng.normal(size=(1, 3, 12))] * 2
    ]
    np.testing.assert_array_equal(found[0], found[1])


def test_what_is_asked_for_is_read_even_where_nothing_needs_it() -> None:
    import pandas as pd

    values, fitted, y_hat = sample()
    refuses("no intervals_method 'permbu'", ExactMinTrace("ols").fit(GROUPED, y_hat).predict, intervals_method="permbu")
    with pytest.raises(ValueError, match="ridge is -1: give a least variance of 0 or more"):
        ExactMinTrace("mint_shrink", ridge=-1).fit(GROUPED, y_hat, values, fitted)
    small = [1e-6 * own for own in (y_hat, values, fitted)]  # rates, say
    with pytest.raises(ValueError, match=r"ridge is 2e-08, and no residual is above .*, so that it would be all of"):
        ExactMinTrace("wls_var").fit(GROUPED, *small)
    whole, own = (
        ExactMinTrace("wls_var", ridge=ridge).fit(GROUPED, *given).predict()["mean"]
        for ridge, given in [(2e-8, (y_hat, values, fitted)), (2e-20, small)]
    )
    np.testing.assert_allclose(1e6 * own, whole, rtol=1e-9)
    base, summing, _ = frames(pd.DataFrame, levels=False)
    with pytest.raises(ValueError, match=f"S_df has two rows of series '{summing.unique_id[3]}'"):
        reconcile(base, pd.concat([summing, summing.iloc[3:4]]), method="ols")


@every("column", [np.datetime64("2020-01-01", "us"), True, "text"])
def test_a_column_that_holds_no_numbers_is_no_model(column: Any) -> None:
    """As ``cutoff`` of a cross-validation, whose dates would be reconciled as so many microseconds."""
    import pandas as pd

    base, summing, _ = frames(pd.DataFrame, levels=False)
    with pytest.raises(ValueError, match=r"column 'cutoff' holds \w+.*: forecasts are numbers"):
        reconcile(base.assign(cutoff=column), summing, method="ols")
