"""The closed form where one sign or operator decides."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from constraint_builders import Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.every import every


@every("exact", ["total", "a", "b"])
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


@examples(60, 6)
@given(st.data())
def test_groups_in_any_order(data: st.DataObject) -> None:
    """Recodes whose cells come in another order than levels, some of which tell all levels apart."""
    levels = data.draw(st.integers(3, 5))
    partitions = st.permutations(range(levels)).flatmap(
        lambda order: st.integers(1, levels - 2).map(lambda merged: [min(own, merged) for own in order])
    )
    recodes = {f"r{i}": own for i, own in enumerate(data.draw(st.lists(partitions, min_size=2, max_size=3)))}
    schema = Schema({"a": levels, "b": 3}, recodes={"a": recodes})
    kept = {"a", *recodes, *data.draw(st.sets(st.sampled_from(["a * b", "b", *(f"{own} * b" for own in recodes)])))}
    kinds = st.sampled_from([0.5, 1.0, 4.0])
    problem = Problem(schema, {name: data.draw(kinds) for name in sorted(kept)})
    y = np.random.default_rng(0).normal(9, 2, problem.observed.size)
    P, dense = blue(problem, "sea_blue"), blue(problem, "dense")
    np.testing.assert_allclose(P @ y, dense @ y, atol=1e-10)
    np.testing.assert_allclose(P.variances(), dense.variances(), rtol=1e-9)
