"""Wherever arrays are taken: masks, text, complex numbers, truth values, dates, huge integers are refused by name."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import blue, estimate, fit_test
from blue_solvers.adapters import ExactMinTrace
from blue_solvers.nonnegative import METHODS, controlled_rounding, coverage, movements, nnls, ols, refine_intervals
from blue_solvers.nonnegative.microdata_rows import unit_records, weighted_rows
from blue_solvers.nonnegative.price.bounds import PureDP
from blue_solvers.nonnegative.price.private_cells import accurate_points, accurate_sum, project_to_simplex
from blue_solvers.uncertainty import (
    cell_weights,
    confidence_ellipsoid,
    distribution_free_band,
    distribution_free_ellipsoid,
    functionals,
    intervals,
    normal_intervals,
    order_statistic,
    refine_to_integers,
    simultaneous_band,
)
from constraint_builders import LowRankPlusDiagonal, Problem, Schema, Spine
from constraint_builders.geography import Entities
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise
from noise_mechanisms.integer_subspace import Invariants
from noise_mechanisms.laws import draw
from tests.helpers.every import cases, every
from tests.helpers.refused import refuses

SCHEMA = Schema({"a": 3})
PROBLEM = Problem(SCHEMA, {"total": 1.0, "a": 2.0})
TRUTH = np.array([3.0, 1, 1, 1])
SPINE = Spine([-1, 0, 0], ["US", "State", "State"])
PLACES = Problem(Schema({"a": 2}), {"US": {"total": 1.0}, "State": {"a": 2.0}}, spine=SPINE)
TALL = Invariants.from_subsets([[0, 1, 2, 3]], records=4)
P = blue(PROBLEM)
REGION = confidence_ellipsoid(P, np.ones(4), np.eye(4))
RNG = np.random.default_rng(0)


def broken(values: np.ndarray) -> dict[str, Any]:
    """The same array with something in it that is no real number."""
    array = np.asarray(values, dtype=float)
    first = np.zeros(array.shape, dtype=bool)
    first.flat[0] = True
    objects = array.astype(object)
    objects.flat[0] = "1"
    nested = array.tolist()
    found: dict[str, Any] = {
        "masked": np.ma.array(array, mask=first),
        "text": array.astype(str),
        "complex": array + 0j,
        "durations": array.astype("m8[s]"),
        "dates": array.astype("M8[s]"),
        "objects": objects,
        "huge": np.array([10**400] * array.size, dtype=object).reshape(array.shape),
    }
    if array.ndim == 1 and isinstance(nested, list):
        found["masked in a list"] = [np.ma.masked, *nested[1:]]
        found["text in a list"] = ["1", *nested[1:]]
    return found


# what takes it, an array that it accepts, and whether truth values count as 0 and 1 there
DOORS: dict[str, tuple[Callable[[Any], Any], np.ndarray, bool]] = {
    "layout.vector": (lambda v: PROBLEM.observed.vector({"total": 1.0, "a": v}), np.ones(3), False),
    "problem.vector": (lambda v: PROBLEM.vector({"total": 1.0, "a": v}), np.ones(3), False),
    "problem.check_vector": (PROBLEM.check_vector, np.ones(4), False),
    "spine vector": (lambda v: PLACES.vector({("US", "total"): [1.0], ("State", "a"): v}), np.ones((2, 2)), False),
    "observed variances": (lambda v: Problem(SCHEMA, {"total": 1.0, "a": v}), np.ones(3), False),
    "variances on a spine": (
        lambda v: Problem(Schema({"a": 2}), {"US": {"total": 1.0}, "State": {"a": v}}, spine=SPINE),
        np.ones((2, 2)),
        False,
    ),
    "with_variances": (PROBLEM.with_variances, np.ones(4), False),
    "covariance": (lambda v: Problem(SCHEMA, {"total": None, "a": None}, covariance=v), np.eye(4), False),
    "low rank, diagonal": (lambda v: LowRankPlusDiagonal(v, np.ones((3, 1))), np.ones(3), False),
    "low rank, factor": (lambda v: LowRankPlusDiagonal(np.ones(3), v), np.ones((3, 1)), True),
    "low rank, solve": (LowRankPlusDiagonal(np.ones(3), np.ones((3, 1))).solve, np.ones(3), True),
    "from_matrix, A": (lambda v: Problem.from_matrix(v, np.ones(2)), np.ones((1, 2)), True),
    "from_matrix, variances": (lambda v: Problem.from_matrix([[1.0, -1.0]], v), np.ones(2), False),
    "from_matrix, covariance": (lambda v: Problem.from_matrix([[1.0, -1.0]], v), np.eye(2), True),
    "from_matrix, b": (lambda v: Problem.from_matrix([[1.0, -1.0]], np.ones(2), v), np.ones(1), False),
    "from_summing_matrix, S": (lambda v: Problem.from_summing_matrix(v, 1.0), np.eye(2), True),
    "from_summing_matrix, variances": (lambda v: Problem.from_summing_matrix(np.eye(2), v), np.ones(2), False),
    "equalities": (lambda v: Problem(SCHEMA, {"a": 1.0}, equalities=(v, [1.0])), np.ones((1, 3)), True),
    "equalities, b": (lambda v: Problem(SCHEMA, {"a": 1.0}, equalities=(np.ones((1, 3)), v)), np.ones(1), False),
    "truth": (lambda v: Problem(SCHEMA, {"a": 1.0}, truth=v), np.ones(3), False),
    "truth by table": (lambda v: Problem(SCHEMA, {"a": 1.0}, truth={"a": v}), np.ones(3), False),
    "true_vector": (lambda v: true_vector(PLACES, v), np.ones((2, 2)), False),
    "add_noise": (lambda v: add_noise(PROBLEM, v, rng=1), TRUTH, False),
    "draw": (lambda v: draw("laplace", v, rng=1), np.ones(4), False),
    "invariants": (Invariants, np.ones((1, 3)), True),
    "invariants, table": (TALL.apply, np.ones(4), False),
    "P @ y": (lambda v: P.dot(v), np.ones(4), True),
    "P.matvec": (lambda v: P.matvec(v), np.ones(4), True),
    "P.apply": (lambda v: P.apply(v), np.ones(4), True),
    "P.estimate": (lambda v: P.estimate(v), np.ones(4), False),
    "estimate": (lambda v: estimate(PROBLEM, v), np.ones(4), False),
    "fit_test": (lambda v: fit_test(PROBLEM, v), np.ones(4), False),
    "functionals, y": (lambda v: functionals(P, v, np.eye(4)), np.ones(4), False),
    "functionals, W": (lambda v: functionals(P, np.ones(4), v), np.eye(4), True),
    "intervals": (lambda v: intervals(P, v), np.ones(4), False),
    "normal_intervals": (lambda v: normal_intervals(v, np.ones(4)), np.ones(4), False),
    "normal_intervals, errors": (lambda v: normal_intervals(np.ones(4), v), np.ones(4), False),
    "refine_to_integers": (lambda v: refine_to_integers(v, np.ones(4)), np.ones(4), False),
    "refine_to_integers, upper": (lambda v: refine_to_integers(np.ones(4), v), np.ones(4), False),
    "confidence_ellipsoid": (lambda v: confidence_ellipsoid(P, v, np.eye(4)), np.ones(4), False),
    "Ellipsoid.contains": (REGION.contains, np.ones(4), False),
    "simultaneous_band": (lambda v: simultaneous_band(P, v, np.eye(4), simulations=99, rng=1), np.ones(4), False),
    "distribution_free_band": (
        lambda v: distribution_free_band(P, v, np.eye(4), 0.5, draws=9, rng=1),
        np.ones(4),
        False,
    ),
    "distribution_free_ellipsoid": (
        lambda v: distribution_free_ellipsoid(P, v, np.eye(4), 0.5, draws=9, rng=1),
        np.ones(4),
        False,
    ),
    "ols": (lambda v: ols(PROBLEM, v), np.ones(4), False),
    **{name: (lambda v, fit=fit: fit(PROBLEM, v), np.ones(4), False) for name, fit in METHODS.items()},
    "refine_intervals, y": (lambda v: refine_intervals(PROBLEM, v, np.ones(4), np.ones(4)), np.ones(4), False),
    "refine_intervals, lower": (lambda v: refine_intervals(PROBLEM, np.ones(4), v, np.ones(4)), np.ones(4), False),
    "refine_intervals, upper": (lambda v: refine_intervals(PROBLEM, np.ones(4), np.ones(4), v), np.ones(4), False),
    "coverage": (lambda v: coverage(PROBLEM, v, nnls, 2, RNG), TRUTH, False),
    "movements": (lambda v: movements(nnls(PROBLEM, np.ones(4)), v), np.ones(4), False),
    "controlled_rounding": (lambda v: controlled_rounding(PROBLEM, v, ["total"]), np.ones(3), False),
    "weighted_rows": (lambda v: weighted_rows(PROBLEM, v), np.ones(3), False),
    "unit_records": (lambda v: unit_records(PROBLEM, v), np.ones(3), False),
    "accurate_points": (lambda v: accurate_points(v, PureDP(1.0), RNG), np.ones(3), False),
    "accurate_sum": (lambda v: accurate_sum(v, PureDP(1.0), RNG), np.ones(3), False),
    "project_to_simplex": (lambda v: project_to_simplex(v, 1.0), np.ones(3), False),
}
PAIRS = [(door, kind) for door, (_, values, _) in DOORS.items() for kind in broken(values)]


@every("door", DOORS)
def test_what_is_right_is_taken_in_every_form(door: str) -> None:
    take, values, truth_values = DOORS[door]
    take(values)
    take(values.tolist())
    take(values.astype(object))
    take(values.astype(np.float32))
    take(np.ma.array(values, mask=np.zeros(values.shape, dtype=bool)))
    if truth_values:
        take(values.astype(bool))
    elif door != "covariance":
        refuses("truth value", take, values.astype(bool))


@every(("door", "kind"), PAIRS)
def test_what_is_no_array_of_numbers_is_refused_by_name(door: str, kind: str) -> None:
    take, values, _ = DOORS[door]
    if door == "P.matvec":  # scipy's own door, which makes an array of a list before it asks us
        warnings.filterwarnings("ignore", "Warning: converting a masked element to nan", UserWarning)
    with pytest.raises((ValueError, TypeError)) as refusal:
        take(broken(values)[kind])
    message = str(refusal.value)
    assert "\n" not in message
    assert len(message) < 300
    words = (
        "masked",
        "give a number",
        "does not hold numbers",
        "too large for a float",
        "tables are real",
        "a finite number",
    )
    assert any(word in message for word in words), message


@cases(
    ([-1, 0.5], "must hold positions, whole numbers"),
    ([-1, np.inf], "must hold positions, whole numbers"),
    ([True, False], "must hold positions, whole numbers"),
    (["-1", "0"], "must hold positions, whole numbers"),
    ([None, 0], "must hold positions, whole numbers"),
    (np.array([-1, True], dtype=object), "must hold positions, whole numbers"),
    (np.ma.array([-1, 0], mask=[False, True]), "is a masked array"),
)
def test_what_holds_no_positions_of_geounits_is_refused(positions: Any, message: str) -> None:
    for take in (lambda own: Spine(own, ["US", "State"]), lambda own: Entities.from_geounits(SPINE, {"west": own})):
        refuses(message, take, positions)


def test_positions_may_be_whole_numbers_as_objects() -> None:
    """As they are in a column of a data frame that held something else."""
    for dtype in (object, np.int8, float):
        assert Spine(np.array([-1, 0], dtype=dtype), ["US", "State"]) == Spine([-1, 0], ["US", "State"])
        found = Entities.from_geounits(SPINE, {"west": np.array([1], dtype=dtype)})
        assert (found.contains != Entities.from_geounits(SPINE, {"west": [1]}).contains).nnz == 0


@every("kind", ["complex", "text", "dates"])
def test_sparse_matrices_of_something_else_are_refused(kind: str) -> None:
    if kind == "complex":
        matrix = sparse.csr_array(np.ones((1, 2)) + 0j)
        for take in (lambda A: Problem.from_matrix(A, np.ones(2)), lambda A: functionals(P, np.ones(4), A.T)):
            refuses(r"does not hold numbers|W holds a functional", take, matrix)
    else:
        with pytest.raises((ValueError, TypeError)):
            Problem.from_matrix(broken(np.ones((1, 2)))[kind], np.ones(2))


def test_entries_of_few_bits_are_summed_in_floats() -> None:
    """Of one place in a sparse matrix, where eight bits do not hold the sum."""
    parts = sparse.coo_array((np.array([200, 57], dtype=np.uint8), ([0, 0], [0, 0])), shape=(1, 4))
    assert Problem.from_matrix(parts, np.ones(4)).constraint_matrix("all").toarray().tolist() == [[257, 0, 0, 0]]
    assert functionals(P, [3.0, 1, 1, 1], parts.T).estimate == pytest.approx(771)
    assert ExactMinTrace("ols").fit(parts.T, np.ones((4, 1))).S.toarray()[0, 0] == 257
    refuses("0 and 1 only: got 257", Invariants, parts)


def test_zeros_with_a_mask_are_refused() -> None:
    flags = np.ma.array([True, False, False], mask=[True, False, False])
    refuses(r"zeros of 'a' is a masked array", Problem, SCHEMA, {"a": 1.0}, zeros={"a": flags})


def test_masks_of_vectors_that_are_cut_are_refused() -> None:
    masked = np.ma.array(np.ones(4), mask=[True, False, False, False])
    refuses("the vector is a masked array", PROBLEM.observed.tables, masked)
    refuses("cells is a masked array", cell_weights, P, np.ma.array([0, 1], mask=[0, 1]))


LEVELS: dict[str, Callable[[Any], Any]] = {
    "intervals z": lambda level: intervals(P, np.ones(4), level),
    "intervals t": lambda level: intervals(P, np.ones(4), level, "t", 9, 1),
    "intervals distribution_free": lambda level: intervals(P, np.ones(4), level, "distribution_free", 99, 1),
    "order_statistic": lambda level: order_statistic(level, 99),
    "normal_intervals": lambda level: normal_intervals(1.0, 1.0, level),
    "confidence_ellipsoid": lambda level: confidence_ellipsoid(P, np.ones(4), np.eye(4), level),
    "confidence_ellipsoid, draws": lambda level: confidence_ellipsoid(P, np.ones(4), np.eye(4), level, 19, 1),
    "simultaneous_band": lambda level: simultaneous_band(P, np.ones(4), np.eye(4), level, 99, 1),
    "distribution_free_band": lambda level: distribution_free_band(P, np.ones(4), np.eye(4), level, draws=99, rng=1),
    "distribution_free_ellipsoid": lambda level: distribution_free_ellipsoid(
        P, np.ones(4), np.eye(4), level, draws=99, rng=1
    ),
    "coverage": lambda level: coverage(PROBLEM, TRUTH, nnls, 2, RNG, level),
}


@every("take", LEVELS.values())
@every("level", [0, 1, -0.5, 95, np.nan, np.inf, "0.95", 0.95j, True, None, [0.95], np.ma.masked, 10**400])
def test_levels_that_are_none_are_refused_by_name(take: Callable, level: Any) -> None:
    refuses(r"^confidence_level (is|must lie between 0 and 1)", take, level)


@every("take", LEVELS.values())
def test_levels_of_any_kind_are_taken(take: Callable) -> None:
    from decimal import Decimal
    from fractions import Fraction

    for level in (0.5, Fraction(1, 2), Decimal("0.5"), np.float32(0.5), np.float16(0.5)):
        take(level)


@pytest.mark.parametrize("given", ["variances", "covariance"])
def test_a_masked_row_of_a_list_is_refused_before_numpy_warns(given: str) -> None:
    row = np.ma.array([1.0, 0.0], mask=[False, True])
    values = [1.0, np.ma.masked] if given == "variances" else [row, [0.0, 1.0]]
    refuses("masked array", Problem.from_summing_matrix, np.eye(2), **{given: values})
    refuses("masked array", Problem.from_matrix, [[1.0, -1.0]], values)
