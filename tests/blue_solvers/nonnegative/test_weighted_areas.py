"""Areas of any weights, overlapping, exact and unmeasured, with zeros and equalities: fits and bounds by other means.

Matrices are written out from descriptions; optima are worked out in rationals, bounds by linear programs.
"""

from functools import cache

import numpy as np
import pytest
from scipy.optimize import linprog

from blue_solvers import blue, intervals
from blue_solvers.nonnegative import (
    METHODS,
    NonnegativeFit,
    NotConvergedError,
    anchored_fit,
    inverted_intervals,
    max_fit,
    nnls,
    ols,
    refine_intervals,
    reweighted_fit,
    sequential_fit,
)
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.price.bounds import PureDP, conflicts
from constraint_builders import Areas, Problem, Schema
from tests.blue_solvers.nonnegative.exact_quadratic_programs import LeastSquares
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.invent import Invented, Kind, invent
from tests.helpers.refused import refuses

ONE = Schema({"unit": 1})
SEEDS = range(600)
MOST = 5  # cells


def is_small(described: Description) -> bool:
    return 0 < int((~described.empty_cells()).sum()) <= MOST


@cache
def invented() -> list[Invented]:
    found = [invent(seed, Kind(areas="weights", decades=4.0, count=3.0), is_small) for seed in SEEDS]
    return [one for one in found if one is not None and is_taken(one)]


def is_taken(one: Invented) -> bool:
    """Whether it is a problem; a few are refused whose cells follow from equalities alone."""
    try:
        one.description.problem()
    except ValueError as refusal:
        assert "not estimable" in str(refusal)  # noqa: PT017
        return False
    return True


def program(one: Invented, y: np.ndarray, signed: bool = False) -> LeastSquares:
    """The least squares over all cells that are no structural zeros."""
    d = one.description
    M, v = d.marginal_matrix()[:, ~d.empty_cells()], d.variances
    rows, answers, variances = [M[np.isfinite(v)]], [y[np.isfinite(v)]], [v[np.isfinite(v)]]
    if d.equalities is not None:
        E, e = d.equalities
        rows, answers, variances = [*rows, E @ M], [*answers, e], [*variances, np.zeros(len(e))]
    return LeastSquares(np.vstack(rows), np.concatenate(answers), np.concatenate(variances), signed)


def known(q: LeastSquares) -> tuple[np.ndarray, np.ndarray]:
    return q.M[q.v == 0], q.a[q.v == 0]


def extreme(q: LeastSquares, weights: np.ndarray) -> float:
    """The least that a weighted sum of non-negative cells can be, given what is known exactly."""
    A, b = known(q)
    found = linprog(weights, A_eq=A if len(A) else None, b_eq=b if len(A) else None, method="highs")
    return -np.inf if found.status == 3 else float(found.fun)


def cells_of(one: Invented, fit: NonnegativeFit) -> np.ndarray:
    empty = one.description.empty_cells()
    assert not fit.detail.ravel()[empty].any()
    return fit.detail.ravel()[~empty]


def require_consistent(one: Invented, y: np.ndarray, fit: NonnegativeFit, q: LeastSquares) -> np.ndarray:
    """What the fit says of tables and exact values is what its cells sum to."""
    x = cells_of(one, fit)
    scale = max(1.0, np.nanmax(abs(y)), x.max(initial=0.0))
    np.testing.assert_allclose(fit.observed, one.description.marginal_matrix() @ fit.detail.ravel(), atol=1e-9 * scale)
    np.testing.assert_allclose(fit.desired, one.description.desired_matrix() @ fit.detail.ravel(), atol=1e-7 * scale)
    A, b = known(q)
    assert abs(A @ x - b).max(initial=0.0) <= fit.margin_residual + 1e-11 * scale
    assert fit.margin_residual <= 1e-9 * scale
    return x


@pytest.mark.few(1)
@pytest.mark.parametrize(("method", "signed"), [(nnls, False), (ols, True)], ids=["nnls", "ols"])
@lengths("every_nth", 3, 1)
def test_least_squares_are_the_optimum_worked_out_in_rationals(every_nth: int, method, signed) -> None:
    done = 0
    for one in invented()[::every_nth]:
        q = program(one, one.y, signed)
        best = q.optimum()
        if best is None:
            refuses("known exactly", method, one.description.problem(), one.y, error=(NotConvergedError, ValueError))
            continue
        fit = method(one.description.problem(), one.y)
        x = require_consistent(one, one.y, fit, q)
        assert signed or x.min() >= 0
        assert abs(q.objective(x) - float(best)) <= 1e-7 * (1 + float(best))
        np.testing.assert_allclose(fit.objective, float(best), rtol=1e-7, atol=1e-7)
        done += 1
    assert done > 60 / every_nth


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [ols, nnls, max_fit, anchored_fit], ids=lambda method: method.__name__)
@lengths("every_nth", 3, 1)
def test_without_noise_the_measurements_come_back(every_nth: int, method) -> None:
    for one in invented()[::every_nth]:
        try:
            fit = method(one.description.problem(), one.truth)
        except ValueError as refusal:
            assert "the sum of all cells" in str(refusal)  # noqa: PT017  nothing determines it
            continue
        measured = np.isfinite(one.description.variances)
        np.testing.assert_allclose(fit.observed[measured], one.truth[measured], atol=1e-6 * max(1.0, one.truth.max()))


@lengths("every_nth", 6, 1)
def test_max_fit_has_the_least_largest_deviation(every_nth: int) -> None:
    for one in invented()[::every_nth]:
        q = program(one, one.y)
        noisy, (A, b) = q.v > 0, known(q)
        M, a, sd = q.M[noisy], q.a[noisy], np.sqrt(q.v[noisy])[:, None]
        best = linprog(
            np.append(np.zeros(M.shape[1]), 1.0),
            A_ub=np.block([[M, -sd], [-M, -sd]]),
            b_ub=np.concatenate([a, -a]),
            A_eq=np.hstack([A, np.zeros((len(A), 1))]) if len(A) else None,
            b_eq=b if len(A) else None,
        )
        if best.status:
            continue
        fit = max_fit(one.description.problem(), one.y, slack=0.1)
        x = require_consistent(one, one.y, fit, q)
        assert abs((M @ x - a) / sd[:, 0]).max(initial=0.0) <= best.fun + 0.1 + 1e-5 * (1 + best.fun)
        np.testing.assert_allclose(fit.objective, q.objective(x), rtol=1e-6, atol=1e-6)


@lengths("every_nth", 12, 1)
def test_anchored_fits_hold_the_unbiased_sum_where_there_is_one(every_nth: int) -> None:
    held = 0
    for one in invented()[::every_nth]:
        q, ones = program(one, one.y), None
        if q.optimum() is None:
            continue
        ones = np.ones(q.M.shape[1])
        determined = np.allclose(ones @ np.linalg.pinv(q.M) @ q.M, ones, atol=1e-8)
        if not determined:
            refuses("nothing that was measured determines", anchored_fit, one.description.problem(), one.y)
            continue
        x = require_consistent(one, one.y, anchored_fit(one.description.problem(), one.y), q)
        unbiased = cells_of(one, ols(one.description.problem(), one.y)).sum()
        wanted = np.clip(max(unbiased, 0.0), extreme(q, ones), -extreme(q, -ones))
        np.testing.assert_allclose(x.sum(), wanted, atol=1e-6 * max(1.0, abs(one.y).max()))
        held += 1
    assert held > 40 / every_nth


def is_partition(rows: np.ndarray) -> bool:
    """Whether every cell is in one row, once."""
    return bool(((rows != 0).sum(axis=0) == 1).all() and (rows[rows != 0] == 1).all())


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [sequential_fit, reweighted_fit], ids=["sequential", "reweighted"])
def test_tables_that_are_no_partition_are_refused_before_anything_is_solved(method, monkeypatch) -> None:
    solved = []
    for name in ("sequential_fit", "reweighted_fit"):
        module = __import__(f"blue_solvers.nonnegative.{name}", fromlist=["solve"])
        for solver in {"solve", "attempt"} & set(dir(module)):
            monkeypatch.setattr(module, solver, lambda *given: solved.append(given) or 1 / 0)
    refused = 0
    for one in invented():
        d, cut = one.description, 0
        whole = []
        for block in d.observed:
            place, cut = slice(cut, cut + block.values.size), cut + block.values.size
            rows = d.marginal_matrix()[place][:, ~d.empty_cells()]
            held = (rows != 0).any(axis=1)
            exact = not d.variances[place][held].any()
            if np.isfinite(d.variances[place][held]).any() and not (exact and method is reweighted_fit):
                whole.append(is_partition(rows[held]))
        said = ""
        try:
            method(d.problem(), one.y)
        except ZeroDivisionError:
            pass
        except ValueError as refusal:
            said = str(refusal)
        if not said:  # solved, or nothing but exact leaves, which needs no solving
            assert all(whole)
        elif "partition" in said or "does not cover" in said:
            assert not all(whole)
            refused += 1
        else:  # for another reason, by name
            assert any(word in said for word in ("one variance each", "holds whole tables", "equalities", "exactly"))
    assert refused > 10
    assert len(solved) < len(invented())


def test_promises_over_weighted_areas_are_refused_by_name() -> None:
    problem = Problem(ONE, {"R": {"total": 1.0}, "Leaf": {"total": 4.0}}, areas=Areas(3, {"R": [[2, 1, 1]]}))
    with pytest.raises(ValueError, match=r"\('R', 'total'\) is no partition"):
        conflicts(problem, {("R", "total"): 1e-6, ("Leaf", "total"): 1.0}, PureDP(1.0))


@every("seed", range(20))
def test_sequential_fits_of_exact_leaves_keep_their_order(seed: int) -> None:
    """Layers that cross, each known exactly: their common refinement comes in another order than the leaves."""
    rng = np.random.default_rng(seed)
    leaves = int(rng.integers(2, 7))
    layers = {name: rng.integers(0, 2, leaves).tolist() for name in ("A", "B")}
    schema = Schema({"sex": 2})
    observed = {"A": {"total": 0.0}, "B": {"sex": 0.0}, "Leaf": {"sex": float(rng.choice([0.0, 1.0]))}}
    problem = Problem(schema, observed, areas=Areas(leaves, layers))
    cells = rng.poisson(5.0, (leaves, 2)).astype(float)
    incidence = [[[float(own == name) for own in labels] for name in sorted(set(labels))] for labels in layers.values()]
    first, second = (np.array(own) @ cells for own in incidence)
    y = np.concatenate([first.sum(axis=1), second.ravel(), cells.ravel()])
    np.testing.assert_allclose(sequential_fit(problem, y).detail, cells, atol=1e-9)


@pytest.mark.parametrize("method", [*METHODS.values(), ols], ids=lambda method: method.__name__)
@pytest.mark.parametrize("what", ["cell_scales", "sums"])
def test_a_model_that_misreads_weights_gives_no_fit(method, what, monkeypatch) -> None:
    """The matrix of the problem has the last word on the objective and on what is known exactly."""
    problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0})
    y = np.array([5.0, 2.0, 4.0])
    right, wrong = FittingModel(problem), FittingModel(problem)
    monkeypatch.setattr(FittingModel, "of", lambda problem: right)
    fit = method(problem, y)
    assert fit.gap <= 1e-8
    wrong.__dict__[what] = 3 * getattr(wrong, what)
    monkeypatch.setattr(FittingModel, "of", lambda problem: wrong)
    if method is sequential_fit:  # whose programs are made of labels
        wrong.__dict__["_labels"] = {"total": np.array([0, 0]), "sex": np.array([1, 0])}
    if method is max_fit and what == "sums":  # of which none is left: sums with bounds are those of M
        np.testing.assert_allclose(method(problem, y).detail, fit.detail, rtol=1e-9)
        return
    refuses("please report", method, problem, y, error=NotConvergedError)


def test_what_no_cells_sum_to_is_refused_by_its_sign_and_other_differences_are_fitted() -> None:
    for layer, value, right in (
        ([1, -1], -3.0, True),
        ([1, -1], 3.0, True),
        ([-1, -1], 3.0, False),
        ([2, 1], -3.0, False),
    ):
        problem = Problem(ONE, {"R": {"total": 0.0}, "Leaf": {"total": 4.0}}, areas=Areas(2, {"R": [layer]}))
        y = np.array([value, 7.0, 8.0])
        if right:
            np.testing.assert_allclose(nnls(problem, y).detail.ravel() @ layer, value)
            continue
        refuses(r"\('R', 'total'\).* is known exactly and (negative|positive)", nnls, problem, y)


def test_the_objective_of_cells_that_are_all_empty_is_that_of_the_measurements() -> None:
    problem = Problem(Schema({"sex": 2}), {"total": 2.0, "sex": 4.0}, zeros={"sex": np.array([True, True])})
    assert nnls(problem, [4.0, 2.0, 0.0]).objective == (4.0**2 / 2 + 2.0**2 / 4) / 2
    with pytest.raises(ValueError, match="equality 0 and the structural zeros contradict"):
        Problem(
            Schema({"sex": 2}), {"sex": 4.0}, zeros={"sex": np.array([True, True])}, equalities=([[1.0, 1.0]], [5.0])
        )


@lengths("every_nth", 24, 1)
def test_refined_intervals_leave_every_possible_value_in(every_nth: int) -> None:
    """Limits are never narrower than a linear program's, and intervals that hold the truth hold it still."""
    cut = 0
    for one in invented()[:: 2 * every_nth]:
        problem = one.description.problem()
        D = one.description.desired_matrix()[:, ~one.description.empty_cells()]
        q, y = program(one, one.y), one.y
        slack = 1e-7 * max(1.0, abs(one.truth).max())
        nowhere = np.full(len(D), np.inf)
        low, high = refine_intervals(problem, y, -nowhere, nowhere)
        for place in np.flatnonzero(np.isfinite(high)):
            assert high[place] >= -extreme(q, -D[place]) - slack
        for place in np.flatnonzero(np.isfinite(low)):
            assert low[place] <= extreme(q, D[place]) + slack
        cut += int(np.isfinite(high).sum() + (np.isfinite(low) & (low < 0)).sum())
        P = blue(problem)
        wanted = P @ one.truth + P.offset
        for given in (one.truth, y):
            bounds = intervals(P, given, 0.99)
            refined = refine_intervals(problem, given, *bounds)
            held, still = ((a - slack <= wanted) & (wanted <= b + slack) for a, b in (bounds, refined))
            assert (still | ~held).all()
            assert held.all() or given is y
    assert cut > 50 / every_nth


def statistic(q: LeastSquares, row: np.ndarray, value: float, best: float) -> float | None:
    """Of the hypothesis that a weighted sum of cells has a value; None where none have it."""
    held = LeastSquares(np.vstack([q.M, row]), np.append(q.a, value), np.append(q.v, 0.0))
    found = held.optimum()
    return None if found is None else 2 * (float(found) - best)


def test_inverted_intervals_end_where_the_test_does() -> None:
    """At an end the statistic, in rationals, is critical; or it is an end of the BLUE's interval, or a limit."""
    ends = 0
    for one in invented()[::9]:
        problem, D = one.description.problem(), one.description.desired_matrix()[:, ~one.description.empty_cells()]
        q = program(one, one.truth)
        place = len(D) - 1
        found = inverted_intervals(problem, one.truth, [place], 0.9, draws=3, rng=1)
        P = blue(problem)
        error = float(np.sqrt(max(P.variances()[place], 0.0)))
        centre = float((P @ one.truth + P.offset)[place])
        assert found.lower[0] - 1e-7 * max(1, abs(centre)) <= centre <= found.upper[0] + 1e-7 * max(1, abs(centre))
        if error == 0:
            continue
        for end, critical, side in (
            (found.lower[0], found.critical[0, 0], -1),
            (found.upper[0], found.critical[1, 0], 1),
        ):
            inner = end - side * 0.01 * error
            at = statistic(q, D[place], round(inner * 2**30) / 2**30, 0.0)
            assert at is None or (inner - centre) * side < 0 or at <= critical * 1.001 + 1e-6
            outer = end + side * 0.01 * error
            beyond = statistic(q, D[place], round(outer * 2**30) / 2**30, 0.0)
            stops = abs(outer - centre) >= 1.95 * error
            assert stops or beyond is None or beyond >= critical * 0.98
            ends += 1
    assert ends > 5


SUMS = [[[1, -1], [1, 0], [0, 1]], [[3, 0], [0, -1]], [[1, 1, 1], [0.5, -2, 0], [0, 1, 0], [0, 0, 1]], [[1, 2], [1, 1]]]


@pytest.mark.few(6)
@pytest.mark.parametrize("S", [*SUMS, *range(6)])
def test_leaves_of_a_summing_matrix_are_areas_of_one_cell(S: list | int) -> None:
    """A node with negative weights may have any sign; what is not negative are the leaves."""
    rng = np.random.default_rng(0 if isinstance(S, list) else S)
    if not isinstance(S, list):
        S = (rng.choice([-1.0, 0, 0.5, 1, 2], (4, 3)) + np.eye(4, 3) * 7).tolist()
    S = np.array(S, dtype=float)
    leaves, variances = rng.poisson(8, S.shape[1]).astype(float), rng.uniform(1, 4, len(S))
    variances[0] = 0.0
    truth = S @ leaves
    y = truth + np.sqrt(variances) * rng.standard_normal(len(S))
    nodes = Problem.from_summing_matrix(S, variances)
    areas = Problem(ONE, {"R": {"total": variances}}, {"R": ["total"]}, areas=Areas(S.shape[1], {"R": S}))
    for method in (ols, nnls, max_fit, anchored_fit):
        fit, same = method(nodes, y), method(areas, y)
        np.testing.assert_allclose(fit.observed, same.observed, atol=1e-5)
        np.testing.assert_allclose(fit.observed, S @ fit.detail, atol=1e-9)
        assert method is ols or fit.detail.min() >= 0
        np.testing.assert_allclose(method(nodes, truth).observed, truth, atol=0.05 if method is max_fit else 1e-6)
    lower, upper = truth - 1.0, truth + 1.0
    refined = refine_intervals(nodes, y, lower, upper)
    np.testing.assert_array_equal(refined, refine_intervals(areas, y, lower, upper))
    assert (refined[0] <= truth + 1e-9).all()
    assert (refined[1] >= truth - 1e-9).all()
