"""Projections by rows that are swept over in turn: those of any stage, and what is left to that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.contract import ConvergenceError
from blue_solvers.normal_equations import triangular
from blue_solvers.normal_equations.factorisation import factorise, sparse_solver
from blue_solvers.normal_equations.noisy_equations import Equations
from blue_solvers.normal_equations.stage import Stage
from blue_solvers.normal_equations.triangular import TriangularStage, stage_of
from tests.helpers.effort import examples


def equations_of(rng: np.random.Generator, spread: float) -> Equations:
    """Sums and weighted sums of twelve cells, some of them known, of variances over so many decades."""
    A = np.zeros((5, 17))
    A[:, :12] = rng.choice([0.0, 1.0, 1.0, -2.0], (5, 12))
    A[:, 12:] = -np.eye(5)
    noise = 10.0 ** rng.uniform(-spread, spread, 17) * (rng.random(17) < 0.8)
    noise[12:] = np.maximum(noise[12:], 10.0**-spread)
    rows = sparse.csr_array(A)
    return Equations(rows, np.zeros(5), sparse.csr_array(sparse.diags_array(noise)), noise > 0, independent=True)


def dense(equations: Equations) -> np.ndarray:
    """The projection, (n, n)."""
    A, Sigma = equations.A.toarray(), equations.Sigma.toarray()
    return np.eye(17) - Sigma @ A.T @ np.linalg.solve(A @ Sigma @ A.T, A)


@examples(100, 10)
@given(seed=st.integers(0, 10**6), columns=st.sampled_from([1, 3, 40]))
def test_it_projects_as_dense_algebra_does_and_its_adjoint_is_the_transpose(seed: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    equations = equations_of(rng, 1.0)
    triangle = factorise(equations.normal_matrix()).triangle()
    stage, P = TriangularStage(equations, sparse_solver(equations), triangle), dense(equations)
    Y = rng.standard_normal((17, columns))
    X, info = stage.project(Y)
    np.testing.assert_allclose(X, P @ Y, atol=1e-11)
    np.testing.assert_allclose(stage.adjoint(Y), P.T @ Y, atol=1e-11)
    assert info.exact
    assert info.violation == pytest.approx(abs(equations.A @ X).max(), abs=1e-13)


def test_a_factor_of_too_few_digits_is_left_to_iterations_of_any_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sweeps by a triangle that is off leave rows that do not hold: as if nothing had been swept over."""
    equations = equations_of(np.random.default_rng(1), 1.0)
    solver = sparse_solver(equations)
    L, order = factorise(equations.normal_matrix()).triangle()
    stage, plain = TriangularStage(equations, solver, (L * 1.01, order)), Stage(equations, solver)
    Y = np.random.default_rng(2).standard_normal((17, 2))
    np.testing.assert_array_equal(stage.project(Y)[0], plain.project(Y)[0])
    np.testing.assert_array_equal(stage.adjoint(Y), plain.adjoint(Y))
    few = TriangularStage(equations, solver, (L, order))
    assert abs(few.project(Y)[0] - plain.project(Y)[0]).max() > 0  # by other roundings
    monkeypatch.setattr(triangular, "MANY_ENTRIES", 0)
    np.testing.assert_array_equal(few.project(Y)[0], plain.project(Y)[0])
    Y[0, 1] = np.nan
    with pytest.raises(ConvergenceError):
        stage.project(Y)


def test_which_equations_are_swept_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many, by a solver that shows its triangle, if that is not much fuller than they are."""
    equations = equations_of(np.random.default_rng(0), 1.0)
    swept, solver = sparse_solver(equations, swept=True), sparse_solver(equations)
    swept.triangle = swept.triangle or factorise(equations.normal_matrix()).triangle  # which scipy has too
    monkeypatch.setattr(triangular, "has_numba", lambda: True)
    assert type(stage_of(equations, swept)) is Stage
    monkeypatch.setattr(triangular, "LEAST_ENTRIES", 0)
    assert type(stage_of(equations, swept)) is TriangularStage
    assert type(stage_of(equations, solver)) is Stage
    monkeypatch.setattr(triangular, "MOST_FILLED", 0)
    assert type(stage_of(equations, swept)) is Stage
