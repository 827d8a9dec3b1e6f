"""The comparison mechanism, and tables that must not be negative."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from noise_mechanisms.integer_subspace import BoundedMechanism, Invariants, equivalent_tables, projected_noise
from noise_mechanisms.laws import DiscreteLaplace
from tests.helpers.effort import lengths
from tests.helpers.every import cases, every
from tests.helpers.refused import refused, refuses
from tests.noise_mechanisms.integer_subspace.enumeration import (
    FALSE_ALARM,
    TWO_BY_THREE,
    margins,
    p_value,
    p_value_of_norms,
)

COUNTS = np.array([3, 0, 1, 2, 4, 0])


# Three records that pairwise sums determine, and a search that tries them one by one.
ISOLATED = Invariants.from_subsets([[0, 1], [1, 2], [0, 2]], records=3)
ISOLATED_TABLE = np.array([400, 400, 400])


def listed_by_force(invariants: Invariants, table: np.ndarray, top: int) -> set[tuple[int, ...]]:
    target = invariants.matrix @ table
    every = np.array(list(product(range(top + 1), repeat=invariants.records)))
    return {tuple(row) for row in every[(every @ invariants.matrix.T == target).all(axis=1)].tolist()}


@every("whole", [True, False])
@every("invariants", [margins((4,), "total"), TWO_BY_THREE])
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


@cases(
    (TWO_BY_THREE, COUNTS, False),
    (margins((2, 2, 2), "a * b", "c"), np.array([1, 0, 2, 0, 0, 1, 1, 0]), False),
    (Invariants.from_subsets([[0, 1, 2], [0, 2, 3, 4], [1, 4, 5, 0]], 6), np.array([1, 0, 1, 0, 1, 1]), False),
    (margins((3, 3), "a", "b"), np.eye(3, dtype=int).ravel(), True),
    (margins((5,), "total"), np.array([1, 0, 1, 0, 0]), True),
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


def law_by_force(table: np.ndarray, epsilon: float, binary: bool, top: int) -> tuple[np.ndarray, np.ndarray]:
    """All tables of the same total, and their probabilities, by trying every vector."""
    every = np.array(list(product(range(2 if binary else top + 1), repeat=table.size)))
    allowed = every[every.sum(axis=1) == table.sum()]
    weight = np.exp(-epsilon / 2 * abs(allowed - table).sum(axis=1))
    return allowed, weight / weight.sum()


BLOCKS = {
    "dense": ([3, 0, 1, 0, 4], 0.8, False),
    "one full cell": ([0, 0, 0, 9], 0.8, False),
    "steep tilt": ([0, 0, 0, 0, 1], 0.2, False),
    "binary": ([1, 0, 1, 0, 0, 0], 0.8, True),
    "one in six": ([0, 0, 0, 0, 0, 1], 0.3, True),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BLOCKS)
@lengths("releases", 120, 400)
def test_bounded_blocks_follow_their_law(releases: int, name: str) -> None:
    listed, epsilon, binary = BLOCKS[name]
    table = np.array(listed)
    mechanism = BoundedMechanism(margins((table.size,), "total"), epsilon, binary, limit=1)
    law = law_by_force(table, epsilon, binary, int(table.sum()))
    assert p_value(mechanism.sample(table, 30_000, rng=5), *law) > FALSE_ALARM
    released = np.array([mechanism.release(table) for _ in range(releases)])
    assert p_value_of_norms(released - table, law[0] - table, law[1]) > FALSE_ALARM


def test_a_long_block_of_which_few_tries_are_made_at_once_is_drawn() -> None:
    """One try in some hundred is accepted, 20 are made at once: these alone say nothing."""
    table = (np.random.default_rng(0).random(50_000) < 0.3).astype(np.int64)
    mechanism = BoundedMechanism(Invariants.from_subsets([range(table.size)], table.size), 1.0, binary=True)
    (drawn,) = mechanism.sample(table, 1, rng=1)
    assert set(drawn.tolist()) == {0, 1}
    assert drawn.sum() == table.sum()
    ones, zeros = int((drawn < table).sum()), int((drawn > table).sum())
    assert ones == zeros
    assert ones / table.size == pytest.approx(moved_share(0.3, 1.0), rel=0.05)


def moved_share(share: float, epsilon: float) -> float:
    """Of a long binary block with this share of ones, how many records go from 1 to 0 by half of epsilon.

    With odds o of a change from 0 to 1, and u for the other, where o u = exp(-epsilon): (1 - share) o / (1 + o) is
    share u / (1 + u).
    """
    odds = np.geomspace(1e-6, 1e6, 1_000_001) * np.exp(-epsilon)
    back = np.exp(-epsilon) / odds
    ones, zeros = share * back / (1 + back), (1 - share) * odds / (1 + odds)
    return float(ones[abs(ones - zeros).argmin()])


def test_a_law_that_is_nearly_level_falls_as_often_as_it_rises() -> None:
    even = BoundedMechanism(margins((2,), "total"), 2.0**-23).sample(np.array([10**7, 10**7]), 4000, rng=1)
    # Below and above a half are as likely; a thousandth of all seeds is further off than 3.3 standard deviations.
    assert abs((even[:, 0] < 10**7).mean() - 0.5) < 3.3 * 0.5 / 4000**0.5


def test_bounded_tables_beyond_any_list_keep_their_sums_and_bounds() -> None:
    invariants = Invariants.from_subsets([range(60), range(20)], records=62)
    for binary in (False, True):
        table = np.random.default_rng(6).integers(0, 2 if binary else 4, 62)
        mechanism = BoundedMechanism(invariants, 0.5, binary)
        draws = np.vstack([mechanism.sample(table, 2000, rng=7), mechanism.release(table)[None]])
        assert not (invariants.matrix @ (draws - table).T).any()
        assert draws.min() == 0
        assert not binary or draws.max() == 1
        assert binary or draws[:, 60:].max() > 6  # nothing holds the last two records
        refuses(r"in no set|tables are equivalent|dead ends", equivalent_tables, invariants, table, binary, limit=500)


def test_bounded_chains_follow_their_law_and_say_how_far_they_may_be_off() -> None:
    mechanism = BoundedMechanism(TWO_BY_THREE, 0.8)
    drawn = mechanism.sample_by_chain(COUNTS, 10_000, eta=0.002, runs=1000, rng=8)
    assert 0 <= drawn.bound <= 0.002
    assert p_value(drawn.tables, *mechanism.law(COUNTS)) > FALSE_ALARM
    early = mechanism.sample_by_chain(COUNTS, 20_000, eta=0.4, runs=1000, rng=8)
    allowed, probability = mechanism.law(COUNTS)
    seen = np.array([(early.tables == row).all(axis=1).mean() for row in allowed])
    assert early.iterations < drawn.iterations
    distance = abs(seen - probability).sum() / 2
    assert distance <= early.bound + 3 * early.standard_error + 0.02  # the last: noise of 20,000 draws
    binary = BoundedMechanism(margins((3, 3), "a", "b"), 0.8, binary=True)
    start = np.eye(3, dtype=int).ravel()
    assert p_value(binary.sample_by_chain(start, 5000, rng=9).tables, *binary.law(start)) > FALSE_ALARM


def test_chains_whose_error_nothing_bounds_are_refused() -> None:
    table = np.random.default_rng(1).poisson(2.0, 64)
    with pytest.raises(ValueError, match=r"did not meet within 800 iterations: nothing bounds the error"):
        BoundedMechanism(margins((8, 8), "a", "b"), 0.5).sample_by_chain(
            table, 1, lag=100, runs=4, max_iterations=800, rng=1
        )
    with pytest.raises(ValueError, match="are known to connect bounded tables under nested sets"):
        BoundedMechanism(margins((2, 2, 2), "a * b", "b * c", "a * c"), 0.5).sample_by_chain(np.ones(8), 1)
    refuses("they must be 0 or 1", BoundedMechanism(TWO_BY_THREE, 0.5, binary=True).sample_by_chain, COUNTS, 1)
    with pytest.raises(ValueError, match="are equivalent: listing them is refused"):
        BoundedMechanism(margins((4, 4), "a", "b"), 0.5, limit=1000).release(np.full(16, 5))


@pytest.mark.parametrize("binary", [False, True])
def test_bounded_loss_is_at_most_epsilon_times_the_distance(binary: bool) -> None:
    invariants = margins((3, 3), "a", "b") if binary else TWO_BY_THREE
    start = np.eye(3, dtype=int).ravel() if binary else COUNTS
    mechanism = BoundedMechanism(invariants, 0.8, binary)
    tables, _ = mechanism.law(start)
    logs = np.log([mechanism.law(table)[1] for table in tables])
    losses = abs(logs[:, None, :] - logs[None, :, :]).max(axis=2)
    assert (losses <= 0.8 * abs(tables[:, None, :] - tables[None, :, :]).sum(axis=2) + 1e-12).all()
    assert mechanism.guarantee.loss_at(2.0) == pytest.approx(1.6)


def test_the_bias_of_bounded_tables_is_shown() -> None:
    mechanism = BoundedMechanism(TWO_BY_THREE, 0.5)
    bias = mechanism.bias(COUNTS)
    assert bias[1] > 0.3  # a zero can only grow
    np.testing.assert_allclose(TWO_BY_THREE.matrix @ bias, 0, atol=1e-12)
    draws = mechanism.sample(COUNTS, 40_000, rng=3)
    # Five standard errors.
    assert (abs(draws.mean(axis=0) - COUNTS - bias) < 5 * draws.std(axis=0) / 200).all()
    assert abs(mechanism.bias(np.array([40, 40, 40, 40, 40, 40]))).max() < 1e-3


@refused(
    (lambda: equivalent_tables(TWO_BY_THREE, [1, -1, 0, 0, 0, 0]), "values from -1 to 1: they must be 0 or more"),
    (lambda: equivalent_tables(TWO_BY_THREE, [2, 1, 0, 0, 0, 0], binary=True), "they must be 0 or 1"),
    (lambda: equivalent_tables(Invariants.from_subsets([[0, 1]], 3), [1, 1, 1]), "record 2 is in no set"),
    (lambda: equivalent_tables(margins((4, 4), "a", "b"), np.full(16, 5), limit=1000), "more than 1,000 tables"),
    (lambda: equivalent_tables(margins((30, 30), "a", "b"), np.ones(900)), "900 records: at most 500"),
    (lambda: equivalent_tables(ISOLATED, ISOLATED_TABLE, limit=3), "61 dead ends and 0 tables"),
    (lambda: BoundedMechanism(TWO_BY_THREE, -1.0), "epsilon is -1.0"),
)
def test_what_cannot_be_listed_is_refused(act: object) -> None:
    act()  # type: ignore[operator]
