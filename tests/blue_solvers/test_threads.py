"""One setting for threads, and the same answer, to the last bit, for every number of them."""

import threading
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blue_solvers import TwoPass, blue, thread_limit
from blue_solvers.components import LatticeForm
from blue_solvers.components.lattice import form, plan, sweeps
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree import tree_form
from blue_solvers.threads import VARIABLE, WORTH_BYTES, Workers, threads
from constraint_builders import Areas, Problem, Schema, Spine, gallery
from tests.helpers.effort import examples
from tests.helpers.every import every

EXACT = {"v0 * v1": 0.0}


def up_to_three(
    levels: list[int], exact: dict[str, float] | None = None, recoded: bool = True, ways: int = 3
) -> Problem:
    names = [f"v{i}" for i in range(len(levels))]
    tables = {" * ".join(own): 1.0 + len(own) for way in range(1, ways + 1) for own in combinations(names, way)}
    recodes = {"v0": {"coarse": [i // 2 for i in range(levels[0])]}} if recoded and levels[0] > 2 else {}
    schema = Schema(dict(zip(names, levels, strict=True)), recodes=recodes)
    return Problem(schema, tables | ({"coarse * v1": 2.0} if recodes else {}) | (exact or {}))


def spine_of_blocks() -> Problem:
    rng = np.random.default_rng(3)
    tract_of = np.sort(rng.integers(0, 40, 700))
    geoids = [f"{tract:03}{block:04}" for block, tract in enumerate(tract_of)]
    spine = Spine.from_geoids(geoids, {"Tract": 3, "Block": 7}, root="State")
    schema = gallery.pl94().schema
    tables = {"total": 1.0, "hispanic * cenrace": 3.0, "detailed": 9.0}
    return Problem(schema, dict.fromkeys(("State", "Tract", "Block"), tables), spine=spine, desired="all")


def spine_of_few_cells() -> Problem:
    geoids = [f"{tract:03}{block:04}" for tract in range(90) for block in range(60)]
    spine = Spine.from_geoids(geoids, {"Tract": 3, "Block": 7}, root="State")
    tables = {"total": 1.0, "race": 3.0, "adult * race": 9.0}
    schema = Schema({"adult": 2, "race": 8})
    return Problem(schema, dict.fromkeys(("State", "Tract", "Block"), tables), spine=spine, desired="all")


def areas_that_cross() -> Problem:
    leaf = np.arange(9_000)
    areas = Areas(leaf.size, layers={"Tract": leaf // 60, "District": (leaf + 30) // 60})
    tables = {"total": 1.0, "coarse": 2.0, "detailed": 9.0}
    schema = Schema({"adult": 2, "race": 8}, recodes={"race": {"coarse": [0, 0, 0, 1, 1, 2, 2, 2]}})
    return Problem(schema, dict.fromkeys(("Tract", "District", "Leaf"), tables), areas=areas)


CASES: dict[str, Callable[[], Problem]] = {
    "areas": areas_that_cross,
    "up to three-way": lambda: up_to_three([12] * 11),
    "with what is exact": lambda: up_to_three([12] * 11, EXACT),
    "one large table": lambda: gallery.cube(7, 7),
    "a spine": spine_of_blocks,
    "a spine of few cells": spine_of_few_cells,
}
ON_SPINES = [name for name in CASES if name.startswith("a spine")]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CASES)
def test_answers_do_not_depend_on_the_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = CASES[name]()
    monkeypatch.setattr("blue_solvers.threads.WORTH_BYTES", 1e6)
    monkeypatch.setattr(tree_form, "BLOCK_BYTES", 1 << 18)
    monkeypatch.setattr(form, "WORTH_BYTES", 1e6)
    submitted, submit = [], Workers._submit
    monkeypatch.setattr(Workers, "_submit", lambda own, *item: submitted.append(own) or submit(own, *item))
    P = blue(problem, "areas" if name == "areas" else TwoPass() if name in ON_SPINES else "sea_blue")
    rng = np.random.default_rng(0)
    y, v = rng.normal(size=problem.observed.size), rng.normal(size=problem.desired.size)
    found = []
    for count in (1, 2, 3):
        with thread_limit(count):
            before = threading.active_count()
            found.append((P @ y, P.T @ v))
            assert threading.active_count() == before
            assert bool(submitted) == (count > 1)
    for x, pulled in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        np.testing.assert_array_equal(pulled, found[0][1])
    assert abs(v @ found[0][0] - y @ found[0][1]) <= 1e-9 * np.linalg.norm(v) * np.linalg.norm(found[0][0])


@examples(40)
@given(
    levels=st.lists(st.integers(1, 4), min_size=3, max_size=6),
    exact=st.sets(st.sampled_from(["v0", "v1", "v2", "v0 * v1", "v0 * v2", "v1 * v2"]), max_size=3),
    most_beside=st.sampled_from([0.0, 0.05, 0.2, 0.5, 10.0]),
    large=st.sampled_from([0, 30, 1000]),
    columns=st.integers(1, 3),
    recoded=st.booleans(),
    ways=st.integers(3, 5),
)
@example(  # these alone are cut
    levels=[3, 3, 3, 3, 3], exact={"v0 * v1", "v1 * v2"}, most_beside=0.05, large=1000, columns=1, recoded=True, ways=3
)
@example(
    levels=[9, 3, 2, 3], exact={"v0 * v1"}, most_beside=0.0, large=0, columns=2, recoded=False, ways=4
)  # cut in slices
@example(
    levels=[4, 3, 4, 2, 4, 4], exact=set(), most_beside=0.0, large=30, columns=1, recoded=False, ways=5
)  # large counts
def test_steps_cut_in_parts_are_the_same_steps(
    levels: list[int], exact: set[str], most_beside: float, large: int, columns: int, recoded: bool, ways: int
) -> None:
    problem = up_to_three(levels, dict.fromkeys(exact, 0.0), recoded, ways)
    rng = np.random.default_rng(0)
    truth, noise = truth_and_noise(problem, rng, columns)
    Y = truth + noise
    V = rng.normal(size=(problem.desired.size, columns))
    expected = truth + blue(problem, "dense") @ noise  # whole numbers that agree, and what rounds far less than they
    for limit in (1, 3):
        with pytest.MonkeyPatch.context() as patch, thread_limit(limit):
            patch.setattr("blue_solvers.threads.WORTH_BYTES", 0)
            patch.setattr(form, "WORTH_BYTES", 0)
            patch.setattr(form, "MOST_BESIDE", most_beside)
            patch.setattr(form, "LARGE", large)
            patch.setattr(plan, "LARGE", large)
            patch.setattr(plan, "COPIES", 1)
            patch.setattr(form, "SLICE", 20)
            cut = LatticeForm(StructuredProblem.of(problem))
            X, U = cut.apply(Y), cut.adjoint(V)
            assert cut.apply_checked(Y)[1] <= 1e-11
        np.testing.assert_allclose(X, expected, rtol=0, atol=1e-11)
        np.testing.assert_allclose(V.T @ X, U.T @ Y, rtol=0, atol=1e-10)


def test_many_large_tables_are_parted_whole_and_few_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase makes threads meet: one for all tables of as many variables, where none is most of them."""
    monkeypatch.setattr(form, "WORTH_BYTES", 0)
    monkeypatch.setattr(form, "MOST_BESIDE", 1.0)
    monkeypatch.setattr(form, "LARGE", 30)
    monkeypatch.setattr(form, "SLICE", 20)
    many, few = (LatticeForm(StructuredProblem.of(up_to_three([4] * n, recoded=False))) for n in (7, 3))
    for own in (many._up, many._down):
        assert len(own) <= 10
        assert max(map(len, own)) == form.PARTS
    assert len(few._down[-1]) == 4  # of 64 cells, 16 of each level of the first variable


@every("row", [0, 70, 4095])
def test_values_are_looked_at_wherever_they_are(row: int) -> None:
    """Finite ones in range, far ones, and what is no number, wherever it is."""
    problem = gallery.cube(4, 7)
    y = np.random.default_rng(0).normal(size=problem.observed.size) + 10
    far = np.full_like(y, 1e-120)
    far[0], far[row] = 1.0, 1e130
    P = blue(problem)
    expected = P @ far
    np.testing.assert_array_equal(P @ np.ldexp(far, 30), np.ldexp(expected, 30))
    for wrong in (np.nan, np.inf):
        values = y.copy()
        values[row] = wrong
        with pytest.raises(ValueError, match="give a finite number"):
            P @ values


def truth_and_noise(problem: Problem, rng: np.random.Generator, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of true tables, and of noise, none in those that are exact."""
    counts = rng.integers(0, 9, (problem.domain.size, columns))
    noise = rng.normal(size=(problem.observed.size, columns)) * np.sqrt(problem.variances)[:, None]
    return problem.marginal_matrix() @ counts, noise


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    assert threads() == 3
    monkeypatch.setenv(VARIABLE, "nonsense")
    assert threads() >= 1
    monkeypatch.delenv(VARIABLE)
    assert threads() >= 1
    with thread_limit(2):
        assert threads() == 2
        with thread_limit(5):
            assert threads() == 5
        assert threads() == 2
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="give a whole number of 1 or more"):
            thread_limit(wrong)  # type: ignore[arg-type]
    assert threads() >= 1


def test_workers_do_every_part_once_and_pass_on_what_goes_wrong() -> None:
    with thread_limit(3):
        done: list[int] = []
        with Workers(WORTH_BYTES) as workers:
            workers.for_each(done.append, range(50))
            assert sorted(done) == list(range(50))
        with Workers(WORTH_BYTES - 1) as workers:
            found: set[int] = set()
            workers.for_each(lambda _: found.add(threading.get_ident()), range(5))
            assert found == {threading.get_ident()}
        done = []

        def work(number: int) -> None:
            if number == 3:
                raise ArithmeticError("three")
            done.append(number)

        with pytest.raises(ArithmeticError, match="three"), Workers(WORTH_BYTES) as workers:
            workers.for_each(work, range(1000))
        assert len(done) < 100


def test_work_within_work_within_work_comes_to_an_end() -> None:
    done: list[tuple[int, ...]] = []

    def deeper(*path: int) -> None:
        if len(path) == 3:
            done.append(path)
        else:
            workers.for_each(lambda number: deeper(*path, number), range(4))

    with thread_limit(2), Workers(WORTH_BYTES) as workers:
        whole = threading.Thread(target=deeper, daemon=True)
        whole.start()
        whole.join(timeout=60)
        assert not whole.is_alive(), f"{len(done)} of 64 parts, and no more"
    assert sorted(done) == sorted(product(range(4), repeat=3))


def test_states_of_numpy_go_along() -> None:
    refused = pytest.raises(FloatingPointError)
    with thread_limit(2), np.errstate(divide="raise"), refused, Workers(WORTH_BYTES) as workers:
        workers.for_each(lambda n: np.ones(3) / n, [np.zeros(3)] * 4)


def test_parts_of_a_phase_touch_no_cells_of_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going up all that is written or read; tables without several axes apart, which take room of different sizes."""
    schema = Schema({"a": 6, "b": 5, "c": 4, "d": 3, "e": 2}, recodes={"c": {"half": [0, 0, 1, 1]}})
    names = ["detailed", "a * c * e", "a * d", "b * half * d", "b * e", "a * b * half * d * e"]
    problem = StructuredProblem.of(Problem(schema, {name: 1.0 + i for i, name in enumerate(names)}))
    for name, value in {"WORTH_BYTES": 0, "LARGE": 100, "SLICE": 20, "MOST_BESIDE": 10.0}.items():
        monkeypatch.setattr(form, name, value)
    monkeypatch.setattr(plan, "LARGE", 100)
    lattice_form = LatticeForm(problem)
    lists = lattice_form._plan.lists
    counts = []
    for phase in [*lattice_form._up, *lattice_form._back[0]]:
        touched = []
        for part in phase:
            cells: set[int] = set()
            for kind, fine, coarse, before, levels, after, listed in part.steps[:, :7].tolist():
                cells.update(range(fine, fine + before * levels * after))
                count = 1 if listed < 0 else int(lists[listed])
                if kind < sweeps.READ:
                    cells.update(range(coarse, coarse + before * count * after))
            touched.append(cells)
        counts.append(len(touched))
        assert sum(map(len, touched)) == len(set().union(*touched))
    assert max(counts) > 2
