"""Theorem 2, its zCDP twin and Algorithm 3, against dense variances on thousands of random trees."""

from fractions import Fraction

import numpy as np
import pytest

from constraint_builders import Spine
from constraint_builders.geography import Strategy, bypass, bypassing_improves, fewest_children, leaves, nodes_to_bypass
from tests.helpers.effort import lengths
from tests.helpers.every import every
from tests.helpers.random_trees import LEVELS, blocks_below, random_spine, total_covariance, total_variances
from tests.helpers.refused import refuses

TOLERANCE = 1e-9  # relative, of dense inverses of matrices of up to 30 rows whose condition is below 1e5


def shares_by_level(spine, rng):
    """A share for every level, small whole numbers so that Theorem 2's condition is often met with equality."""
    drawn = rng.integers(1, 5, len(spine.levels)).tolist()
    return {level: Fraction(n, sum(drawn)) for level, n in zip(spine.levels, drawn, strict=True)}


def precision(shares, measure):
    shares = np.array([float(share) for share in shares])
    return shares**2 if measure == "pure" else shares


@pytest.mark.few(1)
@pytest.mark.parametrize("measure", ["pure", "zcdp"])
@lengths("trees", 500, 2_500)
def test_bypassing_harms_no_geounit_exactly_when_the_rule_says_so(trees, measure):
    rng = np.random.default_rng(6)
    verdicts = []
    for _ in range(trees):
        spine = random_spine(rng, int(rng.integers(2, 4)), 4)
        level = shares_by_level(spine, rng)
        shares = [level[spine.levels[i]] for i in spine.level_of]
        parent = int(rng.choice(np.flatnonzero(spine.child_counts)))
        children = np.flatnonzero(spine.parent == parent)
        moved = list(shares)
        moved[parent] = Fraction(0)
        for child in children:
            moved[child] += shares[parent]
        before = total_variances(spine, precision(shares, measure))
        after = total_variances(spine, precision(moved, measure))
        improves = bypassing_improves(shares[parent], [shares[c] for c in children], measure)
        assert bool((after <= before * (1 + TOLERANCE)).all()) == improves
        verdicts.append(improves)
    assert 0.1 < np.mean(verdicts) < 0.9


@pytest.mark.few(1)
@pytest.mark.parametrize("measure", ["pure", "zcdp"])
@lengths("trees", 120, 400)
def test_algorithm_3_harms_no_block_or_geounit_and_keeps_every_path(trees, measure):
    rng = np.random.default_rng(7)
    bypassed = 0
    for _ in range(trees):
        spine = random_spine(rng, int(rng.integers(2, 5)), 3)
        tables = {level: {"total": 1} for level in spine.levels}
        strategy = Strategy.from_levels(spine, 1, shares_by_level(spine, rng), tables, measure)
        result = bypass(strategy)
        assert result.path_sums() == strategy.path_sums()
        assert result.loss == strategy.loss == 1
        assert result.spine.levels == spine.levels
        codes = [spine.geocodes[i] for i in leaves(spine)]
        assert [result.spine.geocodes[i] for i in leaves(result.spine)] == codes
        before, after = (total_covariance(s.spine, precision(s.shares, measure)) for s in (strategy, result))
        functionals = rng.random((20, leaves(spine).size)) < 0.5
        for rows in (functionals, blocks_below(spine)):
            old, new = (np.einsum("ij,jk,ik->i", rows, C, rows) for C in (before, after))
            assert (new <= old * (1 + TOLERANCE)).all()
        bypassed += sum(share == 0 for share in result.shares) > 0
    assert bypassed > trees / 4


def test_nothing_is_left_to_bypass_after_one_pass():
    rng = np.random.default_rng(8)
    for _ in range(300):
        spine = random_spine(rng, 4, 4)
        tables = {level: {"total": 1} for level in LEVELS}
        strategy = Strategy.from_levels(spine, 1, shares_by_level(spine, rng), tables, "pure")
        root_only = [advice.geounit for advice in nodes_to_bypass(bypass(strategy))]
        assert set(root_only) <= {0}


def chain(*counts):
    """A spine of given numbers of children at every depth."""
    parent, level, front = [-1], ["US"], [0]
    for depth, count in enumerate(counts, start=1):
        grown = [(len(parent) + i, geounit) for i, geounit in enumerate(g for g in front for _ in range(count))]
        parent += [geounit for _, geounit in grown]
        level += [LEVELS[depth]] * len(grown)
        front = [position for position, _ in grown]
    return Spine(parent, level)


def test_budget_moves_up_and_the_levels_stay():
    spine = chain(4, 2, 5)
    tables = {level: {"total": 1} for level in spine.levels}
    shares = {"US": "1/4", "State": "1/4", "County": "1/4", "Tract": "1/4"}
    result = bypass(Strategy.from_levels(spine, 2, shares, tables, "pure"))
    assert result.spine.levels == ("US", "State", "County", "Tract")
    assert [members.size for members in result.spine.members] == [1, 8, 8, 40]
    by_level = [{result.shares[i] for i in members} for members in result.spine.members]
    assert by_level == [{Fraction(1, 4)}, {Fraction(1, 2)}, {Fraction(0)}, {Fraction(1, 4)}]
    assert result.loss == 2


def test_cutoff_and_forced_levels():
    spine = chain(4, 2, 5)
    tables = {level: {"total": 1} for level in spine.levels}
    strategy = Strategy.from_levels(spine, 1, dict.fromkeys(spine.levels, "1/4"), tables, "pure")
    crowded = bypass(strategy, bypass_cutoff=6)
    assert [members.size for members in crowded.spine.members] == [1, 6, 8, 40]
    forced = bypass(Strategy.from_levels(spine, 1, dict.fromkeys(spine.levels, "1/4"), tables), forced=["County"])
    assert [members.size for members in forced.spine.members] == [1, 4, 40, 40]
    refuses("geolevel 'US' cannot be bypassed", bypass, strategy, forced=["US"])


def test_observed_variances_follow_theorem_1():
    spine = chain(2, 1)
    tables = {"US": {"total": 1}, "State": {"total": "1/4", "detailed": "3/4"}, "County": {"total": 1}}
    shares = {"US": "1/2", "State": "1/3", "County": "1/6"}
    gaussian = Strategy.from_levels(spine, 3, shares, tables).observed()
    assert gaussian["US"]["total"].tolist() == [float(1 / (3 * Fraction(1, 2)))]
    assert gaussian["State"]["detailed"].tolist() == [float(1 / (3 * Fraction(1, 3) * Fraction(3, 4)))] * 2
    bypassed = bypass(Strategy.from_levels(spine, 3, shares, tables))
    assert bypassed.observed()["State"]["total"].tolist() == [float(1 / (3 * Fraction(1, 2) * Fraction(1, 4)))] * 2
    assert "County" not in bypassed.observed()
    laplace = Strategy.from_levels(spine, 3, shares, tables, "pure").observed()
    assert laplace["US"]["total"].tolist() == [float(2 * (2 / (3 * Fraction(1, 2))) ** 2)]


def test_loss_counts_the_dearest_path():
    spine = chain(2)
    shares = (Fraction(1, 2), Fraction(1, 2), Fraction(1, 3))
    strategy = Strategy(spine, shares, {"US": {"total": Fraction(1)}, "State": {"total": Fraction(1, 2)}}, Fraction(4))
    assert strategy.path_sums() == (Fraction(1), Fraction(5, 6))
    assert strategy.loss == 4 * (Fraction(1, 2) + Fraction(1, 4))


@every(
    ("parent", "child", "measure", "fewest"),
    [(1, 1, "pure", 4), (2, 1, "pure", 3), ("1/2", "3/4", "pure", 5), (1, 1, "zcdp", 2), (1, "1/100", "pure", 2)],
)
def test_fewest_children_is_the_least_number_that_is_not_bypassed(parent, child, measure, fewest):
    assert fewest_children(parent, child, measure) == fewest
    gamma_p, gamma_c = Fraction(parent), Fraction(child)
    improves = [bypassing_improves(gamma_p, [gamma_c] * count, measure) for count in range(1, fewest + 1)]
    assert improves == [True] * (fewest - 1) + [False]


def test_bad_strategies_are_refused():
    spine = chain(2)
    refuses("one for each", Strategy, spine, (Fraction(1),), {}, Fraction(1))
    refuses("'US' has a share of the budget but no query shares", Strategy.from_levels, spine, 1, {"US": 1}, {})
    refuses("no geolevel 'Tract'", Strategy.from_levels, spine, 1, {"Tract": 1}, {})
    refuses("at least one child", bypassing_improves, Fraction(1), [], "zcdp")
    refuses("must be positive", fewest_children, 0, 1, "pure")
    refuses("measure 'renyi' is unknown", bypassing_improves, Fraction(1), [Fraction(1)], "renyi")
