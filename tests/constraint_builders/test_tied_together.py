"""What ties numbers together, against the left null space of a dense matrix of what every table counts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Areas, Problem, Schema, Spine
from constraint_builders.description.source_values import Understood
from constraint_builders.tied_together import tied_together

SCHEMA = Schema({"a": 2, "b": 3})
SHAPES: dict[str, tuple[int, ...]] = {"total": (), "a": (2,), "b": (3,), "b * a": (3, 2)}
COUNTS = {
    "total": np.ones((1, 6)),
    "a": np.kron(np.eye(2), np.ones((1, 3))),
    "b": np.tile(np.eye(3), (1, 2)),
    "b * a": np.eye(6).reshape(2, 3, 6).transpose(1, 0, 2).reshape(6, 6),
}
PLACES = {"S": np.ones((1, 3)), "C": np.array([[1.0, 0, 0], [0, 1, 1]]), "D": np.array([[0.0, 1, 0], [0, 0, 1]])}
CROSSING = {"S": np.ones((1, 3)), "C": np.array([[1.0, 1, 0], [0, 0, 1]]), "D": np.array([[0.0, 1, 1]])}


def draw(rng: np.random.Generator, kind: str) -> tuple[Problem, np.ndarray]:
    """A problem, and what each of its observed cells counts, (n, leaves * 6)."""
    levels = {"flat": {"": np.ones((1, 1))}, "spine": PLACES, "areas": CROSSING}[kind]
    observed: dict[str, Any] = {}
    rows, alike = [], rng.random() < 0.5  # in all cells of a place
    for level, members in levels.items():
        chosen = [name for name in SHAPES if rng.random() < (0.6 if kind == "flat" else 0.4)]
        if level in ("", "D") and not chosen:
            chosen = ["b * a"]
        for name in chosen:
            shape = SHAPES[name] if kind == "flat" else (len(members), *SHAPES[name])
            drawn = [1 if alike and (axis or kind == "flat") else size for axis, size in enumerate(shape)]
            variances = rng.uniform(1, 4, drawn)
            variances = np.where(rng.random(drawn) < 0.25 * rng.integers(2), np.inf, variances)
            variances = np.where(rng.random(drawn) < 0.2 * rng.integers(2), 0.0, variances)
            variances = np.broadcast_to(variances, shape).copy()
            (observed if kind == "flat" else observed.setdefault(level, {}))[name] = variances
            rows.append(np.kron(members, COUNTS[name]))
    geography: dict[str, Any] = {}
    if kind == "spine":
        geography["spine"] = Spine([-1, 0, 0, 2, 2], ["S", "C", "C", "D", "D"])
    if kind == "areas":
        geography["areas"] = Areas(leaves=3, layers=levels)
    return Problem(SCHEMA, observed, undetermined="nan", **geography), np.vstack(rows)


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["flat", "spine", "areas"]))
def test_equations_and_loose_cells_are_those_of_dense_algebra(seed: int, kind: str) -> None:
    problem, M = draw(np.random.default_rng(seed), kind)
    measured = np.flatnonzero(np.isfinite(problem.variances))
    U, s, _ = np.linalg.svd(M[measured])
    between = U[:, np.count_nonzero(s > 1e-9) :]
    loose = [i for i, row in zip(measured, between, strict=True) if abs(row).max(initial=0) < 1e-9]
    noisy = [i for i in loose if problem.variances[i] > 0]
    found = tied_together(problem)
    assert found.equations == between.shape[1]
    assert found.is_loose == (between.shape[1] == 0)
    levels = {"flat": {}, "spine": PLACES, "areas": CROSSING}[kind]
    assert all(f"{len(members)} {level}" in str(found) for level, members in levels.items())
    assert ("NOTHING TIES" in str(found)) == found.is_loose
    tables = {problem.observed.locate(i)[0] for i in noisy}
    assert len(found.unchecked) == len(tables)
    for name in tables:
        own = [i for i in noisy if problem.observed.locate(i)[0] == name]
        of = [i for i in measured if problem.observed.locate(i)[0] == name and problem.variances[i] > 0]
        said = f"table {name!r}" if len(own) == len(of) else f"{len(own)} of {len(of)} cells of table {name!r}"
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
