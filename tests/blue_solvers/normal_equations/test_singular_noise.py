"""Noise of a singular covariance: solved by the formula with its pseudoinverse, or refused by name; never "proved".

The reference is the least noise g, y = x + F g, for which x is a table: dense algebra on the matrix of the counts.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, sparse

from blue_solvers import SOLVERS, UnsupportedProblemError, blue, estimate, fit_test
from blue_solvers.uncertainty import functionals, proved_variances
from blue_solvers.verification import certify
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float
from noise_mechanisms.add_noise import draw_noise
from tests.helpers.effort import examples
from tests.helpers.refused import refuses

SCHEMA = Schema({"a": 2, "b": 3})
COUNTS = np.eye(6).reshape(2, 3, 6)
TABLES = {"total": COUNTS.sum((0, 1))[None], "a": COUNTS.sum(1), "b": COUNTS.sum(0), "a * b": COUNTS.reshape(6, 6)}
KINDS = ("few sources", "noise of counts", "exact cells")


def factor_of(kind: str, M: Float, rng: np.random.Generator) -> Float:
    """F of a singular covariance F F': that of its rows are sums of others', that some are 0, or neither."""
    n = len(M)
    if kind == "few sources":
        return rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-1, 1, (n, 1))
    if kind == "noise of counts":
        return M @ rng.normal(size=(6, 6))
    return np.linalg.cholesky(np.eye(n) + 0.3) * (rng.permutation(n) % 3 > 0)[:, None]


def reference(M: Float, F: Float, y: Float) -> tuple[Float, Float]:
    """The estimate and the root of its covariance."""
    A = linalg.null_space(M.T).T
    seen = np.where(abs(A @ F) > 1e-12 * abs(F).max(), A @ F, 0.0)
    least = np.linalg.pinv(seen, rcond=1e-9) @ A
    return y - F @ (least @ y), F - F @ (least @ F)


@examples(40)
@given(
    names=st.lists(st.sampled_from(["total", "a", "b"]), unique=True, min_size=1),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**6),
    power=st.sampled_from([0, -60, 60]),
)
def test_every_solver_is_right_or_refuses_it_by_name(names: list[str], kind: str, seed: int, power: int) -> None:
    """In units of any size."""
    rng, tables = np.random.default_rng(seed), [*names, "a * b"]
    M = np.vstack([TABLES[name] for name in tables])
    F = factor_of(kind, M, rng)
    y = M @ rng.integers(5, 50, 6) + F @ rng.normal(size=F.shape[1])
    F, y, x, root = (2.0**power * own for own in (F, y, *reference(M, F, y)))
    problem = Problem(SCHEMA, dict.fromkeys(tables), covariance=sparse.csr_array(F @ F.T))
    unit = np.linalg.norm(F, axis=1).max()
    taken = set()
    for name in SOLVERS:
        if (refusal := SOLVERS[name]().supports(problem)) is not None:
            assert "singular" in refusal
            assert "solver='dense'" in refusal
            continue
        P = blue(problem, name)
        taken.add(name)
        np.testing.assert_allclose(P @ y, x, rtol=0, atol=1e-8 * unit)
        np.testing.assert_allclose(P.estimate(y).values, x, rtol=0, atol=1e-8 * unit)  # and is not refused
        np.testing.assert_allclose(P.variances(), (root**2).sum(axis=1), rtol=1e-6, atol=1e-12 * unit**2)
        np.testing.assert_allclose(P.T @ np.eye(len(M)), (P @ np.eye(len(M))).T, rtol=0, atol=1e-12)
        weights = np.column_stack([np.eye(len(M)), rng.integers(-2, 3, len(M))])
        covariance, known = P.functional_covariance(weights), np.linalg.norm(weights.T @ root, axis=1) <= 1e-9 * unit
        assert not covariance[known].any()  # not 1e-16, of which somebody takes the root
        assert not (P.covariance @ weights)[known[:-1]].any()
        np.testing.assert_allclose(covariance, weights.T @ root @ root.T @ weights, rtol=1e-6, atol=1e-11 * unit**2)
        np.testing.assert_allclose(weights.T @ (P.covariance @ weights), covariance, rtol=1e-9, atol=1e-12 * unit**2)
        found = functionals(P, y, np.ones(len(M)))
        np.testing.assert_allclose(found.estimate, x.sum(), rtol=1e-9, atol=1e-7 * unit)
    assert taken == {"auto", "dense"}


def test_nothing_of_it_is_called_proved() -> None:
    """A covariance in floating point says to rounding only what has no noise."""
    M = np.vstack([TABLES["total"], TABLES["a * b"]])
    F = factor_of("noise of counts", M, np.random.default_rng(0))
    problem = Problem(SCHEMA, {"total": None, "a * b": None}, covariance=F @ F.T)
    y = M @ np.arange(5.0, 11.0) + F @ np.ones(6)
    est = estimate(problem, y)
    assert not est.info.exact
    assert certify(problem, y, est).bound is None
    assert "singular" in str(est.certificate())
    assert repr(est).count("not certified") == 1
    assert not proved_variances(problem, [0]).proved.any()
    refuses("singular", fit_test, problem, y)
    drawn = draw_noise(problem, 4, 1)
    np.testing.assert_allclose(drawn[0], drawn[1:].sum(axis=0), rtol=1e-10)


def test_equations_with_a_right_hand_side_and_sums_of_nodes() -> None:
    F = np.array([[1.0, 0], [0, 1], [1, 1]])
    balance = Problem.from_matrix([[1.0, 1, -1]], F @ F.T, [2.0])
    P = blue(balance, "dense")
    np.testing.assert_allclose(P @ [5.0, 4, 7] + P.offset, [5, 4, 7])  # noise that balances leaves it as it is
    nodes = Problem.from_summing_matrix([[1.0, 1], [1, 0], [0, 1]], covariance=np.outer([1, 1, 0], [1, 1, 0.0]))
    np.testing.assert_allclose(blue(nodes) @ [9.0, 4, 5], [9, 4, 5])
    np.testing.assert_allclose(blue(nodes) @ [9.0, 3, 5], [9, 3, 5])  # what contradicts itself stays: P is linear
    assert blue(nodes).apply(np.array([9.0, 3, 5]))[1].violation == pytest.approx(1)
    with pytest.raises(ValueError, match="that have no noise contradict one another by 1: correct them"):
        estimate(nodes, [9.0, 3, 5])  # nothing that adds up
    P = blue(balance, "dense")
    np.testing.assert_allclose(P.estimate([5.0, 4, 7]).values, [5, 4, 7])
    refuses(r"by 0\.5: correct", P.estimate, [5.0, 4, 7.5])


def test_what_it_cannot_do_is_refused_by_name() -> None:
    wide = np.outer([1e6, 1, 1], [1e6, 1, 1])
    with pytest.raises(UnsupportedProblemError, match="differ by 1e\\+12"):
        blue(Problem.from_summing_matrix([[1.0, 1], [1, 0], [0, 1]], covariance=wide))
    refuses("not positive semi-definite", Problem.from_matrix, [[1.0, -1]], [[1.0, 2], [2, 1]])
    many = sparse.csr_array(sparse.diags_array(np.append(np.ones(3_001), 0.0)))
    with pytest.raises(ValueError, match="singular or not positive definite: of more than 3,000 cells"):
        Problem.from_matrix(np.ones((1, 3_002)), many)
