"""Variances far below the noise of the same cell, where nothing is known exactly: never 0."""

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


@examples(40)
@given(
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=3, max_size=3),
    powers=st.lists(st.integers(-90, 90), min_size=3, max_size=3, unique=True),
)
@example(signs=[1, 1, 1], powers=[0, -22, -60])
def test_one_sum_of_any_noise_leaves_no_figure_without_a_standard_error(signs: list[float], powers: list[int]) -> None:
    """Of s'x = 0 with independent noise every variance is v (V - v) / V, V the sum of all; of 0 it is 0."""
    A, noise = np.block([[np.array(signs), np.zeros(2)], [np.zeros(4), np.ones(1)]]), 10.0 ** np.array(powers)
    others = [sum(noise[np.arange(3) != i]) for i in range(3)]
    expected = [own * rest / (own + rest) for own, rest in zip(noise, others, strict=True)]
    for solver in ("auto", "cholesky", "cg"):
        found = blue(Problem.from_matrix(A, [*noise, 3.0, 1.0]), solver).variances()
        np.testing.assert_allclose(found, [*expected, 3.0, 0.0], rtol=1e-6)
