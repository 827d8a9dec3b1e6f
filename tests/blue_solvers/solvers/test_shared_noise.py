"""Noise that cells share: the estimate under D + U U' from that under D, against dense least squares."""

from fractions import Fraction

import numpy as np
import pytest

from blue_solvers import SOLVERS, ConjugateGradient, Solver, UnsupportedProblemError, blue, estimate
from blue_solvers.testing import check_solver
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, gallery
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.oracles.invent import Kind, invent
from tests.helpers.oracles.quick import answer

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


@every("solver", EXACT)
def test_every_law_of_the_contract(solver: Solver) -> None:
    problem = shared(gallery.cube(2, 3), 2)
    check_solver(solver, problem)
    assert "2 shared sources" in blue(problem, solver).info.reason


def test_heuristics_are_refused() -> None:
    problem = Problem(Schema({"a": 2}), {"a": [1.0, 2.0], "total": 1.0})
    with pytest.raises(
        UnsupportedProblemError, match="needs the exact estimate without it, but variances differ within tables"
    ):
        blue(shared(problem, 1), "sea_blue")
    assert blue(shared(problem, 1)).info.exact


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


@lengths("seeds", 8, 20)
def test_sources_beside_which_independent_noise_is_lost_in_rounding(seeds: int) -> None:
    """One equation tells one of two sources: I + E' D^-1 E is singular in floats, and no more is claimed than is so."""
    for seed in range(seeds):
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
