"""Factors of the noise by what tables disagree: beside the restricted likelihood, and over many draws."""

import numpy as np
import pytest
from scipy import optimize

from blue_solvers import blue
from blue_solvers.rounded import estimated_noise
from constraint_builders import Problem, Schema, Spine
from noise_mechanisms import add_noise
from noise_mechanisms.laws import CellKey, RandomRounding, Rounding
from tests.helpers.effort import lengths

SCHEMA = Schema({"a": 8, "b": 7, "c": 5})
TABLES = {"total": 4.0, "a * b": 1.0, "b * c": 3.0, "a * c": 0.5, "detailed": 2.0}


def _restricted(problem: Problem, y: np.ndarray, group: np.ndarray, factors: np.ndarray) -> float:
    """Minus twice the restricted log-likelihood, by dense algebra alone."""
    M = problem.marginal_matrix().toarray()
    variances = problem.variances * factors[group]
    J = (M.T / variances) @ M
    x = np.linalg.solve(J, M.T @ (y / variances))
    left = y - M @ x
    return float(np.log(variances).sum() + np.linalg.slogdet(J)[1] + (left**2 / variances).sum())


@lengths("tables", 1, 3)
def test_factors_are_those_of_the_greatest_restricted_likelihood(tables: int) -> None:
    rng = np.random.default_rng(5)
    problem = Problem(SCHEMA, TABLES)
    for _ in range(tables):
        group = np.repeat([0, 1, 1, 2, 0], problem.observed.sizes)
        true = 10 ** rng.uniform(-0.5, 0.5, 3)
        y = problem.marginal_matrix() @ rng.uniform(0, 50, 280) + np.sqrt(problem.variances * true[group]) * rng.normal(
            size=problem.observed.size
        )
        found = estimated_noise(problem, y, group, least=3, rng=0)
        assert found.names == (0, 1, 2)
        assert found.estimated.all()

        def likelihood(logs: np.ndarray, y: np.ndarray = y, group: np.ndarray = group) -> float:
            return _restricted(problem, y, group, np.exp(logs))

        best = optimize.minimize(likelihood, np.log(found.factors), method="Nelder-Mead", options={"xatol": 1e-7})
        np.testing.assert_allclose(np.exp(best.x), found.factors, rtol=1e-3)
        assert likelihood(np.log(found.factors)) <= best.fun + 1e-7
        np.testing.assert_array_equal(found.problem.variances, problem.variances * found.factors[group])


@pytest.mark.few(1)
@pytest.mark.parametrize("law", [RandomRounding(3), Rounding(5), Rounding(10)], ids=repr)
@lengths("draws", 20, 40)
def test_factors_are_within_three_standard_errors_over_many_draws(draws: int, law: object) -> None:
    """Of their logarithms. Rounded counts have the law's variances, of which a third is declared of two tables."""
    rng, z = np.random.default_rng(2), []
    problem = Problem(SCHEMA, dict.fromkeys(TABLES, law))
    part = problem.with_variances(problem.variances / np.repeat([1, 3, 3, 1, 1], problem.observed.sizes))
    true = np.array([3.0, 1.0])
    group = np.repeat([1, 0, 0, 1, 1], problem.observed.sizes)
    for _ in range(draws):
        y = add_noise(problem, problem.marginal_matrix() @ rng.integers(20, 400, 280).astype(float), rng)
        found = estimated_noise(part, y, group, rng=0)
        z.append(np.log(found.factors / true) / (found.std_errors / found.factors))
    z = np.array(z)
    assert (abs(z) < 3.5).all()
    assert (abs(z.mean(axis=0)) < 4 / np.sqrt(len(z))).all()
    assert ((z.std(axis=0) > 0.6) & (z.std(axis=0) < 1.4)).all()


def test_groups_are_tables_geolevels_or_all() -> None:
    rng = np.random.default_rng(0)
    spine = Spine.from_geocodes({"State": ["1"], "County": ["11", "12", "13"]})
    tables = {"State": {"total": 1.0, "a * b": 2.0}, "County": {"a": 1.0, "detailed": 1.0}}
    problem = Problem(SCHEMA, tables, spine=spine)
    y = problem.marginal_matrix() @ rng.uniform(0, 50, 840) + np.sqrt(problem.variances) * rng.normal(
        size=problem.observed.size
    )
    for groups, names in (("table", problem.observed.names), ("geolevel", ("State", "County")), ("all", ("all",))):
        found = estimated_noise(problem, y, groups, least=5, rng=0)
        assert found.names == tuple(names)
        assert found.redundancy.sum() == pytest.approx(blue(problem).estimate(y).goodness_of_fit().degrees_of_freedom)
        assert found.estimated.any()
        assert (found.redundancy[found.estimated] >= 5).all()
        assert (found.factors[~found.estimated] == 1).all()
        assert np.isnan(found.std_errors[~found.estimated]).all()
        assert str(found).count("\n") == len(names) - 1
    low, high = found.interval(0.95)
    assert ((high - low) / found.estimate.std_errors > 2 * 1.96).all()


def test_a_key_published_with_half_its_variance_is_noticed() -> None:
    rows = [{0: 1.0}, {-1: 0.5, 1: 0.5}, {-1: 0.25, 0: 0.5, 1: 0.25}]
    law = CellKey(rows)
    rng = np.random.default_rng(1)
    problem = Problem(SCHEMA, dict.fromkeys(TABLES, law))
    y = add_noise(problem, problem.marginal_matrix() @ rng.integers(20, 400, 280).astype(float), rng)
    doubled = problem.with_variances(2 * problem.variances)
    found = estimated_noise(doubled, y, "all", rng=0)
    assert abs(found.factors[0] - 0.5) < 3.5 * found.std_errors[0]


def test_what_cannot_be_told_is_refused_by_name() -> None:
    problem = Problem(Schema({"a": 3}), {"total": 1.0, "a": 1.0})
    with pytest.raises(ValueError, match=r"too little checks the noise: a group needs 10 degrees of freedom"):
        estimated_noise(problem, [9.0, 1, 2, 3])
    with pytest.raises(ValueError, match="groups must be one of table, geolevel, all"):
        estimated_noise(problem, [9.0, 1, 2, 3], "source")
    with pytest.raises(ValueError, match=r"whole numbers of shape \(4,\)"):
        estimated_noise(problem, [9.0, 1, 2, 3], [0, 1])
    with pytest.raises(ValueError, match="agree exactly"):
        estimated_noise(Problem(SCHEMA, TABLES), np.zeros(Problem(SCHEMA, TABLES).observed.size), "all")
    with pytest.raises(ValueError, match="correlated"):
        estimated_noise(Problem(Schema({"a": 2}), {"a": None}, covariance=[[2, 1], [1, 2]]), [1.0, 2.0])
