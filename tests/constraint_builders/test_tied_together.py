"""What ties numbers together, against the left null space of a dense matrix of what every table counts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Problem, Schema
from constraint_builders.description.source_values import Understood
from constraint_builders.tied_together import tied_together
from tests.helpers.oracles.invent import Kind, some_with

SCHEMA = Schema({"a": 2, "b": 3})
ALONE = Kind(spine=False, zeros=False, equalities=False, cellwise=True, turned=True)
KINDS = [ALONE, replace(ALONE, spine=True), replace(ALONE, areas="sets")]


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS))
def test_equations_and_loose_cells_are_those_of_dense_algebra(seed: int, kind: Kind) -> None:
    own = some_with(seed, kind).description
    problem, M = own.problem(), own.marginal_matrix()
    measured = np.flatnonzero(np.isfinite(problem.variances))
    U, s, _ = np.linalg.svd(M[measured])
    between = U[:, np.count_nonzero(s > 1e-9) :]
    loose = [i for i, row in zip(measured, between, strict=True) if abs(row).max(initial=0) < 1e-9]
    noisy = [i for i in loose if problem.variances[i] > 0]
    found = tied_together(problem)
    assert found.equations == between.shape[1]
    assert found.is_loose == (between.shape[1] == 0)
    levels = () if problem.places is None else problem.places.levels
    assert all(f"{own.members(number).size} {level}" in str(found) for number, level in enumerate(levels))
    assert ("NOTHING TIES" in str(found)) == found.is_loose
    tables = {problem.observed.locate(i)[0] for i in noisy}
    assert len(found.unchecked) == len(tables)
    for name in tables:
        some = [i for i in noisy if problem.observed.locate(i)[0] == name]
        of = [i for i in measured if problem.observed.locate(i)[0] == name and problem.variances[i] > 0]
        said = f"table {name!r}" if len(some) == len(of) else f"{len(some)} of {len(of)} cells of table {name!r}"
        assert said in found.unchecked


def test_what_was_understood_is_said_and_no_part_of_what_is_compared() -> None:
    problem = Problem(SCHEMA, {"a": 1.0, "total": 2.0})
    told = problem.replace(understood=Understood(("A", "B"), ("a 'Total:'",), notes=("2 rows left out",)))
    said = str(tied_together(told))
    for part in ("1 equation between 2 tables", "'A', 'B'", "a 'Total:'", "2 rows left out"):
        assert part in said
    assert told == problem
    assert told.observing().understood == told.understood
    for names, all_of_them in (("ABC", "'A', 'B', 'C'"), ("ABCD", "'A', 'B', 'C' and 1 more")):
        assert str(tied_together(problem.replace(understood=Understood(tuple(names))))).endswith(all_of_them)


@pytest.mark.parametrize("size", [20_001, 19_000])
def test_equations_of_large_problems_are_counted_where_that_is_quick(size: int) -> None:
    holes = np.where(np.arange(size) == 5, np.inf, 1.0)
    schema = Schema({"a": size})
    assert tied_together(Problem(schema, {"a": 1.0, "total": 1.0})).equations == 1
    found = tied_together(Problem(schema, {"a": holes, "total": 1.0}, ["total"]))
    assert found.equations == (None if size > 20_000 else 0)
    assert ("not counted" in str(found)) == (size > 20_000)
