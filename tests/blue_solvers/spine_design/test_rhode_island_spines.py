"""Spines of Rhode Island's blocks: what `bench geography` shows, checked."""

import numpy as np
import pytest

from bench.papers import geography as bench
from bench.problems import BLOCKS, block_geoids
from blue_solvers.spine_design.bypasses import optimise_bypasses
from blue_solvers.spine_design.contributions import functional_variances as total_variances
from blue_solvers.spine_design.regrouping import optimise_spine
from blue_solvers.spine_design.report import compare_spines, entity_variances
from constraint_builders import Spine
from constraint_builders.geography import Entities, bypass, compositions, leaves, osed, regroup_blocks

pytestmark = [
    pytest.mark.skipif(not BLOCKS.exists(), reason=f"the blocks of Rhode Island are not at hand: {BLOCKS}"),
    pytest.mark.few(0),
]


@pytest.fixture(scope="module")
def state():
    geoids = block_geoids()[1]
    return geoids, Spine.from_geoids(geoids)


def distances_by_definition(spine, inside):
    """Algorithm 1 for one entity, geounit by geounit."""
    cost = {int(leaf): (int(part), 1 - int(part)) for leaf, part in zip(leaves(spine), inside, strict=True)}
    sums = {}
    for geounit in sorted(range(spine.size), key=lambda i: -spine.level_of[i]):
        if geounit in sums:
            own, rest = sums[geounit]
            cost[geounit] = min(own, 1 + rest), min(rest, 1 + own)
        parent = int(spine.parent[geounit])
        own, rest = sums.get(parent, (0, 0))
        sums[parent] = own + cost[geounit][0], rest + cost[geounit][1]
    return cost[int(spine.members[0][0])][0]


def test_distances_on_the_state_spine(state):
    geoids, spine = state
    entities = bench.random_partitions(geoids, 200, np.random.default_rng(3))
    found = osed(spine, entities)
    assert np.array_equal(np.diff(compositions(spine, entities).indptr), found)
    for k in (0, 333, 999):
        assert found[k] == distances_by_definition(spine, entities.contains[[k]].toarray()[0])


def test_made_up_entities(state):
    geoids, _ = state
    partitions = bench.random_partitions(geoids, 200, np.random.default_rng(3))
    assert partitions.size == 1000
    assert (partitions.contains.sum(axis=0) == 5).all()
    runs = bench.tract_crossing_runs(geoids)
    assert (runs.contains.sum(axis=0) == 1).all()
    tracts = np.array([geoid[:11] for geoid in geoids])
    crossing = [np.unique(tracts[runs.contains[[k]].indices]).size for k in range(runs.size)]
    assert set(crossing) == {1, 2}
    assert crossing.count(1) == 2  # the first half of the first tract, the second of the last
    assert (bench.stand_in_mcds(geoids).contains.sum(axis=0) == 1).all()


def test_variances_of_the_state_by_the_solver_are_those_of_the_recursion(state):
    geoids, spine = state
    runs = bench.tract_crossing_runs(geoids)
    some = Entities(runs.names[:40], runs.contains[:40])
    strategy = bench.strategy_on(regroup_blocks(spine, runs))
    expected = total_variances(strategy, bench.TOTALS, some)
    assert entity_variances(strategy, bench.TOTALS, some) == pytest.approx(expected, rel=1e-9)
    assert entity_variances(bypass(strategy), bench.TOTALS, some) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.slow
def test_ours_is_strictly_better_than_the_papers_on_what_it_minimises(state, objective):
    geoids, _ = state
    tracts = sorted({geoid[:11] for geoid in geoids})[:20]
    few = [geoid for geoid in geoids if geoid[:11] in tracts]
    spine = Spine.from_geoids(few)
    for entities in (bench.random_partitions(few, 20, np.random.default_rng(4)), bench.tract_crossing_runs(few)):
        start = bench.strategy_on(regroup_blocks(spine, entities))
        groups = optimise_spine(start, bench.TOTALS, entities, objective)
        ours = optimise_bypasses(groups.strategy, bench.TOTALS, entities, objective).strategy
        strategies = {"paper": bypass(start), "ours": ours}
        report = compare_spines(strategies, bench.TOTALS, entities)
        score = np.mean if objective == "mean" else np.max
        assert score(report.variances["ours"]) < score(report.variances["paper"]) * (1 - 1e-6)
        assert ours.loss == start.loss
