"""With the extra ``opendp``: from a Context's releases to intervals."""

import numpy as np
import polars as pl
import pytest

from blue_solvers import estimate
from blue_solvers.adapters import problem_from_releases

PAIRED = "1.36"  # the polars that OpenDP's plugin is compiled for, and no other
PEOPLE, SCALE = 3000, np.sqrt(3)  # three releases of a third of rho = 1 / 2 each


@pytest.mark.skipif(not pl.__version__.startswith(PAIRED), reason=f"OpenDP's Context needs polars {PAIRED}")
def test_from_a_context_to_intervals() -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    rng = np.random.default_rng(1)
    people = {"sex": rng.choice(["f", "m"], PEOPLE), "age": rng.choice(["young", "mid", "old"], PEOPLE)}
    by = (["sex"], ["age"], ["sex", "age"])
    context = dp.Context.compositor(
        data=pl.LazyFrame(people),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=0.5),
        split_evenly_over=3,
        margins=[dp.polars.Margin(max_length=10_000), *(dp.polars.Margin(by=own, invariant="keys") for own in by)],
    )
    count = dp.len(signed=True)
    queries = [context.query().select(count), *(context.query().group_by(own).agg(count) for own in by[1:])]
    problem, y = problem_from_releases([(query.release().collect(), query.summarize()) for query in queries])
    assert problem.observed.names == ("total", "age", "age * sex")
    np.testing.assert_allclose(problem.variances, SCALE**2, rtol=1e-2)  # of discrete Gaussian noise of that scale
    est = estimate(problem, y)
    assert abs(est.tables["total"] - PEOPLE) < 6 * est.std_errors[0] < 6 * SCALE
    np.testing.assert_allclose(est.tables["age"], est.tables["age * sex"].sum(axis=1))
    lower, upper = est.interval(0.95)
    assert (lower < est.values).all()
    assert (upper > est.values).all()
