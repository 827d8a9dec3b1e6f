"""Truths add up or are refused: by sums of plain tables, and by equations, which say the same."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema
from constraint_builders.vectors import largest_gap
from tests.helpers.effort import examples
from tests.helpers.refused import refuses


@examples(60)
@given(
    levels=st.lists(st.integers(2, 4), min_size=1, max_size=4),
    data=st.data(),
    seed=st.integers(0, 999),
    off=st.booleans(),
)
def test_sums_say_what_equations_say(levels: list[int], data: st.DataObject, seed: int, off: bool) -> None:
    names = [f"v{i}" for i in range(len(levels))]
    every = [chosen for k in range(len(names) + 1) for chosen in combinations(names, k)]
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=6, unique=True))
    own = data.draw(st.sampled_from(chosen))
    observed = {" * ".join(table) or "total": 1.0 for table in chosen}
    if len(chosen) > 1:
        observed[" * ".join(own) or "total"] = data.draw(st.sampled_from([1.0, 0.0, np.inf]))
    problem = Problem(Schema(dict(zip(names, levels, strict=True))), observed, undetermined="nan")
    rng = np.random.default_rng(seed)
    M = problem.marginal_matrix()
    truth = M @ rng.integers(0, 50, M.shape[1]).astype(float)
    if off:
        truth[rng.integers(truth.size)] += 3
    gap = largest_gap(problem, truth)
    A, b = problem.equations("all")
    contradicted = bool((abs(A @ np.where(problem.unmeasured, 0, truth) - b) > 1e-6).any())
    assert (gap.size > 1e-6) == contradicted
    if contradicted:
        refuses("truth does not add up by", problem.check_truth, truth)
    else:
        problem.check_truth(truth)


def test_where_more_is_known_equations_are_asked() -> None:
    turned = Problem(Schema({"a": 2, "b": 3}), {"b * a": 1.0, "a": 1.0})
    grouped = Problem(Schema({"a": 3}, recodes={"a": {"g": [0, 0, 1]}}), {"a": 1.0, "g": 1.0})
    part = Problem(Schema({"a": 2}), {"a": [1.0, np.inf], "total": 1.0})
    for problem in (turned, grouped, part):
        assert largest_gap(problem, np.zeros(problem.observed.size)) is None
        M = problem.marginal_matrix()
        problem.check_truth(M @ np.arange(1.0, M.shape[1] + 1))
    refuses("truth does not add up by 1 between 'a' and 'g'", grouped.check_truth, np.array([1.0, 2, 3, 3, 4]))
