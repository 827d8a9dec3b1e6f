"""Leaves of which exact rows leave one direction, hardly told from none, against fractions."""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import UnsupportedProblemError
from blue_solvers.least_squares import least_squares


def test_variances_of_few_leaves_that_lose_digits_are_found_among_many_that_may() -> None:
    """A chain that hardly hangs on anything, and pairs that do so by powers of two, which lose none."""
    rng, pair = np.random.default_rng(2), [[1.0, -1.0], [2.0**-18, 0.0]]
    weights = np.append(rng.uniform(0.5, 2, 29), 3e-10**0.5)
    chain = sparse.csr_array(sparse.diags_array([-weights, weights[:29]], offsets=[0, 1], shape=(30, 30)))
    S = sparse.csr_array(sparse.block_diag([*[pair] * 40, chain, sparse.eye_array(2700)]))
    found = least_squares(S, np.zeros(S.shape[0]), 1.0, certify=False)
    np.testing.assert_allclose(found.operator.over_observed.variances(), 1.0, rtol=1e-9)
    to_end = np.cumsum(1 / weights[::-1] ** 2)[::-1]
    np.testing.assert_allclose(found.variances[80:110], to_end, rtol=1e-8)


class OneLeft(NamedTuple):
    """Leaves of rows, (k,), what they change by where exact rows hold, and the inverse of the variance of that."""

    leaves: list[Fraction]
    direction: list[Fraction]
    information: Fraction

    def off(self, S: Any, values: Any, rows: Any) -> float:
        """How far values, (k,), and rows, (n,), are from the best, in standard errors of each that has one."""
        every = [*np.eye(len(self.leaves)).tolist(), *S.tolist()]
        parts = [(_sum(row, self.leaves), _sum(row, self.direction)) for row in every]
        told = zip(parts, [*values, *rows], strict=True)
        return max(float((Fraction(own) - best) ** 2 * self.information / d**2) for (best, d), own in told if d) ** 0.5


def one_left(S: np.ndarray, y: np.ndarray, variances: np.ndarray) -> OneLeft:
    """Of k leaves and k - 1 exact rows, the last, by fractions."""
    k, noisy = S.shape[1], np.flatnonzero(variances)
    E = [[Fraction(own) for own in row] + [Fraction(given)] for row, given in zip(S, y, strict=True)][-k + 1 :]
    for i in range(k - 1):  # leaf i by the last
        E[i] = [own / E[i][i] for own in E[i]]
        for j in set(range(k - 1)) - {i}:
            E[j] = [own - E[j][i] * pivot for own, pivot in zip(E[j], E[i], strict=True)]
    start, direction = [*(row[k] for row in E), Fraction(0)], [*(-row[k - 1] for row in E), Fraction(1)]
    C, left = ([_sum(S[i], own) for i in noisy] for own in (direction, start))
    weights = [1 / Fraction(variances[i]) for i in noisy]
    information = sum((w * c * c for w, c in zip(weights, C, strict=True)), Fraction(0))
    score = sum(w * c * (Fraction(y[i]) - own) for w, c, own, i in zip(weights, C, left, noisy, strict=True))
    return OneLeft([a + score / information * d for a, d in zip(start, direction, strict=True)], direction, information)


def _sum(weights: Any, values: list[Fraction]) -> Fraction:
    return sum((Fraction(w) * own for w, own in zip(weights, values, strict=True)), Fraction(0))


def test_what_elimination_would_round_away_is_kept() -> None:
    """Leaf 1 is nearly known, since leaves 0 and 2 are nearly the same; both have far larger standard errors."""
    near, nearer = 2.0**-18, 2.0**-23
    S = np.array([[0.0, 1, 0], [1, 0, 0], [1, 1, -1], [1 + near, 1, near * nearer - near - 1]])
    y, variances = np.array([0.5, 3e6, 7.0, 7 + 3 * near]), np.array([1, 1e14, 0, 0])
    found, best = least_squares(S, y, variances), one_left(S, y, variances)
    deviations = abs(np.array(best.direction, dtype=float)) / float(best.information) ** 0.5
    np.testing.assert_allclose(found.std_errors, deviations, rtol=1e-6)
    assert found.std_errors[1] > 0.7
    assert best.off(S, found.values, found.rows) <= found.certificate().bound < 1e-2


def hardly_cancelled(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows near a multiple of an exact one, that are far from agreeing, and say little of the leaves."""
    own, y = rng.standard_normal(2), 1e7 * rng.standard_normal(9)
    S = np.vstack([np.outer(rng.standard_normal(9), own) + 1e-7 * rng.standard_normal((9, 2)), own])
    told = S[:9] @ [-own[1], own[0]]
    return S, np.append(y - told * (told @ y / (told @ told)), 0.0), np.append(np.ones(9), 0.0)


def nearly_dependent(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A leaf known by the difference of two exact rows, and a row that hardly has noise beside it."""
    near = 1e-5 * rng.uniform(1, 9)
    S = np.array([[0, 0, 1], [0, 1, 1e-9], [1, 0, 0], [1, near, 0]])
    return S, np.append(rng.normal(0, 9, 2), [7.5, 7.5 + 2.0**-14 * rng.uniform(1, 9)]), np.array([1e-8, 1e9, 0, 0])


@pytest.mark.parametrize("kind", [hardly_cancelled, nearly_dependent], ids=lambda kind: kind.__name__)
def test_proofs_allow_for_what_exact_rows_are_missed_by(kind: Any) -> None:
    for seed in range(6):
        S, y, variances = kind(np.random.default_rng(seed))
        found, best = least_squares(S, y, variances, certify=True), one_left(S, y, variances)
        assert best.off(S, found.values, found.rows) <= found.proof.bound, seed


def test_leaves_that_exact_rows_tell_all_of_are_known() -> None:
    S = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 1.0]])
    found = least_squares(S, [3.0, 1.0, 5.2], [0.0, 0.0, 1.0])
    np.testing.assert_allclose(found.values, [2.0, 1.0], rtol=1e-14)
    np.testing.assert_array_equal(found.std_errors, 0.0)
    np.testing.assert_allclose(found.rows, [3.0, 1.0, 5.0], rtol=1e-14)
    assert found.goodness_of_fit().degrees_of_freedom == 1


def test_a_leaf_that_exact_rows_determine_is_known_beside_some_that_they_do_not() -> None:
    """Rounding that extended precision leaves of the second leaf's part in what is free is no part of it."""
    S = np.array([[0.18, -1.5, 0.18], [0.27, 2.08, 0.27], [-1.79, -0.58, -1.79]])
    found = least_squares(S, [9.24, -29.44, 59.67], [0.0, 0.0, 2.83])
    np.testing.assert_array_equal(np.isnan(found.values), [True, False, True])
    np.testing.assert_allclose(found.values[1], (0.18 * -29.44 - 0.27 * 9.24) / (0.18 * 2.08 + 0.27 * 1.5), rtol=1e-14)
    assert found.std_errors[1] == 0


def test_rows_that_hardly_differ_from_exact_ones_are_refused_where_rounding_would_decide() -> None:
    """Of what they say some was left out as rounding: standard errors were off by a factor of up to ten."""
    near = 3e-11 * np.array([0.7, 0.05, 1.0, -0.4])
    S = np.array([[1.0, 1.0], [0.3, 0.3], [2.0, 2.0], [0.7, 0.7]]) + np.outer(near, [0, 1])
    said = "rows with noise are nearly combinations of exact rows: rounding would decide"
    with pytest.raises(UnsupportedProblemError, match=said):
        least_squares(S, [5.0, 1.5, 10.0, 3.5], [0.0, 1e-6, 1.0, 1.0])
    far = S + np.outer(1e4 * near, [0, 1])
    found = least_squares(far, [5.0, 1.5, 10.0, 3.5], [0.0, 1e-6, 1.0, 1.0])
    told = (far[1:, 1] - far[1:, 0] * far[0, 1]) / np.sqrt([1e-6, 1.0, 1.0])
    np.testing.assert_allclose(found.std_errors[1], 1 / np.linalg.norm(told), rtol=1e-5)
