"""What is known exactly is never proved to be something else: by equalities, zeros or totals, of few cells or many."""

import re
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import blue_solvers.operator
from blue_solvers import SOLVERS, blue, certify, estimate
from blue_solvers.verification import certificate
from constraint_builders import Areas, Problem, Schema, Spine
from noise_mechanisms import add_noise
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.refused import refuses

FEW, MANY = 6, 2_100  # levels: whose counts are listed, and whose are not
FIXING = [([1.0, 0.0], [0.0, 1.0]), ([1.0, 1.0], [1.0, -1.0]), ([3.0, 0.5], [0.25, -7.0])]


def halves(levels: int) -> Schema:
    return Schema({"a": levels}, recodes={"a": {"half": [0] * (levels // 2) + [1] * (levels - levels // 2)}})


@every("levels", [FEW, MANY])
@every("rows", FIXING)
def test_figures_that_equalities_fix_together(levels: int, rows: tuple) -> None:
    """Both halves are known, so their total is: a desired figure that no equality names."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(20, levels).astype(float)
    own = np.array([counts[: levels // 2].sum(), counts[levels // 2 :].sum()])
    E = np.concatenate([np.array(rows), np.zeros((2, levels))], axis=1)
    equalities = (E, np.array(rows) @ own)
    problem = Problem(halves(levels), {"half": 1.0, "a": 2.0}, ["total", "half", "a"], equalities=equalities)
    y = np.concatenate([own, counts]) + rng.standard_normal(levels + 2)
    est = estimate(problem, y)
    assert est.info.exact, est.proof
    np.testing.assert_array_equal(est.variances[:3], 0)
    free = est.std_errors[3]
    for cell, size in ((0, 1e-2), (0, 1e-6), (1, 1e-2), (2, 1e-4), (3, 1e-2), (3, 1.0)):
        wrong = est.values.copy()
        wrong[cell] += size * max(1.0, own.sum() / 100)
        bound = certify(problem, y, est.observed, wrong).bound
        assert bound is None or (cell == 3 and bound >= size / free)


def places_of(kind: str, levels: int) -> tuple[Any, dict[str, Any]]:
    """How tables are named, and the places; the detailed table is known exactly and one of its cells empty."""
    empty = np.arange(levels) == 1
    if kind == "one place":
        return {"a": 0.0, "total": 1.0}, {"zeros": {"a": empty}}
    leaves = np.tile(empty, (2, 1)) & [[True], [False]]
    if kind == "a spine":
        spine = Spine([-1, 0, 0], ["State", "Block", "Block"])
        return {"State": {"total": 1.0}, "Block": {"a": 0.0}}, {"spine": spine, "zeros": {("Block", "a"): leaves}}
    areas = Areas(2, {"State": [[2.0, 1.0]]})
    return {"State": {"total": 1.0}, "Leaf": {"a": 0.0}}, {"areas": areas, "zeros": {("Leaf", "a"): leaves}}


@pytest.mark.few(1)
@pytest.mark.parametrize("levels", [FEW, MANY])
@pytest.mark.parametrize("kind", ["one place", "a spine", "areas"])
def test_a_cell_that_holds_something_and_is_known_to_be_empty(kind: str, levels: int) -> None:
    """Refused as tables and as a vector; no answer is proved, neither with the count nor without it."""
    observed, options = places_of(kind, levels)
    problem = Problem(halves(levels), observed, **options)
    counts = np.arange(1.0, 1 + problem.domain.size)
    M = problem.marginal_matrix()
    said, cell = M @ counts, 1
    refuses("contradict", problem.vector, problem.observed.tables(said))
    emptied = M @ np.where(np.arange(counts.size) == cell, 0.0, counts)
    for x in (said, emptied):
        assert certify(problem, said, x).bound is None
        assert certify(problem, emptied, said).bound is None
    assert certify(problem, emptied, emptied).bound <= 1e-8
    P = blue(problem)
    for certified in (True, False):
        refuses("known exactly contradict one another", P.estimate, said, certify=certified)
    assert np.isfinite(P @ said).all()  # linear in any vector


def test_one_exact_value_can_contradict_what_else_is_known() -> None:
    schema = Schema({"a": 3})
    empty = Problem(schema, {"a": 1.0, "total": 0.0}, zeros={"total": np.array(True)})
    tied = Problem(schema, {"a": 1.0, "total": 0.0}, equalities=([[0, 0, 0, 1]], [5.0]))
    for problem, right in ((empty, 0.0), (tied, 5.0)):
        assert problem.vector({"a": [1.0, 2, 3], "total": right})[3] == right
        refuses("'total'", problem.vector, {"a": [1.0, 2, 3], "total": 6.0})


@every("table", ["b * g", "g * b", "a", "b", "total"])
def test_equalities_that_fill_empty_cells_are_refused(table: str) -> None:
    """For every cell of a table: refused where all that it holds is empty, taken elsewhere."""
    schema = Schema({"a": 3, "b": 2}, recodes={"a": {"g": [1, 0, 1]}})
    empty = np.array([[True, False], [True, True], [True, False]])
    group, refused = np.array([1, 0, 1]), 0
    cells = {
        "b * g": [[empty[group == g, b].all() for g in (0, 1)] for b in (0, 1)],
        "g * b": [[empty[group == g, b].all() for b in (0, 1)] for g in (0, 1)],
        "a": empty.all(axis=1),
        "b": empty.all(axis=0),
        "total": empty.all(),
    }[table]
    for cell, is_empty in enumerate(np.ravel(cells)):
        row = np.zeros((1, np.size(cells)))
        row[0, cell] = 2.0
        made = {"zeros": {"a * b": empty}, "desired": [table]}
        assert Problem(schema, {table: 1.0}, equalities=(row, [0.0]), **made) is not None
        if is_empty:
            with pytest.raises(ValueError, match=rf"equality 0 .*{re.escape(repr(table))}"):
                Problem(schema, {table: 1.0}, equalities=(row, [3.0]), **made)
            refused += 1
        else:
            Problem(schema, {table: 1.0}, equalities=(row, [3.0]), **made)
    assert refused == np.count_nonzero(cells)


def test_cells_that_an_equality_weighs_by_zero_are_none_of_it() -> None:
    rows, variances = sparse.csr_array([[1.0, 5.0, 0.0, -2.0], [0.0, 7.0, 0.0, 0.0]]), [1.0, np.inf, 2.0]
    stored = rows.copy()
    stored.data[stored.data > 2] = 0.0
    rows[:, 1] = 0.0
    plain, kept = (
        Problem(Schema({"a": 3}), {"total": 1.0, "a": variances}, equalities=(E, [3.0, 0.0])) for E in (rows, stored)
    )
    assert plain == kept
    for solver in ("auto", "dense", "cholesky", "cg"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            one, other = (estimate(problem, [5.0, 1.0, 9.0, 2.0], solver) for problem in (plain, kept))
        np.testing.assert_array_equal(one.values, other.values)


@lengths("answers", 20, 60)
def test_rounding_of_what_is_known_exactly_counts_in_heavy_weights(answers: int) -> None:
    """Units in the last place of an exact total of millions were 2e-13 standard errors of a small count, unnoticed."""
    weights, variances = np.array([37074.0, 48649.0, 69787.0]), np.array([4e3, 6e-4, 3e-4])
    areas = Areas(3, {"R": [weights]})
    problem = Problem(Schema({"a": 1}), {"R": {"a": 0.0}, "Leaf": {"a": variances[:, None]}}, areas=areas)
    rng, tightest = np.random.default_rng(0), np.inf
    for _ in range(answers):
        leaves = rng.poisson(20, 3).astype(float)
        y = np.append(weights @ leaves, leaves + np.sqrt(variances) * rng.standard_normal(3))
        w, v, z = ([Fraction(float(own)) for own in row] for row in (weights, variances, y[1:]))
        missing = Fraction(y[0]) - sum(a * b for a, b in zip(w, z, strict=True))
        step = missing / sum(a * a * b for a, b in zip(w, v, strict=True))
        best = [own + b * a * step for own, a, b in zip(z, w, v, strict=True)]
        x = np.array([float(own) for own in best]) + rng.integers(-3, 4, 3) * [3.6e-15, 0, 0]
        errors = np.sqrt(variances - (variances * weights) ** 2 / (weights**2 @ variances))
        off = np.array([float(abs(Fraction(float(own)) - true)) for own, true in zip(x, best, strict=True)])
        bound = certify(problem, y, [y[0], *x]).bound
        assert bound >= (off / errors).max()
        tightest = min(tightest, bound / (off / errors).max())
    assert tightest < 100


def test_weights_that_rounding_would_decide_are_refused() -> None:
    schema, taken = Schema({"a": 2}), 0
    for small in 10.0 ** -np.arange(1, 16):
        equalities = ([[1.0, small]], [2.0])
        if small < 1e-8:
            refuses("equality 0 weighs cells by", Problem, schema, {"a": 1.0}, equalities=equalities)
            continue
        problem = Problem(schema, {"a": 1.0}, equalities=equalities)
        for solver in ("auto", "areas", "two_pass", "dense", "cholesky"):
            if small < 1e-7 and "too unequal" in (SOLVERS[solver]().supports(problem) or ""):
                continue
            est = estimate(problem, [1.0, 2.0], solver)
            taken += 1
            np.testing.assert_allclose(est.std_errors[0], small / np.sqrt(1 + small**2), rtol=1e-7)
    assert taken >= 38


def test_wanted_nodes_that_were_not_measured_are_judged() -> None:
    """What was disproved is not proved by leaving the node out."""
    S = np.array([[1.0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    variances, y = [1.0, 1, 1, np.inf], np.array([6.0, 1, 2, 0])
    problems = Problem.from_summing_matrix(S, variances), Problem.from_matrix([[1.0, -1, -1, -1]], variances)
    for P in map(blue, problems):
        est = P.estimate(y)
        assert est.info.exact
        for size in (1e-3, 1.0):
            wrong = est.values + np.array([0, 0, 0, size])
            bound = P.certificate(y, wrong).bound
            assert bound is None or bound >= size / est.std_errors[3] * (1 - 1e-6)


@every("counties", [20, 750])
@every(("state", "variance"), [("total", 4.0), ("total", 0.0), ("sex", 4.0), (None, np.inf)])
def test_exact_totals_of_all_parts_explain_what_the_whole_was_measured_to_be(
    counties: int, state: str | None, variance: float
) -> None:
    spine = Spine([-1] + [0] * counties, ["State"] + ["County"] * counties)
    observed: dict[str, Any] = {"County": {"total": 0.0, "sex": 9.0}}
    if state is not None:
        observed["State"] = {state: variance}
    problem = Problem(Schema({"sex": 2}), observed, spine=spine)
    truth = problem.marginal_matrix() @ np.random.default_rng(1).poisson(50, 2 * counties)
    y = add_noise(problem, truth, rng=2)
    est = estimate(problem, y)
    assert est.info.exact, est.proof
    wrong = est.values.copy()
    wrong[problem.desired.slice(("County", "total"))][0] += 1e-3
    assert certify(problem, y, wrong).bound is None


def test_a_proof_stops_after_ten_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so; whoever wants more calls `certify`."""
    rng = np.random.default_rng(0)
    schema = Schema({"a": 4, "b": 3, "c": 2})
    areas = Areas(6, {"One": [0, 0, 1, 1, 2, 2], "Other": [0, 1, 1, 2, 2, 0]})
    observed = {"One": {"a * b": 2.0, "total": 0.0}, "Other": {"b * c": 3.0}, "Leaf": {"a * c": 4.0, "b * c": 1.0}}
    for problem in (
        Problem(schema, observed, areas=areas),
        Problem(schema, {"a * b": 1.0, "b * c": rng.uniform(1, 2, (3, 2)), "total": 0.0}),
        Problem(schema, {"a * b": 1.0, "detailed": 2.0}),
    ):
        y = add_noise(problem, problem.marginal_matrix() @ rng.poisson(9, problem.domain.size), rng=rng)
        est = estimate(problem, y)
        assert est.info.exact, est.proof
        with monkeypatch.context() as patch:
            patch.setattr(blue_solvers.operator, "ESTIMATES_A_PROOF", 0.0)
            patch.setattr(blue_solvers.operator, "PROOF_SECONDS", 0.0)
            stopped = estimate(problem, y)
        assert not stopped.info.exact
        assert "stopped" in str(stopped.certificate())
        assert certify(problem, y, est.observed).bound <= 1e-8


@every("equal", [False, True])
def test_tables_of_a_tree_that_are_known_exactly_and_do_not_nest(monkeypatch: pytest.MonkeyPatch, equal: bool) -> None:
    """Sexes of the state and totals of its counties, perhaps with an equality: each figure has its standard error."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    monkeypatch.setattr(certificate, "can_be_listed", lambda problem, made: False)
    spine = Spine([-1, *[0] * 4, *np.repeat(np.arange(1, 5), 5)], ["State", *["County"] * 4, *["Block"] * 20])
    observed = {"State": {"sex": 0.0}, "County": {"total": 0.0, "age": 2.0}, "Block": {"sex * age": 3.0, "age": 1.0}}
    problem = Problem(Schema({"sex": 2, "age": 3}), observed, spine=spine).observing()
    M, rng = problem.marginal_matrix(), np.random.default_rng(4)
    truth = M @ rng.poisson(9, M.shape[1])
    if equal:
        E = np.zeros((1, truth.size))
        E[0, -2:] = 1, -1
        problem = problem.replace(equalities=(E, E @ truth))
    y = add_noise(problem, truth, rng=rng)
    P = blue(problem)
    x, errors = P.estimate(y, certify=False).values, np.sqrt(P.variances())
    assert certify(problem, y, x).bound < 1e-10
    for cell in rng.choice(np.flatnonzero(errors > 1e-6), 8):
        for size in (1e-6, 1e-2, 1.0):
            wrong = x.copy()
            wrong[cell] += size * errors[cell]
            bound = certify(problem, y, wrong).bound
            assert bound is None or bound >= 0.999 * size
    for size in (1e-6, 1e-2):  # of other counts that satisfy all that is known
        noise = np.sqrt(problem.variances) * rng.standard_normal(y.size)
        other = x + size * (P.estimate(y + noise, certify=False).values - x)
        free = errors > 1e-6
        assert certify(problem, y, other).bound >= 0.999 * (abs(other - x)[free] / errors[free]).max()
    wrong = x.copy()
    wrong[0] += 1e-3
    assert certify(problem, y, wrong).bound is None


@every("unit", [1.0, 1e-18, 1e-25])
def test_a_figure_is_known_exactly_in_equalities_of_any_units(monkeypatch: pytest.MonkeyPatch, unit: float) -> None:
    """Beside one in units of counts: other counts that satisfy this one alone are never called near."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    monkeypatch.setattr(certificate, "can_be_listed", lambda problem, made: False)
    E, rng = np.zeros((2, 29)), np.random.default_rng(0)
    E[0, 9:], E[1, 9] = 1.0, unit
    truth = rng.integers(1, 20, (5, 4)).astype(float)
    known = E[:, 9:] @ truth.ravel()
    observed = {"a": 1.0, "b": 2.0, "detailed": 3.0}
    problem = Problem(Schema({"a": 5, "b": 4}), observed, equalities=(E, known))
    y = add_noise(problem, problem.marginal_matrix() @ truth.ravel(), rng=rng)
    x = estimate(problem, y).values
    assert certify(problem, y, x).bound < 1e-10
    wrong = x.copy()
    wrong[[9, 14]] += 1e-6
    wrong[[10, 13]] -= 1e-6
    assert certify(problem, y, wrong).bound is None
