"""Figures of desired tables are judged with those of the observed ones: what is tabulated loses digits of its own."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from blue_solvers import ConjugateGradient, blue, certify, estimate
from blue_solvers.verification.by_sums import ProblemToProve, certify_by_sums
from blue_solvers.verification.certificate import Certifier
from blue_solvers.verification.problem_places import Claim, claims, holds_all
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from blue_solvers.verification.wide import Separated, certify_wide
from constraint_builders import Areas, Problem, Schema, gallery
from tests.helpers.effort import first_of
from tests.helpers.every import cases, every
from tests.helpers.oracles.exact import Reference, solve
from tests.helpers.oracles.invent import Kind, all_kinds, invent

KINDS = [
    Kind(coefficients="floats", decades=2.0),
    Kind(areas="floats", coefficients="floats", decades=2.0),
    Kind(areas="weights", cellwise=True, decades=2.0),
    *(kind for kind in all_kinds() if kind.count == 20),
]


@dataclass(frozen=True)
class Wanted:
    """An invented problem with the exact answer of its observed and of its desired cells."""

    problem: Problem
    y: np.ndarray
    observed: Reference
    desired: Reference

    def error(self, figures: np.ndarray) -> float:
        """Of the desired figures; see `Reference.error`."""
        return self.desired.error(figures)


def wanted(seed: int, kind: Kind) -> Wanted | None:
    found = invent(seed, kind)
    if found is None or {b.factors for b in found.description.desired} <= {
        b.factors for b in found.description.observed
    }:
        return None
    try:
        problem = found.description.problem()
    except ValueError:
        return None
    own = solve(replace(found.description, desired=found.description.observed), found.y)
    if not own.determined.all():
        return None
    return Wanted(problem, np.where(problem.unmeasured, 0.0, found.y), own, found.reference)


def spoilt(w: Wanted, rng: np.random.Generator, size: float) -> np.ndarray:
    figures = w.desired.estimate.copy()
    known = np.flatnonzero(w.desired.variances == 0)  # half of the time, where there are some
    cell = int(rng.choice(known) if known.size and rng.random() < 0.5 else rng.integers(figures.size))
    figures[cell] += size * (w.desired.std_errors[cell] or 1.0)
    return figures


def bounds(w: Wanted, figures: np.ndarray) -> list[float | None]:
    """By every way there is."""
    made = claims(w.problem, w.observed.estimate, figures)
    found = [certify(w.problem, w.y, w.observed.estimate, figures).bound]
    try:
        if holds_all(w.problem, made) is not None:
            found.append(certify_by_sums(ProblemToProve(w.problem), w.y, w.observed.estimate, made)[0])
    except NotCertifiedError:
        pass
    try:
        noise = WeighedNoise.of(w.problem)
        found.append(certify_wide(w.problem, noise, Separated(w.problem, noise), w.y, w.observed.estimate, made)[0])
    except NotCertifiedError:
        pass
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", first_of(KINDS, 9), ids=str)
def test_right_figures_are_proved_and_wrong_ones_never_pass(kind: Kind) -> None:
    rng, proved, refused = np.random.default_rng(0), 0, 0
    for w in filter(None, (wanted(seed, kind) for seed in range(40))):
        right = certify(w.problem, w.y, w.observed.estimate, w.desired.estimate)
        proved += right.bound is not None and right.bound < (1e-9 if kind.decades < 10 else 1e-6)
        for size in (0.0, 1e-6, 1e-3, 1.0):
            figures = spoilt(w, rng, size)
            for bound in bounds(w, figures):
                assert bound is None or bound * (1 + 1e-6) >= w.error(figures)
                refused += size > 0
    assert proved >= 3
    assert refused > 8


@pytest.mark.parametrize("decades", [0.0, 2.0])
def test_plain_tables_of_which_groups_are_wanted(decades: float) -> None:
    """The way of wide tables, which knows groups of cells too."""
    schema = Schema({"a": 4, "b": 3, "c": 2}, recodes={"a": {"half": [0, 0, 1, 1], "odd": [0, 1, 1, 1]}})
    rng, found = np.random.default_rng(0), []
    v = {name: 10 ** rng.uniform(-decades / 2, decades / 2) for name in ("a * b", "b * c", "a")}
    problem = Problem(schema, v, ["half * b", "odd", "c", "b", "total"])
    P = blue(problem)
    y = P.over_observed @ rng.normal(50, 5, problem.observed.size) + rng.normal(0, 1, problem.observed.size)
    x, values = P.over_observed @ y, P @ y
    noise = WeighedNoise.of(problem)
    family, std_errors = Separated(problem, noise), np.sqrt(P.variances())
    assert certify_wide(problem, noise, family, y, x, claims(problem, x, values))[0] < 1e-12
    for cell in range(values.size):
        wrong = values.copy()
        wrong[cell] += 1e-4 * std_errors[cell]
        found.append(certify_wide(problem, noise, family, y, x, claims(problem, x, wrong))[0])
    assert min(found) >= 0.999e-4
    assert max(found) < 1.01e-4  # with equal variances within tables the least standard errors are the true ones


def test_a_table_that_says_the_same_is_no_claim() -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a * b": 1.0, "a": 1.0}, ["a", "b"])
    x = np.arange(9.0)
    assert [c.table.name for c in claims(problem, x, np.append(x[6:], [1, 2]))] == ["b"]
    assert [c.index for c in claims(problem, x, np.append(x[6:] + 1, [1, 2]))] == [0, 1]
    assert isinstance(claims(problem, x, np.ones(5))[0], Claim)


@cases(
    (np.ones(4), r"desired must have shape \(2,\): got \(4,\)"),
    ([1.0, np.inf], "table 'b', cell \\(b=1\\) of desired is infinite: give a number, or NaN"),
)
def test_what_cannot_be_claimed_is_refused(desired: object, said: str) -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a * b": 1.0, "a": 1.0}, ["b"])
    with pytest.raises(ValueError, match=said):
        certify(problem, np.ones(9), np.ones(9), desired)  # type: ignore[arg-type]


def test_equations_have_no_other_cells() -> None:
    problem = Problem.from_matrix([[1.0, 1, -1]], np.ones(3))
    with pytest.raises(ValueError, match="leave out `desired`"):
        certify(problem, np.ones(3), np.ones(3), np.ones(3))


def test_nothing_is_claimed_where_it_is_nan() -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a * b": 1.0, "a": 1.0}, ["b", "total"])
    y = np.arange(9.0)
    x, values = blue(problem).over_observed @ y, blue(problem) @ y
    values[1] = np.nan
    assert certify(problem, y, x, values).bound < 1e-13
    values[2] += 1
    assert certify(problem, y, x, values).bound > 0.1


@every("desired", [None, ["b", "total"], ["total", "a * b", "a"]])
@every("certify_them", [False, None, True])
def test_an_estimate_certifies_its_own_values(desired: list[str] | None, certify_them: bool | None) -> None:
    """Not refined ones that it does not hold: iterations that ended early are far from proved."""
    schema = Schema({"a": 6, "b": 5})
    rng = np.random.default_rng(0)
    v = {"a * b": 10 ** rng.uniform(-2, 2, (6, 5)), "a": 10 ** rng.uniform(-2, 2, 6), "b": np.ones(5), "total": 2.0}
    problem = Problem(schema, v, desired)
    y = rng.normal(30, 3, problem.observed.size)
    early = ConjugateGradient(rtol=1e-3)
    est = blue(problem, early).estimate(y, certify=certify_them)
    best = blue(problem, "dense") @ y
    off = (abs(est.values - best) / np.sqrt(blue(problem, "dense").variances())).max()
    proof = est.certificate()
    assert proof.bound >= off * (1 - 1e-6)
    if certify_them is False:
        assert off > 1e-6
        assert est.proof is None
    if desired is None:
        assert proof == certify(problem, y, est.values)
    assert replace(est, proof=None).certificate() == proof or certify_them


def test_values_that_were_changed_afterwards_are_not_proved() -> None:
    problem = gallery.berkeley()
    wanted_tables = Problem(Schema({"a": 3, "b": 2}), {"a * b": 1.0, "a": 1.0}, ["b", "total"])
    for own in (problem, wanted_tables):
        est = estimate(own, np.arange(float(own.observed.size)))
        moved = est.values.copy()
        moved[0] += 1e-3
        assert est.certificate().bound < 1e-12
        assert replace(est, values=moved, proof=None).certificate().bound > 1e-4


def test_what_tabulating_loses_is_in_the_proof_of_an_estimate() -> None:
    """A small standard error of a sum of cells whose own are large: proved through the observed tables it was not."""
    for seed in range(5050, 5080):
        w = wanted(seed, all_kinds()[16])
        if w is None:
            continue
        for solver in ("cg", "multigrid", "auto"):
            try:
                est = estimate(w.problem, w.y, solver)
            except (ValueError, RuntimeError):
                continue
            if est.proof.bound is not None:
                assert est.proof.bound * (1 + 1e-6) >= w.error(est.values)
                assert est.proof == Certifier(w.problem).closest(w.y, est.observed, est.values)


def test_nothing_is_said_of_geounits_that_nested_areas_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two regions one has a table: the other's is of no spine that is made of them, whatever it would hold."""
    monkeypatch.setattr("blue_solvers.verification.certificate.MOST_LISTED", 0)
    areas = Areas(6, {"Region": [0, 0, 0, 1, 1, 1], "Some": [[1, 1, 1, 0, 0, 0]]})
    observed = {"Region": {"total": 1.0}, "Some": {"detailed": 2.0}, "Leaf": {"detailed": 3.0}}
    problem = Problem(Schema({"a": 2}), observed, {"Some": ["a"], "Leaf": ["a"]}, areas=areas)
    assert problem.tree.problem.observed.size > problem.observed.size
    P = blue(problem, "dense")
    for seed in range(5):
        y = np.random.default_rng(seed).normal(30, 3, problem.observed.size)
        x, wanted = P.over_observed @ y, P @ y
        assert certify(problem, y, x).bound < 1e-10
        assert certify(problem, y, x, wanted).bound < 1e-10
        for cell in range(wanted.size):
            off = wanted + np.eye(wanted.size)[cell]
            assert certify(problem, y, x, off).bound > 0.9 / np.sqrt(P.variances()[cell])
