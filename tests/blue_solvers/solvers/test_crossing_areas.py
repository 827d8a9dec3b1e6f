"""Areas that nest, overlap and cross: every solver beside exact arithmetic, every law, and a proof of every answer."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from flint import fmpq, fmpq_mat, fmpz_mat
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import UnsupportedProblemError, blue
from blue_solvers.components.tree import level_tables
from blue_solvers.crossing_areas import alike_leaves as alike_module
from blue_solvers.crossing_areas import component_problem
from blue_solvers.crossing_areas.alike_leaves import alike_leaves
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.verification import certify
from constraint_builders import Areas, Problem, Schema, Spine, joint
from tests.helpers.dense_algebra import least_squares
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.compare import differences
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.exact import solve, weigh
from tests.helpers.oracles.invent import Invented, Kind, invent
from tests.helpers.refused import refuses

SEEDS = st.integers(0, 100_000)


def require_right(invented: Invented, solver: object) -> None:
    found = differences(invented, solver)  # type: ignore[arg-type]
    assert found == [], found


def determined_part(described: Description, rng: np.random.Generator) -> Invented | None:
    """With invented measurements, and of the desired tables those that these determine; None where there are none."""
    counts = rng.poisson(9, described.leaves.size * prod(described.sizes.values()))
    counts[described.empty_cells()] = 0
    truth = described.marginal_matrix() @ counts
    noise = np.where(np.isfinite(described.variances), described.variances, 0.0)
    y = np.where(np.isfinite(described.variances), truth + np.sqrt(noise) * rng.standard_normal(truth.size), 0.0)
    answer = solve(described, y)
    cuts = np.cumsum(
        [0, *(described.members(b.level).size * prod(described.shape(b.factors)) for b in described.desired)]
    )
    kept = [i for i in range(len(described.desired)) if answer.determined[cuts[i] : cuts[i + 1]].all()]
    if not kept:
        return None
    described = replace(described, desired=tuple(described.desired[i] for i in kept))
    return Invented(described, y, truth, solve(described, y))


def alike(seed: int) -> Invented | None:
    """Leaves of which many share areas, all of the same tables and variances; None where nothing can be estimated."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 4))
    of_leaf = np.sort(rng.integers(0, kinds, int(rng.integers(4, 9))))
    areas = rng.choice([0.0, 1.0, 1.0, 2.0], (int(rng.integers(1, 4)), kinds))[:, of_leaf]
    sizes, groups = {"a": 2, "b": 3}, {"g": ("b", (1, 0, 1))}
    incidence = np.vstack([areas, np.eye(of_leaf.size)])
    level = np.array([0] * len(areas) + [1] * of_leaf.size)
    shell = Description(sizes, groups, None, level, (), (), incidence=incidence)
    tables = [(), ("a",), ("g",), ("a", "g"), ("b",), ("a", "b")]
    observed, desired = [], []
    for number, count in ((0, len(areas)), (1, of_leaf.size)):
        for factors in tables:
            shape = (count, *shell.shape(factors))
            if rng.random() < 0.5:
                v = 10.0 ** rng.uniform(-1, 1) * (
                    np.ones(count) if number else rng.choice([1.0, 3.0, 0.0, np.inf], count)
                )
                v = v * 0 if number and rng.random() < 0.1 else v
                observed.append(Block(number, factors, np.broadcast_to(v.reshape(-1, *[1] * (len(shape) - 1)), shape)))
            desired.append(Block(number, factors))
    if not observed:
        return None
    described = replace(shell, observed=tuple(observed), desired=tuple(desired))
    if rng.random() < 0.4:  # the same cells of all leaves are structural zeros, or others
        factors = tables[rng.integers(len(tables))]
        flags = rng.random((1 if rng.random() < 0.8 else of_leaf.size, *shell.shape(factors))) < 0.3
        described = replace(described, zeros=(Block(1, factors, np.repeat(flags, of_leaf.size // len(flags), axis=0)),))
    return determined_part(described, rng)


def test_cells_of_all_variables_are_never_held_where_tables_have_far_fewer() -> None:
    """Four variables of 60 levels, 13 million cells in each place: on a spine, as areas that nest, and that cross."""
    schema = Schema(dict.fromkeys("abcd", 60))
    parent, level = [-1, 0, 0, *[1] * 4, *[2] * 4], ["State", *["Tract"] * 2, *["Block"] * 8]
    spine = Spine(parent, level)
    tables = {name: {"a": 1.0, "b": 2.0, "c * d": 3.0} for name in ("State", "Tract", "Block")}
    asked = {"State": ["a", "c"], "Block": ["total", "b"]}
    crossing = Areas.from_spine(spine).with_layer("Other", [0, 1, 0, 0, 1, 1, 0, 1])
    areas = {"spine": spine}, {"areas": Areas.from_spine(spine)}, {"areas": crossing}
    for places in areas:
        observed = {**tables, "Other": {"a": 1.0}} if places.get("areas") is crossing else tables
        problem = Problem(schema, observed, asked, **places)
        few = Problem(Schema(dict.fromkeys("abcd", 3)), observed, asked, **places)
        blue(few).estimate(np.ones(few.observed.size)).std_errors  # noqa: B018  # what is loaded once is not measured
        tracemalloc.start()
        P = blue(problem)
        P @ np.ones(problem.observed.size)
        P.variances()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert P.info.solver == "areas"
        assert peak < 60**4 * 8 / 4  # bytes: a quarter of one place's


def of_one_table(seed: int) -> Invented | None:
    """One table in areas that cross, with weights, of any variances by area."""
    rng = np.random.default_rng(seed)
    leaves, areas = int(rng.integers(2, 6)), int(rng.integers(1, 6))
    incidence = np.vstack([rng.choice([0.0, 1.0, 1.0, -2.0], (areas, leaves)), np.eye(leaves)])
    shell = Description(
        {"a": 2, "b": 3}, {"g": ("b", (1, 0, 1))}, None, np.repeat([0, 1], [areas, leaves]), (), (), incidence=incidence
    )
    factors = [("a",), ("g",), ("a", "g"), ("a", "b")][rng.integers(4)]
    observed = []
    for number, count in ((0, areas), (1, leaves)):
        shape = (count, *shell.shape(factors))
        v = rng.choice([0.5, 1.0, 3.0, 0.0, np.inf], count, p=[0.3, 0.3, 0.2, 0.1, 0.1])
        observed.append(Block(number, factors, np.broadcast_to(v.reshape(-1, *[1] * (len(shape) - 1)), shape)))
    desired = tuple(Block(number, factors) for number in (0, 1))
    return determined_part(replace(shell, observed=tuple(observed), desired=desired), rng)


@pytest.mark.parametrize("invented", [alike, of_one_table])
@examples(60, 4)
@given(seed=SEEDS)
def test_leaves_that_share_their_areas_and_one_table_in_all_areas(invented: Callable, seed: int) -> None:
    found = next(own for s in range(seed, seed + 50) if (own := invented(s)) is not None)
    problem = found.description.problem()
    require_right(found, "areas")
    P, V = blue(problem, "areas"), np.random.default_rng(seed).standard_normal((problem.desired.size, 2))
    noisy = ~problem.exact  # of exact cells that say the same, any may stand for the others
    np.testing.assert_allclose((P.T @ V)[noisy], (blue(problem, "cholesky").T @ V)[noisy], atol=1e-9)


def of_few_kinds(seed: int) -> Invented | None:
    """Leaves of a few kinds, in any order: of the same areas and weights, and of the same variances, exact ones too."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 4))
    of_leaf = rng.permutation(np.repeat(np.arange(kinds), rng.integers(2, 4, kinds)))
    areas = rng.choice([0.0, 1.0, 1.0, -2.0], (int(rng.integers(1, 4)), kinds))[:, of_leaf]
    sizes, groups = {"a": 2, "b": 3}, {"g": ("b", (1, 0, 1))}
    level = np.array([0] * len(areas) + [1] * of_leaf.size)
    incidence = np.vstack([areas, np.eye(of_leaf.size)])
    shell = Description(sizes, groups, None, level, (), (), incidence=incidence)
    tables = [(), ("a",), ("g",), ("a", "g"), ("b",), ("a", "b")]
    observed = []
    for number, own in ((0, np.arange(len(areas))), (1, of_leaf)):
        chosen = [factors for factors in tables if rng.random() < 0.4 or (number and factors == ("a", "b"))]
        for factors in chosen:
            v = rng.choice([0.5, 1.0, 30.0, 1e7, 0.0], own.max() + 1, p=[0.3, 0.3, 0.2, 0.15, 0.05])[own]
            shape = own.size, *shell.shape(factors)
            observed.append(Block(number, factors, np.broadcast_to(v.reshape(-1, *[1] * len(factors)), shape)))
    wanted = rng.random((2, 6)) < 0.6
    wanted[1, 1] = True
    desired = tuple(Block(int(number), tables[i]) for number, i in np.argwhere(wanted))
    return determined_part(replace(shell, observed=tuple(observed), desired=desired), rng)


@examples(200, 12)
@given(seed=SEEDS)
def test_areas_are_solved_for_over_sums_of_leaves_that_are_alike(seed: int) -> None:
    invented = of_few_kinds(seed)
    problem = invented.description.problem()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike_module, "LEAST_CELLS", 0)
        patch.setattr(alike_module, "LEAST_ALIKE", 2)
        patch.setattr(level_tables, "LEAST_NUMBERS", seed % 2 * 2**16)  # in cells, or in slots
        alike = alike_leaves(problem)
        assert 2 * np.unique(alike[1]).size <= alike[1].size
        require_right(invented, "areas")
        P, V = blue(problem, "areas"), np.random.default_rng(seed).standard_normal((problem.desired.size, 2))
        Y = np.random.default_rng(seed + 1).standard_normal((problem.observed.size, 2))
        errors, noise = (np.sqrt(own)[:, None] for own in (P.variances(), problem.variances))
    V, Y = V / np.where(errors > 0, errors, 1), Y * np.where(noise > 0, noise, 1)  # in standard errors
    np.testing.assert_allclose((P.T @ V).T @ Y, V.T @ (P @ Y), rtol=1e-9, atol=1e-9)


def test_which_leaves_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the same areas, weights and variances, where one layer of leaves has one table that holds all others."""
    weights = sparse.csr_array([[1.0, 1, 1, 1, 2, 2, 0, 0]])
    areas = Areas(8, {"R": [1, 1, 1, 1, 0, 0, 0, 0], "W": weights, "Same": np.arange(8)})
    noise = np.array([1.0, 1, 5, 1, 1, 1, 1, 1])
    given = {"R": {"a": 1.0}, "W": {"total": 2.0}, "Leaf": {"detailed": noise, "b": 3.0}}
    wanted = {"R": ["a"], "Leaf": ["a"]}
    many = Problem(SCHEMA, given, wanted, areas=areas)
    assert alike_leaves(many) is None  # of few cells
    monkeypatch.setattr(alike_module, "LEAST_CELLS", 0)
    assert alike_leaves(many) is None  # two of a kind, which take longer so
    monkeypatch.setattr(alike_module, "LEAST_ALIKE", 2)
    layer, kinds, finest = alike_leaves(many) or ("", np.zeros(0), "")
    assert (layer, finest) == ("Leaf", "detailed")
    assert kinds.tolist() == [0, 0, 1, 0, 2, 2, 3, 3]
    other = {"noise": {"Leaf": {"detailed": noise + np.arange(8)}}, "a table": {"Leaf": {"a": 1.0, "b": 3.0}}}
    for told in other.values():
        assert alike_leaves(Problem(SCHEMA, given | told, wanted, areas=areas)) is None
    assert alike_leaves(Problem(SCHEMA, given, {"R": ["a"]}, areas=areas)) is None
    recoded = Schema({"a": 4}, recodes={"a": {"g": [0, 0, 1, 1]}})
    of_recode = {"R": {"g": 1.0}, "Leaf": {"g": noise, "total": 3.0}}
    assert alike_leaves(Problem(recoded, of_recode, {"Leaf": ["g"]}, areas=areas)) is None
    assert alike_leaves(Problem(SCHEMA, given | {"Same": {"a": 1.0}}, wanted, areas=areas)) is None
    zeros = {("Leaf", "a"): np.arange(16).reshape(8, 2) == 3}
    assert alike_leaves(Problem(SCHEMA, given, wanted, areas=areas, zeros=zeros)) is None
    unmeasured = given | {"R": {"a": [1.0, np.inf]}}
    assert alike_leaves(Problem(SCHEMA, unmeasured, wanted, areas=areas)) is None


SCHEMA = Schema({"a": 2, "b": 3})
CROSSED = Areas(8, {"Region": [0, 0, 0, 0, 1, 1, 1, 1], "Product": ["x", "y"] * 4})


def crossing(**options: object) -> Problem:
    observed = {"Region": {"a": 2.0, "detailed": 3.0}, "Product": {"total": 0.5}, "Leaf": {"detailed": 9.0}}
    return Problem(SCHEMA, observed, areas=CROSSED, desired="all", **options)  # type: ignore[arg-type]


def test_leaves_that_do_not_add_up_to_what_is_found_of_their_sum_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike_module, "LEAST_CELLS", 0)
    monkeypatch.setattr(alike_module, "LEAST_ALIKE", 2)
    P = blue(crossing(), "areas")
    form, Y = P._prepared._method, np.random.default_rng(0).normal(size=(P.shape[1], 2))  # type: ignore[attr-defined]
    right, violation = form.apply_checked(Y)
    assert violation <= 1e-12
    between = form._below.between

    def off(known: np.ndarray, given: list[np.ndarray], results: list[np.ndarray], **options: object) -> None:
        between(known, given, results, **options)
        results[-1][3] += 0.25

    monkeypatch.setattr(form._below, "between", off)
    wrong, violation = form.apply_checked(Y)
    assert np.unique(np.round(wrong - right, 12)).tolist() == [0, 0.25]
    assert violation == pytest.approx(0.25)


def test_what_is_prepared_goes_with_what_holds_it() -> None:
    P = blue(crossing(), "areas")
    P.variances()
    estimate = weakref.ref(P._prepared._method._shared[0].estimate)  # type: ignore[attr-defined]
    gc.disable()
    try:
        del P
        assert estimate() is None
    finally:
        gc.enable()


def test_components_that_the_same_tables_see_share_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 components those along c alone are apart, for the recode has groups of c; solved a few at a time as all."""
    schema = Schema({"a": 3, "b": 4, "c": 5}, recodes={"c": {"r": [0, 0, 1, 1, 1]}})
    areas = Areas(6, {"R": [0, 0, 0, 1, 1, 1], "D": [0, 1, 1, 1, 2, 2]})
    tables = {"r": 2.0, "detailed": [1.0, 3.0]}
    problem = Problem(schema, {"R": tables, "D": {"detailed": 0.5}, "Leaf": {"detailed": 4.0}}, areas=areas)
    form = AreaForm(problem)
    shared = [sorted(map(sorted, own.components)) for own in form._shared]
    assert sorted(shared) == [[[]], [[0], [0, 1], [1]], [[0, 1, 2], [0, 2], [1, 2], [2]]]
    Y = np.random.default_rng(0).normal(size=(problem.observed.size, 3))
    (X, violation), W, dense = form.apply_checked(Y), form.adjoint(Y), blue(problem, "dense")
    assert violation < 1e-12
    np.testing.assert_allclose(X, dense @ Y, atol=1e-12)
    np.testing.assert_allclose(W, dense.T @ Y, atol=1e-12)
    np.testing.assert_allclose(form.variances(), dense.variances(), rtol=1e-10)
    monkeypatch.setattr(component_problem, "MOST_NUMBERS", 1)
    np.testing.assert_allclose(form.apply(Y), X, atol=1e-13)
    np.testing.assert_allclose(form.adjoint(Y), W, atol=1e-13)


@every("seed", range(12))
def test_what_nested_areas_leave_of_another_is_empty_where_all_its_leaves_are(seed: int) -> None:
    """Leaves of no inner area, which tell nothing but that some of their cells are empty."""
    rng = np.random.default_rng(seed)
    inner = (rng.random(6) < 0.5) & (np.arange(6) > 0)
    inner[5] = True
    empty = (rng.random((6, 3)) < 0.3) | (~inner[:, None] & (rng.random(3) < 0.6))
    areas = Areas(6, {"All": [0] * 6, "Inner": [inner.astype(float).tolist()]})
    tables = {"All": {"a": 2.0, "total": 1.0}, "Inner": {"a": 1.0}}
    problem = Problem(Schema({"a": 3}), tables, areas=areas, zeros={("Leaf", "a"): empty})
    M, y = problem.marginal_matrix().toarray()[:, ~empty.ravel()], rng.normal(30, 5, 7)
    P = blue(problem, "two_pass")
    values, variances = least_squares(M, problem.variances, y, M)
    np.testing.assert_allclose(P @ y, values, atol=1e-9)
    np.testing.assert_allclose(P.variances(), variances, atol=1e-12)


def test_auto_takes_areas_that_cross_and_two_passes_where_they_nest() -> None:
    assert "areas" in blue(crossing()).info.reason
    nested = Problem(SCHEMA, {"Region": {"a": 2.0}, "Leaf": {"detailed": 9.0}}, areas=CROSSED)
    assert blue(nested).info.solver == "two_pass"
    assert nested.tree is not None
    assert crossing().tree is None
    known = {
        "zeros": {("Region", "a"): np.array([[True, False], [False, False]])},
        "equalities": (np.ones((1, 66)), [5]),
    }
    assert "areas" in blue(crossing(**known)).info.reason


@pytest.mark.parametrize("whole", [True, False])
def test_a_geolevel_may_have_the_name_of_the_layer_of_leaves(whole: bool) -> None:
    """Where it is theirs; otherwise solver and joint problem say so."""
    levels = ["Top", "Middle", "Middle", "Leaf", "Leaf"]
    spine = Spine([-1, 0, 0, 1, 2 if whole else 1], levels, ["top", "left", "right", "x", "y"])
    problem = Problem(SCHEMA, {"Top": {"a": 1.0}, "Leaf": {"detailed": 2.0, "b": 3.0}}, spine=spine)
    other = Problem(SCHEMA, {"Leaf": {"a": 1.0}}, areas=Areas(["y", "x"], {}))
    if whole:
        y = np.random.default_rng(0).standard_normal(problem.observed.size)
        np.testing.assert_allclose(blue(problem, "areas") @ y, blue(problem, "cholesky") @ y, atol=1e-12)
        together = joint(problem, other)
        assert together.observed.names[1:] == (("Leaf (1)", "a * b"), ("Leaf (1)", "b"), ("Leaf (2)", "a"))
        np.testing.assert_array_equal(together.areas.layer("Leaf (2)").incidence.toarray(), [[0, 1], [1, 0]])
        return
    assert blue(problem).info.solver == "two_pass"
    with pytest.raises(UnsupportedProblemError, match="geolevel 'Leaf' is not of all geounits without children"):
        blue(problem, "areas")
    refuses("problem '1': geolevel 'Leaf' is not of all geounits without children", joint, problem, other)


def test_what_cannot_be_proved_says_why() -> None:
    rng = np.random.default_rng(5)
    areas = Areas(3000, {"Region": rng.integers(0, 20, 3000), "Product": rng.integers(0, 20, 3000)})
    schema = Schema({"a": 20, "b": 30})
    problem = Problem(
        schema,
        {"Region": {"detailed": 1.0}, "Product": {"b": 1.0}, "Leaf": {"a": 2.0, "b": 2.0}},
        areas=areas,
        desired={"Leaf": ["a"]},
    )
    y = rng.standard_normal(problem.observed.size)
    certificate = certify(problem, y, y)
    assert certificate.bound is None
    assert "too many to list, and no table that was measured in all leaves holds 'detailed'" in certificate.reason


def test_weights_that_leave_it_to_rounding_are_refused() -> None:
    """Coefficients that elimination has rounded move some units by many times the rounding of their estimates."""
    problem = invent(500_416, Kind(areas="large", equalities=False)).description.problem()
    with pytest.raises(UnsupportedProblemError, match="so unequal that rounding decides what is known"):
        blue(problem, "areas") @ np.eye(problem.observed.size)


def test_weights_whose_relations_are_found_in_extended_precision_are_not() -> None:
    """Pivots of a hundredth had rounded coefficients so much that units moved by 3,000 roundings: it was refused."""
    invented = invent(500_086, Kind(areas="large", equalities=False))
    description, problem = invented.description, invented.description.problem()
    weights = weigh(description, invented.y, np.eye(problem.desired.size)).weights
    noisy = (description.variances > 0) & np.isfinite(description.variances)
    found = blue(problem, "areas") @ np.eye(problem.observed.size)
    np.testing.assert_allclose(found[:, noisy], weights[noisy].T, atol=1e-13)


def test_estimates_much_larger_than_a_measurement_are_not() -> None:
    """A leaf's measurement counts a million times in an area, where it is as well known as a double can say."""
    weights, variances = [[10**6, 1], [10**6, 10**6], [1, 0], [0, 1]], {"Whole": 1e12, "Other": 1e4, "Leaf": 1e-12}
    areas = Areas(2, {"Whole": weights[:1], "Other": weights[1:2]})
    problem = Problem(Schema({"unit": 1}), {name: {"total": own} for name, own in variances.items()}, areas=areas)
    precisions = [fmpq(1, 10**12), fmpq(1, 10**4), fmpq(10**12), fmpq(10**12)]
    M, told = (
        fmpq_mat(fmpz_mat(weights)),
        fmpq_mat(2, 4, [p * row[i] for i in (0, 1) for p, row in zip(precisions, weights, strict=True)]),
    )
    exact = M * (told * M).solve(told)
    expected = np.array([[float(own.p) / float(own.q) for own in row] for row in exact.tolist()])
    y = np.random.default_rng(0).normal(size=(4, 200))
    np.testing.assert_allclose(blue(problem, "areas") @ y, expected @ y, rtol=1e-12, atol=1e-9)


@every("seed, decades", [(500_023, 4.0), (500_162, 4.0), (500_039, 0.0), (500_135, 4.0)])
def test_units_beside_large_weights_are_taken_one_by_one(seed: int, decades: float) -> None:
    """Estimates of two of them are much larger than they are; of two cancel what coefficients that are whole weigh."""
    invented = invent(seed, Kind(areas="large", equalities=False, decades=decades))
    P = blue(invented.description.problem(), "areas")
    columns = P @ np.eye(invented.y.size)
    np.testing.assert_allclose(columns, (P.T @ np.eye(len(columns))).T, rtol=1e-9, atol=1e-9)
    largest = abs(invented.y).max()
    np.testing.assert_allclose(
        columns @ invented.y + P.offset, invented.reference.estimate, rtol=0, atol=1e-13 * largest
    )


def test_other_solvers_say_what_takes_areas() -> None:
    for solver in ("sea_blue", "two_pass"):
        refuses("'areas'", blue, crossing(), solver, error=UnsupportedProblemError)
    with pytest.raises(UnsupportedProblemError, match="no tables"):
        blue(Problem.from_summing_matrix([[1, 1], [1, 0], [0, 1]], 1.0), "areas")
    unequal = Problem(SCHEMA, {"Region": {"a": [[1.0, 2.0]] * 2}, "Leaf": {"detailed": 1.0}}, areas=CROSSED)
    refuses("variances differ", blue, unequal, "areas", error=UnsupportedProblemError)
