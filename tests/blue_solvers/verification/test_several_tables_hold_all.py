"""Certificates where no one table holds all others: products measured apart, beside exact answers to 600 bits."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import linalg
from scipy.sparse.linalg import lsqr

from blue_solvers import Estimate, blue, estimate
from blue_solvers.verification import certificate, certify, holding_tables, known_exactly
from blue_solvers.verification import problem_places as problem_places_of
from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.problem_places import problem_places
from constraint_builders import Areas, Problem, Schema, Spine, joint
from constraint_builders.description.table import parse_table
from noise_mechanisms import add_noise
from tests.blue_solvers.verification.answers import Case, moved, spoilt
from tests.helpers.dense_algebra import least_squares
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.description import Block, Description
from tests.helpers.oracles.exact import solve
from tests.helpers.oracles.invent import invented_areas

SIZES = {"a": 2, "b": 4, "c": 3}
GROUPS = {"b2": ("b", (0, 0, 1, 1)), "b3": ("b", (0, 1, 2, 2))}  # one within the other, or not
HELD_BY = {  # tables of the leaves, and what they hold
    "two": {("a", "b2"): [(), ("a",), ("b2",)], ("b3", "c"): [("b3",), ("c",), ("b2", "c")]},
    "three": {("a", "b2"): [(), ("a",)], ("b2", "c"): [("c",), ("b2",)], ("a", "c"): [("a",), ()]},
    "recodes": {("a", "b3"): [("b2",), ("a", "b2")], ("b2", "c"): [("c",)], ("b",): [("b3",), ("b2",), ()]},
}


@pytest.fixture(autouse=True)
def nothing_is_listed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "MOST_LISTED", 0)
        patch.setattr(certificate, "can_be_listed", lambda problem, made: False)
        yield


def invented(seed: int, kind: str, knows: bool) -> Case:
    """The first problem of these tables from a seed whose areas do not nest, nor leave leaves out of all."""
    for attempt in range(100):
        rng = np.random.default_rng([seed, attempt])
        incidence, level = invented_areas(rng, weighted=bool(rng.random() < 0.5))
        if incidence.shape[1] > 4:
            continue
        found = _described(rng, incidence, level, kind, knows)
        with suppress(ValueError):
            description, y = found
            return Case(description, description.problem(), y, solve(description, y))
    raise AssertionError("nothing was invented")


def _described(
    rng: np.random.Generator, incidence: np.ndarray, level: np.ndarray, kind: str, knows: bool
) -> tuple[Description, np.ndarray]:
    shell = Description(SIZES, GROUPS, None, level, (), (), incidence=incidence)
    last = int(level.max())

    def block(number: int, factors: tuple[str, ...]) -> Block:
        shape = (shell.members(number).size, *shell.shape(factors))
        each = shape if rng.random() < 0.3 else (shape[0], *[1] * len(factors))
        return Block(number, factors, np.broadcast_to(10 ** rng.uniform(-1, 1, each), shape).copy())

    observed = [block(last, factors) for factors in HELD_BY[kind]]
    held = [own for tables in HELD_BY[kind].values() for own in tables]
    for number in range(last):
        chosen = {held[i] for i in rng.choice(len(held), 2)}
        observed += [block(number, factors) for factors in sorted(chosen)]
    zeros: tuple[Block, ...] = ()
    if knows:
        exact = observed[-1].values
        exact[rng.random(exact.shape[0]) < 0.7] = 0.0
        if len(observed) > len(HELD_BY[kind]) + 2:
            observed[-2].values[0] = np.inf
        if rng.random() < 0.5:
            zeros = (Block(last, ("b",), np.broadcast_to(rng.random((1, 4)) < 0.3, (incidence.shape[1], 4)).copy()),)
    described = Description(
        SIZES, GROUPS, None, level, tuple(observed), tuple(observed), zeros=zeros, incidence=incidence
    )
    counts = rng.poisson(30, incidence.shape[1] * 24).astype(float)
    counts[described.empty_cells()] = 0
    truth, v = described.marginal_matrix() @ counts, described.variances
    if knows and rng.random() < 0.4:
        E = np.zeros((1, truth.size))
        E[0, rng.choice(truth.size, 2, replace=False)] = 1.0, -2.0
        described = replace(described, equalities=(E, E @ truth))
    noise = np.where(np.isfinite(v), np.sqrt(np.where(np.isfinite(v), v, 0.0)), 0.0) * rng.standard_normal(v.size)
    return described, np.where(np.isfinite(v), truth + noise, 0.0)


@pytest.mark.few(1)
@pytest.mark.parametrize("knows", [False, True], ids=["noise alone", "what is known exactly"])
@pytest.mark.parametrize("kind", HELD_BY)
@examples(40, 6)
@given(seed=st.integers(0, 10**6))
def test_bounds_are_never_below_the_error(kind: str, knows: bool, seed: int) -> None:
    """Of the exact answer, of those moved along possible counts, and of those of which one figure is off."""
    case = invented(seed, kind, knows)
    assert len(problem_places(case.problem).levels[-1].tables) > 1
    right = case.is_sound(case.reference.estimate)
    rng = np.random.default_rng(seed)
    for size in (1e-6, 1e-2, 10.0):
        wrong = moved(case, rng, size)
        proof = case.is_sound(wrong)
        assert proof.bound is None or proof.bound >= 0.99 * case.error(wrong)
        case.is_sound(spoilt(case, rng, size))
    if not knows:
        assert right.bound is not None, right
        assert right.bound < 1e-8


@pytest.mark.few(1)
@pytest.mark.parametrize("knows", [False, True], ids=["noise alone", "what is known exactly"])
@pytest.mark.parametrize("kind", HELD_BY)
@examples(30, 5)
@given(seed=st.integers(0, 10**6))
@example(seed=399)  # of three tables an equality speaks of a cell that was not measured
def test_right_answers_are_proved(kind: str, knows: bool, seed: int) -> None:
    """By whichever solver takes them."""
    case = invented(seed, kind, knows)
    if not np.isfinite(case.reference.estimate).all():
        return
    proof = estimate(case.problem, case.y).certificate()
    assert proof.bound is not None, proof
    assert proof.bound < 1e-8


@examples(30, 5)
@given(seed=st.integers(0, 10**6), empty=st.booleans())
def test_moving_and_agreeing_are_transposes(seed: int, empty: bool) -> None:
    """Moving changes nothing of what is said of the counts; tables that agree are those of some counts."""
    rng = np.random.default_rng(seed)
    schema = Schema({"a": 2, "b": 4, "c": 3}, recodes={"b": {"b2": [0, 0, 1, 1], "b3": [0, 1, 2, 2]}})
    tables = tuple(parse_table(schema, name) for name in ("b3 * a", "c * b2", "a * c"))
    ends = np.cumsum([0, *(own.size for own in tables)])
    columns = tuple(slice(a, b) for a, b in pairwise(ends.tolist()))
    flags = (rng.random(4) < 0.4) if empty else np.zeros(4, dtype=bool)
    margins = CommonMargins(schema, tables, columns, ((1,), flags))
    groups = {"a": np.eye(2), "b2": np.eye(2)[:, [0, 0, 1, 1]], "b3": np.eye(3)[:, [0, 1, 2, 2]], "c": np.eye(3)}
    groups = {name: own * ~flags if name in ("b2", "b3") else own for name, own in groups.items()}
    one = {2: np.ones((1, 2)), 4: np.ones((1, 4)) * ~flags, 3: np.ones((1, 3))}
    M = np.vstack(
        [
            np.einsum("bj,ai,zk->bazijk", groups["b3"], groups["a"], one[3]).reshape(-1, 24),
            np.einsum("ck,bj,zi->cbzijk", groups["c"], groups["b2"], one[2]).reshape(-1, 24),
            np.einsum("ai,ck,zj->aczijk", groups["a"], groups["c"], one[4]).reshape(-1, 24),
        ]
    )
    u, v = rng.standard_normal((2, 5, M.shape[0]))
    u, v = u * margins.free, v * margins.free
    (turned,), _ = margins.moved(v[None])
    agreeing, _ = margins.agreeing(np.stack([u, np.zeros(u.shape)]), np.zeros(u.shape))
    np.testing.assert_allclose(turned @ M, v @ M, atol=1e-12)
    np.testing.assert_allclose((agreeing * v).sum(), (u * turned).sum(), atol=1e-11)
    counts = np.linalg.lstsq(M, agreeing.T, rcond=None)[0]
    np.testing.assert_allclose(M @ counts, agreeing.T, atol=1e-11)
    null = v - np.linalg.lstsq(M.T, (v @ M).T, rcond=None)[0].T  # says nothing of any counts
    np.testing.assert_allclose(margins.moved(null[None])[0][0], 0, atol=1e-11)


@pytest.mark.parametrize("exactly", [False, True], ids=["in areas", "of one place, a cell exact"])
def test_many_tables_are_proved_as_closely_as_few(exactly: bool) -> None:
    """Common margins of many: were these looked at two by two, what roundings leave would double with every table."""
    rng = np.random.default_rng(0)
    schema = Schema({f"v{i}": 2 + i % 2 for i in range(10 if exactly else 8)})
    tables = {" * ".join(pair): float(rng.uniform(1, 9)) for pair in combinations(schema.names, 2)}
    if exactly:
        problem = Problem(schema, tables)
        variances = problem.variances.copy()
        variances[0] = 0.0
        problem = problem.with_variances(variances)
    else:
        problem = Problem(schema, {"Area": {"v0": 1.0}, "Leaf": tables}, areas=Areas(9, {"Area": np.arange(9) // 4}))
    problem = problem.observing()
    y = add_noise(problem, problem.marginal_matrix() @ rng.poisson(90, problem.domain.size).astype(float), rng=1)
    x = blue(problem).estimate(y, certify=False).values
    proof = certify(problem, y, x)
    assert proof.bound is not None, proof
    assert proof.bound < 1e-8
    wrong = x + 1e-3 * blue(problem).matvec(np.sqrt(problem.variances) * rng.standard_normal(x.size))
    assert certify(problem, y, wrong).bound > 1e-4


def test_more_variables_than_an_array_has_axes() -> None:
    names = [f"v{i}" for i in range(66)]
    tables, spine = dict.fromkeys(names, 2.0), Spine([-1, 0, 0], ["US", "State", "State"])
    problem = Problem(Schema(dict.fromkeys(names, 2)), {"US": tables, "State": tables}, spine=spine)
    y = np.random.default_rng(0).normal(100.0, 5.0, problem.observed.size)
    leaf = np.column_stack([np.full(132, 0.5), np.kron(np.eye(66), [[0.5], [-0.5]])])  # of a total and differences
    in_order = np.kron(np.eye(2), leaf).reshape(2, 66, 2, -1).swapaxes(0, 1).reshape(264, -1)
    design = np.vstack([np.hstack([leaf, leaf]), in_order])
    found = estimate(problem, y)
    assert found.values == pytest.approx(design @ np.linalg.lstsq(design, y)[0], rel=1e-12)
    assert found.proof is not None
    assert found.proof.bound < 1e-9


@every("multiplier", [0.0, 1e17])
def test_cells_known_exactly_in_a_table_that_is_not(multiplier: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of such a cell nothing is left to other tables: whatever it is multiplied by, bounds are not below the error."""
    multipliers = known_exactly.KnownExactly._multipliers
    monkeypatch.setattr(
        known_exactly.KnownExactly, "_multipliers", lambda self, rho: multipliers(self, rho) + multiplier
    )
    noise = {
        "a": 0.0,
        "c": 0.0,
        "b": 9.0,
        "b * c": 9.0,
        "a * b": np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 0.5]]),
        "a * c": np.array([[9.0, 100.0], [100.0, 9.0], [100.0, 100.0]]),
    }
    problem, rng = Problem(Schema({"a": 3, "b": 2, "c": 2}), noise), np.random.default_rng(5)
    M, v, noisy = problem.marginal_matrix().toarray(), problem.variances, ~problem.exact
    for _ in range(12):
        y = M @ rng.integers(0, 40, 12) + np.sqrt(v) * rng.standard_normal(v.size)
        best, _ = least_squares(M, v, y, M)
        off = M @ linalg.null_space(M[~noisy]) @ rng.standard_normal(7)
        error = np.linalg.norm(off[noisy] / np.sqrt(v[noisy]))
        bound = certify(problem, y, best + off).bound
        assert bound >= error * (1 - 1e-9)
        assert multiplier or bound <= 1.3 * error


def two_products(leaves: int) -> Problem:
    """Persons by type and by age, in groups of leaves that cross."""
    number = np.arange(leaves)
    first = Problem(
        Schema({"kind": 4, "adult": ["no", "yes"]}),
        {"All": {"total": 0.0}, "Group": {"kind": 2.0}, "Leaf": {"kind * adult": 3.0}},
        {"Group": ["kind"]},
        areas=Areas([f"b{i}" for i in number], {"All": number * 0, "Group": number // 4}),
    )
    fine = Schema({"kind": 4, "sex": 2, "age": list("012345")}, recodes={"age": {"adult": ["no"] * 3 + ["yes"] * 3}})
    second = Problem(
        fine,
        {"Group": {"sex * age": 1.0}, "Leaf": {"sex * age": 5.0, "sex * kind": 4.0}},
        {"Leaf": ["sex"]},
        areas=Areas([f"b{i}" for i in number], {"Group": (number + 2) // 4}),
    )
    return joint(first, second, names=["A", "B"])


@dataclass
class JointAnswer:
    """What is the same however large the errors are that are planted in it."""

    problem: Problem
    y: np.ndarray
    estimate: Estimate
    errors: np.ndarray  # standard errors of observed cells
    spoilt: list[int]  # cells that an error is planted in
    alike: np.ndarray  # a change of all cells that keeps them consistent; 1 standard error where it is largest


@cache
def joint_answer() -> JointAnswer:
    problem, rng = two_products(60), np.random.default_rng(3)
    M = problem.marginal_matrix()
    y = M @ rng.poisson(9, M.shape[1]) + np.sqrt(problem.variances) * rng.standard_normal(problem.observed.size)
    P = blue(problem)
    est, errors = P.estimate(y, certify=True), np.sqrt(P.over_observed.variances())
    cells = np.flatnonzero(errors > 0)
    chosen = [*rng.choice(cells, 20), cells[0]]
    moved = P.over_observed @ (rng.standard_normal(y.size) * (problem.variances > 0))
    alike = M @ lsqr(M, moved, atol=1e-14, btol=1e-14)[0]
    return JointAnswer(problem, y, est, errors, chosen, alike / (abs(alike)[cells] / errors[cells]).max())


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
def test_errors_planted_in_a_joint_answer_are_seen(size: float) -> None:
    own = joint_answer()
    problem, y, est, errors = own.problem, own.y, own.estimate, own.errors
    assert est.proof.bound is not None, est.proof
    assert est.proof.bound < 1e-8
    assert est.info.exact
    for cell in own.spoilt:
        wrong = est.observed.copy()
        wrong[cell] += size * errors[cell]
        proof = certify(problem, y, wrong, est.values)
        assert proof.bound is None or proof.bound >= 0.999 * size
    proof = certify(problem, y, est.observed + size * own.alike)  # of possible counts, and no total of all
    assert proof.bound is not None, proof
    assert proof.bound >= 0.999 * size
    values = est.values.copy()
    values[5] += size * est.std_errors[5]
    proof = certify(problem, y, est.observed, values)
    assert proof.bound is None or proof.bound >= 0.999 * size


def test_what_cannot_be_proved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    recodes = {"b": {"one": [0, 0, 1, 1], "two": [0, 1, 0, 2]}}
    schema = Schema({"a": 2, "b": 4, "c": 3}, recodes=recodes)
    areas = Areas(3, {"All": [0, 0, 0]})
    tables = {"a * one": 1.0, "c * two": 1.0, "a * c": 2.0}
    problem = Problem(schema, {"All": {"total": 1.0}, "Leaf": tables}, areas=areas)
    y = np.ones(problem.observed.size)
    assert "cut 'b' into groups that cross" in certify(problem, y, y).reason
    problem = Problem(schema, {"All": {"b": 1.0}, "Leaf": {"a": 1.0}}, areas=areas)
    y = np.ones(problem.observed.size)
    assert certify(problem, y, y).bound > 0.5  # of leaves no figure of 'b' is claimed, nor needed
    monkeypatch.setattr(holding_tables, "MOST_FREE", 11)
    assert "measured in all leaves holds 'b' of 'All'" in certify(problem, y, y).reason


@pytest.mark.few(2)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("planted", [1e-6, 1e-2])
def test_several_tables_of_a_spine_s_leaves_hold_all(
    known: bool, planted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where geounits nest too, and where branches end higher up; of many of these it says what would prove them."""
    parent = [-1, 0, 0, *[1] * 5, *[2] * 6]
    schema = Schema({"a": 3, "b": 4, "c": 5}, recodes={"b": {"pairs": [0, 0, 1, 1]}})
    leaves = {"a * b": 1.0, "b * c": 2.0, "c": 4.0}
    top = {"total": 0.0 if known else 1.0, "a": 2.0}
    problem = Problem(schema, {"depth 0": top, "depth 1": {"a * pairs": 3.0}, "depth 2": leaves}, spine=Spine(parent))
    rng = np.random.default_rng(0)
    M = problem.marginal_matrix()
    y = add_noise(problem, M @ rng.poisson(9, M.shape[1]).astype(float), rng=0)
    P = blue(problem)
    x = P @ y + P.offset
    assert certify(problem, y, x).bound < 1e-9
    sd = np.sqrt(np.where(problem.exact, 1.0, problem.variances))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        step = P @ (np.sqrt(problem.variances) * rng.standard_normal(y.size))  # tables agree, and the total stays
        size = np.linalg.norm((step / sd)[~problem.exact])
        bound = certify(problem, y, x + step * (planted / size)).bound
        assert 0.999 * planted <= bound <= 30 * planted
        wrong = x.copy()
        wrong[rng.integers(1, x.size)] += planted
        bound = certify(problem, y, wrong).bound
        assert bound is None or bound > planted / 3
    uneven = Problem(schema, {"depth 0": leaves, "depth 1": leaves, "depth 2": leaves}, spine=Spine([*parent, 0]))
    nothing = np.zeros(uneven.observed.size)
    assert certify(uneven, nothing, nothing).bound == 0
    assert certify(uneven, nothing, planted * uneven.marginal_matrix()[:, -1].toarray().ravel()).bound > planted / 30
    monkeypatch.setattr(problem_places_of, "MOST_FREE", 0)
    assert "some branches end above 'depth 2'" in certify(uneven, nothing, nothing).reason
