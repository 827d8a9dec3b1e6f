"""Places where one sign or operator decides: each of these tests fails when it is changed."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema
from constraint_builders.description.table import parse_table
from constraint_builders.relations import constraints as module
from constraint_builders.relations.constraints import SelfConsistency, next_above
from noise_mechanisms.theta import theta_excess, theta_variance


@pytest.mark.parametrize("exact", ["total", "a", "b"])
def test_tables_exact_and_tables_not_measured_are_no_noisy_ones(exact: str) -> None:
    """ArrayForm: noisy tables are those of finite and positive variance."""
    observed = {"total": 1.0, "a": 2.0, "b": 3.0, "a * b": 4.0} | {exact: 0.0}
    with np.errstate(all="raise"):
        P = blue(Problem(Schema({"a": 2, "b": 3}), observed), "sea_blue")
        y = np.random.default_rng(0).normal(9, 2, 12)
        x = P @ y
    problem = P.problem
    np.testing.assert_allclose(x[problem.observed.slice(exact)], y[problem.observed.slice(exact)], atol=1e-12)
    unmeasured = Problem(Schema({"a": 2, "b": 3}), observed | {"total": np.inf, "b": 2.0})
    with np.errstate(all="raise"):
        found = blue(unmeasured, "sea_blue") @ y
    np.testing.assert_allclose(found, blue(unmeasured, "dense") @ y, atol=1e-9)


def neighbours(names: list[str]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Pairs that `next_above` finds, and those that sets of factors say."""
    schema = Schema(dict.fromkeys("abcdef", 2))
    tables = [(10 * i, parse_table(schema, name)) for i, name in enumerate(names)]
    found = {(names[fine // 10], names[coarse // 10]) for fine, coarse in next_above(schema, tables)}
    sets = {name: frozenset() if name == "total" else frozenset(name.split(" * ")) for name in names}
    below = {(f, c) for f in names for c in names if sets[c] < sets[f]}
    return found, {(f, c) for f, c in below if not any((f, o) in below and (o, c) in below for o in names)}


@pytest.mark.parametrize(
    "names",
    [
        ["total", "a", "b", "a * b"],
        ["a * b * c * d * e * f", "a * b * c", "a", "total"],  # few tables of many factors: all are looked through
        ["total", *"abcdef", *(" * ".join(pair) for pair in combinations("abcdef", 2)), "a * b * c * d * e * f"],
    ],
)
def test_nearest_coarser_tables(names: list[str]) -> None:
    found, expected = neighbours(names)
    assert found == expected
    assert expected


def test_a_constraint_matrix_is_refused_for_all_that_building_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": 3, "b": 5})
    tables = [parse_table(schema, name) for name in ("total", "a", "a * b")]
    asked: list[float] = []
    monkeypatch.setattr(module, "require_memory", lambda needed, *_: asked.append(needed))
    structure = SelfConsistency(schema, tables, [1.0, 1.0, 1.0])
    independent = structure.matrix("independent")
    assert structure.matrix("all").shape[0] == independent.shape[0] + 1 + 3  # two pairs of nearest tables
    pair = SelfConsistency(schema, tables[:2], [1.0, 1.0])
    assert pair.matrix("all").shape[0] == pair.matrix("independent").shape[0] + 1  # and one
    del asked[2:]
    entries = structure._functionals.entries
    assert asked[0] == 4 * entries * module.INT8_CELL_BYTES + 2 * entries * module.FLOAT_CELL_BYTES
    assert asked[1] - asked[0] == 2 * module.FLOAT_CELL_BYTES * ((3 + 1) + (15 + 3))


@pytest.mark.parametrize("sigma2", [0.3, 0.7, 0.95, 1.0])
def test_theta_sums_have_all_their_terms(sigma2: float) -> None:
    """Against the sums themselves, in whole multiples of 2^-1000 of exp(-k^2 / 2 sigma2)."""
    q = np.exp(-0.5 / sigma2)
    weights = {k: Fraction(float(q)) ** (k * k) for k in range(1, 13)}
    total = 1 + 2 * sum(weights.values())
    variance = 2 * sum(k * k * w for k, w in weights.items()) / total
    assert theta_variance(np.array([sigma2]))[0] == pytest.approx(float(variance), rel=3e-15)
    assert theta_excess(np.array([sigma2]))[0] == pytest.approx(float(total - 1), rel=3e-15)
