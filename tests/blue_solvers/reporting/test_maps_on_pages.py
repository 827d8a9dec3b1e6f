"""Maps on pages: every place that is listed, in its own shape, the darker the greater its first number."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.reporting import map_section, of_tables
from blue_solvers.reporting.map_section import with_map
from blue_solvers.reporting.page import html_of
from blue_solvers.reporting.page_parts import Page, Section, Shown
from constraint_builders.files import boundaries as files
from constraint_builders.files.boundaries import Boundaries
from tests.helpers.shapes import NAD83, polygon

PLACES = {"10": 30.0, "11": 10.0, "12": 20.0}


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Boundaries]:
    """A file of a state and its counties, and shapes in another order: squares side by side, at 60 degrees north."""
    rows = ["geolevel,geocode,table,sex,value,std_error", "state,1,total,*,61,1"]
    rows += [f"county,{code},sex,{sex},{size / 2},1" for sex in "fm" for code, size in PLACES.items()]
    (tmp_path / "in.csv").write_text("\n".join(rows) + "\n")
    squares = [[[x, 59.0], [x + 1, 59.0], [x + 1, 61.0], [x, 61.0], [x, 59.0]] for x in (0.0, 1.0, 2.0)]
    shapes = pl.Series([polygon([square]) for square in squares])
    found = Boundaries(pl.DataFrame({"GEOID": ["12", "10", "11"]}), shapes, NAD83)
    monkeypatch.setattr(files, "read_boundaries", lambda path: found)
    (tmp_path / "shapes.gpkg").touch()
    return tmp_path, found


def drawn(page: str) -> dict[str, tuple[str, float, np.ndarray]]:
    """By place what is said of it, its shade, and the corners of its box."""
    pattern = r'<path class="place" fill-rule="evenodd" fill-opacity="([\d.]+)" d="M([^Z]*)Z"><title>(\w+): ([^<]*)<'
    return {
        code: (said, float(shade), np.array([point.split() for point in line.split("L")], float))
        for shade, line, code, said in re.findall(pattern, page)
    }


@pytest.mark.parametrize("variable", ["sex", "place"])
def test_every_place_is_drawn_in_its_shape_by_its_number(given: tuple[Path, Boundaries], variable: str) -> None:
    folder, _ = given
    table, out = folder / "in.csv", folder / "out.html"
    table.write_text(table.read_text().replace("sex", variable))
    assert main(["report", str(table), "--boundaries", str(folder / "shapes.gpkg"), "--out", str(out)]) == 0
    page = out.read_text()
    found = drawn(page)
    assert list(found) == list(PLACES)
    assert [shade for _, shade, _ in found.values()] == pytest.approx([1.0, 0.08, 0.54], abs=0.002)
    assert [round(float(said)) for said, _, _ in found.values()] == [15, 5, 10]
    assert f"The map shows the 3 places of county, by {variable}, f." in page
    west = {code: points[:, 0].min() for code, (_, _, points) in found.items()}
    assert west["12"] < west["10"] < west["11"]
    for _, _, points in found.values():  # a degree is half as wide as high there
        wide, high = np.ptp(points, axis=0)
        assert high / wide == pytest.approx(4.0, rel=0.01)
    ends = re.search(r">([\d.]+) to ([\d.]+)</text>", page)
    assert [round(float(end)) for end in ends.groups()] == [5, 15]


def test_places_that_are_not_listed_are_drawn_too(
    given: tuple[Path, Boundaries], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of noisy tables and of a file of estimates, of which a page lists five rows, so two of three places."""
    folder, _ = given
    monkeypatch.setattr(of_tables, "MOST_ROWS", 5)
    out, estimates = str(folder / "out.html"), str(folder / "estimates.csv")
    assert main(["estimate", str(folder / "in.csv"), "--out", estimates]) == 0
    for path in (str(folder / "in.csv"), estimates):
        assert main(["report", path, "--boundaries", str(folder / "shapes.gpkg"), "--out", out]) == 0
        page = Path(out).read_text()
        assert "The first 5 of 7 rows" in page
        assert list(drawn(page)) == list(PLACES)
        assert "The map shows the 3 places of county, by sex, f." in page
    monkeypatch.setattr(map_section, "MOST_DRAWN", 2)
    assert main(["report", estimates, "--boundaries", str(folder / "shapes.gpkg"), "--out", out]) == 0
    assert "The map shows 2 of 3 places of county, by sex, f." in Path(out).read_text()


def test_places_of_which_nothing_is_known_have_no_colour(given: tuple[Path, Boundaries]) -> None:
    _, found = given
    keys = {"geolevel": ["county"] * 3, "geocode": list(PLACES), "table": ["total"] * 3}
    frame = pl.DataFrame({**keys, "estimate": [3.0, None, 1.0], "std error": [0.1, None, 0.0]})
    listed = Section("estimates", "Estimates", [], tables=[Shown("estimates", "", frame)])
    page = html_of(with_map(Page("", "", [], [listed]), found))
    assert [shade for _, shade, _ in drawn(page).values()] == [1.0, 0.0, 0.08]


def test_what_cannot_be_drawn_is_said(given: tuple[Path, Boundaries], capsys: pytest.CaptureFixture) -> None:
    folder, found = given
    found.attributes.replace_column(0, pl.Series("GEOID", ["12", "10", "13"]))
    words = ["--boundaries", str(folder / "shapes.gpkg"), "--out", str(folder / "out.html")]
    assert main(["report", str(folder / "in.csv"), *words]) == 2
    assert "shapes.gpkg: no shape is that of '11'" in capsys.readouterr().err
    (folder / "plain.csv").write_text("sex,value,std_error\n*,1004,10\nf,520,6\nm,490,6\n")
    assert main(["report", str(folder / "plain.csv"), *words]) == 2
    assert "boundaries are of places: no numbers of places are listed here" in capsys.readouterr().err
    assert not (folder / "out.html").exists()
