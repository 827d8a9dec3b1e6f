"""Spines rebuilt: the AIAN split, block groups, tract groups, and the partitions behind them."""

import numpy as np
import pytest

from constraint_builders import Spine
from constraint_builders.geography import (
    Entities,
    aian_spine,
    from_partitions,
    group_tracts,
    leaves,
    most_members,
    on_spine_areas,
    osed,
    partitions,
    regroup_blocks,
)
from tests.helpers.every import every
from tests.helpers.random_trees import random_entities, random_spine
from tests.helpers.refused import refuses

WIDTHS = {"State": 1, "County": 2, "Tract": 3, "Block_Group": 4, "Block": 6}


def blocks(counties=2, tracts=3, groups=2, size=12):
    return [f"1{c}{t}{g}{b:02d}" for c in range(counties) for t in range(tracts) for g in range(groups)
            for b in range(size)]  # fmt: skip


def random_labels(rng, count, kinds):
    return rng.choice(["", *"abcdefgh"[:kinds]], count).tolist()


def test_partitions_and_back():
    spine = Spine.from_geoids(blocks(), WIDTHS)
    again = from_partitions(partitions(spine))
    assert (again.parent == spine.parent).all()
    assert again.geocodes == spine.geocodes


def test_a_geounit_with_two_parents_is_refused():
    with pytest.raises(ValueError, match="'t' of 'Tract' would have two parents"):
        from_partitions({"State": ["s", "s"], "County": ["a", "b"], "Tract": ["t", "t"]})


def test_aian_spine_splits_every_geounit():
    geoids = blocks()
    areas = ["0012" if 6 <= i < 30 else "" for i in range(len(geoids))]
    spine = aian_spine(geoids, areas, WIDTHS)
    assert [spine.geocodes[i] for i in spine.members[1]] == ["01", "11"]
    assert [spine.geocodes[i][1:] for i in leaves(spine)] == geoids
    for geounit in range(1, spine.size):
        assert spine.geocodes[geounit][0] in "01"
    split = {code[1:] for code in spine.geocodes if code[:1] == "1"}
    assert {code for code in split if len(code) == 4} == {"1000", "1001", "1010"}
    tribe = Entities.from_labels({"AIAN": areas}, outside=False)
    assert osed(spine, tribe).tolist() == [1]
    assert osed(Spine.from_geoids(geoids, WIDTHS, root="US"), tribe)[0] > 1


def test_only_configured_classes_are_on_the_spine():
    codes = ["0001", "4799", "4990", "5000", "8000", "9000", "9498", "9500", "9999", ""]
    assert on_spine_areas(codes) == ["0001", "4799", "", "5000", "", "9000", "9498", "", "", ""]
    assert on_spine_areas(codes, ["state legal"]) == ["", "", "", "", "", "9000", "9498", "", "", ""]
    refuses("'12' is not four digits", on_spine_areas, ["12"])
    refuses("no AIAN class 'tribal'", on_spine_areas, [""], ["tribal"])


@pytest.mark.parametrize("variant", ["paper", "production"])
def test_block_groups_lie_in_one_cell_of_one_tract_and_are_as_few_as_the_limit_allows(variant):
    rng = np.random.default_rng(3)
    geoids = blocks(size=18)
    for _ in range(30):
        entities = Entities.from_labels(
            {"place": random_labels(rng, len(geoids), 2), "x": random_labels(rng, len(geoids), 1)}
        )
        cutoff = int(rng.integers(-4, 8))
        spine = regroup_blocks(Spine.from_geoids(geoids, WIDTHS), entities, fanout_cutoff=cutoff, variant=variant)
        limit = most_members(36, cutoff, variant)
        assert limit == 6 + cutoff + (variant == "production")
        assert [spine.geocodes[i] for i in leaves(spine)] == geoids
        named = partitions(spine)
        cells = entities.intersections()
        keys = list(zip(named["Tract"], cells.tolist(), strict=True))
        groups = named["Block_Group"]
        assert len(set(zip(groups, keys, strict=True))) == len(set(groups))
        for key in set(keys):
            inside = [group for group, k in zip(groups, keys, strict=True) if k == key]
            sizes = [inside.count(group) for group in dict.fromkeys(inside)]
            assert sizes[:-1] == [limit] * (len(sizes) - 1)
            assert 0 < sizes[-1] <= limit


def test_production_allows_one_block_more():
    assert (most_members(100), most_members(100, variant="production")) == (22, 23)
    refuses("fanout_cutoff -10 allows 0 geounits", most_members, 100, -10)
    refuses("variant 'census' is unknown", most_members, 100, variant="census")


def greedy_by_definition(spine, entities, most_of):
    """Algorithm 2's merging with Algorithm 1 run anew for every pair: the slow reference."""
    groups = {t: [t] for t in dict.fromkeys(partitions(spine)["Tract"])}
    county = dict(zip(partitions(spine)["Tract"], partitions(spine)["County"], strict=True))

    def distances(groups):
        name = {t: first for first, members in groups.items() for t in members}
        levels = partitions(spine)
        labels = {k: v for k, v in levels.items() if k not in ("Tract", "Block_Group", "Block")}
        labels["Tract_Group"] = [f"g{name[t]}" for t in levels["Tract"]]
        labels |= {k: v for k, v in levels.items() if k in ("Tract", "Block_Group", "Block")}
        return sorted(osed(from_partitions(labels), entities).tolist(), reverse=True)

    now = distances(groups)
    for first in list(groups):
        for second in [t for t in groups if t > first]:
            if first not in groups or county[first] != county[second]:
                continue
            if len(groups[first]) + len(groups[second]) > most_of(county[first]):
                continue
            merged = {t: m + groups[second] if t == first else m for t, m in groups.items() if t != second}
            then = distances(merged)
            if then <= now:
                groups, now = merged, then
    return groups, now


@every("seed", range(8))
def test_tract_groups_equal_the_greedy_rule_by_definition(seed):
    rng = np.random.default_rng(seed)
    geoids = blocks(counties=2, tracts=5, groups=1, size=4)
    spine = Spine.from_geoids(geoids, WIDTHS, root="US")
    by_tract = random_labels(rng, 10, 3)
    labels = [by_tract[i // 4] if rng.random() < 0.85 else "z" for i in range(len(geoids))]
    entities = Entities.from_labels({"place": labels})
    cutoff = int(rng.integers(0, 3))
    grouped = group_tracts(spine, entities, fanout_cutoff=cutoff)
    expected, vector = greedy_by_definition(spine, entities, lambda county: most_members(5, cutoff))
    names = partitions(grouped)
    found = {}
    for group, tract in dict.fromkeys(zip(names["Tract_Group"], names["Tract"], strict=True)):
        found.setdefault(group, set()).add(tract)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected.values()))
    assert sorted(osed(grouped, entities).tolist(), reverse=True) == vector
    assert sorted(osed(spine, entities).tolist(), reverse=True) >= vector


def test_production_joins_tracts_of_the_same_entities_first():
    geoids = blocks(counties=1, tracts=6, groups=1, size=4)
    labels = ["a" if i // 4 in (0, 2, 4) else "b" for i in range(len(geoids))]
    entities = Entities.from_labels({"place": labels})
    spine = Spine.from_geoids(geoids, WIDTHS)
    grouped = group_tracts(spine, entities, fanout_cutoff=1, variant="production", entity_threshold=0)
    assert osed(grouped, entities).tolist() == [1, 1]
    assert grouped.members[grouped.level_index("Tract_Group")].size == 2
    merged = group_tracts(spine, entities, fanout_cutoff=9, variant="production", entity_threshold=9)
    assert merged.members[merged.level_index("Tract_Group")].size == 1


def test_a_spine_without_the_level_is_refused():
    rng = np.random.default_rng(0)
    spine = random_spine(rng, 2, 3)
    entities = random_entities(rng, leaves(spine).size, 2)
    refuses("no geolevel 'Block_Group'", regroup_blocks, spine, entities)
    refuses("variant 'ours' is unknown", group_tracts, spine, entities, variant="ours")
    ragged = Spine([-1, 0, 0, 1], ["US", "Tract", "Block", "Block"])
    refuses("'2' has no ancestor at geolevel 'Tract'", partitions, ragged)
