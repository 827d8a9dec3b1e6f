"""Solvers written when `supports` and `prepare` were what a solver defines still work, with a word to their authors."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from blue_solvers import Dense, Prepared, Solver, blue
from constraint_builders import LowRankPlusDiagonal, Problem, Schema


def test_supports_and_prepare_are_taken_for_the_hooks() -> None:
    with pytest.warns(DeprecationWarning, match=r"(supports is called refusal|prepare is called plan) now") as told:

        @dataclass(frozen=True)
        class Former(Solver):
            name: ClassVar[str] = "former"

            def supports(self, problem: Problem) -> str | None:
                return (
                    "tables of more than 100 cells are too large: use another" if problem.observed.size > 100 else None
                )

            def prepare(self, problem: Problem) -> Prepared:
                return Dense().prepare(problem)

    assert len(told) == 2
    shared = LowRankPlusDiagonal(np.ones(7), np.ones((7, 1)))
    problem = Problem(Schema({"sex": 2, "age": 3}), {"total": None, "age * sex": None}, covariance=shared)
    assert Former().supports(problem) is None
    y = np.random.default_rng(0).standard_normal(7)
    np.testing.assert_allclose(blue(problem, Former()) @ y, blue(problem) @ y, atol=1e-12)
    np.testing.assert_allclose(blue(problem, Former()).variances(), blue(problem).variances(), atol=1e-12)
