"""Spines by exact variances, against dense algebra; the optimisers against exhaustive search and their own bounds."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from blue_solvers import ConvergenceError, blue
from blue_solvers.spine_design.allocation import allocate_budget
from blue_solvers.spine_design.block_functionals import BlockFunctionals
from blue_solvers.spine_design.bypasses import optimise_bypasses
from blue_solvers.spine_design.contributions import functional_variances as total_variances
from blue_solvers.spine_design.regrouping import optimise_spine
from blue_solvers.spine_design.report import compare_spines, entity_variances, entity_workload, workload_variances
from blue_solvers.spine_design.starts import best_spine
from constraint_builders import Problem, Schema, Spine
from constraint_builders.geography import (
    Entities,
    Strategy,
    bypass,
    bypass_chosen,
    from_partitions,
    leaves,
    osed,
    partitions,
    regroup_blocks,
)
from tests.helpers.effort import first_of, lengths
from tests.helpers.every import every
from tests.helpers.random_trees import (
    blocks_below,
    detailed_covariance,
    random_entities,
    random_spine,
    total_covariance,
    uneven_spine,
)
from tests.helpers.refused import refuses

WIDTHS = {"State": 1, "County": 2, "Tract": 3, "Block_Group": 4, "Block": 6}
SCHEMA = Schema({"sex": 2, "age": 3})
ROUNDING = 1e-10  # relative, of dense inverses of well-conditioned matrices of at most 100 rows


def even_strategy(spine, tables=("total", "detailed"), measure="zcdp", rho=2):
    shares = {level: Fraction(1, len(spine.levels)) for level in spine.levels}
    queries = {level: {table: Fraction(1, len(tables)) for table in tables} for level in spine.levels}
    return Strategy.from_levels(spine, rho, shares, queries, measure)


def dense_variances(strategy, entities):
    """Variances of the entities' totals from total and detailed tables, over blocks x cells, by dense algebra."""
    cells = 6
    covariance = detailed_covariance(strategy, {"total": np.ones((1, cells)), "detailed": np.eye(cells)})
    W = np.kron(entities.contains.toarray(), np.ones((1, cells)))
    return np.einsum("ij,jk,ik->i", W, covariance, W)


@every("measure", ["zcdp", "pure"])
@every("seed", range(6))
def test_variances_of_entities_equal_dense_ones(seed, measure):
    rng = np.random.default_rng(seed)
    spine = random_spine(rng, 3, 3)
    entities = random_entities(rng, leaves(spine).size, 5)
    strategy = even_strategy(spine, measure=measure)
    expected = dense_variances(strategy, entities)
    assert total_variances(strategy, SCHEMA, entities) == pytest.approx(expected, rel=ROUNDING)
    assert entity_variances(strategy, SCHEMA, entities, solver="cholesky") == pytest.approx(expected, rel=ROUNDING)
    bypassed = bypass(strategy)
    after = entity_variances(bypassed, SCHEMA, entities, solver="cholesky")
    assert after == pytest.approx(dense_variances(bypassed, entities), rel=ROUNDING)
    assert (after <= expected * (1 + ROUNDING)).all()


def test_entities_take_in_leaves_of_any_level():
    spine = uneven_spine(np.random.default_rng(0), 10)
    entities, strategy = random_entities(np.random.default_rng(1), leaves(spine).size, 5), even_strategy(spine)
    found = entity_variances(strategy, SCHEMA, entities, solver="cholesky")
    assert found == pytest.approx(dense_variances(strategy, entities), rel=ROUNDING)


def test_cells_of_tables_and_any_workload():
    rng = np.random.default_rng(1)
    spine = random_spine(rng, 2, 4)
    entities = random_entities(rng, leaves(spine).size, 3)
    strategy = even_strategy(spine)
    by_sex = entity_variances(strategy, SCHEMA, entities, "sex", solver="cholesky")
    assert by_sex.shape == (3, 2)
    problem = strategy.problem(SCHEMA, {spine.levels[-1]: ["sex"]})
    P = blue(problem, "cholesky")
    W = entity_workload(problem, entities, "sex")
    dense = np.diag(W.T @ (P @ np.diag(problem.variances) @ (P @ np.eye(P.shape[1])).T) @ W)
    assert by_sex.ravel() == pytest.approx(dense, rel=ROUNDING)
    assert workload_variances(P, W.toarray()) == pytest.approx(dense, rel=ROUNDING)
    for wrong, said in ((np.ones((3, 1)), "has 3 rows, the desired layout"), ([[np.nan]], "holds NaN or infinite")):
        refuses(f"the workload {said}", workload_variances, P, wrong)


def ragged(rng, tracts=4, blocks=9, places=3):
    """A spine of tracts whose blocks lie in random places, and the places."""
    geoids = [f"1{t % 2}{t}0{b:02d}" for t in range(tracts) for b in range(blocks)]
    labels = rng.choice(["", *"abcdef"[:places]], len(geoids)).tolist()
    return Spine.from_geoids(geoids, WIDTHS), Entities.from_labels({"place": labels})


def test_report_compares_spines_entity_by_entity():
    spine, entities = ragged(np.random.default_rng(2))
    strategies = {"plain": even_strategy(spine), "regrouped": even_strategy(regroup_blocks(spine, entities))}
    report = compare_spines(strategies, SCHEMA, entities, solver="cholesky")
    for name, mean_distance, worst_distance, mean, worst in report.summary():
        distances = osed(strategies[name].spine, entities)
        variances = total_variances(strategies[name], SCHEMA, entities)
        assert (mean_distance, worst_distance) == (distances.mean(), distances.max())
        assert (mean, worst) == (pytest.approx(variances.mean()), pytest.approx(variances.max()))
    rows = report.rows("plain", "regrouped")
    ratios = [after / before for *_, before, after in rows]
    assert ratios == sorted(ratios, reverse=True)
    assert {row[0] for row in rows} == set(entities.names)
    refuses("no spine 'ours'", report.rows, "plain", "ours")
    other = Spine.from_geoids([f"2{code[1:]}" for code in partitions(spine)["Block"]], WIDTHS)
    with pytest.raises(ValueError, match="have different blocks"):
        compare_spines({"a": even_strategy(spine), "b": even_strategy(other)}, SCHEMA, entities)
    turned = from_partitions({level: codes[::-1] for level, codes in partitions(spine).items()})
    with pytest.raises(ValueError, match="have different blocks, or in another order"):
        best_spine({"a": even_strategy(spine), "b": even_strategy(turned)}, SCHEMA, entities)


@every("objective", ["mean", "worst", "weighted"])
@every("seed", range(4))
def test_optimised_groups_keep_the_rules_and_are_what_they_are_said_to_be(seed, objective):
    rng = np.random.default_rng(seed)
    spine, entities = ragged(rng)
    weights = rng.random(entities.size) if objective == "weighted" else None
    start = even_strategy(regroup_blocks(spine, entities, fanout_cutoff=1), ("detailed",))
    result = optimise_spine(start, SCHEMA, entities, objective, weights=weights, fanout_cutoff=1)
    variances = dense_variances(result.strategy, entities)
    assert result.variances == pytest.approx(variances, rel=ROUNDING)
    score = {"mean": np.mean, "worst": np.max, "weighted": lambda v: weights @ v}[objective]
    assert result.objective == pytest.approx(score(variances), rel=ROUNDING)
    assert result.start == pytest.approx(score(dense_variances(start, entities)), rel=ROUNDING)
    assert result.bound <= result.objective <= result.start * (1 + ROUNDING)
    assert result.gap == pytest.approx(result.objective / result.bound - 1)
    assert result.strategy.spine.child_counts[result.strategy.spine.members[3]].max() <= 4
    assert result.strategy.loss == start.loss
    before, after = partitions(start.spine), partitions(result.strategy.spine)
    assert {level: before[level] for level in WIDTHS if level != "Block_Group"} == {
        level: after[level] for level in WIDTHS if level != "Block_Group"
    }


def partitions_of(items, most):
    """All partitions of some items in groups of at most so many."""
    if not items:
        yield []
        return
    for rest in partitions_of(items[1:], most):
        for i, group in enumerate(rest):
            if len(group) < most:
                yield [*rest[:i], [items[0], *group], *rest[i + 1 :]]
        yield [[items[0]], *rest]


@lengths("trees", 2, 8)
def test_groups_against_all_groupings(trees):
    """The bound is below every grouping; the search is at the best one most of the time and never far."""
    rng = np.random.default_rng(5)
    gaps = []
    for _ in range(trees):
        geoids = [f"1000{b:02d}" for b in range(5)] + ["100100", "101000"]
        spine = Spine.from_geoids(geoids, WIDTHS)
        entities = random_entities(rng, 7, 3)
        tables = {level: {"total": 1} for level in spine.levels}
        drawn = rng.integers(1, 20, 5).tolist()
        shares = {level: Fraction(n, sum(drawn)) for level, n in zip(spine.levels, drawn, strict=True)}

        def strategy(spine, tables=tables, shares=shares):
            return Strategy.from_levels(spine, 1, shares, tables)

        result = optimise_spine(
            strategy(regroup_blocks(spine, entities, fanout_cutoff=1)), SCHEMA, entities, fanout_cutoff=1
        )
        named = partitions(spine)
        best = np.inf
        for groups in partitions_of(list(range(6)), 3):
            labels = {block: f"g{n}" for n, group in enumerate(groups) for block in group} | {6: "last"}
            regrouped = from_partitions(named | {"Block_Group": [labels[b] for b in range(7)]})
            best = min(best, total_variances(strategy(regrouped), SCHEMA, entities).mean())
        assert result.bound <= best * (1 + ROUNDING)
        assert result.objective >= best * (1 - ROUNDING)
        gaps.append(result.objective / best - 1)
    assert np.median(gaps) < ROUNDING
    assert max(gaps) < 0.1


def test_tract_groups_are_regrouped_too():
    rng = np.random.default_rng(9)
    geoids = [f"10{t}0{b:02d}" for t in range(8) for b in range(4)]
    spine = Spine.from_geoids(geoids, WIDTHS)
    named = partitions(spine)
    grouped = from_partitions(
        {"State": named["State"], "County": named["County"], "Tract_Group": [f"g{code[2]}" for code in named["Tract"]]}
        | {level: named[level] for level in ("Tract", "Block_Group", "Block")}
    )
    entities = Entities.from_labels({"place": rng.choice(["a", "b"], 8).repeat(4).tolist()})
    start = even_strategy(grouped, ("total",))
    result = optimise_spine(start, SCHEMA, entities, level="Tract_Group", fanout_cutoff=1)
    assert result.bound <= result.objective < result.start
    assert result.objective == pytest.approx(total_variances(result.strategy, SCHEMA, entities).mean(), rel=ROUNDING)
    assert result.strategy.spine.child_counts[result.strategy.spine.members[2]].max() <= 3


@lengths("trees", 4, 8)
@every("measure", ["zcdp", "pure"])
@every("objective", ["mean", "worst"])
def test_chosen_bypasses_lower_the_objective_at_the_same_loss(objective, measure, trees):
    rng = np.random.default_rng(4)
    improved = 0
    for _ in range(trees):
        spine = random_spine(rng, 4, 3)
        entities = random_entities(rng, leaves(spine).size, 4)
        strategy = even_strategy(spine, ("total",), measure)
        result = optimise_bypasses(strategy, SCHEMA, entities, objective)
        score = np.mean if objective == "mean" else np.max
        found = entity_variances(result.strategy, SCHEMA, entities, solver="cholesky")
        assert result.variances == pytest.approx(found, rel=1e-8)
        assert result.objective == pytest.approx(score(found), rel=1e-8)
        assert result.start == pytest.approx(score(total_variances(strategy, SCHEMA, entities)), rel=1e-8)
        assert result.objective <= result.start
        assert result.strategy.loss == strategy.loss
        assert result.strategy.path_sums() == strategy.path_sums()
        improved += len(result.bypassed) > 0
    assert improved >= 0.75 * trees


@every("measure", ["zcdp", "pure"])
def test_geounits_are_left_alone_whose_tables_would_not_determine_the_leaves(measure):
    """Totals alone are measured above the blocks, whose sexes are asked for."""
    rng, bypassed = np.random.default_rng(5), 0
    for _ in range(4):
        spine = random_spine(rng, 4, 3)
        entities, shares = random_entities(rng, leaves(spine).size, 4), dict.fromkeys(spine.levels, Fraction(1, 5))
        tables = {level: {"total": 1} for level in spine.levels}
        tables[spine.levels[-1]] = {"total": "1/2", "detailed": "1/2"}
        strategy = Strategy.from_levels(spine, 2, shares, tables, measure)
        result = optimise_bypasses(strategy, SCHEMA, BlockFunctionals.of_entities(entities, SCHEMA, "sex"))
        found = entity_variances(result.strategy, SCHEMA, entities, "sex", solver="cholesky")
        assert result.variances == pytest.approx(found.ravel(), rel=1e-8)
        assert result.objective <= result.start
        assert result.strategy.loss == strategy.loss == 2
        bypassed += len(result.bypassed)
    assert bypassed


def nearly_geounits(rng, spine, count):
    """Entities that differ from geounits of the spine by few blocks."""
    contains = blocks_below(spine)[rng.choice(spine.size, count)]
    contains = np.abs(contains - (rng.random(contains.shape) < 0.12))
    contains[np.arange(count), rng.integers(0, contains.shape[1], count)] = 1
    return Entities([f"entity {k}" for k in range(count)], contains)


def totals_dense(strategy, entities):
    """Variances of the entities' totals where only totals are measured, by dense algebra."""
    precisions = np.zeros(strategy.spine.size)
    for level, tables in strategy.observed().items():
        precisions[strategy.spine.members[strategy.spine.level_index(level)]] = 1 / tables["total"]
    W = entities.contains.toarray()
    return np.einsum("ij,jk,ik->i", W, total_covariance(strategy.spine, precisions), W)


@lengths("trees", 6, 12)
@every("measure", ["zcdp", "pure"])
@every(("objective", "score"), [("mean", np.mean), ("worst", np.max)])
def test_bypasses_against_all_choices(objective, score, measure, trees):
    """The search is at the best choice most of the time and never far from it."""
    rng = np.random.default_rng(21)
    gaps = []
    while len(gaps) < trees:
        spine = random_spine(rng, 3, 3)
        inner = [int(i) for i in np.flatnonzero(spine.child_counts) if i]
        if not 3 <= len(inner) <= 6:
            continue
        entities = nearly_geounits(rng, spine, 3)
        drawn = rng.integers(1, 12, 4).tolist()
        shares = {level: Fraction(n, sum(drawn)) for level, n in zip(spine.levels, drawn, strict=True)}
        strategy = Strategy.from_levels(spine, 1, shares, {level: {"total": 1} for level in spine.levels}, measure)
        choices = (chosen for count in range(len(inner) + 1) for chosen in combinations(inner, count))
        best = min(score(totals_dense(bypass_chosen(strategy, chosen), entities)) for chosen in choices)
        gaps.append(optimise_bypasses(strategy, SCHEMA, entities, objective).objective / best - 1)
    assert min(gaps) > -ROUNDING
    assert np.median(gaps) < ROUNDING
    assert max(gaps) < 0.05


def test_bad_requests_are_refused():
    spine, entities = ragged(np.random.default_rng(0))
    strategy = even_strategy(spine)
    refuses("objective 'median' is unknown", optimise_spine, strategy, SCHEMA, entities, "median")
    refuses("weights belong to objective='weighted'", optimise_spine, strategy, SCHEMA, entities, "weighted")
    with pytest.raises(ValueError, match="finite numbers, none negative"):
        optimise_bypasses(strategy, SCHEMA, entities, "weighted", weights=[-1.0] * entities.size)
    refuses("'Block' has nothing below it to group", optimise_spine, strategy, SCHEMA, entities, level="Block")
    refuses("sweeps is 0", optimise_spine, strategy, SCHEMA, entities, sweeps=0)
    with pytest.raises(ValueError, match="different shares: optimise first, then bypass"):
        optimise_spine(bypass_chosen(strategy, [2]), SCHEMA, entities)
    recoded = Schema({"sex": 2, "age": 3}, recodes={"age": {"adult": [0, 1, 1]}})
    with pytest.raises(ValueError, match="'Block', in the leaves, do not determine all that the functionals"):
        optimise_spine(
            even_strategy(spine, ("total", "adult")), recoded, BlockFunctionals.of_entities(entities, recoded, "sex")
        )
    with pytest.raises(ValueError, match="the queries are of 6 cells, the schema has 2"):
        optimise_spine(strategy, Schema({"sex": 2}), BlockFunctionals.of_entities(entities, SCHEMA))
    unmeasured = Strategy.from_levels(spine, 1, {"Tract": 1}, {"Tract": {"total": 1}})
    refuses("nothing is measured at 'Block', in a leaf", optimise_bypasses, unmeasured, SCHEMA, entities)
    refuses("nothing is measured at 'Block'", optimise_spine, unmeasured, SCHEMA, entities)
    ragged_tree = Spine([-1, 0, 0, 1], ["State", "Block_Group", "Block", "Block"])
    with pytest.raises(ValueError, match="'2' has no ancestor at geolevel 'Block_Group'"):
        total_variances(even_strategy(ragged_tree), SCHEMA, random_entities(np.random.default_rng(0), 2, 1))


def allocation_case(seed):
    rng = np.random.default_rng(seed)
    spine = random_spine(rng, 2, 4)
    entities = random_entities(rng, leaves(spine).size, 3)
    tables = {level: ["total", "detailed"] for level in spine.levels}
    desired = {spine.levels[-1]: ["total"]}
    observed = {level: dict.fromkeys(row, 1.0) for level, row in tables.items()}
    problem = Problem(SCHEMA, observed, desired, spine=spine)
    return rng, spine, tables, desired, entity_workload(problem, entities)


@lengths("others", 15, 40)
@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_allocated_budgets_meet_targets_and_nothing_cheaper_does(seed, others):
    rng, spine, tables, desired, workload = allocation_case(seed)
    targets = rng.uniform(1, 20, 3)
    found = allocate_budget(SCHEMA, spine, tables, desired, workload, targets, solver="cholesky", rtol=1e-4)
    assert found.bound <= found.total <= found.bound * (1 + 1e-4)
    assert found.gap <= 1e-4

    def variances(losses):
        observed = {}
        for (level, table), loss in losses.items():
            observed.setdefault(level, {})[table] = 1 / loss
        return workload_variances(blue(Problem(SCHEMA, observed, desired, spine=spine), "cholesky"), workload)

    assert variances(found.losses) == pytest.approx(found.variances, rel=1e-6)
    assert (found.variances <= targets * (1 + 1e-9)).all()
    exact = found.budget().variances()
    rounded = workload_variances(blue(Problem(SCHEMA, exact, desired, spine=spine), "cholesky"), workload)
    assert (rounded <= targets * (1 + 1e-9)).all()
    for _ in range(others):
        other = {name: float(np.exp(rng.normal(np.log(loss + 1e-3), 1))) for name, loss in found.losses.items()}
        assert (variances(other) / targets).max() * sum(other.values()) >= found.bound


def test_one_geounit_one_table_costs_what_the_mechanism_says():
    spine = Spine([-1], ["US"])
    for neighbours, loss in (("bounded", 0.25), ("unbounded", 0.125)):
        found = allocate_budget(
            SCHEMA, spine, {"US": ["total"]}, {"US": ["total"]}, [[1]], [4.0], neighbours=neighbours, solver="cholesky"
        )
        assert found.total == pytest.approx(loss)
        assert found.bound == pytest.approx(loss)
        for own in (None, "bounded", "unbounded"):
            assert found.budget(neighbours=own).variances() == {"US": {"total": pytest.approx(4)}}


def test_allocated_budgets_scale_with_their_targets():
    """The programs inside have tolerances of their own: targets of national totals met them, and no answer came."""
    _, spine, tables, desired, workload = allocation_case(0)
    own, *others = [
        allocate_budget(SCHEMA, spine, tables, desired, workload, scale * np.array([3.0, 7, 11]), solver="cholesky")
        for scale in (1.0, 1e12, 1e-12)
    ]
    for scale, found in zip((1e12, 1e-12), others, strict=True):
        assert found.total * scale == pytest.approx(own.total, rel=1e-6)
        assert found.bound * scale == pytest.approx(own.bound, rel=1e-6)
    for found in (own, *others):
        exact = sum(loss for row in found.budget().losses.values() for loss in row.values())
        assert 1 <= exact / Fraction(found.total) <= 1 + 1e-7


def test_a_workload_is_read_as_every_matrix():
    _, spine, tables, desired, workload = allocation_case(0)
    labelled = pd.DataFrame(workload.toarray(), index=[f"cell {i}" for i in range(workload.shape[0])])
    P = blue(Problem(SCHEMA, {level: {"total": 1.0} for level in spine.levels}, desired, spine=spine))
    for wrong, words in ((labelled, "the workload has labels"), (workload * np.nan, "the workload holds NaN")):
        refuses(words, allocate_budget, SCHEMA, spine, tables, desired, wrong, [1, 2, 3])
        refuses(words, workload_variances, P, wrong)


def test_allocation_refuses_bad_targets_and_says_when_it_has_not_converged():
    _, spine, tables, desired, workload = allocation_case(0)
    refuses("targets must be 3 positive numbers", allocate_budget, SCHEMA, spine, tables, desired, workload, [1.0, 2.0])
    twice = {level: [*row, *row] for level, row in tables.items()}
    with pytest.raises(ValueError, match="a table is given twice at one geolevel"):
        allocate_budget(SCHEMA, spine, twice, desired, workload, [1, 2, 3])
    with pytest.raises(ConvergenceError, match="after 1 iterations the budget"):
        allocate_budget(
            SCHEMA, spine, tables, desired, workload, [1, 2, 3], most_iterations=1, solver="cholesky", rtol=1e-9
        )
    with pytest.raises(ValueError, match="a functional of the workload is zero"):
        allocate_budget(SCHEMA, spine, tables, desired, workload * 0, [1, 2, 3], solver="cholesky")
