"""Searches for any functional, with recodes, from several starts: exact, and never worse than what they began with."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers.spine_design import BlockFunctionals, best_spine, entity_variances, optimise_bypasses, optimise_spine
from blue_solvers.spine_design.contributions import functional_variances
from blue_solvers.spine_design.objective import Guide
from constraint_builders import Schema, Spine
from constraint_builders.geography import Entities, Strategy, bypass, regroup_blocks
from tests.helpers.effort import examples
from tests.helpers.random_trees import detailed_covariance
from tests.helpers.refused import refuses

WIDTHS = {"State": 1, "County": 2, "Tract": 3, "Block_Group": 4, "Block": 6}
SCHEMA = Schema({"sex": 2, "age": 3}, recodes={"age": {"adult": [0, 1, 1], "old": [0, 0, 1]}})
SUMS = {  # every table of these tests as a matrix over sex x age, written out
    "total": np.ones((1, 6)),
    "sex": np.kron(np.eye(2), np.ones((1, 3))),
    "adult": np.kron(np.ones((1, 2)), [[1, 0, 0], [0, 1, 1]]),
    "old": np.kron(np.ones((1, 2)), [[1, 1, 0], [0, 0, 1]]),
    "sex * adult": np.kron(np.eye(2), [[1, 0, 0], [0, 1, 1]]),
    "detailed": np.eye(6),
}
ROUNDING = 1e-9  # relative, of dense inverses of well-conditioned matrices and of sums of changes


def dense_variances(strategy, functionals):
    """Variances of functionals by generalised least squares over blocks x cells."""
    covariance = detailed_covariance(strategy, SUMS)
    queries = functionals.queries.toarray()
    W = functionals.weights.toarray().reshape(functionals.size, -1, len(queries)) @ queries
    W = W.reshape(functionals.size, -1)
    return np.einsum("ij,jk,ik->i", W, covariance, W)


@st.composite
def cases(draw):
    """Census block groups of random sizes, entities, shares, tables and functionals."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    geoids = [
        f"1{county}{tract}{group}{block:02d}"
        for county in range(draw(st.integers(1, 2)))
        for tract in range(draw(st.integers(1, 2)))
        for group in range(draw(st.integers(1, 3)))
        for block in range(int(rng.integers(1, 6)))
    ]
    spine = Spine.from_geoids(geoids, WIDTHS)
    entities = Entities.from_labels({"place": rng.choice(["", "a", "b"], len(geoids)).tolist()})
    drawn = rng.integers(1, 20, len(spine.levels)).tolist()
    shares = {level: Fraction(n, sum(drawn)) for level, n in zip(spine.levels, drawn, strict=True)}
    tables = {}
    for level in spine.levels:
        kept = ["detailed", *rng.choice([name for name in SUMS if name != "detailed"], 2, replace=False).tolist()]
        tables[level] = dict.fromkeys(kept, Fraction(1, len(kept)))
    measure = draw(st.sampled_from(["zcdp", "pure"]))

    def strategy(own):
        return Strategy.from_levels(own, 2, shares, tables, measure)

    starts = {"census": strategy(spine), "paper": strategy(regroup_blocks(spine, entities, fanout_cutoff=1))}
    kind = draw(st.sampled_from(["total", "adult", "any"]))
    if kind == "any":
        weights = sparse.random_array((3, 2 * len(geoids)), density=0.5, rng=rng).toarray() - 0.5
        functionals = BlockFunctionals("uvw", rng.normal(size=(2, 6)), weights)
    else:
        functionals = BlockFunctionals.of_entities(entities, SCHEMA, kind)
    return starts, functionals, draw(st.sampled_from(["mean", "worst", "weighted"])), rng


@given(cases())
@examples(40, usual=3)
def test_a_search_is_exact_and_never_worse_than_its_starts(case):
    starts, functionals, objective, rng = case
    weights = rng.random(functionals.size) if objective == "weighted" else None
    score = {"mean": np.mean, "worst": np.max, "weighted": lambda v: weights @ v}[objective]
    given_ = {name: score(dense_variances(start, functionals)) for name, start in starts.items()}
    best = best_spine(starts, SCHEMA, functionals, objective, weights=weights, fanout_cutoff=1)
    for name, start in starts.items():
        assert best.starts[name] == pytest.approx(given_[name], rel=ROUNDING)
        assert best.objective <= best.found[name] <= given_[name] * (1 + ROUNDING)
        paper = score(dense_variances(bypass(start), functionals))
        assert best.objective <= paper * (1 + ROUNDING) or start.spine.members[1].size == 1
        groups = best.groups[name]
        assert groups.bound <= groups.objective * (1 + ROUNDING)
        assert groups.objective <= groups.start * (1 + ROUNDING)
        assert groups.variances == pytest.approx(dense_variances(groups.strategy, functionals), rel=ROUNDING)
        assert functional_variances(start, SCHEMA, functionals) == pytest.approx(
            dense_variances(start, functionals), rel=ROUNDING
        )
    exact = dense_variances(best.strategy, functionals)
    assert best.variances == pytest.approx(exact, rel=ROUNDING)
    assert best.objective == pytest.approx(score(exact), rel=ROUNDING)
    assert best.strategy.loss == starts["census"].loss


def test_functionals_of_entities_are_cells_of_tables():
    geoids = [f"100{group}0{block}" for group in range(2) for block in range(4)]
    spine = Spine.from_geoids(geoids, WIDTHS)
    entities = Entities.from_labels({"place": list("aabbabab")}, outside=False)
    tables = {level: {"adult": "1/2", "detailed": "1/2"} for level in spine.levels}
    strategy = Strategy.from_levels(spine, 1, dict.fromkeys(spine.levels, "1/5"), tables)
    functionals = BlockFunctionals.of_entities(entities, SCHEMA, "sex * adult")
    assert functionals.size == 8
    expected = entity_variances(strategy, SCHEMA, entities, "sex * adult", solver="cholesky").ravel()
    assert functional_variances(strategy, SCHEMA, functionals) == pytest.approx(expected, rel=ROUNDING)


def test_census_groups_that_break_the_rule_may_be_a_start():
    geoids = [f"100{group}{block:02d}" for group, size in enumerate((9, 2)) for block in range(size)]
    spine = Spine.from_geoids(geoids, WIDTHS)
    entities = Entities.from_labels({"place": list("aaaabbbbbab")})
    tables = {level: {"total": 1} for level in spine.levels}
    strategy = Strategy.from_levels(spine, 1, dict.fromkeys(spine.levels, "1/5"), tables)
    found = optimise_spine(strategy, SCHEMA, entities, fanout_cutoff=0)
    sizes = found.strategy.spine.child_counts[found.strategy.spine.members[3]]
    assert (np.sort(sizes)[:-1] <= 3).all()
    assert found.objective <= found.start
    assert found.bound <= found.objective


def test_bad_functionals_are_refused():
    refuses("functional 'a' is given 2 times", BlockFunctionals, ["a", "a"], np.eye(2), np.ones((2, 2)))
    refuses("a row for each of 2 functionals: got 1 rows", BlockFunctionals, ["a", "b"], np.eye(2), np.ones((1, 2)))
    with pytest.raises(ValueError, match="weights have 3 columns, which 2 queries do not divide"):
        BlockFunctionals(["a"], np.eye(2), np.ones((1, 3)))
    refuses("must be finite numbers", BlockFunctionals, ["a"], np.eye(2), [[np.nan, 1.0]])
    refuses("functional 'b' is zero: leave it out", BlockFunctionals, ["a", "b"], np.eye(2), [[1.0, 1.0], [0.0, 0.0]])
    refuses("there is no start", best_spine, {}, SCHEMA, BlockFunctionals(["a"], np.eye(6), np.ones((1, 6))))
    spine = Spine.from_geoids(["100000", "100001"], WIDTHS)
    wide = Schema({"cell": 80})
    tables = {level: {"detailed": 1} for level in spine.levels}
    strategy = Strategy.from_levels(spine, 1, {"Block": 1}, tables)
    every_cell = BlockFunctionals([str(i) for i in range(80)], np.eye(80), np.eye(80, 160))
    refuses("tie more than 64 combinations of cells together", optimise_bypasses, strategy, wide, every_cell)


def test_slopes_are_the_derivatives_of_what_is_lowered() -> None:
    rng = np.random.default_rng(0)
    for power in (1, 2, 4, 16, 64):
        weights, variances = rng.uniform(0.1, 1, 5), rng.uniform(1, 2, 5)
        guide, worst, step = Guide(weights, power), float(variances.max()), 1e-6
        assert guide.values(variances, worst, np.arange(5)) == pytest.approx(guide.value(variances, worst), rel=1e-12)
        moved = [[guide.value(variances + sign * step * e, worst) for e in np.eye(5)] for sign in (1, -1)]
        expected = (np.array(moved[0]) - moved[1]) / (2 * step)
        np.testing.assert_allclose(guide.slopes(variances, worst), expected, rtol=1e-5, atol=1e-9)
