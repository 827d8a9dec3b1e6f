"""The closed form where one sign or operator decides."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.testing.dense_reference import DenseReference
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


@every("finest", ["detailed", "b * v"])
@every("spread", [1.0, 30.0])
def test_many_groups_of_recodes_that_cross(finest: str, spread: float) -> None:
    """The total exact; some components have fewer lines than groups, where none but `b * v` tells levels apart."""
    recodes = {
        "u": {"a": [0, 0, 0, 1, 1, 1, 2, 2, 2], "b": [0, 0, 1, 1, 1, 2, 2, 2, 2]},
        "v": {"c": [0, 0, 1, 1, 2, 2, 2, 3], "d": [0, 1, 1, 1, 2, 2, 3, 3]},
    }
    schema = Schema({"u": 9, "v": 8, "w": 2}, recodes=recodes)
    observed = {"total": 0.0, finest: 1.0, "a * c": spread, "b * d": 3.0, "a * d": 1 / spread, "b * w": 2.0, "d": 0.5}
    problem = Problem(schema, observed)
    rng = np.random.default_rng(1)
    y, v = rng.normal(9, 2, problem.observed.size), rng.normal(0, 1, problem.desired.size)
    P, dense = blue(problem, "sea_blue"), DenseReference.of(problem)
    np.testing.assert_allclose(P @ y + P.offset, dense.operator @ y + dense.offset, atol=1e-8)
    np.testing.assert_allclose(P.rmatvec(v), dense.operator.T @ v, atol=1e-9)
    np.testing.assert_allclose(P.variances(), dense.variances, rtol=1e-7, atol=1e-12)
