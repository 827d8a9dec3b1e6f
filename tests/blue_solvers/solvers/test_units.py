"""Answers do not depend on the units that cells are counted in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from constraint_builders import Problem


@st.composite
def equations_in_other_units(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Whole equations, variances, data, and powers of two."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(2, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    A = rng.integers(-2, 3, (rows, columns)) * (rng.random((rows, columns)) < 0.7)
    units = 2.0 ** rng.integers(-20, 21, columns)
    return A.astype(float), rng.uniform(0.5, 2, columns), rng.normal(0, 10, columns), units


@pytest.mark.few(2)
@pytest.mark.parametrize("solver", ["dense", "cholesky", "cg", "multigrid", "auto"])
@given(equations_in_other_units())
def test_estimates_and_variances_follow_the_units(solver: str, given_: tuple) -> None:
    A, variances, y, units = given_
    plain = blue(Problem.from_matrix(A, variances), solver)
    other = blue(Problem.from_matrix(A * units, variances / units**2), solver)
    np.testing.assert_allclose(units * (other @ (y / units)), plain @ y, atol=1e-9)
    np.testing.assert_allclose(units**2 * other.variances(), plain.variances(), atol=1e-9)
    adjustment = variances * (A.T @ np.linalg.pinv(A * variances @ A.T, rcond=1e-11) @ (A @ y))
    np.testing.assert_allclose(plain @ y, y - adjustment, atol=1e-8)
