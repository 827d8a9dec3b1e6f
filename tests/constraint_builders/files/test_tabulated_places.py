"""Published places that a part of the files holds in part, against the blocks that lie in them."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Spine
from constraint_builders.files.reading_report import PlacesInPart, ReadingReport
from constraint_builders.files.tabulated_places import MOVED_IN_TABULATION, WITH_AREAS, Outside
from constraint_builders.geography import Geoids
from tests.helpers.effort import examples

Block = tuple[int, str, int, int, int, int]  # branch, state, county, tract, its piece on the spine, number of the block

WIDTHS = {"state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
LEVELS = {"US": 0, "State": 3, "County": 9, "Tract": 13, "Block": 29}


def tabulated(block: Block) -> tuple[str, int, int, int]:
    """Where a block is published."""
    return block[1], block[2], block[3], block[5]


blocks = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["41", "44"]),
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(1, 2),
        st.integers(1000, 2003),
    ),
    min_size=2,
    max_size=25,
    unique_by=tabulated,
)


def code_of(block: Block) -> str:
    branch, state, county, tract, piece, number = block
    place = f"{state}{county:03}{tract:06}{str(number)[0]}{number}"
    return f"{branch}{state}10{county:03}1{tract:02}{piece:02}{place}"


def geoid_of(block: Block) -> str:
    return f"{block[1]}{block[2]:03}{block[3]:06}{block[5]}"


def read(codes: Sequence[str], prefixes: Sequence[str], settings: str = "own") -> tuple[Spine, PlacesInPart]:
    """The spine of what begins with some prefixes, and what of the rest cuts."""
    outside, inside = Outside(prefixes), {}
    for level, width in LEVELS.items():
        own = list(dict.fromkeys(code[:width] for code in codes))
        taken = [code for code in own if code.startswith(tuple(prefixes))]
        rest = pl.Series([code for code in own if code not in taken], dtype=pl.String)
        for some in (rest[::2], rest[1::2]):  # file by file
            outside.add(some)
        if taken:
            inside[level] = taken
    spine = Spine.from_geocodes({"Root": [""], **inside})
    leaves = [spine.geocodes[i] for i in np.flatnonzero(spine.child_counts == 0)]
    return spine, outside.cutting(spine.geocodes, leaves, settings)


@examples(60)
@given(blocks, st.data())
def test_a_place_is_cut_if_blocks_of_it_are_inside_and_outside(found: list[Block], data: st.DataObject) -> None:
    codes = [code_of(block) for block in found]
    widths = data.draw(st.lists(st.sampled_from([1, 3, 9, 11]), min_size=1, max_size=2))
    prefixes = [data.draw(st.sampled_from(codes))[:width] for width in widths]
    spine, in_part = read(codes, prefixes)
    taken = [code.startswith(tuple(prefixes)) for code in codes]
    expected = set()
    for width in WIDTHS.values():
        sides = [{geoid_of(b)[:width] for b, own in zip(found, taken, strict=True) if own == side} for side in (0, 1)]
        expected |= sides[0] & sides[1]
    assert set(in_part.cut) == expected
    geoids = Geoids(spine, in_part)
    for level, width in WIDTHS.items():
        here = sorted({geoid_of(b)[:width] for b, own in zip(found, taken, strict=True) if own})
        assert geoids.every(level).names == tuple(f"{own} in part" if own in expected else own for own in here)
        for own in here:
            if own in expected:
                with pytest.raises(ValueError, match=f"{level} '{own}' lies only in part"):
                    geoids.of([own])
            else:
                assert geoids.of([own]).contains.sum() == sum(
                    geoid_of(b).startswith(own) for b, inside in zip(found, taken, strict=True) if inside
                )


@examples(30)
@given(blocks, st.sets(st.sampled_from(["041", "141", "044", "144"]), min_size=1, max_size=3))
def test_branches_that_files_of_2020_have_are_missed(found: list[Block], copied: set[str]) -> None:
    """41 has areas, 44 has not: so an area of 44, and its absence, are nothing to the rest."""
    codes = [code for code in map(code_of, found) if code[:3] in copied]
    if not codes:
        return
    spine, in_part = read(codes, [""], "pl94_us_persons")
    there = {code[:3] for code in codes}
    states = {branch[1:] for branch in there}
    expected = {f"{area}{state}" for state in states for area in ("01" if state == "41" else "0")} - there
    assert (set(in_part.absent), in_part.cut) == (expected, {})
    geoids = Geoids(spine, in_part)
    for state in states:
        lost = any(branch[1:] == state for branch in expected)
        for level, width in WIDTHS.items():
            names = [own for own in geoids.every(level).names if own.startswith(state)]
            assert all(own.endswith(" in part") == (lost and width < 15) for own in names)
    assert read(codes, [""], "own")[1] == PlacesInPart()


def test_the_states_with_areas_are_thirty_seven() -> None:
    assert len(WITH_AREAS.split()) == len(set(WITH_AREAS.split())) == 37


@pytest.mark.parametrize("taken", [0, 1])
def test_blocks_of_water_count_where_they_are_published(taken: int) -> None:
    water, target = next(iter(MOVED_IN_TABULATION.items()))
    codes = [f"0{own[:2]}10{own[2:5]}1{i:02}01{own[:11]}{own[11]}{own[11:]}" for i, own in enumerate((water, target))]
    in_part = read(codes, [codes[taken][:11]])[1]
    assert set(in_part.cut) == {target[:width] for width in WIDTHS.values()}


def test_spines_of_geoids_are_cut_by_their_own_codes() -> None:
    outside = Outside(["44007"])
    for codes in (["44"], ["44005", "44009"], ["440050001001000", "440090001001000"]):
        outside.add(pl.Series(codes))
    in_part = outside.cutting(["44007", "440070001001000"], ["440070001001000"], "pl94_us_persons")
    assert in_part == PlacesInPart({"44": ""})
    with pytest.raises(ValueError, match="state '44' lies only in part in this result, which is of '44007'"):
        Geoids(Spine.from_geocodes({"County": ["44007"], "Block": ["440070001001000"]}), in_part).of(["44"])


def test_what_is_in_part_is_kept_and_added_up() -> None:
    first, second = PlacesInPart({"41": "141", "41001": ""}), PlacesInPart({"44": ""}, ("106",))
    both = first | second
    assert (both.rest_of("41001"), both.rest_of("44"), both.rest_of("06001"), both.rest_of("09")) == (
        "141",
        "",
        "106",
        None,
    )
    report = ReadingReport((), (), {}, (), in_part=both, remarks=tuple(both.remarks()))
    assert ReadingReport.of_json(report.to_json()) == report
    assert [remark.about for remark in report.remarks] == ["in part", "in part"]
