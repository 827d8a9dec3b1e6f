"""Iterations around the nearest structured problem: their bounds, their steps, and where leverages precondition."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import BlueOperator, ConjugateGradient, blue, thread_limit
from blue_solvers.components.lattice import form
from blue_solvers.structured import iteration
from blue_solvers.structured.iteration import softened
from blue_solvers.structured.nearest import nearest_structured
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.arrays import Float
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.description import of_tables
from tests.helpers.oracles.exact import solve, weigh

SOLVER = ConjugateGradient(preconditioner="two_pass")
SMALL = Schema({"a": 3, "b": 2, "c": 2})
TABLES = ["total", "a", "b", "a * b", "detailed"]


def drawn(problem: Problem, ratio: float, law: str) -> Problem:
    """The same tables with variances between 1 and `ratio`, each its own."""
    share = np.random.default_rng(5).random(problem.observed.size)
    return problem.with_variances(1 + (ratio - 1) * share if law == "uniform" else ratio**share)


def noise(problem: Problem, columns: int = 1) -> Float:
    deviations = np.sqrt(problem.variances)[:, None]
    return deviations * np.random.default_rng(6).standard_normal((problem.observed.size, columns))


def up_to_three_ways(levels: list[int]) -> Problem:
    names = [f"v{i}" for i in range(len(levels))]
    tables = [" * ".join(chosen) or "total" for size in range(4) for chosen in combinations(names, size)]
    return Problem(Schema(dict(zip(names, levels, strict=True))), dict.fromkeys(tables, 1.0))


def one_a_step(problem: Problem) -> BlueOperator:
    """The same iterations, one structured estimate a step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iteration, "LEAST_LEVERAGE", 2.0)
        return blue(problem, SOLVER)


@every("law", ["uniform", "log-uniform"])
@every("ratio", [3.0, 1e2, 1e4, 1e8, 1e12])
def test_within_its_bound_of_exact_rationals(ratio: float, law: str) -> None:
    problem = drawn(Problem(SMALL, dict.fromkeys(TABLES, 1.0)), ratio, law)
    P = blue(problem, SOLVER)
    deviations = np.sqrt(problem.variances)
    X, info = P.apply(np.diag(deviations))
    described, y = of_tables(problem), np.zeros(problem.observed.size)
    exact, operator = solve(described, y), weigh(described, y, np.eye(y.size)).weights.T
    errors = exact.std_errors[:, None]
    rounding = 1e-14 * deviations.max()  # of sums of cells whose deviations differ by six decades
    assert (abs(X - operator * deviations) <= info.error_bound * errors + rounding).all()
    assert info.error_bound <= (2.1e-9 if ratio <= 1e4 else np.inf)
    np.testing.assert_allclose(P.variances(), exact.variances, rtol=1e-8)


@pytest.mark.parametrize("ratio", [3.0, 1e2, 1e4, 1e8, 1e12])
def test_variances_from_weights_of_half_the_digits(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration, "MOST_CELLS", 0)
    problem = drawn(Problem(SMALL, dict.fromkeys(TABLES, 1.0)), ratio, "log-uniform")
    exact = solve(of_tables(problem), np.zeros(problem.observed.size))
    np.testing.assert_allclose(blue(problem, SOLVER).variances(), exact.variances, rtol=1e-9)
    loose = blue(problem, ConjugateGradient(rtol=1e-2, preconditioner="two_pass")).variances()
    assert (loose >= exact.variances * (1 - 1e-9)).all()  # weights that agree are never better than the best
    np.testing.assert_allclose(loose, exact.variances, rtol=1e-2)


@examples(40)
@given(seed=st.integers(0, 10_000), ratio=st.sampled_from([10.0, 1e4]))
def test_every_tolerance_is_kept_of_every_column_beside_dense(seed: int, ratio: float) -> None:
    """Estimates and weights, stopped early, of correlated noise and of independent, as matrix and as operator."""
    rng = np.random.default_rng(seed)
    names = [name for name in TABLES[:-1] if rng.random() < 0.7] + ["detailed"]
    size = Problem(SMALL, dict.fromkeys(names, 1.0)).observed.size
    root = np.linalg.qr(rng.standard_normal((size, size)))[0]
    share = ratio ** rng.random(size)
    Sigma = (root * share) @ root.T if seed % 2 else np.diag(share)
    operator = aslinearoperator(Sigma)
    operator.solve = lambda V: np.linalg.solve(Sigma, V)
    given_: list[dict] = [{"covariance": Sigma}, {"covariance": operator}]
    if not seed % 2:
        given_.append({})
    M = np.vstack([_sums(name) for name in names])
    precision = np.linalg.inv(Sigma)
    best = M @ np.linalg.solve(M.T @ precision @ M, M.T @ precision)
    Y = rng.standard_normal((size, 3)) * np.array([1.0, 1e4, 1e-4])
    for described in given_:
        tables = dict.fromkeys(names) if described else dict.fromkeys(names, 1.0)
        problem = Problem(SMALL, tables, **described)
        if not described:
            problem = problem.with_variances(share)
        for rtol in (1e-2, 1e-6):
            P = blue(problem, ConjugateGradient(rtol=rtol, preconditioner="two_pass"))
            X, info = P.apply(Y)
            missing, moved = X - best @ Y, Y - blue(nearest_structured(problem), "sea_blue") @ Y
            errors = np.sqrt(np.einsum("ij,ij->j", missing, precision @ missing))
            sizes = np.sqrt(np.einsum("ij,ij->j", moved, precision @ moved))
            assert (errors <= 2.1 * rtol * sizes + 1e-9 * abs(Y).max(axis=0)).all()
            if described.get("covariance") is operator:
                assert info.error_bound is None
            else:
                assert errors.max() <= info.error_bound * (1 + 1e-6)
            weights = P.T @ np.eye(size)
            spent = np.einsum("ij,ij->j", weights, Sigma @ weights)
            assert (spent <= np.diag(best @ Sigma @ best.T) * (1 + (2.1 * rtol) ** 2) + 1e-9).all()
            np.testing.assert_allclose(weights.T @ M, M, atol=1e-8)  # unbiased, whenever it stops


def _sums(name: str) -> Float:
    """Rows of a table over the detailed cells of `SMALL`."""
    kept = set(SMALL.names) if name == "detailed" else set(name.split(" * "))
    rows = np.ones((1, 1))
    for variable, levels in (("a", 3), ("b", 2), ("c", 2)):
        rows = np.kron(rows, np.eye(levels) if variable in kept else np.ones((1, levels)))
    return rows


def sums_over(levels: list[int], shape: tuple[int, int]) -> Float:
    """Cells of the tables "a" and "detailed" at every geounit of three geolevels, from the detailed ones of the leaves.

    `levels` are the counties that the tracts lie in.
    """
    tracts, counties = len(levels), max(levels) + 1
    within = [np.ones((1, tracts)), np.eye(counties)[levels].T, np.eye(tracts)]
    tables = [np.kron(np.eye(shape[0]), np.ones((1, shape[1]))), np.eye(shape[0] * shape[1])]
    return np.vstack([np.kron(geounits, table) for geounits in within for table in tables])


@examples(20, 4)
@given(seed=st.integers(0, 10_000), law=st.sampled_from(["uniform", "log-uniform"]))
def test_bounds_hold_beside_dense_on_spines_in_ratio_ten_thousand(seed: int, law: str) -> None:
    """Of every linear combination of cells: the largest error in its own standard errors is the length in noise."""
    rng = np.random.default_rng(seed)
    counties = int(rng.integers(1, 4))
    inside = sorted([*range(counties), *(int(k) for k in rng.integers(0, counties, int(rng.integers(0, 7))))])
    parent = [-1, *[0] * counties, *(1 + k for k in inside)]
    spine = Spine(parent, ["S", *["C"] * counties, *["T"] * len(inside)])
    tables = dict.fromkeys(["a", "detailed"], 1.0)
    problem = drawn(Problem(Schema({"a": 4, "b": 4}), dict.fromkeys("SCT", tables), spine=spine), 1e4, law)
    Y = noise(problem, 2)
    X, info = blue(problem, SOLVER).apply(Y)
    M, unit = sums_over(inside, (4, 4)), np.sqrt(problem.variances)[:, None]
    best = M @ np.linalg.lstsq(M / unit, Y / unit, rcond=None)[0]
    assert (np.linalg.norm((X - best) / unit, axis=0) <= info.error_bound + 1e-11).all()
    assert info.error_bound <= 2.1e-9


@given(ratio=st.floats(1e-8, 1e8), leverage=st.floats(0, 1))
def test_softened_variances_lie_between_the_structured_and_the_true(ratio: float, leverage: float) -> None:
    found = float(softened(np.array([[3.0]]), np.array([[ratio]]), np.array([[leverage]]))[0, 0])
    first, last = sorted((3.0, 3.0 / ratio))
    assert first * (1 - 1e-12) <= found <= last * (1 + 1e-12)
    assert leverage < 1 or abs(found * ratio / 3 - 1) <= 1e-12
    assert leverage > 0 or abs(found / 3 - 1) <= 1e-12


CASES: dict[str, Callable[[], Problem]] = {
    "redistricting tables": gallery.pl94,
    "4^5": lambda: gallery.cube(5, 4),
    "2 to 8 levels": lambda: up_to_three_ways([*range(2, 9)]),
}


@pytest.mark.few(0)
@every("law", ["uniform", "log-uniform"])
@every("ratio", [1e2, 1e4])
@every("name", CASES)
def test_steps_are_few_beside_those_without_leverages(name: str, ratio: float, law: str) -> None:
    problem = drawn(CASES[name](), ratio, law)
    y = noise(problem)
    P, other = blue(problem, SOLVER), one_a_step(problem)
    (x, info), (expected, slow) = P.apply(y), other.apply(y)
    assert info.iterations <= 0.75 * slow.iterations
    assert info.error_bound <= 2.1e-9
    difference = abs(x - expected).max() / np.sqrt(problem.variances.max())
    assert difference <= info.error_bound + slow.error_bound
    dot_test(P)


def test_many_columns_are_what_each_is_alone() -> None:
    problem = drawn(gallery.cube(4, 4), 1e4, "log-uniform")
    P = blue(problem, SOLVER)
    Y = noise(problem, 5) * np.array([1.0, 1e3, 1e-3, 0.0, 1.0])
    X, info = P.apply(Y)
    for column in range(5):
        alone, one = P.apply(Y[:, [column]])
        assert abs(X[:, [column]] - alone).max() <= 2.1e-9 * np.sqrt(problem.variances.max())
        assert info.iterations >= one.iterations - 1
    assert not X[:, 3].any()


def test_a_few_leverages_are_not_worth_two_estimates_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly all is averaged the estimate takes as many steps without."""
    problem = drawn(gallery.cube(8, 2), 100.0, "log-uniform")
    y = noise(problem)
    found = blue(problem, SOLVER).apply(y)[1].iterations
    assert found == one_a_step(problem).apply(y)[1].iterations
    monkeypatch.setattr(iteration, "LEAST_LEVERAGE", 0.0)
    assert blue(problem, SOLVER).apply(y)[1].iterations >= 0.8 * found


def test_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blue_solvers.threads.WORTH_BYTES", 0)
    monkeypatch.setattr(form, "WORTH_BYTES", 0)
    problem = drawn(gallery.cube(5, 4), 100.0, "log-uniform")
    P, y = blue(problem, SOLVER), noise(problem, 2)
    found = []
    for count in (1, 2, 3):
        with thread_limit(count):
            found.append((P @ y, P.T @ y))
    for x, pulled in found[1:]:
        np.testing.assert_array_equal(x, found[0][0])
        np.testing.assert_array_equal(pulled, found[0][1])


@every(("known", "others"), [(1e-6, 1e7), (1e-8, 1e7), (1e-5, 1e5)])
def test_cells_not_measured_beside_well_known_ones_are_found_or_not_called_exact(known: float, others: float) -> None:
    """What is left is small in units of the known ones, and was 3e-5 standard errors of what the others tell."""
    detailed = np.full((3, 2), known)
    detailed[[0, 2], [1, 0]] = np.inf
    tables = {"total": others, "a": 2 * others, "b": 0.7 * others, "detailed": detailed}
    problem = Problem(Schema({"a": 3, "b": 2}), tables)
    measured = ~problem.unmeasured
    y = np.where(measured, 700 + np.random.default_rng(1).standard_normal(measured.size), 0.0)
    found, info = blue(problem, SOLVER).apply(y)
    exact = blue(problem, "dense")
    off = (abs(found - exact @ y) / np.sqrt(exact.variances())).max()
    assert off < 1e-8 or not info.exact
    assert off < 1e-8 or known < 1e-6


def test_cells_that_nothing_tells_of_leave_an_answer_exact() -> None:
    """What is left in their directions is rounding, and was taken for errors of .002 standard errors of the others."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        detailed = np.where(rng.random((4, 5)) < 0.4, np.inf, 1.0)
        problem = Problem(Schema({"a": 4, "b": 5}), {"total": 1.0, "a": 1.0, "detailed": detailed}, ["total", "a"])
        y = np.where(problem.unmeasured, 0.0, rng.integers(0, 40, problem.observed.size))
        found, info = blue(problem, SOLVER).apply(y)
        np.testing.assert_allclose(found, blue(problem, "dense") @ y, rtol=1e-11)
        assert info.exact
