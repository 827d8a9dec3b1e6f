"""Non-negative fits of tables at several geolevels, against scipy's least squares."""

import numpy as np
import pytest
from scipy.optimize import nnls as scipy_nnls

from blue_solvers.nonnegative import METHODS, nnls, sequential_fit
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import every

SPINE = Spine([-1, 0, 0, 1, 1, 2, 2], ["State", "County", "County", "Tract", "Tract", "Tract", "Tract"])
OBSERVED = {
    "State": {"total": 1.0, "sex": 2.0},
    "County": {"sex": 2.0, "total": 1.0},
    "Tract": {"total": 3.0, "detailed": 4.0},
}
PROBLEM = Problem(Schema({"sex": 2, "age": 3}), OBSERVED, spine=SPINE)


def measurements(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    M = PROBLEM.marginal_matrix()
    return M @ rng.poisson(1.0, M.shape[1]) + np.sqrt(PROBLEM.variances) * rng.standard_normal(M.shape[0])


@every("seed", range(5))
def test_nnls_equals_scipy(seed: int) -> None:
    y = measurements(seed)
    deviations = np.sqrt(PROBLEM.variances)
    expected = scipy_nnls(PROBLEM.marginal_matrix().toarray() / deviations[:, None], y / deviations)[0]
    fit = nnls(PROBLEM, y)
    assert fit.detail.shape == (4, 2, 3)
    np.testing.assert_allclose(fit.detail.ravel(), expected, atol=1e-8)


@every("method", METHODS)
def test_every_method_takes_a_spine(method: str) -> None:
    fit = METHODS[method](PROBLEM, measurements(0))
    assert fit.detail.min() >= 0
    assert fit.kkt_residual < 1e-6
    tables = fit.tables()
    np.testing.assert_allclose(tables["County", "total"].sum(), tables["State", "total"][0], atol=1e-8)
    np.testing.assert_allclose(tables["Tract", "detailed"].sum(axis=(1, 2)), tables["Tract", "total"], atol=1e-8)


def test_sequential_fitting_holds_the_first_tables() -> None:
    y = measurements(1)
    order = [("State", "total"), *(name for name in PROBLEM.observed.names if name != ("State", "total"))]
    fit = sequential_fit(PROBLEM, y, order=order)
    assert fit.tables()["State", "total"][0] == pytest.approx(max(y[0], 0), abs=1e-9)
    assert fit.margin_residual < 1e-9


def test_tables_that_leave_geounits_out_are_refused_where_they_must_not() -> None:
    uneven = Spine([-1, 0, 0, 1], ["State", "County", "County", "Tract"])
    problem = Problem(Schema({"sex": 2}), {"State": {"total": 1.0}, "Tract": {"detailed": 1.0}}, spine=uneven,
                      desired={"State": ["total"]})  # fmt: skip
    with pytest.raises(ValueError, match=r"table \('Tract', 'detailed'\) does not cover all detailed cells"):
        sequential_fit(problem, np.ones(3))
    assert nnls(problem, np.ones(3)).detail.min() >= 0
