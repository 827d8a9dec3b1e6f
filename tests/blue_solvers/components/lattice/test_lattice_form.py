"""The closed form against dense projections, compiled and not, and which form is taken."""

import tracemalloc
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.components import LatticeForm, MatrixForm, TreeForm, choice, components_of
from blue_solvers.components.grouping import axes_in_use
from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError
from blue_solvers.components.lattice.sets import IntersectionLattice
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders import Problem, Schema, compiled, gallery
from constraint_builders.schema_order import in_schema_order
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.invent import plain_tables

SEEDS = st.integers(0, 10**6)


def uncompiled(problem: StructuredProblem) -> LatticeForm:
    """The sweeps in numpy, as where numba is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "has_numba", lambda: False)
        return LatticeForm(problem)


FORMS = [LatticeForm, uncompiled, TreeForm, MatrixForm]


def in_order(problem: Problem) -> Problem:
    """The problem as `blue` hands it to solvers."""
    return in_schema_order(problem).problem


def close(X: np.ndarray, expected: np.ndarray, errors: np.ndarray) -> bool:
    """Within 1e-9 standard errors, and rounding of the input for cells that have none."""
    return bool((abs(X - expected) <= 1e-9 * errors[:, None] + 1e-13 * abs(expected).max(initial=1)).all())


def filled_with_nan(*shape: Any, **options: Any) -> np.ndarray:
    """Memory that nothing has been written to."""
    return np.full_like(np.ndarray(*shape, **options), np.nan)


@examples(60, 6)
@given(SEEDS)
def test_nothing_is_read_that_was_not_written(seed: int) -> None:
    problem = in_order(plain_tables(seed, recodes=bool(seed % 2)))
    rng = np.random.default_rng(seed)
    form = LatticeForm(StructuredProblem.of(problem))
    Y, V = rng.normal(size=(problem.observed.size, 2)), rng.normal(size=(problem.desired.size, 2))
    found = form.apply(Y), form.adjoint(V)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", filled_with_nan)
        again = form.apply(Y), form.adjoint(V)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


def measured(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations, 0 of cells that were not measured, and measurements of three tables of counts."""
    spread = np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    truth = problem.marginal_matrix() @ rng.integers(0, 9, (int(np.prod(problem.schema.shape)), 3)).astype(float)
    return spread, np.where(problem.unmeasured[:, None], 0, truth) + spread[:, None] * rng.normal(size=truth.shape)


@examples(120, 9)
@given(SEEDS)
def test_forms_agree_with_each_other_and_with_dense(seed: int) -> None:
    """With recodes, which no matrix takes, and without."""
    problem, rng = in_order(plain_tables(seed)), np.random.default_rng(0)
    spread, Y = measured(problem, rng)
    dense = blue(problem, "dense")
    variances = dense.variances()
    errors = np.sqrt(variances)
    V = rng.normal(size=(problem.desired.size, 2))
    for make in FORMS[:3] if problem.schema.recodes else FORMS:
        form = make(StructuredProblem.of(problem))
        assert close(form.apply(Y), dense @ Y, errors)
        weights, expected = form.adjoint(V), dense.T @ V
        noisy = spread > 0
        scale = np.linalg.norm(errors) + np.linalg.norm(spread[:, None] * expected)
        assert (abs(spread[:, None] * (weights - expected))[noisy] <= 1e-9 * scale + 1e-14 * spread.max()).all()
        assert not weights[problem.unmeasured].any()
        assert np.allclose(form.variances(), variances, rtol=1e-9, atol=1e-14 * (spread**2).max())
        assert form.apply_checked(Y)[1] <= 1e-9 * abs(Y).max(initial=1)


@every("make", FORMS)
def test_exact_tables_contradicting_one_another_are_still_linear(make) -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a": 0.0, "b": 0.0, "detailed": 1.0})
    Y = np.random.default_rng(0).normal(size=(11, 4))
    form = make(StructuredProblem.of(problem))
    assert np.allclose(form.apply(Y) @ np.ones(4), form.apply(Y @ np.ones((4, 1)))[:, 0])
    assert np.allclose(form.apply(Y), blue(problem, "dense") @ Y)


def test_a_run_of_tables_of_which_one_was_read_before() -> None:
    schema = Schema({"a": 2, "b": 2, "c": 1, "d": 1})
    problem = in_order(Problem(schema, {"b": 0.0, "c": 0.0, "b * d": 0.0, "a": 0.0}, desired=["total"]))
    Y = np.array([7.0, 9, 16, 7, 9, 9, 7])[:, None]
    assert np.allclose(LatticeForm(StructuredProblem.of(problem)).apply(Y), 16)


@every("make", FORMS)
def test_input_is_not_changed(make) -> None:
    problem = gallery.berkeley()
    Y = np.asfortranarray(np.random.default_rng(0).normal(size=(problem.observed.size, 3)))
    before = Y.copy()
    form = make(StructuredProblem.of(problem))
    first = form.apply(Y)
    assert np.array_equal(Y, before)
    form.adjoint(first)
    assert np.array_equal(form.apply(np.ascontiguousarray(Y)), first)
    assert np.allclose(form.apply(np.repeat(Y, 2, axis=0)[::2]), first, rtol=1e-14)


def test_few_cells_take_their_matrix() -> None:
    assert isinstance(components_of(gallery.toy()), MatrixForm)
    assert isinstance(components_of(gallery.berkeley()), MatrixForm)
    assert isinstance(components_of(gallery.pl94()), LatticeForm)
    assert isinstance(components_of(gallery.wide(variables=20, levels=5, max_way=2)), LatticeForm)


@examples(20)
@given(columns=st.integers(1, 60))
def test_matrices_of_few_cells_and_sweeps_are_one_map(columns: int) -> None:
    """Whatever number of columns goes through either."""
    problem = gallery.berkeley()
    form = LatticeForm(StructuredProblem.of(problem))
    rng = np.random.default_rng(columns)
    Y, V = (rng.normal(size=(size, columns)) for size in (problem.observed.size, problem.desired.size))
    made = MatrixForm(StructuredProblem.of(problem))
    assert np.allclose(made.apply(Y), form.apply(Y), rtol=1e-12, atol=1e-12)
    assert np.allclose(made.adjoint(V), form.adjoint(V), rtol=1e-12, atol=1e-12)


def test_sweeps_take_no_more_memory_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": 12, "b": 15, "c": 40}, recodes={"a": {"r": [i // 4 for i in range(12)]}})
    tables = {"detailed": 1.0, "r * c": 2.0, "a * b": 1.0, "r * b * c": 3.0}
    for problem in (Problem(schema, tables), gallery.dhc()):
        monkeypatch.setattr(choice, "free_memory", lambda: 1e10)
        assert isinstance(components_of(problem), LatticeForm)
        monkeypatch.setattr(choice, "free_memory", lambda: 2e5)
        assert isinstance(components_of(problem), TreeForm)


@pytest.mark.parametrize("exact", [{}, {"s * c": 0.0, "c * d": 0.0}])
def test_sweeps_take_the_bytes_that_they_are_allowed(exact: dict[str, float]) -> None:
    """What is traced while making the matrices and estimating is within the least limit that lets them be made."""
    recodes = {
        "a": {"r": [i // 3 for i in range(12)], "half": [i // 6 for i in range(12)]},
        "b": {"s": [0, 0, 1, 1, 2]},
    }
    schema = Schema({"a": 12, "b": 5, "c": 15, "d": 10}, recodes=recodes)
    names = ["detailed", "r * s * c * d", "half * s * c * d", "b * c * d", "a * c * d"]
    problem = StructuredProblem.of(Problem(schema, dict.fromkeys(names, 2.0) | exact))
    fits, too_few = 1e9, 0.0
    while fits - too_few > 0.05 * fits:
        try:
            LatticeForm(problem, most_bytes=(fits + too_few) / 2)
            fits = (fits + too_few) / 2
        except TooManyCellsError:
            too_few = (fits + too_few) / 2
    y, v = np.ones((problem.observed.size, 1)), np.ones((problem.desired.size, 1))
    LatticeForm(problem, most_bytes=fits).apply(y)  # loads what compiles
    tracemalloc.start()
    form = LatticeForm(problem, most_bytes=fits)
    form.apply(y)
    form.adjoint(v)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fits / 4 < taken <= fits


def test_sums_over_neighbouring_variables_take_no_room_beside_the_tables() -> None:
    schema = Schema({"a": 30, "b": 40, "c": 20})
    desired = ["total", "a", "c", "a * b", "b * c", "detailed"]
    form = LatticeForm(StructuredProblem.of(in_order(Problem(schema, {"total": 1.0, "detailed": 2.0}, desired))))
    y = np.ones((24_001, 1))
    form.apply(y)
    tracemalloc.start()
    form.apply(y)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 8 * (24_000 + 1_200 + 800 + 51) + 10_000


@examples(100)
@given(st.data())
def test_an_intersection_lattice(data: st.DataObject) -> None:
    """Closed under intersection, with the covers that its order has; sums over what lies above and below."""
    sizes = data.draw(st.lists(st.integers(2, 30), min_size=1, max_size=7))
    masks = data.draw(st.sets(st.integers(0, (1 << len(sizes)) - 1), min_size=1, max_size=12))
    lattice = IntersectionLattice(masks, sizes)
    members = set(lattice.members)
    assert masks <= members
    assert all(one & other in members for one in members for other in members)
    for mask in members:
        inside = [own for own in members if own & mask == own != mask]
        maximal = {own for own in inside if not any(own & other == own != other for other in inside)}
        assert set(lattice.covers(mask)) == maximal
    values = {mask: float(i) for i, mask in enumerate(sorted(masks))}
    known = np.array([values.get(mask, 0.0) for mask in lattice.members])
    above = dict(zip(lattice.members, lattice.sums_above(known), strict=True))
    assert above == {mask: sum(v for own, v in values.items() if own & mask == mask) for mask in members}
    numbers = {mask: float(i) for i, mask in enumerate(lattice.members)}
    for mask in range(1 << len(sizes)) if len(sizes) < 6 else masks:
        places = [i for i in range(len(sizes)) if mask >> i & 1]
        subsets = chain.from_iterable(combinations(places, size) for size in range(len(places) + 1))
        expected = 0.0
        for subset in subsets:
            bits = sum(1 << i for i in subset)
            holding = [own for own in lattice.members if own & bits == bits]
            if holding:
                closure = min(holding, key=int.bit_count)
                expected += numbers[closure] * np.prod([sizes[i] - 1.0 for i in subset])
        if any(own & mask == mask for own in members):
            values_of = np.arange(float(len(numbers)))
            assert lattice.sum_of_contrasts(values_of, mask) == pytest.approx(expected, rel=1e-12)
            number = lattice.number.get(mask, -1)
            if number >= 0 and lattice.is_regular[number]:
                assert lattice.sums_of_contrasts(values_of)[number] == pytest.approx(expected, rel=1e-12)


@examples(40)
@given(st.data())
def test_copies_of_small_tables_change_no_answer(data: st.DataObject) -> None:
    """One large table and many small ones, summed through some between them or not."""
    sizes = data.draw(st.lists(st.integers(2, 4), min_size=5, max_size=6))
    names = [f"v{i}" for i in range(len(sizes))]
    tables = data.draw(st.sets(st.sampled_from([" * ".join(own) for own in combinations(names, 2)]), min_size=3))
    kinds = st.sampled_from([0.5, 1.0, 4.0, 1e-6])
    others = ["total", *names] if data.draw(st.booleans()) else names  # with all that they share, or not
    observed = {table: data.draw(kinds) for table in ["detailed", *sorted(tables), *others]}
    problem = in_order(Problem(Schema(dict(zip(names, sizes, strict=True))), observed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blue_solvers.components.lattice.sets.SMALLER", data.draw(st.sampled_from([2, 8])))
        patch.setattr("blue_solvers.components.lattice.plan.COPIES", data.draw(st.sampled_from([0, 2])))
        patch.setattr("blue_solvers.components.lattice.plan.LARGE", data.draw(st.sampled_from([0, 30, 1 << 17])))
        form = LatticeForm(StructuredProblem.of(problem))
    dense = blue(problem, "dense")
    Y = np.random.default_rng(0).normal(size=(problem.observed.size, 2)) * np.sqrt(problem.variances)[:, None]
    assert close(form.apply(Y), dense @ Y, np.sqrt(dense.variances()))
    assert form.apply_checked(Y)[1] <= 1e-10
    assert np.allclose(form.variances(), dense.variances(), rtol=1e-9)


@every("has_margins", [False, True])
@every("has_recodes", [False, True])
def test_a_table_that_is_not_what_others_sum_to_is_noticed(has_recodes: bool, has_margins: bool) -> None:
    """Whether it is a margin, compared with copies of sums, or with one larger table."""
    names = [f"v{i}" for i in range(5)]
    recoded = ["v0 * r", "r"] if has_recodes else []
    pairs = [" * ".join(own) for own in combinations(names, 2)]
    schema = Schema(dict.fromkeys(names, 2) | {"w": 4}, recodes={"w": {"r": [0, 0, 1, 1]}})
    desired = ["detailed", *pairs, *(["v0 * v1 * v2", "v1 * v2 * w"] if has_margins else [])]
    posed = StructuredProblem.of(in_order(Problem(schema, dict.fromkeys(["detailed", *pairs, *recoded], 1.0), desired)))
    axes = axes_in_use(posed.schema, posed.tables)
    observed, wanted = ([axes.of(table) for table in own] for own in (posed.observed_tables, posed.desired_tables))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blue_solvers.components.lattice.plan.COPIES", 0)
        plan = SweepPlan(axes, observed, wanted)
    assert bool(plan.margins) == has_margins
    assert plan.copied.start < plan.copied.stop
    for table, place in plan.places.items():
        cells = np.zeros((plan.cells + plan.most_room, 2))
        assert plan.disagreement(cells) == 0
        cells[place + plan.size_of(table) - 1, 1] = 1
        assert plan.disagreement(cells) == 1, table


def test_wide_tables_against_factorisation() -> None:
    problem = gallery.wide(variables=10, levels=3, max_way=2)
    y = np.random.default_rng(0).normal(100, 2, problem.observed.size)
    P, Q = blue(problem, "sea_blue"), blue(problem, "cholesky")
    assert (abs(P @ y - Q @ y) <= 1e-9 * np.sqrt(P.variances())).all()
    cells = [0, 1, 40]
    units = np.eye(problem.desired.size)[:, cells]
    assert np.allclose(P.variances()[cells], np.einsum("ij,ij->j", units, Q.covariance @ units), rtol=1e-9)


@examples(60, 15)
@given(data=st.data())
def test_tables_that_differ_by_variables_of_one_level_alone(data: st.DataObject) -> None:
    """With recodes and without: measured and wanted each for itself, though their cells are the same."""
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=2, max_size=3))
    names = "abc"[: len(sizes)]
    wide = [name for name, size in zip(names, sizes, strict=True) if size == 4]
    recodes = {wide[0]: {"halves": [0, 0, 1, 1]}} if wide and data.draw(st.booleans()) else {}
    schema = Schema(dict(zip(names, sizes, strict=True)), recodes=recodes)
    factors = [*names, *(("halves",) if recodes else ())]
    every = [" * ".join(chosen) for k in range(len(names)) for chosen in combinations(factors, k + 1)]
    every.remove(" * ".join(names))  # that is called "detailed"
    every = [own for own in every if not recodes or not {wide[0], "halves"} <= set(own.split(" * "))]
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    problem = Problem(schema, {own: 1.0 + i for i, own in enumerate(["detailed", *chosen])})
    y = np.random.default_rng(len(chosen)).normal(9, 3, problem.observed.size)
    M = problem.marginal_matrix().toarray()
    best = np.linalg.lstsq(M / np.sqrt(problem.variances)[:, None], y / np.sqrt(problem.variances), rcond=None)[0]
    np.testing.assert_allclose(blue(problem, "sea_blue") @ y, M @ best, atol=1e-9)
