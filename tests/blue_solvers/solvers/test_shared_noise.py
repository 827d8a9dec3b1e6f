"""Noise that cells share: the estimate under D + U U' from that under D, against dense least squares."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from blue_solvers import SOLVERS, ConjugateGradient, Solver, UnsupportedProblemError, blue, estimate
from blue_solvers.testing import check_solver, dot_test
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine, gallery
from noise_mechanisms.add_noise import draw_noise
from tests.helpers.correlated import dense_operator
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.invent import Kind, invent
from tests.helpers.oracles.quick import answer
from tests.helpers.spines import SCHEMA, spine_problems
from tests.helpers.strategies import Case, cases

MOST_JOINT_CELLS = 1000  # of the dense reference
EXACT: list[Solver] = [
    *(solver() for solver in SOLVERS.values()),
    ConjugateGradient(preconditioner="two_pass"),
    ConjugateGradient(rtol=1e-12),
]


def shared(problem: Problem, sources: int, seed: int = 0, **described) -> Problem:
    """The same problem with noise that its noisy cells share, of about the size of their own."""
    rng = np.random.default_rng(seed)
    noisy = ~problem.exact & ~problem.unmeasured
    size = np.sqrt(np.where(noisy, problem.variances, 0.0))[:, None]
    U = size * rng.standard_normal((problem.observed.size, sources)) * rng.choice([0, 1, 3], (problem.observed.size, 1))
    return with_covariance(problem, LowRankPlusDiagonal(problem.variances, U), **described)


def with_covariance(problem: Problem, covariance: LowRankPlusDiagonal, **described) -> Problem:
    if problem.spine is None:
        observed = dict.fromkeys(problem.observed.names)
        return Problem(problem.schema, observed, list(problem.desired.names), covariance=covariance, **described)
    tables = ({}, {})
    for kind, layout in zip(tables, (problem.observed, problem.desired), strict=True):
        for level, table in layout.names:
            kind.setdefault(level, {})[table] = None
    desired = {level: list(names) for level, names in tables[1].items()}
    return Problem(problem.schema, tables[0], desired, spine=problem.spine, covariance=covariance, **described)


def assert_dense(problem: Problem, solver: str | Solver = "auto", tolerance: float = 1e-8) -> None:
    """P, adjoint, offset and variances, in standard errors but for what rounding makes of the largest deviation."""
    expected, offset, variances = dense_operator(problem)
    P = blue(problem, solver)
    deviations = np.sqrt(np.where(problem.unmeasured, 0, problem.variances))
    assert (offset != 0).any() == (problem.equalities is not None)
    measured = deviations + problem.exact
    allowed = tolerance * np.sqrt(variances)[:, None] + max(1e-11, 1e-4 * tolerance) * measured.max()
    consistent = ~problem.exact  # redundant exact cells may share what they say in any way
    assert (abs((P @ np.diag(measured) - expected * measured)[:, consistent]) <= allowed).all()
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-7, atol=1e-11 * deviations.max() ** 2)
    assert (abs(P.offset - offset) <= allowed[:, 0]).all()
    dot_test(P)


@examples(30)
@given(case=cases("equal"), sources=st.integers(1, 3), seed=st.integers(0, 99))
def test_closed_form_of_any_tables(case: Case, sources: int, seed: int) -> None:
    assume(prod(case.schema.shape) <= MOST_JOINT_CELLS)
    assert_dense(shared(case.problem(), sources, seed))


@examples(15, 3)
@given(problem=spine_problems(), sources=st.integers(1, 3), seed=st.integers(0, 99))
def test_two_passes_on_any_spine(problem: Problem, sources: int, seed: int) -> None:
    assert_dense(shared(problem, sources, seed), "two_pass")


SPINE = Spine([-1, 0, 0, 1, 1, 2], ["S", "C", "C", "T", "T", "T"])


def special_problems() -> dict[str, Problem]:
    """Exact cells, cells that were not measured, structural zeros, equalities with b, alone and together."""
    full = {"total": 0.0, "a": 2.0, "b": 3.0, "a * b": 4.0, "detailed": 5.0}
    schema = Schema({"a": 3, "b": 2, "c": 4})
    observed = {"S": {"total": 1.0, "detailed": 3.0}, "C": {"a": [1.0, np.inf], "g": 2.0}, "T": {"detailed": 2.0}}
    zeros = {("S", "a"): np.array([[False, True]]), ("C", "h"): np.array([[True, False, False], [False, False, False]])}
    E = np.zeros((2, Problem(SCHEMA, observed, spine=SPINE).observed.size))
    E[0, :3], E[1, -24] = 1, 1
    return {
        "exact total": shared(Problem(schema, full), 2),
        "a table that was not measured": shared(Problem(schema, full | {"a * b": np.inf}, ["a", "total"]), 2),
        "nothing desired of a source": shared(Problem(schema, {"a * b": 1.0, "c": 4.0, "total": 1.0}, ["a"]), 1),
        "undetermined": shared(Problem(schema, {"a * b": np.inf, "c": 4.0, "total": 1.0}, ["c", "total"]), 1),
        "spine": shared(Problem(SCHEMA, observed, ["total"], spine=SPINE), 3),
        "zeros": shared(Problem(SCHEMA, observed, spine=SPINE), 3, zeros=zeros),
        "equalities": shared(Problem(SCHEMA, observed, spine=SPINE), 3, equalities=(E, [31.0, 4.0])),
        "both": shared(Problem(SCHEMA, observed, spine=SPINE), 3, zeros=zeros, equalities=(E, [31.0, 4.0])),
    }


@pytest.mark.few(0)
@every("solver", EXACT)
@every("name", special_problems())
def test_every_exact_solver_on_every_kind_of_knowledge(solver: Solver, name: str) -> None:
    problem = special_problems()[name]
    own = problem.with_variances(problem.covariance.diagonal)
    if solver.supports(own) is not None:
        pytest.skip(solver.supports(own))
    assert_dense(problem, solver, 1e-6)


@every("solver", EXACT)
def test_every_law_of_the_contract(solver: Solver) -> None:
    problem = shared(gallery.cube(2, 3), 2)
    check_solver(solver, problem)
    assert "2 shared sources" in blue(problem, solver).info.reason


def test_projects_onto_tables_that_agree() -> None:
    problem = shared(gallery.cube(3, 3), 3)
    P, A = blue(problem), problem.constraint_matrix("all")
    Y = np.random.default_rng(0).standard_normal((problem.observed.size, 4))
    np.testing.assert_allclose(P @ (P @ Y), P @ Y, atol=1e-12)
    np.testing.assert_allclose(A @ (P @ Y), 0, atol=1e-12)
    assert P.estimate(Y[:, 0]).info.violation < 1e-12
    assert P.info.solver == "sea_blue"


@every("solver", ["auto", "cholesky", "cg", "dense"])
def test_equations_with_a_right_hand_side(solver: str) -> None:
    rng = np.random.default_rng(0)
    A, U = rng.standard_normal((2, 5)), rng.standard_normal((5, 1))
    D, b, y = rng.uniform(1, 3, 5), np.array([3.0, -1.0]), rng.standard_normal(5)
    P = blue(Problem.from_matrix(A, LowRankPlusDiagonal(D, U), b), solver)
    Sigma = np.diag(D) + U @ U.T
    gain = Sigma @ A.T @ np.linalg.inv(A @ Sigma @ A.T)
    np.testing.assert_allclose(P @ y + P.offset, y - gain @ (A @ y - b), atol=1e-8)
    np.testing.assert_allclose(P.variances(), np.diag(Sigma - gain @ A @ Sigma), atol=1e-8)


def test_a_shift_of_a_whole_table_is_worth_nothing_at_last() -> None:
    """A source far larger than every cell's own noise takes the table's level away and leaves its contrasts."""
    schema = Schema({"a": 4})
    U = np.r_[np.full(4, 1e6), 0.0][:, None]
    problem = Problem(schema, {"a": None, "total": None}, covariance=LowRankPlusDiagonal([1, 1, 1, 1, 8.0], U))
    P = blue(problem)
    expected = np.block([[np.eye(4) - 0.25, np.full((4, 1), 0.25)], [np.zeros((1, 4)), np.ones((1, 1))]])
    np.testing.assert_allclose(P @ np.eye(5), expected, atol=1e-11)
    np.testing.assert_allclose(P.variances(), [1.25] * 4 + [8.0], rtol=1e-9)


def test_heuristics_are_refused() -> None:
    problem = Problem(Schema({"a": 2}), {"a": [1.0, 2.0], "total": 1.0})
    with pytest.raises(
        UnsupportedProblemError, match="needs the exact estimate without it, but variances differ within tables"
    ):
        blue(shared(problem, 1), "sea_blue")
    assert blue(shared(problem, 1)).info.exact


def test_the_noise_that_is_drawn_has_this_covariance() -> None:
    covariance = LowRankPlusDiagonal([1.0, 0.0, np.inf, 2.0, 4.0], [[1.0], [0.0], [1.0], [-2.0], [0.5]])
    problem = Problem(Schema({"a": 2, "b": 2}), {"a": None, "b": None, "total": None}, ["a"], covariance=covariance)
    draws = draw_noise(problem, 200_000, rng=0)
    # Entries have standard deviations of at most sqrt(2) * 6 / sqrt(200,000) = 0.019.
    np.testing.assert_allclose(draws @ draws.T / draws.shape[1], covariance @ np.eye(5), atol=0.08)


@every("seed", [2_000_002, 2_000_019, 2_000_028, *range(2_000_004, 2_000_010)])
def test_large_counts_cost_no_digits_of_small_noise(seed: int) -> None:
    """Twelve decades of variances and counts of a million: what is shared is told by residuals."""
    invented = invent(seed, Kind(covariance="shared", decades=12.0, count=1e6, equalities=False), answer=answer)
    assert invented is not None
    reference, problem = invented.reference, invented.description.problem()
    rounding = 8 * np.spacing(abs(reference.estimate).max(initial=reference.largest))
    for solver in ("two_pass", "sea_blue", "cholesky", "dense"):
        if SOLVERS[solver]().supports(problem) is None:
            P = blue(problem, solver)
            off = abs(P @ invented.y + P.offset - reference.estimate)
            assert (off <= 2e-8 * reference.std_errors + rounding).all(), solver


def test_sources_beside_which_independent_noise_is_lost_in_rounding() -> None:
    """One equation tells one of two sources: I + E' D^-1 E is singular in floats, and no more is claimed than is so."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        covariance = LowRankPlusDiagonal(1e-5 * rng.uniform(0.5, 2, 3), 4e6 * rng.uniform(0.5, 2, (3, 2)))
        problem = Problem(Schema({"a": 2}), {"total": 1.0, "a": 1.0}).with_covariance(covariance)
        U, y = [[Fraction(float(x)) for x in row] for row in covariance.factor], rng.normal(size=3)
        sums = [u[0] * (U[0][0] - U[1][0] - U[2][0]) + u[1] * (U[0][1] - U[1][1] - U[2][1]) for u in U]
        along = [
            own + sign * Fraction(float(d)) for own, sign, d in zip(sums, (1, -1, -1), covariance.diagonal, strict=True)
        ]
        gap = (Fraction(float(y[0])) - Fraction(float(y[1])) - Fraction(float(y[2]))) / (along[0] - along[1] - along[2])
        best = [float(Fraction(float(own)) - by * gap) for own, by in zip(y, along, strict=True)]
        found = estimate(problem, y)
        bound = found.certificate().bound
        assert bound is not None
        assert found.info.exact == (bound < 1e-3)
        assert (abs(found.values - best) <= min(bound, 1e-3) * found.std_errors).all()
