"""Measurements of marginals as private-pgm and OpenDP have them, against dense least squares."""

from dataclasses import dataclass, replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from blue_solvers.adapters import (
    ExactMarginals,
    measurements_of,
    noise_of,
    problem_from_measurements,
    problem_from_releases,
)
from blue_solvers.adapters.released_marginals import MeasuredMarginal
from blue_solvers.operator import estimate
from constraint_builders import Problem, Schema, Spine, gallery
from noise_mechanisms.laws import DiscreteGaussian, Rounding
from tests.helpers.dense_algebra import best
from tests.helpers.every import cases, every
from tests.helpers.refused import refuses

SIZES = {"sex": 2, "age": 3, "race": 2}


class Factor:
    """private-pgm's, of which the query of a whole marginal is a method."""

    def datavector(self) -> None:
        raise AssertionError("nobody calls it")


@dataclass(frozen=True)
class SelectPrefixQuery:
    """OpenDP's: the first cells alone."""

    length: int


@dataclass(frozen=True)
class DatavectorQuery:
    """private-pgm's from 2.0: the whole marginal."""

    use_for_total_estimation: bool = True


@dataclass
class LinearMeasurement:
    noisy_measurement: Any
    clique: tuple[str, ...]
    stddev: float
    query: Any = Factor.datavector


def summed(clique: tuple[str, ...]) -> np.ndarray:
    """The matrix that sums cells to a marginal whose axes are in the order of the clique."""
    cells = np.eye(12).reshape(2, 3, 2, 12)
    out = tuple(i for i, name in enumerate(SIZES) if name not in clique)
    kept = [name for name in SIZES if name in clique]
    return cells.sum(axis=out).transpose([kept.index(name) for name in clique] + [len(clique)]).reshape(-1, 12)


def measurements(seed: int = 1) -> list[LinearMeasurement]:
    rng = np.random.default_rng(seed)
    cliques = [(), ("age", "sex"), ("sex",), ("sex", "race", "age"), ("sex",)]
    return [
        LinearMeasurement(rng.normal(20, 4, len(summed(clique))), clique, deviation)
        for clique, deviation in zip(cliques, (1.0, 2.0, 3.0, 4.0, 1.5), strict=True)
    ]


@every("query", [None, DatavectorQuery(), DatavectorQuery(use_for_total_estimation=False)])
def test_the_whole_marginal_in_the_words_of_any_version(query: Any) -> None:
    plain, y = problem_from_measurements(measurements(), SIZES)
    own = [replace(one, query=query) for one in measurements()]
    problem, values = problem_from_measurements(own, SIZES)
    assert problem == plain
    assert (values == y).all()


def cells_of(own: list[LinearMeasurement]) -> tuple[np.ndarray, np.ndarray]:
    """The estimate of the cells, and its covariance."""
    M = np.concatenate([summed(one.clique)[: np.size(one.noisy_measurement)] for one in own])
    y = np.concatenate([np.ravel(one.noisy_measurement) for one in own])
    return best(M, np.repeat([one.stddev**2 for one in own], [np.size(one.noisy_measurement) for one in own]), y)


@every("clique", [(), ("race",), ("race", "age"), ("sex", "age", "race")])
@every("prefix", [False, True])
def test_any_marginal_and_its_exact_errors(clique: tuple[str, ...], prefix: bool) -> None:
    own = measurements()
    if prefix:
        own[1] = LinearMeasurement(own[1].noisy_measurement[:4], ("age", "sex"), 2.0, SelectPrefixQuery(4))
    cells, covariance = cells_of(own)
    table = ExactMarginals(*problem_from_measurements(own, SIZES))
    W = summed(clique)
    shape = tuple(SIZES[name] for name in clique)
    errors = np.sqrt(np.diag(W @ covariance @ W.T)).reshape(shape)
    np.testing.assert_allclose(table.project(clique), (W @ cells).reshape(shape), rtol=1e-9)
    np.testing.assert_allclose(table.std(clique), errors, rtol=1e-9)
    lower, upper = table.interval(clique, 0.9)
    np.testing.assert_allclose(upper - lower, 2 * norm.ppf(0.95) * errors, rtol=1e-9)


@every("known", ["zeros", "equalities", "covariance"])
def test_marginals_rest_on_all_that_the_problem_knows(known: str) -> None:
    """The same estimates and errors as with the marginal among the desired tables."""
    schema, observed = Schema(SIZES), {"sex": 1.0, "age": 2.0, "detailed": 3.0}
    empty = np.arange(12).reshape(2, 3, 2) == 1
    own = {"zeros": {"detailed": empty}, "equalities": (np.eye(17)[:1], [7.0]), "covariance": np.eye(17) + 0.5}[known]
    variances = dict.fromkeys(observed) if known == "covariance" else observed
    problem = Problem(schema, variances, ["race", "age"], **{known: own})
    y = np.random.default_rng(2).normal(20, 4, 17)
    best, table = estimate(problem, y), ExactMarginals(problem, y)
    for name, errors in problem.desired.tables(best.std_errors).items():
        np.testing.assert_allclose(table.project(name), best.tables[name], rtol=1e-9)
        np.testing.assert_allclose(table.std(name), errors, rtol=1e-9)


def test_a_contingency_table_of_opendp() -> None:
    """Its keys and measurements, and the standard deviation that it would say: never less than the exact one."""
    own = measurements()
    keys = {"sex": pl.Series(["f", "m"]), "age": pl.Series(["a", "b", "c"]), "race": pl.Series(["x", None])}
    table = ExactMarginals.from_contingency_table(
        SimpleNamespace(keys=keys, marginals=SimpleNamespace(flatten=lambda: own))
    )
    assert table.keys == {"sex": ["f", "m"], "age": ["a", "b", "c"], "race": ["x", None]}
    for clique in [("sex",), ("age",), ("age", "sex")]:
        cells = np.prod([SIZES[name] for name in clique])
        precision = sum(
            cells / np.prod([SIZES[name] for name in one.clique]) / one.stddev**2
            for one in own
            if set(clique) <= set(one.clique)
        )
        assert (table.std(clique) < precision**-0.5).all()


def test_a_domain_of_private_pgm_and_back() -> None:
    own = measurements()[:4]
    problem, y = problem_from_measurements(own, SimpleNamespace(config=SIZES))
    again = measurements_of(problem, y, make=LinearMeasurement)
    assert [one.clique for one in again] == [one.clique for one in own]
    for one, other in zip(again, own, strict=True):
        np.testing.assert_allclose(one.noisy_measurement, other.noisy_measurement)
        assert one.stddev == pytest.approx(other.stddev)
    assert isinstance(measurements_of(problem, y)[0], MeasuredMarginal)


def test_measurements_of_rounded_figures_have_noise_of_mean_0() -> None:
    problem = Problem(Schema(SIZES), {"age": Rounding(10), "sex * age": Rounding(10)})
    y = problem.vector({"age": [20, 60, 30], "sex * age": [[10, 40, 20], [10, 30, 0]]})
    again = estimate(*problem_from_measurements(measurements_of(problem, y), SIZES))
    np.testing.assert_allclose(again.values, estimate(problem, y).values)


@cases(
    ({"clique": ("sox",)}, "measurement 1: 'sox' is no variable, there are sex, age, race"),
    ({"noisy_measurement": np.ones(5)}, r"measurement 1 of \('sex',\) must have 2 values: got 5"),
    ({"stddev": -1.0}, "stddev must be finite, 0 or more"),
    ({"stddev": 1e-200}, "no float holds the square of stddev 1e-200 well"),
    ({"stddev": 1e200}, "no float holds the square of stddev 1e\\+200 well"),
    ({"stddev": "2"}, r"stddev of measurement 1 of \('sex',\) is '2': give a number, not text"),
    ({"clique": ("sex", "age"), "noisy_measurement": np.ones((3, 2))}, r"must have shape \(2, 3\), or be flat"),
    ({"query": lambda factor: factor}, "of another query than the marginal itself"),
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    own = LinearMeasurement(**{"noisy_measurement": np.ones(2), "clique": ("sex",), "stddev": 1.0, **change})
    refuses(message, problem_from_measurements, [own], SIZES)


def test_what_private_pgm_does_not_know_is_refused() -> None:
    schema = Schema({"age": 3}, {"age": {"adult": [0, 1, 1]}})
    refuses("has 3 variances", measurements_of, Problem(schema, {"age": [1.0, 2, 3]}), np.ones(3))
    refuses("private-pgm has no recodes, 'adult' is one", measurements_of, Problem(schema, {"adult": 1.0}), np.ones(2))
    refuses("this problem is another", measurements_of, Problem.from_matrix([[1.0, -1]], [1.0, 1]), np.ones(2))
    refuses("is NaN: give a finite number", measurements_of, Problem(schema, {"age": 1.0}), np.full(3, np.nan))
    with pytest.raises(ValueError, match="cannot say zeros="):
        measurements_of(Problem(schema, {"age": 1.0}, zeros={"age": [True, False, False]}), np.ones(3))
    with pytest.raises(ValueError, match="cannot say equalities="):
        measurements_of(Problem(schema, {"age": 1.0}, equalities=([[1, 1, 0]], [2])), np.ones(3))
    spine = Spine.from_geocodes({"State": ["1"], "County": ["11", "12"]})
    refuses("tables of one place", ExactMarginals, Problem(schema, {"County": {"age": 1.0}}, spine=spine), np.ones(6))
    table = ExactMarginals(*problem_from_measurements(measurements(), SIZES))
    refuses("'sox' is no variable", table.std, "sox")


SUMMARY = {"column": ["len"], "aggregate": ["Frame Length"], "distribution": ["Integer Gaussian"], "scale": [0.5]}


def releases() -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    whole = pl.DataFrame({"len": [31]}), pl.DataFrame(SUMMARY).with_columns(scale=2.0)
    sexes = pl.DataFrame({"sex": ["m", "f"], "len": [20, 12]}), pl.DataFrame(SUMMARY)
    again = pl.DataFrame({"len": [13, 18], "sex": ["f", "m"]}), pl.DataFrame(SUMMARY)
    return [whole, sexes, again]


def test_releases_of_opendp() -> None:
    problem, y = problem_from_releases(releases())
    assert set(problem.observed.names) == {"total", "sex"}
    assert problem.noise == "discrete_gaussian"
    np.testing.assert_allclose(problem.observed.tables(y)["sex"], [12.5, 19])  # f, m: means of the two
    variance = DiscreteGaussian(0.25).variance / 2
    np.testing.assert_allclose(problem.observed.tables(problem.variances)["sex"], variance)
    assert variance < 0.25 / 2 * 0.9  # no squared scale


def test_wrong_releases_are_named() -> None:
    counts, summary = releases()[1]
    with pytest.raises(ValueError, match=r"release 1: counts in 'len' were cut at zero.*signed=True"):
        problem_from_releases([(counts.with_columns(pl.col("len").cast(pl.UInt32)), summary)])
    with pytest.raises(ValueError, match="no law 'Exponential' is known"):
        problem_from_releases([(counts, summary.with_columns(distribution=pl.lit("Exponential")))])
    refuses("holds 2 statistics", problem_from_releases, [(counts, pl.concat([summary, summary]))])
    refuses("no column 'len'", problem_from_releases, [(counts.rename({"len": "n"}), summary)])
    for name in ("value", "variance", "source"):
        refuses(f"release 1 groups by '{name}'", problem_from_releases, [(counts.rename({"sex": name}), summary)])
    laplace = summary.with_columns(distribution=pl.lit("Integer Laplace"))
    with pytest.raises(ValueError, match="releases have the laws discrete_gaussian, discrete_laplace"):
        problem_from_releases([(counts, summary), (counts, laplace)])
    assert problem_from_releases([(counts, summary), (counts, laplace)], noise="gaussian")[0].noise == "gaussian"
    for group in (None, "*"):
        unnamed = counts.with_columns(pl.col("sex").replace("m", group))
        with pytest.raises(ValueError, match=r"release 1: column 'sex' holds nulls or '\*'"):
            problem_from_releases([(unnamed, summary), (pl.DataFrame({"len": [31]}), summary)])
    with pytest.raises(ValueError, match="release 1: column 'len' holds nulls"):
        problem_from_releases([(counts.with_columns(len=pl.Series([20, None])), summary)])
    everybody = counts.with_columns(pl.col("sex").replace("m", "total"))
    assert problem_from_releases([(everybody, summary)])[0].observed.names == ("sex",)
    refuses("there are no releases", problem_from_releases, [])


@pytest.mark.parametrize(
    ("kind", "law", "variance"),
    [("gaussian int", "discrete_gaussian", 9.0), ("laplace float", "laplace", 18.0), ("laplace int", None, None)],
)
def test_the_noise_of_a_measurement(kind: str, law: str | None, variance: float | None) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    name, number = kind.split()
    atoms = dp.atom_domain(T=int) if number == "int" else dp.atom_domain(T=float, nan=False)
    if name == "gaussian":
        own = dp.m.make_gaussian(dp.vector_domain(atoms), dp.l2_distance(T=float), scale=3.0)
    else:
        metric = dp.l1_distance(T=int if number == "int" else float)
        own = dp.m.make_laplace(dp.vector_domain(atoms), metric, scale=3.0)
    found, size = noise_of(own)
    if law is None:
        decay = np.exp(-1 / 3)
        law, variance = "discrete_laplace", 2 * decay / (1 - decay) ** 2
    assert found == law
    assert size == pytest.approx(variance, rel=1e-6)
    drawn = np.array(own([0] * 4000 if number == "int" else [0.0] * 4000), dtype=float)
    assert drawn.var() == pytest.approx(size, rel=0.2)


def test_opendp_is_too_wide_on_redistricting_tables_by_half() -> None:
    """Its ``ContingencyTable.std`` adds precisions of marginals that cover the question, each summed down by itself."""
    given = gallery.pl94()
    variances = {name: float(np.ravel(own)[0]) for name, own in given.observed.tables(given.variances).items()}
    del variances["hhinstlevels"]  # a recode, which OpenDP has none of
    sizes = dict(zip(given.schema.names, (8, 2, 2, 63), strict=True))
    problem = Problem(Schema(sizes), variances)
    table = ExactMarginals(problem, np.zeros(problem.observed.size))
    ratios = {}
    for ways in range(5):
        for asked in combinations(sizes, ways):
            precision = 0.0
            for name, variance in variances.items():
                clique = {"total": (), "detailed": tuple(sizes)}.get(name, tuple(name.split(" * ")))
                if set(asked) <= set(clique):
                    precision += np.prod([sizes[own] for own in asked]) / np.prod([sizes[o] for o in clique]) / variance
            ratios[asked] = (1 / np.sqrt(precision)) / table.std(asked).max()
    assert min(ratios.values()) > 1 - 1e-12
    assert max(ratios, key=ratios.__getitem__) == ("votingage", "hispanic")
    assert max(ratios.values()) == pytest.approx(1.5025, abs=1e-4)
