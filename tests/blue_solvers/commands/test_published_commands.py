"""The commands that answer by published table write what the library says, and refuse in one line."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from blue_solvers.cli import main
from blue_solvers.results import Result
from blue_solvers.results.known_groups import known_groups
from constraint_builders.files import boundaries
from constraint_builders.files.boundaries import Boundaries
from tests.helpers.every import every
from tests.helpers.refused_commands import commands, refusal
from tests.helpers.simulated import HOUSEHOLDS, settings_of, simulate
from tests.helpers.small_states import SmallState, small_state, summed

GEOLEVELS = ["US", "State", "County", "Tract", "Block_Group", "Block"]
SETTINGS = settings_of(GEOLEVELS, HOUSEHOLDS, {"detailed": "1/6"})
SURE, OTHER = "H10", "HCT1"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> SmallState:
    """Households by tenure, race and Hispanic origin of their householders."""
    sums = {"hisp": summed(1, 2), "detailed": summed()}
    desired = ["hisp * race * hhtenshort_3lev"]
    return small_state(tmp_path_factory.mktemp("state") / "result", SETTINGS, sums, desired, 9)


def shown(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.few(2)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("wide", [False, True])
def test_tables_are_written_as_the_library_answers(
    state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture, suffix: str, wide: bool
) -> None:
    out = tmp_path / f"tracts{suffix}"
    asked = f"--table {SURE} --table {OTHER} --geolevel tract --level 0.8"
    arguments = ["query", str(state.result.folder), *asked.split()]
    said = shown(capsys, *arguments, "--out", str(out), *(["--wide"] if wide else []))
    frames = [state.result.table(name, geolevel="tract", confidence_level=0.8, wide=wide) for name in (SURE, OTHER)]
    expected = pl.concat([frames[0], frames[1].drop("geoid")], how="horizontal") if wide else pl.concat(frames)
    assert said == f"written    {out}, {expected.height} rows\n"
    if suffix == ".csv":
        assert_frame_equal(pl.read_csv(out, schema_overrides={"geoid": pl.String}), expected, rel_tol=1e-9)
    else:
        assert_frame_equal(pl.read_parquet(out) if suffix == ".parquet" else pl.read_ipc(out), expected)


def test_tables_are_rounded_to_their_errors(state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = str(tmp_path / "county.csv")
    shown(capsys, "query", str(state.result.folder), "--table", SURE, "--geoid", "01003", "--digits", "2", "--out", out)
    errors = pl.read_csv(out, infer_schema=False)["std_error"]
    assert all(len(text.replace(".", "").strip("0")) <= 2 for text in errors)


def test_no_line_is_from_memory(state: SmallState, capsys: pytest.CaptureFixture) -> None:
    """The Census Bureau's list of fields has every line by its number, those of HCT1 and PCT2 too."""
    folder = str(state.result.folder)
    lines = shown(capsys, "query", folder, "--table", OTHER, "--geoid", "01003010800").splitlines()
    assert not [line for line in lines if " C " in line or "memory" in line]
    assert f"{state.result.table(OTHER, ['01003010800'])['estimate'][0]:,.2f}" in lines[2]
    assert state.result.published_tables()["unsure"].sum() == 0
    listed = shown(capsys, "tables", folder)
    assert "34 C" not in next(line for line in listed.splitlines() if line.startswith("HCT1 "))


def test_places_without_a_name_are_said(state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder, names = str(state.result.folder), tmp_path / "names.csv"
    names.write_text("GEOID,NAME\n99,Nowhere\n")
    for asked in (["--table", SURE, "--geolevel", "county"], ["--table", "H10_002N", "--rank", "--geolevel", "county"]):
        said = shown(capsys, "query", folder, *asked, "--place-names", str(names))
        assert f"no name    for 1 place of 1 in {names}, such as 01003" in said
    names.write_text("GEOID,NAME\n01003,Baldwin\n")
    said = shown(capsys, "query", folder, "--table", SURE, "--geoid", "01003", "--place-names", str(names))
    assert "no name" not in said
    assert "Baldwin" in said


def test_a_segment_of_the_demographic_files_is_compared(
    state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """H10 is behind 158 lines of other tables in segment 1, which has 234."""
    place = [""] * 97
    place[7:9], place[87] = ["0000001", "0500000US01003"], "Baldwin County"
    (tmp_path / "algeo2020.dhc").write_text("|".join(place) + "\n")
    before = 1 + 4 + 3 + 23 * 4 + 8 + 8 + 17 + 1 + 8
    counts = ["DHCST", "AL", "000", "01", "0000001", *map(str, range(234))]
    (tmp_path / "al000012020.dhc").write_text("|".join(counts) + "\n")
    out = tmp_path / "beside.parquet"
    asked = "query", str(state.result.folder), "--published", str(tmp_path / "al000012020.dhc"), "--out", str(out)
    shown(capsys, *asked)
    beside = pl.read_parquet(out)
    found = beside.filter(pl.col("line").str.starts_with("H10_"))
    assert found["published"].to_list() == [before + i for i in range(17)]
    assert set(beside["name"]) == {"Baldwin County"}
    expected = state.result.table("H10", ["01003"])
    assert_frame_equal(found.select("line", "estimate", "std_error"), expected.select("line", "estimate", "std_error"))


def test_an_interval_is_not_asked_of_what_was_published(
    state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "H10.csv").write_text("geoid,H10_001N\n01003,12\n")
    asked = "query", str(state.result.folder), "--published", str(tmp_path / "H10.csv"), "--level", "0.9"
    assert "--published gives standard errors, and no intervals: leave --level out" in refusal(capsys, *asked)


def test_a_table_is_shown_in_its_shell(state: SmallState, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("GEO_ID,NAME\n1400000US01003010800,Tract 108\n")
    named = ["--place-names", str(tmp_path / "names.csv")]
    lines = shown(capsys, "query", str(state.result.folder), "--table", "H10", "--geoid", "01003010800", *named)
    header, _, *rows = lines.splitlines()
    assert header.split()[:4] == ["geoid", "name", "line", "label"]
    first = rows[0].index("Total")
    assert all("Tract 108" in row for row in rows[:17])
    asked = ["query", str(state.result.folder), "--table", "H10_001N", "--geoid", "1400000US01003010800", *named]
    assert "Tract 108" in shown(capsys, *asked)
    frame = state.result.table("H10", ["01003010800"])
    for row, path, own in zip(rows, frame["path"], frame.iter_rows(named=True), strict=False):
        assert row[first:].startswith("  " * path.count(" > ") + own["label"])
        assert f"{own['margin_90']:,.2f}" in row
        assert ("**" in row, " * " in row) == (own["reliability"] == "low", own["reliability"] == "medium")
    alone = shown(capsys, "query", str(state.result.folder), "--table", "h0100003", "--geoid", "01")
    assert f"H10_003N  {frame['path'][2].partition(' > ')[2]}" in alone
    assert ("is more than 10 % of the estimate" in lines) == (frame["reliability"] != "high").any()
    hopeless = frame.filter(pl.col("reliability") == "low")["line"].to_list()
    assert [line for line in hopeless if f"{line} at 01003010800 is hardly known" in lines] == hopeless[:3]


def test_counts_go_by_geoids_too(
    state: SmallState, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["query", str(state.result.folder), "--count", "total", "--count", "hisp=1", "--out"]
    out, lines = str(tmp_path / "out.parquet"), ["H7_001N", "H7_010N"]
    for places, wanted in (
        (["--geoid", "01003010800", "--geoid", "010030108002009"], {"geoids": ["01003010800", "010030108002009"]}),
        (["--geoid", "01", "--geolevel", "block_group"], {"geolevel": "block_group"}),
    ):
        shown(capsys, *asked, out, *places)
        found = pl.read_parquet(out)
        expected = [state.result.table(line, **wanted) for line in lines]  # type: ignore[arg-type]
        for count, own in zip(("total", "hisp=1"), expected, strict=True):
            kept = found.filter(pl.col("count") == count)
            assert kept["place"].to_list() == own["geoid"].to_list()
            np.testing.assert_allclose(kept["estimate"], own["estimate"], atol=1e-9)
            np.testing.assert_allclose(kept["std_error"], own["std_error"], rtol=1e-9)
    monkeypatch.setattr(Result, "tables", lambda self, geolevel: [])  # as of a result of counties alone
    said = refusal(capsys, *asked[:2], "--table", "all", "--geoid", "01003010900")
    assert "no table is stored at 'Block': name the tables" in said
    cells = shown(capsys, *asked[:2], "--table", "hisp", "--geoid", "01003010900")
    assert cells.startswith("1 place of geounits of level Block")


def test_races_beside_one_another_are_no_group(state: SmallState) -> None:
    """The line itself, or the first of those above it that is known."""
    lines = [f"H10_{number:03}N" for number in range(3, 10)]
    cv = dict(state.result.table("H10", ["01003010800"]).select("line", "cv").rows())
    for known_to in (0.004, 0.006, 0.02, 0.1, 0.3):
        groups = known_groups(state.result, lines, "01003010800", known_to)
        above = [[line, "H10_002N", "H10_001N"] for line in lines]
        expected = [next((own for own in around if cv[own] <= 100 * known_to), None) for around in above]
        assert [group and group.codes for group in groups] == [own and (own,) for own in expected]


def test_what_was_published_is_put_beside(state: SmallState, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    own = state.result.table("H10", ["01003010800"]).head(2)
    counts = (own["estimate"] + pl.Series([0.0, 4.0]) * own["std_error"]).to_list()
    text = "GEO_ID,NAME,H0100001,H0100002,P3_001N\nGeography,Name,!!Total:,!!Owner occupied,c\n"
    text += f"1400000US01003010800,Here,{counts[0]!r},"
    file, out = tmp_path / "H10.csv", tmp_path / "out.csv"
    file.write_text(text + f"{counts[1]!r},5\n1600000US0105980,Town,1,2,3\n0500000US01001,Far,1,2,3\n")
    asked = ["query", str(state.result.folder), "--published", str(file)]
    said = shown(capsys, *asked).splitlines()
    assert said[0].startswith("left out   P3: table 'P3' is of pl94_persons and dhc_persons")
    assert said[1].startswith("left out   1 row of places that are no state")
    assert said[1].endswith(": 1600000US0105980")
    assert said[2].startswith("left out   1 row of places that this result has not")
    assert said[3] == "compared   2 counts: 1 of 2 are more than 3 standard errors apart"
    assert said[4].split()[-2:] == ["std", "errors"]
    assert (said[7].split()[:2], said[7].split()[-1]) == (["01003010800", "Here"], "4.00")
    shown(capsys, *asked, "--out", str(out))
    np.testing.assert_allclose(pl.read_csv(out)["z"], [0, 4], atol=1e-9)


def test_answers_are_joined_to_boundaries(
    state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = pl.Series([bytes([1, 3, 0, 0, 0, 0, 0, 0, 0])] * 2)  # polygons without a ring
    given = Boundaries(pl.DataFrame({"GEOID": ["01003010800", "01003010900"]}), shapes, None)
    monkeypatch.setattr(boundaries, "read_boundaries", lambda path: given)
    out, asked = tmp_path / "tracts.parquet", ["query", str(state.result.folder), "--boundaries", "tracts.zip", "--out"]
    shown(capsys, *asked, str(out), "--table", "H10", "--geolevel", "tract", "--wide")
    assert_frame_equal(pl.read_parquet(out).drop("geometry"), state.result.table("H10", geolevel="tract", wide=True))
    assert pl.read_parquet(out)["geometry"].to_list() == shapes.to_list()
    shown(capsys, *asked, str(out), "--table", "H10_002N", "--rank", "--geolevel", "tract")
    assert pl.read_parquet(out).columns[-1] == "geometry"
    assert "no shape is that of '01'" in refusal(capsys, *asked, str(out), "--table", "H10", "--geoid", "01")


def test_comparisons_say_that_both_lines_are_sure(state: SmallState) -> None:
    for line, other in itertools.permutations(["H10_001N", "H10_002N", "HCT1_001N", "HCT1_002N"], 2):
        for ask in (state.result.differences, state.result.ratios):
            assert ask(line, other, ["01003"])["confidence"].to_list() == ["A"], (line, other)


def test_what_can_be_answered_is_listed(state: SmallState, capsys: pytest.CaptureFixture) -> None:
    listed = shown(capsys, "tables", str(state.result.folder))
    frame = state.result.published_tables()
    answered = frame.filter(pl.col("reason") == "").height
    assert listed.startswith(f"{answered} published tables can be answered, {frame.height - answered} cannot\n")
    assert answered == 4 + 9 + 2  # H4, H10, H11 and HCT1 less those of households alone; H4A-I; H6 and H7
    row = next(line for line in listed.splitlines() if line.startswith("P19 "))
    assert row.endswith("its variables lack 'elderly' and 'hhtype_dhch'")


def test_places_come_from_a_list_of_blocks(state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    places = {"Here": ["010030108001001", "010030108002009"], "There": ["01003010900"]}
    rows = [(name, geoid) for name, geoids in places.items() for geoid in geoids]
    pl.DataFrame(rows, schema=["place", "geoid"], orient="row").write_csv(tmp_path / "places.csv")
    places_file, out = str(tmp_path / "places.csv"), str(tmp_path / "out.parquet")
    shown(capsys, "query", str(state.result.folder), "--table", SURE, "--places", places_file, "--out", out)
    assert_frame_equal(pl.read_parquet(out), state.result.table(SURE, places))


@pytest.mark.few(3)
@pytest.mark.parametrize("suffix", [".csv", ".arrow"])
@pytest.mark.parametrize("how", ["share", "base", "minus", "rank"])
def test_comparisons_are_written_as_the_library_answers(
    state: SmallState, tmp_path: Path, capsys: pytest.CaptureFixture, suffix: str, how: str
) -> None:
    out, result, level = tmp_path / f"out{suffix}", state.result, {"confidence_level": 0.9}
    options, expected = {
        "share": (["--over", "H10_001N"], result.ratios("H10_002N", "H10_001N", geolevel="block", **level)),
        "base": (["--over", "--base", "01003"], result.ratios("H10_002N", None, None, "block", "01003", **level)),
        "minus": (["--minus", "H10_010N"], result.differences("H10_002N", "H10_010N", geolevel="block", **level)),
        "rank": (["--rank"], result.ranks("H10_002N", geolevel="block", **level)),
    }[how]
    arguments = ["query", str(result.folder), "--table", "H10_002N", *options, "--geolevel", "block", "--level", "0.9"]
    assert shown(capsys, *arguments, "--out", str(out)) == f"written    {out}, 5 rows\n"
    ids = dict.fromkeys(("geoid", "other_geoid"), pl.String)
    found = pl.read_csv(out, schema_overrides=ids) if suffix == ".csv" else pl.read_ipc(out)
    assert_frame_equal(found, expected, check_dtypes=suffix != ".csv", rel_tol=1e-9)
    on_screen = shown(capsys, *arguments).splitlines()
    assert len(on_screen) == 2 + 5
    assert all(row[0] in line for row, line in zip(expected.rows(), on_screen[2:], strict=True))


REFUSED = commands("""
query RESULT --table H10 => no place is asked for: give --geoid, --geolevel or --places
query RESULT --table H99 --geoid 01 => no published table 'H99' in dhc_households: near it are H9
query RESULT --table H10 --geoid 02 => no state '02' in this result: near it is 01
query RESULT --table P12 --geoid 01 => 'P12' is of dhc_persons, and this result is of dhc_households
query RESULT --table H13 --geoid 01 => cannot answer H13: its variables lack 'hhage'
query RESULT --table H10 --geolevel town => places of level 'town' here: there are state, county
query RESULT --table H10 --table H10 --geoid 01 => line H10_001N is asked for twice
query RESULT --table H10_002N --table H10 --geoid 01 --wide --out x.csv => line H10_002N is asked for
query RESULT --table H10 --geoid 01003010800 --geolevel county => '01003' lies only in part within
query RESULT --table H10 --geoid 8600000US01003 => is no place of summary level 860 that is known
query RESULT --table H10 --geoid 01 --wide => --wide is of what is written: give --out
query RESULT --table H10 --geoid 01 --out x.txt => the name must end in .csv
query RESULT --table H10 --places p.csv --geoid 01 => argument --geoid: not allowed with argument --places
query nowhere --table H10 --geoid 01 => nowhere/result.json: No such file
query . --table H10 --geoid 01 => is a folder of nothing that this command made
query RESULT --table HCT1 --table H10 --geolevel block => 260 rows are too many to show: give --out
query RESULT --table H10_002N --over --geoid 01 => give a line after --over or --minus, or
compare RESULT H10_002N --geoid 01 => one of the arguments --over --minus --rank --published is required
query RESULT --table H10 --rank --geoid 01 => 'H10' is a table: give a line of it
query RESULT --table H10_002N --rank --base 01 => --rank compares places with one another
query RESULT --table H10 --geoid 010030109001999 => of water for one, are not in the files of 2020 and count 0
query RESULT --geounits 01003010800 => its codes are such as '00110003000
query RESULT --geounits 010030108009 => which are the spine's; a block group goes by its GEOID, --geoid 010030108009
query RESULT --count total --all --whole => --whole is of published tables: leave it out
query RESULT --count total --all --place-names nowhere.csv => --place-names is of published tables
query RESULT --published nowhere.csv => nowhere.csv: No such file
query RESULT --published nowhere.csv --rank => argument --rank: not allowed with argument --published
query RESULT --published nowhere.csv --count total => --published is compared line by line: leave --count out
query RESULT --published nowhere.csv --geounits-file x --geolevel tract => line by line: leave --geounits-file out
query RESULT --table H10_002N --rank --whole --geolevel tract => --wide, --whole and --digits are of tables and counts
query RESULT --table H10 --geoid 01 --boundaries tracts.zip => --boundaries makes GeoParquet: give --out FILE.parquet
query RESULT --geounits 1 --boundaries t.zip --out x.parquet => --boundaries are of places one by one: give --geoid
tables nowhere => nowhere/result.json: No such file
""")


@every(("words", "said"), REFUSED)
def test_what_cannot_be_answered_is_refused_in_one_line(
    state: SmallState,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(capsys, *[str(state.result.folder) if word == "RESULT" else word for word in words])
    assert not list(tmp_path.iterdir())


def test_the_coverage_is_said_in_full(state: SmallState, capsys: pytest.CaptureFixture) -> None:
    where = [str(state.result.folder), "H10_002N"]
    for level, said in (("0.95", "95% from"), ("0.999", "99.9% from"), ("0.57", " 57% from")):
        assert said in shown(capsys, "query", where[0], "--table", where[1], "--geoid", "01", "--level", level)
        assert said in shown(
            capsys, "query", where[0], "--table", where[1], "--rank", "--geoid", "01", "--level", level
        )
        blocks = ["--count", "total", "--all", "--geolevel", "Block", "--level", level]
        assert said in shown(capsys, "query", where[0], *blocks)


def test_what_is_proved_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """From true counts of blocks, by the commands alone; places may be arrays and series in Python."""
    sexes = ["male", "female"]
    settings = settings_of(GEOLEVELS[1:], {"sex": sexes}, {"detailed": "1"})
    blocks, result = ["440010001001001", "440010001001002"], str(tmp_path / "result")
    release = simulate(tmp_path, settings, blocks, sexes, np.full((2, 2), 5), seed=1)
    shown(capsys, "estimate", str(release), "--out", result)
    assert "no figure is further than" in shown(capsys, "query", result, "--table", "P1", "--geoid", "44001")
    assert "no figure is further than" in shown(
        capsys, "query", result, "--table", "P1_001N", "--rank", "--geolevel", "block"
    )
    one = Result(result).table("P1", np.array(["44001"]))
    assert_frame_equal(one, Result(result).table("P1", pl.Series(["44001"])))
    assert_frame_equal(one, Result(result).table("P1", geolevel="county", geoids=np.array(["44"])))
