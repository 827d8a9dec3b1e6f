"""The forms of the closed-form estimate, against each other and against dense projections."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.components import ArrayForm, MatrixForm, SweepForm, TableForm, TreeForm, choice, components_of
from blue_solvers.components.flat import matrix_form, outer_tables
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders import Problem, Schema, compiled, gallery
from constraint_builders.relations.closed_tables import ALWAYS, NOTHING, ClosedTables, TooManyTablesError
from constraint_builders.schema_order import in_schema_order
from tests.helpers.effort import examples
from tests.helpers.places import ROOT
from tests.helpers.strategies import Case, cases


def as_matrix(problem: StructuredProblem) -> MatrixForm:
    """The matrix of what another form makes."""
    return MatrixForm(TableForm(problem), problem.observed.size)


FORMS = [ArrayForm, SweepForm, TableForm, TreeForm, as_matrix]


def in_order(problem: Problem) -> Problem:
    """The problem as `blue` hands it to solvers."""
    order = in_schema_order(problem)
    return problem if order is None else order.problem


def close(X: np.ndarray, expected: np.ndarray, errors: np.ndarray) -> bool:
    """Within 1e-9 standard errors, and rounding of the input for cells that have none."""
    return bool((abs(X - expected) <= 1e-9 * errors[:, None] + 1e-13 * abs(expected).max(initial=1)).all())


@pytest.fixture(scope="module", params=["as usual", "wherever it can be", "without compiled loops"])
def outer(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small problems take outer tables through their margins too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "without compiled loops":
            patch.setattr(compiled, "has_numba", lambda: False)
        if request.param != "as usual":
            patch.setattr(outer_tables, "WORTH", np.inf)
            patch.setattr(outer_tables, "LEAST", 0)
            patch.setattr(outer_tables, "MEAN", 0)
            patch.setattr(outer_tables, "MOST_OF_ALL", 0)
        yield


@examples(60)
@given(cases("equal", recodes=False))
def test_forms_agree_with_each_other_and_with_dense(outer: None, case: Case) -> None:
    problem = in_order(case.problem())
    rng = np.random.default_rng(0)
    spread = np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    truth = problem.marginal_matrix() @ rng.integers(0, 9, (int(np.prod(problem.schema.shape)), 3)).astype(float)
    Y = np.where(problem.unmeasured[:, None], 0, truth) + spread[:, None] * rng.normal(size=(spread.size, 3))
    dense = blue(problem, "dense")
    variances = dense.variances()
    errors = np.sqrt(variances)
    V = rng.normal(size=(problem.desired.size, 2))
    for make in FORMS:
        form = make(StructuredProblem.of(problem))
        assert close(form.apply(Y), dense @ Y, errors)
        weights, expected = form.adjoint(V), dense.T @ V
        noisy = spread > 0
        scale = np.linalg.norm(errors) + np.linalg.norm(spread[:, None] * expected)
        assert (abs(spread[:, None] * (weights - expected))[noisy] <= 1e-9 * scale + 1e-14 * spread.max()).all()
        assert not weights[problem.unmeasured].any()
        assert np.allclose(form.variances(), variances, rtol=1e-9, atol=1e-14 * (spread**2).max())
        assert form.violation(Y) <= 1e-9 * abs(Y).max(initial=1)


def test_sums_of_a_table_that_nothing_else_sees(outer: None) -> None:
    """Of "a * b * c" others see what lies in "a * b" and "d"; desired tables are sums of it, one of them twice over."""
    schema = Schema({"a": 3, "b": 4, "c": 5, "d": 6}, recodes={"a": {"half": [0, 0, 1]}})
    observed = {"detailed": 3.0, "a * b": 1.0, "d": 0.0, "half * c": np.inf, "half": 2.0, "total": 0.5}
    problem = in_order(Problem(schema, observed, desired=["c * d", "a * b * c", "c", "half * c", "b", "total"]))
    dense, form = blue(problem, "dense"), SweepForm(StructuredProblem.of(problem))
    rng = np.random.default_rng(0)
    truth = problem.marginal_matrix() @ rng.integers(0, 9, (360, 3)).astype(float)
    Y = np.where(problem.unmeasured[:, None], 0, truth)
    Y += np.sqrt(np.where(problem.unmeasured, 0, problem.variances))[:, None] * rng.normal(size=Y.shape)
    V = rng.normal(size=(problem.desired.size, 2))
    assert np.allclose(form.apply(Y), dense @ Y, rtol=1e-12, atol=1e-11)
    assert np.allclose(V.T @ form.apply(Y), form.adjoint(V).T @ Y, rtol=1e-11, atol=1e-11)
    assert np.allclose(form.variances(), dense.variances(), rtol=1e-11, atol=1e-13)
    assert form.violation(Y) < 1e-11


@examples(60)
@given(cases("equal"))
def test_sweeps_with_recodes_agree_with_dense(outer: None, case: Case) -> None:
    problem = in_order(case.problem())
    rng = np.random.default_rng(0)
    spread = np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    truth = problem.marginal_matrix() @ rng.integers(0, 9, (int(np.prod(problem.schema.shape)), 3)).astype(float)
    Y = np.where(problem.unmeasured[:, None], 0, truth) + spread[:, None] * rng.normal(size=(spread.size, 3))
    dense, form = blue(problem, "dense"), SweepForm(StructuredProblem.of(problem))
    variances = dense.variances()
    assert close(form.apply(Y), dense @ Y, np.sqrt(variances))
    assert np.allclose(form.variances(), variances, rtol=1e-9, atol=1e-14 * (spread**2).max(initial=0))
    V = rng.normal(size=(problem.desired.size, 2))
    forward, backward = V.T @ form.apply(Y), form.adjoint(V).T @ Y
    assert np.allclose(forward, backward, rtol=1e-8, atol=1e-8 * max(1, spread.max(initial=0)))
    assert form.violation(Y) <= 1e-9 * abs(Y).max(initial=1)


def test_groups_stand_in_the_place_of_levels() -> None:
    """Levels of 4 go to their 2 groups, a recode of 3 cells stays, 5 levels are summed out."""
    found = ClosedTables.of([4, 2, 3, 5], [(0, 3), (2,)], np.inf, [1, ALWAYS, ALWAYS, NOTHING])
    assert sorted(zip(map(tuple, found.kept.tolist()), found.sizes.tolist(), strict=True)) == [
        ((0, 3), 20), ((0, 4), 4), ((1, 3), 10), ((1, 4), 2), ((2, 4), 3),
    ]  # fmt: skip
    assert found.kept[found.place_of].tolist() == [[0, 3], [2, 4]]
    rows = [[tuple(found.kept[own].tolist()) for own in step[:2]] + [step[2]] for step in found.up.tolist()]
    led_to = {(table, axis): without for table, without, axis in rows}
    assert led_to == {((0, 3), 0): (1, 3), ((0, 3), 3): (0, 4), ((0, 4), 0): (1, 4), ((1, 3), 3): (1, 4)}


@examples(30)
@given(cases("equal"))
def test_tree_form_with_recodes(case: Case) -> None:
    problem = in_order(case.problem())
    rng = np.random.default_rng(0)
    spread = np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    form = TreeForm(StructuredProblem.of(problem))
    Y, V = spread[:, None] * rng.normal(size=(spread.size, 2)), rng.normal(size=(problem.desired.size, 2))
    forward, backward = V.T @ form.apply(Y), form.adjoint(V).T @ Y
    assert np.allclose(forward, backward, rtol=1e-8, atol=1e-8 * max(1, spread.max(initial=0)))
    assert (form.variances() >= 0).all()


@pytest.mark.parametrize("make", FORMS)
def test_exact_tables_contradicting_one_another_are_still_linear(outer: None, make) -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a": 0.0, "b": 0.0, "detailed": 1.0})
    Y = np.random.default_rng(0).normal(size=(11, 4))
    form = make(StructuredProblem.of(problem))
    assert np.allclose(form.apply(Y) @ np.ones(4), form.apply(Y @ np.ones((4, 1)))[:, 0])
    assert np.allclose(form.apply(Y), blue(problem, "dense") @ Y)


def test_a_run_of_tables_of_which_one_was_read_before() -> None:
    schema = Schema({"a": 2, "b": 2, "c": 1, "d": 1})
    problem = in_order(Problem(schema, {"b": 0.0, "c": 0.0, "b * d": 0.0, "a": 0.0}, desired=["total"]))
    Y = np.array([7.0, 9, 16, 7, 9, 9, 7])[:, None]
    assert np.allclose(TableForm(StructuredProblem.of(problem)).apply(Y), 16)


@pytest.mark.parametrize("make", FORMS)
def test_input_is_not_changed(make) -> None:
    problem = gallery.berkeley()
    Y = np.asfortranarray(np.random.default_rng(0).normal(size=(problem.observed.size, 3)))
    before = Y.copy()
    form = make(StructuredProblem.of(problem))
    first = form.apply(Y)
    assert np.array_equal(Y, before)
    form.adjoint(first)
    assert np.array_equal(form.apply(np.ascontiguousarray(Y)), first)
    strided = np.repeat(Y, 2, axis=0)[::2]
    assert np.allclose(form.apply(strided), first, rtol=1e-14)


def test_the_cheaper_form_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = gallery.wide(variables=20, levels=5, max_way=2)
    assert isinstance(components_of(gallery.toy()), MatrixForm)
    assert isinstance(components_of(with_recode(2)), MatrixForm)
    monkeypatch.setattr(choice, "has_numba", lambda: True)
    assert isinstance(components_of(gallery.cube(2, 30)), SweepForm)
    assert isinstance(components_of(gallery.pl94()), SweepForm)
    assert isinstance(components_of(gallery.cube(6, 4)), SweepForm)
    assert isinstance(components_of(wide), SweepForm)
    monkeypatch.setattr(choice, "has_numba", lambda: False)
    assert isinstance(components_of(gallery.pl94()), TreeForm)
    assert isinstance(components_of(gallery.cube(6, 4)), ArrayForm)
    assert isinstance(components_of(wide), TableForm)


def test_few_cells_load_no_compiled_loops() -> None:
    """In a process of its own, which nothing else has loaded them in."""
    work = "import sys; from blue_solvers import blue; from constraint_builders import gallery; p = gallery.toy(); "
    work += "blue(p) @ p.vector({'B': [6, 9, 17], 'total': 29}); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", work], check=True, cwd=ROOT)


@examples(20)
@given(columns=st.integers(1, 60), most=st.sampled_from([0, 40, 1 << 21]))
def test_a_matrix_and_what_makes_it_are_one_map(columns: int, most: int) -> None:
    """Whatever number of columns goes through either."""
    problem = gallery.berkeley()
    form = ArrayForm(StructuredProblem.of(problem))
    rng = np.random.default_rng(columns)
    Y, V = (rng.normal(size=(size, columns)) for size in (problem.observed.size, problem.desired.size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_form, "MOST_PRODUCTS", most)
        made = MatrixForm(form, problem.observed.size)
        assert np.allclose(made.apply(Y), form.apply(Y), rtol=1e-12, atol=1e-12)
        assert np.allclose(made.adjoint(V), form.adjoint(V), rtol=1e-12, atol=1e-12)


def test_no_sweep_where_what_is_coarser_is_more_than_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One table of 14 variables of 2 levels is 16,384 cells, and has 3^14 together with all coarser ones."""
    monkeypatch.setattr(choice, "has_numba", lambda: True)
    schema = Schema({f"v{i}": 2 for i in range(14)})
    assert not isinstance(components_of(Problem(schema, {"detailed": 1.0})), SweepForm)
    many = Problem(Schema({f"v{i}": 3 for i in range(80)}), {"total": 1.0, " * ".join(f"v{i}" for i in range(8)): 2.0})
    assert isinstance(components_of(many), TableForm)


def with_recode(variables: int) -> Problem:
    """One table of so many variables, all but the first binary, and a recode of the first."""
    schema = Schema({f"v{i}": 2 if i else 4 for i in range(variables)}, recodes={"v0": {"half": [0, 0, 1, 1]}})
    return Problem(schema, {"detailed": 1.0, "half": 2.0})


def test_a_recode_is_no_reason_for_sweeps_over_all_that_is_coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 binary variables the sweeps would take 3^20 cells, 28 GB, and the form of a tree takes 2^20."""
    monkeypatch.setattr(choice, "has_numba", lambda: True)
    monkeypatch.setattr(choice, "free_memory", lambda: np.inf)
    assert isinstance(components_of(with_recode(8)), SweepForm)
    assert isinstance(components_of(with_recode(11)), TreeForm)


def test_sweeps_take_no_more_memory_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"a": 12, "b": 15, "c": 40}, recodes={"a": {"r": [i // 4 for i in range(12)]}})
    tables = {"detailed": 1.0, "r * c": 2.0, "a * b": 1.0, "r * b * c": 3.0}
    monkeypatch.setattr(choice, "has_numba", lambda: True)
    for problem in (Problem(schema, tables), gallery.dhc()):
        monkeypatch.setattr(choice, "FEW_CELLS", 0)
        monkeypatch.setattr(choice, "free_memory", lambda: 1e10)
        assert isinstance(components_of(problem), SweepForm)
        monkeypatch.setattr(choice, "free_memory", lambda: 2e5)
        assert not isinstance(components_of(problem), SweepForm)


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
            SweepForm(problem, most_bytes=(fits + too_few) / 2)
            fits = (fits + too_few) / 2
        except TooManyTablesError:
            too_few = (fits + too_few) / 2
    y, v = np.ones((problem.observed.size, 1)), np.ones((problem.desired.size, 1))
    SweepForm(problem, most_bytes=fits).apply(y)  # loads what compiles
    tracemalloc.start()
    form = SweepForm(problem, most_bytes=fits)
    form.apply(y)
    form.adjoint(v)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fits / 4 < taken <= fits


@examples(40)
@given(st.data())
def test_closed_tables_are_those_that_keep_fewer_variables(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=5))
    sets = st.lists(st.sampled_from(range(len(shape))), unique=True).map(lambda axes: tuple(sorted(axes)))
    asked = data.draw(st.lists(sets, min_size=1, max_size=4))
    found = ClosedTables.of(shape, asked, np.inf)
    closed = {own for axes in asked for size in range(len(axes) + 1) for own in combinations(axes, size)}
    assert sorted(found.sizes) == sorted(prod(shape[axis] for axis in own) for own in closed)
    assert sorted(found.variables) == sorted(map(len, closed))
    assert [prod(shape[axis] for axis in axes) for axes in asked] == found.sizes[found.place_of].tolist()
    first_asked = list(dict.fromkeys(found.place_of.tolist()))
    assert first_asked == list(range(len(first_asked)))
    with pytest.raises(TooManyTablesError):
        ClosedTables.of(shape, asked, found.cells - 1)


def test_wide_tables_against_factorisation() -> None:
    problem = gallery.wide(variables=10, levels=3, max_way=2)
    y = np.random.default_rng(0).normal(100, 2, problem.observed.size)
    P, Q = blue(problem, "sea_blue"), blue(problem, "cholesky")
    assert (abs(P @ y - Q @ y) <= 1e-9 * np.sqrt(P.variances())).all()
    cells = [0, 1, 40]
    units = np.eye(problem.desired.size)[:, cells]
    assert np.allclose(P.variances()[cells], np.einsum("ij,ij->j", units, Q.covariance @ units), rtol=1e-9)
