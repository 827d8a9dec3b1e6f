"""Every part of the toolkit that takes a problem, and a check of what it gives against dense algebra."""

import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from blue_solvers import SOLVERS, blue
from blue_solvers.nonnegative import (
    METHODS,
    controlled_rounding,
    counts_posterior,
    coverage,
    inverted_intervals,
    movements,
    nnls,
    ols,
    refine_intervals,
)
from blue_solvers.nonnegative.microdata_rows import unit_records, weighted_rows
from blue_solvers.nonnegative.price.bounds import PureDP, conflicts, least_sum_error
from blue_solvers.spine_design.report import entity_workload, workload_variances
from blue_solvers.streaming import partition
from blue_solvers.uncertainty import (
    Replicates,
    SecondMoments,
    confidence_ellipsoid,
    covariance_block,
    covariance_columns,
    distribution_free_band,
    distribution_free_ellipsoid,
    estimate_variances,
    functionals,
    intervals,
    simultaneous_band,
    variances,
)
from constraint_builders.geography import Entities
from noise_mechanisms import add_noise, draw_noise
from tests.feature_support import optimality
from tests.feature_support.instances import Instance
from tests.helpers.partitioned import read_estimates, streamed

Check = Callable[[Instance], None]
CLOSE = 1e-8  # of a standard error, and of 1e-6 of the largest count
DRAWS = 2000
RUNS = 8  # of a fit, beside as many worked out here


def _given(instance: Instance) -> np.ndarray:
    return np.nan_to_num(instance.y)


def _require_close(found: np.ndarray, expected: np.ndarray, instance: Instance, share: float = CLOSE) -> None:
    scale = share * (instance.std_errors() + 1e-6 * np.nanmax(abs(instance.y)))
    assert found.shape == expected.shape
    assert (abs(found - expected) <= scale.reshape(-1, *[1] * (found.ndim - 1))).all(), abs(found - expected).max()


def check_estimate(solver: Any, instance: Instance) -> None:
    """Estimates and variances are the BLUE's; approximate estimates count as a refusal."""
    P = blue(instance.problem, solver)
    if not P.info.exact:
        raise ValueError(f"not exact: {P.info.reason}")
    _require_close(P @ _given(instance) + P.offset, instance.estimate(), instance)
    expected = instance.covariance.diagonal()
    np.testing.assert_allclose(P.variances(), expected, rtol=1e-7, atol=1e-10 * expected.max())


def check_z(instance: Instance) -> None:
    lower, upper = intervals(instance.problem, _given(instance), 0.9)
    half = stats.norm.ppf(0.95) * instance.std_errors()
    _require_close((lower + upper) / 2, instance.estimate(), instance)
    np.testing.assert_allclose((upper - lower) / 2, half, rtol=1e-6, atol=1e-9)


def check_simulated(method: str, instance: Instance) -> None:
    """Widths from simulated errors are near those of the errors' own law, simulated apart from the package."""
    lower, upper = intervals(instance.problem, _given(instance), 0.9, method, DRAWS, rng=1)
    _require_close((lower + upper) / 2, instance.estimate(), instance)
    errors = abs(instance.operator[0] @ noise_of(instance, 20_000))
    expected = np.quantile(errors, 0.9, axis=1) if method == "distribution_free" else 1.645 * instance.std_errors()
    # 2,000 draws: four standard errors of a quantile, and of a root of a mean square, with ties of discrete noise
    np.testing.assert_allclose((upper - lower) / 2, expected, rtol=0.12, atol=1e-9)


@cache
def noise_of(instance: Instance, columns: int) -> np.ndarray:
    """Noise of an instance by numpy alone."""
    rng = np.random.default_rng(5)
    deviations = np.sqrt(instance.Sigma.diagonal())[:, None]
    if instance.problem.noise == "laplace":
        return deviations * rng.laplace(scale=np.sqrt(0.5), size=(len(instance.Sigma), columns))
    if instance.problem.noise == "discrete_gaussian":
        found = np.zeros((len(instance.Sigma), columns))
        for row, spread in zip(found, deviations[:, 0], strict=True):
            k = np.arange(-60, 61)
            weight = np.exp(-np.square(k) / (2 * spread**2)) if spread else (k == 0).astype(float)
            row[:] = rng.choice(k, columns, p=weight / weight.sum())
        return found
    values, vectors = np.linalg.eigh(instance.Sigma)
    return vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * rng.standard_normal((len(instance.Sigma), columns)))


def _weights(instance: Instance) -> np.ndarray:
    return np.random.default_rng(3).integers(-1, 3, (len(instance.D), 3)).astype(float)


def check_functionals(instance: Instance) -> None:
    W = _weights(instance)
    found = functionals(instance.problem, _given(instance), W)
    covariance = W.T @ instance.covariance @ W
    np.testing.assert_allclose(found.estimate, W.T @ instance.estimate(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-9 * abs(covariance).max())


def check_ellipsoid(instance: Instance) -> None:
    W = np.eye(len(instance.D))
    region = confidence_ellipsoid(instance.problem, _given(instance), W, 0.9)
    _require_shape(instance, region)
    assert np.isclose(region.squared_radius, stats.chi2.ppf(0.9, region.rank))
    np.testing.assert_allclose(region.shape, instance.covariance, atol=1e-8 * abs(instance.covariance).max())


def _require_shape(instance: Instance, region: Any) -> None:
    _require_close(region.centre, instance.estimate(), instance)
    eigenvalues = np.linalg.eigvalsh(instance.covariance)
    assert region.rank == int((eigenvalues > 1e-9 * eigenvalues.max()).sum())


def check_ellipsoid_of_draws(instance: Instance) -> None:
    region = confidence_ellipsoid(instance.problem, _given(instance), np.eye(len(instance.D)), 0.9, DRAWS, 1)
    _require_shape(instance, region)
    np.testing.assert_allclose(np.diag(region.shape), instance.covariance.diagonal(), rtol=0.2, atol=1e-9)


def check_band(instance: Instance) -> None:
    W = _weights(instance)
    lower, upper = simultaneous_band(instance.problem, _given(instance), W, 0.9, 9999, rng=1)
    covariance = W.T @ instance.covariance @ W
    _require_band(instance, W, lower, upper, _multiple(np.random.default_rng(2).multivariate_normal(
        np.zeros(3), covariance, 20_000, method="eigh").T, covariance))  # fmt: skip


def _multiple(errors: np.ndarray, covariance: np.ndarray) -> float:
    deviations = np.sqrt(covariance.diagonal())
    seen = deviations > 1e-6 * deviations.max()
    return float(np.quantile((abs(errors[seen]) / deviations[seen, None]).max(axis=0), 0.9))


def _require_band(instance: Instance, W: np.ndarray, lower: np.ndarray, upper: np.ndarray, multiple: float) -> None:
    deviations = np.sqrt(np.maximum((W.T @ instance.covariance @ W).diagonal(), 0))
    np.testing.assert_allclose((lower + upper) / 2, W.T @ instance.estimate(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose((upper - lower) / 2, multiple * deviations, rtol=0.12, atol=1e-7)


def check_free_band(instance: Instance) -> None:
    W = _weights(instance)
    lower, upper = distribution_free_band(instance.problem, _given(instance), W, 0.9, draws=DRAWS, rng=1)
    errors = W.T @ instance.operator[0] @ noise_of(instance, 20_000)
    _require_band(instance, W, lower, upper, _multiple(errors, W.T @ instance.covariance @ W))


def check_free_ellipsoid(instance: Instance) -> None:
    region = distribution_free_ellipsoid(
        instance.problem, _given(instance), np.eye(len(instance.D)), 0.9, draws=DRAWS, rng=1
    )
    _require_shape(instance, region)
    errors = instance.operator[0] @ noise_of(instance, 20_000)
    depth = np.einsum("ij,ij->j", errors, np.linalg.pinv(instance.covariance, rcond=1e-9, hermitian=True) @ errors)
    np.testing.assert_allclose(region.squared_radius, np.quantile(depth, 0.9), rtol=0.12)


def check_columns(instance: Instance) -> None:
    P, expected = blue(instance.problem), instance.covariance
    size = len(expected)
    tolerance = 1e-8 * abs(expected).max()
    np.testing.assert_allclose(covariance_columns(P, np.arange(size)), expected, atol=tolerance)
    np.testing.assert_allclose(covariance_block(P, [0], [0, size - 1]), expected[:1][:, [0, size - 1]], atol=tolerance)
    np.testing.assert_allclose(P.covariance @ np.eye(size), expected, atol=tolerance)


def check_variances(method: str, instance: Instance) -> None:
    expected = instance.covariance.diagonal()
    found = variances(blue(instance.problem), method)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * expected.max())


def check_probes(instance: Instance) -> None:
    found, error = estimate_variances(blue(instance.problem), 200, rng=1)
    assert (abs(found - instance.covariance.diagonal()) <= 6 * error + 1e-9).all()


def check_replicates(instance: Instance) -> None:
    found = Replicates(blue(instance.problem), 1).accumulate(SecondMoments(), DRAWS).variances
    np.testing.assert_allclose(found, instance.covariance.diagonal(), rtol=0.2, atol=1e-9)


def check_noise(instance: Instance) -> None:
    """Moments of draws, and what is exact or was not measured."""
    noise = draw_noise(instance.problem, 20_000, rng=1)
    deviations = np.sqrt(instance.Sigma.diagonal())
    found = noise @ noise.T / noise.shape[1]
    assert (abs(found - instance.Sigma) <= 0.12 * np.outer(deviations, deviations) + 1e-12).all()
    truth = instance.M @ instance.counts
    noisy = add_noise(instance.problem, truth, rng=1)
    assert np.array_equal(np.isnan(noisy), np.isnan(instance.y))
    still = np.isfinite(instance.y) & (deviations == 0)
    assert np.array_equal(noisy[still], truth[still])


def _fitted(method: Callable, instance: Instance) -> Any:
    fit = method(instance.problem, instance.y)
    assert fit.gap <= 1e-8 * (1 + fit.objective)
    np.testing.assert_allclose(fit.observed, instance.M @ fit.detail.ravel(), atol=1e-8)
    np.testing.assert_allclose(fit.desired, instance.D @ fit.detail.ravel(), atol=1e-8)
    return fit


def check_fit(method: Callable, require: Callable, instance: Instance) -> None:
    require(instance, _fitted(method, instance).detail.ravel())


def check_ols(instance: Instance) -> None:
    fit = _fitted(ols, instance)
    optimality.require_ols(instance, fit.detail.ravel())
    _require_close(fit.desired, instance.estimate(), instance, 1e-4)


def check_refined(instance: Instance) -> None:
    """Cut off at 0 and at the least exact sum, of one sign, that holds all parts of a cell; differences are not cut."""
    size = len(instance.D)
    lower, upper = refine_intervals(instance.problem, instance.y, np.full(size, -5.0), np.full(size, np.inf))
    expected = []
    zero = _zero_cells(instance)
    falling = (instance.D < 0).any(axis=1)
    for row in instance.D[~falling]:
        parts = [j for j in np.flatnonzero(row) if j not in zero]
        bounds = [0.0] if not parts else []
        for known, value in zip(instance.known, instance.values, strict=True):
            for sign in (1, -1):
                others = np.delete(sign * known, sorted(zero))
                if parts and (others >= 0).all() and (sign * known[parts] > 0).all():
                    bounds.append(sign * value * (row[parts] / (sign * known[parts])).max())
        expected.append(min(bounds, default=np.inf))
    assert not lower[~falling].any()
    assert (lower[falling] == -5).all()
    if instance.problem.summing is None:  # equations of a summing matrix may be written in many ways
        np.testing.assert_allclose(upper[~falling], expected)
    assert (instance.D @ instance.counts <= upper + 1e-9).all()


def _zero_cells(instance: Instance) -> set[int]:
    single = [k for k, v in zip(instance.known, instance.values, strict=True) if np.count_nonzero(k) == 1 and v == 0]
    flags = instance.problem.zeros is not None
    return {int(np.flatnonzero(k)[0]) for k in single} if flags else set()


def check_coverage(instance: Instance) -> None:
    truth = instance.M @ instance.counts
    found = coverage(instance.problem, truth, nnls, RUNS, np.random.default_rng(1), 0.9)
    Y = truth[:, None] + draw_noise(instance.problem, RUNS, np.random.default_rng(1))
    G, g = instance.operator
    wanted = (instance.D @ instance.counts)[:, None]
    half = stats.norm.ppf(0.95) * instance.std_errors()[:, None]
    centre = G @ Y + g[:, None]
    # refined intervals hold the truth wherever the unrefined ones do, and where these lie below 0 and it is 0
    plain = (centre - half <= wanted + 1e-7) & (wanted <= centre + half + 1e-7)
    below = (centre + half < 0) & (wanted == 0)
    assert (found.refined >= (plain | below).mean(axis=1) - 1e-9).all()
    fitted = instance.D @ nnls(instance.problem, Y).detail.reshape(-1, RUNS)
    np.testing.assert_allclose(found.bias, (fitted - wanted).mean(axis=1), atol=1e-7)


def check_posterior(instance: Instance) -> None:
    """Every draw is whole, not negative, and meets all that is known; means are those of its draws, near the BLUE."""
    found = counts_posterior(instance.problem, instance.y, effective=5, most_draws=4000, rng=1)
    draws = np.zeros((found.draws.shape[0] * found.draws.shape[1], instance.M.shape[1]))
    zero = sorted(_zero_cells(instance)) if instance.problem.zeros is not None else []
    draws[:, np.setdiff1d(np.arange(draws.shape[1]), zero)] = found.draws.reshape(draws.shape[0], -1)
    assert draws.min() >= 0
    assert (draws[:, 0].min() < draws[:, 0].max()) or len(instance.known)
    np.testing.assert_allclose(draws @ instance.known.T, np.tile(instance.values, (len(draws), 1)), atol=1e-9)
    np.testing.assert_allclose(found.desired, instance.D @ draws.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(found.observed, instance.M @ draws.mean(axis=0), atol=1e-9)
    assert (abs(found.desired - instance.estimate()) <= 5 * instance.std_errors() + 1e-6).all()


def check_inverted(instance: Instance) -> None:
    """Intervals lie within the BLUE's of half the error and above 0, and hold the BLUE where it can be.

    Of the first cell or the last, as instances have an even or an odd number of measurements.
    """
    cells = [(len(instance.D) - 1) * (instance.y.size % 2)]
    found = inverted_intervals(instance.problem, instance.y, cells, 0.9, draws=2, rng=1)
    blue_, half = instance.estimate()[cells], stats.norm.ppf(0.975) * instance.std_errors()[cells]
    assert (found.lower <= found.upper + 1e-9).all()
    least = np.where((instance.D[cells] < 0).any(axis=1), -np.inf, 0.0)
    assert (found.lower >= least - 1e-9).all()
    fitted = (instance.D @ nnls(instance.problem, instance.y).detail.ravel())[cells]
    assert (found.lower >= np.minimum(np.maximum(blue_ - half, least), fitted) - 1e-6).all()
    assert (found.upper <= np.maximum(blue_ + half, fitted) + 1e-6).all()
    np.testing.assert_allclose(found.estimate, np.clip(blue_, found.lower, found.upper), atol=1e-6)


def _counts(instance: Instance) -> np.ndarray:
    if instance.problem.schema is None or instance.problem.places is not None:
        return instance.counts
    return instance.counts.reshape(instance.problem.schema.shape)


def check_rounding(instance: Instance) -> None:
    """Cells and exact sums go to a neighbouring whole number or stay, structural zeros stay empty."""
    detail = _counts(instance) + 0.0
    movable = np.flatnonzero(detail.ravel() > 0)
    detail.ravel()[movable] += np.random.default_rng(1).uniform(0, 1, movable.size)
    known, values = instance.known, instance.values
    rows = [r for r in range(len(known)) if np.count_nonzero(known[r]) > 1 or values[r]]
    for row in rows:  # exact sums are whole
        own = [j for j in np.flatnonzero(known[row]) if detail.ravel()[j] > 0]
        if own:
            detail.ravel()[own[-1]] += values[row] - known[row] @ detail.ravel()
    detail = np.maximum(detail, 0)
    found = controlled_rounding(instance.problem, detail, ["total"])
    assert (found >= np.floor(detail - 1e-9)).all()
    assert (found <= np.ceil(detail + 1e-9)).all()
    assert abs(found.sum() - detail.sum()) < 1
    np.testing.assert_allclose(instance.known @ found.ravel(), np.rint(instance.known @ detail.ravel()))


def check_records(write: Callable, instance: Instance) -> None:
    """Tabulating the records gives the cells back; a record in a structural zero is refused."""
    frame = write(instance.problem, _counts(instance))
    weights = frame["weight"].to_numpy() if "weight" in frame.columns else np.ones(len(frame))
    places = [frame[name].cast(int).to_numpy() for name in instance.problem.schema.names]
    found = np.zeros(instance.problem.schema.shape)
    np.add.at(found, tuple(places), weights)
    assert np.array_equal(found, _counts(instance))
    for cell in _zero_cells(instance):
        broken = _counts(instance).copy()
        broken.ravel()[cell] = 1
        try:
            write(instance.problem, broken)
        except ValueError as error:
            if "structural zero" not in str(error):
                raise
        else:
            raise AssertionError("a record in a structural zero was written")


def check_movements(instance: Instance) -> None:
    fit, before = _fitted(nnls, instance), instance.estimate()
    for moved, name in zip(movements(fit, before), instance.problem.desired.names, strict=True):
        place = instance.problem.desired.slice(name)
        assert np.isclose(moved.total, (instance.D @ fit.detail.ravel())[place].sum())
        assert np.isclose(moved.unbiased_total, before[place].sum())


def check_conflicts(instance: Instance) -> None:
    """A total promised too precisely conflicts with its cells, as many of them as may hold something."""
    names = instance.problem.observed.names
    coarse = next((n for n in names if n in ("total", ("US", "total"))), names[0])
    fine = names[-1]
    rows = instance.M[instance.problem.observed.slice(fine)]
    zero = _zero_cells(instance)
    sums = instance.M[instance.problem.observed.slice(coarse)]
    possible = [set(np.flatnonzero(row)) - zero for row in rows]
    points = max(sum(1 for p in possible if p and p <= set(np.flatnonzero(s))) for s in sums)
    (found,) = conflicts(instance.problem, {coarse: 1e-6, fine: 1.0}, PureDP(1.0))
    assert (found.sum_table, found.point_table, found.d) == (coarse, fine, points)
    assert np.isclose(found.least, least_sum_error(1.0, points, PureDP(1.0)))


def check_streaming(instance: Instance) -> None:
    with tempfile.TemporaryDirectory() as folder:
        at = "State" if instance.problem.areas is None else "Region"
        _require_files(instance, streamed(Path(folder), instance.problem, instance.y, at=at))


def _require_files(instance: Instance, out: Path) -> None:
    _require_close(read_estimates(out, instance.problem), instance.estimate(), instance)
    np.testing.assert_allclose(read_estimates(out, instance.problem, "std_error"), instance.std_errors(), atol=1e-7)


def check_cluster(client: Any, instance: Instance) -> None:
    from blue_solvers.streaming.cluster import estimate

    with tempfile.TemporaryDirectory() as folder:
        at = "State" if instance.problem.areas is None else "Region"
        partition(Path(folder) / "in", instance.problem, instance.y, at=at)
        estimate(client, Path(folder) / "in", Path(folder) / "out")
        _require_files(instance, Path(folder) / "out")


def check_entities(instance: Instance) -> None:
    """Exact variances of a table in entities: leaves by themselves and all of them."""
    problem = instance.problem
    if problem.spine is None:
        entity_workload(problem, None, "total")  # type: ignore[arg-type]
        raise AssertionError("entities without a spine")
    leaves = int((problem.spine.child_counts == 0).sum())
    entities = Entities.from_labels(
        {"each": [f"leaf {i}" for i in range(leaves)], "all": ["all"] * leaves}, outside=False
    )
    W = entity_workload(problem, entities, "total")
    found = workload_variances(blue(problem), W)
    expected = np.einsum("ij,ik,jk->k", instance.covariance, W.toarray(), W.toarray())
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    cells = len(instance.counts) // leaves
    sums = [np.arange(len(instance.counts)) // cells == leaf for leaf in range(leaves)] + [
        np.ones(len(instance.counts))
    ]
    np.testing.assert_allclose(W.T @ instance.D, np.array(sums, dtype=float))


FITS: dict[str, tuple[Callable, Callable]] = {
    "nnls": (nnls, optimality.require_nnls),
    "max_fit": (METHODS["max"], optimality.require_max),
    "sequential_fit": (METHODS["sequential"], optimality.require_sequential),
    "reweighted_fit": (METHODS["reweighted"], optimality.require_reweighted),
    "anchored_fit": (METHODS["anchored"], optimality.require_anchored),
}


def part_of(solver: str) -> str:
    """What the estimate by a solver is called."""
    return f'blue(solver="{solver}")'


PARTS: dict[str, Check] = {
    **{part_of(name): partial(check_estimate, name) for name in SOLVERS},
    'intervals(method="z")': check_z,
    'intervals(method="t")': partial(check_simulated, "t"),
    'intervals(method="distribution_free")': partial(check_simulated, "distribution_free"),
    "functionals": check_functionals,
    "confidence_ellipsoid": check_ellipsoid,
    "confidence_ellipsoid(draws=...)": check_ellipsoid_of_draws,
    "simultaneous_band": check_band,
    "distribution_free_band": check_free_band,
    "distribution_free_ellipsoid": check_free_ellipsoid,
    "covariance_columns, covariance_block, P.covariance": check_columns,
    'variances(method="closed_form")': partial(check_variances, "closed_form"),
    'variances(method="selected_inversion")': partial(check_variances, "selected_inversion"),
    'variances(method="applies")': partial(check_variances, "applies"),
    "estimate_variances": check_probes,
    "Replicates": check_replicates,
    "add_noise, draw_noise": check_noise,
    "ols": check_ols,
    **{name: partial(check_fit, *pair) for name, pair in FITS.items()},
    "refine_intervals": check_refined,
    "coverage": check_coverage,
    "counts_posterior": check_posterior,
    "inverted_intervals": check_inverted,
    "controlled_rounding": check_rounding,
    "weighted_rows": partial(check_records, weighted_rows),
    "unit_records": partial(check_records, unit_records),
    "movements": check_movements,
    "conflicts": check_conflicts,
    "streaming": check_streaming,
    "cluster": partial(check_cluster, None),  # with a client: see `with_client`
    "spine reports": check_entities,
}


def with_client(client: Any) -> Check:
    """The check of the cluster."""
    return partial(check_cluster, client)
