"""Conjugate gradients that are preconditioned by what leverages tell: steps, bounds, and where they are taken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import BlueOperator, ConjugateGradient, blue, thread_limit
from blue_solvers.components.flat import shared_steps
from blue_solvers.structured import softened_steps as softening
from blue_solvers.structured.softened_steps import softened, softened_steps
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.arrays import Float
from tests.helpers.effort import examples

SOLVER = ConjugateGradient(preconditioner="two_pass")
CELLS = 24


def cellwise(problem: Problem, ratio: float, law: str) -> Problem:
    share = np.random.default_rng(7).random(problem.observed.size)
    return problem.with_variances(1 + (ratio - 1) * share if law == "uniform" else ratio**share)


def noise(problem: Problem, columns: int = 1) -> Float:
    drawn = np.random.default_rng(8).standard_normal((problem.observed.size, columns))
    return drawn * np.sqrt(problem.variances)[:, None]


def up_to_three_ways(levels: list[int]) -> Problem:
    names = [f"v{i}" for i in range(len(levels))]
    tables = [" * ".join(chosen) or "total" for size in range(4) for chosen in combinations(names, size)]
    return Problem(Schema(dict(zip(names, levels, strict=True))), dict.fromkeys(tables, 1.0))


def plain(problem: Problem) -> BlueOperator:
    """The same iterations without a preconditioner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softening, "LEAST_LEVERAGE", 2.0)
        return blue(problem, SOLVER)


@examples(60)
@given(seed=st.integers(0, 10_000), of_multipliers=st.booleans(), most=st.sampled_from([0, 1, 4, 300]))
def test_what_is_found_is_within_its_goal_of_the_solution(seed: int, of_multipliers: bool, most: int) -> None:
    """For any projection, precisions over four decades and scales over six, each column to a goal of its own."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(6, 19))
    still = rng.random(CELLS) < 0.2  # cells that the structured problem does not move
    basis = rng.standard_normal((CELLS, rank))
    basis[still] = 0
    basis = np.linalg.qr(basis)[0][:, : min(rank, int((~still).sum()) - 1)]
    basis[still] = 0
    Q = basis @ basis.T
    d = np.where(still, 0.0, 10.0 ** rng.uniform(-2, 2, CELLS))
    s = np.where(still, 0.0, 10.0 ** rng.uniform(-3, 3, CELLS))
    unit = np.divide(1.0, s, out=np.zeros(CELLS), where=~still)
    least = float(d[~still].min())

    def estimate(Y: Float) -> Float:
        return s[:, None] * (Q @ (unit[:, None] * Y))

    leverages = np.diag(Q)[:, None].clip(0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softening, "LEAST_LEVERAGE", 0.0)
        steps = softened_steps(estimate, d[:, None], leverages, s[:, None], least, of_multipliers)
    assert steps is not None
    a = np.divide(1.0, d, out=np.zeros(CELLS), where=~still) if of_multipliers else d
    onto = np.diag(np.where(still, 0.0, 1.0)) - Q if of_multipliers else Q
    values, vectors = np.linalg.eigh(onto)
    inside = vectors[:, values > 0.5]
    R = onto @ rng.standard_normal((CELLS, 3))
    goal = np.array([1e-8, 1e-4, 1e-2]) * np.sqrt(least)
    Z, count, converged = steps(R, goal, most, None)
    best = inside @ np.linalg.solve(inside.T @ (a[:, None] * inside), inside.T @ R)
    errors = np.sqrt((a[:, None] * (Z - best) ** 2).sum(axis=0))
    assert count <= most
    assert converged or most < 300
    if converged:
        assert (errors * np.sqrt(least) <= goal * (1 + 1e-4)).all()
    bounds: list[Float] = []
    told = steps(R, goal, most, bounds.append)
    np.testing.assert_array_equal(told[0], Z)  # bounds that are not worked out would not have ended it
    assert told[1:] == (count, converged)
    if most == 0:
        shown = np.sqrt(least * (R**2 * np.divide(1.0, a, out=np.zeros(CELLS), where=~still)[:, None]).sum(axis=0))
        np.testing.assert_allclose(bounds[0], shown, rtol=1e-12)


@given(precision=st.floats(1e-8, 1e8), leverage=st.floats(0, 1))
def test_weights_lie_between_one_and_the_inverse(precision: float, leverage: float) -> None:
    f = float(softened(np.array([[precision]]), np.array([[leverage]]))[0, 0])
    first, last = sorted((1.0, 1 / precision))
    assert first * (1 - 1e-12) <= f <= last * (1 + 1e-12)
    assert leverage < 1 or abs(f * precision - 1) <= 1e-12
    assert leverage > 0 or f == 1


CASES: dict[str, Callable[[], Problem]] = {
    "redistricting tables": gallery.pl94,
    "4^5": lambda: gallery.cube(5, 4),
    "2 to 8 levels": lambda: up_to_three_ways([*range(2, 9)]),
}


@pytest.mark.parametrize("law", ["uniform", "log-uniform"])
@pytest.mark.parametrize("ratio", [1e2, 1e4])
@pytest.mark.parametrize("name", CASES)
def test_steps_are_few_beside_those_without_it(name: str, ratio: float, law: str) -> None:
    problem = cellwise(CASES[name](), ratio, law)
    y = noise(problem)
    P, other = blue(problem, SOLVER), plain(problem)
    (x, info), (expected, slow) = P.apply(y), other.apply(y)
    assert info.iterations <= 0.67 * slow.iterations
    assert info.error_bound is not None
    assert slow.error_bound is not None
    assert info.error_bound <= 2.1e-9
    difference = abs(x - expected).max() / np.sqrt(problem.variances.max())
    assert difference <= info.error_bound + slow.error_bound
    dot_test(P)


def test_many_columns_are_what_each_is_alone() -> None:
    problem = cellwise(gallery.cube(4, 4), 1e4, "log-uniform")
    P = blue(problem, SOLVER)
    Y = noise(problem, 5) * np.array([1.0, 1e3, 1e-3, 0.0, 1.0])
    X, info = P.apply(Y)
    for column in range(5):
        alone, one = P.apply(Y[:, [column]])
        assert one.error_bound is not None
        assert abs(X[:, [column]] - alone).max() <= 2.1e-9 * np.sqrt(problem.variances.max())
        assert info.iterations >= one.iterations - 1
    assert not X[:, 3].any()


def test_a_few_leverages_are_not_worth_two_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly all is averaged the estimate takes as many steps without."""
    problem = cellwise(gallery.cube(8, 2), 100.0, "log-uniform")
    y = noise(problem)
    found = blue(problem, SOLVER).apply(y)[1].iterations
    assert found == plain(problem).apply(y)[1].iterations
    monkeypatch.setattr(softening, "LEAST_LEVERAGE", 0.0)
    assert blue(problem, SOLVER).apply(y)[1].iterations >= 0.8 * found


def test_over_a_spine_every_step_is_one_estimate() -> None:
    spine = Spine([-1, *[0] * 3, *np.repeat([1, 2, 3], [1, 4, 9])], ["S", *["C"] * 3, *["T"] * 14])
    tables = dict.fromkeys(["a", "detailed"], 1.0)
    problem = cellwise(Problem(Schema({"a": 4, "b": 5}), dict.fromkeys("SCT", tables), spine=spine), 1e4, "log-uniform")
    y = noise(problem)
    (x, info), (expected, same) = blue(problem, SOLVER).apply(y), plain(problem).apply(y)
    assert info.iterations == same.iterations
    np.testing.assert_array_equal(x, expected)


def test_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blue_solvers.threads.WORTH_BYTES", 0)
    monkeypatch.setattr(shared_steps, "WORTH_BYTES", 0)
    problem = cellwise(gallery.cube(5, 4), 100.0, "log-uniform")
    P, y = blue(problem, SOLVER), noise(problem, 2)
    found = []
    for count in (1, 2, 3):
        with thread_limit(count):
            found.append((P @ y, P.T @ y))
    for x, pulled in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        np.testing.assert_array_equal(pulled, found[0][1])
