"""Intervals and regions where nothing determines some desired cells: those of the others, and no numbers for them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blue_solvers import blue, estimate_variances, half_widths, intervals
from blue_solvers.uncertainty import (
    confidence_ellipsoid,
    covariance_columns,
    distribution_free_band,
    distribution_free_ellipsoid,
    simultaneous_band,
)
from constraint_builders import Problem, Schema
from tests.helpers.every import every

SCHEMA = Schema({"a": 2, "b": 3})
MEASURED = {"total": 0.0, "a": 1.0, "b": 2.0}
WHOLE = Problem(SCHEMA, MEASURED)
PARTLY = Problem(SCHEMA, {**MEASURED, "detailed": np.inf}, undetermined="nan")
Y = np.array([30.0, 10, 20, 9, 11, 12])
MORE = np.concatenate([Y, np.full(6, np.nan)])
SEEN = np.eye(12)[:, :6]
REGIONS: list[Callable[..., Any]] = [
    confidence_ellipsoid,
    simultaneous_band,
    lambda *given: distribution_free_band(*given, draws=99, rng=0),
    lambda *given: distribution_free_ellipsoid(*given, draws=99, rng=0),
]


@every("region", REGIONS)
def test_regions_of_what_is_determined_are_the_same(region: Callable[..., Any]) -> None:
    weights = SEEN[:, [0, 1, 3]]
    found, expected = region(PARTLY, MORE, weights), region(WHOLE, Y, weights[:6])
    if isinstance(found, tuple):
        np.testing.assert_allclose(found, expected, rtol=0.05 if region is simultaneous_band else 1e-9)
        return
    assert found.rank == expected.rank == 2
    np.testing.assert_allclose(found.half_widths, expected.half_widths, rtol=1e-9)
    assert found.contains(found.centre)


@every("region", REGIONS)
def test_regions_of_what_nothing_determines_are_refused(region: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"table 'detailed', cell \(a=0, b=1\): it was not measured"):
        region(PARTLY, MORE, np.eye(12)[:, [1, 7]])


@every("method", ["z", "t", "distribution_free"])
def test_intervals_are_nan_where_nothing_determines_a_cell(method: str) -> None:
    draws = {} if method == "z" else {"draws": 99, "rng": 0}
    found, expected = intervals(PARTLY, MORE, method=method, **draws), intervals(WHOLE, Y, method=method, **draws)
    whole = intervals(PARTLY, MORE, method=method, integer=True, **draws)
    np.testing.assert_array_equal(whole, [np.ceil(found[0]), np.floor(found[1])])
    for one, other in zip(found, expected, strict=True):
        assert np.isnan(one[6:]).all()
        np.testing.assert_allclose(one[:6], other, atol=0.0 if method == "z" else 5.0)
    assert (found[0][1:6] < found[1][1:6]).all()
    np.testing.assert_array_equal(np.isnan(half_widths(blue(PARTLY), method=method, **draws)), np.isnan(found[0]))
    assert np.isnan((blue(PARTLY) @ np.nan_to_num(MORE))[6:]).all()


def test_covariances_are_nan_where_nothing_determines_a_cell() -> None:
    P, exact = blue(PARTLY), blue(WHOLE).covariance @ np.eye(6)
    found = P.covariance @ np.eye(12)
    assert np.isnan(found[6:]).all()
    assert np.isnan(found[:, 6:]).all()
    np.testing.assert_allclose(found[:6, :6], exact, atol=1e-12)
    np.testing.assert_array_equal(P.covariance.T @ np.eye(12)[0], found[0])
    np.testing.assert_array_equal(covariance_columns(P, [3, 7]), found[:, [3, 7]])
    variances, std_errors = estimate_variances(P, 4000, rng=1)
    assert np.isnan(variances[6:]).all()
    assert (abs(variances[:6] - exact.diagonal()) <= 5 * std_errors[:6] + 1e-12).all()
