"""CHOLMOD, its two interfaces, and scipy in its place."""

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import linalg, sparse

from blue_solvers import blue
from blue_solvers.normal_equations import factorisation
from blue_solvers.normal_equations.factorisation import factorise
from constraint_builders import Problem, Schema, gallery, memory

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
    with pytest.raises(ValueError, match="dependent, or the covariance is singular"):
        factorise(SINGULAR)


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
    with pytest.raises(ValueError, match="not positive definite"):
        factorise(INDEFINITE)
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
    with pytest.raises(MemoryError, match="use solver='cg'"):
        factorise(MATRIX)


@pytest.mark.parametrize("name", ["dense", "cholesky"])
def test_what_would_not_fit_is_refused_with_its_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = gallery.cube(4, 4)
    problem.constraint_matrix()
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2**17))
    memory._free_in.cache_clear()
    with pytest.raises(MemoryError, match=r"needs .*iB and 128 KiB are free"):
        blue(problem, name)
