"""The array form where one sign or operator decides."""

from __future__ import annotations

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema


@pytest.mark.parametrize("exact", ["total", "a", "b"])
def test_tables_exact_and_tables_not_measured_are_no_noisy_ones(exact: str) -> None:
    """Noisy tables are those of finite and positive variance."""
    observed = {"total": 1.0, "a": 2.0, "b": 3.0, "a * b": 4.0} | {exact: 0.0}
    with np.errstate(all="raise"):
        P = blue(Problem(Schema({"a": 2, "b": 3}), observed), "sea_blue")
        y = np.random.default_rng(0).normal(9, 2, 12)
        x = P @ y
    problem = P.problem
    np.testing.assert_allclose(x[problem.observed.slice(exact)], y[problem.observed.slice(exact)], atol=1e-12)
    unmeasured = Problem(Schema({"a": 2, "b": 3}), observed | {"total": np.inf, "b": 2.0})
    with np.errstate(all="raise"):
        found = blue(unmeasured, "sea_blue") @ y
    np.testing.assert_allclose(found, blue(unmeasured, "dense") @ y, atol=1e-9)
