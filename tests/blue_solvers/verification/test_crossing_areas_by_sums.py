"""Certificates of areas that cross, by sums over leaves: proved where right, and never below what is so."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blue_solvers import blue
from blue_solvers.errors import UnsupportedProblemError
from blue_solvers.verification import certificate, certify
from blue_solvers.verification.known_exactly import LeafSums
from blue_solvers.verification.problem_places import claims, problem_places
from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Areas, Problem, Schema
from tests.helpers.effort import examples
from tests.helpers.oracles.invent import Invented, Kind, taken

KINDS = {
    "equal variances": Kind(areas="weights", zeros=False, equalities=False, exact=False, unmeasured=False, decades=2.0),
    "what is known exactly": Kind(areas="weights", unmeasured=False, decades=2.0),
    "a variance for every cell": Kind(areas="sets", cellwise=True, unmeasured=False, decades=2.0),
    "low-rank correlated noise": Kind(
        areas="sets", covariance="shared", zeros=False, equalities=False, unmeasured=False
    ),
}


@pytest.fixture(autouse=True)
def nothing_is_listed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "MOST_LISTED", 0)
        yield


def crossing(seed: int, kind: Kind) -> tuple[Invented, Problem]:
    """The first problem of areas that do not nest, whose tables are held by one of the leaves, and which is solved."""
    for found, problem in taken(range(seed, seed + 400), kind):
        with suppress(NotCertifiedError, UnsupportedProblemError):
            if problem.tree is None and len(problem_places(problem).levels[-1].tables) == 1:
                blue(problem.observing()) @ found.y  # one in thousands is refused: rounding of weights would decide
                return found, problem
    raise AssertionError("no invention crosses")


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@examples(30, 5)
@given(seed=st.integers(0, 50_000))
def test_right_answers_are_proved(kind: Kind, seed: int) -> None:
    found, problem = crossing(seed, kind)
    own = blue(problem.observing())
    proof = certify(problem, found.y, own @ found.y + own.offset, blue(problem).estimate(found.y).values)
    assert proof.bound is not None, proof
    assert proof.bound < 1e-6


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@examples(30, 5)
@given(seed=st.integers(0, 50_000))
@example(seed=855)  # which begins at one that is refused
@example(seed=384)  # figures that are 0 by what the areas are, with nothing known exactly
@example(seed=2341)
def test_no_figure_is_further_off_than_the_bound(kind: Kind, seed: int) -> None:
    """Of answers that are the best of other measurements, so that they agree, and of those that do not."""
    found, problem = crossing(seed, kind)
    own, rng = blue(problem.observing()), np.random.default_rng(seed)
    best = own @ found.y + own.offset
    errors = np.sqrt(own.variances())
    noisy = (problem.variances > 0).astype(float)
    agrees = own @ (found.y + rng.standard_normal(best.size) * np.sqrt(problem.variances)) + own.offset
    broken = best + noisy * np.sqrt(problem.variances) * rng.standard_normal(best.size) * (errors > 0)
    for wrong in (agrees, broken):
        proof = certify(problem, found.y, wrong)
        if proof.bound is None:
            continue
        off = abs(wrong - best)[errors > 0] / errors[errors > 0]
        assert off.max(initial=0.0) <= proof.bound * (1 + 1e-6) + 1e-9


@examples(20, 4)
@given(seed=st.integers(0, 50_000))
def test_sums_are_those_of_the_matrix(seed: int) -> None:
    """And shares those of its transpose, where the finest table is that of all variables."""
    kind = KINDS["equal variances"]
    for s in range(seed, seed + 100):
        found, problem = crossing(s, kind)
        if problem_places(problem).levels[-1].tables[0].factors == problem.domain.schema.names:
            break
    rng, M = np.random.default_rng(seed), problem.marginal_matrix().toarray()
    made = claims(problem, found.y, np.zeros(problem.desired.size))
    sums = LeafSums(problem_places(problem, made), found.y.size)
    d, v = rng.standard_normal(sums.size), rng.standard_normal(problem.observed.size)
    np.testing.assert_allclose(sums.figures_of(d)[: v.size], M @ d, atol=1e-11)
    np.testing.assert_allclose(sums.shares_of(v), M.T @ v, atol=1e-11)
    np.testing.assert_allclose(sums.figures_of(d, power=2)[: v.size], M**2 @ d, atol=1e-11)


@pytest.mark.few(0)
def test_a_crossing_whose_counts_are_too_many_to_list_is_proved() -> None:
    """Regions by products, the total of all known exactly; a wrong answer is seen."""
    rng = np.random.default_rng(5)
    layers = {"All": np.zeros(600, dtype=int), "Region": rng.integers(0, 20, 600), "Product": rng.integers(0, 20, 600)}
    observed = {
        "All": {"total": 0.0},
        "Region": {"a": 1.0},
        "Product": {"b": 1.0, "a * b": 3.0},
        "Leaf": {"detailed": 2.0},
    }
    problem = Problem(Schema({"a": 20, "b": 30}), observed, {"Leaf": ["a"], "Region": ["b"]}, areas=Areas(600, layers))
    nothing = np.zeros(problem.observed.size)
    truth = LeafSums(problem_places(problem), nothing.size).figures_of(rng.poisson(9, 360_000).astype(float))
    y = truth + np.sqrt(problem.variances) * rng.standard_normal(truth.size)
    own = blue(problem.observing())
    x, desired = own @ y, blue(problem) @ y
    proof = certify(problem, y, x, desired)
    assert proof.bound is not None, proof
    assert proof.bound < 1e-6
    wrong = x.copy()
    wrong[1] += 1e-2
    assert certify(problem, y, wrong).bound > 1e-3
    wrong[-2:] += 1e-2, -1e-2  # the total of all stays as it is known
    assert certify(problem, y, wrong).bound > 1e-3
    wrong[-1] += 1e-2
    assert "known exactly" in certify(problem, y, wrong).reason
    wrong = desired.copy()
    wrong[7] += 1e-2
    assert certify(problem, y, x, wrong).bound > 1e-3
    wrong = x.copy()
    wrong[0] += 1
    assert "known exactly" in certify(problem, y, wrong).reason
