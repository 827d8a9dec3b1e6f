"""A result of some of a folder's geounits knows which places it holds in part, however it was made and is asked."""

from pathlib import Path

import pytest

from blue_solvers.cli import main
from blue_solvers.results import Result
from tests.helpers.census_files import Written
from tests.helpers.refused import refuses
from tests.helpers.refused_commands import refusal
from tests.helpers.small_census import SETTINGS, write_small_census

LINE = "P5_001N"  # people in group quarters
WITHIN = {
    "one branch": ["041"],
    "both branches": ["041", "141"],
    "a county of one": ["041100011"],
    "tracts of two": ["0411000111", "1411000112"],
    "a whole state": ["044"],
}
WIDTHS = {"state": 2, "county": 5, "tract": 11, "block": 15}


def geoid(code: str) -> str:
    return code[-16:-5] + code[-4:]


@pytest.mark.few(1)
@pytest.mark.parametrize("streamed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WITHIN)
def test_a_part_says_so_or_is_refused(
    name: str, streamed: bool, small_census: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, written = small_census
    prefixes, out = WITHIN[name], str(tmp_path / "out")
    options = [text for prefix in prefixes for text in ("--within", prefix)] + ["--memory", "1e9"] * streamed
    assert main(["estimate", str(folder), "--out", out, *options]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("in part")]
    inside = [block.codes[-1].startswith(tuple(prefixes)) for block in written.blocks]
    result, cut = Result(out), set()
    for level, width in WIDTHS.items():
        places: dict[str, set[bool]] = {}
        people: dict[str, int] = {}
        for block, taken in zip(written.blocks, inside, strict=True):
            place = geoid(block.codes[-1])[:width]
            places.setdefault(place, set()).add(taken)
            people[place] = people.get(place, 0) + taken * int((block.persons // 2 > 0).sum())
        here = {place: sides for place, sides in places.items() if True in sides}
        frame = result.table(LINE, geolevel=level)
        assert frame["geoid"].to_list() == [
            p if sides == {True} else f"{p} in part" for p, sides in sorted(here.items())
        ]
        for place, estimate, error in frame.select("geoid", "estimate", "std_error").iter_rows():
            assert abs(estimate - people[place.partition(" ")[0]]) < 5 * error + 1e-9
        for place, sides in here.items():
            if sides == {True}:
                assert result.table(LINE, [place])["geoid"].to_list() == [place]
            else:
                cut.add(place)
                refuses(f"{level} '{place}' lies only in part in this result, which is of", result.table, LINE, [place])
    assert len(said) == bool(cut)
    assert set(result.in_part.cut) >= cut
    refuses("'US': the nation is not in this result", result.table, LINE, ["US"])
    if len(prefixes) > 1:
        assert result.spine.geocodes[0] == "+".join(prefixes)
        assert main(["query", out, "--all", "--geolevel", result.spine.levels[0]]) == 0
        assert f"{'+'.join(prefixes)} " in capsys.readouterr().out


def test_every_door_refuses_a_part(
    small_census: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = str(tmp_path / "out")
    assert main(["estimate", str(small_census[0]), "--within", "041", "--out", out]) == 0
    (tmp_path / "places.csv").write_text("place,geoid\nhere,41\n")
    for arguments in (
        ["query", out, "--table", LINE, "--geoid", "41"],
        ["query", out, "--table", LINE, "--geoid", "0400000US41"],
        ["query", out, "--table", LINE, "--geoid", "41001", "--geolevel", "tract"],
        ["query", out, "--table", LINE, "--places", str(tmp_path / "places.csv")],
        ["query", out, "--table", LINE, "--over", LINE, "--base", "41", "--geoid", "41003"],
        ["query", out, "--table", LINE, "--rank", "--geoid", "41", "41003"],
    ):
        assert "lies only in part in this result, which is of '041'" in refusal(capsys, *arguments), arguments
    assert main(["query", out, "--table", LINE, "--rank", "--geolevel", "county"]) == 0
    assert "41001 in part" in capsys.readouterr().out
    assert main(["query", out, "--table", LINE, "--geoid", "041"]) == 0  # a geounit of the spine is what it is
    for code, rest in (("41", "141"), ("41001", "141100011"), ("410010000011000", "141100011")):
        said = refusal(capsys, "query", out, "--geounits", code)
        assert f"'{code}' is not one geounit of 'Block' alone, and {rest} is not in this result" in said
    shared = "410010000011000"  # of invented blocks some are on both sides
    assert f"'{shared}' is not one geounit" in refusal(capsys, "query", out, "--geounits", shared)


def test_a_branch_that_no_file_has_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    settings = tmp_path / "pl94_us_persons.toml"  # of that name the files of 2020 are known
    settings.write_text(SETTINGS)
    places = {"041": {"001": [2, 2]}, "044": {"003": [3]}}
    write_small_census(tmp_path / "census", places=places)
    out = str(tmp_path / "out")
    assert main(["estimate", str(tmp_path / "census"), "--settings", str(settings), "--out", out]) == 0
    assert "the files of 2020 have a branch 141, these have not" in capsys.readouterr().out
    assert "the rest of it, 141, too" in refusal(capsys, "query", out, "--table", LINE, "--geoid", "41001")
    assert main(["query", out, "--table", LINE, "--geolevel", "county"]) == 0
    shown = capsys.readouterr().out
    assert "41001 in part" in shown
    assert "44003  " in shown
