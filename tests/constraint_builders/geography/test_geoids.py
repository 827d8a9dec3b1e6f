"""Places by GEOID on spines of several kinds, against the digits of the blocks that lie in them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Spine
from constraint_builders.description.geo_ids import WIDTHS
from constraint_builders.files.tabulated_places import MOVED_IN_TABULATION
from constraint_builders.geography.geoids import Geoids
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses

Block = tuple[int, int, int, int, int, int]  # branch, county, tract, its piece on the spine, group of the spine, number

blocks = st.lists(
    st.tuples(
        *(st.integers(0, 1), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
        st.integers(1000, 3002),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda block: (block[1], block[2], block[5]),
)


SUMMARY = {"nation": "010", "state": "040", "county": "050", "tract": "140", "block_group": "150", "block": "100"}


def code_of(block: Block) -> str:
    """The code of 2020 of a block, whose tract and group on the spine are not those of tabulation."""
    branch, county, tract, piece, group, number = block
    above = f"{branch}0510{county:03}1" + f"{tract:02}{piece:02}" + f"{group:02}"
    return above + f"05{county:03}{tract:06}{str(number)[0]}{number}"


def geoid_of(block: Block) -> str:
    return f"05{block[1]:03}{block[2]:06}{block[5]}"


def spine_of(codes: list[str]) -> Spine:
    widths = {"US": 0, "State": 3, "County": 9, "Tract": 13, "Block_Group": 15, "Block": 31}
    return Spine.from_geocodes({level: list(dict.fromkeys(c[:w] for c in codes)) for level, w in widths.items()})


@examples(40)
@given(blocks)
def test_places_are_the_blocks_whose_geoids_begin_so(found: list[Block]) -> None:
    codes = [code_of(block) for block in found]
    spine = spine_of(codes)
    geoids = Geoids(spine)
    leaves = [spine.geocodes[i] for i in np.flatnonzero(spine.child_counts == 0)]
    for level, width in WIDTHS.items():
        expected: dict[str, set[str]] = {}
        for block in found:
            expected.setdefault(geoid_of(block)[:width] or "US", set()).add(code_of(block))
        every = geoids.every(level)
        assert list(every.names) == sorted(expected)
        assert (geoids.of(sorted(expected)).contains != every.contains).nnz == 0
        for name, row in zip(every.names, every.contains.toarray(), strict=True):
            assert {leaves[i] for i in np.flatnonzero(row)} == expected[name]
            prefixed = geoids.of([f"{SUMMARY[level]}0000US{'' if name == 'US' else name}"]).contains.toarray()[0]
            assert (prefixed == row).all()
    inside = geoids.every("tract", ["05001"]).names if any(block[1] == 1 for block in found) else ()
    assert list(inside) == sorted({geoid_of(block)[:11] for block in found if block[1] == 1})


@examples(40)
@given(blocks, st.data())
def test_a_place_of_which_a_part_lies_inside_is_never_taken_for_the_whole(
    found: list[Block], data: st.DataObject
) -> None:
    geoids = Geoids(spine_of([code_of(block) for block in found]))
    level, other = (data.draw(st.sampled_from(sorted(WIDTHS.keys() - {"nation"}))) for _ in range(2))
    inside = data.draw(st.sets(st.sampled_from([geoid_of(block)[: WIDTHS[other]] for block in found]), min_size=1))
    whole = {name: {geoid_of(b) for b in found if geoid_of(b).startswith(name)} for name in geoids.every(level).names}
    taken = {geoid_of(b) for b in found if geoid_of(b)[: WIDTHS[other]] in inside}
    cut = [name for name, own in whole.items() if own & taken and own - taken]
    if cut:
        refuses(f"{level} '{cut[0]}' lies only in part within", geoids.every, level, sorted(inside))
    else:
        assert set(geoids.every(level, sorted(inside)).names) == {name for name, own in whole.items() if own & taken}


@every("code", ["8600000US05001", "1400000US05001", "0500001US05001", "1600000US0500100"])
def test_places_of_other_summary_levels_are_not_taken_for_counties(code: str) -> None:
    """An area of a postal code, a tract of too few digits, the urban part of a county, a town."""
    geoids = Geoids(Spine.from_geoids(["050010001001000"]))
    refuses(f"'{code}' is no ", geoids.of, [code])
    assert geoids.of(["0500000US05001"]).contains.sum() == 1


def test_a_place_is_a_list_of_geoids_and_spaces_around_them_are_nothing() -> None:
    geoids = Geoids(Spine.from_geoids(["050010001001000", "050030001001000"]))
    refuses(r"place 'here' must be a list of GEOIDs: write \['05001'\]", geoids.of_places, {"here": "05001"})
    assert geoids.of([" 05001\n"]).names == ("05001",)
    refuses("GEOID '05001' is given twice", geoids.of, ["05001", "05001 "])


def test_blocks_of_water_are_where_they_are_published() -> None:
    left, right = next(iter(MOVED_IN_TABULATION.items()))
    codes = [
        f"00110{geoid[2:5]}0{tract}01{geoid[:11]}{geoid[11]}{geoid[11:]}"
        for tract, geoid in (("0001", left), ("0002", right))
    ]
    geoids = Geoids(spine_of(codes))
    for level, width in WIDTHS.items():
        if width:
            assert geoids.every(level).names == (right[:width],)
    assert geoids.of([right[:11]]).contains.sum() == 2
    refuses(f"'{left}' is published as 0: what was measured .* is counted in {right}", geoids.of, [left])
    alone = Geoids(spine_of(codes[:1]))  # the other one is elsewhere, or could hold nobody
    assert alone.every("block").names == (right,)
    assert len(MOVED_IN_TABULATION) == 15
    assert all(len(a) == len(b) == 15 and a[:5] == b[:5] for a, b in MOVED_IN_TABULATION.items())


def test_spines_of_geoids_go_by_them() -> None:
    geoids = [f"44{county}0001001{block:03}" for county in ("001", "003") for block in range(3)]
    found = Geoids(Spine.from_geoids(geoids))
    assert found.every("block").names == tuple(geoids)
    assert found.every("Block_Group", ["44003"]).names == ("440030001001",)
    refuses("the nation is not in this result, only State and below", found.of, ["US"])
    refuses("nothing is known of places of level 'nation' here: there are state, county", found.every, "nation")
    refuses("no county '44005' in this result: near it are 44001, 44003", found.of, ["44005"])


def test_a_county_without_blocks_has_no_tracts() -> None:
    block = "005100011" + "0001" + "01" + "0500100010011000"
    codes = {"US": [""], "State": ["005"], "County": ["005100011", "005100031"], "Block": [block]}
    found = Geoids(Spine.from_geocodes(codes))
    assert found.every("county").names == ("05001", "05003")
    assert found.every("tract").names == ("05001000100",)
    refuses("there is no tract within '05003'", found.every, "tract", ["05003"])


def test_spines_down_to_counties_have_their_geoids() -> None:
    codes = {"US": [""], "State": ["005", "105", "006"], "County": ["005100011", "105100011", "005100031", "006100011"]}
    found = Geoids(Spine.from_geocodes(codes))
    assert found.every("county").names == ("05001", "05003", "06001")
    assert found.of(["05001"]).contains.sum() == 2
    assert found.every("state").names == ("05", "06")
    refuses("no tract '05001000100' in this result: GEOIDs are known down to the county", found.of, ["05001000100"])


def test_spines_with_codes_of_their_own_go_by_these() -> None:
    own = Spine.from_geocodes({"Land": ["A"], "Kreis": ["A1", "A2"], "Ort": ["A1x", "A1y", "A2z"]})
    found = Geoids(own)
    assert found.every("Kreis").names == ("A1", "A2")
    assert found.of(["A1", "A2z"]).contains.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]
    refuses("'A3' is no GEOID and no geocode", found.of, ["A3"])
    again = Geoids(Spine.from_geocodes({"Land": ["A"], "Kreis": ["A", "Ab"], "Ort": ["A", "Ab", "Abc"]}))
    refuses("'A' is the code of a Land and of a Kreis and of a Ort, which differ", again.of, ["A"])
    one = Geoids(Spine.from_geocodes({"Land": ["A"], "Kreis": ["A"], "Ort": ["A1", "A2"]}))
    assert one.of(["A"]).contains.sum() == 2
    refuses("nothing is known of places of level 'tract' here: there are Land, Kreis, Ort", found.every, "tract")
