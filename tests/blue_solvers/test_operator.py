"""The estimate as scipy sees it: composition, transposes, svds, pickling, and what it refuses."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator, svds

from blue_solvers import SOLVERS, ConjugateGradient, Solver, UnsupportedProblemError, blue
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, gallery
from noise_mechanisms.laws import Rounding
from tests.helpers.refused import refuses

PROBLEM = gallery.berkeley()
N = PROBLEM.observed.size
each = pytest.mark.parametrize("name", SOLVERS)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@each
def test_the_offset_takes_off_what_a_law_adds_on_average(name: str) -> None:
    """Figures rounded to even bases are half a unit too large: the estimate by dense algebra, from them less that."""
    law = Rounding(4)
    problem = Problem(Schema({"a": 3, "b": 2}), {"total": law, "a": law, "a * b": law})
    M = problem.marginal_matrix().toarray()
    y = law.publish(M @ np.arange(50.0, 56.0))
    best = M @ np.linalg.lstsq(M, y - 0.5, rcond=None)[0]
    P = blue(problem, name)
    np.testing.assert_allclose(P @ y + P.offset, best, atol=1e-6)
    np.testing.assert_allclose(P.estimate(y).values, best, atol=1e-6)
    est = blue(problem.wanting(problem.names.tables(["a"])), name).estimate(y, certify=False)
    fit = est.goodness_of_fit(draws=0)
    assert fit.statistic == pytest.approx(((y - 0.5 - best) ** 2).sum() / law.variance, rel=1e-6)
    assert est.certificate().bound < 1e-6


@each
def test_vectors_matrices_and_transposes(name: str) -> None:
    P = blue(PROBLEM, name)
    Y = np.random.default_rng(0).normal(size=(N, 3))
    dense = P @ np.eye(N)
    assert isinstance(P, LinearOperator)
    assert P.dtype == np.float64
    for product in (P @ Y, P.dot(Y), P.matmat(Y), P * Y):
        assert np.allclose(product, dense @ Y)
    for product in (P @ Y[:, 0], P.matvec(Y[:, 0]), P(Y[:, 0])):
        assert product.shape == (N,)
        assert np.allclose(product, dense @ Y[:, 0])
    assert (P @ Y[:, :1]).shape == (N, 1)
    assert (P @ Y[:, :0]).shape == (N, 0)
    for transposed in (P.T, P.H, P.adjoint(), P.transpose()):
        assert transposed.shape == (N, N)
        assert np.allclose(transposed @ Y, dense.T @ Y)
    assert np.allclose(P.rmatvec(Y[:, 0]), dense.T @ Y[:, 0])
    assert np.allclose(P.T.T @ Y, dense @ Y)


@each
def test_composition(name: str) -> None:
    P = blue(PROBLEM, name)
    y = np.random.default_rng(0).normal(size=N)
    A = aslinearoperator(PROBLEM.constraint_matrix())
    assert np.allclose((A @ P) @ y, 0, atol=1e-8)
    assert np.allclose((P @ P) @ y, P @ y)
    assert np.allclose((2 * P - P) @ y, P @ y)
    assert np.allclose((P + P.T) @ y, P @ y + P.T @ y)
    assert np.allclose((P**2) @ y, P @ y)
    dot_test(A.T @ A + P @ P.T @ P)


def test_singular_values_of_an_oblique_projection() -> None:
    problem = gallery.toy()
    U, s, Vt = svds(blue(problem), k=3, v0=np.ones(4), return_singular_vectors=True)
    assert np.allclose(np.sort(s), [1, 1, 1])
    assert np.allclose(U @ np.diag(s) @ Vt, blue(problem) @ np.eye(4))


def test_rectangular_estimates() -> None:
    schema = Schema({"a": 3, "b": 4})
    P = blue(Problem(schema, {"a * b": 1.0, "b": 2.0}, ["a", "total"]))
    assert P.shape == (4, 16)
    assert P.T.shape == (16, 4)
    dot_test(P)
    assert P.covariance.shape == (4, 4)


@each
def test_pickling_keeps_the_configuration(name: str) -> None:
    P = blue(PROBLEM, name)
    y = np.random.default_rng(0).normal(size=N)
    assert np.array_equal(pickle.loads(pickle.dumps(P)) @ y, P @ y)
    loose = blue(PROBLEM, ConjugateGradient(rtol=1e-3))
    assert pickle.loads(pickle.dumps(loose)).solver == ConjugateGradient(rtol=1e-3)


@each
def test_wrong_inputs(name: str) -> None:
    P = blue(PROBLEM, name)
    y = np.ones(N)
    with pytest.raises(ValueError, match=rf"\({N},\) or \({N}, K\) over the observed layout: got \({N + 1},\)"):
        P @ np.ones(N + 1)
    with pytest.raises(ValueError, match=r"problem\.vector makes one"):
        P @ np.ones((3, N))
    with pytest.raises(ValueError, match=r"shape|dimension"):
        P.T @ np.ones(N - 1)
    y[5] = np.nan
    with pytest.raises(ValueError, match=r"table .* is nan: give a finite number"):
        P @ y
    with pytest.raises(ValueError, match="NaN or infinite"):
        P.T @ y
    y[5] = np.inf
    with pytest.raises(ValueError, match=r"table .* is inf: give a finite number"):
        P @ np.column_stack([np.ones(N), y])
    with pytest.raises(TypeError, match="real"):
        P @ (np.ones(N) + 1j)
    with pytest.raises(TypeError, match="real"):
        P.T @ (np.ones(N) + 1j)


def test_a_series_takes_no_operator_for_an_array() -> None:
    pd = pytest.importorskip("pandas")
    P = blue(gallery.toy())
    with pytest.raises(TypeError, match=r"the operator is no array: write P\.T @ v in place of v @ P"):
        pd.Series(np.ones(4)) @ P.T


def test_integers_and_lists_are_numbers_too() -> None:
    P = blue(gallery.toy())
    assert np.allclose(P @ [6, 9, 17, 29], P @ np.array([6.0, 9, 17, 29]))
    assert np.allclose(P @ np.array([6, 9, 17, 29], dtype=np.int32), P @ np.array([6.0, 9, 17, 29]))
    assert (P @ np.array([6, 9, 17, 29], dtype=np.float32)).dtype == np.float64


def test_large_finite_numbers_whose_sum_overflows() -> None:
    P = blue(Problem(Schema({"a": 2}), {"a": 1.0}), "dense")  # no equations, so nothing else is summed
    assert (P @ np.full(2, 1e308)).tolist() == [1e308, 1e308]


@each
def test_equations_that_contradict_one_another(name: str) -> None:
    problem = Problem.from_matrix([[1.0, 1], [1, 1]], 1.0, b=[1, 2])
    if name not in ("sea_blue", "two_pass", "areas"):
        with pytest.raises((ValueError, RuntimeError), match="contradict"):
            blue(problem, name) @ np.ones(2)


def test_unknown_solver_names_those_there_are() -> None:
    refuses("no solver 'fast': there are 'auto', 'sea_blue'", blue, gallery.toy(), "fast")
    refuses("solver", blue, gallery.toy(), 3, error=TypeError)
    refuses("solver", blue, gallery.toy(), SOLVERS["dense"], error=TypeError)


def test_auto_says_what_it_chose_and_why() -> None:
    closed, unequal = blue(gallery.toy()), blue(Problem(Schema({"a": 2}), {"a": [1.0, 2.0], "total": 1.0}))
    assert "auto chose sea_blue" in closed.info.reason
    assert "A1-A3" in closed.info.reason
    assert "auto chose cholesky" in unequal.info.reason
    assert "A3 fails" in unequal.info.reason


def test_repr() -> None:
    assert repr(blue(gallery.toy(), "dense")).splitlines() == [
        "<4x4 BlueOperator by dense: 2 observed tables to 2 desired ones",
        "  solver   dense (LAPACK), exact",
        "  because  the projection of Theorem 5, by dense linear algebra>",
    ]


class Unfinished(Solver):
    name = "unfinished"

    def refusal(self, problem: Problem) -> str | None:
        return "it is not finished"

    def plan(self, problem: Problem):
        raise AssertionError


def test_unsupported_says_why() -> None:
    with pytest.raises(UnsupportedProblemError, match="'unfinished' cannot take this problem: it is not finished"):
        blue(gallery.toy(), Unfinished())


@each
def test_columns_in_fortran_order(name: str) -> None:
    problem = gallery.berkeley()
    P = blue(problem, name)
    Y = np.random.default_rng(0).standard_normal((P.shape[1], 3))
    np.testing.assert_allclose(P @ np.asfortranarray(Y), P @ Y, atol=1e-8)
    np.testing.assert_allclose(P.T @ np.asfortranarray(Y), P.T @ Y, atol=1e-8)


@each
def test_no_columns(name: str) -> None:
    """Of a problem with a recode, whose groups are mixed."""
    schema = Schema({"a": 6, "b": 5}, recodes={"a": {"g": [0, 0, 1, 1, 2, 2]}})
    problem = Problem(schema, {"total": 1.0, "g": 2.0, "a": 2.0, "g * b": 1.5, "detailed": 3.0})
    P = blue(problem, name)
    assert P.apply(np.zeros((problem.observed.size, 0)))[0].shape == (problem.desired.size, 0)
    assert (P.T @ np.zeros((problem.desired.size, 0))).shape == (problem.observed.size, 0)


def test_pickles_of_an_operator_do_not_carry_the_truth() -> None:
    """Who is given an operator is not given what it was measured from."""
    problem = gallery.berkeley()
    secret = np.array([512.0, 353.0, 120.0]).tobytes()
    assert secret in pickle.dumps(problem.truth)
    P = blue(problem)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert secret not in pickle.dumps(P, protocol)
    loaded = pickle.loads(pickle.dumps(P))
    assert loaded.problem.truth is None
    assert np.array_equal(loaded @ problem.truth, P @ problem.truth)
