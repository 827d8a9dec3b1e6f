"""Variances between proved numbers: the true one is always between, and nearly always pinned down."""

from dataclasses import replace
from fractions import Fraction
from itertools import chain, product
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import blue
from blue_solvers.uncertainty import proved_variances
from blue_solvers.verification import certify_variances
from blue_solvers.verification.variance_bounds import bounds_at_once, unit_noise
from constraint_builders import Areas, Problem, Schema, Spine, gallery
from tests.helpers.effort import first_of, lengths
from tests.helpers.every import cases, every
from tests.helpers.oracles.invent import Kind, Size, all_kinds, invent, taken

KINDS = sorted((kind for kind in all_kinds() if kind.count == 20), key=lambda kind: kind.decades % 12)
ROOM = 1e-15  # of the reference's own rounding


def require_between(bounds: Any, true: np.ndarray, said: Any = None) -> None:
    assert (bounds.lower <= true * (1 + ROOM)).all(), said
    assert (true * (1 - ROOM) <= bounds.upper).all(), said


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", first_of(KINDS, 4), ids=str)
def test_the_true_variance_is_between(kind: Kind) -> None:
    """Recodes, spines, zeros, equalities, exact and unmeasured cells, every covariance, in exact arithmetic."""
    tried = proved = 0
    for number, (found, problem) in enumerate(taken(range(300, 310), kind)):
        P = blue(problem)
        cells = np.random.default_rng(number).permutation(P.shape[0])[:4]
        bounds = proved_variances(P, cells)
        require_between(bounds, found.reference.variances[cells])
        tried, proved = tried + cells.size, proved + int(bounds.proved.sum())
    assert tried > 20
    assert proved > (0.95 if kind.decades < 10 else 0.85) * tried


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0])
@lengths("seeds", 12, 24)
def test_no_column_that_is_wrong_excludes_the_true_variance(seeds: int, size: float) -> None:
    rng, tried = np.random.default_rng(0), 0
    posed = (taken([seed], replace(KINDS[seed % 8], unmeasured=False)) for seed in range(seeds))
    for found, problem in chain.from_iterable(posed):
        P = blue(problem)
        cell = int(rng.integers(P.shape[0]))
        true = found.reference.variances[cell]
        observed = P.over_observed @ unit_noise(P.problem, [cell])
        x = P.problem.tabulate(observed) if P.problem.desired is not P.problem.observed else observed
        moved = P.over_observed @ rng.standard_normal(observed.shape)
        moved *= size * true / max(abs(moved).max(), 1e-300)
        same = P.problem.desired is P.problem.observed
        consistent = x + (moved if same else P.problem.tabulate(moved))
        spoilt = x.copy()
        spoilt[cell] *= 1 + size
        for wrong, with_it in ((consistent, observed + moved), (spoilt, spoilt if same else observed)):
            bounds = certify_variances(P.problem, [cell], wrong, None if same else with_it)
            require_between(bounds, true)
            off = abs(wrong[cell, 0] - true) / true if true else 0.0
            assert off <= 1e-7 or not bounds.proved[0] or bounds.upper[0] == 0
            tried += 1
    assert tried > 0.8 * seeds


@every(
    "problem",
    [
        Problem.from_matrix([[1.0, 1, -1, 0], [0, 0, 1, -2]], [1.0, 2.0, 4.0, 1.0], b=[0.0, 3.0]),
        Problem.from_summing_matrix([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [1.0, 2, 3, 4, 5]),
        Problem.from_matrix([[1.0, 1, -1]], sparse.csr_array(np.array([[2.0, 1, 0], [1, 2, 0.5], [0, 0.5, 1]]))),
    ],
)
def test_equations_and_sums(problem: Problem) -> None:
    n = problem.observed.size
    A, S = problem.constraint_matrix().toarray(), problem.noise_covariance @ np.eye(n)
    true = np.diag(S - S @ A.T @ np.linalg.solve(A @ S @ A.T, A @ S))
    bounds = proved_variances(problem, range(n))
    assert bounds.proved.all()
    np.testing.assert_allclose(bounds.lower, true, rtol=1e-9)
    np.testing.assert_allclose(bounds.upper, true, rtol=1e-9)


@every("problem", [gallery.cube(5, 5), gallery.adult(2), gallery.pl94()])
def test_large_tables(problem: Problem) -> None:
    P = blue(problem)
    cells = np.linspace(0, P.shape[0] - 1, 5).astype(int)
    bounds, closed = proved_variances(P, cells), P.variances()[cells]
    assert bounds.proved.all()
    assert (bounds.lower <= closed * (1 + 1e-12)).all()
    assert (closed * (1 - 1e-12) <= bounds.upper).all()


def test_what_is_known_exactly_has_no_variance() -> None:
    """Also a cell that follows from what is known, though it was measured with noise."""
    problem = Problem(Schema({"a": 2, "b": 2}), {"a": [0.0, 1.0], "total": 0.0, "a * b": 4.0})
    bounds = proved_variances(problem, [0, 1, 2, 3])
    np.testing.assert_array_equal(bounds.upper[:3], 0)
    assert bounds.proved.all()
    assert bounds.lower[3] == pytest.approx(2)
    assert bounds.reasons[0] == "it is known exactly: it follows from what is"


def columns_of(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """All columns of the covariance, of the desired cells and of the observed ones, by dense algebra."""
    M, E = problem.marginal_matrix().toarray(), np.asarray(problem.tabulate(np.eye(problem.observed.size)))
    spread = np.where(problem.unmeasured, np.inf, problem.variances)
    covariance = M @ np.linalg.pinv((M.T / spread) @ M) @ M.T
    return E @ covariance @ E.T, covariance @ E.T


def test_what_was_not_measured_says_so() -> None:
    """By columns, which are those of sums of measured cells; counts say what it is all the same."""
    problem = Problem(Schema({"a": 2, "b": 2}), {"a * b": [[1.0, 1], [1, np.inf]], "total": 2.0})
    columns, observed = columns_of(problem)
    bounds = certify_variances(problem, [0, 3], columns[:, [0, 3]], observed[:, [0, 3]])
    assert bounds.proved.tolist() == [True, False]
    assert bounds.upper[1] == np.inf
    assert str(bounds) == (
        "proved of 1 of 2 variances to 1e-07 of themselves; not of cell 3: it is no sum of cells that were measured"
    )
    both = proved_variances(problem, [0, 3])
    assert both.proved.all()
    np.testing.assert_allclose(both.lower, [1, 5], rtol=1e-12)


def test_a_heuristic_is_not_proved() -> None:
    v = {"a * b": np.arange(1.0, 13).reshape(4, 3), "a": 1.0, "b": [1.0, 9, 4]}
    problem = Problem(Schema({"a": 4, "b": 3}), v)
    bounds = proved_variances(blue(problem, "sea_blue"), range(5))
    best = blue(problem).variances()[:5]
    assert (bounds.lower <= best).all()
    assert (best <= bounds.upper).all()


def test_a_sum_of_halves_is_no_sum_of_measured_cells() -> None:
    """Three leaves of which every two were measured together: the total is half of all three sums."""
    pairs = Areas(3, {"All": [0, 0, 0], "Pair": np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])})
    problem = Problem(Schema({"a": 1}), {"Pair": {"total": 1.0}}, {"All": ["total"]}, areas=pairs)
    bounds = certify_variances(problem, [0], [[0.75]], [[0.5], [0.5], [0.5]])
    assert bounds.reasons == ("it is no sum of cells that were measured",)
    assert (bounds.lower[0], bounds.upper[0]) == (0.0, np.inf)
    by_counts = proved_variances(problem, [0])
    assert by_counts.lower[0] <= 0.75 <= by_counts.upper[0]
    assert by_counts.proved.all()


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", first_of(KINDS, 4), ids=str)
def test_all_variances_at_once_are_between(kind: Kind) -> None:
    """Those of every cell beside exact arithmetic; the few that are not all proved go by columns."""
    tried = proved = 0
    for found, problem in taken(range(400, 412), kind):
        tried += 1
        bounds = bounds_at_once(problem, np.arange(problem.desired.size))
        if bounds is None:
            continue
        proved += 1
        require_between(bounds, found.reference.variances)
    assert tried > 4
    assert proved > (0.7 if kind.decades < 10 else 0.3) * tried


@pytest.mark.parametrize("sizes", [(3, 4, 2), (2, 3, 2, 2)])
def test_plain_tables_of_one_place_have_variances_in_closed_form(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside dense algebra, of tables of groups too; of unequal variances bounds that say nothing are not given."""
    monkeypatch.setattr("blue_solvers.verification.variance_bounds.can_be_listed", lambda *_: False)
    rng, names = np.random.default_rng(0), [f"v{i}" for i in range(len(sizes))]
    schema = Schema(dict(zip(names, sizes, strict=True)), recodes={"v1": {"g": [0, *[1] * (sizes[1] - 1)]}})
    observed = {"v0 * v1": 2.0, "v1 * v2": 0.5, "total": 7.0, "v2": 3.0}
    for total in (7.0, 0.0):
        problem = Problem(schema, observed | {"total": total}, ["v0", "g * v2", "v2 * v1", "total", "v0 * g"])
        M = Problem(schema, observed).marginal_matrix().toarray()
        free = np.eye(M.shape[1]) - (total == 0) / M.shape[1]  # what changes nothing that is known exactly
        weights = 1 / np.repeat([2.0, 0.5, total or 1.0, 3.0], [sizes[0] * sizes[1], sizes[1] * sizes[2], 1, sizes[2]])
        wanted = Problem(schema, dict.fromkeys(problem.desired.names, 1.0)).marginal_matrix().toarray()
        M, wanted = M @ free, wanted @ free
        true = np.einsum(
            "ij,jk,ik->i", wanted, np.linalg.pinv((M.T * weights) @ M, rcond=1e-12, hermitian=True), wanted
        )
        bounds = bounds_at_once(problem, np.arange(problem.desired.size))
        np.testing.assert_allclose(bounds.lower, true, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(bounds.upper, true, rtol=1e-9, atol=1e-11)
    uneven = Problem(schema, observed | {"v2": rng.uniform(1, 9, sizes[2])})
    assert bounds_at_once(uneven, np.arange(uneven.desired.size)) is None


@lengths("seeds", 25, 60)
def test_plain_tables_on_a_spine_have_variances_in_closed_form(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside exact arithmetic: variances by geounit, exact and unmeasured ones, branches of any length, small noise."""
    monkeypatch.setattr("blue_solvers.verification.variance_bounds.can_be_listed", lambda *_: False)
    tried = closed = 0
    for seed, decades in product(range(seeds), (2.0, 8.0)):
        kind = Kind(recodes=False, zeros=False, equalities=False, decades=decades, size=Size(rows=200, columns=200))
        found = invent(seed, kind, lambda described: described.parent is not None)
        problem = found and found.description.problem()
        if not problem or problem.undetermined is not None:
            continue
        tried += 1
        bounds = bounds_at_once(problem, np.arange(problem.desired.size))
        if bounds is None:
            continue
        closed += 1
        require_between(bounds, found.reference.variances, (seed, decades))
        np.testing.assert_allclose(bounds.upper, bounds.lower, rtol=1e-10)
    assert tried > 5 * seeds / 6
    assert closed > 0.95 * tried


def test_sums_on_a_tree_have_variances_in_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where leaves are too many to be listed, beside the inverse of their information."""
    monkeypatch.setattr("blue_solvers.verification.variance_bounds.can_be_listed", lambda *_: False)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        group = rng.integers(4, size=12)
        S = np.concatenate([np.ones((1, 12)), np.arange(4)[:, None] == group, np.arange(2)[:, None] == group // 2])
        S = np.concatenate([S, np.eye(12)])
        S = S[S.any(axis=1)]
        variances = 10 ** rng.uniform(-3, 3, len(S))
        bounds = bounds_at_once(Problem.from_summing_matrix(S, variances), np.arange(len(S)))
        true = np.diag(S @ np.linalg.inv((S.T / variances) @ S) @ S.T)
        np.testing.assert_allclose(bounds.lower, true, rtol=1e-9)
        np.testing.assert_allclose(bounds.upper, true, rtol=1e-9)


def test_variances_beside_cells_that_nothing_determines_are_proved() -> None:
    """On a spine these refused all others: of b, which the counties' totals tell, too."""
    spine = Spine([-1, 0, 0], ["S", "C", "C"])
    observed = {"S": {"a * b": np.array([[[1, np.inf], [1, np.inf]]])}, "C": {"total": 0.5}}
    desired = {"S": ["a", "b"], "C": ["total"]}
    problem = Problem(Schema({"a": 2, "b": 2}), observed, desired, spine=spine, undetermined="nan")
    assert problem.undetermined is not None
    bounds = proved_variances(problem, np.flatnonzero(~problem.undetermined))
    np.testing.assert_allclose(bounds.lower, [2, 3, 0.5, 0.5], rtol=1e-7)
    np.testing.assert_allclose(bounds.upper, [2, 3, 0.5, 0.5], rtol=1e-7)


@cases(
    ([9], np.ones((2, 1)), np.ones((9, 1)), "cell 9 is not in the layout: positions run from 0 to 1"),
    ([0.5], np.ones((2, 1)), np.ones((9, 1)), "cells must be a list of positions: got float64"),
    ([0], np.ones((3, 1)), np.ones((9, 1)), r"columns must have shape \(2, 1\): got \(3, 1\)"),
    ([0], np.ones((2, 1)), np.ones((2, 1)), r"observed must have shape \(9, 1\): got \(2, 1\)"),
    ([0], np.ones((2, 1)), None, "give the covariances of the observed cells too"),
)
def test_what_is_no_column_is_refused(cells: list, columns: np.ndarray, observed: object, said: str) -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a * b": 1.0, "a": 1.0}, ["b"])
    with pytest.raises(ValueError, match=said):
        certify_variances(problem, cells, columns, observed)  # type: ignore[arg-type]


def test_no_cells_have_no_bounds() -> None:
    assert proved_variances(gallery.toy(), np.zeros(0, dtype=int)).lower.shape == (0,)


def test_what_rounding_makes_of_the_noise_is_in_the_bounds() -> None:
    """Differences of nearly equal figures: sums of covariances lose half their digits, the proof of them nothing."""
    weights = np.array([1.0, 1.0, -1.0, -1.0])
    areas = Areas(4, {"Balance": sparse.csr_array(weights[None])})
    for seed in range(20):
        root = np.random.default_rng(seed).uniform(-1, 1, (4, 4))
        Sigma = 1e8 / 3 + (root @ root.T + np.eye(4))
        given = {"Leaf": {"total": None}}, {"Balance": ["total"]}
        problem = Problem(Schema({"a": 1}), *given, areas=areas, covariance=sparse.csr_array(Sigma))
        columns = unit_noise(problem, [0])
        bounds = certify_variances(problem, [0], [weights @ columns], columns)
        signed = np.outer(weights, weights) * Sigma
        true = sum(map(Fraction, signed.ravel().tolist()))
        assert Fraction(bounds.lower[0]) <= true <= Fraction(bounds.upper[0]), seed
        assert bounds.upper[0] - bounds.lower[0] <= 1e-5 * bounds.upper[0], seed
