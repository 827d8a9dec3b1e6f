"""Covariances that are none are refused."""

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from constraint_builders import Problem, Schema
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses

SCHEMA = Schema({"a": 2})
GOOD = np.array([[2.0, 0.5, 0], [0.5, 1.0, 0.1], [0, 0.1, 3.0]])
OBSERVED = {"a": None, "total": None}


@every("kind", [np.asarray, sparse.csr_array, sparse.coo_array, sparse.csc_matrix, aslinearoperator])
def test_any_kind_is_read(kind) -> None:
    problem = Problem(SCHEMA, OBSERVED, covariance=kind(GOOD))
    assert np.allclose(problem.variances, [2, 1, 3])
    assert not problem.assumptions.A2
    assert np.allclose(problem.noise_covariance @ np.eye(3), GOOD)


def changed(i: int, j: int, value: float) -> np.ndarray:
    matrix = GOOD.copy()
    matrix[i, j] = value
    return matrix


@cases(
    (GOOD[:2, :2], r"must have shape \(3, 3\)"),
    (changed(0, 1, 0.6), "not symmetric"),
    (changed(1, 1, np.nan), "NaN or infinite"),
    (changed(1, 1, np.inf), "NaN or infinite"),
    (changed(1, 1, 0.0), "not positive semi-definite"),
    (changed(1, 1, -1.0), "not positive semi-definite"),
    (changed(1, 1, 0.01), "not positive semi-definite"),
    (np.diag([1.0, 1e-310, 1.0]), "diagonal of the covariance is 1e-310, below 1e-100: measure in smaller units"),
)
def test_refused(matrix: np.ndarray, message: str) -> None:
    refuses(message, Problem, SCHEMA, OBSERVED, covariance=matrix)
    refuses(message, Problem, SCHEMA, OBSERVED, covariance=sparse.csr_array(matrix))


@refused(
    (changed(0, 1, 0.6), "not symmetric"),
    (-GOOD, "not positive definite"),
    (changed(1, 1, np.nan), "NaN or infinite"),
    (np.diag([1.0, 1e-310, 1.0]), "diagonal of the covariance is 1e-310, below 1e-100: measure in smaller units"),
)
def test_operators_refused(matrix: np.ndarray) -> None:
    Problem(SCHEMA, OBSERVED, covariance=aslinearoperator(matrix))


def test_variances_must_agree_with_the_diagonal() -> None:
    assert Problem(SCHEMA, {"a": [2.0, 1.0], "total": 3.0}, covariance=GOOD).observed.size == 3
    refuses("differ from the covariance's diagonal", Problem, SCHEMA, {"a": 2.0, "total": 3.0}, covariance=GOOD)


def test_no_variance_and_no_covariance() -> None:
    refuses("no variance for table 'total'", Problem, SCHEMA, {"a": 1.0, "total": None})
