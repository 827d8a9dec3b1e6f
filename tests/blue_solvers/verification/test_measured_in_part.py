"""Certificates by sums where tables were measured in part, or not at all in leaves, beside answers to 600 bits."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import blue, estimate
from blue_solvers.verification import certificate, certify, chosen_sums
from blue_solvers.verification.by_sums import ProblemToProve, certify_by_sums
from blue_solvers.verification.certificate import Certifier
from blue_solvers.verification.chosen_sums import ChosenSums
from blue_solvers.verification.free_cells import FreeCells
from constraint_builders import Areas, Problem, Schema, Spine
from noise_mechanisms import add_noise
from tests.blue_solvers.verification.answers import Case
from tests.helpers.effort import examples, lengths
from tests.helpers.every import every
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.exact import solve
from tests.helpers.oracles.invent import Kind, taken

KINDS = {
    "spines": Kind(decades=2.0),
    "one place": Kind(spine=False, decades=2.0, cellwise=True),
    "areas": Kind(areas="sets", decades=2.0, equalities=False),
    "weights": Kind(areas="weights", decades=2.0, cellwise=True, equalities=False),
    "areas in areas": Kind(areas="cut", decades=6.0, equalities=False),
    "equalities in areas": Kind(areas="sets", decades=2.0),
    "noise that is shared": Kind(areas="sets", covariance="shared", zeros=False, equalities=False),
}
OUT_OF_REACH = ("groups that cross", "exactly that do not nest")


@pytest.fixture(autouse=True)
def nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    monkeypatch.setattr(certificate, "can_be_listed", lambda problem, made: False)


class PartlyMeasured(Case):
    """One of which not all was measured."""

    @property
    def right(self) -> np.ndarray:
        """The best estimate, NaN where nothing determines it."""
        return np.where(self.reference.determined, self.reference.estimate, np.nan)

    def error(self, x: np.ndarray) -> float:
        """The largest error of figures of which the measurements tell anything."""
        known = self.reference.determined & np.isfinite(x)
        own = {name: values[known] for name, values in vars(self.reference).items() if np.ndim(values)}
        return replace(self.reference, **own).error(x[known])


def in_part(described: Description) -> bool:
    """Whether cells of tables were not measured."""
    return bool(np.isinf(described.variances).any())


def problems(kind: Kind, seed: int) -> Iterator[PartlyMeasured]:
    """Those of seeds from one on."""
    for found, problem in taken(range(seed, seed + 100_000), kind, in_part):
        with suppress(ValueError):
            reference = solve(replace(found.description, desired=found.description.observed), found.y)
            yield PartlyMeasured(found.description, problem, np.where(problem.unmeasured, 0.0, found.y), reference)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@examples(40, 5)
@given(seed=st.integers(0, 10**6))
def test_bounds_are_never_below_the_error(kind: Kind, seed: int) -> None:
    """Of the best answer with what was not measured and without, of others that agree, and of spoilt ones."""
    case, rng = next(problems(kind, seed)), np.random.default_rng(seed)
    M, free = case.description.marginal_matrix(), ~case.description.empty_cells()
    measured = np.where(case.problem.unmeasured, np.nan, 0.0)
    for size in (0.0, 1e-7, 1e-2, 10.0):
        along = M @ (size * rng.standard_normal(M.shape[1]) * (rng.random(M.shape[1]) < 0.3) * free)
        spoilt = np.where(np.arange(along.size) == rng.integers(along.size), size, 0.0)
        for wrong in (case.right + along, case.right + spoilt):
            for x in (wrong, wrong + measured):
                if np.isnan(x[~case.problem.unmeasured]).any():
                    continue  # what was measured tells nothing but of itself
                proof = certify(case.problem, case.y, x)
                if proof.bound is not None:
                    assert proof.bound * (1 + 1e-6) + 1e-11 >= case.error(x)


@every("kind", ["areas", "weights", "noise that is shared"])
def test_bounds_say_little_more_than_the_error(kind: str) -> None:
    """Sums take what an answer leaves in cells that were not measured."""
    ratios = []
    for seed in range(0, 300, 20):
        case = next(problems(KINDS[kind], seed))
        M, free = case.description.marginal_matrix(), ~case.description.empty_cells()
        x = case.right + M @ (1e-2 * np.random.default_rng(seed).standard_normal(M.shape[1]) * free)
        for silent in (0.0, np.where(case.problem.unmeasured, np.nan, 0.0)):
            if np.isfinite((x + silent)[~case.problem.unmeasured]).all():
                bound, error = certify(case.problem, case.y, x + silent).bound, case.error(x + silent)
                ratios += [bound / error] if bound is not None and error > 1e-6 else []
    assert len(ratios) > 5
    assert np.median(ratios) < 2.5


@lengths("count", 12, 500)
def test_nearly_all_right_answers_are_proved(count: int) -> None:
    """At least 97 of 100, but of those known to be out of reach; refusals say what it is about."""
    found, refusals = Counter[str](), list[str]()
    for number, (name, kind) in enumerate(KINDS.items()):
        for _, case in zip(range(count), problems(kind, 10**6 * number), strict=False):
            proof = Certifier(case.problem).closest(case.y, case.right)
            if proof.bound is None and any(words in proof.reason for words in OUT_OF_REACH):
                continue
            is_proved = proof.bound is not None and proof.bound <= 1e-8
            found[name] += 1
            refusals += [] if is_proved else [f"{name}: {proof}"]
    assert found.total() >= count * len(KINDS) * 0.8
    assert len(refusals) <= 0.03 * found.total(), (found, refusals)


@pytest.mark.parametrize("kind", ["spines", "equalities in areas"])
def test_equalities_tell_cells_that_were_not_measured(kind: str) -> None:
    """Also where no sums tell these apart, and where nothing is claimed of them."""
    proved = 0
    for case in islice(problems(KINDS[kind], 2 * 10**6), 60):
        if case.description.equalities is None:
            continue
        proof = Certifier(case.problem).closest(case.y, case.right)
        if proof.bound is None:
            assert any(words in proof.reason for words in OUT_OF_REACH), proof
            continue
        assert proof.bound < 1e-9
        proved += 1
    assert proved >= 15


def test_cells_that_are_not_claimed_are_found_beside_a_table_that_is_known_exactly() -> None:
    """Of a branch that ends above others, where two tables hold all others, the first of them exactly."""
    observed = {"S": {"a": 1.0, "b": 1.0}, "C": {"b": 0.0}, "B": {"a": 1.0, "b": 0.0}}
    spine = Spine([-1, 0, 0, 2], ["S", "C", "C", "B"])
    problem = Problem(Schema({"a": 2, "b": 3}), observed, spine=spine).observing()
    M = problem.marginal_matrix()
    y = add_noise(problem, M @ np.arange(1.0, M.shape[1] + 1), rng=0)
    P = blue(problem)
    x = P @ y + P.offset
    assert certify(problem, y, x).bound < 1e-11
    wrong = x.copy()
    wrong[problem.observed.slice(("S", "a"))] += [1e-3, -1e-3]
    assert certify(problem, y, wrong).bound > 1e-3 / np.sqrt(P.variances().max())


def suppressed(rng: np.random.Generator, leaves: int = 300) -> tuple[Problem, np.ndarray]:
    """Cars and totals of leaves, some of which are not said, in areas that cross; and figures of these."""
    schema = Schema({"cars": 5})
    layers = {name: rng.integers(0, count, leaves) for name, count in (("Town", 40), ("Region", 6))}
    observed = {}
    for name, count in (("Town", 40), ("Region", 6), ("Leaf", leaves)):
        cars = np.full((count, 5), 2.0)
        cars[rng.random(cars.shape) < (0.1 if name == "Leaf" else 0.02)] = np.inf
        cars[rng.random(count) < (0.02 if name == "Leaf" else 0.0)] = np.inf
        observed[name] = {"cars": cars, "total": 2.0}
    problem = Problem(schema, observed, areas=Areas(leaves, layers), undetermined="nan")
    counts = rng.poisson(20, leaves * 5).astype(float)
    return problem, np.where(problem.unmeasured, 0.0, add_noise(problem, problem.marginal_matrix() @ counts, rng=rng))


@pytest.mark.parametrize("seed", range(3))
def test_suppressed_counts_in_areas_that_cross_are_proved(seed: int) -> None:
    problem, y = suppressed(np.random.default_rng(seed))
    est = estimate(problem, y)
    assert est.certificate().bound < 1e-9
    P = blue(problem)
    wrong = est.values.copy()
    cell = int(np.flatnonzero(np.isfinite(wrong) & (est.std_errors > 0))[seed])
    wrong[cell] += 1e-2 * est.std_errors[cell]
    assert 0.0099 < P.certificate(y, wrong).bound < 1.0


@pytest.mark.parametrize("areas", [None, Areas(3, {"All": [0, 0, 0], "Two": [0, 1, 1]})], ids=["one place", "areas"])
def test_equalities_say_nothing_of_cells_that_no_sums_tell_apart(areas: Areas | None) -> None:
    """Of three cells of which one is known and only the sum was measured another may be anything, but not the sum."""
    schema, equal = Schema({"a": 3}), np.zeros((1, 4 if areas is None else 12))
    equal[0, 1 if areas is None else 3] = 1.0
    if areas is None:
        problem = Problem(schema, {"total": 1.0, "a": np.full(3, np.inf)}, ["total"], equalities=(equal, [5.0]))
    else:
        tables = {"All": {"total": 1.0}, "Two": {"total": 1.0}, "Leaf": {"a": np.full((3, 3), np.inf)}}
        problem = Problem(schema, tables, {"All": ["total"]}, areas=areas, equalities=(equal, [5.0]))
    M = problem.marginal_matrix()
    counts = np.arange(1.0, M.shape[1] + 1)
    counts[0] = 5.0
    y = np.where(problem.unmeasured, 0.0, M @ counts)
    assert certify(problem, y, M @ counts).bound < 1e-14
    counts[1] += 2
    assert certify(problem, y, M @ counts).bound > 1.99


def test_answers_that_say_nothing_of_other_cells_are_proved_by_other_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept of an answer is of no use to one that is silent elsewhere."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    problem, y = suppressed(np.random.default_rng(0))
    right, again = blue(problem).estimate(y, certify=False).values, Certifier(problem)
    lost = np.flatnonzero(problem.unmeasured)
    silent = [np.where(np.isin(np.arange(y.size), lost[i::3]), np.nan, right) for i in (0, 1, 2, 1, 0)]
    proofs = [Certifier(problem).certify(y, x).bound for x in silent]
    assert max(proofs) < 1e-9
    assert [again.certify(y, x).bound for x in silent] == pytest.approx(proofs, rel=1e-3)


def test_answers_of_another_thread_take_nothing_from_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another answer's cells are kept in the place of a proof's own before it has looked at these."""
    monkeypatch.setattr(certificate, "MOST_LISTED", 0)
    problem, y = suppressed(np.random.default_rng(0))
    right = blue(problem).estimate(y, certify=False).values
    silent = np.where(problem.unmeasured & (np.arange(y.size) % 3 > 0), np.nan, right)

    def replaced(free: FreeCells, name: str, value: object) -> None:
        object.__setattr__(free, name, ((), None) if name == "_of_claims" else value)

    monkeypatch.setattr(FreeCells, "__setattr__", replaced)
    assert Certifier(problem).certify(y, silent).bound < 1e-9


def test_an_equality_in_which_a_cell_cancels_says_nothing_of_it() -> None:
    """The total less the first of three cells, of which only the others were measured."""
    problem = Problem(
        Schema({"a": 3}),
        {"total": np.inf, "a": [np.inf, 1.0, 1.0]},
        {"a": None},
        equalities=([[1.0, -1.0, 0.0, 0.0]], [5.0]),
        undetermined="nan",
    )
    y, right, wrong = np.array([[0.0, 0.0, 2.0, 4.0], [12.0, 7.0, 1.5, 3.5], [12.0, 7.0, 2.0, 3.0]])
    assert certify_by_sums(ProblemToProve(problem), y, right)[0] < 1e-14
    assert 0.7 < certify_by_sums(ProblemToProve(problem), y, wrong)[0] < 1.5


def test_a_cell_that_nothing_holds_leaves_the_others_provable() -> None:
    problem = Problem(Schema({"a": 2}), {"a": [np.inf, 1.0]}, undetermined="nan")
    assert certify_by_sums(ProblemToProve(problem), np.array([0.0, 2.0]), np.array([7.0, 2.0]))[0] < 1e-14
    assert 0.9 < certify_by_sums(ProblemToProve(problem), np.array([0.0, 2.0]), np.array([7.0, 3.0]))[0] < 1.1


def test_what_no_sums_determine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sums of pairs of three cells, which go in a circle, where none may be solved for together."""
    detailed = np.array([[np.inf], [np.inf], [np.inf], [1.0]])
    layers = {"One": [0, 0, 1, 1], "Two": [1, 0, 0, 1], "Three": [0, 1, 0, 1]}
    tables = {name: {"detailed": np.array([[1.0], [np.inf]])} for name in layers}
    problem = Problem(Schema({"a": 1}), {**tables, "Leaf": {"detailed": detailed}}, areas=Areas(4, layers))
    y = np.where(problem.unmeasured, 0.0, np.arange(1.0, problem.observed.size + 1))
    P = blue(problem)
    assert P.estimate(y).certificate().bound < 1e-12
    monkeypatch.setattr(chosen_sums, "MOST_TOGETHER", 2)
    reason = certify(problem, y, P.over_observed.estimate(y, certify=False).values + 1e-3 * ~problem.unmeasured).reason
    assert "3 cells of 'detailed' in places of 'Leaf', the first in number 0, were not measured" in reason


@examples(200, 40)
@given(seed=st.integers(0, 10**6))
def test_sums_take_what_they_say_of_cells(seed: int) -> None:
    """Whatever sums say of cells they take, at the cost that is said at most; and cells follow from their sums."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 9, 2)
    holds = rng.choice([0.0, 1.0, 1.0, -1.0, 2.0], shape) * (rng.random(shape) < rng.choice([0.2, 0.5, 0.9]))
    holds = holds[:, rng.integers(0, shape[1], shape[1])]  # some alike
    squares = 10 ** rng.uniform(-3, 3, shape[0])
    nothing = np.zeros(shape[0], dtype=bool), np.zeros(shape[1], dtype=bool)
    own = ChosenSums(sparse.csr_array(holds), squares, rng.integers(0, 3, shape[0]), *nothing)
    told = np.isfinite(own.cost)
    assert (told | ~holds.any(axis=0)).all()
    said = holds.T @ rng.standard_normal(shape[0])
    taken = own.amounts(said)
    np.testing.assert_allclose(holds.T @ taken, said, atol=1e-9)
    assert np.sqrt(squares @ taken**2) <= (abs(said) @ np.where(told, own.cost, 0.0)) * (1 + 1e-9) + 1e-12
    sums = holds @ rng.standard_normal(shape[1])
    cells = own.solved(sums)
    assert (np.isfinite(cells) == told).all()
    np.testing.assert_allclose(holds @ np.where(told, cells, 0.0), sums, atol=1e-9)


def test_leaves_of_which_no_sum_speaks_are_told_apart() -> None:
    """One of three leaves is measured; the others lie in no table at all."""
    spine = Spine([-1, 0, 0, 1], ["State", "County", "County", "Block"], ["s", "c", "d", "b"])
    problem = Problem(Schema({"a": 2, "b": 4}), {"Block": {"total": 2.0}}, spine=spine)
    found = estimate(problem, np.array([3.0]))
    assert found.info.error_bound == 0
    assert found.tables["Block", "total"].ravel().tolist() == [3.0]
