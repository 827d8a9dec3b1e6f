"""Correlated noise, by its entries, its products or sources that cells share, against dense least squares."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers import SOLVERS, ConjugateGradient, ConvergenceError, Solver, UnsupportedProblemError, blue, estimate
from blue_solvers.testing import check_solver
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, gallery
from constraint_builders.arrays import Float
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.oracles.invent import Kind, invent

SOLVER = ConjugateGradient(preconditioner="two_pass")


class Inverted(LinearOperator):
    """A covariance that is known by its products and those of its inverse alone."""

    def __init__(self, matrix: Float, inverse: Float | None = None) -> None:
        super().__init__(np.dtype(np.float64), matrix.shape)
        self._matrix = matrix
        self._inverse = np.linalg.inv(matrix) if inverse is None else inverse

    def _matmat(self, X: Float) -> Float:
        return self._matrix @ X

    def solve(self, V: Float) -> Float:
        return self._inverse @ V


def blocks(sizes: list[int], variances: Float, rng: np.random.Generator) -> sparse.csr_array:
    """Dense random correlations within consecutive blocks of cells."""
    correlations = []
    for size in sizes:
        factor = rng.standard_normal((size, 2 * size))
        covariance = factor @ factor.T
        own = np.sqrt(covariance.diagonal())
        correlations.append(covariance / np.outer(own, own))
    scale = sparse.diags_array(np.sqrt(variances))
    return sparse.csr_array(scale @ sparse.block_diag(correlations) @ scale)


def within_tables(problem: Problem, seed: int = 0) -> Problem:
    """The same tables with correlated cells within every table."""
    covariance = blocks(problem.observed.sizes.tolist(), problem.variances, np.random.default_rng(seed))
    return Problem(problem.schema, dict.fromkeys(problem.observed.names), covariance=covariance)


def test_an_operator_needs_no_entries_and_has_no_bound() -> None:
    matrix = within_tables(gallery.cube(3, 3)).covariance.toarray()
    names = gallery.cube(3, 3).observed.names
    problem = Problem(gallery.cube(3, 3).schema, dict.fromkeys(names), covariance=Inverted(matrix))
    P, reference = blue(problem, SOLVER), blue(within_tables(gallery.cube(3, 3)), "dense")
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 2))
    X, info = P.apply(y)
    np.testing.assert_allclose(X, reference @ y, atol=1e-8)
    assert info.error_bound is None
    np.testing.assert_allclose(P.variances(), reference.variances(), rtol=1e-8)
    check_solver(SOLVER, problem)
    check_solver(SOLVER, within_tables(gallery.cube(3, 3)))


def test_a_wrong_solve_is_refused() -> None:
    matrix = within_tables(gallery.cube(2, 2)).covariance.toarray()
    with pytest.raises(ValueError, match="method solve does not give its inverse"):
        Problem(
            gallery.cube(2, 2).schema,
            dict.fromkeys(gallery.cube(2, 2).observed.names),
            covariance=Inverted(matrix, matrix),
        )


def test_iterations_do_not_grow_with_the_tables() -> None:
    """Autoregressive noise in every table: four times the cells, as many iterations but for a few."""
    counts = []
    for problem in (gallery.cube(3, 4), gallery.cube(4, 4)):
        distances = [abs(np.subtract.outer(np.arange(size), np.arange(size))) for size in problem.observed.sizes]
        covariance = sparse.csr_array(sparse.block_diag([0.5**distance for distance in distances]))
        P = blue(Problem(problem.schema, dict.fromkeys(problem.observed.names), covariance=covariance), SOLVER)
        counts.append(P.apply(np.random.default_rng(0).standard_normal(problem.observed.size))[1].iterations)
    assert counts[1] <= counts[0] + 5
    assert counts[1] <= 30


def test_not_converged_names_the_correlation() -> None:
    P = blue(within_tables(gallery.cube(3, 3)), ConjugateGradient(preconditioner="two_pass", max_iterations=2))
    with pytest.raises(ConvergenceError, match=r"the noise being correlated.*solver='cholesky'"):
        P @ np.random.default_rng(0).standard_normal(P.shape[1])


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
    invented = invent(seed, Kind(covariance="shared", decades=12.0, count=1e6, equalities=False))
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
        assert found.info.exact == (bound < 1e-3)
        assert (abs(found.values - best) <= min(bound, 1e-3) * found.std_errors).all()


@every("unit", [1e-12, 1.0, 1e9])
def test_combinations_without_noise_contradict_equations_in_any_unit(unit: float) -> None:
    covariance = unit**2 * np.array([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]])  # a less b has no noise
    problem = Problem.from_matrix([[1.0, -1, 0]], covariance)
    np.testing.assert_allclose(estimate(problem, unit * np.array([2.0, 2, 3])).values, unit * np.array([2, 2, 3]))
    with pytest.raises(ValueError, match="combinations of measurements that have no noise contradict one another"):
        estimate(problem, unit * np.array([1.0, 2, 3]))
