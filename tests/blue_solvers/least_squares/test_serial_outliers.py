"""Outliers taken out one by one are those of solving anew after each."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from blue_solvers import Areas, Problem, Schema, Spine, estimate
from blue_solvers.least_squares import eliminate_outliers, least_squares
from tests.helpers.designs import anchors, dense, graph, grid_of_differences, measured
from tests.helpers.effort import lengths


def one_by_one(S: Any, y: np.ndarray, variances: np.ndarray, level: float) -> list[tuple[int, float, float]]:
    """Place, residual and probability of each, every estimate made anew: by what no leaves make of the rows.

    In 1 less a share little redundancy would lose its digits.
    """
    rows, left = S.toarray() if sparse.issparse(S) else S, np.arange(y.size)
    found = list[tuple[int, float, float]]()
    while left.size:
        sd = np.sqrt(variances[left])
        U, values, _ = np.linalg.svd(rows[left] / sd[:, None] / np.linalg.norm(rows[left] / sd[:, None], axis=0))
        rest = U[:, np.count_nonzero(values > 1e-9 * values[0]) :]
        lengths = np.linalg.norm(rest, axis=1)
        checked = lengths**2 > 1e-9
        if not checked.any():
            break
        residuals = np.divide(rest @ (rest.T @ (y[left] / sd)), lengths, out=np.zeros(left.size), where=checked)
        worst = int(abs(residuals).argmax())
        probability = -np.expm1(checked.sum() * np.log1p(-2 * stats.norm.sf(abs(residuals[worst]))))
        if probability >= level:
            break
        found.append((int(left[worst]), float(residuals[worst]), float(probability)))
        left = np.delete(left, worst)
    return found


@pytest.mark.parametrize("kind", [dense, graph], ids=lambda kind: kind.__name__)
@lengths("designs", 8, 150)
def test_steps_are_those_of_solving_anew(kind: Any, designs: int) -> None:
    taken = 0
    for seed in range(designs):
        rng = np.random.default_rng([seed, 5])
        S, variances = kind(rng)
        y = measured(rng, S, variances)
        wrong = rng.choice(y.size, min(3, y.size), replace=False)
        y[wrong] += rng.choice([-1, 1], wrong.size) * rng.uniform(5, 20, wrong.size) * np.sqrt(variances[wrong])
        found, expected = eliminate_outliers(least_squares(S, y, variances)), one_by_one(S, y, variances, 0.01)
        told = [not others for others in found.not_told_apart]
        certain = told.index(False) if False in told else len(told)  # after a tie either way is right
        assert list(found.positions[:certain]) == [place for place, _, _ in expected[:certain]]
        for own, (_, residual, probability) in zip(found.outliers[:certain], expected, strict=False):
            np.testing.assert_allclose([own.residual, own.probability], [residual, probability], rtol=1e-6)
        if certain == len(told):
            assert len(expected) == certain
            taken += certain
        assert np.isinf(found.problem.variances[list(found.positions)]).all()
    assert taken > designs // 10


def test_planted_errors_are_found_and_named() -> None:
    S = sparse.csr_array(sparse.vstack([grid_of_differences(12, 12), anchors(np.array([0]), 144)]))
    rng = np.random.default_rng(2)
    truth = rng.normal(0, 10, 144)
    y = S @ truth + rng.standard_normal(S.shape[0])
    planted = [30, 100, 170]
    y[planted] += [12, -15, 13]
    found = eliminate_outliers(least_squares(S, y, 1.0), level=0.01)
    assert sorted(found.positions) == planted
    np.testing.assert_allclose([own.expected for own in found.outliers], (S @ truth)[list(found.positions)], atol=4)
    assert found.estimate.goodness_of_fit().p_value > 0.001
    assert "table 'rows', cell (node=100) is" in str(found)
    assert str(eliminate_outliers(found.estimate)) == "no outliers"


def test_of_tables_and_their_published_values() -> None:
    schema = Schema({"sex": ["f", "m"], "age": 4})
    problem = Problem(schema, {"total": 1.0, "sex": 1.0, "age": 1.0, "detailed": 1.0})
    truth = np.array([[30.0, 20, 10, 5], [28, 22, 12, 3]])
    tables = {"total": truth.sum(), "sex": truth.sum(axis=1), "age": truth.sum(axis=0) + np.array([0, 40, 0, 0])}
    y = problem.vector({**tables, "detailed": truth})
    found = eliminate_outliers(problem, y, level=0.001)
    assert [(own.table, own.cell) for own in found.outliers] == [("age", (1,))]
    np.testing.assert_allclose(
        found.estimate.values, problem.vector({**tables, "age": truth.sum(0), "detailed": truth})
    )
    np.testing.assert_allclose(estimate(found.problem, y).values, found.estimate.values)
    assert found.outliers[0].expected == pytest.approx(42)


def test_what_was_taken_out_of_a_geography_is_estimated_from_the_others() -> None:
    spine = Spine([-1, 0, 0], ["State", "County", "County"])
    tables = {"State": {"a": 1.0}, "County": {"a": 2.0, "total": 1.0}}
    y = np.array([30.0, 12, 11, 7, 240, 5, 18, 24])  # the state's two, each county's two, their totals
    for places in ({"spine": spine}, {"areas": Areas.from_spine(spine)}):
        found = eliminate_outliers(Problem(Schema({"a": 2}), tables, **places), y)
        assert found.positions == (4,)
        M = np.array([[1, 0, 1, 0], [0, 1, 0, 1], *np.eye(4), [1, 1, 0, 0], [0, 0, 1, 1]], dtype=float)
        weights = np.where(np.arange(8) == 4, 0, [1, 1, 0.5, 0.5, 0.5, 0.5, 1, 1])
        covariance = np.linalg.inv(M.T * weights @ M)
        np.testing.assert_allclose(found.estimate.values, M @ covariance @ (M.T * weights @ y))
        np.testing.assert_allclose(found.estimate.variances, np.diag(M @ covariance @ M.T))


def test_measurements_that_nothing_tells_apart_are_said_to_be() -> None:
    found = eliminate_outliers(least_squares([[1.0], [1.0]], [0.0, 10.0], [1.0, 1.0]))
    assert found.not_told_apart == ((1,),)
    assert "or one of 1 others that nothing tells from it" in str(found)


def test_what_is_not_judged_one_by_one_is_refused() -> None:
    root = np.random.default_rng(0).standard_normal((3, 3))
    with pytest.raises(ValueError, match="outliers are not taken out one by one where noise is correlated"):
        eliminate_outliers(least_squares(np.ones((3, 1)), np.ones(3), root @ root.T + np.eye(3)))
    with pytest.raises(ValueError, match=r"level is 1\.5: give a number between 0 and 1"):
        eliminate_outliers(least_squares(np.ones((3, 1)), np.ones(3), 1.0), level=1.5)


def test_residuals_that_rounding_orders_are_told_as_alike() -> None:
    """Three rows have one residual; of a redundancy of 1e-8 rounding leaves half the digits."""
    S, variances = [[2.0, 1.0], [0.0, 1.0], [2.0, 0.0], [0.0, 1.0]], np.array([1.0, 1e8, 1e2, np.inf])
    for seed in range(20):
        y = np.random.default_rng(seed).uniform(1, 2, 4) * 1e7
        found = eliminate_outliers(least_squares(S, np.where(np.isinf(variances), np.nan, y), variances))
        assert found.positions
        assert sorted((found.positions[0], *found.not_told_apart[0])) == [0, 1, 2]


def test_what_nothing_tells_apart_is_said_whatever_the_variances():
    """One equation binds all measurements, so that each residual is as large: precise ones have little redundancy."""
    S, variances = [[1, 1, 0], [0, 1, 0], [0, 0, 1], [-1, 0, -1]], [1e2, 1e6, 1e5, 1e1]
    found = eliminate_outliers(least_squares(S, [4e4, 0.0, 0.0, 0.0], variances))
    assert found.positions == (0,)
    assert found.not_told_apart == ((1, 2, 3),)
    np.testing.assert_allclose(found.outliers[0].residual, 4e4 / np.sqrt(sum(variances)), rtol=1e-9)
