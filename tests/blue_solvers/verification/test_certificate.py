"""Certificates: never below the true error, close to it for right answers, and honest where they prove nothing."""

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

import blue_solvers.verification
from blue_solvers import blue, estimate
from blue_solvers.verification import certify
from blue_solvers.verification.by_sums import ProblemToProve, certify_by_sums
from blue_solvers.verification.problem_places import holds_all
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from blue_solvers.verification.wide import Separated, certify_wide
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine, gallery
from tests.blue_solvers.verification.answers import Case, case, moved, spoilt
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.oracles.invent import Kind, all_kinds
from tests.helpers.refused import refuses

KINDS = [k for k in all_kinds() if k.count == 20 and k.decades < 10]
SIZES = (1e-6, 1e-5, 1e-3, 1.0)


def cases(kind: Kind, seeds: range) -> list[Case]:
    found = [c for c in (case(seed, kind) for seed in seeds) if c is not None]
    assert len(found) > 0.3 * len(seeds), "too few inventions were problems"
    return found


@pytest.mark.few(0)
@every("kind", KINDS)
def test_right_answers_are_proved_and_wrong_ones_never_pass(kind: Kind) -> None:
    """Of every right answer the bound is below 1e-9; of none that is wrong by 1e-6 is it below the true error."""
    rng = np.random.default_rng(0)
    ratios, corruptions = [], 0
    for c in cases(kind, range(12)):
        proved = c.is_sound(c.reference.estimate)
        assert proved.bound is not None, proved
        assert proved.bound < 1e-9
        for size in SIZES:
            for wrong in (moved, spoilt):
                x = wrong(c, rng, size)
                if np.array_equal(x, c.reference.estimate):
                    continue
                certificate = c.is_sound(x)
                corruptions += 1
                assert certificate.bound is None or certificate.bound > 1e-7
                if wrong is moved and certificate.bound is not None:
                    ratios.append(certificate.bound / c.error(x))
    assert corruptions > 35
    assert np.median(ratios) < 10


TRIED = 420  # of each of the kinds, deliberately wrong answers; more than 10,000 together


def test_ten_thousand_wrong_answers_are_tried() -> None:
    assert TRIED * len(all_kinds()) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(all_kinds())))
def test_thousands_of_wrong_answers_never_pass(number: int) -> None:
    """Some figure is off by 1e-6 of its standard errors or more; no bound promises less than the error."""
    kind, rng, corruptions = all_kinds()[number], np.random.default_rng(number), 0
    for c in cases(kind, range(100, 220)):
        for size in (*SIZES, 10 ** rng.uniform(-6, 2)):
            for wrong in (moved, spoilt):
                x = wrong(c, rng, size)
                error = c.error(x)
                if error > 1e-7:
                    certificate = c.is_sound(x)
                    assert certificate.bound is None or certificate.bound > 1e-7
                corruptions += error > 0.999e-6  # 1e-6, but for the rounding of x
    assert corruptions >= TRIED


@pytest.mark.few(1)
@pytest.mark.parametrize("solver", ["auto", "dense", "cholesky", "cg", "multigrid", "sea_blue", "two_pass"])
def test_answers_of_every_solver(solver: str) -> None:
    counted: Counter[str] = Counter()
    kinds = [KINDS[0], Kind(spine=False, recodes=False, zeros=False, equalities=False, exact=False, unmeasured=False)]
    for kind in kinds:
        for c in cases(kind, range(14)):
            try:
                P = blue(c.problem, solver)
                x = P @ c.y + P.offset
            except (ValueError, NotImplementedError, RuntimeError):
                counted["refused"] += 1
                continue
            certificate = c.is_sound(x)
            tight = certificate.bound is not None and certificate.bound < 1e-7
            counted["proved" if tight else "loose"] += 1
    assert counted["proved"] >= 3
    assert counted["proved"] > 2 * counted["loose"]


def require_sound(kind: Kind, seeds: int, certifying: Callable[[Case, np.ndarray], Callable | None]) -> None:
    """Bounds of answers, right and wrong, are never below their errors, and mostly not far above."""
    rng, ratios, tried = np.random.default_rng(1), [], 0
    for c in cases(kind, range(seeds)):
        bounded = certifying(c, np.where(c.problem.unmeasured, 0.0, c.y))
        if bounded is None:
            continue
        for x in (c.reference.estimate, moved(c, rng, 1e-6), spoilt(c, rng, 1e-6), moved(c, rng, 1.0)):
            try:
                bound, _ = bounded(x)
            except NotCertifiedError:
                continue
            tried += 1
            assert bound * (1 + 1e-6) >= c.error(x)
            if x is not c.reference.estimate and c.error(x) > 1e-8:
                ratios.append(bound / c.error(x))
    assert tried > seeds
    assert np.median(ratios) < 10


@pytest.mark.few(1)
@pytest.mark.parametrize("covariance", ["", "sparse", "shared"])
@pytest.mark.parametrize("decades", [2.0, 6.0])
@lengths("seeds", 20, 40)
def test_the_pass_of_sums_is_sound_too(seeds: int, covariance: str, decades: float) -> None:
    """The way that large spines go, on small ones."""
    kind = Kind(zeros=False, equalities=False, exact=not covariance, covariance=covariance, decades=decades)

    def certifying(c: Case, y: np.ndarray) -> Callable | None:
        return None if holds_all(c.problem) is None else lambda x: certify_by_sums(ProblemToProve(c.problem), y, x)

    require_sound(kind, seeds, certifying)


@pytest.mark.parametrize("cellwise", [False, True])
@lengths("seeds", 20, 40)
def test_the_parts_of_wide_tables_are_sound_too(seeds: int, cellwise: bool) -> None:
    kind = Kind(spine=False, recodes=False, zeros=False, equalities=False, unmeasured=not cellwise, cellwise=cellwise)

    def certifying(c: Case, y: np.ndarray) -> Callable:
        noise = WeighedNoise.of(c.problem)
        return lambda x: certify_wide(c.problem, noise, Separated(c.problem, noise), y, x)

    require_sound(kind, seeds, certifying)


def test_what_follows_from_exact_tables_is_exact_in_the_parts_too() -> None:
    """A noisy table whose counts follow from one known exactly cannot be off by a number of standard errors."""
    problem = Problem(Schema({"a": 3, "b": 4, "c": 2}), {"a * b": 0.0, "a": 1.0, "b * c": 2.0, "c": 1.0})
    y = np.random.default_rng(0).normal(10.0, 2.0, size=problem.observed.size)
    x = blue(problem) @ y
    noise = WeighedNoise.of(problem)
    family = Separated(problem, noise)
    assert certify_wide(problem, noise, family, y, x)[0] < 1e-12
    x[problem.observed.block(1)] += 1e-3
    refuses(r"known exactly is off by 0\.001", certify_wide, problem, noise, family, y, x, error=NotCertifiedError)


def noisy(problem: Problem, total: float, seed: int = 0) -> np.ndarray:
    """Noisy tables of evenly spread counts."""
    sizes = problem.observed.sizes
    noise = np.random.default_rng(seed).standard_normal(problem.observed.size) * np.sqrt(problem.variances)
    return np.repeat(total / sizes, sizes) + noise


@pytest.mark.parametrize("total", [1e6, 1e8])
def test_wide_tables_need_no_joint_table(total: float) -> None:
    """14 variables, 10^13 joint cells: proved as far as doubles go, and a wrong cell is seen."""
    problem = gallery.adult(2, variance=100.0)
    y = noisy(problem, total)
    x = blue(problem) @ y
    assert certify(problem, y, x).bound < 1e-9 * total / 1e6
    for cell in (0, 5, problem.observed.size // 2):
        wrong = x.copy()
        wrong[cell] += 1e-6 * 10
        found = certify(problem, y, wrong)
        assert found.bound is None or found.bound > 1e-7


@pytest.mark.few(1)
@pytest.mark.parametrize("known", ["noise alone", "a total", "an equality", "empty cells"])
def test_recodes_end_no_proof_of_wide_tables(known: str) -> None:
    """Nested ones, and two that cross of two tables; whatever else is known exactly. A wrong cell is seen."""
    recodes = {"v1": {"half": [0] * 5 + [1] * 5, "fifth": [i // 2 for i in range(10)]}}
    schema = Schema({f"v{i}": 10 for i in range(9)}, recodes=recodes)
    tables = {
        "v0 * v1": 1.0,
        "half * v2": 2.0,
        "v2 * v3": 1.0,
        "half": 3.0,
        "v5": 1.0,
        "total": float(known != "a total"),
    }
    rng = np.random.default_rng(3)
    options: dict = {}
    if known == "empty cells":
        options["zeros"] = {"v0 * v1": np.arange(100).reshape(10, 10) % 7 == 3}
    problem = Problem(schema, tables, **options)
    counts = np.zeros((10, 10, 10, 10, 10))  # of v0, v1, v2, v3, v5
    np.add.at(counts, tuple(rng.integers(0, 10, (5, 20_000))), 1.0)
    if known == "empty cells":
        counts[options["zeros"]["v0 * v1"]] = 0.0
    half = counts.reshape(10, 2, 5, 10, 10, 10)
    cells = {
        "v0 * v1": counts.sum(axis=(2, 3, 4)),
        "half * v2": half.sum(axis=(0, 2, 4, 5)),
        "v2 * v3": counts.sum(axis=(0, 1, 4)),
        "half": half.sum(axis=(0, 2, 3, 4, 5)),
        "v5": counts.sum(axis=(0, 1, 2, 3)),
        "total": counts.sum(),
    }
    truth = problem.observed.vector(cells)
    if known == "an equality":
        E = np.zeros((1, truth.size))
        E[0, [3, 57, 110]] = 1.0, 1.0, -2.0
        problem = Problem(schema, tables, equalities=(E, E @ truth))
    y = truth + np.sqrt(problem.variances) * rng.standard_normal(truth.size)
    P = blue(problem)
    x = P @ y + P.offset
    found = certify(problem, y, x)
    assert found.bound is not None, found
    assert found.bound < 1e-8
    errors = np.sqrt(P.variances())
    for cell in rng.choice(np.flatnonzero(errors > 1e-3), 6, replace=False):
        wrong = x.copy()
        wrong[cell] += 1e-5 * errors[cell]
        assert (certify(problem, y, wrong).bound or 1) > 0.99e-5


def test_few_figures_of_many_counts_are_proved_by_sums() -> None:
    """Of 8,100 counts, which rational numbers would take too long for."""
    problem = Problem(Schema({"a": 90, "b": 90}), {"a": 0.1, "b": 2.0, "total": 50.0})
    y = problem.marginal_matrix() @ np.arange(8100.0) % 97 + np.random.default_rng(1).normal(size=181)
    x = blue(problem) @ y
    assert (certify(problem, y, x).bound or np.inf) < 1e-11
    x[3] += 1e-3 * np.sqrt(blue(problem).variances()[3])
    assert (certify(problem, y, x).bound or np.inf) > 0.99e-3


def test_a_large_spine_is_proved_by_one_pass_of_sums() -> None:
    """12,000 cells at 124 places: a wrong answer of any cell, and one whose tables agree, are seen."""
    schema = Schema({"sex": 2, "age": 6, "race": 8}, recodes={"race": {"three": [0, 1, 1, 2, 2, 2, 2, 2]}})
    parent = [-1, 0, 0, 0, *np.repeat([1, 2, 3], 10).tolist(), *np.repeat(np.arange(4, 34), 3).tolist()]
    spine, tables = Spine(parent), {"total": 4.0, "three": 9.0, "sex * race": 5.0, "detailed": 3.0}
    problem = Problem(schema, {**dict.fromkeys(spine.levels, tables), "depth 0": {"total": 0.0}}, spine=spine)
    assert problem.observed.size > 10_000
    M = problem.marginal_matrix()
    counts = np.random.default_rng(0).poisson(120, M.shape[1]).astype(float)  # 1e6 in all
    rng = np.random.default_rng(1)
    y = M @ counts + np.sqrt(problem.variances) * rng.standard_normal(M.shape[0])
    x = blue(problem) @ y
    assert certify(problem, y, x).bound < 1e-9
    for cell in rng.integers(1, x.size, 20):
        wrong = x.copy()
        wrong[cell] += 1e-5 * np.sqrt(problem.variances[cell])
        assert (certify(problem, y, wrong).bound or 1) > 1e-6
    swap = np.zeros(M.shape[1])
    swap[[7, 900]] = 1e-5, -1e-5
    assert (certify(problem, y, x + M @ swap).bound or 1) > 1e-6


def test_a_large_count_costs_no_more_than_its_own_rounding() -> None:
    problem = gallery.cube(4, 4, variance=100.0)
    y = noisy(problem, 1e8)
    x = blue(problem) @ y
    assert certify(problem, y, x).bound < 20 * np.spacing(1e8) / 1.0


def test_what_cannot_be_proved_has_a_reason() -> None:
    schema = Schema({"a": 3, "b": 3})
    n = 7
    K = np.eye(n) + 0.2
    operator = LinearOperator((n, n), matvec=lambda v: K @ v, dtype=float)
    problem = Problem(schema, {"total": None, "a": None, "b": None}, covariance=operator)
    found = certify(problem, np.zeros(n), np.zeros(n))
    assert found.bound is None
    assert "solve" in found.reason
    known = Problem(schema, {"total": 0.0, "a": 1.0})
    found = certify(known, [6.0, 1, 2, 3], [6.1, 1.1, 2, 3])
    assert found.bound is None
    assert "known exactly" in found.reason
    crossing = {"v1": {"even": [0, 1] * 5, "low": [0] * 3 + [1] * 7}}
    wide = Problem(
        Schema({f"v{i}": 10 for i in range(9)}, recodes=crossing), {"v0 * even": 1.0, "low * v2": 1.0, "v0 * v2": 1.0}
    )
    found = certify(wide, np.ones(140), np.ones(140))
    assert found.bound is None
    assert "too many" in found.reason
    assert "cut 'v1' into groups that cross" in found.reason
    assert found.piece is None
    nested = Problem(
        Schema({f"v{i}": 10 for i in range(9)}),
        {"v0": 4.0, "v0 * v1": 1.0, "v1 * v2": 1.0},
        equalities=(sparse.csr_array(np.eye(1, 210)), [3.0]),
    )
    found = certify(nested, np.ones(210), np.ones(210))
    assert found.piece == "1 of 3 tables agree with a table that contains them to 4.5 standard errors"


def test_an_operator_that_solves_is_certified() -> None:
    rng = np.random.default_rng(0)
    n = 7
    K = np.eye(n) + 0.2

    class Solving(LinearOperator):
        def _matvec(self, v: np.ndarray) -> np.ndarray:
            return K @ v

        def _adjoint(self) -> LinearOperator:
            return self

        def solve(self, V: np.ndarray) -> np.ndarray:
            return np.linalg.solve(K, V)

    schema = Schema({"a": 3, "b": 3})
    problem = Problem(schema, {"total": None, "a": None, "b": None}, covariance=Solving(np.float64, (n, n)))
    y = 10 + rng.standard_normal(n)
    A = problem.constraint_matrix().toarray()
    x = y - K @ A.T @ np.linalg.solve(A @ K @ A.T, A @ y)
    assert certify(problem, y, x).bound < 1e-11
    assert (certify(problem, y, x + np.array([1, 1, 0, 0, 1, 0, 0]) * 1e-6).bound or 1) > 1e-7


def test_shared_noise_with_exact_and_unmeasured_cells() -> None:
    schema = Schema({"a": 3, "b": 2})
    own = np.concatenate([[0.0], [1.0, 1.0, np.inf], np.full(6, 2.0)])
    U = np.where((own > 0) & np.isfinite(own), 0.5, 0.0)[:, None]
    problem = Problem(schema, {"total": None, "a": None, "detailed": None}, covariance=LowRankPlusDiagonal(own, U))
    y = np.concatenate([[21.0], [5.0, 9, 0], [2.0, 3, 4, 5, 3, 4]])
    P = blue(problem)
    assert certify(problem, y, P @ y + P.offset).bound < 1e-10


def test_bad_input_is_refused_by_name() -> None:
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "a": 1.0})
    refuses(r"x must have shape \(3,\)", certify, problem, np.zeros(3), np.zeros(2))
    refuses("table 'a', cell \\(a=1\\) of x is not finite", certify, problem, np.zeros(3), [0, 0, np.nan])


def test_nothing_of_the_solvers_takes_part() -> None:
    folder = Path(blue_solvers.verification.__file__).parent
    allowed = ("blue_solvers.verification", "blue_solvers.blas_threads", "constraint_builders", "numpy", "scipy")
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert not name.startswith("blue_solvers") or name.startswith(allowed), (path.name, name)


@every("solver", ["auto", "dense", "cholesky", "cg", "multigrid", "two_pass"])
def test_what_nothing_determines_stands_in_no_proof_s_way(solver: str) -> None:
    """Solvers give undetermined cells any value; the others are proved, and wrong ones are not."""
    rng = np.random.default_rng(0)
    schema, spine = Schema({"a": 3, "b": 4}), Spine([-1, 0, 0, 1, 1, 2, 2])
    both = {"a": 1.0, "detailed": 1.0}
    for problem in (
        Problem(schema, {"total": 1.0, "a": 1.0, "b": np.inf}, ["a"]),
        Problem(schema, {"total": 1.0, "a": 1.0, "detailed": np.inf}, ["a"]),
        Problem(
            schema,
            {"depth 0": both, "depth 1": both, "depth 2": {"a": 1.0, "detailed": np.inf}},
            {"depth 0": ["a"]},
            spine=spine,
        ),
    ):
        y = rng.normal(10, 1, problem.observed.size)
        est = blue(problem, solver).estimate(y, certify=True)
        assert est.info.exact, est.proof
        wrong = np.where(problem.unmeasured, np.nan, est.observed)
        wrong[0] += 1e-3
        assert (certify(problem, y, wrong).bound or 1) > 1e-4


@every("tables", [("a", "b"), ("total", "a", "recode", "b"), ("a * b",), ("a", "detailed")])
@every("over", ["one place", "spine"])
def test_where_every_cell_is_known_to_be_empty_all_is_zero(tables: tuple[str, ...], over: str) -> None:
    schema = Schema({"a": 2, "b": 3}, recodes={"b": {"recode": [0, 0, 1]}})
    observed = dict.fromkeys(tables, 2.0)
    if over == "spine":
        spine = Spine([-1, 0, 0], ["State", "County", "County"])
        empty = {"State": {"b": np.ones((1, 3), dtype=bool)}}
        problem = Problem(schema, dict.fromkeys(spine.levels, observed), spine=spine, zeros=empty)
    else:
        problem = Problem(schema, observed, zeros={"a": np.ones(2, dtype=bool)})
    est = estimate(problem, np.arange(1.0, 1 + problem.observed.size))
    assert not est.values.any()
    assert not est.std_errors.any()
    assert est.certificate().is_proved
    assert est.goodness_of_fit().degrees_of_freedom == problem.observed.size


def test_tables_may_be_named_in_any_order() -> None:
    schema = Schema({"a": 30, "b": 40, "c": 20})
    spine = Spine([-1, *[0] * 3])
    for tables in ({"b * a": 4.0, "a * c": 2.0, "c * b": 1.0}, {"a": 4.0, "b * a": 1.0}):
        problem = Problem(schema, tables if len(tables) == 3 else dict.fromkeys(spine.levels, tables),
                          spine=None if len(tables) == 3 else spine)  # fmt: skip
        assert problem.observed.size > 2_000
        y = noisy(problem, 1e5)
        assert certify(problem, y, blue(problem) @ y).bound < 1e-9


def dense_equations(rows: int, cells: int) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """Equations without a zero in them, measurements, the estimate, and its standard errors."""
    rng = np.random.default_rng(0)
    A, v, y = rng.normal(size=(rows, cells)), rng.uniform(1, 4, cells), rng.normal(10, 1, cells)
    gain = (A * v).T @ np.linalg.inv((A * v) @ A.T)
    x = y - gain @ (A @ y)
    return Problem.from_matrix(A, v), y, x - gain @ (A @ x), np.sqrt(v - np.einsum("ij,ji,i->i", gain, A, v))


def test_equations_without_a_zero_are_certified_as_fast_as_they_are_solved() -> None:
    """What relates the cells are the equations themselves: nothing is eliminated."""
    problem, y, x, std_errors = dense_equations(300, 500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("constraint_builders.relations.equations.eliminate", lambda *_: pytest.fail("eliminated"))
        assert certify(problem, y, x).bound < 1e-10
        P = problem.constraint_matrix("all").toarray()
        moved = x + 1e-5 * (np.eye(500) - np.linalg.pinv(P) @ P)[0] * std_errors[0]
        error = (abs(moved - x) / std_errors).max()
        assert certify(problem, y, moved).bound >= error * (1 - 1e-6)


def test_equations_of_too_many_cells_are_refused_before_any_work() -> None:
    A = sparse.csr_array(sparse.eye_array(10, 2001, k=1) - sparse.eye_array(10, 2001))
    problem = Problem.from_matrix(A, np.ones(2001))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blue_solvers.verification.weighed_noise.lsqr", lambda *_, **__: pytest.fail("worked"))
        said = certify(problem, np.ones(2001), np.ones(2001))
    assert said.bound is None
    assert "among 2,001 figures" in said.reason
    assert "2,000 counts" in said.reason


def test_cells_of_which_nothing_is_said_leave_noise_that_others_share_alone() -> None:
    """Right answers with NaN in cells that were not measured had a bound that was no number."""
    own = np.array([1.0, 2, np.inf, 1, 2, 1, 1, 3, 2])
    covariance = LowRankPlusDiagonal(own, np.where(np.isinf(own), 0.0, 0.5)[:, None])
    problem = Problem(Schema({"a": 3, "c": 2}), {"a": None, "a * c": None}, covariance=covariance)
    y = np.arange(9.0)
    x = blue(problem, "cholesky") @ np.where(problem.unmeasured, 0.0, y)
    assert certify(problem, y, np.where(problem.unmeasured, np.nan, x)).bound < 1e-10


@pytest.mark.parametrize(("right", "proved"), [(0.0, True), (1.0, False)])
def test_equalities_that_speak_of_no_cell(right: float, proved: bool) -> None:
    problem = Problem(Schema({"a": 3}), {"a": 1.0, "total": 2.0})
    nothing = problem.replace(equalities=(sparse.csr_array((1, 4)), np.array([right])))
    y = np.array([3.0, 4.0, 5.0, 11.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blue_solvers.verification.certificate.MOST_LISTED", 0)
        patch.setattr("blue_solvers.verification.certificate.can_be_listed", lambda *_: False)
        bound = certify(nothing, y, blue(problem) @ y).bound
    assert (bound is not None and bound < 1e-12) == proved


EXACT_KINDS = [
    ({"S": {"detailed": 0.0, "sex": 4.0}, "B": {"detailed": 1.0, "age": 2.0}}, ("S", "sex")),
    ({"S": {"sex": 0.0, "total": 1.0}, "B": {"detailed": 1.0, "age": 2.0}}, ("S", "total")),
    ({"S": {"detailed": 1.0}, "B": {"detailed": 0.0, "age": 1.0}}, ("S", "detailed")),
    ({"S": {"total": 0.0}, "B": {"detailed": 1.0, "total": [0.0] * 29 + [1.0]}}, ("B", "total")),
]


@every(("observed", "name"), EXACT_KINDS)
def test_what_follows_from_exact_tables_of_a_spine_is_exact(observed: dict, name: tuple[str, str]) -> None:
    """Off by any number it is refused: it has no standard error that it could be divided by."""
    spine = Spine([-1] + [0] * 30, ["S"] + ["B"] * 30)
    problem = Problem(Schema({"sex": 2, "age": 100}), observed, spine=spine)
    M = problem.marginal_matrix()
    counts = np.random.default_rng(0).poisson(5, M.shape[1]).astype(float)
    y = M @ counts + np.sqrt(problem.variances) * np.random.default_rng(1).standard_normal(M.shape[0])
    P = blue(problem)
    x = P @ y + P.offset
    assert certify(problem, y, x).bound < 1e-8
    cells = np.arange(*problem.observed.slice(name).indices(x.size))
    cell = int(cells[-1])
    assert P.variances()[cell] < 1e-12
    wrong = x.copy()
    wrong[cell] += 1e-6
    assert certify(problem, y, wrong).bound is None
    uncertain = int(np.flatnonzero(P.variances() > 0.1)[7]) if (P.variances() > 0.1).any() else None
    if uncertain is not None:
        wrong = x.copy()
        wrong[uncertain] += 1e-6
        found = certify(problem, y, wrong)
        assert found.bound is None or found.bound > 1e-7
