"""The whole inverse of a small matrix, and when variances are taken from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue
from blue_solvers.normal_equations import inverses
from blue_solvers.normal_equations.cell_variances import variances_by_selected_inversion
from blue_solvers.normal_equations.inverses import DenseFactor, is_cheaper_dense
from constraint_builders import Problem, Schema, gallery
from tests.helpers.effort import examples
from tests.helpers.oracles.description import of_tables
from tests.helpers.oracles.exact import solve


@examples(30)
@given(seed=st.integers(0, 10_000), width=st.sampled_from([1.0, 2.0**28]))
def test_squares_and_solutions_are_those_of_the_matrix(seed: int, width: float) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    root = rng.standard_normal((n, n)) + 3 * np.eye(n)
    N = root @ root.T
    U = rng.standard_normal((n, k)) * (rng.random((n, k)) < 0.6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverses, "MOST_BYTES", width)
        factor = DenseFactor(sparse.csr_array(N))
        found = factor.squares(sparse.csc_array(U))
    expected = np.linalg.solve(N, U)
    size = np.linalg.cond(N) * 1e-12
    np.testing.assert_allclose(found, np.einsum("ij,ij->j", U, expected), rtol=size, atol=size)
    np.testing.assert_allclose(factor.solve(U), expected, rtol=size, atol=size)


def test_a_matrix_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(ValueError, match="not positive definite"):
        DenseFactor(sparse.csr_array(np.array([[1.0, 2.0], [2.0, 1.0]])))


@pytest.mark.parametrize("ratio", [3.0, 1e4, 1e8])
def test_variances_by_either_inverse(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    schema, tables = Schema({"a": 3, "b": 2, "c": 2}), ["total", "a", "a * b", "b * c", "detailed"]
    layout = Problem(schema, dict.fromkeys(tables, 1.0))
    problem = layout.with_variances(ratio ** np.random.default_rng(3).random(layout.observed.size))
    exact = solve(of_tables(problem), np.zeros(problem.observed.size)).variances
    asked = []
    for cheaper in (True, False):
        monkeypatch.setattr(
            "blue_solvers.normal_equations.inverses.is_cheaper_dense",
            lambda _, cheaper=cheaper: asked.append(cheaper) or cheaper,
        )
        np.testing.assert_allclose(variances_by_selected_inversion(problem), exact, rtol=1e-8)
    assert asked == [True, False]


def test_dense_where_few_equations_share_many_cells_and_not_in_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = gallery.pl94()
    cellwise = problem.with_variances(np.random.default_rng(0).uniform(1, 3, problem.observed.size))
    dense = blue(cellwise, "cholesky").variances()
    monkeypatch.setattr(inverses, "is_cheaper_dense", lambda _: False)
    np.testing.assert_allclose(dense, variances_by_selected_inversion(cellwise), rtol=1e-10)
    monkeypatch.undo()
    assert is_cheaper_dense(sparse.csc_array(np.ones((50, 3_000))))
    assert not is_cheaper_dense(sparse.eye_array(5_000, format="csc"))
