"""CHOLMOD, its two interfaces, and scipy in its place; the size of a factor, and small matrices inverted whole."""

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, sparse

from blue_solvers import blue
from blue_solvers.normal_equations import factorisation, inverses
from blue_solvers.normal_equations.cell_variances import variances_by_selected_inversion
from blue_solvers.normal_equations.factorisation import entries_of_factor, factorise
from blue_solvers.normal_equations.inverses import DenseFactor, is_cheaper_dense
from constraint_builders import Problem, Schema, gallery, memory
from tests.helpers.effort import examples
from tests.helpers.refused import refuses

MATRIX = sparse.csr_array(np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]]))
INDEFINITE = sparse.csr_array(np.array([[1.0, 2], [2, 1]]))
SINGULAR = sparse.csr_array(np.array([[1.0, 1], [1, 1]]))
R = np.arange(6.0).reshape(3, 2)
needs_cholmod = pytest.mark.skipif(factorisation.cholmod is None, reason="scikit-sparse is not installed")


def test_continuous_integration_has_cholmod() -> None:
    if os.environ.get("CI"):
        assert factorisation.cholmod is not None, "CI must run with scikit-sparse: see the extra 'cholmod'"
    elif factorisation.cholmod is None:
        pytest.skip("scikit-sparse is not installed")


@pytest.fixture(params=["cholmod", "scipy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "scipy":
        monkeypatch.setattr(factorisation, "cholmod", None)
    elif factorisation.cholmod is None:
        pytest.skip("scikit-sparse is not installed")
    return request.param


def test_solves(library: str) -> None:
    factor = factorise(MATRIX)
    assert np.allclose(factor.solve(R), np.linalg.solve(MATRIX.toarray(), R), rtol=1e-14)
    assert ("CHOLMOD, scikit-sparse" if library == "cholmod" else "SuperLU, scipy") in factor.label


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_integers_and_single_precision_become_doubles(library: str, dtype: type) -> None:
    solution = factorise(sparse.csr_array(MATRIX.astype(dtype))).solve(R)
    assert solution.dtype == np.float64
    assert np.allclose(solution, np.linalg.solve(MATRIX.toarray(), R), rtol=1e-14)


def test_singular_matrices_are_refused(library: str) -> None:
    refuses("dependent, or the covariance is singular", factorise, SINGULAR)


@needs_cholmod
def test_both_libraries_give_one_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    problem = Problem(
        Schema({"a": 6, "b": 7}), {"detailed": rng.uniform(1, 9, (6, 7)), "a": 1.0, "b": 0.0, "total": 2.0}
    )
    y = rng.normal(size=(problem.observed.size, 3))
    first = blue(problem, "cholesky")
    x = first @ y
    assert "CHOLMOD" in first.info.solver
    monkeypatch.setattr(factorisation, "cholmod", None)
    second = blue(problem, "cholesky")
    assert np.allclose(second @ y, x, rtol=1e-11, atol=1e-11)
    assert "SuperLU" in second.info.solver
    assert "SuperLU" in pickle.loads(pickle.dumps(second)).info.solver
    assert np.allclose(second.variances(), first.variances(), rtol=1e-11)


class NewInterface(SimpleNamespace):
    """What scikit-sparse 0.5 offers, by LAPACK."""

    def __init__(self) -> None:
        self.seen: list[np.dtype] = []
        super().__init__(
            CholmodNotPositiveDefiniteError=linalg.LinAlgError,
            CholmodOutOfMemoryError=MemoryError,
            CholmodTooLargeError=OverflowError,
        )

    def cho_factor(self, matrix: sparse.csc_matrix) -> SimpleNamespace:
        self.seen.append(matrix.dtype)
        factor = linalg.cho_factor(matrix.toarray())
        return SimpleNamespace(solve=lambda right: linalg.cho_solve(factor, right))


def test_interface_of_scikit_sparse_0_5(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = NewInterface()
    monkeypatch.setattr(factorisation, "cholmod", stand_in)
    monkeypatch.setattr(factorisation, "version_of", lambda name: "0.5.0")
    factor = factorise(sparse.csr_array(MATRIX.astype(np.int8)))
    assert np.allclose(factor.solve(R), np.linalg.solve(MATRIX.toarray(), R))
    assert stand_in.seen == [np.dtype(np.float64)]
    assert factor.label == "CHOLMOD, scikit-sparse 0.5.0"
    refuses("not positive definite", factorise, INDEFINITE)
    P = blue(gallery.berkeley(), "cholesky")
    assert np.allclose(P @ gallery.berkeley().truth, gallery.berkeley().truth)
    assert "0.5.0" in P.info.solver


def test_out_of_memory_names_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = NewInterface()

    def fail(matrix: sparse.csc_matrix) -> None:
        raise stand_in.CholmodTooLargeError

    monkeypatch.setattr(stand_in, "cho_factor", fail, raising=False)
    monkeypatch.setattr(factorisation, "cholmod", stand_in)
    monkeypatch.setattr(factorisation, "version_of", lambda name: "0.5.0")
    refuses("use solver='cg'", factorise, MATRIX, error=MemoryError)


@pytest.mark.parametrize("name", ["dense", "cholesky"])
def test_what_would_not_fit_is_refused_with_its_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = gallery.cube(4, 4)
    problem.constraint_matrix()
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2**17))
    memory._free_in.cache_clear()
    refuses(r"needs .*iB and 128 KiB are free", blue, problem, name, error=MemoryError)


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
    refuses("not positive definite", DenseFactor, sparse.csr_array(np.array([[1.0, 2.0], [2.0, 1.0]])))


def test_dense_where_few_equations_share_many_cells_and_not_in_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = gallery.pl94()
    cellwise = problem.with_variances(np.random.default_rng(0).uniform(1, 3, problem.observed.size))
    dense = blue(cellwise, "cholesky").variances()
    monkeypatch.setattr(inverses, "is_cheaper_dense", lambda _: False)
    np.testing.assert_allclose(dense, variances_by_selected_inversion(cellwise), rtol=1e-10)
    monkeypatch.undo()
    assert is_cheaper_dense(sparse.csc_array(np.ones((50, 3_000))))
    assert not is_cheaper_dense(sparse.eye_array(5_000, format="csc"))


needs_order = pytest.mark.skipif(not factorisation.cholmod_gives_triangles(), reason="needs scikit-sparse 0.4")


@examples(60, 8)
@given(st.integers(0, 100_000))
def test_entries_are_those_that_elimination_leaves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 25))
    has = rng.random((size, size)) < rng.choice([0.02, 0.1, 0.3])
    has = has | has.T | np.eye(size, dtype=bool)
    order = rng.permutation(size)
    left = has[np.ix_(order, order)].copy()
    for k in range(size):  # elimination, as it is written
        below = np.flatnonzero(left[k + 1 :, k]) + k + 1
        left[np.ix_(below, below)] = True
    found = entries_of_factor(sparse.csc_matrix(has.astype(float)), order.astype(np.int64))
    assert found.tolist() == np.tril(left).sum(axis=0).tolist()


@needs_order
def test_a_factor_that_would_not_fit_is_refused_with_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is made; a diagonal matrix of as many rows fits."""
    full = sparse.csc_array(99 * np.eye(60) + 1)
    monkeypatch.setattr(factorisation, "SURE_BYTES", 0.0)
    for module in (factorisation, memory):
        monkeypatch.setattr(module, "free_memory", lambda: 2048.0)
    said = r"the Cholesky factor of 60 equations, 1,830 entries, needs 28.59 KiB and 2 KiB are free: use"
    refuses(said, factorise, full, error=MemoryError)
    factorise(sparse.csc_array(sparse.diags_array(np.full(60, 99.0))))
