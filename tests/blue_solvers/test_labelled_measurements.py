"""Measurements with labels are laid out by them, or refused, by every way to an estimate alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import BlueOperator, blue, estimate, fit_test
from constraint_builders import Problem, gallery
from tests.helpers.every import every

pd = pytest.importorskip("pandas")

NODES = ["all", "north", "south"]
S = pd.DataFrame([[1, 1], [1, 0], [0, 1]], index=NODES)
PROBLEM = Problem.from_summing_matrix(S, pd.Series([1.0, 2.0, 4.0], NODES))
WAYS: dict[str, Callable[[BlueOperator, object], np.ndarray]] = {
    "P @ y": lambda P, y: P @ y,
    "P.apply": lambda P, y: P.apply(y)[0],
    "P.estimate": lambda P, y: P.estimate(y).values,
    "estimate": lambda P, y: estimate(P.problem, y).values,
    "fit_test": lambda P, y: fit_test(P.problem, y).residuals,
}


@pytest.mark.parametrize("way", WAYS)
@given(order=st.permutations(range(3)))
def test_rows_may_come_in_any_order(way: str, order: list[int]) -> None:
    y = pd.Series([10.0, 7.0, 2.0], NODES)
    np.testing.assert_array_equal(WAYS[way](blue(PROBLEM), y.iloc[order]), WAYS[way](blue(PROBLEM), y.to_numpy()))


@every("way", WAYS)
def test_unknown_nodes_are_refused_by_name(way: str) -> None:
    with pytest.raises(ValueError, match="west"):
        WAYS[way](blue(PROBLEM), pd.Series([10.0, 7.0, 2.0], ["all", "north", "west"]))


@every("way", WAYS)
def test_labels_that_say_nothing_are_refused(way: str) -> None:
    """A vector over several tables has no names for its rows."""
    with pytest.raises(ValueError, match="labels"):
        WAYS[way](blue(gallery.toy()), pd.Series([30.0, 5, 10, 15], ["total", "low", "middle", "high"]))


@every("way", WAYS)
def test_masked_measurements_are_refused(way: str) -> None:
    with pytest.raises(ValueError, match="mask"):
        WAYS[way](blue(PROBLEM), np.ma.array([10.0, 7.0, 2.0], mask=[False, True, False]))
