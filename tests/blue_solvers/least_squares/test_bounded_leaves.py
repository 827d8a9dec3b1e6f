"""Least squares within bounds of any sign satisfy the conditions of the optimum, found apart from the program."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import lsq_linear, nnls

from blue_solvers.least_squares import LeafEstimate, least_squares
from blue_solvers.nonnegative import NotConvergedError
from tests.helpers.designs import collinear, deficient, dense, graph, grid, measured, power, sparse_rows
from tests.helpers.effort import lengths
from tests.helpers.refused import refused

KINDS = (dense, sparse_rows, graph, power, grid, deficient)
Pair = tuple[np.ndarray, np.ndarray]


def unexplained(B: np.ndarray, left: np.ndarray, limits: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """What is left of the gradient, relative to it, by multipliers of the right sign of the bounds that hold.

    B and left are weighted rows, (N, k), and their residuals; `limits` are the combinations with bounds, (m, k), of
    which flags say whether they are at the lower or the upper one.
    """
    columns = np.hstack([limits[low].T, -limits[high].T])
    scale = np.linalg.norm(B, axis=0)
    scale[scale == 0] = 1.0
    gradient = B.T @ left / scale
    sizes = abs(B.T) @ abs(left) / scale
    if not columns.shape[1]:
        return float((abs(gradient) / np.maximum(sizes, 1e-300)).max())
    columns = columns / scale[:, None]
    lengths_of = np.linalg.norm(columns, axis=0)
    lengths_of[lengths_of == 0] = 1.0
    multipliers = nnls(columns / lengths_of, gradient, maxiter=20_000)[0]
    return float(np.linalg.norm(gradient - (columns / lengths_of) @ multipliers) / np.linalg.norm(sizes))


def bounds_around(rng: np.random.Generator, values: np.ndarray, spread: np.ndarray) -> Pair:
    """Some of them such that the best values are outside; a third of each are infinite."""
    lower, upper = values - spread * rng.exponential(1, values.size), values + spread * rng.exponential(1, values.size)
    moved = rng.random(values.size) < 0.4
    shift = np.where(moved, 3 * spread * rng.choice([-1.0, 1.0], values.size), 0.0)
    free = rng.random((2, values.size)) < 1 / 3
    return np.where(free[0], -np.inf, lower + shift), np.where(free[1], np.inf, upper + shift)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("of", ["leaves", "rows", "both"])
@lengths("designs", 2, 60)
def test_gradients_are_those_of_the_bounds_that_hold(kind: Any, of: str, designs: int) -> None:
    held = 0
    for seed in range(designs):
        rng = np.random.default_rng([seed, KINDS.index(kind), 7])
        S, variances = kind(rng)
        variances = variances ** (1 / 3)
        leaves = rng.normal(0, 10, S.shape[1])
        y = S @ leaves + np.sqrt(variances) * rng.standard_normal(S.shape[0])
        dense_rows = S.toarray() if sparse.issparse(S) else S
        B = dense_rows / np.sqrt(variances)[:, None]
        units = 1 / np.maximum(np.linalg.norm(B, axis=0), 1e-300)
        given = {
            "leaves": bounds_around(rng, leaves, np.where(units < 1e200, units, 1.0)),
            "rows": bounds_around(rng, S @ leaves, np.sqrt(variances)),
        }
        if of == "both":  # all of these must be met by something
            inside = leaves + 0.5 * rng.standard_normal(leaves.size) * np.where(units < 1e200, units, 1.0)
            for name, point in (("leaves", inside), ("rows", S @ inside)):
                given[name] = np.minimum(given[name][0], point), np.maximum(given[name][1], point)
        elif of == "rows":
            given["rows"] = np.minimum(given["rows"][0], S @ leaves), np.maximum(given["rows"][1], S @ leaves)
        bounds = given if of == "both" else {of: given[of]}
        found = least_squares(S, y, variances, bounds=bounds, certify=False)
        known = ~np.isnan(found.values)
        assert found.error_bound <= 5e-5, (seed, found)
        if not known.all():
            continue
        limits = np.vstack([np.eye(S.shape[1]), dense_rows])
        none = np.full(S.shape[1], np.inf), np.full(S.shape[0], np.inf)
        low = np.concatenate([bounds.get("leaves", (-none[0],))[0], bounds.get("rows", (-none[1],))[0]])
        high = np.concatenate([bounds.get("leaves", (0, none[0]))[1], bounds.get("rows", (0, none[1]))[1]])
        values = limits @ found.values
        sizes = np.maximum(np.abs(limits) @ abs(found.values), 1e-6)
        assert ((values >= low - 1e-9 * sizes) & (values <= high + 1e-9 * sizes)).all(), seed
        at_low, at_high = values - low <= 1e-8 * sizes, high - values <= 1e-8 * sizes
        assert unexplained(B, B @ found.values - y / np.sqrt(variances), limits, at_low, at_high) <= 1e-6, seed
        held += int(at_low.sum() + at_high.sum())
        np.testing.assert_allclose(found.rows, dense_rows @ found.values, rtol=1e-7, atol=1e-7 * abs(found.rows).max())
    assert held or kind is deficient


def test_answers_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    S, y = rng.standard_normal((40, 12)), rng.normal(0, 3, 40)
    lower, upper = np.full(12, -0.2), np.append(np.full(11, 0.3), np.inf)
    found = least_squares(S, y, 2.0, bounds=(lower, upper))
    expected = lsq_linear(S, y, (lower, upper), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(found.values, expected, atol=1e-9)
    assert found.error_bound < 1e-6
    assert found.at_bounds.sum() > 3
    assert isinstance(found.estimate, LeafEstimate)
    assert "12 leaves" in repr(found)


def test_bounds_that_hold_nothing_change_nothing_whatever_the_units() -> None:
    rng = np.random.default_rng(2)
    S, variances = dense(rng)
    y = measured(rng, S, variances)
    plain = least_squares(S, y, variances)
    for unit in (1e-9, 1.0, 1e9):
        found = least_squares(S, y * unit, variances * unit**2, bounds=(-1e30, 1e30))
        np.testing.assert_allclose(found.values, plain.values * unit, rtol=1e-6)
        assert not found.at_bounds.any()


def test_exact_rows_hold_and_labels_are_followed() -> None:
    S = pd.DataFrame([[1, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]], ["all", "x", "y", "z"], ["x", "y", "z"])
    y, variances = pd.Series({"all": 10.0, "x": -3, "y": 5, "z": 5}), pd.Series({"all": 0.0, "x": 1, "y": 1, "z": 1})
    lower = pd.Series({"z": 6.0, "y": -np.inf, "x": -1.0})
    found = least_squares(S, y, variances, bounds=(lower, np.inf))
    np.testing.assert_allclose(found.values, [-1.0, 5.0, 6.0], atol=1e-9)
    np.testing.assert_allclose(found.rows[0], 10.0)
    np.testing.assert_array_equal(found.at_bounds, [True, False, True])
    rows = least_squares(
        S, y, variances, bounds={"rows": ({"all": -np.inf, "x": 0, "y": 0, "z": 0}, 7.0 + 3 * np.eye(4)[0])}
    )
    np.testing.assert_allclose(rows.values, [0.0, 5.0, 5.0], atol=1e-9)


def test_leaves_that_rows_leave_open_stay_so() -> None:
    found = least_squares([[1, -1, 0], [0, 0, 1]], [2.0, -3.0], 1.0, bounds=(0.0, np.inf))
    assert np.isnan(found.values[:2]).all()
    np.testing.assert_allclose(found.values[2], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.rows, [2.0, 0.0], atol=1e-9)


def test_hardly_told_apart() -> None:
    S, variances = collinear(np.random.default_rng(0))
    y = measured(np.random.default_rng(1), S, variances)
    found = least_squares(S, y, variances, bounds=(-5.0, 5.0))
    assert (abs(found.values) <= 5).all()
    assert found.error_bound < 1e-3


REFUSED: list[tuple[Any, str]] = [
    ((1.0,), r"bounds are a pair \(lower, upper\)"),
    ((0.0, np.nan), r"the upper bound of table 'leaves', cell \(node=0\) is nan"),
    ((np.inf, np.inf), r"the lower bound of table 'leaves', cell \(node=0\) is inf: give a number, or -inf for none"),
    (([0.0, 3.0], [1.0, 2.0]), r"cell \(node=1\) is to be 3 at least and 2 at most"),
    (([0.0, 3.0, 1.0], 9.0), r"lower bounds must be a number or have shape \(2,\): got \(3,\)"),
    ({"cells": (0.0, 1.0)}, "bounds of 'leaves' and 'rows' may be given: got 'cells'"),
    ({"rows": ([3, 0, 0], np.inf)}, r"cell \(node=0\) is known exactly as 2, outside of its bounds 3 and inf"),
]


@refused(*REFUSED)
def test_what_are_no_bounds_is_refused(bounds: Any) -> None:
    least_squares([[1, 1], [1, 0], [0, 1]], [2.0, 1.0, 1.0], [0, 1, 1], bounds=bounds)


def test_bounds_that_nothing_meets_are_refused() -> None:
    with pytest.raises(NotConvergedError, match="no cells meet"):
        least_squares([[1, 1], [1, 0], [0, 1]], [2.0, 1.0, 1.0], [0, 1, 1], bounds=(3.0, 4.0))
    with pytest.raises(ValueError, match="bounds are met by independent noise of the rows"):
        least_squares([[1, 1], [1, 0], [0, 1]], [2.0, 1.0, 1.0], np.eye(3) + 0.1, bounds=(3.0, 4.0))


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_bounds_on_what_is_not_estimable_hold(unit: float) -> None:
    """No leaf here is estimable, and one combination of them is; nor is a row that was not measured."""
    found = least_squares([[2.0, -1.0]], [-1.8 * unit], unit**2, bounds=([0.2 * unit, -np.inf], [np.inf, 0.4 * unit]))
    assert np.isnan(found.values).all()
    np.testing.assert_allclose(found.rows, [0.0], atol=1e-7 * unit)
    np.testing.assert_allclose(found.objective, 1.8**2 / 2, rtol=1e-7)
    S, y, variances = [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]], [np.nan, 3.0 * unit], [np.inf, unit**2]
    rows = least_squares(S, y, variances, bounds={"rows": ([-np.inf, -np.inf], [-8 * unit, np.inf])})
    assert np.isnan(rows.rows[0])
    np.testing.assert_allclose(rows.rows[1], 3.0 * unit, rtol=1e-9)
    bounds = {"leaves": (-np.inf, [unit, 9 * unit, 9 * unit]), "rows": ([-np.inf, -np.inf], [unit, np.inf])}
    both = least_squares(S, y, variances, bounds=bounds)
    np.testing.assert_allclose(both.rows[1], 2.0 * unit, rtol=1e-7)


@pytest.mark.parametrize("scale", [1.0, 2.0**20])
def test_bounds_that_hold_together_with_what_is_free_are_met_exactly(scale: float) -> None:
    """Of b - c, a + c and a + b, no leaf of which is estimable: all three are best at their upper bounds."""
    S, y = np.array([[0.0, 1.0, -scale], [1.0, 0.0, scale], [1.0, 1.0, 0.0]]), [3.0, 10.0, 14.0]
    found = least_squares(S, y, 1.0, bounds=([-np.inf, -np.inf, 0.0], [4.0, 5.0, 3.0 / scale]))
    assert np.isnan(found.values).all()
    np.testing.assert_allclose(found.rows, [2.0, 7.0, 9.0], atol=1e-9)
    np.testing.assert_allclose(found.objective, (1.0 + 9.0 + 25.0) / 2, rtol=1e-12)
    assert found.error_bound < 1e-6


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_what_exact_rows_determine_is_refused_outside_of_its_bounds(unit: float) -> None:
    S, y = [[2.0, 0.0], [0.0, 1.0]], [10.0 * unit, 7.0 * unit]
    with pytest.raises(ValueError, match=r"'leaves', cell \(node=0\) is 5e?.* by exact rows, outside of its bounds"):
        least_squares(S, y, [0, unit**2], bounds=(0.0, 3 * unit))
    with pytest.raises(ValueError, match=r"cell \(node=0\) is known exactly as 1.*, outside of its bounds"):
        least_squares(S, y, [0, unit**2], bounds={"rows": (0.0, 9 * unit)})
    bounds = {"rows": (0.0, [np.inf, np.inf, 4 * unit])}
    with pytest.raises(ValueError, match=r"'rows', cell \(node=2\) is .* by exact rows, outside of its bounds"):
        least_squares([*S, [1.0, 0.0]], [*y, np.nan], [0, unit**2, np.inf], bounds=bounds)
