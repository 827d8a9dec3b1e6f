"""Trees of geocodes: codes of which some lost a leading zero, or whose parents are not there, are refused by name."""

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders.files.spine_of_codes import spine_of_codes
from tests.helpers.effort import examples
from tests.helpers.refused import refuses

LEVELS = {"US": 0, "State": 3, "County": 6, "Tract": 8, "Block": 12}

codes = st.lists(
    st.tuples(*(st.integers(least, top) for least, top in ((0, 1), (1, 4), (0, 99), (0, 12), (0, 30)))).map(
        lambda own: f"{own[0]}{own[1]:02}{own[2]:03}{own[3]:02}{own[4]:04}"
    ),
    min_size=2,
    max_size=20,
    unique=True,
)


def by_level(found: list[str], top: str = "US") -> dict[str, pl.Series]:
    start = list(LEVELS).index(top)
    return {
        level: pl.Series(sorted({code[:width] for code in found}), dtype=pl.String)
        for level, width in list(LEVELS.items())[start:]
    }


@examples(60)
@given(codes, st.sampled_from(["US", "State", "County"]))
def test_the_tree_is_that_of_prefixes(found: list[str], top: str) -> None:
    given_codes = by_level(found, top)
    spine, remarks = spine_of_codes(given_codes, list(LEVELS))
    assert remarks == []
    for position, code in enumerate(spine.geocodes):
        level = spine.levels[spine.level_of[position]]
        if spine.parent[position] >= 0:
            above = spine.geocodes[spine.parent[position]]
            widths = list(LEVELS.values())
            assert above == code[: widths[list(LEVELS).index(level) - 1]] or spine.parent[position] == 0
        elif given_codes[top].len() > 1:
            several = given_codes[top].to_list()
            assert code == "+".join(several if len(several) <= 4 else [several[0], "...", several[-1]])
            assert level == {"State": "US", "County": "State"}[top]
        else:
            assert (level, code) == (top, given_codes[top][0])


@examples(120)
@given(codes, st.sampled_from(["State", "County", "Tract", "Block"]), st.data())
def test_leading_zeros_that_one_level_lost_are_named(found: list[str], level: str, data: st.DataObject) -> None:
    """Whatever share of them lost it; where all below did too, the tree is as it was."""
    given_codes = by_level(found)
    with_zero = [code for code in given_codes[level] if code.startswith("0")]
    if not with_zero:
        return
    lost = data.draw(st.sets(st.sampled_from(with_zero), min_size=1))
    both = data.draw(st.booleans())  # the code as it was is elsewhere in the folder
    spoilt = [code[1:] if code in lost else code for code in given_codes[level]] + (sorted(lost) if both else [])
    given_codes[level] = pl.Series(spoilt)
    with pytest.raises(ValueError, match=r"lost( some)? leading zeros") as error:
        spine_of_codes(given_codes, list(LEVELS))
    below = list(LEVELS)[min(list(LEVELS).index(level) + 1, len(LEVELS) - 1)]
    assert level in str(error.value) or below in str(error.value)
    count = re.search(r"([\d,]+) of [\d,]+ codes|as ([\d,]+) in all", str(error.value))
    assert int(count[1] or count[2]) >= 1


@examples(60)
@given(codes)
def test_places_below_none_of_one_top_are_named(found: list[str]) -> None:
    given_codes = by_level(found, "State")
    own, counties = given_codes["State"][0], given_codes["County"]
    given_codes["State"] = given_codes["State"][:1]
    if strays := [code for code in counties if not code.startswith(own)]:
        said = f"^{len(strays)} of {counties.len()} codes at County, '{strays[0]}' first, begin with none of State"
        refuses(said, spine_of_codes, given_codes, list(LEVELS))


@examples(60)
@given(codes, st.sampled_from(["State", "County", "Tract"]), st.data())
def test_geounits_that_are_missing_are_remarked(found: list[str], level: str, data: st.DataObject) -> None:
    given_codes = by_level(found)
    gone = data.draw(st.sampled_from(given_codes[level].to_list()))
    given_codes[level] = given_codes[level].filter(given_codes[level] != gone)
    if not given_codes[level].len():
        return
    names = list(LEVELS)
    above, below = (names[names.index(level) + step] for step in (-1, 1))
    orphans = [code for code in given_codes[below] if code.startswith(gone)]
    count = f"{len(orphans)} of {given_codes[below].len()} codes at {below}, '{orphans[0]}' first"
    if level == "State":
        with pytest.raises(ValueError, match=f"^{count}, begin with none of State, .*: copy both from one product"):
            spine_of_codes(given_codes, names)
        return
    spine, (remark,) = spine_of_codes(given_codes, names)
    assert (remark.about, remark.text.partition(": ")[0]) == ("missing", f"geounits at {level} above {count}")
    for code in orphans:
        assert spine.parent[spine.position(below, code)] == spine.position(above, gone[: LEVELS[above]])


def test_the_code_of_a_root_names_what_was_asked_for() -> None:
    found = by_level(["001001010001", "101001010001"], "State")
    assert spine_of_codes(found, list(LEVELS), ["0", "101"])[0].geocodes[0] == "0+101"
