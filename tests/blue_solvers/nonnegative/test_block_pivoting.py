"""Programs solved together, by which cells are at bounds: against rationals, and Newton steps one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.nonnegative.block_pivoting import fits_in, solve_together
from blue_solvers.nonnegative.bounded_sums import solved_together
from blue_solvers.nonnegative.duality_gap import certify
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, Solution, csc
from blue_solvers.nonnegative.solving import solve
from tests.blue_solvers.nonnegative.exact_quadratic_programs import LeastSquares
from tests.blue_solvers.nonnegative.random_programs import random_program
from tests.helpers.effort import examples

MANY = 5


def columns_of(seed: int) -> QuadraticProgram:
    """Programs of other noise, some cells of which may have no weight, no lower bound, or one value."""
    p, rng = random_program(seed), np.random.default_rng(seed)
    cells, noisy = p.weight.size, p.variance > 0
    weight = np.where(rng.random(cells) < 0.3, 0.0, p.weight)
    return replace(
        p,
        target=p.target + rng.normal(size=(MANY, cells)),
        answer=p.answer + noisy * rng.normal(size=(MANY, p.variance.size)),
        weight=weight,
        lower=np.where(rng.random(cells) < 0.2, -np.inf, p.lower),
    )


@given(seed=st.integers(0, 2**32 - 1))
@examples(150, 12)
def test_what_is_proved_is_as_good_as_newton_steps(seed: int) -> None:
    p = columns_of(seed)
    assert fits_in(p)
    found = solved_together(p)
    for number in np.flatnonzero(found.proved):
        one, cells = p.one(int(number)), found.cells[number]
        assert ((cells >= one.lower) & (cells <= one.upper)).all()
        best = solve(one)
        again = certify(one, Solution(cells, best.multipliers, 0))
        assert again.margin_residual <= 1e-8 * one.scale
        np.testing.assert_allclose(again.objective, found.objectives[number], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(found.objectives[number], best.objective, rtol=2e-7, atol=2e-7)


def test_nearly_all_is_proved() -> None:
    """Of the same programs every time: of 10,000 all but 7 are."""
    assert np.mean([solved_together(columns_of(seed)).proved for seed in range(200)]) > 0.99


@given(seed=st.integers(0, 2**32 - 1))
@examples(60)
def test_optima_are_those_of_rationals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, cells = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    M = rng.integers(-1, 3, (rows, cells)).astype(float)
    variance = rng.choice([0.0, 1.0, 4.0], rows, p=[0.2, 0.4, 0.4])
    answers = M @ rng.integers(0, 4, cells) + (variance > 0) * rng.integers(-6, 7, rows)
    nothing = np.zeros(cells)
    p = QuadraticProgram(csc(M), nothing[None], nothing, nothing, nothing + np.inf, answers[None], variance)
    found = solved_together(p)
    if found.proved[0]:
        optimum = LeastSquares(M, answers, variance).optimum()
        np.testing.assert_allclose(found.objectives[0], float(optimum), atol=1e-7 * (1 + float(optimum)))


def test_what_no_cells_meet_is_not_proved() -> None:
    """Beside a program that cells meet."""
    one, none = np.ones(2), np.zeros(2)
    targets, answers = np.array([[1.0, 2], [1, 2]]), np.array([[4.0], [-1.0]])
    p = QuadraticProgram(csc(np.ones((1, 2))), targets, one, none, none + np.inf, answers, none[:1])
    found = solve_together(p)
    np.testing.assert_array_equal(found.proved, [True, False])
    np.testing.assert_allclose(found.cells[0], [1.5, 2.5])
    np.testing.assert_allclose(found.objectives[0], 0.25)
    with pytest.raises(NotConvergedError):
        solve(p.one(1))


def test_large_programs_are_left_to_others() -> None:
    p = columns_of(3)
    many = 1_000
    assert not fits_in(replace(p, target=np.zeros((1, many)), weight=np.ones(many)))
