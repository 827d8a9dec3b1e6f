"""Spines: reading them, and refusing what is none."""

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraint_builders import Spine
from tests.helpers.effort import examples
from tests.helpers.refused import refused, refuses


def test_a_root_joins_states() -> None:
    refuses("exactly one root", Spine.from_geoids, ["01001", "02001"], {"State": 2, "County": 5})
    spine = Spine.from_geoids(["01001", "02001"], {"State": 2, "County": 5}, root="US")
    assert spine.levels[0] == "US"
    assert spine.child_counts[0] == 2


def test_geocodes_of_data_dependent_width() -> None:
    assert Spine.from_geocodes({"State": [1], "County": [11, 12]}).geocodes == ("1", "11", "12")
    spine = Spine.from_geocodes({"State": ["1"], "County": ["1a", "1bb"], "Tract": ["1a01", "1bb1", "1bb22"]})
    parents = [spine.geocodes[spine.parent[i]] for i in spine.members[2]]
    assert parents == ["1a", "1bb", "1bb"]


@examples(100)
@given(data=st.data(), size=st.integers(1, 12))
def test_depths_and_members_in_any_order(data: st.DataObject, size: int) -> None:
    """Geounits in any order, that of a walk level by level among them."""
    parent = [-1]
    for number in range(1, size):
        parent.append(data.draw(st.integers(0, number - 1)))
    order = {"any": list(range(size)), "level by level": []}
    waiting = [0]
    while waiting:
        order["level by level"].append(waiting.pop(0))
        waiting += [i for i, above in enumerate(parent) if above == order["level by level"][-1]]
    order["any"] = list(data.draw(st.permutations(order["any"])))
    for own in order.values():
        spine = Spine([own.index(parent[i]) if parent[i] >= 0 else -1 for i in own])
        for place, above in enumerate(spine.parent):
            assert spine.level_of[place] == (spine.level_of[above] + 1 if above >= 0 else 0)
        for number, members in enumerate(spine.members):
            assert members.tolist() == [i for i in range(size) if spine.level_of[i] == number]


def test_levels_may_be_skipped_in_an_order_that_names_do_not_give() -> None:
    spine = Spine([-1, 0, 0, 1], ["z", "m", "a", "a"])
    assert spine.levels == ("z", "m", "a")
    assert spine.level_of.tolist() == [0, 1, 2, 2]
    assert spine.rank_in_level.tolist() == [0, 0, 0, 1]
    assert not any(own.flags.writeable for own in (spine.parent, spine.level_of))


@refused(
    ([-1, -1], ["A", "A"], None, "exactly one root.*got 2"),
    ([1, 0], ["A", "B"], None, "exactly one root.*got 0"),
    ([-1, 2, 1], ["A", "B", "C"], ["x", "y", "z"], "'y' is in or below a cycle"),
    ([-1, 7], ["A", "B"], ["x", "lost"], "'lost' is an orphan"),
    ([-1, 0], ["A", "A"], ["x", "y"], "'y' has the geolevel 'A' of its parent"),
    ([-1, 0, 1, 0, 3], ["A", "B", "C", "C", "B"], None, "both above and below"),
    ([-1, 0, 0], ["A", "B", "B"], ["x", "y", "y"], "'y' is given twice"),
    ([-1, 0], ["A"], None, "geolevel lists 1 geounits, parent 2"),
    ([], [], None, "at least one geounit"),
    ([-1, 0.5], ["A", "B"], None, "whole numbers: got float64"),
    ([-1, np.nan], ["A", "B"], None, "whole numbers"),
    (["", "x"], ["A", "B"], None, "whole numbers"),
    (pd.Series([-1, 0], index=["x", "y"]), ["A", "B"], None, "parent has labels"),
)
def test_what_is_no_tree_is_refused(parent: list, levels: list, codes: list | None) -> None:
    Spine(parent, levels, codes)


def test_orphans_repeats_and_short_geoids_are_named() -> None:
    refuses("'2x' of 'County' is an orphan", Spine.from_geocodes, {"State": ["1"], "County": ["2x"]})
    refuses("'01001' is given twice", Spine.from_geoids, ["01001", "01001"], {"State": 2, "County": 5})
    with pytest.raises(ValueError, match="'01001' is given twice, as far as the level widths read"):
        Spine.from_geoids(["010012", "010011"], {"State": 2, "County": 5})
    refuses("'01' has 2 characters", Spine.from_geoids, ["01"], {"State": 2, "County": 5})
    refuses("'010012' has 6 characters", Spine.from_geoids, ["010012"], {"State": 2, "County": 5})
    refuses("widths must increase from the top", Spine.from_geoids, ["01001"], {"State": 5, "County": 5})
    refuses("no geolevel 'Town'", Spine([-1], ["A"]).level_index, "Town")
    refuses("no geounit '9'", Spine([-1], ["A"]).position, "A", "9")


def test_levels_are_depths_where_none_are_given() -> None:
    spine = Spine([-1, 0, 1, 0, 2])
    assert spine.levels == ("depth 0", "depth 1", "depth 2", "depth 3")
    assert spine.level_of.tolist() == [0, 1, 2, 1, 3]
    assert spine.geocodes == ("0", "1", "2", "3", "4")
    assert spine.position("depth 2", "2") == 2
    refuses("geounit '1' is in or below a cycle", Spine, [-1, 2, 1])


@given(
    place=st.integers(0, 14),
    character=st.one_of(st.characters(categories=["Nd", "Nl", "No", "Lu", "Ll", "Zs"]), st.sampled_from("-.\u200b")),
    is_census=st.booleans(),
)
def test_what_only_looks_like_an_identifier_is_refused(place: int, character: str, is_census: bool) -> None:
    geoids = ["440010301001000", "440010301001001", "440030201011000"]
    geoids[0] = geoids[0][:place] + character + geoids[0][place + 1 :]
    widths = None if is_census else {"State": 2, "Block": 15}
    if character in "0123456789" or (character.isascii() and not is_census):
        with suppress(ValueError):  # another state, or a block that is there
            Spine.from_geoids(geoids, widths)
        return
    refuses("is not of the digits 0 to 9 alone", Spine.from_geoids, geoids, widths)
