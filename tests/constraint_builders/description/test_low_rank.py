"""D + U U' as an operator: its products, its inverse, and what it refuses."""

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

from constraint_builders import LowRankPlusDiagonal, Problem, Schema
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

D = np.array([2.0, 0.5, 1.0])
U = np.array([[1.0, 0.0], [2.0, -1.0], [0.0, 3.0]])


@every("second", [0.5, np.inf])
def test_products_and_inverse(second: float) -> None:
    """A cell that was not measured counts as zero."""
    measured = np.array([1.0, np.isfinite(second), 1.0])
    covariance = LowRankPlusDiagonal([2.0, second, 1.0], U)
    assert isinstance(covariance, LinearOperator)
    np.testing.assert_array_equal(covariance.factor, U * measured[:, None])
    dense = np.diag(D * measured) + covariance.factor @ covariance.factor.T
    V = np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_allclose(covariance @ V, dense @ V, rtol=1e-14)
    np.testing.assert_allclose(covariance.T @ V[:, 0], dense @ V[:, 0], rtol=1e-14)
    inverse = np.linalg.pinv(dense)
    np.testing.assert_allclose(covariance.solve(V), inverse @ V, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(covariance.solve(V[:, 0]), inverse @ V[:, 0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(covariance.variances[measured > 0], np.diag(dense)[measured > 0], rtol=1e-15)


def test_a_problem_reads_it() -> None:
    D = [0.0, np.inf, 1.0]
    problem = Problem(
        Schema({"a": 2}), {"a": None, "total": 10.0}, covariance=LowRankPlusDiagonal(D, U * [[0], [1], [1]])
    )
    assert problem.variances.tolist() == [0, np.inf, 10]
    assert problem.exact.tolist() == [True, False, False]
    assert problem.unmeasured.tolist() == [False, True, False]
    with pytest.raises(ValueError, match="differ from the covariance's diagonal"):
        Problem(Schema({"a": 2}), {"a": None, "total": 1.0}, covariance=LowRankPlusDiagonal([1, 1, 1], U))
    refuses(r"must have shape \(4, 4\)", Problem.from_matrix, np.ones((1, 4)), LowRankPlusDiagonal([1, 1, 1], U))


@refused(
    ([1.0, -1.0, 1.0], U, "negative"),
    ([1.0, np.nan, 1.0], U, "NaN"),
    ([1.0, 1e-310, 1.0], U, "is 1e-310, below 1e-100: give 0 for what is known exactly"),
    (np.eye(3), U, r"diagonal of the covariance must have shape \(n,\)"),
    (D, U[:2], r"must have shape \(3, k\): got \(2, 2\)"),
    (D, U[:, 0], r"must have shape \(3, k\): got \(3,\)"),
    (D, U * np.nan, "NaN or infinite"),
    ([1.0, 0.0, 1.0], U, "cell 1, which has no noise of its own"),
)
def test_refused(diagonal: np.ndarray, factor: np.ndarray) -> None:
    LowRankPlusDiagonal(diagonal, factor)


def test_no_inverse_with_exact_cells() -> None:
    refuses("cell 2 is known exactly", LowRankPlusDiagonal([1.0, 1.0, 0.0], U * [[1], [1], [0]]).solve, np.ones(3))


def test_memberships_are_numbers_in_factors_and_vectors() -> None:
    """What cells share a source is written as true and false, as well as 1 and 0."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        own, vectors = rng.random((4, 3)) < 0.5, rng.random((4, 2)) < 0.5
        of_flags, of_numbers = (LowRankPlusDiagonal(np.ones(4), U) for U in (own, own.astype(float)))
        np.testing.assert_array_equal(of_flags.factor, own.astype(float))
        np.testing.assert_array_equal(of_flags @ vectors, of_numbers @ vectors.astype(float))
        np.testing.assert_array_equal(of_flags.solve(vectors), of_numbers.solve(vectors.astype(float)))
