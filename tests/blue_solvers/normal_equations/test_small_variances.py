"""Variances far below the noise of the same cell, where nothing is known exactly: never 0."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from blue_solvers import ConvergenceError, UnsupportedProblemError, blue
from constraint_builders import Areas, Problem, Schema
from tests.helpers.effort import examples

LEAVES = 4
AREAS = Areas(LEAVES, {"Row": [0, 0, 1, 1], "Column": [0, 1, 0, 1]})


def exact_variances(M: np.ndarray, variances: np.ndarray) -> list[Fraction]:
    """Of M b with b by least squares, in rational numbers."""
    n = M.shape[1]
    H = [[Fraction(0)] * n + [Fraction(int(i == k)) for k in range(n)] for i in range(n)]
    for row, variance in zip(M, variances.tolist(), strict=True):
        for i, j in np.argwhere(np.outer(row, row)).tolist():
            H[i][j] += Fraction(float(row[i] * row[j])) / Fraction(variance)
    for k in range(n):
        H[k] = [entry / H[k][k] for entry in H[k]]
        for i in range(n):
            if i != k:
                H[i] = [own - H[i][k] * other for own, other in zip(H[i], H[k], strict=True)]
    return [sum((H[i][n + j] for i in np.flatnonzero(row) for j in np.flatnonzero(row)), Fraction(0)) for row in M]


def answered(problem: Problem) -> np.ndarray | None:
    """All variances, or None where it is said that rounding does not bear noise so unequal."""
    try:
        return blue(problem, "areas").variances()
    except (UnsupportedProblemError, ConvergenceError):
        return None
    except ValueError as refused:
        if "not positive definite" not in str(refused):
            raise
        return None


@examples(40)
@given(
    rows=st.lists(st.integers(-24, 0), min_size=2, max_size=2),
    columns=st.lists(st.integers(-24, 0), min_size=2, max_size=2),
    leaves=st.lists(st.integers(-24, 0), min_size=LEAVES, max_size=LEAVES),
)
@example(rows=[-24, 0], columns=[0, 0], leaves=[0, -24, 0, 0])
def test_beside_rational_numbers(rows: list[int], columns: list[int], leaves: list[int]) -> None:
    measured = {"Row": rows, "Column": columns, "Leaf": leaves}
    observed = {layer: {"total": 10.0 ** np.array(own)} for layer, own in measured.items()}
    problem = Problem(Schema({"unit": 1}), observed, areas=AREAS)
    expected = [float(own) for own in exact_variances(problem.marginal_matrix().toarray(), problem.variances)]
    found = answered(problem)
    if found is None:
        assert max(rows + columns + leaves) - min(rows + columns + leaves) > 12
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6)
