"""The weights of functionals and the variances of cells are right however much noise differs in size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import ConjugateGradient, ConvergenceError, Solver, UnsupportedProblemError, blue
from blue_solvers.components import assumptions
from blue_solvers.structured.nearest import tables_left_out
from constraint_builders import Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.exact import weigh
from tests.helpers.oracles.invent import Invented, Kind, all_kinds, invent

EPSILON = float(np.finfo(float).eps)
ROUNDING = 64
AROUND = ConjugateGradient(preconditioner="two_pass")
FOUND = [(16, 759, "cg"), (18, 627, "cg"), (18, 900, "cg"), (19, 792, "cg"), (17, 900, "auto")]
FOUND += [(16, 342, "multigrid"), (19, 627, "multigrid"), (17, 5086, AROUND)]
KNOWN = [(19, 402), (19, 444), (17, 660)]


def functionals(m: int, seed: int) -> np.ndarray:
    """A cell and two combinations of cells, (m, 3)."""
    rng = np.random.default_rng(seed)
    V = np.zeros((m, 3))
    V[rng.integers(m), 0] = 1
    V[:, 1:] = rng.integers(-3, 4, (m, 2)) * (rng.random((m, 2)) < 0.4)
    return V


def furthest(found: Invented, solver: Solver | str, V: np.ndarray) -> float:
    """By how much of a functional's standard error its weights are off beyond rounding, in the size of their noise.

    A functional that is known exactly has none: then what counts is rounding of all the noise that went.
    """
    d = found.description
    exact = weigh(d, found.y, V)
    P = blue(d.problem(), solver)
    off = np.where(((d.variances > 0) & np.isfinite(d.variances))[:, None], P.T @ V - exact.weights, 0.0)
    noise = np.sqrt(np.maximum(np.einsum("ij,ij->j", off, P.problem.noise_covariance @ off), 0))
    own = np.sqrt(np.maximum(np.einsum("ij,ij->j", V, exact.covariance), 0))
    most = np.sqrt(d.variances[np.isfinite(d.variances)].max()) * abs(V).sum(axis=0)
    terms = np.where(own > 0, abs(V).T @ found.reference.std_errors, most)
    beyond = np.maximum(noise - ROUNDING * EPSILON * terms, 0)
    return float(np.divide(beyond, own, out=np.where(beyond > 0, np.inf, 0.0), where=own > 0).max())


@every(("kind", "seed", "solver"), FOUND)
def test_weights_are_right_where_they_were_not(kind: int, seed: int, solver: Solver | str) -> None:
    """Seeds whose weights were 1e-8 standard errors off and more, and those of what is known exactly not 0."""
    found = invent(seed, all_kinds()[kind])
    assert furthest(found, solver, functionals(found.reference.estimate.size, found.y.size)) <= 1e-8


@given(
    seed=st.integers(0, 2**32 - 1),
    covariance=st.sampled_from(["", "sparse", "shared"]),
    cellwise=st.booleans(),
    solver=st.sampled_from(["cg", "multigrid", "auto", "cholesky"]),
)
@examples(40)
def test_any_weights_of_twelve_decades_are(seed: int, covariance: str, cellwise: bool, solver: str) -> None:
    found = invent(seed, Kind(decades=12.0, covariance=covariance, cellwise=cellwise and not covariance))
    if found is None:
        return
    V = functionals(found.reference.estimate.size, seed)
    try:
        off = furthest(found, solver, V)
    except (ConvergenceError, UnsupportedProblemError):
        return
    except ValueError as error:
        assert "nearly a combination" in str(error) or "not estimable" in str(error)  # noqa: PT017
        return
    assert off <= 1e-8


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "seed"), KNOWN)
def test_variances_of_what_is_known_exactly_are_exactly_0(kind: int, seed: int) -> None:
    """Seeds where they were 1e-33 to 1e-26."""
    found = invent(seed, all_kinds()[kind])
    known = found.reference.variances == 0
    assert known.any()
    for solver in (AROUND, "cg", "auto"):
        variances = blue(found.description.problem(), solver).variances()
        np.testing.assert_array_equal(variances == 0, known)
        np.testing.assert_allclose(variances, found.reference.variances, rtol=1e-7)


@pytest.mark.parametrize("q", [0.0, [0.0, 1, 1], [0.0, 0, 1]])
def test_they_are_where_tables_are_left_out(q: float | list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assumptions, "MOST_GROUPS", 7)
    recodes = {"a": {"p": [0, 0, 1, 1, 1], "q": [0, 1, 1, 2, 2]}, "b": {"r": [0, 1, 1, 0], "s": [0, 0, 1, 1]}}
    schema = Schema({"a": 5, "b": 4, "c": 2}, recodes=recodes)
    detailed = np.geomspace(0.1, 1e3, 40).reshape(5, 4, 2)
    tables = {"total": 3.0, "p * s": 1.0, "q * r * c": 2.0, "q": q, "detailed": detailed}
    problem = Problem(schema, tables)
    assert tables_left_out(problem)
    given, exact = blue(problem, AROUND).variances(), blue(problem, "dense").variances()
    assert (exact == 0).any()
    np.testing.assert_array_equal(given == 0, exact == 0)
    np.testing.assert_allclose(given, exact, rtol=1e-7)


def test_iterations_that_may_lose_digits_do_not_call_what_they_apply_exact() -> None:
    """A seed with weights 6e-7 standard errors off; the estimate itself is proved."""
    found = invent(5335, all_kinds()[17])
    P = blue(found.description.problem(), AROUND)
    assert not P.info.exact
    assert "digits" in P.info.reason
    est = P.estimate(found.y)
    assert not est.info.exact or (est.certificate().bound or np.inf) <= 1e-8
