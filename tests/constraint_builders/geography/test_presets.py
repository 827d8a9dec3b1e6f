"""The 2020 production runs on a made-up block table of Rhode Island and Arizona."""

from fractions import Fraction

import numpy as np
import pytest

from constraint_builders.files import production_settings
from constraint_builders.geography import aian_spine, leaves, osed, partitions
from constraint_builders.geography.presets import (
    DHC_PERSONS,
    DHC_UNITS,
    REDISTRICTING_PERSONS,
    REDISTRICTING_UNITS,
    RUNS,
    minor_civil_divisions_and_places,
    on_spine_areas,
)
from tests.helpers.refused import refuses

RHO = {"redistricting persons": Fraction(293764, 114921), "redistricting units": Fraction(11417641, 152349649)}


@pytest.fixture
def blocks():
    rng = np.random.default_rng(11)
    geoids = [f"{state}00{county}00{tract}100{group}0{b:02d}" for state in ("44", "04") for county in "13"
              for tract in "12" for group in "12" for b in range(15)]  # fmt: skip
    count = len(geoids)
    return {
        "geoid": geoids,
        "aian": ["1234" if g.startswith("04001") and rng.random() < 0.5 else "" for g in geoids],
        "gq": rng.choice(["0000000", "0000001"], count, p=[0.9, 0.1]).tolist(),
        "mcd": [f"{int(g[8]) % 2}0000" for g in geoids],
        "place": rng.choice(["", "55555"], count).tolist(),
        "prim": ["A" if g[7] == "1" else "B" for g in geoids],
        "school_district": [f"{g[10]}" for g in geoids],
    }


def test_redistricting_entities(blocks):
    names = REDISTRICTING_PERSONS.entities(blocks).names
    assert {"AIAN 1234", "AIAN outside", "GQ 0000001", "place 0455555", "place outside", "MCD outside"} <= set(names)
    assert not [name for name in names if name.startswith(("MCD 04", "place 44"))]
    assert not [name for name in REDISTRICTING_UNITS.entities(blocks).names if name.startswith("GQ")]


def test_mcds_count_in_strong_states_and_places_elsewhere_and_within_tribal_areas():
    table = {"geoid": ["44001", "44001", "04001"], "mcd": ["7", "7", "7"], "place": ["8", "8", "8"]}
    found = minor_civil_divisions_and_places(table, ["", "0012", ""])
    assert found == {"MCD": ["440017", "", ""], "place": ["", "448", "048"]}


@pytest.mark.parametrize("run", [REDISTRICTING_PERSONS, REDISTRICTING_UNITS])
def test_redistricting_spine_and_budget(blocks, run):
    spine = run.spine(blocks)
    assert spine.levels == ("US", "State", "County", "Tract", "Block_Group", "Block")
    groups, cells = partitions(spine)["Block_Group"], run.entities(blocks).intersections()
    assert len(set(zip(groups, cells.tolist(), strict=True))) == len(set(groups))
    strategy = run.strategy(spine)
    assert strategy.loss == RHO[run.name]
    assert set(strategy.path_sums()) == {1}
    single = np.flatnonzero(spine.child_counts == 1).size
    assert sum(share == 0 for share in strategy.shares) == single > 0
    assert run.strategy(spine, bypassed=False).loss == RHO[run.name]


def test_published_variances_of_the_redistricting_persons_run(blocks):
    strategy = REDISTRICTING_PERSONS.strategy(REDISTRICTING_PERSONS.spine(blocks), bypassed=False)
    observed = strategy.observed()
    assert observed["State"]["total"][0] == pytest.approx(1.2091923983582196, rel=1e-12)
    assert observed["Block_Group"]["hispanic * cenrace"][0] == pytest.approx(4.960375581526265, rel=1e-12)
    assert observed["Block"]["detailed"][0] == pytest.approx(10.092848490022675, rel=1e-12)
    assert "total" not in observed["US"]
    units = REDISTRICTING_UNITS.strategy(REDISTRICTING_UNITS.spine(blocks), bypassed=False).observed()
    published = {"US": 2735, "County": 156.3, "Tract": 37.57, "Block_Group": 31.10, "Block": 110.5}
    assert {level: units[level]["detailed"][0] for level in published} == pytest.approx(published, rel=5e-4)  # rounded


@pytest.mark.parametrize("variant", ["paper", "production"])
def test_dhc_spine_and_budget(blocks, variant):
    spine = DHC_PERSONS.spine(blocks, variant=variant)
    assert spine.levels == (
        "US", "State", "County", "Prim", "Tract_Subset_Group", "Tract_Subset", "Block_Group", "Block",
    )  # fmt: skip
    assert [spine.geocodes[i][1:] for i in leaves(spine)] == blocks["geoid"]
    assert ("GQ 0000001" in DHC_PERSONS.entities(blocks, variant).names) == (variant == "production")
    assert DHC_PERSONS.strategy(spine).loss == Fraction(49622, 10000)
    assert DHC_PERSONS.strategy(spine, bypassed=False).observed()["Prim"]["detailed"][0] == pytest.approx(1e4 / 478)


def test_dhc_units_share_the_spine_of_the_persons(blocks):
    spine = DHC_UNITS.spine(blocks)
    assert spine.geocodes == DHC_PERSONS.spine(blocks).geocodes
    other = production_settings("dhc_us_units_tenvacgq").budget.total
    assert DHC_UNITS.strategy(spine).loss + other == Fraction(77005, 10000)
    households = DHC_UNITS.strategy(spine, bypassed=False).observed()["County"]
    assert households["coupled_hh_type * hisp * hhtenshort_2lev"][0] == pytest.approx(1e4 / 3944)
    assert len(households) == 9


@pytest.fixture
def island(blocks):
    kept = [i for i, geoid in enumerate(blocks["geoid"]) if geoid.startswith("44")]
    table = {name: [column[i] for i in kept] for name, column in blocks.items() if name not in ("aian", "mcd")}
    return table | {"geoid": ["72" + geoid[2:] for geoid in table["geoid"]]}


@pytest.mark.parametrize(("name", "loss"), [
    ("redistricting persons", Fraction(293764, 114921)), ("redistricting units", Fraction(11417641, 152349649)),
    ("DHC persons", Fraction(49622, 10000)), ("DHC units", Fraction(77005, 10000)),
])  # fmt: skip
def test_puerto_rico_is_a_root_by_itself(island, name, loss):
    run = RUNS[f"{name}, Puerto Rico"]
    spine = run.spine(island)
    of_dhc = name.startswith("DHC")
    levels = ("Prim", "Tract_Subset_Group", "Tract_Subset") if of_dhc else ("Tract",)
    assert spine.levels == ("State", "County", *levels, "Block_Group", "Block")
    assert [spine.geocodes[i] for i in leaves(spine)] == island["geoid"]
    assert not [entity for entity in run.entities(island).names if entity.startswith(("AIAN", "MCD 72"))]
    other = production_settings("dhc_pr_units_tenvacgq").budget.total if name == "DHC units" else 0
    strategy = run.strategy(spine)
    assert strategy.loss + other == loss
    assert set(strategy.path_sums()) == {1}
    with pytest.raises(ValueError, match="is of one state: the blocks lie in 44, 72"):
        run.spine(island | {"geoid": ["44" + island["geoid"][0][2:], *island["geoid"][1:]]})


def test_published_variances_of_puerto_rico(island):
    run = RUNS["redistricting persons, Puerto Rico"]
    observed = run.strategy(run.spine(island), bypassed=False).observed()
    assert observed["State"]["detailed"][0] == pytest.approx(31.837988176443442, rel=1e-12)
    assert observed["Block_Group"]["total"][0] == pytest.approx(1.9724938960100027, rel=1e-12)
    assert "total" not in observed["State"]


def test_a_missing_column_is_named(blocks):
    del blocks["gq"]
    with pytest.raises(ValueError, match="lacks column 'gq': the run 'redistricting persons'"):
        RUNS["redistricting persons"].spine(blocks)
    with pytest.raises(ValueError, match="differ in length"):
        REDISTRICTING_UNITS.spine(blocks | {"place": ["1"]})


def test_a_missing_code_is_that_of_no_entity(blocks):
    written = REDISTRICTING_PERSONS.entities(blocks)
    missing = {"mcd": np.nan, "place": None, "aian": float("nan")}
    blocks |= {name: [code or missing[name] for code in blocks[name]] for name in missing}
    blocks["mcd"] = [np.nan if geoid.startswith("440030") else code for geoid, code in
                     zip(blocks["geoid"], blocks["mcd"], strict=True)]  # fmt: skip
    found = REDISTRICTING_PERSONS.entities(blocks)
    assert found.names == tuple(name for name in written.names if not name.startswith("MCD 44003"))


def test_a_missing_area_is_outside_all(blocks):
    missing = np.where(blocks["aian"], blocks["aian"], np.array(np.nan, dtype=object))
    assert on_spine_areas(missing) == on_spine_areas(blocks["aian"])
    assert aian_spine(blocks["geoid"], missing).geocodes == aian_spine(blocks["geoid"], blocks["aian"]).geocodes


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_geoids_that_lost_their_leading_zeros_are_refused(blocks, run):
    blocks["geoid"] = [str(int(geoid)) for geoid in blocks["geoid"]]
    for call in (run.entities, run.spine):
        refuses(r"geoid '4001\d*' is not of 15 digits", call, blocks)


def test_optimised_block_groups_bring_entities_closer(blocks):
    entities = REDISTRICTING_PERSONS.entities(blocks)
    plain = aian_spine(blocks["geoid"], blocks["aian"])
    assert osed(REDISTRICTING_PERSONS.spine(blocks), entities).mean() < osed(plain, entities).mean()
