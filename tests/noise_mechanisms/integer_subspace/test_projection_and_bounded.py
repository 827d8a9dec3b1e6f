"""The comparison mechanism, and tables that must not be negative."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from noise_mechanisms.integer_subspace import BoundedMechanism, Invariants, equivalent_tables, projected_noise
from noise_mechanisms.laws import DiscreteLaplace
from tests.noise_mechanisms.integer_subspace.enumeration import FALSE_ALARM, margins, p_value

TWO_BY_THREE = margins((2, 3), "a", "b")
COUNTS = np.array([3, 0, 1, 2, 4, 0])


# Three records that pairwise sums determine, and a search that tries them one by one.
ISOLATED = Invariants.from_subsets([[0, 1], [1, 2], [0, 2]], records=3)
ISOLATED_TABLE = np.array([400, 400, 400])


def listed_by_force(invariants: Invariants, table: np.ndarray, top: int) -> set[tuple[int, ...]]:
    target = invariants.matrix @ table
    every = np.array(list(product(range(top + 1), repeat=invariants.records)))
    return {tuple(row) for row in every[(every @ invariants.matrix.T == target).all(axis=1)].tolist()}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("invariants", [margins((4,), "total"), TWO_BY_THREE])
def test_projected_noise_is_as_near_as_possible(invariants: Invariants, whole: bool) -> None:
    moved = projected_noise(invariants, 0.5, 20, rng=1, whole=whole)
    np.testing.assert_allclose(invariants.matrix @ moved.T, 0, atol=1e-9)
    if whole:
        assert np.array_equal(moved, np.rint(moved))
    noise = DiscreteLaplace(2.0).sample(20 * invariants.records, 1).reshape(20, -1)
    A = np.hstack([invariants.matrix.toarray(), -invariants.matrix.toarray()])
    for before, after in zip(noise, moved, strict=True):
        nearest = linprog(np.ones(A.shape[1]), A_eq=A, b_eq=-(invariants.matrix @ before)).fun
        # Margins of two-way tables and totals are totally unimodular: whole numbers cost nothing.
        assert abs(after - before).sum() == pytest.approx(nearest, abs=1e-7)


@pytest.mark.parametrize(
    ("invariants", "table", "binary"),
    [
        (TWO_BY_THREE, COUNTS, False),
        (margins((2, 2, 2), "a * b", "c"), np.array([1, 0, 2, 0, 0, 1, 1, 0]), False),
        (Invariants.from_subsets([[0, 1, 2], [0, 2, 3, 4], [1, 4, 5, 0]], 6), np.array([1, 0, 1, 0, 1, 1]), False),
        (margins((3, 3), "a", "b"), np.eye(3, dtype=int).ravel(), True),
        (margins((5,), "total"), np.array([1, 0, 1, 0, 0]), True),
    ],
)
def test_all_equivalent_tables_are_listed(invariants: Invariants, table: np.ndarray, binary: bool) -> None:
    top = 1 if binary else int((invariants.matrix @ table).max())
    listed = equivalent_tables(invariants, table, binary)
    assert {tuple(row) for row in listed.tolist()} == listed_by_force(invariants, table, top)
    assert len(listed) == len(np.unique(listed, axis=0))


def test_bounded_draws_follow_their_law() -> None:
    mechanism = BoundedMechanism(TWO_BY_THREE, 0.8)
    assert p_value(mechanism.sample(COUNTS, 20_000, rng=2), *mechanism.law(COUNTS)) > FALSE_ALARM
    released = np.array([mechanism.release(COUNTS) for _ in range(300)])
    assert p_value(released, *mechanism.law(COUNTS)) > FALSE_ALARM


@pytest.mark.parametrize("binary", [False, True])
def test_bounded_loss_is_at_most_epsilon_times_the_distance(binary: bool) -> None:
    invariants = margins((3, 3), "a", "b") if binary else TWO_BY_THREE
    start = np.eye(3, dtype=int).ravel() if binary else COUNTS
    mechanism = BoundedMechanism(invariants, 0.8, binary)
    tables, _ = mechanism.law(start)
    logs = np.log([mechanism.law(table)[1] for table in tables])
    losses = abs(logs[:, None, :] - logs[None, :, :]).max(axis=2)
    distances = abs(tables[:, None, :] - tables[None, :, :]).sum(axis=2)
    assert (losses <= 0.8 * distances + 1e-12).all()
    assert mechanism.guarantee.loss_at(2.0) == pytest.approx(1.6)


def test_the_bias_of_bounded_tables_is_shown() -> None:
    mechanism = BoundedMechanism(TWO_BY_THREE, 0.5)
    bias = mechanism.bias(COUNTS)
    assert bias[1] > 0.3  # a zero can only grow
    np.testing.assert_allclose(TWO_BY_THREE.matrix @ bias, 0, atol=1e-12)
    draws = mechanism.sample(COUNTS, 40_000, rng=3)
    # Five standard errors.
    assert (abs(draws.mean(axis=0) - COUNTS - bias) < 5 * draws.std(axis=0) / 200).all()
    far = np.array([40, 40, 40, 40, 40, 40])
    assert abs(mechanism.bias(far)).max() < 1e-3


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: equivalent_tables(TWO_BY_THREE, [1, -1, 0, 0, 0, 0]), "values from -1 to 1: they must be 0 or more"),
        (lambda: equivalent_tables(TWO_BY_THREE, [2, 1, 0, 0, 0, 0], binary=True), "they must be 0 or 1"),
        (lambda: equivalent_tables(Invariants.from_subsets([[0, 1]], 3), [1, 1, 1]), "record 2 is in no set"),
        (lambda: equivalent_tables(margins((4, 4), "a", "b"), np.full(16, 5), limit=1000), "more than 1,000 tables"),
        (lambda: equivalent_tables(margins((30, 30), "a", "b"), np.ones(900)), "900 records: at most 500"),
        (lambda: equivalent_tables(ISOLATED, ISOLATED_TABLE, limit=3), "61 dead ends and 0 tables"),
        (lambda: BoundedMechanism(TWO_BY_THREE, -1.0), "epsilon is -1.0"),
    ],
)
def test_what_cannot_be_listed_is_refused(act: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        act()  # type: ignore[operator]
